import type { DrainResult } from '../dispatch/drain.ts'
import type { Durability, InboxFactory } from '../inbox/inbox.ts'
import type { RelayInbox } from '../inbox/relay.ts'
import type { Ack } from '../options.ts'

/** What a server needs to know of a receiver: how to open and drain it, and what its 2xx promises. */
export interface Drainable {
  readonly open: () => Promise<void>
  readonly drain: (options?: { readonly deadlineMs?: number }) => Promise<DrainResult>
  readonly ack: Ack
  readonly durability: Durability
  /** Where its messages are kept: what the option `inbox` was. */
  readonly inbox: InboxFactory | RelayInbox
}
