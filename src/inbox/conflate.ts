import type { DataEvent } from '../events/event.ts'
import { mergeData } from '../wire/normalized-event.ts'
import type { InboxMessage } from './inbox.ts'

/** What merging needs to know of a message. */
export interface Mergeable {
  message: InboxMessage
  /** The number of times it was handed out. If that is more than 0, handlers may have seen it. */
  readonly deliveries: number
  /** It is being replayed: somebody wants exactly this message handled. */
  readonly replayed: boolean
  /** It is settled, dead, or merged into another. */
  gone: boolean
}

/**
 * Merges waiting `data` messages that follow each other in one lane: the newest value of each field stays, in the place of
 * the first message. Messages are not merged across a message of another topic, so the order within a VIN is kept.
 *
 * Pairs of neighbors are noted as they arrive, so that the cost of making room does not depend on the number of waiting
 * messages.
 */
interface Conflation<Kept extends Mergeable> {
  /** A message was added at the end of its lane. */
  added(kept: Kept): void
  /** A message has left its lane for good. */
  removed(kept: Kept): void
  /** Merges two: `from` is to be deleted, and `into` stands for both. `undefined` when there is nothing to merge. */
  merge(): { readonly into: Kept; readonly from: Kept; readonly message: InboxMessage } | undefined
}

interface Pair<Kept> {
  readonly earlier: Kept
  readonly later: Kept
}

const leastTidied = 256

export function createConflation<Kept extends Mergeable>(): Conflation<Kept> {
  /** The last message of each lane that has any. */
  const tails = new Map<string, Kept>()
  /** Pairs of neighbors, oldest first. Some messages are handed out or gone by the time their pair is checked. */
  let pairs: Pair<Kept>[] = []
  let next = 0
  /** The earlier message that each merged message went into. */
  const merged = new WeakMap<Kept, Kept>()

  function current(kept: Kept): Kept {
    let found = kept
    for (let into = merged.get(found); into !== undefined; into = merged.get(found)) found = into
    return found
  }

  let tidyAt = leastTidied

  /** Deletes pairs that can no longer be merged. It runs so rarely that it costs constant time per message. */
  function tidy(): void {
    pairs = pairs.slice(next).filter(({ earlier, later }) => waits(current(earlier)) && waits(later))
    next = 0
    tidyAt = Math.max(leastTidied, pairs.length * 2)
  }

  return {
    added(kept) {
      const { lane } = kept.message
      const earlier = tails.get(lane)
      tails.set(lane, kept)
      if (earlier === undefined || !isData(earlier) || !isData(kept)) return
      pairs.push({ earlier, later: kept })
      if (pairs.length >= tidyAt) tidy()
    },

    removed(kept) {
      const { lane } = kept.message
      if (tails.get(lane) === kept) tails.delete(lane)
    },

    merge() {
      while (next < pairs.length) {
        const pair = pairs[next]
        next += 1
        if (pair === undefined) break
        const into = current(pair.earlier)
        const from = pair.later
        if (!waits(into) || !waits(from)) continue
        const message = mergedMessage(into.message, from.message)
        if (message === undefined) continue
        merged.set(from, into)
        if (tails.get(message.lane) === from) tails.set(message.lane, into)
        return { into, from, message }
      }
      pairs = []
      next = 0
      return undefined
    },
  }
}

function waits({ gone, deliveries }: Mergeable): boolean {
  return !gone && deliveries === 0
}

function isData({ message, replayed }: Mergeable): boolean {
  return !replayed && dataOf(message) !== undefined
}

function dataOf({ event }: InboxMessage): DataEvent | undefined {
  return event?.topic === 'data' ? event : undefined
}

function mergedMessage(into: InboxMessage, from: InboxMessage): InboxMessage | undefined {
  const earlier = dataOf(into)
  const later = dataOf(from)
  if (earlier === undefined || later === undefined) return undefined
  const event = mergeData([earlier, later])
  const text = JSON.stringify({ data: event.data, createdAt: event.createdAt, vin: event.vin })
  return { ...into, text, bytes: text.length, event }
}
