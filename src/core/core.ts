import { elapsedMs } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import type { DrainOptions, DrainResult } from '../hosting/drainable.ts'
import { crashText, mostCrashes } from '../inbox/crash-suspects.ts'
import type { FailingMessage } from '../inbox/failing.ts'
import type { Claim, Waiting } from '../inbox/inbox.ts'
import type { Delivery, ObservedRun, RunEnd, SettledMessage } from '../inbox/observer.ts'
import { vinOf } from '../inbox/receipts.ts'
import { Gathering, type RunningCore } from './batches.ts'
import { drain, giveUp, RequestDeadlines } from './draining.ts'
import { type Entry, contextHop, type RequestScope, RequestWork, type Step } from './entry.ts'
import { type After, type CoreCounts, type CoreOptions, inboxRestMs, type Turn, type Watchers } from './events.ts'
import { Lanes } from './lanes.ts'
import { Lifecycle, Yielding } from './lifecycle.ts'
import { type Gate, type Hooks, hooksOf, type Opened } from './part.ts'
import { backoffMs, errorText, expectedMs, requestOf } from './retry.ts'
import { type Failure, Runner } from './runner.ts'

/** One attempt at the steps of an entry. */
interface Round {
  at: number
  readonly attemptBefore: number
  readonly left: Step[]
  /** Those of them whose gate is closed. */
  readonly gated: Step[]
  delivery: Delivery | undefined
  /** The error of the step that failed last, and the longest wait that any step asks for. */
  failure: (Failure & { readonly restMs: number }) | undefined
  gate: Gate | undefined
}

/** What an observer learns of an attempt when it has ended. */
interface ObservedEnd extends RunEnd {
  readonly after: After
}

const noSteps: readonly Step[] = []

/** What an entry that waits for those before it in its lane is held by. */
const itsPlace = {}

/** Claims messages from the inbox, runs their handlers and settles them: in order per lane, up to `concurrency` at once. */
export class Core implements RunningCore {
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
  readonly hooks: Hooks
  readonly runner: Runner
  readonly #yielding: Yielding
  readonly #deadlines: RequestDeadlines
  readonly #gatherings = new Map<Step, Gathering>()
  /** Batches to run now. */
  #due: Turn[] = []
  #started: Entry[] = []
  /** The message beside which nothing runs, from the time at which its turn came. */
  #suspect: Entry | undefined
  #isPumping = false
  /** Those that a handler failed for. */
  readonly #troubled = new Set<Entry>()

  constructor(options: CoreOptions) {
    const { clock, log, parts, events } = options
    this.options = options
    this.lifecycle = new Lifecycle(clock)
    this.hooks = hooksOf(parts)
    this.runner = new Runner(options, this.#endedLate)
    this.#yielding = new Yielding(clock, this.#runStarted)
    this.#deadlines = new RequestDeadlines(clock, events, this.#expire)
    for (const part of parts)
      part.attach?.({ clock, log, resume: (entry, afterMs) => this.#resumeLater(entry, afterMs) })
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
      this.hooks.over?.(entry, 'gone')
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
      this.resume(entry)
    }
    this.pump()
  }

  /** Ends all work: see `draining.ts`. */
  drain(options: DrainOptions): Promise<DrainResult> {
    return drain(this, options)
  }

  /** All messages are handled, and nobody keeps what comes later. Resolves to whether parts had more. */
  async last(): Promise<boolean> {
    let hadMore = false
    for (const part of this.options.parts) if ((await part.last?.()) === true) hadMore = true
    return hadMore
  }

  stopTimers(): void {
    for (const part of this.options.parts) part.stop?.()
    for (const gathering of this.#gatherings.values()) gathering.stop()
    this.#due = []
  }

  /** Something that a part, a batch or a timer kept may have its turn again. */
  resume(entry: Entry): void {
    if (entry.state !== 'held') return
    entry.wait()
    this.lanes.ready(entry)
  }

  enqueue(turn: Turn): void {
    this.#due.push(turn)
  }

  /** A batch is done with an entry. `after` is what follows. */
  release(entry: Entry, after: After): void {
    if (entry.state !== 'held') return
    if (after === 'over') {
      this.#end(entry, true)
      return
    }
    if (entry.request.isBound) this.#bind(entry)
    this.lanes.recall(entry)
    this.#keep(entry, after)
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
      const turn = this.#suspect === undefined ? this.#due.shift() : undefined
      if (turn !== undefined) {
        lifecycle.running += 1
        if (turn.hop === undefined) this.takeTurn(turn)
        else turn.hop()
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
      if (entry.hop === undefined) this.#begin(entry)
      else entry.hop()
    }
    this.#isPumping = false
    lifecycle.onChange?.()
  }

  /** The turn of a batch, in its I/O context. */
  takeTurn(turn: Turn): void {
    const end = (): void => {
      this.lifecycle.running -= 1
      this.pump()
    }
    const running = turn.run()
    if (running instanceof Promise) void running.then(end)
    else end()
  }

  /** Writes that the message waits again, and is not tried before `restMs` from now. `attempts` were made. */
  later(entry: Entry, attempts: number, restMs: number): Promise<void> {
    const { inbox, clock } = this.options
    // Attempts that do not count must not make the next process give the message up, by their number or by the time that they took.
    const counted = attempts - (entry.trouble?.exempt ?? 0)
    // A handler that saw it once may see it again, and the next process must know. It takes this for one crash, however many processes
    // stop: too little to make the message a suspect.
    const least = entry.mostAttempts > entry.attemptsBefore ? 1 : 0
    const failure = entry.trouble?.failure
    return inbox.reschedule(entry.id, {
      attempts: counted,
      notBefore: restMs === 0 ? 0 : Math.ceil(clock.now() + restMs),
      deliveries: Math.max(least, counted + entry.crashes),
      ...(failure === undefined ? {} : { failure }),
    })
  }

  /** A step failed. Reports it, and returns the gate at which the message waits, or the time until it is tried again. */
  failed(entry: Entry, step: Step, error: unknown, messages: number = 1): { gate: Gate } | { restMs: number } {
    const { events, clock, retry } = this.options
    const request = requestOf(error)
    // Of a batch, each message is tried alone at once. What a drain aborts has not failed.
    if (messages === 1 && !this.lifecycle.startsNoMore) {
      entry.noteError(step.name, errorText(error), clock.now())
      this.#troubled.add(entry)
    }
    const closed = request === undefined && !this.lifecycle.startsNoMore ? this.hooks.failed?.(entry, step) : undefined
    const restMs = closed?.restMs ?? (request?.kind === 'retry' ? request.afterMs : backoffMs(retry, entry.attempt))
    if (request !== undefined) this.hooks.askedToWait?.(step)
    else if (!this.lifecycle.startsNoMore && entry.event !== undefined) {
      const now = elapsedMs(clock)
      const sinceMs = entry.trouble?.sinceMs ?? now - expectedMs(retry, entry.attemptsBefore)
      const isCertain = closed !== undefined || messages > 1
      const isLast = !isCertain && this.#isSpent(entry, now, sinceMs)
      events.failed(
        error,
        entry.event,
        { id: entry.id, attempt: entry.attempt },
        {
          handler: step.name,
          ...(step.gather === undefined ? {} : { messages }),
          failures: closed?.failures ?? 0,
          nextAtMs: isLast ? undefined : clock.now() + (messages > 1 ? 0 : restMs),
          limit: retry.attempts,
          untilMs: isCertain ? Infinity : clock.now() + Math.round(sinceMs + retry.maxAgeMs - now),
        },
      )
    }
    return closed === undefined ? { restMs } : { gate: closed.gate }
  }

  /** Whether the failed attempt was the last one. Notes that it failed. */
  isLast(entry: Entry): boolean {
    const { clock, retry } = this.options
    const now = elapsedMs(clock)
    return this.#isSpent(entry, now, entry.noteFailure(now, expectedMs(retry, entry.attemptsBefore)))
  }

  /** The messages that wait because a handler failed for them. */
  failing(): readonly FailingMessage[] {
    return [...this.#troubled].flatMap(({ laneKey, trouble }) =>
      trouble?.failure === undefined ? [] : [{ vin: vinOf(laneKey), failure: trouble.failure }],
    )
  }

  /** Settles a message whose steps are done, or gives it up when one of them failed for the last time. */
  conclude(entry: Entry): 'over' | Promise<'over'> {
    const { fatal, failed } = entry.trouble ?? {}
    return fatal === undefined || failed?.length === 0 ? this.#settle(entry, 'done') : this.#die(entry, fatal)
  }

  /** Reports to observers that a message needs no more work. */
  reportSettled(entry: Entry, outcome: SettledMessage['outcome']): void {
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
      else this.resume(entry)
    }
  }

  /** One attempt in the I/O context of its request: claims, runs the steps that still have to succeed, and settles. */
  #begin(entry: Entry): void {
    let after: After | Promise<After>
    try {
      after = entry.claim === undefined ? this.#claim(entry) : this.#goOn(entry)
    } catch (error) {
      after = this.#inboxFailed(error)
    }
    if (!(after instanceof Promise)) this.#endTurn(entry, after)
    else
      void after.catch(this.#inboxFailed).then((then) => {
        this.#endTurn(entry, then)
        this.pump()
      })
  }

  /** Its turn has ended. A message that something keeps holds its lane, but no slot of `concurrency`. */
  #endTurn(entry: Entry, after: After): void {
    if (this.#suspect === entry) this.#suspect = undefined
    if (entry.state !== 'running') return
    if (after === 'over') {
      this.#end(entry, true)
      return
    }
    this.lifecycle.running -= 1
    if (entry.request.isBound) this.#bind(entry)
    const [step] = entry.steps ?? noSteps
    if (after !== 'gather' || step === undefined) this.#keep(entry, after)
    else if (!this.#mayFollow(entry)) this.#keep(entry, 'wait')
    else {
      entry.hold(this.#gatheringOf(step).take(entry))
      this.lanes.pass(entry)
      this.#wake(entry.lane?.turn)
    }
  }

  /** It keeps its place in its lane until it is resumed. */
  #keep(entry: Entry, after: Exclude<After, 'over'>): void {
    if (after === 'wait' || after === 'gather') {
      entry.hold(itsPlace)
      // Those before it may be over already.
      if (entry.previous === undefined) this.#wake(entry)
    } else if (typeof after === 'object') {
      entry.letGo()
      entry.hold(after)
      this.lanes.setAside(entry, true)
      if (!after.keep(entry)) this.resume(entry)
    } else this.#rest(entry, after)
  }

  #rest(entry: Entry, restMs: number): void {
    const goOn = (): void => {
      this.resume(entry)
      this.pump()
    }
    this.lanes.setAside(entry, true)
    entry.rest(this.lifecycle.startsNoMore ? undefined : this.options.clock.after(restMs, goOn))
  }

  /** A gate has opened for it, or opens after `afterMs`. */
  #resumeLater(entry: Entry, afterMs: number = 0): void {
    if (entry.state !== 'held' || entry.heldBy === undefined || !('keep' in entry.heldBy)) return
    if (afterMs > 0) this.#rest(entry, afterMs)
    else {
      this.resume(entry)
      this.pump()
    }
  }

  #wake(entry: Entry | undefined): void {
    if (entry?.heldBy === itsPlace) this.resume(entry)
  }

  #gatheringOf(step: Step): Gathering {
    let gathering = this.#gatherings.get(step)
    if (gathering === undefined) {
      gathering = new Gathering(step, this)
      this.#gatherings.set(step, gathering)
    }
    return gathering
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
   * Whether it may be settled without a handler. The state of its vehicle includes those before it, which may wait in a batch: after a crash, they
   * would find that state and no edge.
   */
  #mayEnd({ previous }: Entry): boolean {
    return previous === undefined || this.hooks.settling === undefined
  }

  /** Binds its next turn to the I/O context in which this is called. */
  #bind(entry: Entry): void {
    entry.hop = contextHop(() => {
      if (entry.state !== 'running') return
      this.#begin(entry)
      this.pump()
    })
  }

  readonly #inboxFailed = (error: unknown): After => {
    this.options.events.inboxFailed(error)
    return inboxRestMs
  }

  /** No handler saw it, so its claim must not look like one that ended its process. */
  readonly #openFailed = (entry: Entry, error: unknown): After | Promise<After> => {
    const { inboxFailed } = this.options.events
    inboxFailed(error)
    return this.later(entry, entry.attempt, inboxRestMs)
      .catch(inboxFailed)
      .then(() => inboxRestMs)
  }

  #claim(entry: Entry): After | Promise<After> {
    const claim = this.options.inbox.claim(entry.id)
    return claim instanceof Promise ? claim.then((found) => this.#claimed(entry, found)) : this.#claimed(entry, claim)
  }

  /** It waited since it was handed out. Another process may have it now. */
  #goOn(entry: Entry): After | Promise<After> {
    const held = this.options.inbox.isStillHeld?.(entry.id)
    if (held === undefined) return this.#admit(entry)
    return held.then((isHeld) => (isHeld && !entry.isOver ? this.#admit(entry) : 'over'))
  }

  #claimed(entry: Entry, claim: Claim | undefined): After | Promise<After> {
    // Ended while we waited; already counted.
    if (entry.isOver) return 'over'
    if (claim === undefined) return 'over'
    try {
      entry.open(claim, claim.message.event ?? this.options.read(claim.message))
    } catch (error) {
      entry.claim = claim
      entry.failForGood(errorText(error))
    }
    if (entry.steps !== undefined) return this.#admit(entry)
    entry.crashes = Math.max(0, claim.deliveries - entry.attemptsBefore)
    const spent = claim.deliveries > 0 || entry.attemptsBefore > 0 ? this.#whySpent(entry) : undefined
    if (spent !== undefined) entry.failForGood(spent)
    // A message changes the state of its vehicle even when it is given up, unless that ends the process, too.
    const opens = entry.event !== undefined && entry.crashes <= mostCrashes
    try {
      const keys = opens ? this.hooks.open?.(entry) : undefined
      if (!(keys instanceof Promise)) return this.#opened(entry, keys)
      return keys.then(
        (found) => this.#opened(entry, found),
        (error: unknown) => this.#openFailed(entry, error),
      )
    } catch (error) {
      entry.failForGood(errorText(error))
      return this.#opened(entry, undefined)
    }
  }

  #opened(entry: Entry, keys: Opened | undefined): After | Promise<After> {
    if (entry.isOver) return 'over'
    const { event } = entry
    entry.steps =
      event === undefined || entry.trouble?.fatal !== undefined
        ? noSteps
        : this.options.registry.stepsFor(event, entry, keys)
    return this.#admit(entry)
  }

  /** Runs its steps, if it may run now. */
  #admit(entry: Entry): After | Promise<After> {
    const { steps = noSteps } = entry
    if (steps.length === 0) return this.#mayEnd(entry) ? this.conclude(entry) : 'wait'
    if (entry.previous !== undefined && !this.#mayFollow(entry)) return 'wait'
    if (entry.mayBeSkipped) {
      const admitted = this.hooks.admit?.(entry)
      if (admitted === 'wait') return 'wait'
      if (admitted === 'skip') return this.#mayEnd(entry) ? this.#settle(entry, 'skipped') : 'wait'
      entry.admit()
    }
    const { around } = this.options.events.observers
    const runs = steps[0]?.gather === undefined || entry.isAlone
    if (around === undefined || !runs || this.lifecycle.startsNoMore) return this.#run(entry, newRound(entry))
    return this.#observed(entry, around)
  }

  async #observed(entry: Entry, around: NonNullable<Watchers['around']>): Promise<After> {
    if (entry.event === undefined) return 'over'
    const what: ObservedRun = {
      messages: [{ event: entry.event, delivery: entry.delivery(entry.attempt + 1) }],
      isBatch: entry.isAlone,
    }
    const { after } = await around(async (): Promise<ObservedEnd> => {
      const round = newRound(entry)
      let end: After
      try {
        end = await this.#run(entry, round)
      } catch (error) {
        end = this.#inboxFailed(error)
      }
      return { after: end, failure: round.failure && { error: round.failure.error } }
    }, what)
    return after
  }

  #run(entry: Entry, round: Round): After | Promise<After> {
    const { steps = noSteps } = entry
    while (round.at < steps.length) {
      const step = steps[round.at]
      if (step === undefined || (step.gather !== undefined && !(entry.isAlone && round.at === 0))) break
      round.at += 1
      const runsNoMore = this.lifecycle.startsNoMore || entry.isOver
      // A gate that lets it pass counts on the run, so it is not asked when nothing runs any more.
      const gate = runsNoMore ? undefined : this.hooks.gate?.(entry, step)
      if (runsNoMore || gate !== undefined) {
        round.left.push(step)
        if (gate !== undefined) round.gated.push(step)
        round.gate ??= gate
        continue
      }
      if (round.delivery === undefined) {
        entry.countAttempt(this.counts)
        round.delivery = entry.delivery()
      }
      const result =
        step.gather === undefined
          ? this.runner.run(step, entry, round.delivery)
          : this.runner.runBatch(step, [entry], entry.request)
      if (result instanceof Promise)
        return result.then((failure) => {
          this.#ran(entry, step, failure, round)
          return this.#run(entry, round)
        })
      this.#ran(entry, step, result, round)
    }
    return this.#afterSteps(entry, round)
  }

  #ran(entry: Entry, step: Step, failure: Failure | undefined, round: Round): void {
    if (entry.isGone) {
      round.failure = failure && { error: failure.error, restMs: 0 }
      return
    }
    const request = failure && requestOf(failure.error)
    if (failure === undefined || request?.kind === 'discard') {
      this.hooks.succeeded?.(step)
      if (request?.kind === 'discard') this.options.events.discarded(request.reason, entry.event?.topic ?? '', 1)
      return
    }
    round.left.push(step)
    const next = this.failed(entry, step, failure.error)
    if ('gate' in next) {
      round.gated.push(step)
      round.gate ??= next.gate
    } else round.failure = { error: failure.error, restMs: Math.max(round.failure?.restMs ?? 0, next.restMs) }
  }

  /** What follows when every step of the attempt has run, failed or was left out. */
  #afterSteps(entry: Entry, { at, left, gated, failure, gate, attemptBefore }: Round): After | Promise<After> {
    if (entry.isOver) return 'over'
    const { steps = noSteps } = entry
    const toGather = at < steps.length ? steps.slice(at) : noSteps
    if (this.lifecycle.startsNoMore && left.length + toGather.length > 0) {
      entry.leave([...left, ...toGather])
      // A batch counts its own attempts, and had none.
      return this.later(entry, Math.min(attemptBefore, entry.attempt), 0).then(() => 0)
    }
    const isLast = failure !== undefined && this.isLast(entry)
    if (isLast)
      entry.failForGood(
        errorText(failure.error),
        left.filter((step) => !gated.includes(step)),
      )
    const again = isLast ? gated : left
    if (again.length > 0) {
      entry.leave([...again, ...toGather])
      if (failure !== undefined && !isLast)
        return this.later(entry, entry.attempt, failure.restMs).then(() => failure.restMs)
      if (gate !== undefined) {
        // No handler failed but those that fail for every vehicle.
        if (failure === undefined && entry.attempt > attemptBefore) entry.exemptAttempt()
        return this.later(entry, entry.attempt, 0).then(() => gate)
      }
    } else entry.leave(toGather)
    if (toGather.length === 0) return this.conclude(entry)
    if (!entry.isSuspect) return 'gather'
    // At once: its claim counts, and another suspect's turn must not come between.
    entry.beAlone()
    return this.#admit(entry)
  }

  #settle(entry: Entry, outcome: 'done' | 'skipped'): 'over' | Promise<'over'> {
    const settled = this.options.inbox.settle(entry.id, this.hooks.settling?.(entry))
    return settled instanceof Promise
      ? settled.then(() => this.#settled(entry, outcome))
      : this.#settled(entry, outcome)
  }

  #settled(entry: Entry, outcome: 'done' | 'skipped'): 'over' {
    if (entry.isGone) return 'over'
    this.hooks.over?.(entry, outcome)
    if (entry.counts) this.counts[outcome === 'done' ? 'handled' : 'duplicates'] += 1
    if (this.options.events.observers.settled !== undefined)
      this.reportSettled(entry, outcome === 'done' ? 'handled' : 'duplicate')
    return 'over'
  }

  async #die(entry: Entry, error: string): Promise<'over'> {
    const { inbox, clock, events } = this.options
    const { id, claim } = entry
    if (claim === undefined) return 'over'
    const vehicle = this.hooks.settling?.(entry)
    const reason = { error, attempts: entry.mostAttempts, diedAt: clock.now() }
    const [changed, marks] = [this.#changedBy(entry), entry.missingMarks]
    const dropped = await inbox.deadLetter(
      id,
      {
        ...reason,
        ...(changed === undefined ? {} : { changed }),
        ...(marks === undefined ? {} : { marks }),
      },
      vehicle,
    )
    if (entry.isGone) return 'over'
    if (dropped === 'handled') {
      entry.trouble = undefined
      return this.#settled(entry, 'done')
    }
    this.hooks.over?.(entry, 'dead')
    if (entry.counts) this.counts.deadLettered += 1
    events.died({ id, message: claim.message, ...reason }, dropped, entry.request)
    // Meanwhile its handler was done.
    if (entry.trouble?.failed?.length === 0) this.#takeBack(entry)
    return 'over'
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

  /** For the replay of a dead letter. What cannot be written must not keep its message waiting. */
  #changedBy(entry: Entry): string | undefined {
    try {
      return this.hooks.changed?.(entry)
    } catch {
      return undefined
    }
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
    void giveUp(unfinished, this).then((lost) => {
      for (const { laneKey } of lost) events.missed(laneKey, sinceMs)
    })
    this.pump()
  }

  /** As `#end`, for an entry that somebody else counts. */
  #leave(entry: Entry): void {
    const { lane } = entry
    this.#troubled.delete(entry)
    if (this.#suspect === entry) this.#suspect = undefined
    if (entry.state === 'running') this.lifecycle.running -= 1
    entry.end()
    this.lanes.remove(entry)
    this.#wake(lane?.head)
  }
}

const newRound = (entry: Entry): Round => ({
  at: 0,
  attemptBefore: entry.attempt,
  left: [],
  gated: [],
  delivery: undefined,
  failure: undefined,
  gate: undefined,
})
