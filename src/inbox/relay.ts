import type { Registry } from '../dispatch/registry.ts'
import type { Surroundings } from '../dispatch/work.ts'
import type { Settings } from '../options.ts'
import type { Receipts } from '../receipt.ts'
import type { Reports } from '../reports.ts'
import type { Taker } from '../taker.ts'
import type { InboxFactory } from './inbox.ts'

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
export interface RelayParts {
  readonly settings: Settings
  readonly registry: Registry
  readonly receipts: Receipts
  readonly reports: Reports
  /** Makes an engine over an inbox. What it finds there has the surroundings given. */
  readonly createEngine: (inbox: InboxFactory, over: EngineOver) => Taker
}

/** How an engine differs from one of the receiver's own process. */
export interface EngineOver {
  readonly settings: Settings
  readonly surroundings: Surroundings
}

export function isRelay(inbox: InboxFactory | RelayInbox): inbox is RelayInbox {
  return typeof inbox === 'object'
}

const relays = /* @__PURE__ */ new WeakMap<object, RelayInbox>()

/** Remembers by which inbox a receiver relays, for whatever runs where the messages are. */
export function markRelay(receiver: object, inbox: RelayInbox): void {
  relays.set(receiver, inbox)
}

/** The inbox by which a receiver relays, if it does. */
export function relayOf(receiver: object): RelayInbox | undefined {
  return relays.get(receiver)
}
