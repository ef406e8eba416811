import type { Timer } from '../base/clock.ts'
import type { Log } from '../base/log.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import { type ExecutionContext, isBound, type RequestScope } from '../hosting/execution-context.ts'
import { msOfSeq, seqOf } from '../inbox/delivery-id.ts'
import type { LastFailure } from '../inbox/stats.ts'
import { type Claim, mostCrashes, type Waiting } from '../inbox/inbox.ts'
import type { Delivery } from '../inbox/observer.ts'
import type { Step } from '../vehicles/vehicles.ts'
import type { BatchOptions } from './handler.ts'
import type { MessageView } from './part.ts'

/** The queue of one VIN. It exists only while it has work. Only `Lanes` changes it. */
export interface Lane {
  head: Message | undefined
  tail: Message | undefined
  /** The message whose turn it is: the head, or the first one behind those that were passed over. */
  turn: Message | undefined
  /** Whether it stands in the queue of lanes. If not, its message runs or is not ready. */
  isQueued: boolean
  following: Lane | undefined
  messages: number
  /** The message that has made it rest. Until that one is over, the lane does not count in `Lanes.messages`. */
  aside: Message | undefined
}

/** The second argument of every handler. */
export interface Context {
  readonly log: Log
  readonly env: object
  readonly signal: AbortSignal
}

/** Whether a handler is for a message. `message` is missing when only the event is known. */
export type Wants = (event: FleetEvent | MalformedBody, message: Message | undefined) => boolean

/** One call of `receiver.on`, `batch` or `when`: a handler that a message still has to pass. */
export interface Handler {
  /** The handler's own name, or the file and line where it was registered. */
  readonly name: string
  readonly run: (input: unknown, context: Context) => unknown
  /** Left out: it is for every message of its subjects. */
  readonly wants: Wants | undefined
  /** What the handler gets instead of the event. `nth`: the number of times that its subject came before in the message. */
  readonly input: ((message: Message, nth: number) => unknown) | undefined
  readonly nth: number
  /** The limits of a batch. `undefined`: the handler gets one message at a time. */
  readonly gather: Pick<BatchOptions, 'size' | 'withinMs'> | undefined
  /** The name of its mark: when it resolves, its writes are committed. `undefined`: it leaves none. */
  readonly mark: string | undefined
}

/** A place of `concurrency` that several messages share: the run of a batch. */
export interface Slot {
  /** One of its messages needs it no more. */
  release(): void
}

/** What went wrong with a message. Only a failure makes one. */
class Trouble {
  /** When the handler that failed began to fail, by the clock that is never set back. */
  sinceMs: number | undefined
  /** Attempts that do not count, because the handler fails for every vehicle. */
  exempt = 0
  /** A handler failed for the last time: once the others are done, the message becomes a dead letter with this error. */
  fatal: string | undefined
  /** Those handlers. `undefined`: something else than a handler is the reason. */
  failed: readonly Handler[] | undefined
  /** Fires when it may be tried again. */
  rest: Timer | undefined
  /** What operators are told about it while it waits. */
  failure: LastFailure | undefined
}

/**
 * A message in progress, from its receipt until it is over. Its state, attempts and trouble change only by the methods of this class. Its
 * place in its lane belongs to `Lanes`.
 *
 * | state     | meaning                                                                              |
 * | --------- | ------------------------------------------------------------------------------------ |
 * | `held`    | it is being stored, it rests, or a batch, a breaker or those before it keep it        |
 * | `waiting` | it waits for its turn in its lane                                                     |
 * | `running` | it has the turn of its lane and a slot of `concurrency`, or its batch has              |
 * | `over`    | settled, dead or given up                                                             |
 */
export class Message implements MessageView {
  readonly id: string
  /** The VIN of its vehicle, or a name that begins with `*` for messages of no vehicle. */
  readonly lane: string
  readonly request: RequestWork
  /** It came over the wire, so `stats()` counts it. The receiver's own messages do not count. */
  readonly counts: boolean
  /** Attempts that earlier processes made. */
  readonly attemptsBefore: number
  readonly notBefore: number

  state: 'held' | 'waiting' | 'running' | 'over' = 'held'
  /** The number of runs of the handlers whose turn it is. The handler of a batch has attempts of its own. */
  attempt: number
  /** The most attempts that any of its handlers had. */
  mostAttempts: number
  /** An earlier process may have handed it out, or it was in a batch that failed. */
  redelivered: boolean
  /** What the inbox handed out. `undefined` before the first turn, while it rests, and at a circuit breaker. */
  claim: Claim | undefined
  event: FleetEvent | MalformedBody | undefined
  /** The handlers that still have to succeed. `undefined` before the first attempt. */
  handlers: readonly Handler[] | undefined
  /** What keeps it, when that is a batch, a circuit breaker or the messages before it in its lane. */
  heldBy: object | undefined
  /** The slot that it shares with other messages of a batch while it runs. `undefined`: it has its own. */
  slot: Slot | undefined
  /** Parts let it pass, or they and the state of its vehicle have heard of its end. */
  toParts: 'new' | 'admitted' | 'ended' = 'new'
  /** Its handler, that of a batch, gets it alone: a batch failed, or it is a suspect. */
  isAlone = false
  /** It is over here without an end: another process has the message, or its vehicle was erased. */
  isGone = false
  /** The number of processes that ended while they had it in hand. */
  crashes: number
  trouble: Trouble | undefined
  /** What it changed in the state of its vehicle. */
  change: Step | undefined
  /** Continues in the I/O context of the request that brought it, where a runtime binds work to a request. */
  hop: (() => void) | undefined

  /** May be taken when its turn comes. Only `Lanes` changes this field and the four below. */
  isReady = false
  inLane: Lane | undefined
  previous: Message | undefined
  next: Message | undefined

  constructor(waiting: Waiting, request: RequestWork) {
    const { id, lane, kind, attempts = 0, notBefore = 0, crashes = 0, redelivered = false } = waiting
    this.id = id
    this.lane = lane
    this.request = request
    this.counts = kind === 'wire'
    this.attemptsBefore = attempts
    this.notBefore = notBefore
    this.attempt = attempts
    this.mostAttempts = attempts
    this.redelivered = redelivered
    this.crashes = crashes
    if (waiting.failure !== undefined) this.inTrouble().failure = waiting.failure
  }

  /** Nothing runs beside it: one more crash would make it a dead letter, and must not be the fault of another message. */
  get isSuspect(): boolean {
    return this.crashes >= mostCrashes - 1
  }

  get isOver(): boolean {
    return this.state === 'over'
  }

  get receivedAt(): number {
    return this.claim?.message.receivedAt ?? msOfSeq(seqOf(this.id))
  }

  /** Its turn begins, in a slot of its own or in that of its batch. */
  begin(slot?: Slot): void {
    this.state = 'running'
    this.heldBy = undefined
    this.slot = slot
  }

  wait(): void {
    this.state = 'waiting'
    this.heldBy = undefined
    if (this.trouble !== undefined) this.trouble.rest = undefined
  }

  /** Something keeps it until it is resumed. */
  hold(by: object | undefined): void {
    this.state = 'held'
    this.heldBy = by
  }

  /** It rests until the timer fires. The inbox knows, and hands it out again. */
  rest(timer: Timer | undefined): void {
    this.state = 'held'
    this.heldBy = undefined
    this.unload()
    this.inTrouble().rest = timer
  }

  end(): void {
    this.trouble?.rest?.cancel()
    this.state = 'over'
    this.heldBy = undefined
  }

  /** Frees the memory of the message. Its next turn asks the inbox again. */
  unload(): void {
    this.claim = undefined
    this.event = undefined
  }

  /** Its handlers are about to run. */
  countAttempt(counts: { retried: number }): void {
    this.attempt += 1
    if (this.attempt > 1) counts.retried += 1
    if (this.attempt > this.mostAttempts) this.mostAttempts = this.attempt
  }

  /** The attempt was broken off, or was that of a batch that failed: it does not count. */
  uncountAttempt(before: number): void {
    this.attempt = Math.min(before, this.attempt)
  }

  /** The batch that it was in failed, and each of its messages is tried by itself. */
  goAlone(before: number): void {
    this.uncountAttempt(before)
    this.redelivered = true
    this.isAlone = true
  }

  /** These handlers still have to succeed. A batch counts its own attempts. */
  goOnWith(handlers: readonly Handler[]): void {
    const isNext = handlers[0]?.gather !== undefined && handlers[0] !== this.handlers?.[0]
    this.handlers = handlers
    const { trouble } = this
    if (!handlers.some(({ name }) => name === trouble?.failure?.handler) && trouble !== undefined)
      trouble.failure = undefined
    if (!isNext) return
    this.attempt = 0
    this.isAlone = false
    if (this.trouble !== undefined) {
      this.trouble.exempt = 0
      this.trouble.sinceMs = undefined
    }
  }

  /** A handler failed at `nowMs`, by the clock that is never set back. An earlier process began to fail `earlierMs` before this one. */
  noteFailure(nowMs: number, earlierMs: number): number {
    return (this.inTrouble().sinceMs ??= nowMs - earlierMs)
  }

  /** A handler failed, at this time of day. */
  noteError(handler: string, error: string, nowMs: number): void {
    const sinceMs = this.trouble?.failure?.sinceMs ?? nowMs
    this.inTrouble().failure = { handler, error, sinceMs }
  }

  /** Its attempt does not count: the handler fails for every vehicle. */
  exemptAttempt(): void {
    const trouble = this.inTrouble()
    trouble.exempt += 1
    trouble.sinceMs = undefined
  }

  /** Handlers failed for the last time, or something else is wrong with it. */
  failForGood(error: string, handlers?: readonly Handler[]): void {
    const trouble = this.inTrouble()
    trouble.failed = handlers && [...((trouble.fatal === undefined ? [] : trouble.failed) ?? []), ...handlers]
    trouble.fatal ??= error
  }

  /** The marks of the handlers that failed for the last time, if all of them leave one. */
  get missingMarks(): readonly string[] | undefined {
    const marks = this.trouble?.failed?.map(({ mark }) => mark)
    return marks?.every((mark) => mark !== undefined) === true && marks.length > 0 ? marks : undefined
  }

  /** A handler that had failed for the last time has ended well after all. Returns whether nothing else is wrong. */
  succeedLate(handler: Handler): boolean {
    const { trouble } = this
    if (trouble?.failed?.includes(handler) !== true) return false
    trouble.failed = trouble.failed.filter((other) => other !== handler)
    return trouble.failed.length === 0
  }

  /** The inbox cannot keep it for another attempt, so there is none. */
  refuse(reason: string): void {
    this.failForGood(reason)
    this.handlers = []
  }

  inTrouble(): Trouble {
    return (this.trouble ??= new Trouble())
  }

  /** What handlers learn of this attempt. */
  delivery(attempt: number = this.attempt): Delivery {
    const { id, redelivered, claim } = this
    const deliveries = claim?.deliveries ?? 0
    return {
      id,
      attempt,
      redelivered: attempt > 1 || deliveries > 0 || redelivered,
      replayed: claim?.replayed === true,
      replay: claim?.replay,
    }
  }
}

/** The messages of one request, and the promises that wait for them. */
export class RequestWork implements RequestScope {
  readonly env: unknown
  readonly context: ExecutionContext | undefined
  /** Whether its work is bound to it: the runtime ends the work with the request, unless `waitUntil` keeps it alive. */
  readonly isBound: boolean
  /** Its messages, until they have started. A request that the runtime may end keeps them to its end. Only the core changes it. */
  messages: readonly Message[]
  /** Messages that this process will not handle. */
  unhandled = 0
  /** The lanes of messages that were given up, one message for each message. */
  givenUp: string[] | undefined
  #unfinished: number
  #settled: Promise<void> | undefined
  #resolve: (() => void) | undefined

  constructor(given: readonly Waiting[], { env, context }: RequestScope) {
    this.env = env
    this.context = context
    this.isBound = context !== undefined && isBound(context)
    this.#unfinished = given.length
    const messages: Message[] = []
    for (const each of given) messages.push(new Message(each, this))
    this.messages = messages
  }

  get isOver(): boolean {
    return this.#unfinished === 0
  }

  /** Resolves when each of its messages is settled, dead or given up. */
  settled(): Promise<void> {
    // Made on demand: most answers wait for no handler.
    return (this.#settled ??= new Promise((resolve) => {
      this.#resolve = resolve
      if (this.#unfinished === 0) resolve()
    }))
  }

  alsoWaitFor(promise: Promise<unknown>): void {
    this.#unfinished += 1
    void promise.then(() => this.oneIsOver())
  }

  oneIsOver(isUnhandled: boolean = false): void {
    if (isUnhandled) this.unhandled += 1
    this.#unfinished -= 1
    if (this.#unfinished === 0) this.#resolve?.()
  }
}

/**
 * Returns a function that calls `run` in the I/O context of this call. On Workers, work may run only in the context of
 * its own request, and its turn may come while another one is served. A continuation runs where it was registered.
 */
export function contextHop(run: () => void): () => void {
  let open = (): void => {}
  void new Promise<void>((resolve) => {
    open = resolve
  }).then(run)
  return open
}
