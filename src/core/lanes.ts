import { PassingMap } from '../base/passing-map.ts'
import type { Lane, Message } from './message.ts'

/** The most messages that need not count because their lanes are set aside. */
const mostAside = 90_000

/**
 * Decides which message is next. Messages of one lane come out in the order in which they went in, one at a time. Lanes take turns, so
 * that a busy vehicle does not keep the others waiting. The cost does not depend on the number of lanes.
 */
export class Lanes {
  #lanes = new PassingMap<string, Lane>()
  #first: Lane | undefined
  #last: Lane | undefined
  /** The number of messages in all lanes, and of those in lanes that were set aside. */
  #messages = 0
  #aside = 0

  get size(): number {
    return this.#lanes.size
  }

  /**
   * The number of messages in lanes. A vehicle whose message fails for an hour must not keep others waiting, so a lane that was set aside does not
   * count: neither while its message is tried again, nor when new ones come.
   */
  get messages(): number {
    return this.#messages - Math.min(this.#aside, mostAside)
  }

  get hasNext(): boolean {
    return this.#first !== undefined
  }

  /** Adds a message at the end of its lane. It keeps its place, and those behind it wait, until it is {@link ready}. */
  add(message: Message): void {
    let lane = this.#lanes.get(message.lane)
    if (lane === undefined) {
      lane = {
        head: message,
        tail: undefined,
        turn: undefined,
        isQueued: false,
        following: undefined,
        messages: 0,
        aside: undefined,
      }
      this.#lanes.set(message.lane, lane)
    }
    message.inLane = lane
    message.previous = lane.tail
    if (lane.tail !== undefined) lane.tail.next = message
    lane.tail = message
    lane.turn ??= message
    lane.messages += 1
    this.#messages += 1
    if (lane.aside !== undefined) this.#aside += 1
  }

  /** The message may be taken when its turn comes. Not to be called while it has its turn. */
  ready(message: Message): void {
    message.isReady = true
    const { inLane: lane } = message
    if (lane?.turn === message) this.#queue(lane)
  }

  /** Takes the message whose turn it is in the next lane. The lane leaves the queue until the message is ready again, passed over or removed. */
  take(): Message | undefined {
    for (let lane = this.#first; lane !== undefined; lane = this.#first) {
      this.#first = lane.following
      if (this.#first === undefined) this.#last = undefined
      lane.isQueued = false
      lane.following = undefined
      const { turn } = lane
      // The message can have been removed while its lane waited.
      if (turn?.isReady !== true) continue
      turn.isReady = false
      return turn
    }
    return undefined
  }

  /** The message keeps its place, and the turn goes to the one behind it. */
  pass(message: Message): void {
    message.isReady = false
    const { inLane: lane } = message
    if (lane?.turn !== message) return
    lane.turn = message.next
    this.#queue(lane)
  }

  /** The turn goes back to a message that was passed over, unless one before it has the turn. */
  recall(message: Message): void {
    const { inLane: lane } = message
    if (lane === undefined) return
    for (let before = message.previous; before !== undefined; before = before.previous) if (lane.turn === before) return
    lane.turn = message
  }

  /** Takes a message out of its lane for good, wherever it stands. */
  remove(message: Message): void {
    const { inLane: lane, previous, next } = message
    if (lane === undefined) return
    message.inLane = undefined
    message.previous = undefined
    message.next = undefined
    if (next === undefined) lane.tail = previous
    else next.previous = previous
    if (previous === undefined) lane.head = next
    else previous.next = next
    if (lane.aside !== undefined) this.#aside -= 1
    lane.messages -= 1
    this.#messages -= 1
    if (lane.aside === message) {
      lane.aside = undefined
      this.#aside -= lane.messages
    }
    if (lane.turn === message) {
      lane.turn = next
      this.#queue(lane)
    }
    if (lane.head === undefined) this.#lanes.delete(message.lane)
  }

  /** Forgets everything. The inbox may still be storing a message: such a message is then in no lane. */
  clear(): void {
    for (const message of this.all()) message.inLane = undefined
    this.#lanes = new PassingMap()
    this.#first = undefined
    this.#last = undefined
    this.#messages = 0
    this.#aside = 0
  }

  /** A message rests, so its lane does not count until that message is over: see {@link messages}. */
  setAside(message: Message): void {
    const { inLane: lane } = message
    if (lane === undefined || lane.aside !== undefined) return
    lane.aside = message
    this.#aside += lane.messages
  }

  /** Every message, lane by lane in order. */
  *all(): Generator<Message> {
    for (const { head } of this.#lanes.values())
      for (let message = head; message !== undefined; message = message.next) yield message
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
