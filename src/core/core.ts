import { type Clock, elapsedMs } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import type { Log } from '../base/log.ts'
import { noRequest, type RequestScope } from '../hosting/execution-context.ts'
import type { FailingMessage } from '../inbox/stats.ts'
import {
  crashText,
  type DeadLetter,
  done,
  type Inbox,
  mostCrashes,
  type Outcome,
  type ReadMessage,
  type Settled,
  type Waiting,
} from '../inbox/inbox.ts'
import type { Delivery, RunEnd, SettledMessage } from '../inbox/observer.ts'
import { vinOf } from '../inbox/receipts.ts'
import type { Reports } from '../reports/reports.ts'
import type { VehicleStates } from '../vehicles/vehicles.ts'
import { type Batch, Gathering } from './batches.ts'
import { Breaker, Breakers, type Rest } from './breaker.ts'
import { RequestDeadlines } from './deadlines.ts'
import { type Message, contextHop, RequestWork, type Handler } from './message.ts'
import { Lanes } from './lanes.ts'
import { Lifecycle, Yielding } from './lifecycle.ts'
import { admittedBy, type Ended, type Part } from './part.ts'
import type { Registry } from './registry.ts'
import { backoffMs, errorText, expectedMs, leastWaitMs, ownRetry, requestOf, type RetryOptions } from './retry.ts'
import { type Failure, type Ran, Runner } from './runner.ts'

/** How long a message rests when the inbox failed during its attempt, in milliseconds. */
const inboxRestMs = 5_000

interface CoreOptions {
  readonly inbox: Inbox
  readonly clock: Clock
  readonly log: Log
  readonly registry: Registry
  /** The states of vehicles. `undefined`: nobody keeps them. */
  readonly vehicles: VehicleStates | undefined
  readonly parts: readonly Part[]
  readonly retry: Required<RetryOptions>
  readonly concurrency: number
  /** Handlers start more slowly while the process is busy: a backlog must not slow the answers of a receiver in front. */
  readonly givesWay: boolean
  readonly timeoutMs: number
  readonly read: ReadMessage
  readonly reports: Reports
  /** A message of this request was given up. */
  died(letter: DeadLetter, request: RequestWork): void
  /** A message of this lane, received at or after `sinceMs`, was given up while the receiver goes on. */
  missed(lane: string, sinceMs: number): void
  /** The inbox has room again, because a message of `request` is over. */
  onCapacity(request: RequestWork): void
}

/**
 * What follows a turn. `over`: nothing, it has ended elsewhere. `wait`: for those before it in its lane. `gather`: in a batch. `again`: at
 * once. A number: it rests for that many milliseconds. A breaker: it waits there.
 */
type Next = End | 'wait' | 'gather' | 'again' | number | Breaker

type End = 'done' | 'skipped' | 'dead' | 'over'

const noHandlers: readonly Handler[] = []

/** One attempt at the handlers of a message, or at that of its batch. */
class Attempt {
  /** The number of attempts before it. */
  readonly before: number
  /** The place of the handler that is next. */
  at: number
  /** Handlers that failed or were left out, and those of them that a breaker keeps. */
  left: readonly Handler[] = noHandlers
  paused: readonly Handler[] = noHandlers
  breaker: Breaker | undefined
  /** The error of the handler that failed last, and the longest wait that any of them asks for. */
  failure: Failure | undefined
  restMs = 0
  /** It failed in a batch of several messages, and another one may be the reason. */
  isShared = false
  delivery: Delivery | undefined
  /** How it ended, for an observer around it. */
  next: Next = 'over'

  constructor(before: number, at: number = 0) {
    this.before = before
    this.at = at
  }

  /** A breaker keeps the message from a handler, or nothing starts any more. */
  leaveOut(handler: Handler, breaker: Breaker | undefined): void {
    this.left = [...this.left, handler]
    if (breaker === undefined) return
    this.paused = [...this.paused, handler]
    this.breaker ??= breaker
  }

  /** A handler failed. With an open breaker, it fails for every vehicle, and that is no failure of the message. */
  fail(handler: Handler, failure: Failure, { breaker, restMs }: Rest): void {
    this.leaveOut(handler, breaker)
    if (breaker !== undefined) return
    this.failure = failure
    this.restMs = Math.max(this.restMs, restMs)
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
  readonly breakers: Breakers
  readonly runner: Runner
  readonly #yielding: Yielding
  readonly #deadlines: RequestDeadlines
  readonly #gatherings = new Map<Handler, Gathering>()
  #due: Batch[] = []
  #started: Message[] = []
  /** Those that a handler failed for. */
  readonly #troubled = new Set<Message>()
  /** The message beside which nothing runs, from the time at which its turn came. */
  #suspect: Message | undefined
  #isPumping = false

  constructor(options: CoreOptions) {
    const { clock, reports } = options
    this.options = options
    this.lifecycle = new Lifecycle(clock)
    this.breakers = new Breakers({
      clock,
      reports,
      resume: (message, afterMs) => this.#resumeFromBreaker(message, afterMs),
    })
    this.runner = new Runner(options, this.#endedLate)
    this.#yielding = new Yielding(clock, options.givesWay, this.#runStarted)
    this.#deadlines = new RequestDeadlines(clock, reports, this.#expire)
  }

  /** Gives messages their places in their lanes, before the inbox has them: their order is the order of these calls. */
  add(given: readonly Waiting[], scope: RequestScope): RequestWork {
    const request = new RequestWork(given, scope)
    for (const message of request.messages) {
      this.lanes.add(message)
      if (message.trouble !== undefined) this.#troubled.add(message)
    }
    return request
  }

  /** The inbox has the request's messages: their handlers start in a task of their own, after the answer. */
  start(request: RequestWork): void {
    if (request.messages.length === 0) return
    if (request.isBound) {
      this.#deadlines.keepAlive(request)
      return this.#yielding.laterInContext(() => this.#runBound(request))
    }
    for (const message of request.messages) this.#started.push(message)
    request.messages = []
    this.#yielding.later()
  }

  /** The inbox did not take its messages. */
  cancel(request: RequestWork): void {
    for (const message of request.messages) {
      this.#remove(message)
      request.oneIsOver()
    }
    this.pump()
  }

  /** Other processes have these messages from now on: their work ends at once, whatever its state, and is not settled. */
  gone(ids: readonly string[]): void {
    const given = new Set(ids)
    const reason = new FleethookError('handed_over', 'Another process has taken over the message.')
    this.#drop(({ id }) => given.has(id), 'handedOver', reason)
  }

  /** An operator erases a vehicle: the work on its messages ends at once, whatever its state, and is not settled. */
  forget(lane: string): void {
    const reason = new FleethookError('vehicle_forgotten', 'The vehicle of the message was erased.')
    this.#drop((message) => message.lane === lane, 'forgotten', reason)
  }

  #drop(which: (message: Message) => boolean, count: 'handedOver' | 'forgotten', reason: FleethookError): void {
    for (const message of [...this.lanes.all()].filter(which)) {
      this.#remove(message)
      message.isGone = true
      this.#reportOver(message, 'gone')
      if (message.counts) this.counts[count] += 1
      message.request.oneIsOver(true)
    }
    for (const gathering of this.#gatherings.values()) gathering.dropOver()
    this.runner.abortGone(reason)
    this.pump()
  }

  /** The inbox cannot write that a message waits for its next attempt. It becomes a dead letter, unless its next attempt has begun. */
  refused(id: string, reason: string): void {
    for (const message of this.lanes.all()) {
      if (message.id !== id || message.state !== 'held' || message.heldBy !== undefined) continue
      message.refuse(reason)
      message.trouble?.rest?.cancel()
      this.#resume(message)
    }
    this.pump()
  }

  /** The messages that wait because a handler failed for them. */
  failing(): readonly FailingMessage[] {
    return [...this.#troubled].flatMap(({ lane, trouble }) =>
      trouble?.failure === undefined ? [] : [{ vin: vinOf(lane), failure: trouble.failure }],
    )
  }

  /** A drain lets no more handlers start, and some may still run. No timer may fire any more. Can be called twice. */
  stopTimers(): void {
    this.options.vehicles?.stopTimers()
    this.breakers.stop()
    for (const gathering of this.#gatherings.values()) gathering.stop()
    this.#due = []
  }

  /** Starts due batches and messages whose turn it is, until `concurrency` of them run. */
  readonly pump = (): void => {
    const { lifecycle } = this
    if (this.#isPumping) return
    this.#isPumping = true
    while (lifecycle.running < this.options.concurrency && !lifecycle.startsNoMore) {
      if (this.#suspect !== undefined && lifecycle.running > 0) break
      // The last messages of a drain do not wait for others.
      if (lifecycle.isDraining && !this.lanes.hasNext)
        for (const gathering of this.#gatherings.values()) gathering.flush()
      const hasNext = this.#suspect !== undefined || this.#due.length > 0 || this.lanes.hasNext
      if (!hasNext || !this.#yielding.mayStart()) break
      const batch = this.#suspect === undefined ? this.#due.shift() : undefined
      if (batch !== undefined) {
        lifecycle.running += 1
        if (batch.hop === undefined) void this.#runBatch(batch)
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
        // One that is settled meanwhile is no longer in the inbox.
        if ((await inbox.claim(message.id)) === undefined) return
        await inbox.settle(message.id)
      } catch (error) {
        reports.inboxFailed(error)
      }
      if (!message.counts) return
      this.counts.lost += 1
      lost.push(message)
      this.#reportSettled(message, 'lost')
    }
    if (inbox.durability === 'memory') await Promise.all(messages.map(lose))
    if (lost.length > 0) reports.lost(lost.length)
    // An answer must not wait for its handlers any more, even if a later process runs them.
    for (const { request } of messages) request.oneIsOver(true)
    return lost
  }

  /** Runs in a task of its own, after messages have started. */
  readonly #runStarted = (): void => {
    const started = this.#started
    this.#started = []
    this.#resumeAll(started)
    this.pump()
  }

  /** The same for messages of a request to which the runtime binds work, in its I/O context. */
  #runBound(request: RequestWork): void {
    this.#resumeAll(request.messages)
    this.pump()
    if (request.isOver) return
    for (const message of request.messages) {
      const waits = message.state === 'waiting' || message.state === 'held'
      if (waits && message.hop === undefined) this.#bind(message)
    }
    this.#deadlines.watch(request)
  }

  #resumeAll(messages: readonly Message[]): void {
    const now = this.options.clock.now()
    for (const message of messages) {
      if (message.isOver) continue
      if (message.notBefore > now) this.#hold(message, message.notBefore - now)
      else this.#resume(message)
    }
  }

  /**
   * The whole turn of a message, in the I/O context of its request. It needs a promise only where the inbox, the state of its vehicle or a
   * handler needs one. Never rejects. `begun`: an attempt that its batch has run already, or that an observer is around of.
   */
  async #turn(message: Message, begun?: Attempt, isObserved: boolean = false): Promise<void> {
    const { inbox, vehicles, registry, reports } = this.options
    let next: Next | undefined
    try {
      if (begun === undefined) {
        // 1. The inbox hands it out.
        if (message.claim === undefined) {
          const found = inbox.claim(message.id)
          const claim = found instanceof Promise ? await found : found
          // Ended while we waited; already counted.
          if (claim === undefined || message.isOver) return this.#endTurn(message, 'over')
          message.claim = claim
          try {
            message.event = claim.message.event ?? this.options.read(claim.message)
          } catch (error) {
            message.failForGood(errorText(error))
          }
        } else if (inbox.isStillHeld !== undefined) {
          // It waited since it was handed out. Another process may have it now.
          const isHeld = await inbox.isStillHeld(message.id)
          if (!isHeld || message.isOver) return this.#endTurn(message, 'over')
        }
        // 2. It changes the state of its vehicle, once, and that says which handlers it is for.
        if (message.handlers === undefined) {
          const spent = this.#whySpent(message)
          if (spent !== undefined) message.failForGood(spent)
          // Even when it is given up. What cannot be read, or may end the process, is missing in that state.
          if (vehicles !== undefined && message.claim !== undefined) {
            const found = vehicles.find(message.lane)
            const state = found instanceof Promise ? await found : found
            if (message.isOver) return this.#endTurn(message, 'over')
            const { id, event, claim, next: following, crashes } = message
            const isMissing = event === undefined || crashes > mostCrashes
            // The next one tells what is due before it.
            message.change = isMissing
              ? vehicles.miss(id, event, state, claim)
              : vehicles.step(id, event, state, claim, following !== undefined)
          }
          const { event, trouble, change } = message
          const wanted = event === undefined ? noHandlers : registry.handlersFor(event, message, change?.subjects)
          if (trouble?.fatal === undefined) message.handlers = wanted
          else {
            message.handlers = noHandlers
            // Their marks may be there: processes that ended had handled it.
            if (wanted.length > 0 && message.crashes <= mostCrashes) message.failForGood(trouble.fatal, wanted)
          }
        }
        next = this.#admit(message)
      }
      // 3. Its handlers run, one after another.
      if (next === undefined) {
        const attempt = begun ?? new Attempt(message.attempt)
        const isWatched = begun === undefined && reports.observers.around !== undefined
        const observed = isWatched ? this.#observed(message, attempt) : undefined
        if (observed !== undefined) {
          await observed
          // Outside of the observer's context, because other messages start now.
          return this.#endTurn(message, attempt.next)
        }
        for (;;) {
          const handler = this.#handlerAt(message, attempt)
          if (handler === undefined) break
          attempt.at += 1
          if (this.#leavesOut(message, handler, attempt)) continue
          if (attempt.delivery === undefined) {
            message.countAttempt(this.counts)
            attempt.delivery = message.delivery()
          }
          const result = this.runner.run(handler, message, attempt.delivery)
          const failure = result instanceof Promise ? await result : result
          if (failure !== undefined || this.breakers.failing.size > 0) this.#ran(message, handler, failure, attempt)
        }
        next = this.#nextOf(message, attempt)
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
      // No handler saw it, so its claim must not look like one that ended its process.
      if (!wasSeen) await this.tryLater(message, next)
    }
    if (isObserved && begun !== undefined) begun.next = next
    else this.#endTurn(message, next)
  }

  /**
   * What follows when the handlers of an attempt have run, failed or were left out. The first row that fits counts.
   *
   * | case                                                | the attempt counts | handlers that still have to succeed | next               |
   * | --------------------------------------------------- | ------------------ | ----------------------------------- | ------------------ |
   * | it ended meanwhile                                   |                    |                                     | nothing            |
   * | a drain lets nothing start, and handlers are left     | no                 | all that are left                   | it waits, unclaimed |
   * | it failed in a batch with others                     | no                 | the same                            | alone, at once     |
   * | a handler failed, not for the last time              | yes                | all that are left                   | it rests           |
   * | breakers keep handlers, and no other one failed       | no                 | all that are left                   | it waits there     |
   * | breakers keep handlers, another failed for good       | yes                | those that breakers keep            | it waits there     |
   * | only batches are left                                | yes                | the batches                         | it gathers         |
   * | none is left                                         | yes                |                                     | done, or dead      |
   */
  #nextOf(message: Message, { before, at, left, paused, breaker, failure, restMs, isShared }: Attempt): Next {
    if (message.isOver) return 'over'
    const { handlers = noHandlers } = message
    const toGather = at < handlers.length ? handlers.slice(at) : noHandlers
    if (this.lifecycle.startsNoMore && left.length + toGather.length > 0) {
      message.goOnWith([...left, ...toGather])
      message.uncountAttempt(before)
      return 0
    }
    if (isShared && failure !== undefined) {
      message.goAlone(before)
      return 'wait'
    }
    const isLast = failure !== undefined && this.#isLast(message)
    if (isLast)
      message.failForGood(
        errorText(failure.error),
        left.filter((handler) => !paused.includes(handler)),
      )
    const again = isLast ? paused : left
    if (again.length > 0) {
      message.goOnWith([...again, ...toGather])
      if (failure !== undefined && !isLast) return restMs
      // No handler failed but those that fail for every vehicle.
      if (failure === undefined && message.attempt > before) message.exemptAttempt()
      return breaker ?? 0
    }
    message.goOnWith(toGather)
    if (toGather.length === 0) return endOf(message)
    if (!message.isSuspect) return 'gather'
    // At once: its claim counts, and another suspect's turn must not come between.
    message.isAlone = true
    return 'again'
  }

  /** The turn has ended. A message that something keeps holds its lane, but no slot of `concurrency`. */
  #endTurn(message: Message, next: Next): void {
    const { request, slot } = message
    // It may have ended while we waited; then it is counted already.
    const isRunning = message.state === 'running'
    if (isRunning && next === 'again') return void this.#turn(message)
    if (this.#suspect === message) this.#suspect = undefined
    if (!isRunning) return this.pump()
    if (next === 'done' || next === 'skipped' || next === 'dead' || next === 'over') {
      this.#remove(message)
      // Where it has waited for long, what it got since would outlive many collections of young objects.
      message.unload()
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
      else if (slot !== undefined || !this.#mayFollow(message)) this.#hold(message, 'wait')
      else {
        this.#gatheringOf(handler).add(message)
        this.lanes.pass(message)
        this.#wake(message.inLane?.turn)
      }
    }
    this.pump()
  }

  /** It keeps its place in its lane until it is resumed. */
  #hold(message: Message, next: Exclude<Next, End>): void {
    if (typeof next === 'number') this.#rest(message, next)
    else if (next instanceof Breaker && message.previous === undefined) {
      message.unload()
      message.hold(next)
      this.lanes.setAside(message)
      if (!next.keep(message)) this.#resume(message)
    } else {
      // Only the first message of a lane waits at a breaker: one behind it would be let through in vain.
      if (next instanceof Breaker) message.unload()
      message.hold(itsPlace)
      // Those before it may be over already.
      if (message.previous === undefined) this.#wake(message)
    }
  }

  #rest(message: Message, restMs: number): void {
    const goOn = (): void => {
      this.#resume(message)
      this.pump()
    }
    this.lanes.setAside(message)
    message.rest(this.lifecycle.startsNoMore ? undefined : this.options.clock.after(restMs, goOn))
  }

  #resume(message: Message): void {
    if (message.state !== 'held') return
    message.wait()
    this.lanes.ready(message)
  }

  /** A breaker lets it go on, after `afterMs`. */
  #resumeFromBreaker(message: Message, afterMs: number = 0): void {
    if (message.state !== 'held' || !(message.heldBy instanceof Breaker)) return
    if (afterMs > 0) return this.#rest(message, afterMs)
    this.#resume(message)
    this.pump()
  }

  #wake(message: Message | undefined): void {
    if (message?.heldBy === itsPlace) this.#resume(message)
  }

  /** Binds its next turn to the I/O context in which this is called. */
  #bind(message: Message): void {
    message.hop = contextHop(() => {
      if (message.state === 'running') void this.#turn(message)
    })
  }

  #gatheringOf(handler: Handler): Gathering {
    let gathering = this.#gatherings.get(handler)
    if (gathering === undefined) {
      gathering = new Gathering(handler, {
        clock: this.options.clock,
        due: (batch) => void this.#due.push(batch),
        pump: this.pump,
        run: (batch) => void this.#runBatch(batch),
        free: () => void (this.lifecycle.running -= 1),
      })
      this.#gatherings.set(handler, gathering)
    }
    return gathering
  }

  /** Runs the handler of a batch. Each of its messages then goes on with its own turn. Never rejects. */
  async #runBatch(batch: Batch): Promise<void> {
    const { inbox, reports } = this.options
    const { handler } = batch
    const begun = batch.begin()
    // Other processes can take messages over until the handler runs.
    const held = await Promise.allSettled(
      inbox.isStillHeld === undefined ? [] : begun.map(async ({ id }) => inbox.isStillHeld?.(id)),
    )
    const messages: Message[] = []
    // One that does not run now keeps those of its vehicle that gathered behind it.
    const kept = new Set<string>()
    for (const [place, message] of begun.entries()) {
      if (!batch.has(message)) continue
      const answer = held[place]
      const attempt = new Attempt(message.attempt, 1)
      if (answer?.status === 'fulfilled' && answer.value === false) this.#endTurn(message, 'over')
      else if (kept.has(message.lane)) this.#endTurn(message, 'wait')
      else if (answer?.status === 'rejected') {
        kept.add(message.lane)
        this.#endTurn(message, this.#failedTurn(message, answer.reason))
      } else if (this.#leavesOut(message, handler, attempt)) {
        // Asked for each: a paused handler is tried with one message, and the others wait.
        kept.add(message.lane)
        void this.#turn(message, attempt)
      } else messages.push(message)
    }
    if (messages.length > 0) {
      for (const message of messages) message.countAttempt(this.counts)
      const failure = await this.#callBatch(batch, messages)
      // Messages that ended meanwhile are accounted for.
      const left = messages.filter((message) => batch.has(message))
      const [first] = left
      const request = failure && requestOf(failure.error)
      let failed: Rest | undefined
      if (failure === undefined || request?.kind === 'discard') {
        this.breakers.succeeded(handler)
        if (request?.kind === 'discard') reports.discarded(request.reason, first?.event?.topic ?? '', left.length)
      } else if (first !== undefined) failed = this.#failed(first, handler, failure.error, messages.length)
      for (const message of left) {
        const attempt = new Attempt(message.attempt - 1, 1)
        if (failure !== undefined && failed !== undefined) {
          attempt.isShared = messages.length > 1 && request === undefined && failed.breaker === undefined
          attempt.fail(handler, failure, failed)
        }
        void this.#turn(message, attempt)
      }
    }
    this.pump()
  }

  #callBatch({ handler, owner }: Batch, messages: readonly Message[]): Ran | Promise<Ran> {
    const call = (): Ran | Promise<Ran> =>
      this.runner.runBatch(handler, messages, owner ?? messages[0]?.request ?? noRequest)
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
  #observed(message: Message, attempt: Attempt): Promise<unknown> | undefined {
    const { event, isAlone } = message
    if (event === undefined || this.lifecycle.startsNoMore || this.#handlerAt(message, attempt) === undefined) return
    const run = async (): Promise<RunEnd> => {
      await this.#turn(message, attempt, true)
      return { failure: attempt.failure }
    }
    const delivery = message.delivery(message.attempt + 1)
    return this.options.reports.observers.around?.(run, { messages: [{ event, delivery }], isBatch: isAlone })
  }

  /** What follows without a run of its handlers. `undefined`: they may run now. */
  #admit(message: Message): Next | undefined {
    const { handlers = noHandlers } = message
    if (handlers.length === 0) return this.#mayEnd(message) ? endOf(message) : 'wait'
    if (message.previous !== undefined && !this.#mayFollow(message)) return 'wait'
    const { parts } = this.options
    // Parts may skip what came over the wire, unless an operator replays it or its handlers have run.
    if (parts.length > 0 && message.counts && message.toParts === 'new' && message.claim?.replayed !== true) {
      try {
        const admitted = admittedBy(parts, message)
        // With none before it, nothing would wake it.
        if (admitted === 'wait' && message.previous !== undefined) return 'wait'
        if (admitted === 'skip') return this.#mayEnd(message) ? 'skipped' : 'wait'
      } catch (error) {
        message.failForGood(errorText(error))
        message.handlers = noHandlers
        return this.#admit(message)
      }
    }
    message.toParts = 'admitted'
    return undefined
  }

  /** Whether it may run although those before it in its lane are not over: they wait in an open batch, and it joins them. */
  #mayFollow(message: Message): boolean {
    const { previous } = message
    if (previous === undefined) return true
    const handler = message.handlers?.find(({ gather }) => gather !== undefined)
    const isAlone = message.isAlone || message.isSuspect
    return handler !== undefined && !isAlone && this.#gatherings.get(handler)?.holds(previous, message.request) === true
  }

  /**
   * Whether it may be settled without a handler. The state of its vehicle includes those before it, which may wait in a batch: after a crash,
   * their edges would be lost.
   */
  #mayEnd({ previous }: Message): boolean {
    return previous === undefined || this.options.vehicles === undefined
  }

  /** The next handler of an attempt. Batches come last, and only a message that is alone runs in one here. */
  #handlerAt({ handlers, isAlone }: Message, { at }: Attempt): Handler | undefined {
    const handler = handlers?.[at]
    return handler?.gather === undefined || (isAlone && at === 0) ? handler : undefined
  }

  /** Whether a breaker keeps it from the handler, or nothing runs any more. */
  #leavesOut(message: Message, handler: Handler, attempt: Attempt): boolean {
    let breaker: Breaker | undefined
    // A breaker that lets it pass counts on the run, so it is not asked when nothing runs any more.
    if (!this.lifecycle.startsNoMore && message.state !== 'over') {
      if (this.breakers.failing.size > 0) breaker = this.breakers.keeperOf(message, handler)
      if (breaker === undefined) return false
    }
    attempt.leaveOut(handler, breaker)
    return true
  }

  /** A handler has failed, or any of them has before. */
  #ran(message: Message, handler: Handler, failure: Ran, attempt: Attempt): void {
    const request = failure && requestOf(failure.error)
    const { reports, clock } = this.options
    if (message.isGone) attempt.failure = failure
    else if (failure === undefined || request?.kind === 'discard') {
      this.breakers.succeeded(handler)
      if (request?.kind === 'discard') reports.discarded(request.reason, message.event?.topic ?? '', 1)
    } else if (request?.kind === 'give-up') {
      // Another try would end the same way, and what the handler calls works.
      this.breakers.succeeded(handler)
      message.failForGood(errorText(failure.error), [handler])
      const { event, attempt: limit } = message
      const how = { handler: handler.name, failures: 0, nextAtMs: undefined, limit, untilMs: clock.now() }
      if (event !== undefined) reports.failed(failure.error, event, { id: message.id, attempt: limit }, how)
    } else attempt.fail(handler, failure, this.#failed(message, handler, failure.error))
  }

  /** A handler failed. Reports it, and returns the breaker at which the message waits, and the time until it is tried again. */
  #failed(message: Message, handler: Handler, error: unknown, messages: number = 1): Rest {
    const { reports, clock } = this.options
    const retry = ownRetry(handler.run) ?? this.options.retry
    const { startsNoMore } = this.lifecycle
    const request = requestOf(error)
    // Of a batch, each message is tried alone at once. What a drain aborts has not failed.
    if (messages === 1 && !startsNoMore) {
      message.noteError(handler.name, errorText(error), clock.now())
      this.#troubled.add(message)
    }
    const leastMs = leastWaitMs(error)
    const open = request === undefined && !startsNoMore ? this.breakers.failed(message, handler, leastMs) : undefined
    const ownMs = request?.kind === 'retry' ? request.afterMs : Math.max(leastMs, backoffMs(retry, message.attempt))
    const restMs = open?.restMs ?? ownMs
    if (request !== undefined) this.breakers.askedToWait(handler)
    else if (!startsNoMore && message.event !== undefined) {
      const now = elapsedMs(clock)
      const sinceMs = message.trouble?.sinceMs ?? now - expectedMs(retry, message.attemptsBefore)
      const isCertain = open !== undefined || messages > 1
      const isLast = !isCertain && this.#isSpent(message, now, sinceMs)
      reports.failed(
        error,
        message.event,
        { id: message.id, attempt: message.attempt },
        {
          handler: handler.name,
          messages: handler.gather === undefined ? undefined : messages,
          failures: open?.breaker?.failures ?? 0,
          nextAtMs: isLast ? undefined : clock.now() + (messages > 1 ? 0 : restMs),
          limit: retry.attempts,
          untilMs: isCertain ? Infinity : clock.now() + Math.round(sinceMs + retry.maxAgeMs - now),
        },
      )
    }
    return { breaker: open?.breaker, restMs }
  }

  /** Whether the failed attempt was the last one. Notes that it failed. */
  #isLast(message: Message): boolean {
    const now = elapsedMs(this.options.clock)
    const earlierMs = expectedMs(this.#retryOf(message), message.attemptsBefore)
    return this.#isSpent(message, now, message.noteFailure(now, earlierMs))
  }

  /** Of its handlers that still have to succeed, one that says itself how long it is tried decides for all. */
  #retryOf({ handlers = noHandlers }: Message): Required<RetryOptions> {
    for (const { run } of handlers) {
      const own = ownRetry(run)
      if (own !== undefined) return own
    }
    return this.options.retry
  }

  #isSpent(message: Message, nowMs: number, sinceMs: number): boolean {
    const retry = this.#retryOf(message)
    const exempt = message.trouble?.exempt ?? 0
    return message.attempt - exempt >= retry.attempts || nowMs - sinceMs >= retry.maxAgeMs
  }

  /** Why a message that an earlier process left is given up before it is tried here. Notes how many processes ended while they had it. */
  #whySpent(message: Message): string | undefined {
    const { attemptsBefore, claim, trouble } = message
    const crashes = Math.max(0, (claim?.deliveries ?? 0) - attemptsBefore)
    message.crashes = crashes
    if (crashes >= mostCrashes) return `${crashText(crashes)}, and it may be the reason.`
    if (attemptsBefore < this.options.retry.attempts || this.options.registry.hasOwnRetry) return undefined
    const tried = `arlier processes tried it ${attemptsBefore} times`
    const { failure } = trouble ?? {}
    return failure === undefined ? `E${tried}.` : `${failure.error} (${failure.handler}; e${tried})`
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
      const vehicle = vehicles?.settling(message.change)
      return vehicle === undefined ? done : { as: 'done', vehicle }
    }
    if (next === 'dead') {
      const reason = {
        error: message.trouble?.fatal ?? '',
        attempts: message.mostAttempts,
        diedAt: clock.now(),
        changed: changedBy(message),
        marks: message.missingMarks,
      }
      return { as: 'dead', reason, vehicle: vehicles?.settling(message.change) }
    }
    if (typeof next === 'number') return this.#later(message, next)
    return next instanceof Breaker ? this.#later(message, 0) : undefined
  }

  /** It waits again, and is not tried before `restMs` from now. */
  #later(message: Message, restMs: number): Outcome {
    // Attempts that do not count must not make the next process give the message up, by their number or by the time that they took.
    const attempts = message.attempt - (message.trouble?.exempt ?? 0)
    // A handler that saw it once may see it again, and the next process must know. It takes this for one crash, however many processes
    // stop: too little to make the message a suspect.
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
      this.#reportOver(message, 'dead')
      if (isCounted) this.counts.deadLettered += 1
      if (claim === undefined) return
      this.options.died({ id, message: claim.message, ...outcome.reason }, request)
      // Meanwhile its handler was done.
      if (trouble?.failed?.length === 0) this.#takeBack(message)
      return
    }
    if (outcome.as === 'dead') message.trouble = undefined
    const isSkipped = next === 'skipped'
    this.#reportOver(message, isSkipped ? 'skipped' : 'done')
    if (isCounted) this.counts[isSkipped ? 'duplicates' : 'handled'] += 1
    this.#reportSettled(message, isSkipped ? 'duplicate' : 'handled')
  }

  /** The transaction of a handler that leaves a mark was committed after its time limit: nothing is left of a dead letter that only it made. */
  readonly #endedLate = (handler: Handler, messages: readonly Message[]): void => {
    for (const message of messages) if (message.succeedLate(handler) && message.isOver) this.#takeBack(message)
  }

  #takeBack({ id }: Message): void {
    const { inbox, reports, log } = this.options
    void inbox.archive?.discard(id).then((isGone) => {
      // What to do: Nothing is missing or written twice. If it happens often, raise `timeoutMs`.
      if (isGone) log.warn('a handler was done after its time limit, so its dead letter is gone', { delivery: id })
    }, reports.inboxFailed)
  }

  /** For the states of vehicles and for parts. */
  #reportOver(message: Message, outcome: Ended): void {
    if (message.toParts === 'ended') return
    message.toParts = 'ended'
    this.options.vehicles?.over(message.change)
    for (const part of this.options.parts) part.over?.(message, outcome)
  }

  /** Reports to observers that a message needs no more work. A dead letter is reported with its error. */
  #reportSettled(message: Message, outcome: SettledMessage['outcome']): void {
    const { settled } = this.options.reports.observers
    if (settled === undefined) return
    const { id, lane, mostAttempts: attempts, claim, event } = message
    settled({ id, vin: vinOf(lane), outcome, attempts, bytes: claim?.message.bytes, event })
  }

  /** The runtime is about to end the request's work, or has ended it: anything unfinished is lost. */
  readonly #expire = (request: RequestWork, sinceMs: number): void => {
    const reason = new FleethookError(
      'drain_deadline',
      'The runtime ends the work of the request now, and handlers have not finished.',
      { hint: 'Use an inbox that outlives the request, or make the handlers faster.' },
    )
    this.runner.abort(reason, request)
    const unfinished = request.messages.filter(({ isOver }) => !isOver)
    for (const message of unfinished) this.#remove(message)
    void this.giveUp(unfinished).then((lost) => {
      for (const { lane } of lost) this.options.missed(lane, sinceMs)
    })
    this.pump()
  }

  /** It leaves its lane for good, whatever its state. */
  #remove(message: Message): void {
    const { inLane } = message
    if (message.toParts === 'admitted') this.#reportOver(message, 'gone')
    if (this.#suspect === message) this.#suspect = undefined
    this.#troubled.delete(message)
    if (message.state === 'running') this.#freeSlot(message)
    message.end()
    this.lanes.remove(message)
    this.#wake(inLane?.head)
  }

  #freeSlot(message: Message): void {
    const { slot } = message
    message.slot = undefined
    if (slot === undefined) this.lifecycle.running -= 1
    else slot.release()
  }
}

/** A handler that failed for the last time can be done after all: its transaction was committed late. */
const endOf = ({ trouble }: Message): 'done' | 'dead' =>
  trouble?.fatal === undefined || trouble.failed?.length === 0 ? 'done' : 'dead'

/** For the replay of a dead letter. What cannot be written must not keep its message waiting. */
function changedBy({ change }: Message): string | undefined {
  try {
    return change?.text()
  } catch {
    return undefined
  }
}
