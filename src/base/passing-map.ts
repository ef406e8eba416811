/** What is needed of a `Map` here. */
export interface PassingMap<Key, Value> {
  get(key: Key): Value | undefined
  set(key: Key, value: Value): void
  /** Whether it was there. */
  delete(key: Key): boolean
  /** In the order in which they were set. */
  values(): IterableIterator<Value>
  readonly size: number
}

/**
 * A `Map` for what comes and goes all the time.
 *
 * V8 gives a Map a new table whenever the old one is full of what was deleted, and the old one points to the new one. Once
 * one of them has grown old, the collector of young objects keeps every table that follows, with all that was ever moved
 * into it, until a full collection: most of what lives for one message was held by that. So a Map is replaced
 * before the chain is long; what there is to move then is far less than what has gone.
 */
export function createPassingMap<Key, Value>(): PassingMap<Key, Value> {
  let map = new Map<Key, Value>()
  let deleted = 0
  return {
    get: (key) => map.get(key),
    set(key, value) {
      map.set(key, value)
    },
    delete(key) {
      if (!map.delete(key)) return false
      deleted += 1
      if (deleted >= 500 + 8 * map.size) {
        map = new Map(map)
        deleted = 0
      }
      return true
    },
    values: () => map.values(),
    get size() {
      return map.size
    },
  }
}
