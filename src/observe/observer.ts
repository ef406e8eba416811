import type { FleetEvent, GapEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { Drainable, RuntimeRefusal } from '../hosting/drainable.ts'
import type { RequestScope } from '../hosting/execution-context.ts'
import type { Readiness, RefusalError } from '../http/answers.ts'
import type { Door } from '../http/paths.ts'
import type {
  DeadLetters,
  DeadMessage,
  Forgotten,
  KeptMessages,
  KnownVehicles,
  Messages,
  Replayed,
  ReplayPage,
  ReplaySelection,
} from './dead-letters.ts'
import type { Backlog, Failing, Stats } from './stats.ts'

/** One receipt of a message, and the attempt to handle it. */
export interface Delivery {
  /** UUIDv7, made at receipt. It stays the same on every attempt and redelivery. `event.id` identifies the content. */
  readonly id: string
  /**
   * The attempt number: 1 for the first run. Runs of earlier processes count, unless the handler was paused or the run ended in a drain. With
   * `kafkaInbox` they do not.
   */
  readonly attempt: number
  /** Whether an earlier attempt, or a process that ended, already handed the message to handlers. */
  readonly redelivered: boolean
  /** Whether the message is replayed, from the dead letters or from the handled messages. */
  readonly replayed: boolean
  /**
   * Names the replay of handled messages that it belongs to: a new run of all handlers, the same on every attempt and redelivery of it. Left out for
   * the first run of a message. A dead letter that is replayed goes on with the run that failed, and keeps its name.
   */
  readonly replay?: string | undefined
}

/** A request that was refused, for {@link Observer.refused}. */
export interface RefusedRequest {
  /** The `error` of the answer, or the reason of the runtime. */
  readonly error: RefusalError | RuntimeRefusal
  /** The status of the answer; 0 when the connection was closed without one. */
  readonly status: number
  /** What to do about it. */
  readonly hint: string | undefined
  /** The secret was right, so a message of the service is lost. `false`: a stranger may have sent the request. */
  readonly isAuthentic: boolean
  /** The request has the header `fleethook-test`, which `fleethook doctor` sends. A stranger can send it too. */
  readonly isTest: boolean
  /** The door by which it came in. `undefined` when the path or the method was wrong, and for refusals of the runtime. */
  readonly door: Door | undefined
  /** The number of messages that were read and not kept. 0 when the body was not read, or not to its end. */
  readonly messages: number
  /** The vehicles of those messages. */
  readonly vins: readonly string[]
  /**
   * The number of requests that were refused for this reason since the receiver was created, this one included. Tests are counted
   * together, for any reason, and apart from other requests.
   */
  readonly count: number
}

/** What went wrong, for {@link Observer.failed}. */
export interface ErrorDetails {
  readonly kind: 'handler' | 'inbox'
  readonly event?: FleetEvent | MalformedBody
  readonly delivery?: { readonly id: string; readonly attempt: number }
  /** The number of messages in a batch whose handler failed. `event` and `delivery` belong to the first. */
  readonly messages?: number | undefined
  /** The name of the handler function, or the file and line where it was registered when it has none. */
  readonly handler?: string
  /** When the handler runs again. Left out when it does not. */
  readonly nextAt?: Date | undefined
}

/** A message that was accepted. */
export interface ReceivedMessage {
  /** The delivery's id. */
  readonly id: string
  /** Milliseconds since the epoch. */
  readonly receivedAt: number
  readonly door: Door
  /** The JSON text of this one message, as it came. */
  readonly text: string
  /** The length of the text. */
  readonly bytes: number
  readonly event: FleetEvent
}

/** A message that needs no more work. Dead letters are reported by {@link Observer.dead}. */
export interface SettledMessage {
  /** The delivery's id. Its first 48 bits are the time of receipt. */
  readonly id: string
  readonly vin: string | undefined
  /** Left out for a message that was lost, and for a message of an earlier process that no handler is for. */
  readonly event?: FleetEvent | MalformedBody | undefined
  /**
   * `handled`: its handlers are done. `duplicate`: a part skipped it, as `dedupe` does. `lost`: this process gave it up.
   */
  readonly outcome: 'handled' | 'duplicate' | 'lost'
  /** The most runs that one of its handlers had. */
  readonly attempts: number
  /** The length of its text. Left out for a message that was lost. */
  readonly bytes?: number | undefined
}

/**
 * A test message `{"fleethook":{"test":"<uuid>"}}` that came with the right secret. It shows what reached the receiver, without
 * the value of a header.
 */
export interface TestMessage {
  /** The value of `test`. */
  readonly test: string
  readonly door: Door
  /** The length of its text after inflating. */
  readonly bytes: number
  /** The value of the `Content-Encoding` header; `identity` without one. `undefined` when the host read the body. */
  readonly encoding: string | undefined
  /** The names of the request's headers in lower case, and the lengths of their values. Empty when the host read the body. */
  readonly headers: readonly { readonly name: string; readonly length: number }[]
}

/** One attempt at a message, or one run of the handler of a batch. */
export interface ObservedRun {
  /** One message, or all of a batch. */
  readonly messages: readonly { readonly event: FleetEvent | MalformedBody; readonly delivery: Delivery }[]
  readonly isBatch: boolean
}

/** The end of a run. */
export interface RunEnd {
  /** What the last handler that failed threw. `undefined`: none failed. */
  readonly failure: { readonly error: unknown } | undefined
}

/**
 * Gets reports of what happens to messages: the value of the option `observe`. Every member is optional. A member that no
 * observer has costs nothing.
 *
 * An observer is called at once, and nothing but {@link Observer.dead} is waited for. What it throws is logged. Like a
 * handler it shares the thread of the process, so keep it short and put longer work into a queue with a limit.
 *
 * @example
 * ```ts
 * import { createReceiver, type Observer } from 'fleethook'
 *
 * const latest: Observer = {
 *   refused: ({ error, status }) => console.log('refused', status, error),
 *   settled: ({ id, outcome }) => console.log(outcome, id),
 * }
 * createReceiver({ secret: 'a-long-random-value', observe: latest })
 * ```
 */
export interface Observer {
  /** Called once, when the receiver exists. */
  attached?(receiver: Pick<OperatorApi, 'stats'>): unknown
  /** The messages of one request were accepted. Runs inside the request, before the answer leaves. */
  received?(messages: readonly ReceivedMessage[]): unknown
  /**
   * A request was refused, even one of a stranger. It runs after the answer is made. Under an attack it is called for every request, so
   * keep it cheap; `count` helps to report only some.
   */
  refused?(request: RefusedRequest): unknown
  /** A test message came. */
  tested?(message: TestMessage): unknown
  /**
   * Wraps a run. It must call `run` at once and may wait for the promise that `run` returns, which never rejects. The
   * handlers run in the asynchronous context in which `run` is called. If an observer does not call `run`, it is called all
   * the same.
   */
  around?(run: () => Promise<RunEnd>, what: ObservedRun): unknown
  /** A run of a handler ended after this many milliseconds, or its time limit ended it. A batch is one run. */
  ran?(handler: string, ms: number): unknown
  /** A run of a handler failed, or the inbox failed. */
  failed?(error: unknown, details: ErrorDetails): unknown
  settled?(message: SettledMessage): unknown
  /**
   * A message was given up. Where a request or a drain waits for handlers, it waits for the promise that this returns too, for at most
   * `timeoutMs`.
   */
  dead?(letter: DeadMessage): unknown
  /** A gap event is in the inbox. */
  gap?(event: GapEvent): unknown
  /** `receiver.forget` has erased this vehicle: an observer that keeps something of it deletes that. */
  forgotten?(vin: string): unknown
}

/** What operators ask of a receiver that runs, and of a branch. */
export interface Operated {
  /**
   * Tells an observer of refused requests, errors, dead letters and more. Returns a function that removes it. The option `observe` does
   * the same from the start. Throws `option_invalid` for a member that is no function.
   *
   * @example
   * ```ts
   * import { createReceiver } from 'fleethook'
   *
   * const receiver = createReceiver({ secret: 'a-long-random-value' })
   * receiver.observe({
   *   refused: ({ error, isAuthentic, vins }) => isAuthentic && console.warn('refused', error, vins),
   *   failed: (error, { handler }) => console.error(handler, error),
   * })
   * ```
   */
  readonly observe: (observer: Observer) => () => void
  /** Counts since construction, and the current state. */
  readonly stats: () => Stats
  /** What fails now: `stats().failing` with the texts of errors, which can quote messages. `fleethook failing` shows it. */
  readonly failing: () => Promise<Failing>
  /**
   * Erases everything that this receiver keeps of a vehicle, for a customer who asks for it: messages in every state, dead letters, the newest
   * state, timers, gaps, and what the feed has in memory. Messages that wait are erased too: their handlers never run, and handlers that run are
   * aborted. `dryRun` only counts. What handlers have written elsewhere, logs and backups are yours to erase: see `docs/operating.md`.
   *
   * Rejects with `inbox_unsupported` with `kafkaInbox`: no record of a topic can be deleted by its vehicle.
   *
   * @example
   * ```ts
   * import { createReceiver } from 'fleethook'
   *
   * const receiver = createReceiver({ secret: 'a-long-random-value' })
   * const { messages, waiting, deadLetters } = await receiver.forget('0FLEETV14T0000004')
   * ```
   */
  readonly forget: (vin: string, options?: { readonly dryRun?: boolean }) => Promise<Forgotten>
  /** Whether the receiver takes messages now, and why not. `GET /readyz` answers the same. */
  readonly readiness: () => Readiness
  /**
   * The names of the handlers that an event is for, in their order, batches last. A handler without a name is named by the
   * place where it was registered. Handlers of `receiver.when` are left out, because they depend on what the event changed.
   */
  readonly handlersOf: (event: FleetEvent | MalformedBody) => readonly string[]
  readonly deadLetters: DeadLetters
  /**
   * The messages that the inbox keeps, newest first: waiting messages, and dead letters and handled messages until their
   * retention is over. An inbox in memory keeps no handled messages, and `kafkaInbox` cannot list any.
   *
   * @example
   * ```ts
   * import { createReceiver } from 'fleethook'
   *
   * const receiver = createReceiver({ secret: 'a-long-random-value' })
   * for await (const { id, state, event } of receiver.messages.list({ vin: '0FLEETV14T0000004' }))
   *   console.log(id, state, event.topic)
   * ```
   */
  readonly messages: KeptMessages
  /**
   * Replays messages that were handled and that the inbox still keeps (its retention), in the order in which they came: all
   * handlers run again, with `context.delivery.replayed`. It replays a hundred at a time, and the next hundred when the hundred before is
   * done, so that live messages run in between. Resolves to the number of messages once the last ones are waiting again, and
   * to 0 with an inbox that keeps none, such as the one in memory. Rejects with `inbox_full` when there is no room for the
   * next.
   *
   * @example
   * ```ts
   * import { createReceiver } from 'fleethook'
   *
   * const receiver = createReceiver({ secret: 'a-long-random-value' })
   * await receiver.replay({ from: new Date('2026-11-20T06:00Z'), to: new Date('2026-11-20T09:00Z'), topic: 'data' })
   * ```
   */
  readonly replay: (which: ReplaySelection, from?: Partial<RequestScope>) => Promise<number>
  /**
   * One part of such a replay, of at most `limit` messages. With the `next` of one part as `after` of the next, a replay goes on where it was
   * broken off. `undefined`: the inbox cannot do that.
   */
  readonly replaySome: ((which: ReplayPage) => Promise<Replayed>) | undefined
  /** What `branch` of `fleethook/branch` has put behind it, by name. */
  readonly branches: ReadonlyMap<string, BranchBehind>
}

/** What an operator can ask of a receiver, or of the inbox of a stopped one. That one leaves out what needs a process. */
export interface OperatorApi
  extends
    Pick<Operated, 'deadLetters' | 'replay'>,
    Partial<Omit<Operated, 'deadLetters' | 'messages' | 'replay' | 'failing' | 'branches'>> {
  readonly messages: Messages
  /** Left out, or `undefined`: handlers run elsewhere, and nobody asks them. */
  readonly failing?: Operated['failing'] | undefined
  /** `stats().backlog` as of now, for tables that are asked when no receiver runs. */
  readonly backlog?: () => Promise<Backlog>
  /** The newest state of each vehicle: `receiver.vehicles`. Left out, or `undefined`: it is not kept. */
  readonly vehicles?: KnownVehicles | undefined
  readonly branches?: ReadonlyMap<string, OperatorApi>
}

/** The questions that an inbox answers itself, where not all messages are in this process. */
export type Asked = Pick<OperatorApi, 'deadLetters' | 'messages' | 'replay' | 'replaySome' | 'failing'>

/** A branch, as the receiver in front of it sees it. */
export interface BranchBehind extends Operated, Drainable {
  readonly vehicles?: KnownVehicles | undefined
}
