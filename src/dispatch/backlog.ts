import type { Ack } from '../hosting/drainable.ts'
import type { Inbox } from '../inbox/inbox.ts'
import type { Lanes } from './lanes.ts'
import { createWaitingIds, IdStore, type WaitingId } from './waiting-ids.ts'
import { createWork, noRequest, RequestWork, type Work } from './work.ts'

interface BacklogOptions {
  readonly inbox: Inbox
  readonly ack: Ack
  readonly order: 'vin' | 'none'
  readonly overflow: 'refuse' | 'conflate'
}

/** The most `Work` records in all lanes. */
const mostWorks = 10_000
/** The most `Work` records of one lane, when there are few of them in all. */
const mostOfLane = 4
/** The number of requests that the flags of an id can tell apart. One bit is for `redelivered`. */
const mostRequests = 128

/**
 * Messages that wait far behind. A durable inbox can hold a million messages, and a `Work` record for each would need more
 * memory than the process has. Beyond a number of records only ids are kept, and a record is made again when the turn of its
 * message comes near.
 */
export class Backlog {
  /** Whether it keeps ids at all. */
  readonly keepsIds: boolean
  readonly #inOrder: boolean
  /** Ids of messages that are in no lane. With `order: 'none'` each would have a lane of its own. */
  readonly #unordered = createWaitingIds()
  readonly #ids = new IdStore()
  readonly #requests: RequestWork[] = []

  constructor({ inbox, ack, order, overflow }: BacklogOptions) {
    // An inbox that several processes share reads a limited number of messages ahead, and has them in memory.
    const isInMemory = inbox.durability === 'memory' || inbox.isStillHeld !== undefined
    // There, ids save nothing. And a merged message has to be found by its id.
    this.keepsIds = !isInMemory && ack !== 'handled' && overflow === 'refuse'
    this.#inOrder = order === 'vin'
  }

  /**
   * Keeps only the id of a message that has started, when there are enough records. Returns whether it did. Only if
   * `keepsIds`.
   */
  shelve(work: Work, lanes: Lanes<Work>): boolean {
    const { lane, previous } = work
    const isFull = lanes.items > mostWorks || this.#unordered.size > 0
    if (lane === undefined || (!isFull && lane.items <= mostOfLane)) return false
    // The first message of a lane has to be in the queue of lanes before its id is enough.
    if (this.#inOrder && (previous === undefined || lane.turn === work)) return false
    const kept = this.#idOf(work)
    if (kept === undefined) return false
    if (this.#inOrder) {
      lanes.fold(work, kept)
      if (previous !== undefined) this.shelveHead(previous, lanes)
    } else {
      this.#ids.push(this.#unordered, kept.id, kept.flags)
      lanes.remove(work)
    }
    return true
  }

  /** The same for the only message of a lane in the queue, if it was never tried. Only if `keepsIds`. */
  shelveHead(work: Work, lanes: Lanes<Work>): void {
    if (!this.#inOrder || lanes.items <= mostWorks) return
    if (work.state !== 'waiting' || work.pending !== undefined || work.rest !== undefined) return
    const kept = this.#idOf(work)
    if (kept !== undefined) lanes.foldHead(work, kept)
  }

  /** Makes a work of an id again. */
  restore(lane: string, { id, flags }: WaitingId): Work {
    const request = this.#requests[flags >> 1] ?? new RequestWork([], noRequest)
    return createWork({ id, lane, kind: 'wire', redelivered: flags % 2 === 1 }, request)
  }

  /** A message in no lane that may go into one now, if there are few enough records. */
  next(lanes: Lanes<Work>): Work | undefined {
    if (this.#unordered.size === 0 || lanes.items >= mostWorks) return undefined
    const id = this.#ids.shift(this.#unordered)
    // It has a lane of its own, so nobody needs to know its vehicle before it is read.
    return id && this.restore('', id)
  }

  clear(): void {
    while (this.#unordered.size > 0) this.#ids.shift(this.#unordered)
  }

  /** The number of messages in no lane. */
  get size(): number {
    return this.#unordered.size
  }

  /** What has to be kept of a message beside its lane; `undefined` when that does not fit into an id and its flags. */
  #idOf({ id, request, counts, attemptsBefore, notBefore, redelivered }: Work): WaitingId | undefined {
    if (!counts || attemptsBefore > 0 || notBefore > 0 || request.isBound || request.isWatched) return undefined
    let which = this.#requests.findIndex(({ env }) => env === request.env)
    if (which === -1) {
      if (this.#requests.length === mostRequests) return undefined
      which = this.#requests.push(new RequestWork([], { env: request.env, context: undefined })) - 1
    }
    return { id, flags: which * 2 + Number(redelivered) }
  }
}
