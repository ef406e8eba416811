import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { Claim } from '../inbox/inbox.ts'
import { createPassingMap } from '../base/passing-map.ts'
import type { OpenedMessage } from './work.ts'

/** Which messages are passed over because the same was handled before: the option `dedupe`. */
export interface Dedupe {
  /** How far apart two receipts of a message may be, in milliseconds. */
  readonly withinMs: number
  /** How many handled messages are remembered: the oldest are forgotten first. Default 100,000, some 20 MB. */
  readonly maxEntries?: number
}

/** Remembers, by the identity of their content, which messages were handled. */
export interface Duplicates {
  /** Whether the message is one of those. A replay is none, nor is the same delivery again. */
  has(opened: OpenedMessage): boolean
  /** Whether two messages that wait say the same, so that one of them may become a duplicate of the other. */
  same(one: OpenedMessage, other: OpenedMessage): boolean
  /** Its handlers are done. */
  handled(opened: OpenedMessage): void
}

interface Handled {
  readonly eventId: string
  readonly delivery: string
  readonly receivedAt: number
}

export function createDuplicates({ withinMs, maxEntries = 100_000 }: Dedupe): Duplicates {
  /** Oldest first. */
  const known = createPassingMap<string, Handled>()

  return {
    has({ claim, event }) {
      const eventId = idOf(claim, event)
      const earlier = eventId === undefined || claim.replayed ? undefined : known.get(eventId)
      if (earlier === undefined) return false
      const { id, receivedAt } = claim.message
      return earlier.delivery !== id && Math.abs(receivedAt - earlier.receivedAt) <= withinMs
    },

    same(one, other) {
      const eventId = one.claim.replayed ? undefined : idOf(one.claim, one.event)
      return eventId !== undefined && eventId === idOf(other.claim, other.event)
    },

    handled({ claim, event }) {
      const eventId = idOf(claim, event)
      if (eventId === undefined) return
      const { id, receivedAt } = claim.message
      // The newest one counts, and goes last.
      known.delete(eventId)
      known.set(eventId, { eventId, delivery: id, receivedAt })
      for (const oldest of known.values()) {
        if (known.size <= maxEntries && receivedAt - oldest.receivedAt <= withinMs) break
        known.delete(oldest.eventId)
      }
    },
  }
}

/** What the receiver itself makes is told each time. */
function idOf({ message }: Claim, event: FleetEvent | MalformedBody): string | undefined {
  return message.kind === 'wire' && event.topic !== 'malformed' ? event.id : undefined
}
