import { createPassingMap } from '../base/passing-map.ts'
import { appendIds, createWaitingIds, pushId, shiftId, type WaitingId, type WaitingIds } from './waiting-ids.ts'

/** What stands in a lane. The links are the lanes' own: a queue that costs no object beside its items. */
export interface InLane<Item> {
  /** Whether it may be taken when its turn comes. */
  ready: boolean
  lane: Lane<Item> | undefined
  previous: Item | undefined
  next: Item | undefined
  /** Those that wait directly behind it, of which only the ids are kept. */
  behind: WaitingIds | undefined
}

/** A queue of work for one VIN. It exists only while it has work. */
export interface Lane<Item> {
  readonly key: string
  head: Item | undefined
  tail: Item | undefined
  /** Whose turn it is: the head's, or that of the first behind those that were passed. */
  turn: Item | undefined
  /** How many items it has, those of which only the ids are kept left out. */
  items: number
  /** Waiting for its turn, or not: whose turn it is was taken or is not ready. */
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
  /** It may be taken from now on. Not to be said of one that is taken, and has not ended its turn. */
  ready(item: Item): void
  /** Takes whose turn it is in the next lane. The lane stays away until the item is `ready` again, passed or removed. */
  take(): Item | undefined
  /** The item keeps its place, and the turn is that of the one behind it. */
  pass(item: Item): void
  /** The turn is that of the item again, which was passed. */
  recall(item: Item): void
  /** Keeps no more of an item than its id. Its turn must be still to come. */
  fold(item: Item, as: WaitingId): void
  /** Takes an item out of its lane for good, wherever it stands. */
  remove(item: Item): void
  /** Forgets everything. */
  clear(): void
  /** Whether `take` might yield something. */
  readonly waiting: boolean
  /** How many lanes have work. */
  readonly size: number
  /** How many items there are, and of how many only the ids are kept. */
  readonly items: number
  readonly folded: number
  /** Every item, lane by lane in order. */
  all(): Generator<Item>
}

/** No lanes yet. `unfold` makes an item, ready to be taken, of what `fold` has kept of it. */
export function createLanes<Item extends InLane<Item>>(unfold: (lane: string, kept: WaitingId) => Item): Lanes<Item> {
  let lanes = createPassingMap<string, Lane<Item>>()
  let first: Lane<Item> | undefined
  let last: Lane<Item> | undefined
  let items = 0
  let folded = 0

  /** A lane that has something to take goes to the back of the queue, unless it is there. */
  function queue(lane: Lane<Item>): void {
    if (lane.queued || !lane.turn?.ready) return
    lane.queued = true
    lane.next = undefined
    if (last === undefined) first = lane
    else last.next = lane
    last = lane
  }

  function link(lane: Lane<Item>, item: Item, previous: Item | undefined): void {
    const next = previous === undefined ? lane.head : previous.next
    item.lane = lane
    item.previous = previous
    item.next = next
    if (previous === undefined) lane.head = item
    else previous.next = item
    if (next === undefined) lane.tail = item
    else next.previous = item
    lane.items += 1
    items += 1
  }

  function unlink(lane: Lane<Item>, item: Item): void {
    const { previous, next } = item
    item.lane = undefined
    item.previous = undefined
    item.next = undefined
    if (next === undefined) lane.tail = previous
    else next.previous = previous
    if (previous === undefined) lane.head = next
    else previous.next = next
    lane.items -= 1
    items -= 1
  }

  /** The one behind an item. What hangs on the item as ids hangs on that one from now on. */
  function follower(lane: Lane<Item>, item: Item): Item | undefined {
    const { behind } = item
    if (behind === undefined) return item.next
    item.behind = undefined
    const kept = shiftId(behind)
    if (kept === undefined) return item.next
    folded -= 1
    const made = unfold(lane.key, kept)
    if (behind.size > 0) made.behind = behind
    link(lane, made, item)
    return made
  }

  return {
    add(key, item) {
      let lane = lanes.get(key)
      if (lane === undefined) {
        lane = { key, head: undefined, tail: undefined, turn: undefined, items: 0, queued: false, next: undefined }
        lanes.set(key, lane)
      }
      link(lane, item, lane.tail)
      lane.turn ??= item
    },

    ready(item) {
      item.ready = true
      if (item.lane?.turn === item) queue(item.lane)
    },

    take() {
      while (first !== undefined) {
        const lane = first
        first = lane.next
        if (first === undefined) last = undefined
        lane.queued = false
        lane.next = undefined
        const { turn } = lane
        // Whose turn it was can have been removed while the lane waited.
        if (!turn?.ready) continue
        turn.ready = false
        return turn
      }
      return undefined
    },

    pass(item) {
      const { lane } = item
      item.ready = false
      if (lane?.turn !== item) return
      lane.turn = follower(lane, item)
      queue(lane)
    },

    recall(item) {
      if (item.lane !== undefined) item.lane.turn = item
    },

    fold(item, { id, flags }) {
      const { lane, previous, behind } = item
      if (lane === undefined || previous === undefined || lane.turn === item) return
      pushId((previous.behind ??= createWaitingIds()), id, flags)
      folded += 1
      if (behind !== undefined) appendIds(previous.behind, behind)
      item.behind = undefined
      unlink(lane, item)
    },

    remove(item) {
      const { lane } = item
      if (lane === undefined) return
      const next = follower(lane, item)
      unlink(lane, item)
      if (lane.head === undefined) lanes.delete(lane.key)
      else if (lane.turn === item) {
        lane.turn = next
        queue(lane)
      }
    },

    clear() {
      lanes = createPassingMap()
      first = undefined
      last = undefined
      items = 0
      folded = 0
    },

    get waiting() {
      return first !== undefined
    },

    get size() {
      return lanes.size
    },

    get items() {
      return items
    },

    get folded() {
      return folded
    },

    *all() {
      for (const lane of lanes.values()) for (let item = lane.head; item !== undefined; item = item.next) yield item
    },
  }
}
