import { PassingMap } from '../base/passing-map.ts'
import type { Entry, Lane } from './entry.ts'

/** The most entries that need not count because their lanes rest. */
const mostAside = 90_000

/**
 * Decides which entry is next. Entries of one lane come out in the order in which they went in, one at a time. Lanes take turns, so
 * that a busy vehicle does not keep the others waiting. The cost of a step does not depend on the number of lanes.
 */
export class Lanes {
  #lanes = new PassingMap<string, Lane>()
  #first: Lane | undefined
  #last: Lane | undefined
  /** The number of entries in all lanes, and of those in lanes that were set aside. */
  #entries = 0
  #aside = 0

  get size(): number {
    return this.#lanes.size
  }

  /** The number of entries in lanes. A vehicle whose message fails for an hour must not keep others waiting, so lanes that rest do not count. */
  get entries(): number {
    return this.#entries - Math.min(this.#aside, mostAside)
  }

  get hasNext(): boolean {
    return this.#first !== undefined
  }

  /** Adds an entry at the end of its lane. It keeps its place, and those behind it wait, until it is {@link ready}. */
  add(entry: Entry): void {
    const key = entry.laneKey
    let lane = this.#lanes.get(key)
    if (lane === undefined) {
      lane = {
        key,
        head: undefined,
        tail: undefined,
        turn: undefined,
        isQueued: false,
        following: undefined,
        entries: 0,
        isAside: false,
      }
      this.#lanes.set(key, lane)
    }
    entry.lane = lane
    entry.previous = lane.tail
    if (lane.tail === undefined) lane.head = entry
    else lane.tail.next = entry
    lane.tail = entry
    lane.turn ??= entry
    this.#count(lane, 1)
  }

  /** The entry may be taken when its turn comes, and its lane no longer rests. Not to be called while it has its turn. */
  ready(entry: Entry): void {
    entry.isReady = true
    const { lane } = entry
    if (lane?.isAside === true) this.setAside(entry, false)
    if (lane?.turn === entry) this.#queue(lane)
  }

  /** Takes the entry whose turn it is in the next lane. The lane leaves the queue until the entry is ready again, passed over or removed. */
  take(): Entry | undefined {
    for (let lane = this.#first; lane !== undefined; lane = this.#first) {
      this.#first = lane.following
      if (this.#first === undefined) this.#last = undefined
      lane.isQueued = false
      lane.following = undefined
      const { turn } = lane
      // The entry can have been removed while its lane waited.
      if (turn?.isReady !== true) continue
      turn.isReady = false
      return turn
    }
    return undefined
  }

  /** The entry keeps its place, and the turn goes to the one behind it. */
  pass(entry: Entry): void {
    entry.isReady = false
    const { lane } = entry
    if (lane?.turn !== entry) return
    lane.turn = entry.next
    this.#queue(lane)
  }

  /** The turn goes back to an entry that was passed over, unless one before it has the turn. */
  recall(entry: Entry): void {
    const { lane } = entry
    if (lane === undefined) return
    for (let before = entry.previous; before !== undefined; before = before.previous) if (lane.turn === before) return
    lane.turn = entry
  }

  /** Takes an entry out of its lane for good, wherever it stands. */
  remove(entry: Entry): void {
    const { lane, previous, next } = entry
    if (lane === undefined) return
    entry.lane = undefined
    entry.previous = undefined
    entry.next = undefined
    if (next === undefined) lane.tail = previous
    else next.previous = previous
    if (previous === undefined) lane.head = next
    else previous.next = next
    this.#count(lane, -1)
    if (lane.turn === entry) {
      lane.turn = next
      this.#queue(lane)
    }
    if (lane.head === undefined) this.#lanes.delete(lane.key)
  }

  /** Forgets everything. The inbox may still be storing an entry: such an entry is then in no lane. */
  clear(): void {
    for (const entry of this.all()) entry.lane = undefined
    this.#lanes = new PassingMap()
    this.#first = undefined
    this.#last = undefined
    this.#entries = 0
    this.#aside = 0
  }

  /** The lane of an entry rests, or goes on: see {@link entries}. */
  setAside({ lane }: Entry, isAside: boolean): void {
    if (lane === undefined || lane.isAside === isAside) return
    lane.isAside = isAside
    this.#aside += isAside ? lane.entries : -lane.entries
  }

  /** Every entry, lane by lane in order. */
  *all(): Generator<Entry> {
    for (const { head } of this.#lanes.values())
      for (let entry = head; entry !== undefined; entry = entry.next) yield entry
  }

  #count(lane: Lane, more: 1 | -1): void {
    lane.entries += more
    this.#entries += more
    if (lane.isAside) this.#aside += more
  }

  /** A lane with something to take goes to the back of the queue, unless it stands there already. */
  #queue(lane: Lane): void {
    if (lane.isQueued || lane.turn?.isReady !== true) return
    lane.isQueued = true
    if (this.#last === undefined) this.#first = lane
    else this.#last.following = lane
    this.#last = lane
  }
}
