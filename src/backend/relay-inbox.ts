import { isRelayInbox, type RelayInbox } from '../inbox/inbox.ts'
import type { Backend, BackendParts } from './backend.ts'

/** What a {@link RelayInbox} is inside. */
export interface AttachableInbox extends RelayInbox {
  /** Called once by `createReceiver`, with what the receiver is made of. */
  readonly attach: (parts: BackendParts) => Backend
  /** Given the bindings of every request of a Worker: a call for dead letters brings none of its own. */
  readonly bind?: (env: unknown) => void
  /** Handles a batch of messages that the platform kept: the `queue` handler of a Worker. */
  readonly consume?: (batch: KeptBatch, env: unknown) => Promise<void>
}

/** Messages that a platform kept and hands over to be handled. */
export interface KeptBatch {
  readonly messages: readonly KeptMessage[]
}

/** One of them. It comes again unless it is acknowledged. */
export interface KeptMessage {
  readonly body: unknown
  /** The number of times it was handed over, this time included. */
  readonly attempts: number
  ack(): void
  retry(options?: { delaySeconds?: number }): void
}

/** Whether messages are kept and handled elsewhere. */
export function isAttachable(inbox: unknown): inbox is AttachableInbox {
  return isRelayInbox(inbox) && 'attach' in inbox
}
