import { type Clock, elapsedMs } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import type { Log } from '../base/log.ts'
import { contextHop, noRequest, type RequestScope } from '../hosting/execution-context.ts'
import { RequestDeadlines } from '../hosting/request-deadlines.ts'
import { crashText, done, mostCrashes } from '../inbox/inbox.ts'
import type { Claim, DeadLetter, Inbox, Outcome, ReadMessage, Settled, Waiting } from '../inbox/inbox.ts'
import type { Delivery, RunEnd } from '../observe/observer.ts'
import { vinOf } from '../inbox/receipts.ts'
import type { Reports } from '../reports/reports.ts'
import type { VehicleStates } from '../vehicles/open.ts'
import { type Batch, Batches } from './batches.ts'
import { Breaker } from './breaker.ts'
import { type Registered, Lanes, type Message, RequestWork } from './message.ts'
import { admittedBy, type Ended, type Part } from './part.ts'
import type { Registry } from './registry.ts'
import { backoffMs, errorText, expectedMs, leastWaitMs, requestOf, type RetryOptions } from './retry.ts'
import { Lifecycle, type Ran, Runner } from './runner.ts'

/** How long a message waits when the inbox failed during its attempt, in milliseconds. */
const inboxRestMs = 5_000

/** What the core handles messages with. */
export interface CoreOptions {
  readonly inbox: Inbox
  readonly clock: Clock
  readonly log: Log
  readonly registry: Registry
  readonly vehicles: VehicleStates | undefined
  readonly parts: readonly Part[]
  readonly retry: Required<RetryOptions>
  readonly concurrency: number
  /** Handlers start more slowly while the process is busy: a backlog must not slow the answers of a receiver in front. */
  readonly givesWay: boolean
  readonly timeoutMs: number
  readonly read: ReadMessage
  readonly reports: Reports
  died(letter: DeadLetter, request: RequestWork): void
  /** A message of this lane, received at or after `sinceMs`, was given up while the receiver goes on. */
  missed(lane: string, sinceMs: number): void
  /** The inbox has room again, because a message of `request` is over. */
  onCapacity(request: RequestWork): void
}

/**
 * What follows a turn. `over`: nothing, it has ended elsewhere. `wait`: for those before it in its lane. `gather`: in a batch. `again`: at
 * once. A number: it waits for this time, in milliseconds. A breaker: it waits there.
 */
type Next = End | 'wait' | 'gather' | 'again' | number | Breaker

type End = 'done' | 'skipped' | 'dead' | 'over'

const noHandlers: readonly Registered[] = []

/** A handler that an attempt did not get done: it failed, or a breaker keeps its messages. */
interface Left {
  readonly handler: Registered
  readonly breaker: Breaker | undefined
}

const nothingLeft: readonly Left[] = []

/** What follows a run that failed, as far as it is told. */
interface FailedRun {
  readonly size: number
  readonly seen: readonly unknown[] | undefined
  readonly isLast: boolean
  readonly limit: number
  readonly nextMs?: number
  /** It runs again, whatever its limits are. */
  readonly isCertain?: boolean
  readonly isPaused?: boolean
}

/** One attempt at the handlers of a message, or at the handler of its batch. */
class Attempt {
  readonly message: Message
  /** The number of attempts before it. */
  readonly before: number
  at: number
  left: readonly Left[] = nothingLeft
  /** The error of the handler that failed last, and the longest wait that any of them asks for. */
  failure: Ran
  restMs = 0
  /** It failed in a batch of several messages, and another one may be the reason. */
  isShared = false
  /** What its handlers get, once one of them runs. */
  delivery: Delivery | undefined
  /** How it ended, for the turn that called its observers. `undefined`: they are not around it. */
  next: Next | undefined

  constructor(message: Message, at: number = 0) {
    this.message = message
    this.before = message.attempt
    this.at = at
  }

  /** The handler has still to succeed. `breaker`: keeps the message from it. */
  leaveOut(handler: Registered, breaker: Breaker | undefined): void {
    this.left = [...this.left, { handler, breaker }]
  }
}

/** What a message that waits for those before it in its lane is held by. */
const itsPlace = {}

/**
 * Claims messages from the inbox, runs their handlers and settles them: in order per lane, up to `concurrency` at once. `#turn` is the
 * whole life of a message, and `#nextOf` says what follows an attempt.
 */
export class Core {
  /** Results since construction. Messages that the receiver made itself do not count. */
  readonly counts = { handled: 0, retried: 0, deadLettered: 0, duplicates: 0, lost: 0, handedOver: 0, forgotten: 0 }
  readonly options: CoreOptions
  readonly lanes: Lanes = new Lanes()
  readonly lifecycle: Lifecycle
  /** The breakers of handlers that have failed since their last success. */
  readonly breakers: Map<Registered, Breaker> = new Map()
  readonly runner: Runner
  readonly #deadlines: RequestDeadlines<RequestWork>
  readonly #batches: Batches
  #started: RequestWork[] = []
  /** The messages that a handler failed for. */
  readonly troubled: Set<Message> = new Set()
  /** The message beside which nothing runs, from the time at which its turn came. */
  #suspect: Message | undefined
  #isPumping = false

  constructor(options: CoreOptions) {
    this.options = options
    this.lifecycle = new Lifecycle(options.clock, options.givesWay, this.#begin)
    this.runner = new Runner(options, this.#endedLate)
    this.#deadlines = new RequestDeadlines(this)
    this.#batches = new Batches(this)
  }

  /** Gives messages their places in their lanes, before the inbox has them: their order is the order of these calls. */
  add(given: readonly Waiting[], scope: RequestScope): RequestWork {
    const request = new RequestWork(given, scope)
    for (const message of request.messages) {
      this.lanes.add(message)
      if (message.trouble !== undefined) this.troubled.add(message)
    }
    return request
  }

  /** The inbox has the request's messages: their handlers start in a task of their own, after the answer. */
  start(request: RequestWork): void {
    if (request.messages.length === 0) return
    if (request.isBound) {
      this.#deadlines.keepAlive(request)
      return this.lifecycle.laterInContext(() => this.#begin(request))
    }
    this.#started.push(request)
    this.lifecycle.later()
  }

  /** The inbox did not take them. */
  cancel(request: RequestWork): void {
    for (const message of request.messages) {
      this.#remove(message)
      request.oneIsOver()
    }
    this.pump()
  }

  /** Work on these messages ends at once, whatever its state, and is not settled: other processes have them, or their vehicle is erased. */
  drop(which: (message: Message) => boolean, count: 'handedOver' | 'forgotten' | 'lost', reason: FleethookError): void {
    for (const message of [...this.lanes.all()].filter(which)) {
      this.#remove(message)
      message.isGone = true
      this.#tell(message, 'gone')
      if (message.counts) this.counts[count] += 1
      message.request.oneIsOver(true)
    }
    this.#batches.dropOver()
    this.runner.abort(reason, ({ messages }) => messages.every(({ isGone }) => isGone))
    this.pump()
  }

  /** The inbox cannot write that a message waits for its next attempt. It becomes a dead letter, unless its next attempt has begun. */
  refused(id: string, reason: string): void {
    for (const message of this.lanes.all()) {
      if (message.id !== id || message.state !== 'held' || message.heldBy !== undefined) continue
      message.refuse(reason)
      message.trouble?.rest?.cancel()
      this.lanes.ready(message)
    }
    this.pump()
  }

  /** For a drain: no more handlers start, and no timer fires any more, but some handlers may still run. Can be called twice. */
  startNoMore(): void {
    this.lifecycle.startsNoMore = true
    this.options.vehicles?.stopTimers()
    for (const breaker of this.breakers.values()) breaker.stop()
    this.#batches.stop()
  }

  /** Starts due batches and messages whose turn it is, until `concurrency` of them run. */
  readonly pump = (): void => {
    const { lifecycle } = this
    const batches = this.#batches
    if (this.#isPumping) return
    this.#isPumping = true
    while (lifecycle.running < this.options.concurrency && !lifecycle.startsNoMore) {
      if (this.#suspect !== undefined && lifecycle.running > 0) break
      // The last messages of a drain do not wait for others.
      if (lifecycle.isDraining && this.lanes.first === undefined) batches.flush()
      const hasNext = this.#suspect !== undefined || batches.due.length > 0 || this.lanes.first !== undefined
      if (!hasNext || !lifecycle.mayStart()) break
      const batch = this.#suspect === undefined ? batches.due.shift() : undefined
      if (batch !== undefined) {
        lifecycle.running += 1
        if (batch.hop === undefined) void this.runBatch(batch)
        else batch.hop()
        continue
      }
      const message = this.#suspect ?? this.lanes.take()
      if (message === undefined) break
      if (message.isSuspect) {
        this.#suspect = message
        if (lifecycle.running > 0) break
      }
      lifecycle.running += 1
      message.begin()
      if (message.hop === undefined) void this.#turn(message)
      else message.hop()
    }
    this.#isPumping = false
    lifecycle.onChange?.()
  }

  /** A message that something kept goes on, after `afterMs`. */
  resume(message: Message, afterMs: number = 0): void {
    if (afterMs > 0) return this.#hold(message, afterMs)
    this.lanes.ready(message)
    this.pump()
  }

  /** Writes that a message waits again, and is not tried before `restMs` from now. Never rejects. */
  async tryLater(message: Message, restMs: number): Promise<void> {
    try {
      await this.options.inbox.settle(message.id, this.#later(message, restMs))
    } catch (error) {
      this.options.reports.inboxFailed(error)
    }
  }

  /** Gives up messages that are over, and resolves to what is lost: a durable inbox keeps them for a later process. Never rejects. */
  async giveUp(messages: readonly Message[]): Promise<readonly Message[]> {
    const { inbox, reports } = this.options
    const lost: Message[] = []
    const lose = async (message: Message): Promise<void> => {
      try {
        // A message that was settled in the meantime is no longer in the inbox.
        if ((await inbox.claim(message.id)) === undefined) return
        await inbox.settle(message.id)
      } catch (error) {
        reports.inboxFailed(error)
      }
      if (!message.counts) return
      this.counts.lost += 1
      lost.push(message)
      this.#tell(message, 'lost')
    }
    if (inbox.durability === 'memory') await Promise.all(messages.map(lose))
    if (lost.length > 0) reports.lost(lost.length)
    // An answer must not wait for its handlers any more, even if a later process runs them.
    for (const { request } of messages) request.oneIsOver(true)
    return lost
  }

  /** Runs in a task of its own, after messages have started. `bound`: in the I/O context of that request. */
  readonly #begin = (bound?: RequestWork): void => {
    const requests = bound === undefined ? this.#started : [bound]
    if (bound === undefined) this.#started = []
    const now = this.options.clock.now()
    for (const request of requests) {
      for (const message of request.messages)
        if (message.notBefore > now && !message.isOver) this.#hold(message, message.notBefore - now)
        else this.lanes.ready(message)
      if (request !== bound) request.messages = []
    }
    this.pump()
    if (bound === undefined) return
    for (const message of bound.messages)
      if (message.state !== 'running' && !message.isOver && message.hop === undefined) this.#bind(message)
  }

  /**
   * The whole turn of a message, in the I/O context of its request. It needs a promise only where the inbox, the state of its vehicle or a
   * handler needs one. Never rejects.
   *
   * | `begun`                             | called by                            | steps   | then                              |
   * | ----------------------------------- | ------------------------------------ | ------- | --------------------------------- |
   * |                                     | `pump`, when the message has its turn | 1 to 4  | `#endTurn`                        |
   * | an attempt with observers around it | step 3, through the observers        | 3 and 4 | the turn that called it goes on   |
   * | an attempt that a batch began       | `runBatch`                           | 3 and 4 | `#endTurn`                        |
   */
  async #turn(message: Message, begun?: Attempt): Promise<void> {
    const { inbox, vehicles, registry } = this.options
    let next: Next | undefined
    try {
      if (begun === undefined) {
        // 1. The inbox hands it out.
        const found = message.claim === undefined ? inbox.claim(message.id) : this.#stillOurs(message.id, message.claim)
        const claim = found instanceof Promise ? await found : found
        // Ended while we waited; already counted.
        if (claim === undefined || message.isOver) return this.#endTurn(message, 'over')
        if (message.claim === undefined) this.#read(message, claim)
        // 2. It changes the state of its vehicle, once, and that says which handlers it is for.
        if (message.handlers === undefined) {
          // What a handler of an earlier process committed shows that neither its state nor its handlers end processes.
          const mayEnd = this.#noteEarlier(message, claim) && !(await this.#hasMark(message, registry.marking))
          if (vehicles !== undefined && message.step === undefined) {
            const found = vehicles.find(message.lane)
            const state = found instanceof Promise ? await found : found
            if (message.isOver) return this.#endTurn(message, 'over')
            this.#step(vehicles, message, claim, state, mayEnd)
          }
          const { event, trouble, step } = message
          const wanted = event === undefined ? noHandlers : registry.handlersFor(event, message, step?.subjects)
          if (trouble?.fatal !== undefined) await this.#giveUp(message, wanted, trouble.fatal, mayEnd)
          message.handlers = trouble?.fatal === undefined ? wanted : noHandlers
          if (message.isOver) return this.#endTurn(message, 'over')
        }
        next = this.#admit(message)
      }
      // 3. Its handlers run, one after another.
      if (next === undefined) {
        const attempt = begun ?? new Attempt(message)
        const observed = begun === undefined ? this.#observed(message, attempt) : undefined
        // Outside of the observer's context, because other messages start now.
        if (observed !== undefined) return this.#endTurn(message, await observed)
        for (let handler = this.#pick(attempt); handler !== undefined; handler = this.#pick(attempt)) {
          const result = this.runner.run(handler, [message], message.request, attempt.delivery)
          const failure = result instanceof Promise ? await result : result
          if (message.isGone) attempt.failure = failure
          else if (failure !== undefined || this.breakers.size > 0) this.#ran(handler, [attempt], failure)
        }
        next = this.#nextOf(attempt)
      }
      // 4. How the turn ended is written.
      const outcome = this.#outcomeOf(message, next)
      if (outcome !== undefined) {
        const written = inbox.settle(message.id, outcome)
        this.#written(message, outcome, next, written instanceof Promise ? await written : written)
      }
    } catch (error) {
      const wasSeen = message.handlers !== undefined || message.claim === undefined
      next = this.#failedTurn(message, error)
      // No handler saw it, so its claim must not look as if it had ended its process.
      if (!wasSeen) await this.tryLater(message, next)
    }
    if (begun?.next === undefined) this.#endTurn(message, next)
    else begun.next = next
  }

  /** The claim of a message that waited since the inbox handed it out. `undefined`: another process has the message now. */
  #stillOurs(id: string, claim: Claim): Claim | undefined | Promise<Claim | undefined> {
    return this.options.inbox.shared?.isStillHeld?.(id).then((isOurs) => (isOurs ? claim : undefined)) ?? claim
  }

  /** The inbox has handed the message out. It is given up if nobody can read it. */
  #read(message: Message, claim: Claim): void {
    message.claim = claim
    try {
      message.event = claim.message.event ?? this.options.read(claim.message)
    } catch (error) {
      message.failForGood(errorText(error))
    }
  }

  /** Changes the state of its vehicle, even when the message is given up. A message that cannot be read, or may end the process, is missing in that state. */
  #step(
    vehicles: VehicleStates,
    message: Message,
    claim: Claim,
    state: Awaited<ReturnType<VehicleStates['find']>>,
    mayEnd: boolean,
  ): void {
    const { id, event, next: following } = message
    // The next one tells what is due before it.
    message.step =
      event === undefined || mayEnd
        ? vehicles.miss(id, event, state, claim)
        : vehicles.step(id, event, state, claim, following !== undefined)
  }

  /** The handler that runs next. Leaves out handlers whose breaker keeps the message from them. */
  #pick(attempt: Attempt): Registered | undefined {
    const { message } = attempt
    const handler = message.handlers?.[attempt.at]
    if (handler === undefined || message.isOver || this.lifecycle.startsNoMore) return undefined
    // Batches come last, and only a message that is alone runs in one here.
    if (handler.gather !== undefined && !(message.isAlone && attempt.at === 0)) return undefined
    attempt.at += 1
    const breaker = this.breakers.get(handler)
    if (breaker?.lets(message) === false) {
      attempt.leaveOut(handler, breaker)
      return this.#pick(attempt)
    }
    if (attempt.delivery === undefined) message.countAttempt(this.counts)
    attempt.delivery ??= message.delivery()
    return handler
  }

  /**
   * What follows when the handlers of an attempt have run, failed or were left out. The first row that fits counts.
   *
   * | case                                                | the attempt counts | handlers that still have to succeed | next               |
   * | --------------------------------------------------- | ------------------ | ----------------------------------- | ------------------ |
   * | it ended while its handlers ran                     |                    |                                     | nothing            |
   * | a drain lets nothing start, and handlers are left     | no                 | all that are left                   | it waits, unclaimed, until they may run again |
   * | it failed in a batch with others                     | no                 | the same                            | alone, in its turn |
   * | a handler failed, not for the last time              | yes                | all that are left                   | it waits           |
   * | breakers keep handlers, and no other one failed       | no                 | all that are left                   | it waits there     |
   * | breakers keep handlers, another failed for good       | yes                | all that breakers keep              | it waits there     |
   * | only batches are left                                | yes                | the batches                         | it gathers         |
   * | none is left                                         | yes                |                                     | done, or dead      |
   */
  #nextOf({ message, before, at, left, failure, restMs, isShared }: Attempt): Next {
    if (message.isOver) return 'over'
    const { handlers = noHandlers } = message
    const toGather = at < handlers.length ? handlers.slice(at) : noHandlers
    if (this.lifecycle.startsNoMore && left.length + toGather.length > 0) {
      message.goOnWith([...left.map(({ handler }) => handler), ...toGather])
      message.attempt = Math.min(before, message.attempt)
      return restMs
    }
    if (isShared && failure !== undefined) {
      message.attempt = Math.min(before, message.attempt)
      message.redelivered = true
      message.isAlone = true
      return 'wait'
    }
    const isLast = failure !== undefined && this.#isLast(message)
    const again = isLast ? left.filter(({ breaker }) => breaker !== undefined) : left
    if (isLast) {
      const failed = left.filter(({ breaker }) => breaker === undefined)
      message.failForGood(
        errorText(failure.error),
        failed.map(({ handler }) => handler),
      )
    }
    if (again.length > 0) {
      message.goOnWith([...again.map(({ handler }) => handler), ...toGather])
      if (failure !== undefined && !isLast) return restMs
      // Only handlers that fail for every vehicle failed.
      if (failure === undefined && message.attempt > before) {
        const trouble = message.inTrouble()
        trouble.exempt += 1
        trouble.sinceMs = undefined
      }
      return again.find(({ breaker }) => breaker !== undefined)?.breaker ?? 0
    }
    message.goOnWith(toGather)
    if (toGather.length === 0) {
      const { trouble } = message
      // A handler that failed for the last time can be done after all: its transaction was committed late.
      return trouble?.fatal === undefined || trouble.failed?.length === 0 ? 'done' : 'dead'
    }
    if (!message.isSuspect) return 'gather'
    // At once: its claim counts, and another suspect's turn must not come between.
    message.isAlone = true
    return 'again'
  }

  /** The turn has ended. A message that something keeps holds its lane, but no slot of `concurrency`. */
  #endTurn(message: Message, next: Next): void {
    const { request, slot, previous } = message
    // It may have ended while we waited; then it is counted already.
    const isRunning = message.state === 'running'
    if (isRunning && next === 'again') return void this.#turn(message)
    if (this.#suspect === message) this.#suspect = undefined
    if (!isRunning) return this.pump()
    if (next === 'done' || next === 'skipped' || next === 'dead' || next === 'over') {
      this.#remove(message)
      this.options.onCapacity(request)
      if (message.trouble?.fatal !== undefined) (request.givenUp ??= []).push(message.lane)
      request.oneIsOver()
    } else {
      this.#freeSlot(message)
      if (request.isBound) this.#bind(message)
      // Those behind it had their turns while the batch gathered.
      if (slot !== undefined) this.lanes.recall(message)
      const [handler] = message.handlers ?? noHandlers
      if (next !== 'gather' || handler === undefined) this.#hold(message, next)
      else if (slot !== undefined || (previous !== undefined && !this.#mayFollow(message, previous)))
        this.#hold(message, 'wait')
      else {
        this.#batches.add(message, handler)
        this.lanes.pass(message)
        if (message.inLane?.turn?.heldBy === itsPlace) this.lanes.ready(message.inLane.turn)
      }
    }
    if (next !== 'wait' && next !== 'gather') {
      // Where it has waited for long, or waits now, this would outlive many collections of young objects. Its next turn asks the inbox again.
      message.claim = undefined
      message.event = undefined
    }
    this.pump()
  }

  /** It keeps its place in its lane: for that time, unless nothing starts any more, or until something resumes it. */
  #hold(message: Message, next: Exclude<Next, End>): void {
    if (typeof next === 'number') {
      this.lanes.setAside(message)
      message.hold(undefined)
      if (!this.lifecycle.startsNoMore)
        message.inTrouble().rest = this.options.clock.after(next, () => this.resume(message))
      return
    }
    const isFirst = message.previous === undefined
    // Only the first message of a lane waits at a breaker: one behind it would be let through in vain.
    if (next instanceof Breaker && isFirst) {
      message.hold(next)
      this.lanes.setAside(message)
      if (!next.keep(message)) this.lanes.ready(message)
    } else {
      message.hold(itsPlace)
      // Those before it may be over already.
      if (isFirst) this.lanes.ready(message)
    }
  }

  #bind(message: Message): void {
    message.hop = contextHop(() => {
      if (message.state === 'running') void this.#turn(message)
    })
  }

  /** Runs the handler of a batch. Each of its messages then goes on with its own turn. Never rejects. */
  async runBatch(batch: Batch): Promise<void> {
    const { inbox } = this.options
    const { handler } = batch
    const begun = batch.begin()
    // Other processes can take messages over until the handler runs.
    const { isStillHeld } = inbox.shared ?? {}
    const held = isStillHeld && (await Promise.allSettled(begun.map(async ({ id }) => isStillHeld(id))))
    const attempts: Attempt[] = []
    // A message that does not run now keeps the messages of its vehicle that gathered behind it.
    const kept = new Set<string>()
    for (const [place, message] of begun.entries()) {
      if (!batch.has(message)) continue
      const answer = held?.[place]
      const breaker = this.breakers.get(handler)
      if (answer?.status === 'fulfilled' && !answer.value) this.#endTurn(message, 'over')
      else if (kept.has(message.lane)) this.#endTurn(message, 'wait')
      else if (answer?.status === 'rejected') {
        kept.add(message.lane)
        this.#endTurn(message, this.#failedTurn(message, answer.reason))
      } else if (this.lifecycle.startsNoMore) void this.#turn(message, new Attempt(message))
      else {
        // Its first handler is the batch's.
        const attempt = new Attempt(message, 1)
        // Asked for each: a paused handler is tried with one message, and the others wait.
        if (breaker?.lets(message) === false) {
          kept.add(message.lane)
          attempt.leaveOut(handler, breaker)
          void this.#turn(message, attempt)
        } else attempts.push(attempt)
      }
    }
    if (attempts.length > 0) {
      for (const { message } of attempts) message.countAttempt(this.counts)
      const result = this.#callBatch(batch, attempts)
      const failure = result instanceof Promise ? await result : result
      // Messages that ended while the batch ran are already counted.
      const left = attempts.filter(({ message }) => batch.has(message))
      this.#ran(handler, left, failure, attempts.length)
      for (const attempt of left) void this.#turn(attempt.message, attempt)
    }
    this.pump()
  }

  #callBatch({ handler, owner }: Batch, attempts: readonly Attempt[]): Ran | Promise<Ran> {
    const messages = attempts.map(({ message }) => message)
    const call = (): Ran | Promise<Ran> =>
      this.runner.run(handler, messages, owner ?? messages[0]?.request ?? noRequest)
    const { around } = this.options.reports.observers
    if (around === undefined) return call()
    const observed = messages.flatMap((message) =>
      message.event === undefined ? [] : [{ event: message.event, delivery: message.delivery() }],
    )
    return around(async () => ({ failure: await call() }), { messages: observed, isBatch: true }).then(
      ({ failure }) => failure,
    )
  }

  /** Runs an attempt inside of what observers put around it. `undefined`: nothing runs. */
  #observed(message: Message, attempt: Attempt): Promise<Next> | undefined {
    const { around } = this.options.reports.observers
    const { event, isAlone } = message
    if (around === undefined || event === undefined || this.lifecycle.startsNoMore) return
    const [first] = message.handlers ?? noHandlers
    const isGathered = first?.gather !== undefined && !isAlone
    if (first === undefined || isGathered) return
    const run = async (): Promise<RunEnd> => {
      attempt.next = 'over'
      await this.#turn(message, attempt)
      return { failure: attempt.failure }
    }
    const delivery = message.delivery(message.attempt + 1)
    return around(run, { messages: [{ event, delivery }], isBatch: isAlone }).then(() => attempt.next ?? 'over')
  }

  /** What follows without a run of its handlers. `undefined`: they may run now. */
  #admit(message: Message): Next | undefined {
    const { handlers = noHandlers, previous } = message
    const { parts, vehicles } = this.options
    // The state of its vehicle includes those before it, which may wait in a batch: after a crash, their edges would be lost.
    const mayEnd = previous === undefined || vehicles === undefined
    if (handlers.length === 0) return mayEnd ? undefined : 'wait'
    if (previous !== undefined && !this.#mayFollow(message, previous)) return 'wait'
    // Parts may skip what came over the wire, unless an operator replays it or its handlers have run.
    if (parts.length > 0 && message.counts && message.toParts === 'new' && message.claim?.replayed !== true) {
      try {
        const admitted = admittedBy(parts, message)
        // With none before it, nothing would wake it.
        if (admitted === 'wait' && previous !== undefined) return 'wait'
        if (admitted === 'skip') return mayEnd ? 'skipped' : 'wait'
      } catch (error) {
        message.refuse(errorText(error))
        return mayEnd ? 'dead' : 'wait'
      }
    }
    message.toParts = 'admitted'
    return undefined
  }

  /** Whether it may run although those before it in its lane are not over: they wait in an open batch, and it joins them. */
  #mayFollow(message: Message, previous: Message): boolean {
    const { request, handlers = noHandlers } = message
    const handler = handlers.find(({ gather }) => gather !== undefined)
    const isAlone = message.isAlone || message.isSuspect
    return handler !== undefined && !isAlone && this.#batches.mayJoin(previous, handler, request)
  }

  /**
   * A handler has run for `size` messages. `attempts`: of the messages that are still here. Reports a failure once, and notes it in each attempt. The first
   * row that fits counts.
   *
   * | how the run ended                               | its breaker          | told as           | its messages                           |
   * | ----------------------------------------------- | -------------------- | ----------------- | -------------------------------------- |
   * | `done`                                          | closes               |                   | go on                                  |
   * | `discarded`: it threw `Discard`                 | closes               | discarded         | go on                                  |
   * | `given-up`: another try would end the same way  | closes               | failed, the last  | go on, and are dead letters in the end |
   * | `aborted`: its error is the reason of a stop    |                      |                   | wait in the inbox, as if it had not run |
   * | `asked`: it threw `Retry`                       | an open one pauses   |                   | rest for as long as it asked           |
   * | `failed`, while a drain lets nothing start      |                      | failed            | wait in the inbox; it is no attempt    |
   * | `failed`, and it does so for every vehicle      | opens, or stays open | paused            | wait there; it is no attempt           |
   * | `failed`                                        | counts it            | failed            | rest, unless it was the last attempt   |
   */
  #ran(handler: Registered, attempts: readonly Attempt[], failure: Ran, size: number = 1): void {
    const asks = failure && requestOf(failure.error)
    const how = this.#judge(failure, asks)
    const first = attempts[0]?.message
    if (how === 'done' || how === 'discarded' || how === 'given-up') {
      // What the handler calls works. Closing starts messages at once, and a message that still found the breaker would try without end.
      const breaker = this.breakers.get(handler)
      this.breakers.delete(handler)
      breaker?.close()
    }
    if (asks?.kind === 'discard')
      this.options.reports.discarded(asks.reason, first?.event?.topic ?? '', attempts.length)
    if (failure === undefined || how === 'discarded' || first === undefined) return
    const seen = attempts.length === size ? attempts.flatMap(({ message }) => message.seen) : undefined
    if (how === 'given-up') {
      this.#tellFailed(handler, first, failure, { size, seen, isLast: true, limit: first.attempt })
      for (const { message } of attempts) message.failForGood(errorText(failure.error), [handler])
      return
    }
    const { startsNoMore } = this.lifecycle
    const retry = handler.retry ?? this.options.retry
    const leastMs = leastWaitMs(failure.error)
    const ownMs = asks?.kind === 'retry' ? asks.afterMs : Math.max(leastMs, backoffMs(retry, first.attempt))
    let pausedMs: number | undefined
    if (how === 'asked') this.breakers.get(handler)?.askedToWait()
    if (how === 'failed' && !startsNoMore) pausedMs = this.#breakerOf(handler).failed(first, leastMs)
    const restMs = how === 'aborted' ? 0 : (pausedMs ?? ownMs)
    // After a failed batch, retry each message alone.
    if (how !== 'aborted' && (size === 1 || startsNoMore)) this.#noteFailure(handler, attempts, failure)
    if (how === 'failed') {
      const isCertain = pausedMs !== undefined || size > 1 || startsNoMore
      const isLast = !isCertain && this.#isLast(first)
      const nextMs = size > 1 && !startsNoMore ? 0 : restMs
      this.#tellFailed(handler, first, failure, {
        size,
        seen,
        isLast,
        limit: retry.attempts,
        nextMs,
        isCertain,
        isPaused: pausedMs !== undefined,
      })
    }
    for (const attempt of attempts) {
      attempt.leaveOut(handler, pausedMs === undefined ? undefined : this.breakers.get(handler))
      // With an open breaker, the handler fails for every vehicle, and that is no failure of the message.
      if (pausedMs !== undefined) continue
      attempt.failure = failure
      attempt.restMs = Math.max(attempt.restMs, restMs)
      attempt.isShared = size > 1 && asks === undefined
    }
  }

  /** How a run ended: the rows of the table of `#ran`. */
  #judge(
    failure: Ran,
    asks: ReturnType<typeof requestOf>,
  ): 'done' | 'discarded' | 'given-up' | 'aborted' | 'asked' | 'failed' {
    if (failure === undefined) return 'done'
    if (this.runner.isAbort(failure.error)) return 'aborted'
    if (asks?.kind === 'discard') return 'discarded'
    if (asks?.kind === 'give-up') return 'given-up'
    return asks?.kind === 'retry' ? 'asked' : 'failed'
  }

  #breakerOf(handler: Registered): Breaker {
    const known = this.breakers.get(handler) ?? new Breaker(handler, this)
    this.breakers.set(handler, known)
    return known
  }

  /** For what fails now, in this process and, where the inbox keeps it, in the next one. */
  #noteFailure({ name }: Registered, attempts: readonly Attempt[], { error }: NonNullable<Ran>): void {
    for (const { message } of attempts) {
      const trouble = message.inTrouble()
      const sinceMs = trouble.failure?.sinceMs ?? this.options.clock.now()
      trouble.failure = { handler: name, error: errorText(error), sinceMs }
      this.troubled.add(message)
    }
  }

  /** For the log and observers. */
  #tellFailed(handler: Registered, first: Message, { error }: NonNullable<Ran>, run: FailedRun): void {
    const { size, seen, isLast, limit, nextMs = 0, isCertain = false, isPaused = false } = run
    const { event, id, attempt, trouble } = first
    const { clock, reports } = this.options
    if (event === undefined) return
    const retry = handler.retry ?? this.options.retry
    const leftMs = (trouble?.sinceMs ?? 0) + retry.maxAgeMs - elapsedMs(clock)
    reports.failed(
      error,
      event,
      { id, attempt },
      {
        handler: handler.name,
        seen,
        messages: handler.gather === undefined ? undefined : size,
        failures: isPaused ? (this.breakers.get(handler)?.failures ?? 0) : 0,
        nextAtMs: isLast ? undefined : clock.now() + nextMs,
        limit,
        untilMs: isCertain ? Infinity : clock.now() + Math.round(leftMs),
      },
    )
  }

  /** Whether the failed attempt was the last one. Notes since when it fails. */
  #isLast(message: Message): boolean {
    // A handler with a time of its own decides how long all handlers that still have to succeed are tried.
    const retry = message.handlers?.find((handler) => handler.retry !== undefined)?.retry ?? this.options.retry
    const now = elapsedMs(this.options.clock)
    const trouble = message.inTrouble()
    // An earlier process began to fail before this one.
    trouble.sinceMs ??= now - expectedMs(retry, message.attemptsBefore)
    return message.attempt - trouble.exempt >= retry.attempts || now - trouble.sinceMs >= retry.maxAgeMs
  }

  /** It is only for `forward`, which ends no process: while a server hangs, messages for it are in hand whatever ends the process. */
  #endsNone(message: Message): boolean {
    const { registry, parts, vehicles } = this.options
    const { event } = message
    if (registry.ownRetries.length === 0 || event === undefined || parts.length > 0 || vehicles !== undefined)
      return false
    const handlers = registry.handlersFor(event, message, undefined)
    return handlers.length > 0 && handlers.every(({ retry }) => retry !== undefined)
  }

  /**
   * A message is given up before it is tried here. It is no dead letter when all of its handlers had committed. `mayEnd`: none had, and its state may be
   * at fault, too.
   */
  async #giveUp(message: Message, wanted: readonly Registered[], fatal: string, mayEnd: boolean): Promise<void> {
    const failed: Registered[] = []
    for (const handler of wanted) if (!(await this.#hasMark(message, [handler]))) failed.push(handler)
    if (wanted.length > 0 && !mayEnd) message.failForGood(fatal, failed)
  }

  /** Whether one of these handlers had committed before its process ended. */
  async #hasMark(message: Message, handlers: readonly Registered[]): Promise<boolean> {
    for (const { mark, hasMark } of handlers)
      if (mark !== undefined && (await hasMark?.(mark, message.delivery())) === true) return true
    return false
  }

  /**
   * Notes how many processes ended while they had the message. A message that they left for good is given up before it is tried here. Returns
   * whether it ended too many.
   */
  #noteEarlier(message: Message, { deliveries }: Claim): boolean {
    const { attemptsBefore, trouble } = message
    if (attemptsBefore === 0 && deliveries === 0) return message.crashes > mostCrashes
    const crashes = this.#endsNone(message) ? 0 : Math.max(0, deliveries - attemptsBefore)
    message.crashes = crashes
    if (this.#suspect === message && !message.isSuspect) {
      this.#suspect = undefined
      this.pump()
    }
    if (crashes >= mostCrashes) message.failForGood(`${crashText(crashes)}, and it may be the reason.`)
    else if (attemptsBefore >= this.options.retry.attempts && this.options.registry.ownRetries.length === 0) {
      const tried = `arlier processes tried it ${attemptsBefore} times`
      const { failure } = trouble ?? {}
      message.failForGood(failure === undefined ? `E${tried}.` : `${failure.error} (${failure.handler}; e${tried})`)
    }
    return crashes > mostCrashes
  }

  /** The inbox failed, or could not read the state of a vehicle. The message is tried again, or given up after the longest time of retries. */
  #failedTurn(message: Message, error: unknown): number {
    this.options.reports.inboxFailed(error)
    // The inbox takes other rows, but not that this message waits: there is no next attempt.
    const isRefused = error instanceof FleethookError && error.code === 'message_refused'
    if (isRefused && message.handlers !== undefined && message.trouble?.fatal === undefined) {
      message.refuse(errorText(error))
      return 0
    }
    if (message.claim !== undefined && message.handlers === undefined && this.#isLast(message)) {
      message.failForGood(errorText(error))
      message.handlers = noHandlers
    }
    return inboxRestMs
  }

  /** How a turn ended, for the inbox. `undefined`: that is for this process only. */
  #outcomeOf(message: Message, next: Next): Outcome | undefined {
    const { clock, vehicles } = this.options
    if (next === 'done' || next === 'skipped') {
      const vehicle = vehicles?.settling(message.step)
      return vehicle === undefined ? done : { as: 'done', vehicle }
    }
    if (next === 'dead') {
      const marks = message.trouble?.failed?.flatMap(({ mark }) => mark ?? [])
      const reason = {
        error: message.trouble?.fatal ?? '',
        attempts: message.mostAttempts,
        diedAt: clock.now(),
        changed: changedBy(message),
        // Only if each of the handlers that failed leaves one.
        marks:
          marks !== undefined && marks.length > 0 && marks.length === message.trouble?.failed?.length
            ? marks
            : undefined,
      }
      return { as: 'dead', reason, vehicle: vehicles?.settling(message.step) }
    }
    if (typeof next === 'number') return this.#later(message, next)
    return next instanceof Breaker ? this.#later(message, 0) : undefined
  }

  /** It waits again, and is not tried before `restMs` from now. */
  #later(message: Message, restMs: number): Outcome {
    // Attempts that do not count must not make the next process give the message up, by their number or by the time that they took.
    const attempts = message.attempt - (message.trouble?.exempt ?? 0)
    // A handler that saw it once may see it again, and the next process must know. It counts as one crash in total, too little to make
    // the message a suspect.
    const least = message.mostAttempts > message.attemptsBefore ? 1 : 0
    const next = {
      attempts,
      notBefore: restMs === 0 ? 0 : Math.ceil(this.options.clock.now() + restMs),
      deliveries: Math.max(least, attempts + message.crashes),
      failure: message.trouble?.failure,
    }
    return { as: 'later', next }
  }

  /**
   * The inbox has written how a turn ended. `after`: a message that was to die is done after all. A process that has a message since then has
   * counted it as handed over.
   */
  #written(message: Message, outcome: Outcome, next: Next, after: Settled): void {
    if (outcome.as === 'later' || message.isGone) return
    const { id, claim, trouble, request, counts: isCounted } = message
    if (outcome.as === 'dead' && after !== 'done') {
      if (isCounted) this.counts.deadLettered += 1
      this.#tell(message, 'dead')
      if (claim === undefined) return
      this.options.died({ id, message: claim.message, ...outcome.reason }, request)
      // Its handler finished while we stored the dead letter.
      if (trouble?.failed?.length === 0) this.#takeBack(message)
      return
    }
    if (outcome.as === 'dead') message.trouble = undefined
    if (isCounted) this.counts[next === 'skipped' ? 'duplicates' : 'handled'] += 1
    this.#tell(message, next === 'skipped' ? 'skipped' : 'done')
  }

  /** The transaction of a handler that leaves a mark was committed after its time limit: nothing is left of a dead letter that only it made. */
  readonly #endedLate = (handler: Registered, messages: readonly Message[]): void => {
    for (const message of messages) {
      const { trouble } = message
      if (trouble?.failed?.includes(handler) !== true) continue
      trouble.failed = trouble.failed.filter((other) => other !== handler)
      if (trouble.failed.length === 0 && message.isOver) this.#takeBack(message)
    }
  }

  #takeBack({ id }: Message): void {
    const { inbox, reports, log } = this.options
    const { archive } = inbox
    if (archive && 'discard' in archive)
      void archive.discard(id).then((isGone) => {
        // What to do: Nothing is missing or written twice. If it happens often, raise `timeoutMs`.
        if (isGone) log.warn('a handler was done after its time limit, so its dead letter is gone', { delivery: id })
      }, reports.inboxFailed)
  }

  /** A message needs no more work here: for the states of vehicles, parts and observers. These get a dead letter with its error. */
  #tell(message: Message, end: Ended | 'lost'): void {
    const { vehicles, parts, reports } = this.options
    if (end !== 'lost' && message.toParts !== 'ended') {
      message.toParts = 'ended'
      vehicles?.over(message.step)
      for (const part of parts) part.over?.(message, end)
    }
    const outcome = end === 'done' ? 'handled' : end === 'skipped' ? 'duplicate' : end
    const { settled } = reports.observers.tell
    if (settled === undefined || outcome === 'dead' || outcome === 'gone') return
    const { id, lane, mostAttempts: attempts, claim, event } = message
    settled({ id, vin: vinOf(lane), outcome, attempts, bytes: claim?.message.bytes, event })
  }

  /** The runtime is about to end the request's work, or has ended it: anything unfinished is lost. */
  expire(request: RequestWork, sinceMs: number): void {
    const reason = new FleethookError(
      'drain_deadline',
      'The runtime ends the work of the request now, and handlers have not finished.',
      { hint: 'Use an inbox that outlives the request, or make the handlers faster.' },
    )
    this.runner.abort(reason, ({ owner }) => owner === request)
    const unfinished = request.messages.filter(({ isOver }) => !isOver)
    for (const message of unfinished) this.#remove(message)
    void this.giveUp(unfinished).then((lost) => {
      for (const { lane } of lost) this.options.missed(lane, sinceMs)
    })
    this.pump()
  }

  #remove(message: Message): void {
    const { inLane } = message
    if (message.toParts === 'admitted') this.#tell(message, 'gone')
    if (this.#suspect === message) this.#suspect = undefined
    this.troubled.delete(message)
    if (message.state === 'running') this.#freeSlot(message)
    message.end()
    this.lanes.remove(message)
    if (inLane?.head?.heldBy === itsPlace) this.lanes.ready(inLane.head)
  }

  #freeSlot(message: Message): void {
    const { slot } = message
    message.slot = undefined
    if (slot === undefined) this.lifecycle.running -= 1
    else slot.release()
  }
}

/** For the replay of a dead letter. What cannot be written must not keep its message waiting. */
function changedBy({ step }: Message): string | undefined {
  try {
    return step?.text()
  } catch {
    return undefined
  }
}
