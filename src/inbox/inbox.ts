import type { Clock } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import type { FleetEvent, GapReason } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { Ack, Durability, OpenOptions } from '../hosting/drainable.ts'
import type { RequestScope } from '../hosting/execution-context.ts'
import type { Refusal } from '../http/answers.ts'
import type { Door } from '../http/paths.ts'
import type { StoredVehicle, VehiclesElsewhere, VehicleStore } from './vehicle-store.ts'
import type { Window, WindowHost } from './window.ts'
import type { Asked, OperatorApi } from '../observe/observer.ts'
import type { Forgotten } from '../observe/dead-letters.ts'
import type { Backlog, Failing, InboxStats, LastFailure } from '../observe/stats.ts'
import type { Log } from '../base/log.ts'

/** One accepted message, as an inbox keeps it. */
export interface InboxMessage {
  /** UUIDv7, made at receipt. Ids sort by arrival in this inbox and stay the same on every redelivery. See `seqOf`. */
  readonly id: string
  /** Messages of one lane are handled one at a time, in order of arrival. The lane is the VIN, or one for its kind. */
  readonly lane: string
  /** Milliseconds since the epoch. */
  readonly receivedAt: number
  /** By which path it came, and with a list of secrets the place of its secret there: `'root'`, `'collector 1'`. */
  readonly door: Door | `${Door} ${number}`
  /** `wire` came over HTTP. The receiver made the others. */
  readonly kind: 'wire' | 'gap' | 'malformed' | 'timer' | 'facts'
  /** The JSON text of this one message, as it came. */
  readonly text: string
  /** The size of the message, in bytes. */
  readonly bytes: number
  /**
   * The event that was read from the message at receipt. A durable inbox leaves it out, and the receiver reads it from `text`
   * again.
   */
  readonly event?: FleetEvent | MalformedBody
}

/** Reads a message of which an inbox kept only the text. */
export type ReadMessage = (message: InboxMessage) => FleetEvent | MalformedBody

/** A message handed out for handling. */
export interface Claim {
  readonly message: InboxMessage
  /** The number of times it was handed out before, crashes included. */
  readonly deliveries: number
  /** Its place in the order of the inbox, where several receivers make ids. Default: `seqOf` its id. */
  readonly seq?: number
  /** It was a dead letter or settled, and is being replayed. */
  readonly replayed: boolean
  /** Names the run: see `Delivery.replay`. The inbox keeps it with the message, and with its dead letter. */
  readonly replay?: string | undefined
  /** For a replayed message: the `changed` of its dead letter. */
  readonly changed?: string | undefined
}

/** What the scheduler has to know about a message. */
export interface Waiting extends Pick<InboxMessage, 'id' | 'lane' | 'kind'> {
  /** Attempts that earlier processes made. Default 0. */
  readonly attempts?: number
  /** Not to be tried again before this time, in milliseconds since the epoch. Default 0. */
  readonly notBefore?: number
  /** The number of processes that ended while it was handed out, as far as that is written. Default 0. */
  readonly crashes?: number
  /** The last failure of a handler in an earlier process, if the inbox keeps it. */
  readonly failure?: LastFailure | undefined
  /**
   * An earlier process may have handed it out and ended before it could write that down. `Claim.deliveries` counts only what
   * is certain. An inbox that writes claims late sets this where it cannot know. Default `false`.
   */
  readonly redelivered?: boolean
}

/** Where messages may be missing. Times are in milliseconds since the epoch. */
export interface InboxGap {
  readonly reason: GapReason
  readonly fromMs: number
  /** Default: the time at which the gap is reported. `stopped` and `restarted` last until then: nobody listens before. */
  readonly toMs?: number | undefined
  /** The vehicle. Left out: any vehicle. */
  readonly vin?: string | undefined
  /** The known number of refused or lost messages. Default 0. */
  readonly missed?: number | undefined
}

/** A gap that no stored event reports yet. An inbox whose `time` is `kept` hands it to the next process. */
export interface KeptGap extends InboxGap {
  readonly toMs: number
  readonly missed: number
}

/** What an inbox has erased of a vehicle, in all of its readers. A message counts once, however many of them it was for. */
export interface Erased extends Forgotten {
  /** How many messages of the wire waited for the receiver itself. Default: `waiting`. */
  readonly waitingHere?: number
  /** How many waited for each other reader, by its name. Left out: it has none. */
  readonly waitingOf?: Readonly<Record<string, number>>
}

/** See `Inbox.settle`. */
export type Settled = void | 'done'

/** What an inbox finds when it is opened. */
export interface Opened {
  /** The greatest id that was ever put. Ids of this process have to sort after it. */
  readonly lastId?: string | undefined
  /** Where messages may be missing: nobody listened, an earlier process refused messages, or they cannot be read. */
  readonly gaps?: readonly InboxGap[] | undefined
  /**
   * Messages that are settled or given up, and that stored states of vehicles may lack, in the order of ids, in pages. Only from an
   * inbox with `states`, and only when the receiver uses them. Read once, before `waiting`. Default: none.
   */
  readonly unapplied?: AsyncIterable<readonly InboxMessage[]> | undefined
  /** The messages that an earlier process left, claimed or not, in the order of ids, in pages. Read once, and with `Inbox.window` as far as there is room. */
  readonly waiting: AsyncIterable<readonly Waiting[]>
  /** Resolves when a `gap` has reported the time before this process: timers of vehicles start then. Left out: at once. */
  readonly gapsKnown?: Promise<void> | undefined
}

/** How long an inbox that forwards, and has refused, counts as refusing while no further message comes, in milliseconds. */
export const refusingMs = 5_000

/** What `put` of an inbox that forwards rejects with when the other side has refused, and noted the gap: it must not count twice. */
export class RefusedElsewhere extends Error {
  readonly refusal: Refusal

  constructor(refusal: Refusal) {
    super(refusal.error)
    this.refusal = refusal
  }
}

/** What the inbox has to know about a message that will be tried again. */
export interface NextAttempt {
  /** The number of attempts that were made. */
  readonly attempts: number
  /** Not to be tried again before this time, in milliseconds since the epoch. */
  readonly notBefore: number
  /** The new value of `Claim.deliveries`, when the last time does not count. Left out: the count goes on. */
  readonly deliveries?: number
  /** The last failure of a handler, for `Waiting.failure` of the next process. Left out: none of its handlers fails now. */
  readonly failure?: LastFailure | undefined
}

/**
 * Which messages to return. Fewer than `limit` when they are large: a page ends with the message that reaches 1 MiB, so that no list
 * fills the memory.
 */
export interface Selection {
  /** The largest number of messages to return. */
  readonly limit: number
  /** Only messages behind this id, in the order of the list: the last one of the previous page. */
  readonly after?: string | undefined
  /** Only this message. */
  readonly id?: string | undefined
  /** Only messages of this lane. */
  readonly lane?: string | undefined
  /** Only messages received at this time or later, in milliseconds since the epoch. */
  readonly fromMs?: number | undefined
  /** Only messages received before this time, in milliseconds since the epoch. */
  readonly toMs?: number | undefined
}

/** A message during which this many processes ended is given up: it is probably the reason. */
export const mostCrashes = 3

/** Why such a message is given up. */
export const crashText = (crashes: number): string => `${crashes} processes ended while they handled it`

/** Why a message was given up. */
export interface DeadLetterReason {
  /** The handler's error as text, for a person to read. It can quote what the handler saw. */
  readonly error: string
  readonly attempts: number
  /** Milliseconds since the epoch. */
  readonly diedAt: number
  /**
   * What the message changed in the state of its vehicle, as text that only the receiver reads. The claim of a replay returns
   * it.
   */
  readonly changed?: string | undefined
  /**
   * The names of the handlers that failed, when each of them leaves a mark in the database of its writes. Their transactions can commit after the
   * attempt was given up.
   */
  readonly marks?: readonly string[] | undefined
}

/**
 * How a turn of a message ended. `done`: its handlers are done. `dead`: it was given up, and a person can look at it. `later`: it waits again.
 * `vehicle` is the new state of its vehicle, only for an inbox with `states`.
 */
export type Outcome =
  | { readonly as: 'done'; readonly vehicle?: StoredVehicle | undefined }
  | { readonly as: 'dead'; readonly reason: DeadLetterReason; readonly vehicle?: StoredVehicle | undefined }
  | { readonly as: 'later'; readonly next: NextAttempt }

/** The outcome of a turn that says nothing else. */
export const done: Outcome = { as: 'done' }

/**
 * Messages of one body that are larger than the limit: a 503 would be retried forever. `limit`: the option
 * that refuses them.
 */
export const neverFits = (limit: string, most: number): FleethookError =>
  new FleethookError('body_too_large', `The messages of a body exceed \`${limit}\` (${most}).`, {
    hint: `Send smaller batches, or raise \`${limit}\` (${most}).`,
  })

/** Why messages of one body never fit into an inbox with these limits. `undefined`: an empty one has room for them. */
export function whyNeverFit(
  messages: number,
  bytes: number,
  { pendingMessages = Infinity, pendingBytes = Infinity }: Partial<InboxHost['limits']>,
): FleethookError | undefined {
  if (messages > pendingMessages) return neverFits('limits.pendingMessages', pendingMessages)
  return bytes > pendingBytes ? neverFits('limits.pendingBytes', pendingBytes) : undefined
}

/** A message that was given up, kept so that a person can look at it and replay it. */
export interface DeadLetter extends DeadLetterReason {
  /** The delivery's id. */
  readonly id: string
  readonly message: InboxMessage
  /** The run that failed: see `Claim.replay`. */
  readonly replay?: string | undefined
}

/** Whether a message matches the query. The inbox itself applies the limit. */
export function isSelected(
  { id, lane, receivedAt }: Pick<InboxMessage, 'id' | 'lane' | 'receivedAt'>,
  which: Selection,
  newestFirst: boolean = false,
): boolean {
  const { after } = which
  return (
    (which.id === undefined || id === which.id) &&
    (after === undefined || (newestFirst ? id < after : id > after)) &&
    (which.lane === undefined || lane === which.lane) &&
    (which.fromMs === undefined || receivedAt >= which.fromMs) &&
    (which.toMs === undefined || receivedAt < which.toMs)
  )
}

/** Whether a message has to go when a vehicle is erased: its own, or one of no vehicle that has the VIN in its text. */
export function isAbout({ lane, text }: Pick<InboxMessage, 'lane' | 'text'>, vin: string): boolean {
  const own = vin.startsWith('*') ? `*${vin}` : vin
  return lane === own || (lane.startsWith('*') && !lane.startsWith('**') && vin !== '' && mentions(text, vin))
}

/** Whether a text has a VIN, in whatever case: what names no vehicle may have been written by anybody. */
export const mentions = (text: string, vin: string): boolean => text.toLowerCase().includes(vin.toLowerCase())

/** A message that an inbox keeps. */
export interface ListedMessage {
  readonly message: InboxMessage
  /** `waiting`: its handlers are not done. `settled`: they are. `dead`: it was given up. */
  readonly state: 'waiting' | 'settled' | 'dead'
  /** Why it is dead. */
  readonly reason?: DeadLetterReason
}

/** A dead letter as an archive lists it. */
export function listedLetter({ message, error, attempts, diedAt }: DeadLetter): ListedMessage {
  return { message, state: 'dead', reason: { error, attempts, diedAt } }
}

/** What an inbox keeps, to look at and to replay. Only operators use it. */
export interface Archive {
  /**
   * Dead letters and messages that are `settled` and still kept come oldest first, `all` messages newest first. An inbox that drops what is settled
   * at once lists none.
   */
  list(what: 'dead' | 'settled' | 'all', which: Selection): Promise<readonly ListedMessage[]>
  /**
   * Makes a dead letter, or a settled message that is still kept, a waiting message again, under its id and as `replayed`.
   * Resolves to `undefined` when there is none. Rejects as `put` does, and then changes nothing. Its claims return the `changed` of
   * its dead letter.
   */
  revive(id: string): Promise<Waiting | undefined>
  /** Deletes a dead letter. Resolves to whether there was one. */
  discard(id: string): Promise<boolean>
}

/**
 * Where accepted messages live until their handlers are done.
 *
 * An inbox keeps messages, hands them out and deletes them. Lanes, retries and the decision that a message is dead are
 * shared code above it. `inboxConformance` in `fleethook/testing` defines what every inbox must do.
 *
 * Eight members are all that an inbox needs. The others are for what it can do besides.
 *
 * @example
 * ```ts
 * import { createReceiver, FleethookError } from 'fleethook'
 * import type { InboxFactory, InboxMessage } from 'fleethook/extend'
 *
 * async function* nothing() {}
 *
 * const inMap: InboxFactory = ({ limits: { pendingMessages = 1_000 } }) => {
 *   const kept = new Map<string, { message: InboxMessage; deliveries: number }>()
 *   return {
 *     durability: 'memory',
 *     open: async () => ({ waiting: nothing() }),
 *     put(messages) {
 *       if (kept.size + messages.length > pendingMessages) throw new FleethookError('inbox_full', 'The map is full.')
 *       for (const message of messages) kept.set(message.id, { message, deliveries: 0 })
 *     },
 *     claim(id) {
 *       const found = kept.get(id)
 *       return found && { message: found.message, deliveries: found.deliveries++, replayed: false }
 *     },
 *     settle(id, outcome) {
 *       if (outcome?.as !== 'later') kept.delete(id)
 *     },
 *     usage: () => ({ messages: kept.size, bytes: [...kept.values()].reduce((sum, { message }) => sum + message.bytes, 0) }),
 *     refusing: () => (kept.size < pendingMessages ? undefined : 'inbox_full'),
 *     close: async () => {},
 *   }
 * }
 *
 * createReceiver({ secret: 'a-long-random-value', inbox: inMap })
 * ```
 */
export interface Inbox {
  readonly durability: Durability
  /**
   * Called once, before every other method except `usage` and `refusing`. Rejects with a `FleethookError` when the inbox
   * cannot be used; then every `put` rejects too.
   */
  open(options?: OpenOptions): Promise<Opened>
  /**
   * Keeps all of the messages or none. Resolves only once they are as durable as `durability` says. Otherwise rejects with a
   * `FleethookError` of code `inbox_full`, `inbox_unavailable`, or `body_too_large` for what no empty inbox takes, or with {@link RefusedElsewhere}.
   * Messages keep the order of the calls. `from` has the bindings of the request that brought them.
   */
  put(messages: readonly InboxMessage[], from?: RequestScope): void | Promise<void>
  /**
   * Hands a message out, even if it is handed out already. `undefined` when it is settled or dead.
   */
  claim(id: string): Claim | undefined | Promise<Claim | undefined>
  /**
   * A turn of a message has ended, by default as `done`. Does nothing for a message that is gone. A message that is `done` no longer waits. With
   * `later`, it is claimed again. A dead letter is durable when the call resolves; the other two need not be, so after a
   * crash the message may be handled again. `vehicle` is as durable as the rest of the call.
   *
   * When the store takes other rows, but not that this message waits, `later` rejects with `message_refused`, or the inbox reports `refused`
   * later: there is no next attempt, and the message becomes a dead letter.
   *
   * Resolves to `'done'` for a message that was to become a dead letter and is done after all. Only an inbox that has the marks of handlers can
   * know: all of `reason.marks` are there.
   */
  settle(id: string, outcome?: Outcome): Settled | Promise<Settled>
  /** The messages that wait or are claimed now. */
  usage(): { readonly messages: number; readonly bytes: number }
  /** Why it would reject every `put` now; `undefined` when it would not. Health checks use it. */
  refusing(): 'inbox_full' | 'inbox_unavailable' | undefined
  /**
   * Makes durable what is not durable yet, and closes files and connections. A `put` from now on is rejected. From
   * `stoppedAtMs` on, messages may be missing, because sockets close before the inbox. Default: now.
   */
  close(stoppedAtMs?: number): Promise<void>

  /**
   * What it keeps, for operators: its messages, or where not all of them are in this process, its answers to what operators ask. Left out: they can
   * neither list nor replay messages.
   */
  readonly archive?: Archive | Asked
  /**
   * Deletes everything that it keeps of a vehicle: messages in every state, also messages of no vehicle whose text has the VIN, gaps, and the state of
   * the vehicle. Nothing of it can be read from the store afterwards. `dryRun`: only counts the messages. An inbox that cannot leaves it out.
   */
  readonly forget?: ((vin: string, dryRun: boolean) => Promise<Erased>) | undefined
  /** Figures for `receiver.stats()`: its own, and for an inbox that several processes share, what waits and what fails in all of them at the last look. */
  stats?(): InboxStats & { readonly backlog?: Backlog | undefined; readonly failing?: Failing | undefined }
  /** Sentences for the operator when the receiver has started. */
  describe?(): readonly string[]
  /** Where it keeps the states of vehicles. Left out: it cannot. Not to be used before `open`. */
  readonly states?: VehicleStore | undefined
  /** For an inbox that holds more messages than fit into memory. Left out: the receiver keeps a record of each message that waits. */
  window?(host: WindowHost<Waiting>): Window<Waiting>
  /**
   * Another reader of this inbox, for a branch of this name: an `Inbox` over the same messages, which are stored once, with places, dead letters,
   * failures, states of vehicles and limits of its own. It gets each message that the receiver puts from now on, except timers, which are of the
   * receiver's own rules. What the reader itself puts is for this reader only. A reader never makes the receiver's `put` fail or wait: a message that it
   * cannot keep gets no place, and is told as `skipped` or `expired`. `forget` of the receiver's inbox erases in all readers, and a reader has none.
   * Called once for each name. Left out: the inbox has one reader.
   */
  reader?(name: string, host: ReaderHost): Inbox
  /**
   * What becomes of time in which nobody listens. Left out: the receiver makes gaps of it, and forgets the unreported ones when it ends.
   * `kept`: the inbox also stores what `openGaps` of its receiver returns, at least every 10 seconds and at `close`, and the next `open` returns the gaps
   * whose events were not put since. `elsewhere`: time passes without this process, so no gap follows from the time in which it stood still.
   */
  readonly time?: 'kept' | 'elsewhere'
  /** For an inbox that is not this receiver's alone. Left out: `handsOut` is `here`. */
  readonly shared?: {
    /**
     * Who hands out what was put. `here`: this receiver, at once. `stored`: this receiver, as soon as the inbox reports it as `stored`. `shared`: the
     * inbox, as `waiting`, here or in another process. `elsewhere`: nobody here.
     */
    readonly handsOut: 'here' | 'stored' | 'shared' | 'elsewhere'
    /** Why this process takes no messages. Messages of its own, such as gaps, still go to `put`. */
    readonly takesNone?: Refusal | undefined
    /** Events of open gaps are put before the messages that follow, so that their vehicles are uncertain first. Default `false`. */
    readonly keepsOrder?: boolean
    /** The states of vehicles, where other processes keep them. */
    readonly states?: VehiclesElsewhere | undefined
    /**
     * Whether a message that was handed out may still be handled here. Asked when a handler sees it some time after its `claim`, for
     * instance in a batch. Resolves when that is certain. For an inbox that several processes share: what such an inbox hands over as
     * `waiting` stays in memory until it is settled, so it hands over a limited number of messages at a time. Left out: it may.
     */
    readonly isStillHeld?: (id: string) => Promise<boolean>
    /**
     * The stop of an inbox that hands out as `waiting`. Hands out nothing new, and waits for what is in hand, for at most this time. Then calls
     * `breakOff`, which ends the work of this process, and hands the rest over to others. Still takes `put`. Never rejects.
     */
    readonly finish?: (withinMs: number, breakOff: () => Promise<void>) => Promise<void>
  }
}

/** The archive of an inbox whose messages are all in this process. */
export const archiveOf = ({ archive }: Pick<Inbox, 'archive'>): Archive | undefined =>
  archive !== undefined && 'revive' in archive ? archive : undefined

/**
 * What an inbox reports outside of its answers.
 *
 * | type        | the inbox says                                                                                                             |
 * | ----------- | -------------------------------------------------------------------------------------------------------------------------- |
 * | `failed`    | A write that happens later, or by itself, has failed: no call could reject.                                               |
 * | `available` | It refused messages, and takes them again.                                                                                 |
 * | `gap`       | It found while it was open that messages may be missing.                                                                  |
 * | `dropped`   | It deleted this number of dead letters: their retention is over, or newer messages needed the room. A durable inbox sends a `gap`, too. |
 * | `refused`   | It cannot write that this message waits for its next attempt. The message becomes a dead letter.                          |
 * | `waiting`   | It has messages that other processes received, in order within a lane.                                                    |
 * | `gone`      | This process has these messages no more. Its work on them ends at once, and none of them is settled. They may come back as `waiting`. |
 * | `stored`    | A reader that `handsOut` as `stored` has these messages, in the order of their places. `from`: the request that brought them. |
 * | `skipped`   | The receiver has put these messages, and the limits of this reader have no place for them. They count as refused.         |
 * | `expired`   | It needed the room of these messages, which wait for this reader only. Their work ends at once, and they count as lost.   |
 *
 * `waiting` and `gone` need an inbox with `shared.isStillHeld`. `stored` comes as soon as the messages are as durable as `durability` says, and before any later
 * page of `Opened.waiting` has them; what was stored before the first page was read is in these pages. In `expired`, `missed` says how many came over the
 * wire, received between `fromMs` and `toMs`, in milliseconds since the epoch.
 */
export type InboxEvent =
  | { readonly type: 'failed'; readonly error: unknown }
  | { readonly type: 'available' }
  | { readonly type: 'gap'; readonly gap: InboxGap }
  | { readonly type: 'dropped'; readonly deadLetters: number }
  | { readonly type: 'refused'; readonly id: string; readonly reason: string }
  | { readonly type: 'waiting'; readonly messages: readonly Waiting[] }
  | { readonly type: 'gone'; readonly ids: readonly string[] }
  | { readonly type: 'stored'; readonly messages: readonly InboxMessage[]; readonly from: RequestScope }
  | { readonly type: 'skipped'; readonly messages: readonly InboxMessage[] }
  | {
      readonly type: 'expired'
      readonly ids: readonly string[]
      readonly missed: number
      readonly fromMs: number
      readonly toMs: number
    }

/** What a receiver gives an inbox. An author of one meets the first five. */
export interface InboxHost {
  readonly clock: Clock
  readonly log: Log
  /** For waiting and claimed messages together. `undefined`: as many, or as much, as the inbox itself allows. */
  readonly limits: {
    readonly pendingMessages: number | undefined
    /** In bytes. */
    readonly pendingBytes: number | undefined
  }
  /** Reads a message of which the inbox keeps only the text. */
  readonly read: ReadMessage
  /** Takes what the inbox reports. It never throws. */
  on(event: InboxEvent): void

  /** The option `ack` of the receiver, for an inbox that cannot keep each of them. */
  readonly ack?: Ack | undefined
  /** The receiver keeps states of vehicles in `Inbox.states`. Makes a store for an inbox in memory. Left out: it keeps none. */
  readonly states?: (() => VehicleStore) | undefined
  /** What an inbox may ask of its receiver. Left out: there is none. */
  readonly receiver?: {
    /** The gaps that no stored event reports yet, for an inbox whose `time` is `kept`, or that several processes share. */
    readonly openGaps?: () => readonly KeptGap[]
    /** For how long the receiver has not taken messages because it stops, in milliseconds. Default: 0. */
    readonly notListeningMs?: () => number
    /** What it has handlers for, for an inbox that several processes share. */
    readonly handlers?: () => readonly HandledSubjects[]
    /**
     * The number of messages in lanes, without lanes whose oldest message has failed, up to a limit: what an inbox hands over as `waiting` must not grow,
     * and a vehicle whose messages fail must not keep others waiting. Left out: all that it handed over count.
     */
    readonly inLanes?: () => number
    /** What operators may ask of it, for an inbox through which they can reach it. Not to be used before `open`. */
    readonly operator?: () => OperatorApi
  }
}

/** What a branch gives the inbox that it reads. */
export interface ReaderHost extends InboxHost {
  /** For an inbox in memory: what its readers need, which the first branch brings. `mostDead`: how many dead letters each of them keeps. */
  readonly readersInMemory: (mostDead: number) => ReadersInMemory
}

/** The readers of an inbox in memory, beside its receiver. */
export interface ReadersInMemory {
  add(name: string, settings: InboxHost): Inbox
  /** The receiver has put these messages. */
  follow(messages: readonly InboxMessage[], from?: RequestScope): void
  /** Erases a vehicle, of which the receiver had `here`. Resolves to what all of them had. */
  erase(vin: string, dryRun: boolean, here: readonly ListedMessage[]): Promise<Erased>
}

/** One call of `receiver.on`, `batch` or `when`. */
export interface HandledSubjects {
  readonly keys: Iterable<string>
  readonly filter:
    { readonly vins?: unknown; readonly fields?: readonly string[]; readonly changed?: readonly string[] } | undefined
  /** The name of the mark that its handler leaves. */
  readonly mark: string | undefined
}

/** How long messages that are no longer pending are kept, and how many bytes of them. The oldest are dropped first. */
export interface Retention {
  /** In milliseconds. Settled messages count from their receipt, dead letters from the time they were given up. */
  readonly forMs?: number
  /** The size of all of them together, in bytes. */
  readonly maxBytes?: number
}

/** Makes an inbox for a receiver, within the limits of the receiver's options. It is the value of the option `inbox`. */
export interface InboxFactory {
  (settings: InboxHost): Inbox
  /** Makes the receiver's clock from the clock of its machine: where several processes share a store, the time of the store decides. */
  readonly clock?: (local: Clock) => Clock
  /** Called with the bindings of every request of a Worker, for calls that have none, such as for dead letters. */
  readonly useEnv?: (env: unknown) => void
  /** The whole path of its file, if it has one. */
  readonly file?: string
}
