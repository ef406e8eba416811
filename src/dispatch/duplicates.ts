import { PassingMap } from '../base/passing-map.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { Claim } from '../inbox/inbox.ts'
import type { OpenedMessage } from './work.ts'

/** The option `dedupe`: which messages are skipped because the same message was handled before. */
export interface Dedupe {
  /** The longest time between two receipts of the same message, in milliseconds. */
  readonly withinMs: number
  /** The number of handled messages to remember. The oldest are forgotten first. Default 100,000, some 20 MB. */
  readonly maxEntries?: number
}

interface Handled {
  readonly eventId: string
  readonly deliveryId: string
  readonly receivedAt: number
}

/** Remembers which messages were handled, by the id of their content. */
export class Duplicates {
  readonly #withinMs: number
  readonly #maxEntries: number
  /** Oldest first. */
  readonly #handled = new PassingMap<string, Handled>()

  constructor({ withinMs, maxEntries = 100_000 }: Dedupe) {
    this.#withinMs = withinMs
    this.#maxEntries = maxEntries
  }

  /** Whether the same message was handled. A replay is no duplicate, and neither is the same delivery again. */
  has({ claim, event }: OpenedMessage): boolean {
    const eventId = eventIdOf(claim, event)
    const earlier = eventId === undefined || claim.replayed ? undefined : this.#handled.get(eventId)
    if (earlier === undefined) return false
    const { id, receivedAt } = claim.message
    return earlier.deliveryId !== id && Math.abs(receivedAt - earlier.receivedAt) <= this.#withinMs
  }

  /** Whether two waiting messages are the same, so that one of them may become a duplicate of the other. */
  isSame(one: OpenedMessage, other: OpenedMessage): boolean {
    const eventId = one.claim.replayed ? undefined : eventIdOf(one.claim, one.event)
    return eventId !== undefined && eventId === eventIdOf(other.claim, other.event)
  }

  /** Its handlers are done. */
  handled({ claim, event }: OpenedMessage): void {
    const eventId = eventIdOf(claim, event)
    if (eventId === undefined) return
    const { id, receivedAt } = claim.message
    // The newest one counts, and goes last.
    this.#handled.delete(eventId)
    this.#handled.set(eventId, { eventId, deliveryId: id, receivedAt })
    for (const oldest of this.#handled.values()) {
      if (this.#handled.size <= this.#maxEntries && receivedAt - oldest.receivedAt <= this.#withinMs) break
      this.#handled.delete(oldest.eventId)
    }
  }
}

/** The receiver's own messages have no such id: each of them is handled. */
function eventIdOf({ message }: Claim, event: FleetEvent | MalformedBody): string | undefined {
  return message.kind === 'wire' && event.topic !== 'malformed' ? event.id : undefined
}
