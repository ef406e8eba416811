import type { Timer } from '../base/clock.ts'
import { PassingMap } from '../base/passing-map.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import { type ExecutionContext, isBound, type RequestScope } from '../hosting/execution-context.ts'
import { msOfSeq, seqOf } from '../inbox/delivery-id.ts'
import type { HasMark } from '../once/handlers.ts'
import type { LastFailure } from '../observe/stats.ts'
import { type Claim, mostCrashes, type Waiting } from '../inbox/inbox.ts'
import type { Delivery } from '../observe/observer.ts'
import type { Step } from '../vehicles/step.ts'
import type { BatchOptions } from './handler.ts'
import type { MessageView } from './part.ts'
import type { RetryOptions } from './retry.ts'

/** One call of `receiver.on`, `batch` or `when`: a handler that a message still has to pass. */
export interface Registered {
  /** The handler's own name, or the file and line where it was registered. */
  readonly name: string
  readonly run: (input: unknown, context: object) => unknown
  /** Whether it is for a message, which is missing when only the event is known. Left out: for every message of its subjects. */
  readonly wants: ((event: FleetEvent | MalformedBody, message: Message | undefined) => boolean) | undefined
  /** What the handler gets instead of the event. `nth`: the number of times that its subject came before in the message. Default 0. */
  readonly input: ((message: Message, nth?: number) => unknown) | undefined
  /** How long it is tried again. `undefined`: as the option `retry` says. */
  readonly retry: Required<RetryOptions> | undefined
  /** The limits of a batch. `undefined`: the handler gets one message at a time. */
  readonly gather: Pick<BatchOptions, 'size' | 'withinMs'> | undefined
  /** The name of its mark: when it resolves, its writes are committed. `undefined`: it leaves none. */
  readonly mark: string | undefined
  /** Asks whether this run, or another run of it, has left its mark. `undefined`: it leaves none. */
  readonly hasMark: HasMark | undefined
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
  failed: readonly Registered[] | undefined
  rest: Timer | undefined
  failure: LastFailure | undefined
}

/**
 * A message in progress, from its receipt until it is over. Only the core changes it, and only `Lanes` its place in its lane.
 *
 * | state     | meaning                                                                              |
 * | --------- | ------------------------------------------------------------------------------------ |
 * | `held`    | it is being stored, waits to be retried, or a batch, a breaker or its lane keeps it   |
 * | `waiting` | it waits for its turn in its lane                                                     |
 * | `running` | it has the turn of its lane and a slot of `concurrency`, or its batch has              |
 * | `over`    | settled, dead or given up                                                             |
 */
export class Message implements MessageView {
  readonly id: string
  readonly lane: string
  readonly request: RequestWork
  readonly counts: boolean
  readonly attemptsBefore: number
  readonly notBefore: number

  state: 'held' | 'waiting' | 'running' | 'over' = 'held'
  /** The number of runs of the handlers whose turn it is. The handler of a batch has attempts of its own. */
  attempt: number
  /** The most attempts that any of its handlers had. */
  mostAttempts: number
  /** An earlier process may have handed it out, or it was in a batch that failed. */
  redelivered: boolean
  /** What the inbox handed out. `undefined` before the first turn, while it waits to be retried, and at a circuit breaker. */
  claim: Claim | undefined
  event: FleetEvent | MalformedBody | undefined
  /** The handlers that still have to succeed. `undefined` before the first attempt. */
  handlers: readonly Registered[] | undefined
  /** What keeps it, when that is a batch, a circuit breaker or the messages before it in its lane. */
  heldBy: object | undefined
  /** The slot that it shares with other messages of a batch while it runs. `undefined`: it has its own. */
  slot: { release(): void } | undefined
  /** Parts let it pass, or they and the state of its vehicle have heard of its end. */
  toParts: 'new' | 'admitted' | 'ended' = 'new'
  /** The handler of a batch gets it alone: a batch failed, or it is a suspect. */
  isAlone = false
  /** It is over here without an end: another process has the message, or its vehicle was erased. */
  isGone = false
  /** The number of processes that ended while they had it in hand. */
  crashes: number
  trouble: Trouble | undefined
  step: Step | undefined
  /** Continues in the I/O context of the request that brought it, where a runtime binds work to a request. */
  hop: (() => void) | undefined

  /** Only `Lanes` changes its place: this field and the two below. */
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

  /** What a handler gets of it, and of the state of its vehicle: an error can quote each part. */
  get seen(): readonly unknown[] {
    const { event, step } = this
    const own =
      event?.topic === 'malformed' ? [event.text] : [event?.vin, event?.raw, event?.topic === 'data' && event.data]
    return [...own, step?.changes, step?.settled]
  }

  get isOver(): boolean {
    return this.state === 'over'
  }

  get receivedAt(): number {
    return this.claim?.message.receivedAt ?? msOfSeq(seqOf(this.id))
  }

  /** Its turn begins, in a slot of its own or in the slot of its batch. */
  begin(slot?: Message['slot']): void {
    this.state = 'running'
    this.heldBy = undefined
    this.slot = slot
  }

  hold(by: object | undefined): void {
    this.state = 'held'
    this.heldBy = by
  }

  end(): void {
    this.trouble?.rest?.cancel()
    this.state = 'over'
    this.heldBy = undefined
  }

  countAttempt(counts: { retried: number }): void {
    this.attempt += 1
    if (this.attempt > 1) counts.retried += 1
    if (this.attempt > this.mostAttempts) this.mostAttempts = this.attempt
  }

  /** These handlers still have to succeed. A batch counts its own attempts. */
  goOnWith(handlers: readonly Registered[]): void {
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

  /** Handlers failed for the last time, or something else is wrong with it. */
  failForGood(error: string, handlers?: readonly Registered[]): void {
    const trouble = this.inTrouble()
    trouble.failed = handlers && [...((trouble.fatal === undefined ? [] : trouble.failed) ?? []), ...handlers]
    trouble.fatal ??= error
  }

  /** It cannot be tried again, and no handler is the reason. */
  refuse(reason: string): void {
    this.failForGood(reason)
    this.handlers = []
  }

  inTrouble(): Trouble {
    return (this.trouble ??= new Trouble())
  }

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

/** The queue of one VIN. It exists only while it has work. Only `Lanes` changes it. */
interface Lane {
  head: Message | undefined
  tail: Message | undefined
  /** The message whose turn it is: the head, or the first one behind the messages that were passed over. */
  turn: Message | undefined
  /** The lane behind it in the queue of lanes. */
  following: Lane | undefined
  messages: number
  /** The message that has made it rest. Until that one is over, the lane does not count in `Lanes.messages`. */
  aside: Message | undefined
}

/** The most messages that need not count because their lanes are set aside. */
const mostAside = 90_000

/**
 * Decides which message is next. Messages of one lane come out in the order in which they went in, one at a time. Lanes take turns, so
 * that a busy vehicle does not keep the others waiting. The cost does not depend on the number of lanes.
 */
export class Lanes {
  /** The next lane with a message to take, and the last one. */
  first: Lane | undefined
  #last: Lane | undefined
  readonly #lanes = new PassingMap<string, Lane>()
  /** The number of messages in all lanes, and of those in lanes that were set aside. */
  #messages = 0
  #aside = 0

  get size(): number {
    return this.#lanes.size
  }

  /**
   * The number of messages in lanes. A vehicle whose message fails for an hour must not keep others waiting, so a lane that was set aside does not
   * count: neither while its message is tried again, nor when new ones come.
   */
  get messages(): number {
    return this.#messages - Math.min(this.#aside, mostAside)
  }

  /** Adds a message at the end of its lane. It keeps its place, and those behind it wait, until it is {@link ready}. */
  add(message: Message): void {
    let lane = this.#lanes.get(message.lane)
    if (lane === undefined) {
      lane = { head: message, tail: undefined, turn: undefined, following: undefined, messages: 0, aside: undefined }
      this.#lanes.set(message.lane, lane)
    }
    message.inLane = lane
    message.previous = lane.tail
    if (lane.tail !== undefined) lane.tail.next = message
    lane.tail = message
    lane.turn ??= message
    lane.messages += 1
    this.#messages += 1
    if (lane.aside !== undefined) this.#aside += 1
  }

  /** A message waits for its turn if something held it. */
  ready(message: Message): void {
    if (message.state !== 'held') return
    const { inLane: lane } = message
    message.state = 'waiting'
    message.heldBy = undefined
    if (lane?.turn === message) this.#queue(lane)
  }

  /** Takes the message whose turn it is in the next lane. The lane leaves the queue until the message is ready again, passed over or removed. */
  take(): Message | undefined {
    for (let lane = this.first; lane !== undefined; lane = this.first) {
      this.first = lane.following
      if (this.first === undefined) this.#last = undefined
      lane.following = undefined
      // The message can have been removed while its lane waited.
      if (lane.turn?.state === 'waiting') return lane.turn
    }
    return undefined
  }

  /** The message keeps its place, and the turn goes to the one behind it. */
  pass(message: Message): void {
    const { inLane: lane } = message
    if (lane?.turn !== message) return
    lane.turn = message.next
    this.#queue(lane)
  }

  /** The turn goes back to a message that was passed over, unless one before it has the turn. */
  recall(message: Message): void {
    const { inLane: lane } = message
    if (lane === undefined) return
    for (let before = message.previous; before !== undefined; before = before.previous) if (lane.turn === before) return
    lane.turn = message
  }

  /** Takes a message out of its lane for good, wherever it stands. */
  remove(message: Message): void {
    const { inLane: lane, previous, next } = message
    if (lane === undefined) return
    message.inLane = undefined
    message.previous = undefined
    message.next = undefined
    if (next === undefined) lane.tail = previous
    else next.previous = previous
    if (previous === undefined) lane.head = next
    else previous.next = next
    if (lane.aside !== undefined) this.#aside -= 1
    lane.messages -= 1
    this.#messages -= 1
    if (lane.aside === message) {
      lane.aside = undefined
      this.#aside -= lane.messages
    }
    if (lane.turn === message) {
      lane.turn = next
      this.#queue(lane)
    }
    if (lane.head === undefined) this.#lanes.delete(message.lane)
  }

  /** A message waits to be retried, so its lane does not count until that message is over: see {@link messages}. */
  setAside(message: Message): void {
    const { inLane: lane } = message
    if (lane === undefined || lane.aside !== undefined) return
    lane.aside = message
    this.#aside += lane.messages
  }

  /** Every message, lane by lane in order. */
  *all(): Generator<Message> {
    for (const { head } of this.#lanes.values())
      for (let message = head; message !== undefined; message = message.next) yield message
  }

  /** A lane with something to take goes to the back of the queue, unless it stands there already. */
  #queue(lane: Lane): void {
    if (lane.following !== undefined || lane === this.#last || lane.turn?.state !== 'waiting') return
    if (this.#last === undefined) this.first = lane
    else this.#last.following = lane
    this.#last = lane
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
