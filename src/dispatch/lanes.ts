import { createPassingMap } from '../passing-map.ts'

/** What stands in a lane. The links are the lanes' own: a queue that costs no object beside its items. */
export interface InLane<Item> {
  /** Whether it may be taken when its turn comes. */
  ready: boolean
  lane: Lane<Item> | undefined
  previous: Item | undefined
  next: Item | undefined
}

/** A queue of work for one VIN. It exists only while it has work. */
export interface Lane<Item> {
  readonly key: string
  head: Item | undefined
  tail: Item | undefined
  /** Waiting for its turn, or not: its head was taken or is not ready. */
  queued: boolean
  next: Lane<Item> | undefined
}

/**
 * Who is next. Work of one lane comes out in the order in which it went in, one piece at a time; lanes take turns, so
 * that one busy vehicle does not keep the others waiting. Every step costs the same, however many lanes there are.
 */
export interface Lanes<Item extends InLane<Item>> {
  /** Adds an item at the end of its lane. It keeps its place, and those behind it wait, until it is `ready`. */
  add(key: string, item: Item): void
  /** It may be taken from now on. Not to be said of one that is taken. */
  ready(item: Item): void
  /** Takes the head of the next lane. The lane stays away until the item is put `back` or removed. */
  take(): Item | undefined
  /** A taken item is to be taken again, once it is `ready` again. */
  back(item: Item): void
  /** Takes an item out of its lane for good, wherever it stands. */
  remove(item: Item): void
  /** Whether `take` might yield something. */
  readonly waiting: boolean
  /** How many lanes have work. */
  readonly size: number
  /** Everything that waits or runs, lane by lane in order. */
  all(): Generator<Item>
}

/** No lanes yet. */
export function createLanes<Item extends InLane<Item>>(): Lanes<Item> {
  const lanes = createPassingMap<string, Lane<Item>>()
  let first: Lane<Item> | undefined
  let last: Lane<Item> | undefined

  /** A lane whose head may be taken goes to the back of the queue, unless it is there. */
  function queue(lane: Lane<Item>): void {
    if (lane.queued || !lane.head?.ready) return
    lane.queued = true
    lane.next = undefined
    if (last === undefined) first = lane
    else last.next = lane
    last = lane
  }

  return {
    add(key, item) {
      let lane = lanes.get(key)
      if (lane === undefined) {
        lane = { key, head: undefined, tail: undefined, queued: false, next: undefined }
        lanes.set(key, lane)
      }
      item.lane = lane
      item.previous = lane.tail
      if (lane.tail === undefined) lane.head = item
      else lane.tail.next = item
      lane.tail = item
    },

    ready(item) {
      item.ready = true
      if (item.lane?.head === item) queue(item.lane)
    },

    take() {
      while (first !== undefined) {
        const lane = first
        first = lane.next
        if (first === undefined) last = undefined
        lane.queued = false
        lane.next = undefined
        // Its head can have been removed while it waited for its turn.
        if (lane.head?.ready) return lane.head
      }
      return undefined
    },

    back(item) {
      item.ready = false
    },

    remove(item) {
      const { lane, previous, next } = item
      if (lane === undefined) return
      item.lane = undefined
      item.previous = undefined
      item.next = undefined
      if (next === undefined) lane.tail = previous
      else next.previous = previous
      if (previous !== undefined) {
        previous.next = next
        return
      }
      lane.head = next
      if (next === undefined) lanes.delete(lane.key)
      else queue(lane)
    },

    get waiting() {
      return first !== undefined
    },

    get size() {
      return lanes.size
    },

    *all() {
      for (const lane of lanes.values()) for (let item = lane.head; item !== undefined; item = item.next) yield item
    },
  }
}
