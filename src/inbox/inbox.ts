import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'

/** What a message outlives once `put` has resolved: the process, the machine's power, the machine. */
export type Durability = 'memory' | 'disk' | 'replicated'

/** Which door the message came in by. At the collector's own paths the envelope's stricter rules hold. */
export type Door = 'root' | 'collector'

/** One accepted message, as an inbox keeps it. */
export interface InboxMessage {
  /** UUIDv7, made at receipt: sorts by arrival, stays the same on every redelivery. */
  readonly id: string
  /** Messages of one lane are handled one at a time, in order of arrival: the VIN, or a lane of its own kind. */
  readonly lane: string
  /** Milliseconds since the epoch. */
  readonly receivedAt: number
  readonly door: Door
  /** `wire` came over HTTP; `gap` and `malformed` were made by the receiver. */
  readonly kind: 'wire' | 'gap' | 'malformed'
  /** The JSON text as it came, for this one message. Computed when read: an inbox in memory never needs it. */
  readonly text: string
  /** How much room the message takes, in bytes. */
  readonly bytes: number
  /** The message as it was read at receipt. A durable inbox leaves it out: it is read anew from `text`. */
  readonly event?: FleetEvent | MalformedBody
}

/** A message handed out for handling. */
export interface Claim {
  readonly message: InboxMessage
  /** How often it was handed out before, crashes included. */
  readonly deliveries: number
  /** Put back from the dead letters. */
  readonly replayed: boolean
}

/** Why a message was given up. */
export interface DeadLetterReason {
  /** The handler's error as text, for a person to read. It can quote what the handler saw. */
  readonly error: string
  readonly attempts: number
  /** Milliseconds since the epoch. */
  readonly diedAt: number
}

/** A message that was given up, kept so that a person can look at it and put it back. */
export interface DeadLetter extends DeadLetterReason {
  /** The delivery's id. */
  readonly id: string
  readonly message: InboxMessage
}

/**
 * Where accepted messages live until their handlers are done.
 *
 * Lanes, retries and the decision that a message is dead are not the inbox's: they are shared code above it. An
 * inbox keeps messages, hands them out and forgets them. `inboxConformance` in `fleethook/testing` says exactly what
 * every inbox must do.
 */
export interface Inbox {
  readonly durability: Durability
  /**
   * Keeps all of the messages or none. Resolves once they are as durable as `durability` says; rejects with a
   * `FleethookError` of code `inbox_full` or `inbox_unavailable`, and never lies.
   */
  put(messages: readonly InboxMessage[]): Promise<void>
  /**
   * Hands a message out, also one that is handed out already. `undefined` when it is gone: settled, dead, or merged into
   * another.
   */
  claim(id: string): Promise<Claim | undefined>
  /** Its handlers are done: forget it. Nothing happens when it is gone already. */
  settle(id: string): Promise<void>
  /** Puts a claimed message back: it will be claimed again. */
  reschedule(id: string): Promise<void>
  /** It was given up: keep it as a dead letter. Resolves to how many dead letters had to be dropped to make room for it. */
  deadLetter(id: string, reason: DeadLetterReason): Promise<number>
  /**
   * Messages that an earlier process left, claimed or not, in the order in which `put` was called for them: ids do not
   * keep that order when a clock was set back. Read once, before the first `put`.
   */
  recover(): AsyncIterable<Pick<InboxMessage, 'id' | 'lane' | 'kind'>>
  /** The dead letters, oldest first, at most `limit`. */
  deadLetters(limit: number): Promise<readonly DeadLetter[]>
  /**
   * Makes a dead letter a message again, under its id and as `replayed`. Resolves to `undefined` when there is none.
   * Rejects as `put` does, and then it stays a dead letter.
   */
  revive(id: string): Promise<Pick<InboxMessage, 'id' | 'lane' | 'kind'> | undefined>
  /** Forgets a dead letter. Resolves to whether there was one. */
  discard(id: string): Promise<boolean>
  /** What waits or is claimed now. */
  usage(): { readonly messages: number; readonly bytes: number }
  /** Nothing more will be put: flush, and let go of files and connections. A `put` from now on is rejected. */
  close(): Promise<void>
}
