import { FleethookError } from '../base/errors.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'

/** A message, as parts see it. It is the same object in each call about one message. */
export interface MessageView {
  /** The delivery's id. */
  readonly id: string
  /** The VIN of its vehicle, or a name that begins with `*` for messages of no vehicle. */
  readonly lane: string
  /** `undefined` for a message whose end came while it waited in the inbox. */
  readonly event: FleetEvent | MalformedBody | undefined
  /** The number of runs of its handlers, earlier processes included. */
  readonly attempt: number
  /** Milliseconds since the epoch. */
  readonly receivedAt: number
  /** It came over the wire. The receiver's own messages (gaps, timers, bodies that cannot be read) do not count. */
  readonly counts: boolean
}

/** A part of a receiver: it may skip messages, and learns how each of them ended. */
export interface Part {
  /**
   * The handlers of a message are about to run for the first time. `'skip'` settles it without them, and `stats().duplicates` counts it.
   * `'wait'` asks all parts again when those before it in its lane are over; with none before it, it goes on. Not asked about the receiver's
   * own messages nor about replays: they are always handled. When it throws, the message becomes a dead letter.
   */
  admit?(message: MessageView): 'skip' | 'wait' | undefined
  /** A message has ended. Called once for each, also for the receiver's own and for replays, but not for what a drain leaves. */
  over?(message: MessageView, outcome: Ended): void
}

/**
 * An item of the option `parts`: a part as a value. Who does not import a part does not bundle it. `create` is called once for each core:
 * a receiver has one, and each Durable Object has its own.
 *
 * @example
 * ```ts
 * import { createReceiver } from 'fleethook'
 * import type { ReceiverPart } from 'fleethook/extend'
 *
 * // Skips what comes from vehicles of a test fleet.
 * const withoutTests: ReceiverPart = { create: () => ({ admit: ({ lane }) => (lane.includes('TEST') ? 'skip' : undefined) }) }
 *
 * createReceiver({ secret: 'a-long-random-value', parts: [withoutTests] })
 * ```
 */
export interface ReceiverPart {
  create(): Part
}

/** How a message ended. `gone`: not here. Another process has it, its vehicle was erased, or it was lost. */
export type Ended = 'done' | 'skipped' | 'dead' | 'gone'

/** The first answer of the parts about a message. Throws `handler_invalid` for anything else. */
export function admittedBy(parts: readonly Part[], message: MessageView): 'skip' | 'wait' | undefined {
  for (const part of parts) {
    const answer: unknown = part.admit?.(message)
    if (answer === undefined) continue
    if (answer === 'skip' || answer === 'wait') return answer
    const what = typeof answer === 'string' ? `"${answer}"` : `a ${typeof answer}`
    throw new FleethookError('handler_invalid', `\`admit\` of a part returned ${what}.`, {
      hint: "Return 'skip', 'wait' or undefined.",
    })
  }
  return undefined
}
