import { PassingMap } from '../base/passing-map.ts'
import { checkOptions, required, type Rules, wholeNumber } from '../base/options.ts'
import type { Message } from '../core/message.ts'
import type { Ended, Part, ReceiverPart } from '../core/part.ts'

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

interface Handled {
  readonly eventId: string
  readonly deliveryId: string
  readonly receivedAt: number
}

/** Skips messages that were handled before, by the id of their content. A message waits while the same one is open before it. */
class Duplicates implements Part {
  readonly #withinMs: number
  readonly #maxEntries: number
  readonly #handled = new PassingMap<string, Handled>()

  constructor({ withinMs, maxEntries = 100_000 }: DedupeOptions) {
    this.#withinMs = withinMs
    this.#maxEntries = maxEntries
  }

  admit(message: Message): 'skip' | 'wait' | undefined {
    const eventId = eventIdOf(message)
    if (eventId === undefined || message.claim === undefined) return undefined
    for (let before = message.previous; before !== undefined; before = before.previous)
      if (before.claim !== undefined && eventIdOf(before) === eventId) return 'wait'
    const earlier = this.#handled.get(eventId)
    if (earlier === undefined) return undefined
    const { id, receivedAt } = message.claim.message
    const isSoon = Math.abs(receivedAt - earlier.receivedAt) <= this.#withinMs
    return isSoon && earlier.deliveryId !== id ? 'skip' : undefined
  }

  over(message: Message, outcome: Ended): void {
    const eventId = eventIdOf(message)
    if (eventId === undefined || message.claim === undefined || outcome !== 'done') return
    const { id, receivedAt } = message.claim.message
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
function eventIdOf({ counts, event }: Message): string | undefined {
  return counts && event !== undefined && event.topic !== 'malformed' ? event.id : undefined
}
