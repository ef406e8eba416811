import type { Clock } from '../base/clock.ts'
import type { GapEvent } from '../events/event.ts'
import type { RefusalError } from '../http/answers.ts'

/** Messages that do not come by the webhook: a stream of `fleethook/client`, or the result of its `refill`. */
export interface Source {
  /** Hands over all of its messages, in order. Resolves at the end, or when the receiver takes no more. */
  feed(sink: Sink): Promise<void>
}

/** What a source sees of a receiver. */
export interface Sink {
  /**
   * Takes one message, as JSON text. Resolves to the reason when it was not taken. When the inbox is full, give it again
   * later.
   */
  take(text: string): Promise<RefusalError | undefined>
  /** Takes a `gap` that the source noticed. Resolves to whether there was room for it. */
  tell(gap: GapEvent): Promise<boolean>
  /** Aborted when the receiver takes no more messages. */
  readonly signal: AbortSignal
  readonly clock: Clock
}
