import { elapsedMs } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import { noRequest, type RequestScope } from '../hosting/execution-context.ts'
import { crashText, mostCrashes } from '../inbox/crash-suspects.ts'
import type { FailingMessage } from '../inbox/failing.ts'
import type { Claim, Waiting } from '../inbox/inbox.ts'
import type { Delivery, ObservedRun, RunEnd, SettledMessage } from '../inbox/observer.ts'
import { vinOf } from '../inbox/receipts.ts'
import { type Batch, Gathering } from './batches.ts'
import { Breaker, Breakers } from './breaker.ts'
import { RequestDeadlines } from './deadlines.ts'
import { type Entry, contextHop, RequestWork, type Step } from './entry.ts'
import { type CoreCounts, type CoreOptions, inboxRestMs } from './events.ts'
import { Lanes } from './lanes.ts'
import { Lifecycle, Yielding } from './lifecycle.ts'
import { admittedBy, type Ended } from './part.ts'
import { backoffMs, errorText, expectedMs, requestOf } from './retry.ts'
import { type Failure, Runner } from './runner.ts'

/**
 * What follows a turn. `over`: nothing, it has ended elsewhere. `wait`: for those before it in its lane. `gather`: in a batch. `again`: at
 * once. A number: it rests for that many milliseconds. A breaker: it waits there.
 */
type Next = 'done' | 'skipped' | 'dead' | 'over' | 'wait' | 'gather' | 'again' | number | Breaker

type MaybeFailure = Failure | undefined

/** After a failure: the breaker at which the message waits, if it is open, and the time until the next try. */
interface Rest {
  readonly breaker: Breaker | undefined
  readonly restMs: number
}

const noSteps: readonly Step[] = []

/** One attempt at the handlers of a message, or at that of its batch. */
class Attempt {
  /** The number of attempts before it. */
  readonly before: number
  /** The place of the handler that is next. */
  at = 0
  /** Handlers that failed or were left out, and those of them that a breaker keeps. */
  left: readonly Step[] = noSteps
  resting: readonly Step[] = noSteps
  breaker: Breaker | undefined
  /** The error of the handler that failed last, and the longest wait that any of them asks for. */
  failure: MaybeFailure
  restMs = 0
  /** It failed in a batch of several messages, and another one may be the reason. */
  isShared = false
  delivery: Delivery | undefined
  /** How it ended, for an observer around it. */
  next: Next = 'over'

  constructor(before: number) {
    this.before = before
  }

  /** A breaker keeps the message from a handler, or nothing starts any more. */
  leave(step: Step, breaker: Breaker | undefined): void {
    this.left = [...this.left, step]
    if (breaker === undefined) return
    this.resting = [...this.resting, step]
    this.breaker ??= breaker
  }

  /** A handler failed. With an open breaker, it fails for every vehicle, and that is no failure of the message. */
  fail(step: Step, failure: Failure, { breaker, restMs }: Rest): void {
    this.leave(step, breaker)
    if (breaker !== undefined) return
    this.failure = failure
    this.restMs = Math.max(this.restMs, restMs)
  }
}

/** What an entry that waits for those before it in its lane is held by. */
const itsPlace = {}

/**
 * Claims messages from the inbox, runs their handlers and settles them: in order per lane, up to `concurrency` at once. `#turn` is the
 * whole life of a message, and `#nextOf` says what follows an attempt.
 */
export class Core {
  readonly counts: CoreCounts = {
    handled: 0,
    retried: 0,
    deadLettered: 0,
    duplicates: 0,
    lost: 0,
    handedOver: 0,
    forgotten: 0,
  }
  readonly options: CoreOptions
  readonly lanes: Lanes = new Lanes()
  readonly lifecycle: Lifecycle
  readonly breakers: Breakers
  readonly runner: Runner
  readonly #yielding: Yielding
  readonly #deadlines: RequestDeadlines
  readonly #gatherings = new Map<Step, Gathering>()
  /** Batches to run now. */
  #due: Batch[] = []
  #started: Entry[] = []
  /** Those that a handler failed for. */
  readonly #troubled = new Set<Entry>()
  /** The message beside which nothing runs, from the time at which its turn came. */
  #suspect: Entry | undefined
  #isPumping = false

  constructor(options: CoreOptions) {
    const { clock, events } = options
    this.options = options
    this.lifecycle = new Lifecycle(clock)
    this.breakers = new Breakers({
      clock,
      events,
      resume: (entry, afterMs) => this.#resumeFromBreaker(entry, afterMs),
    })
    this.runner = new Runner(options, this.#endedLate)
    this.#yielding = new Yielding(clock, this.#runStarted)
    this.#deadlines = new RequestDeadlines(clock, events, this.#expire)
  }

  /** Gives messages their places in their lanes, before the inbox has them: their order is the order of these calls. */
  add(messages: readonly Waiting[], scope: RequestScope): RequestWork {
    const request = new RequestWork(messages, scope)
    for (const entry of request.entries) {
      this.lanes.add(entry)
      if (entry.trouble !== undefined) this.#troubled.add(entry)
    }
    return request
  }

  /** The inbox has the request's messages: their handlers start in a task of their own, after the answer. */
  start(request: RequestWork): void {
    if (request.entries.length === 0) return
    if (request.isBound) {
      this.#deadlines.hold(request)
      this.#yielding.laterInContext(() => this.#runBound(request))
      return
    }
    for (const entry of request.entries) this.#started.push(entry)
    request.entries = []
    this.#yielding.later()
  }

  /** The inbox did not take its messages. */
  cancel(request: RequestWork): void {
    for (const entry of request.entries) this.#end(entry)
    this.pump()
  }

  /** Other processes have these messages from now on: their work ends at once, whatever its state, and is not settled. */
  gone(ids: readonly string[]): void {
    const given = new Set(ids)
    const reason = new FleethookError('handed_over', 'Another process has taken over the message.')
    this.#letGo(({ id }) => given.has(id), 'handedOver', reason)
  }

  /** An operator erases a vehicle: the work on its messages ends at once, whatever its state, and is not settled. */
  forget(laneKey: string): void {
    const reason = new FleethookError('vehicle_forgotten', 'The vehicle of the message was erased.')
    this.#letGo((entry) => entry.laneKey === laneKey, 'forgotten', reason)
  }

  #letGo(which: (entry: Entry) => boolean, count: 'handedOver' | 'forgotten', reason: FleethookError): void {
    for (const entry of [...this.lanes.all()].filter(which)) {
      this.#leave(entry)
      entry.go()
      this.#reportOver(entry, 'gone')
      if (entry.counts) this.counts[count] += 1
      entry.request.oneIsOver(true)
    }
    for (const gathering of this.#gatherings.values()) gathering.dropOver()
    this.runner.abortGone(reason)
    this.pump()
  }

  /** The inbox cannot write that a message waits for its next attempt. It becomes a dead letter, unless its next attempt has begun. */
  refused(id: string, reason: string): void {
    for (const entry of this.lanes.all()) {
      if (entry.id !== id || entry.state !== 'held' || entry.heldBy !== undefined) continue
      entry.refuse(reason)
      entry.trouble?.rest?.cancel()
      this.#resume(entry)
    }
    this.pump()
  }

  /** The messages that wait because a handler failed for them. */
  failing(): readonly FailingMessage[] {
    return [...this.#troubled].flatMap(({ laneKey, trouble }) =>
      trouble?.failure === undefined ? [] : [{ vin: vinOf(laneKey), failure: trouble.failure }],
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
      const entry = this.#suspect ?? this.lanes.take()
      if (entry === undefined) break
      if (entry.isSuspect) {
        this.#suspect = entry
        if (lifecycle.running > 0) break
      }
      lifecycle.running += 1
      entry.begin()
      if (entry.hop === undefined) void this.#turn(entry)
      else entry.hop()
    }
    this.#isPumping = false
    lifecycle.onChange?.()
  }

  /** Writes that the message waits again, and is not tried before `restMs` from now. */
  later(entry: Entry, restMs: number): Promise<void> {
    const { inbox, clock } = this.options
    // Attempts that do not count must not make the next process give the message up, by their number or by the time that they took.
    const attempts = entry.attempt - (entry.trouble?.exempt ?? 0)
    // A handler that saw it once may see it again, and the next process must know. It takes this for one crash, however many processes
    // stop: too little to make the message a suspect.
    const least = entry.mostAttempts > entry.attemptsBefore ? 1 : 0
    const failure = entry.trouble?.failure
    return inbox.reschedule(entry.id, {
      attempts,
      notBefore: restMs === 0 ? 0 : Math.ceil(clock.now() + restMs),
      deliveries: Math.max(least, attempts + entry.crashes),
      ...(failure === undefined ? {} : { failure }),
    })
  }

  /** Gives up entries that are over, and resolves to what is lost: a durable inbox keeps them for a later process. Never rejects. */
  async giveUp(entries: readonly Entry[]): Promise<readonly Entry[]> {
    const { inbox, events } = this.options

    async function isLost(entry: Entry): Promise<boolean> {
      try {
        // One that is settled meanwhile is no longer in the inbox.
        if (inbox.durability !== 'memory' || (await inbox.claim(entry.id)) === undefined) return false
        await inbox.settle(entry.id)
      } catch (error) {
        events.inboxFailed(error)
      }
      return entry.counts
    }

    const lost: Entry[] = []
    await Promise.all(
      entries.map(async (entry) => {
        if (!(await isLost(entry))) return
        this.counts.lost += 1
        lost.push(entry)
        this.#reportSettled(entry, 'lost')
      }),
    )
    if (lost.length > 0) events.lost(lost.length)
    // An answer must not wait for its handlers any more, even if a later process runs them.
    for (const { request } of entries) request.oneIsOver(true)
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
    this.#resumeAll(request.entries)
    this.pump()
    if (request.isOver) return
    for (const entry of request.entries) {
      const waits = entry.state === 'waiting' || entry.state === 'held'
      if (waits && entry.hop === undefined) this.#bind(entry)
    }
    this.#deadlines.watch(request)
  }

  #resumeAll(entries: readonly Entry[]): void {
    const now = this.options.clock.now()
    for (const entry of entries) {
      if (entry.isOver) continue
      if (entry.notBefore > now) this.#keep(entry, entry.notBefore - now)
      else this.#resume(entry)
    }
  }

  /**
   * The whole turn of a message, in the I/O context of its request. It needs a promise only where the inbox, the state of its vehicle or a
   * handler needs one. Never rejects. `begun`: an attempt that its batch has run already, or that an observer is around of.
   */
  async #turn(entry: Entry, begun?: Attempt, isObserved: boolean = false): Promise<void> {
    const { inbox, vehicles } = this.options
    let next: Next | undefined
    try {
      if (begun === undefined) {
        // 1. The inbox hands it out.
        if (entry.claim === undefined) {
          const found = inbox.claim(entry.id)
          const claim = found instanceof Promise ? await found : found
          // Ended while we waited; already counted.
          if (claim === undefined || entry.isOver) return this.#endTurn(entry, 'over')
          this.#open(entry, claim)
        } else if (inbox.isStillHeld !== undefined) {
          // It waited since it was handed out. Another process may have it now.
          const isHeld = await inbox.isStillHeld(entry.id)
          if (!isHeld || entry.isOver) return this.#endTurn(entry, 'over')
        }
        // 2. It changes the state of its vehicle, once, and that says which handlers it is for.
        if (entry.steps === undefined) {
          if (vehicles !== undefined && this.#changesState(entry)) {
            const found = vehicles.find(entry.laneKey)
            const state = found instanceof Promise ? await found : found
            if (entry.isOver) return this.#endTurn(entry, 'over')
            entry.change = entry.event && entry.claim && vehicles.step(entry.id, entry.event, state, entry.claim)
          }
          entry.steps = this.#stepsOf(entry)
        }
        next = this.#admit(entry)
      }
      // 3. Its handlers run, one after another.
      if (next === undefined) {
        const attempt = begun ?? new Attempt(entry.attempt)
        const observed = begun === undefined ? this.#observed(entry, attempt) : undefined
        if (observed !== undefined) {
          await observed
          // Outside of the observer's context, because other messages start now.
          return this.#endTurn(entry, attempt.next)
        }
        for (let step = this.#stepAt(entry, attempt); step !== undefined; step = this.#stepAt(entry, attempt)) {
          attempt.at += 1
          if (this.#leavesOut(entry, step, attempt)) continue
          const result = this.#run(entry, step, attempt)
          const failure = result instanceof Promise ? await result : result
          this.#ran(entry, step, failure, attempt)
        }
        next = this.#nextOf(entry, attempt)
      }
      // 4. What follows is written.
      const written = this.#write(entry, next)
      if (written instanceof Promise) await written
    } catch (error) {
      const wasSeen = entry.steps !== undefined || entry.claim === undefined
      next = this.#failedTurn(entry, error)
      // No handler saw it, so its claim must not look like one that ended its process.
      if (!wasSeen) await this.#tryLater(entry, next)
    }
    if (isObserved && begun !== undefined) begun.next = next
    else this.#endTurn(entry, next)
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
  #nextOf(entry: Entry, { before, at, left, resting, breaker, failure, restMs, isShared }: Attempt): Next {
    if (entry.isOver) return 'over'
    const { steps = noSteps } = entry
    const toGather = at < steps.length ? steps.slice(at) : noSteps
    if (this.lifecycle.startsNoMore && left.length + toGather.length > 0) {
      entry.leave([...left, ...toGather])
      entry.uncountAttempt(before)
      return 0
    }
    if (isShared && failure !== undefined) {
      entry.goAlone(before)
      return 'wait'
    }
    const isLast = failure !== undefined && this.#isLast(entry)
    if (isLast)
      entry.failForGood(
        errorText(failure.error),
        left.filter((step) => !resting.includes(step)),
      )
    const again = isLast ? resting : left
    if (again.length > 0) {
      entry.leave([...again, ...toGather])
      if (failure !== undefined && !isLast) return restMs
      // No handler failed but those that fail for every vehicle.
      if (failure === undefined && entry.attempt > before) entry.exemptAttempt()
      return breaker ?? 0
    }
    entry.leave(toGather)
    if (toGather.length === 0) return endOf(entry)
    if (!entry.isSuspect) return 'gather'
    // At once: its claim counts, and another suspect's turn must not come between.
    entry.beAlone()
    return 'again'
  }

  /** The turn has ended. A message that something keeps holds its lane, but no slot of `concurrency`. */
  #endTurn(entry: Entry, next: Next): void {
    if (next === 'again' && entry.state === 'running') {
      void this.#turn(entry)
      return
    }
    if (this.#suspect === entry) this.#suspect = undefined
    if (entry.state === 'running') {
      if (next === 'over' || next === 'done' || next === 'skipped' || next === 'dead') this.#end(entry, true)
      else {
        const wasInBatch = entry.slot !== undefined
        this.#freeSlot(entry)
        if (entry.request.isBound) this.#bind(entry)
        // Those behind it had their turns while the batch gathered.
        if (wasInBatch) this.lanes.recall(entry)
        const [step] = entry.steps ?? noSteps
        if (next !== 'gather' || step === undefined) this.#keep(entry, next)
        else if (wasInBatch || !this.#mayFollow(entry)) this.#keep(entry, 'wait')
        else {
          this.#gatheringOf(step).take(entry)
          this.lanes.pass(entry)
          this.#wake(entry.lane?.turn)
        }
      }
    }
    this.pump()
  }

  /** It keeps its place in its lane until it is resumed. */
  #keep(entry: Entry, next: Exclude<Next, 'over' | 'done' | 'skipped' | 'dead'>): void {
    if (typeof next === 'number') this.#rest(entry, next)
    else if (next instanceof Breaker && entry.previous === undefined) {
      entry.letGo()
      entry.hold(next)
      this.lanes.setAside(entry, true)
      if (!next.keep(entry)) this.#resume(entry)
    } else {
      // Only the first message of a lane waits at a breaker: one behind it would be let through in vain.
      if (next instanceof Breaker) entry.letGo()
      entry.hold(itsPlace)
      // Those before it may be over already.
      if (entry.previous === undefined) this.#wake(entry)
    }
  }

  #rest(entry: Entry, restMs: number): void {
    const goOn = (): void => {
      this.#resume(entry)
      this.pump()
    }
    this.lanes.setAside(entry, true)
    entry.rest(this.lifecycle.startsNoMore ? undefined : this.options.clock.after(restMs, goOn))
  }

  #resume(entry: Entry): void {
    if (entry.state !== 'held') return
    entry.wait()
    this.lanes.ready(entry)
  }

  /** A breaker lets it go on, after `afterMs`. */
  #resumeFromBreaker(entry: Entry, afterMs: number = 0): void {
    if (entry.state !== 'held' || !(entry.heldBy instanceof Breaker)) return
    if (afterMs > 0) {
      this.#rest(entry, afterMs)
      return
    }
    this.#resume(entry)
    this.pump()
  }

  #wake(entry: Entry | undefined): void {
    if (entry?.heldBy === itsPlace) this.#resume(entry)
  }

  /** Binds its next turn to the I/O context in which this is called. */
  #bind(entry: Entry): void {
    entry.hop = contextHop(() => {
      if (entry.state === 'running') void this.#turn(entry)
    })
  }

  #gatheringOf(step: Step): Gathering {
    let gathering = this.#gatherings.get(step)
    if (gathering === undefined) {
      gathering = new Gathering(step, {
        clock: this.options.clock,
        due: (batch) => void this.#due.push(batch),
        pump: this.pump,
        run: (batch) => void this.#runBatch(batch),
        free: () => void (this.lifecycle.running -= 1),
      })
      this.#gatherings.set(step, gathering)
    }
    return gathering
  }

  /** Runs the handler of a batch. Each of its messages then goes on with its own turn. Never rejects. */
  async #runBatch(batch: Batch): Promise<void> {
    const { inbox, events } = this.options
    const { step } = batch
    const begun = batch.begin()
    // Other processes can take messages over until the handler runs.
    const held = await Promise.allSettled(
      inbox.isStillHeld === undefined ? [] : begun.map(async ({ id }) => inbox.isStillHeld?.(id)),
    )
    const entries: Entry[] = []
    for (const [place, entry] of begun.entries()) {
      if (!batch.has(entry)) continue
      const answer = held[place]
      if (answer?.status === 'rejected') this.#endTurn(entry, this.#failedTurn(entry, answer.reason))
      else if (answer?.value === false) this.#endTurn(entry, 'over')
      else {
        const attempt = new Attempt(entry.attempt)
        // Asked for each: a handler that rests is tried with one message, and the others wait.
        if (this.#leavesOut(entry, step, attempt)) this.#goOn(entry, attempt)
        else entries.push(entry)
      }
    }
    if (entries.length > 0) {
      for (const entry of entries) entry.countAttempt(this.counts)
      const failure = await this.#callBatch(batch, entries)
      // Messages that ended meanwhile are accounted for.
      const left = entries.filter((entry) => batch.has(entry))
      const [first] = left
      const request = failure && requestOf(failure.error)
      let failed: Rest | undefined
      if (failure === undefined || request?.kind === 'discard') {
        this.breakers.succeeded(step)
        if (request?.kind === 'discard') events.discarded(request.reason, first?.event?.topic ?? '', left.length)
      } else if (first !== undefined) failed = this.#failed(first, step, failure.error, entries.length)
      for (const entry of left) {
        const attempt = new Attempt(entry.attempt - 1)
        if (failure !== undefined && failed !== undefined) {
          attempt.isShared = entries.length > 1 && request === undefined && failed.breaker === undefined
          attempt.fail(step, failure, failed)
        }
        this.#goOn(entry, attempt)
      }
    }
    this.pump()
  }

  /** A message of a batch goes on: what follows, and in its next batch. */
  #goOn(entry: Entry, attempt: Attempt): void {
    attempt.at = 1
    void this.#turn(entry, attempt)
  }

  #callBatch({ step, owner }: Batch, entries: readonly Entry[]): MaybeFailure | Promise<MaybeFailure> {
    const call = (): MaybeFailure | Promise<MaybeFailure> =>
      this.runner.runBatch(step, entries, owner ?? entries[0]?.request ?? noRequest)
    const { around } = this.options.events.observers
    if (around === undefined) return call()
    const messages = entries.flatMap((entry) =>
      entry.event === undefined ? [] : [{ event: entry.event, delivery: entry.delivery() }],
    )
    return around(async () => ({ failure: await call() }), { messages, isBatch: true }).then(({ failure }) => failure)
  }

  /** Runs an attempt inside of what observers put around it. `undefined`: nobody observes it, or nothing runs. */
  #observed(entry: Entry, attempt: Attempt): Promise<unknown> | undefined {
    const { around } = this.options.events.observers
    if (around === undefined || entry.event === undefined) return undefined
    if (this.lifecycle.startsNoMore || this.#stepAt(entry, attempt) === undefined) return undefined
    const what: ObservedRun = {
      messages: [{ event: entry.event, delivery: entry.delivery(entry.attempt + 1) }],
      isBatch: entry.isAlone,
    }
    return around(async (): Promise<RunEnd> => {
      await this.#turn(entry, attempt, true)
      return { failure: attempt.failure }
    }, what)
  }

  /** The inbox handed it out. Notes why it is given up before it is tried here. */
  #open(entry: Entry, claim: Claim): void {
    try {
      entry.open(claim, claim.message.event ?? this.options.read(claim.message))
    } catch (error) {
      entry.claim = claim
      entry.failForGood(errorText(error))
    }
    if (entry.steps !== undefined) return
    entry.crashes = Math.max(0, claim.deliveries - entry.attemptsBefore)
    const spent = claim.deliveries > 0 || entry.attemptsBefore > 0 ? this.#whySpent(entry) : undefined
    if (spent !== undefined) entry.failForGood(spent)
  }

  /** A message changes the state of its vehicle even when it is given up, unless that ends the process, too. */
  #changesState({ event, crashes }: Entry): boolean {
    return event !== undefined && crashes <= mostCrashes
  }

  #stepsOf(entry: Entry): readonly Step[] {
    const { event, trouble, change } = entry
    if (event === undefined || trouble?.fatal !== undefined) return noSteps
    return this.options.registry.stepsFor(event, entry, change?.subjects)
  }

  /** What follows without a run of its handlers. `undefined`: they may run now. */
  #admit(entry: Entry): Next | undefined {
    const { steps = noSteps } = entry
    if (steps.length === 0) return this.#mayEnd(entry) ? endOf(entry) : 'wait'
    if (entry.previous !== undefined && !this.#mayFollow(entry)) return 'wait'
    if (!entry.mayBeSkipped) return undefined
    try {
      const admitted = admittedBy(this.options.parts, entry)
      if (admitted === 'wait') return 'wait'
      if (admitted === 'skip') return this.#mayEnd(entry) ? 'skipped' : 'wait'
    } catch (error) {
      entry.failForGood(errorText(error))
      entry.steps = noSteps
      return this.#admit(entry)
    }
    entry.admit()
    return undefined
  }

  /** Whether it may run although those before it in its lane are not over: they wait in an open batch, and it joins them. */
  #mayFollow(entry: Entry): boolean {
    const { previous } = entry
    if (previous === undefined) return true
    const step = entry.steps?.find(({ gather }) => gather !== undefined)
    const isAlone = entry.isAlone || entry.isSuspect
    return step !== undefined && !isAlone && this.#gatherings.get(step)?.holds(previous, entry.request) === true
  }

  /**
   * Whether it may be settled without a handler. The state of its vehicle includes those before it, which may wait in a batch: after a crash,
   * their edges would be lost.
   */
  #mayEnd({ previous }: Entry): boolean {
    return previous === undefined || this.options.vehicles === undefined
  }

  /** The next handler of an attempt. Batches come last, and only a message that is alone runs in one here. */
  #stepAt({ steps, isAlone }: Entry, { at }: Attempt): Step | undefined {
    const step = steps?.[at]
    return step?.gather === undefined || (isAlone && at === 0) ? step : undefined
  }

  #leavesOut(entry: Entry, step: Step, attempt: Attempt): boolean {
    const runsNoMore = this.lifecycle.startsNoMore || entry.isOver
    // A breaker that lets it pass counts on the run, so it is not asked when nothing runs any more.
    const breaker = runsNoMore ? undefined : this.breakers.keeperOf(entry, step)
    if (!runsNoMore && breaker === undefined) return false
    attempt.leave(step, breaker)
    return true
  }

  #run(entry: Entry, step: Step, attempt: Attempt): MaybeFailure | Promise<MaybeFailure> {
    if (attempt.delivery === undefined) {
      entry.countAttempt(this.counts)
      attempt.delivery = entry.delivery()
    }
    return step.gather === undefined
      ? this.runner.run(step, entry, attempt.delivery)
      : this.runner.runBatch(step, [entry], entry.request)
  }

  #ran(entry: Entry, step: Step, failure: MaybeFailure, attempt: Attempt): void {
    const request = failure && requestOf(failure.error)
    if (entry.isGone) attempt.failure = failure
    else if (failure === undefined || request?.kind === 'discard') {
      this.breakers.succeeded(step)
      if (request?.kind === 'discard') this.options.events.discarded(request.reason, entry.event?.topic ?? '', 1)
    } else attempt.fail(step, failure, this.#failed(entry, step, failure.error))
  }

  /** A handler failed. Reports it, and returns the breaker at which the message waits, and the time until it is tried again. */
  #failed(entry: Entry, step: Step, error: unknown, messages: number = 1): Rest {
    const { events, clock, retry } = this.options
    const { startsNoMore } = this.lifecycle
    const request = requestOf(error)
    // Of a batch, each message is tried alone at once. What a drain aborts has not failed.
    if (messages === 1 && !startsNoMore) {
      entry.noteError(step.name, errorText(error), clock.now())
      this.#troubled.add(entry)
    }
    const open = request === undefined && !startsNoMore ? this.breakers.failed(entry, step) : undefined
    const restMs = open?.restMs ?? (request?.kind === 'retry' ? request.afterMs : backoffMs(retry, entry.attempt))
    if (request !== undefined) this.breakers.askedToWait(step)
    else if (!startsNoMore && entry.event !== undefined) {
      const now = elapsedMs(clock)
      const sinceMs = entry.trouble?.sinceMs ?? now - expectedMs(retry, entry.attemptsBefore)
      const isCertain = open !== undefined || messages > 1
      const isLast = !isCertain && this.#isSpent(entry, now, sinceMs)
      events.failed(
        error,
        entry.event,
        { id: entry.id, attempt: entry.attempt },
        {
          handler: step.name,
          ...(step.gather === undefined ? {} : { messages }),
          failures: open?.failures ?? 0,
          nextAtMs: isLast ? undefined : clock.now() + (messages > 1 ? 0 : restMs),
          limit: retry.attempts,
          untilMs: isCertain ? Infinity : clock.now() + Math.round(sinceMs + retry.maxAgeMs - now),
        },
      )
    }
    return { breaker: open?.breaker, restMs }
  }

  /** Whether the failed attempt was the last one. Notes that it failed. */
  #isLast(entry: Entry): boolean {
    const { clock, retry } = this.options
    const now = elapsedMs(clock)
    return this.#isSpent(entry, now, entry.noteFailure(now, expectedMs(retry, entry.attemptsBefore)))
  }

  #isSpent(entry: Entry, nowMs: number, sinceMs: number): boolean {
    const { retry } = this.options
    const exempt = entry.trouble?.exempt ?? 0
    return entry.attempt - exempt >= retry.attempts || nowMs - sinceMs >= retry.maxAgeMs
  }

  /** Why a message that an earlier process left is given up before it is tried here. */
  #whySpent({ attemptsBefore, crashes, trouble }: Entry): string | undefined {
    const { attempts } = this.options.retry
    if (crashes >= mostCrashes) return `${crashText(crashes)}, and it may be the reason.`
    if (attemptsBefore < attempts) return undefined
    const tried = `arlier processes tried it ${attemptsBefore} times`
    const { failure } = trouble ?? {}
    return failure === undefined ? `E${tried}.` : `${failure.error} (${failure.handler}; e${tried})`
  }

  /** The inbox failed, or could not read the state of a vehicle. The message is tried again, or given up after the longest time of retries. */
  #failedTurn(entry: Entry, error: unknown): number {
    this.options.events.inboxFailed(error)
    // The inbox takes other rows, but not that this message waits: there is no next attempt.
    if (isRefused(error) && entry.steps !== undefined && entry.trouble?.fatal === undefined) {
      entry.refuse(errorText(error))
      return 0
    }
    if (entry.claim !== undefined && entry.steps === undefined && this.#isLast(entry)) {
      entry.failForGood(errorText(error))
      entry.steps = noSteps
    }
    return inboxRestMs
  }

  async #tryLater(entry: Entry, restMs: number): Promise<void> {
    try {
      await this.later(entry, restMs)
    } catch (error) {
      this.options.events.inboxFailed(error)
    }
  }

  /** Writes the end of a message, or that it waits. What only this process must know is not written. */
  #write(entry: Entry, next: Next): void | Promise<void> {
    const { inbox, vehicles } = this.options
    if (next === 'done' || next === 'skipped') {
      const settled = inbox.settle(entry.id, vehicles?.settling(entry.change))
      if (settled instanceof Promise) return settled.then(() => this.#over(entry, next))
      return this.#over(entry, next)
    }
    if (next === 'dead') return this.#bury(entry)
    if (typeof next === 'number') return this.later(entry, next)
    return next instanceof Breaker ? this.later(entry, 0) : undefined
  }

  async #bury(entry: Entry): Promise<void> {
    const { inbox, clock, events, vehicles } = this.options
    const { id, claim, trouble } = entry
    if (claim === undefined) return
    const reason = { error: trouble?.fatal ?? '', attempts: entry.mostAttempts, diedAt: clock.now() }
    const [changed, marks] = [changedBy(entry), entry.missingMarks]
    const dropped = await inbox.deadLetter(
      id,
      {
        ...reason,
        ...(changed === undefined ? {} : { changed }),
        ...(marks === undefined ? {} : { marks }),
      },
      vehicles?.settling(entry.change),
    )
    if (dropped === 'handled') {
      entry.trouble = undefined
      this.#over(entry, 'done')
      return
    }
    this.#over(entry, 'dead')
    if (entry.isGone) return
    events.died({ id, message: claim.message, ...reason }, dropped, entry.request)
    // Meanwhile its handler was done.
    if (trouble?.failed?.length === 0) this.#takeBack(entry)
  }

  /** The transaction of a handler that leaves a mark was committed after its time limit: nothing is left of a dead letter that only it made. */
  readonly #endedLate = (step: Step, entries: readonly Entry[]): void => {
    for (const entry of entries) if (entry.succeedLate(step) && entry.isOver) this.#takeBack(entry)
  }

  #takeBack({ id }: Entry): void {
    const { inbox, events, log } = this.options
    void inbox.discard(id).then((isGone) => {
      if (isGone) log.warn('a handler was done after its time limit, so its dead letter is gone', { delivery: id })
    }, events.inboxFailed)
  }

  /** The inbox has written the end of a message. A process that has it since then has counted it as handed over. */
  #over(entry: Entry, outcome: Exclude<Ended, 'gone'>): void {
    if (entry.isGone) return
    const { counts } = this
    this.#reportOver(entry, outcome)
    if (entry.counts) counts[outcome === 'done' ? 'handled' : outcome === 'dead' ? 'deadLettered' : 'duplicates'] += 1
    // That of a dead letter is reported with its error.
    if (outcome !== 'dead' && this.options.events.observers.settled !== undefined)
      this.#reportSettled(entry, outcome === 'done' ? 'handled' : 'duplicate')
  }

  /** For the states of vehicles and for parts. */
  #reportOver(entry: Entry, outcome: Ended): void {
    this.options.vehicles?.over(entry.change)
    for (const part of this.options.parts) part.over?.(entry, outcome)
  }

  /** Reports to observers that a message needs no more work. */
  #reportSettled(entry: Entry, outcome: SettledMessage['outcome']): void {
    const { id, laneKey, mostAttempts, claim, event } = entry
    this.options.events.observers.settled?.({
      id,
      vin: vinOf(laneKey),
      outcome,
      attempts: mostAttempts,
      ...(claim === undefined ? {} : { bytes: claim.message.bytes }),
      ...(event === undefined ? {} : { event }),
    })
  }

  /** It leaves its lane for good, whatever its state. `isSettled`: the inbox no longer has it as waiting. */
  #end(entry: Entry, isSettled: boolean = false): void {
    const { request } = entry
    this.#leave(entry)
    if (isSettled) this.options.events.onCapacity(request)
    if (isSettled && entry.trouble?.fatal !== undefined) (request.givenUp ??= []).push(entry.laneKey)
    request.oneIsOver()
  }

  /** The runtime is about to end the request's work, or has ended it: anything unfinished is lost. */
  readonly #expire = (request: RequestWork, sinceMs: number): void => {
    const { events } = this.options
    const reason = new FleethookError(
      'drain_deadline',
      'The runtime ends the work of the request now, and handlers have not finished.',
      { hint: 'Use an inbox that outlives the request, or make the handlers faster.' },
    )
    this.runner.abort(reason, request)
    const unfinished = request.entries.filter(({ isOver }) => !isOver)
    for (const entry of unfinished) this.#leave(entry)
    void this.giveUp(unfinished).then((lost) => {
      for (const { laneKey } of lost) events.missed(laneKey, sinceMs)
    })
    this.pump()
  }

  /** As `#end`, for an entry that somebody else counts. */
  #leave(entry: Entry): void {
    const { lane } = entry
    if (this.#suspect === entry) this.#suspect = undefined
    this.#troubled.delete(entry)
    if (entry.state === 'running') this.#freeSlot(entry)
    entry.end()
    this.lanes.remove(entry)
    this.#wake(lane?.head)
  }

  #freeSlot(entry: Entry): void {
    const { slot } = entry
    entry.slot = undefined
    if (slot === undefined) this.lifecycle.running -= 1
    else slot.leave()
  }
}

/** A handler that failed for the last time can be done after all: its transaction was committed late. */
const endOf = ({ trouble }: Entry): 'done' | 'dead' =>
  trouble?.fatal === undefined || trouble.failed?.length === 0 ? 'done' : 'dead'

const isRefused = (error: unknown): boolean => error instanceof FleethookError && error.code === 'message_refused'

/** For the replay of a dead letter. What cannot be written must not keep its message waiting. */
function changedBy({ change }: Entry): string | undefined {
  try {
    return change?.text()
  } catch {
    return undefined
  }
}
