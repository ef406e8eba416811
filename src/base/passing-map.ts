/**
 * A `Map` for entries that come and go all the time.
 *
 * V8 gives a `Map` a new table whenever the old one is full of deleted entries, and the old table points to the new one. Once
 * a table is in the old generation, minor garbage collections keep every later table, with everything that was ever moved
 * into it, until a full collection. So this class replaces its `Map` before the chain gets long.
 *
 * Measured with `receiver.accept`, 400,000 messages in memory on Node 24: 6.3 µs per message instead of 9.0 µs with plain
 * maps of lanes and messages, because garbage collection takes a fifth of the time.
 */
export class PassingMap<Key, Value> {
  size = 0
  #map = new Map<Key, Value>()
  #deleted = 0

  get(key: Key): Value | undefined {
    return this.#map.get(key)
  }

  set(key: Key, value: Value): void {
    this.#map.set(key, value)
    this.size = this.#map.size
  }

  /** Returns whether it was there. */
  delete(key: Key): boolean {
    if (!this.#map.delete(key)) return false
    this.size = this.#map.size
    this.#deleted += 1
    if (this.#deleted >= 500 + 8 * this.#map.size) {
      this.#map = new Map(this.#map)
      this.#deleted = 0
    }
    return true
  }

  values(): IterableIterator<Value> {
    return this.#map.values()
  }
}
