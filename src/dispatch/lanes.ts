import { PassingMap } from '../base/passing-map.ts'
import { createWaitingIds, IdStore, type WaitingId, type WaitingIds } from './waiting-ids.ts'

/** The links of an item in its lane. Only {@link Lanes} writes them. They make a queue that needs no objects but its items. */
export interface InLane<Item> {
  /** Whether it may be taken when its turn comes. */
  isReady: boolean
  lane: Lane<Item> | undefined
  previous: Item | undefined
  next: Item | undefined
  /** The ids of messages directly behind it that have no item. */
  behind: WaitingIds | undefined
}

/** The queue of one VIN. It exists only while it has work. */
interface Lane<Item> {
  readonly key: string
  head: Item | undefined
  tail: Item | undefined
  /** The item whose turn it is: the head, or the first item behind those that were passed over. */
  turn: Item | undefined
  /** The number of items, without those of which only the ids are kept. */
  items: number
  /** Whether it is in the queue of lanes. If not, its item was taken or is not ready. */
  isQueued: boolean
  next: Lane<Item> | undefined
  /** The ids of all its messages, while it has no item. Such a lane is in the queue. */
  folded: WaitingIds | undefined
}

/**
 * Decides which item is next. Items of one lane come out in the order in which they went in, one at a time. Lanes take turns,
 * so that a busy vehicle does not keep the others waiting. The cost of a step does not depend on the number of lanes.
 */
export class Lanes<Item extends InLane<Item>> {
  /** Makes an item of what `fold` kept of it. */
  readonly #restore: (lane: string, kept: WaitingId) => Item
  #lanes = new PassingMap<string, Lane<Item>>()
  #ids = new IdStore()
  /** The lane whose turn is next, if any has something to take. */
  first: Lane<Item> | undefined
  #last: Lane<Item> | undefined
  /** The number of items, without those of which only the ids are kept. */
  items = 0
  /** The number of those of which only the ids are kept. */
  folded = 0

  constructor(restore: (lane: string, kept: WaitingId) => Item) {
    this.#restore = restore
  }

  /** Adds an item at the end of its lane. It keeps its place, and those behind it wait, until it is `ready`. */
  add(key: string, item: Item): void {
    let lane = this.#lanes.get(key)
    if (lane === undefined) {
      const none = undefined
      lane = { key, head: none, tail: none, turn: none, items: 0, isQueued: false, next: none, folded: none }
      this.#lanes.set(key, lane)
    }
    if (lane.folded !== undefined) this.#unfold(lane, lane.folded)
    item.lane = lane
    item.previous = lane.tail
    if (lane.tail === undefined) lane.head = item
    else lane.tail.next = item
    lane.tail = item
    lane.turn ??= item
    lane.items += 1
    this.items += 1
  }

  /** The item may be taken from now on. Not to be called while an item that was taken has its turn. */
  ready(item: Item): void {
    item.isReady = true
    if (item.lane?.turn === item) this.#queue(item.lane)
  }

  /**
   * Takes the item whose turn it is in the next lane. The lane leaves the queue until the item is `ready` again, passed over
   * or removed.
   */
  take(): Item | undefined {
    while (this.first !== undefined) {
      const lane = this.first
      this.first = lane.next
      if (this.first === undefined) this.#last = undefined
      lane.isQueued = false
      lane.next = undefined
      if (lane.folded !== undefined) this.#unfold(lane, lane.folded)
      const { turn } = lane
      // The item can have been removed while the lane waited.
      if (!turn?.isReady) continue
      turn.isReady = false
      return turn
    }
    return undefined
  }

  /** The item keeps its place, and the turn goes to the one behind it. */
  pass(item: Item): void {
    const { lane } = item
    item.isReady = false
    if (lane?.turn !== item) return
    lane.turn = this.#follower(lane, item)
    this.#queue(lane)
  }

  /** The turn goes back to an item that was passed. */
  recall(item: Item): void {
    if (item.lane !== undefined) item.lane.turn = item
  }

  /** Replaces an item whose turn is still to come by its id. */
  fold(item: Item, { id, flags }: WaitingId): void {
    const { lane, previous, behind } = item
    if (lane === undefined || previous === undefined || lane.turn === item) return
    this.#ids.push((previous.behind ??= createWaitingIds()), id, flags)
    this.folded += 1
    if (behind !== undefined) this.#ids.append(previous.behind, behind)
    item.behind = undefined
    this.#unlink(lane, item)
  }

  /** Replaces the only item of a lane in the queue by its id, before its turn has come. */
  foldHead(item: Item, { id, flags }: WaitingId): void {
    const { lane } = item
    if (lane === undefined || lane.items > 1 || !item.isReady || !lane.isQueued) return
    const ids = item.behind ?? createWaitingIds()
    this.#ids.unshift(ids, id, flags)
    this.folded += 1
    item.behind = undefined
    this.#unlink(lane, item)
    lane.turn = undefined
    lane.folded = ids
  }

  /** Takes an item out of its lane for good, wherever it stands. */
  remove(item: Item): void {
    const { lane } = item
    if (lane === undefined) return
    const next = item.behind === undefined ? item.next : this.#follower(lane, item)
    this.#unlink(lane, item)
    if (lane.head === undefined) this.#lanes.delete(lane.key)
    else if (lane.turn === item) {
      lane.turn = next
      this.#queue(lane)
    }
  }

  /** Forgets everything. The inbox may still be storing an item: such an item is then in no lane. */
  clear(): void {
    for (const item of this.all()) {
      item.lane = undefined
      item.behind = undefined
    }
    this.#lanes = new PassingMap()
    this.#ids = new IdStore()
    this.first = undefined
    this.#last = undefined
    this.items = 0
    this.folded = 0
  }

  /** The number of lanes with work. */
  get size(): number {
    return this.#lanes.size
  }

  /** Every item, lane by lane in order. */
  *all(): Generator<Item> {
    for (const lane of this.#lanes.values()) for (let item = lane.head; item !== undefined; item = item.next) yield item
  }

  /** A lane with something to take goes to the back of the queue, unless it is in the queue already. */
  #queue(lane: Lane<Item>): void {
    if (lane.isQueued || !lane.turn?.isReady) return
    lane.isQueued = true
    lane.next = undefined
    if (this.#last === undefined) this.first = lane
    else this.#last.next = lane
    this.#last = lane
  }

  #unlink(lane: Lane<Item>, item: Item): void {
    const { previous, next } = item
    item.lane = undefined
    item.previous = undefined
    item.next = undefined
    if (next === undefined) lane.tail = previous
    else next.previous = previous
    if (previous === undefined) lane.head = next
    else previous.next = next
    lane.items -= 1
    this.items -= 1
  }

  /** Makes the first item again of a lane that has only ids. */
  #unfold(lane: Lane<Item>, folded: WaitingIds): void {
    lane.folded = undefined
    lane.turn = this.#restoreFirst(lane, folded, undefined)
  }

  /** The item behind another. If only its id is kept, makes it again. */
  #follower(lane: Lane<Item>, item: Item): Item | undefined {
    const { behind } = item
    if (behind === undefined) return item.next
    item.behind = undefined
    return this.#restoreFirst(lane, behind, item) ?? item.next
  }

  /** Makes an item of the first id again, behind `previous`. The other ids wait behind it from now on. */
  #restoreFirst(lane: Lane<Item>, ids: WaitingIds, previous: Item | undefined): Item | undefined {
    const kept = this.#ids.shift(ids)
    if (kept === undefined) return undefined
    this.folded -= 1
    const item = this.#restore(lane.key, kept)
    item.isReady = true
    if (ids.size > 0) item.behind = ids
    const next = previous?.next
    item.lane = lane
    item.previous = previous
    item.next = next
    if (previous === undefined) lane.head = item
    else previous.next = item
    if (next === undefined) lane.tail = item
    else next.previous = item
    lane.items += 1
    this.items += 1
    return item
  }
}
