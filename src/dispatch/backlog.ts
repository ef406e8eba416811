import type { Ack } from '../hosting/drainable.ts'
import type { Inbox } from '../inbox/inbox.ts'
import type { Lanes } from './lanes.ts'
import { createWaitingIds, pushId, shiftId, type WaitingId } from './waiting-ids.ts'
import { type Arrival, createArrival, createWork, type Work } from './work.ts'

/**
 * What waits far behind. A durable inbox holds a million messages, and a work for each would be more than the process has: so
 * beyond a number of them only ids are kept, from which works are made as their turn comes near.
 */
export interface Backlog {
  /** Keeps no more than the id of a work that has started, if there are enough works. Returns whether it did. */
  shelve(work: Work): boolean
  /** Makes a work of an id that `lanes` kept. */
  unfold(lane: string, kept: WaitingId): Work
  /** One that may go into its lane now, if there are few enough. */
  next(): Work | undefined
  clear(): void
  /** How many are in no lane, because each would have one of its own. */
  readonly size: number
}

export interface BacklogOptions {
  readonly inbox: Inbox
  readonly ack: Ack
  readonly order: 'vin' | 'none'
  readonly overflow: 'refuse' | 'conflate'
  readonly lanes: () => Lanes<Work>
}

/** Works in all, beyond the first of each lane. */
const mostWorks = 10_000
/** Works of one lane. */
const mostOfLane = 4
/** Surroundings that can be told apart by the flags of an id, beside one bit for `redelivered`. */
const mostSurroundings = 32

export function createBacklog({ inbox, ack, order, overflow, lanes }: BacklogOptions): Backlog {
  // In memory each message is an object all the same, and one that is merged with others has to be found by its id.
  const shelves = inbox.durability !== 'memory' && ack !== 'handled' && overflow === 'refuse'
  const loose = createWaitingIds()
  const surroundings: Arrival[] = []

  /** What has to be kept of a work beside its lane; `undefined` when that does not fit into an id and a byte. */
  function kept({ id, arrival, counts, attemptsBefore, notBefore, redelivered }: Work): WaitingId | undefined {
    if (!counts || attemptsBefore > 0 || notBefore > 0 || arrival.held || arrival.watched) return undefined
    let which = surroundings.findIndex(({ env }) => env === arrival.env)
    if (which === -1) {
      if (surroundings.length === mostSurroundings) return undefined
      which = surroundings.push(createArrival([], { env: arrival.env, context: undefined })) - 1
    }
    return { id, flags: which * 2 + Number(redelivered) }
  }

  function unfold(lane: string, { id, flags }: WaitingId): Work {
    const arrival = surroundings[flags >> 1] ?? createArrival([], { env: undefined, context: undefined })
    const work = createWork({ id, lane, kind: 'wire', redelivered: flags % 2 === 1 }, arrival)
    work.ready = true
    return work
  }

  return {
    unfold,

    shelve(work) {
      if (!shelves) return false
      const { lane, previous } = work
      const full = lanes().items > mostWorks || loose.size > 0
      if (lane === undefined || (!full && lane.items <= mostOfLane)) return false
      if (order === 'vin') {
        // The first of a lane stays a work, so that nobody has to be looked for when its turn comes.
        if (previous === undefined || lane.turn === work) return false
        const as = kept(work)
        if (as !== undefined) lanes().fold(work, as)
        return as !== undefined
      }
      const as = kept(work)
      if (as === undefined) return false
      pushId(loose, as.id, as.flags)
      lanes().remove(work)
      return true
    },

    next() {
      if (loose.size === 0 || lanes().items >= mostWorks) return undefined
      const id = shiftId(loose)
      // Whose vehicle it is does not matter before it is read: it has a lane of its own.
      return id && unfold('', id)
    },

    clear() {
      while (loose.size > 0) shiftId(loose)
    },

    get size() {
      return loose.size
    },
  }
}
