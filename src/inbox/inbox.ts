import type { Clock } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import type { FleetEvent, GapReason } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { Durability } from '../hosting/drainable.ts'
import type { Door } from '../http/paths.ts'
import type { OperatorApi } from './dead-letters.ts'
import type { Log } from '../base/log.ts'

/** One accepted message, as an inbox keeps it. */
export interface InboxMessage {
  /** UUIDv7, made at receipt: sorts by arrival in this inbox, stays the same on every redelivery. See `seqOf`. */
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
  /** Put back from the dead letters, or from what was settled. */
  readonly replayed: boolean
}

/** What has to be known of a message to give it its turn. */
export interface Waiting extends Pick<InboxMessage, 'id' | 'lane' | 'kind'> {
  /** Attempts that were made before. Default 0. */
  readonly attempts?: number
  /** Not to be tried again before this time, in milliseconds since the epoch. Default 0. */
  readonly notBefore?: number
  /**
   * It may have been handed out before, by a process that ended without noting it. What `Claim.deliveries` counts is
   * certain; an inbox that notes claims late says here what it cannot know. Default `false`.
   */
  readonly redelivered?: boolean
}

/** Where messages may be missing, and since when, in milliseconds since the epoch. */
export interface InboxGap {
  readonly reason: GapReason
  readonly fromMs: number
}

/** What an inbox finds when it is opened. */
export interface Opened {
  /** The greatest id that was ever put: those of this process have to sort after it. */
  readonly lastId?: string
  /** Where messages may be missing: an earlier process ended without `close`, or what it left cannot be read. */
  readonly gaps?: readonly InboxGap[]
  /** What an earlier process left, claimed or not, in the order of ids, in pages. Read once, before the first `put`. */
  readonly waiting: AsyncIterable<readonly Waiting[]>
}

/** What is to be known of a message that is put back. */
export interface NextAttempt {
  /** How many attempts were made. */
  readonly attempts: number
  /** Not to be tried again before this time, in milliseconds since the epoch. */
  readonly notBefore: number
  /** What `Claim.deliveries` counts from now on: the last time does not count. Left out, it counts as it did. */
  readonly deliveries?: number
}

/** Which messages to look at, in the order of ids. */
export interface Selection {
  /** At most so many. */
  readonly limit: number
  /** Those that come after this id: the last one of the page before. */
  readonly after?: string
  /** Those of one lane. */
  readonly lane?: string
  /** Those received at this time or later, in milliseconds since the epoch. */
  readonly fromMs?: number
  /** Those received before this time, in milliseconds since the epoch. */
  readonly toMs?: number
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
   * Called once, before anything else is asked of it but `usage` and `refusing`. Rejects with a `FleethookError` when it
   * cannot be used: then every `put` rejects too.
   */
  open(): Promise<Opened>
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
  /**
   * Its handlers are done: it is no longer pending. Nothing happens when it is gone already. Need not be durable when it
   * resolves: after a crash the message may come again.
   */
  settle(id: string): Promise<void>
  /** Puts a claimed message back: it will be claimed again. As durable as `settle`. */
  reschedule(id: string, next: NextAttempt): Promise<void>
  /** It was given up: keep it as a dead letter. Resolves to how many dead letters had to be dropped to make room for it. */
  deadLetter(id: string, reason: DeadLetterReason): Promise<number>
  deadLetters(which: Selection): Promise<readonly DeadLetter[]>
  findDeadLetter(id: string): Promise<DeadLetter | undefined>
  /** Messages whose handlers are done and that it still holds. One that forgets them at once has none. */
  settled(which: Selection): Promise<readonly InboxMessage[]>
  /**
   * Makes a dead letter, or a settled message that it still holds, a pending message again, under its id and as `replayed`.
   * Resolves to `undefined` when there is none. Rejects as `put` does, and then it stays what it is.
   */
  revive(id: string): Promise<Waiting | undefined>
  /** Forgets a dead letter. Resolves to whether there was one. */
  discard(id: string): Promise<boolean>
  /** What waits or is claimed now. */
  usage(): { readonly messages: number; readonly bytes: number }
  /** Why it would reject any `put` just now, if it would: health checks are told. */
  refusing(): 'inbox_full' | 'inbox_unavailable' | undefined
  /** Nothing more will be put: make durable what is not yet, and let go of files and connections. A `put` from now on is rejected. */
  close(): Promise<void>
}

/** What a receiver tells an inbox, and what an inbox tells its receiver. */
export interface InboxSettings {
  /** Waiting and claimed messages together. `undefined`: as many as the inbox itself allows. */
  readonly pendingMessages: number | undefined
  /** Their size in bytes. `undefined`: as many as the inbox itself allows. */
  readonly pendingBytes: number | undefined
  /** `'conflate'` merges queued `data` messages of a VIN before it refuses. */
  readonly overflow: 'refuse' | 'conflate'
  readonly clock: Clock
  readonly log: Log
  /** To be told which messages were merged into others, by their ids. */
  readonly onConflated: (ids: readonly string[]) => void
  /** To be told of a failure that no call can reject with: of what is written later, or on its own. */
  readonly onFailure: (error: unknown) => void
  /** To be told that what made it refuse is over. */
  readonly onCapacity: () => void
  /** To be told of a hole that is found while the inbox is open. */
  readonly onGap?: (gap: InboxGap) => void
  /** What operators ask of the receiver: an inbox that has a way in for them answers with this. Not to be used before `open`. */
  readonly operator?: OperatorApi
}

/**
 * The value of the option `inbox` where messages are kept and handled outside the process that receives them, so that no
 * handler runs in front: what `durableObjectInbox` and `queueInbox` return.
 */
export interface RelayInbox {
  readonly kind: 'relay'
}

/** For inboxes that keep messages as they came. Throws `option_invalid` when the receiver wants them merged. */
export function refuseConflation({ overflow }: Pick<InboxSettings, 'overflow'>): void {
  if (overflow !== 'conflate') return
  throw new FleethookError(
    'option_invalid',
    "Option `overflow` is 'conflate', which merges messages of an inbox in memory.",
    { hint: 'Leave it out: a durable inbox keeps each message as it came, and has the room of its disk.' },
  )
}

export function isRelayInbox(inbox: unknown): inbox is RelayInbox {
  return typeof inbox === 'object' && inbox !== null && 'kind' in inbox && inbox.kind === 'relay'
}

/** Makes an inbox for a receiver, within what the receiver's options allow: the value of the option `inbox`. */
export type InboxFactory = (settings: InboxSettings) => Inbox
