import type { EngineOptions } from '../engine.ts'
import type { Taker } from '../taker.ts'

/**
 * The value of the option `inbox` where messages are kept, and handled, by somebody else than who receives them: then no
 * handler runs in front.
 */
export interface RelayInbox {
  /** Called once by `createReceiver`, with what the receiver is made of. */
  readonly attach: (parts: RelayParts) => Taker
  /** Told of the bindings of every request of a Worker: whoever asks for dead letters brings none. */
  readonly bind?: (env: unknown) => void
  /** Handles a batch of messages that the platform has kept: the `queue` handler of a Worker. */
  readonly consume?: (batch: KeptBatch, env: unknown) => Promise<void>
}

/** Messages that a platform has kept, and hands over to be handled. */
export interface KeptBatch {
  readonly messages: readonly KeptMessage[]
}

/** One of them. Unless it is acknowledged it comes again. */
export interface KeptMessage {
  readonly body: unknown
  /** How often it was handed over, this time included. */
  readonly attempts: number
  ack(): void
  retry(options?: { delaySeconds?: number }): void
}

/** What a receiver is made of: enough to take messages in front, and to make an engine where they are handled. */
export interface RelayParts extends Omit<EngineOptions, 'inbox' | 'surroundings'> {
  readonly createEngine: (options: EngineOptions) => Taker
}

/** Whether messages go elsewhere. */
export function isRelay(inbox: unknown): inbox is RelayInbox {
  return typeof inbox === 'object' && inbox !== null && 'attach' in inbox
}
