import { PassingMap } from '../base/passing-map.ts'
import { checkOptions, required, type Rules, wholeNumber } from '../base/options.ts'
import type { Ended, MessageView, Part, ReceiverPart } from '../core/part.ts'

/** What {@link dedupe} takes. */
export interface DedupeOptions {
  /** The longest time between two receipts of the same message, in milliseconds. */
  readonly withinMs: number
  /** The number of handled messages to remember. The oldest are forgotten first. Default 100,000, some 20 MB. */
  readonly maxEntries?: number
}

const rules: Rules<DedupeOptions> = {
  withinMs: /* @__PURE__ */ required(/* @__PURE__ */ wholeNumber(1)),
  maxEntries: /* @__PURE__ */ wholeNumber(1),
}

/**
 * A part for the option `parts`. It skips a message whose `event.id` was already handled in this process, when the two receipts are at
 * most `withinMs` apart. `stats().duplicates` counts them. A restart forgets what was handled.
 *
 * Throws `option_invalid` for a wrong option.
 *
 * @example
 * ```ts
 * import { createReceiver, dedupe } from 'fleethook'
 *
 * createReceiver({ secret: 'a-long-random-value', parts: [dedupe({ withinMs: 600_000 })] })
 * ```
 */
export function dedupe(options: DedupeOptions): ReceiverPart {
  checkOptions('dedupe', options, rules)
  return { create: () => new Duplicates(options) }
}

/** The newest message with this content. */
interface Seen {
  readonly eventId: string
  readonly deliveryId: string
  readonly lane: string
  readonly receivedAt: number
  /** It was let pass, and its handlers are not done. */
  readonly isOpen: boolean
}

/** Skips messages that were handled before, by the id of their content. A message waits while the same one is open before it. */
class Duplicates implements Part {
  readonly #withinMs: number
  readonly #maxEntries: number
  readonly #seen = new PassingMap<string, Seen>()

  constructor({ withinMs, maxEntries = 100_000 }: DedupeOptions) {
    this.#withinMs = withinMs
    this.#maxEntries = maxEntries
  }

  admit(message: MessageView): 'skip' | 'wait' | undefined {
    const eventId = eventIdOf(message)
    const earlier = this.#seen.get(eventId ?? '')
    if (earlier !== undefined && earlier.deliveryId !== message.id) {
      if (earlier.isOpen && earlier.lane === message.lane) return 'wait'
      const isSoon = Math.abs(message.receivedAt - earlier.receivedAt) <= this.#withinMs
      if (isSoon && !earlier.isOpen) return 'skip'
    }
    if (eventId !== undefined) this.#note(eventId, message, true)
    return undefined
  }

  over(message: MessageView, outcome: Ended): void {
    const eventId = eventIdOf(message)
    if (eventId === undefined) return
    const seen = this.#seen.get(eventId)
    if (outcome === 'done') this.#note(eventId, message, false)
    else if (seen?.isOpen === true && seen.deliveryId === message.id) this.#seen.delete(eventId)
  }

  /** The newest one counts, and goes last. */
  #note(eventId: string, { id, lane, receivedAt }: MessageView, isOpen: boolean): void {
    this.#seen.delete(eventId)
    this.#seen.set(eventId, { eventId, deliveryId: id, lane, receivedAt, isOpen })
    for (const oldest of this.#seen.values()) {
      if (this.#seen.size <= this.#maxEntries && receivedAt - oldest.receivedAt <= this.#withinMs) break
      this.#seen.delete(oldest.eventId)
    }
  }
}

/** The receiver's own messages have no such id: each of them is handled. */
function eventIdOf({ counts, event }: MessageView): string | undefined {
  return counts && event !== undefined && event.topic !== 'malformed' ? event.id : undefined
}
