import { FleethookError } from '../base/errors.ts'
import type { Message } from './message.ts'

/**
 * A part of a receiver: it may skip messages, and learns how each of them ended. "Add a part" in CONTRIBUTING shows one.
 */
export interface Part {
  /**
   * The handlers of a message are about to run for the first time. `'skip'` settles it without them, and `stats().duplicates` counts it.
   * `'wait'` asks all parts again when those before it in its lane are over. Not asked about the receiver's own messages (gaps) nor about
   * replays: they are always handled. When it throws, the message becomes a dead letter.
   */
  admit?(message: Message): 'skip' | 'wait' | undefined
  /** The inbox has written the end of the message, or another process has it. Not called for what a drain leaves. */
  over?(message: Message, outcome: Ended): void
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

/** How a message ended: `gone` means that another process has it. */
export type Ended = 'done' | 'skipped' | 'dead' | 'gone'

/** The first answer of the parts about a message. Throws `handler_invalid` for an answer that is none. */
export function admittedBy(parts: readonly Part[], message: Message): 'skip' | 'wait' | undefined {
  for (const part of parts) {
    const answer: unknown = part.admit?.(message)
    if (answer === undefined) continue
    if (answer === 'skip' || answer === 'wait') return answer
    throw new FleethookError('handler_invalid', `\`admit\` of a part returned ${describe(answer)}.`, {
      hint: "Return 'skip', 'wait' or undefined.",
    })
  }
  return undefined
}

const describe = (answer: unknown): string => (typeof answer === 'string' ? `"${answer}"` : `a ${typeof answer}`)
