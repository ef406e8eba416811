import type { Ack } from '../hosting/drainable.ts'
import type { Inbox } from '../inbox/inbox.ts'
import type { Lanes } from './lanes.ts'
import { createWaitingIds, IdStore, type WaitingId } from './waiting-ids.ts'
import { createWork, nowhere, RequestWork, type Work } from './work.ts'

interface BacklogOptions {
  readonly inbox: Inbox
  readonly ack: Ack
  readonly order: 'vin' | 'none'
  readonly overflow: 'refuse' | 'conflate'
}

/** Works in all. */
const mostWorks = 10_000
/** Works of one lane. */
const mostOfLane = 4
/** Surroundings that the flags of an id can tell apart, beside one bit for `redelivered`. */
const mostSurroundings = 128

/**
 * Messages that wait far behind. A durable inbox holds a million messages, and a work for each would need more memory than
 * the process has. Beyond a number of works only ids are kept; works are made of them as their turn comes near.
 */
export class Backlog {
  /** Whether it keeps ids at all. */
  readonly keepsIds: boolean
  readonly #inOrder: boolean
  /** Ids of messages in no lane: without order each would have a lane of its own. */
  readonly #unordered = createWaitingIds()
  readonly #ids = new IdStore()
  readonly #requests: RequestWork[] = []

  constructor({ inbox, ack, order, overflow }: BacklogOptions) {
    // In memory each message is an object all the same, and a merged message has to be found by its id.
    this.keepsIds = inbox.durability !== 'memory' && ack !== 'handled' && overflow === 'refuse'
    this.#inOrder = order === 'vin'
  }

  /** Keeps only the id of a work that has started, when there are enough works. Returns whether it did. Only if `keepsIds`. */
  shelve(work: Work, lanes: Lanes<Work>): boolean {
    const { lane, previous } = work
    const isFull = lanes.items > mostWorks || this.#unordered.size > 0
    if (lane === undefined || (!isFull && lane.items <= mostOfLane)) return false
    // The first of a lane has to stand in the queue before its id is enough.
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

  /** Keeps only the id of the only work of a lane in the queue, when there are enough works and it was never tried. Only if `keepsIds`. */
  shelveHead(work: Work, lanes: Lanes<Work>): void {
    if (!this.#inOrder || lanes.items <= mostWorks) return
    if (work.state !== 'waiting' || work.pending !== undefined || work.rest !== undefined) return
    const kept = this.#idOf(work)
    if (kept !== undefined) lanes.foldHead(work, kept)
  }

  /** Makes a work of an id again. */
  restore(lane: string, { id, flags }: WaitingId): Work {
    const request = this.#requests[flags >> 1] ?? new RequestWork([], nowhere)
    return createWork({ id, lane, kind: 'wire', redelivered: flags % 2 === 1 }, request)
  }

  /** A work in no lane that may go into one now, if there are few enough works. */
  next(lanes: Lanes<Work>): Work | undefined {
    if (this.#unordered.size === 0 || lanes.items >= mostWorks) return undefined
    const id = this.#ids.shift(this.#unordered)
    // Which vehicle it is for does not matter before it is read: it has a lane of its own.
    return id && this.restore('', id)
  }

  clear(): void {
    while (this.#unordered.size > 0) this.#ids.shift(this.#unordered)
  }

  /** The number of messages in no lane. */
  get size(): number {
    return this.#unordered.size
  }

  /** What has to be kept of a work beside its lane; `undefined` when that does not fit into an id and its flags. */
  #idOf({ id, request, counts, attemptsBefore, notBefore, redelivered }: Work): WaitingId | undefined {
    if (!counts || attemptsBefore > 0 || notBefore > 0 || request.isHeld || request.isWatched) return undefined
    let which = this.#requests.findIndex(({ env }) => env === request.env)
    if (which === -1) {
      if (this.#requests.length === mostSurroundings) return undefined
      which = this.#requests.push(new RequestWork([], { env: request.env, context: undefined })) - 1
    }
    return { id, flags: which * 2 + Number(redelivered) }
  }
}
