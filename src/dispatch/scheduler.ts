import type { Clock, Timer } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import type { Log } from '../base/log.ts'
import { PassingMap } from '../base/passing-map.ts'
import type { Ack, DrainOptions, DrainResult } from '../hosting/drainable.ts'
import type { Waiting } from '../inbox/inbox.ts'
import { Attempts, type AttemptsOptions, type DispatchCounts, Outcome, type Verdict } from './attempt.ts'
import { Backlog } from './backlog.ts'
import { Batches, type GatheredBatch } from './batches.ts'
import { Breakers, type RestingHandler } from './breaker.ts'
import { type Drained, drain, giveUp } from './draining.ts'
import { type Dedupe, Duplicates } from './duplicates.ts'
import { Lanes } from './lanes.ts'
import { Lifecycle, Runner, Yielding } from './running.ts'
import { backoffMs } from './retry.ts'
import {
  beginTurn,
  bindTurn,
  block,
  endWork,
  mayJoinPrevious,
  none,
  park,
  type RequestScope,
  RequestWork,
  waitForTurn,
  type Work,
} from './work.ts'

interface SchedulerOptions extends Omit<
  AttemptsOptions,
  'counts' | 'duplicates' | 'runner' | 'outcome' | 'lifecycle' | 'breakers'
> {
  readonly log: Log
  readonly concurrency: number
  readonly order: 'vin' | 'none'
  readonly overflow: 'refuse' | 'conflate'
  readonly ack: Ack
  readonly dedupe: Dedupe | undefined
  readonly timeoutMs: number
}

/** Runs the handlers of messages from the inbox: in order per lane, up to `concurrency` at once, and again when they fail. */
export class Scheduler {
  readonly counts: DispatchCounts = { handled: 0, retried: 0, deadLettered: 0, duplicates: 0, lost: 0 }
  readonly lifecycle: Lifecycle
  readonly #options: SchedulerOptions
  readonly #backlog: Backlog
  readonly #lanes: Lanes<Work>
  readonly #attempts: Attempts
  readonly #batches: Batches
  readonly #yielding: Yielding
  readonly #deadlines: RequestDeadlines
  readonly #drained: Drained
  /** Messages that are merged are merged into the first of their lane, so those behind it have to wait for it. */
  readonly #hasLanes: boolean
  /** Work that can be merged, by its id. None when an answer waits for its message, which then has to keep its own place. */
  readonly #mergeable: PassingMap<string, Work> | undefined
  /** Work that waits for a handler whose circuit breaker is open. */
  readonly #blocked = new Map<object, { readonly untried: Set<Work>; readonly failed: Set<Work> }>()
  readonly #breakers: Breakers
  #started: Work[] = []

  constructor(options: SchedulerOptions) {
    const { inbox, clock, events, order, overflow, ack, dedupe } = options
    this.#options = options
    this.#hasLanes = order === 'vin' || overflow === 'conflate'
    this.#mergeable = overflow === 'conflate' && ack !== 'handled' ? new PassingMap() : undefined
    const lifecycle = new Lifecycle(clock)
    const backlog = new Backlog(options)
    const lanes = new Lanes<Work>((lane, kept) => backlog.restore(lane, kept))
    const runner = new Runner(options)
    const duplicates = dedupe && new Duplicates(dedupe)
    const results = { ...options, counts: this.counts, duplicates }
    const outcome = new Outcome(results)
    const breakers = new Breakers(clock, events, this.#tryBlocked, this.#unblock)
    const batches = new Batches({
      ...{ ...options, counts: this.counts, runner, outcome, lifecycle, breakers },
      onDue: () => this.#pump(),
      runBatch: (batch) => this.#runBatch(batch),
    })
    this.lifecycle = lifecycle
    this.#backlog = backlog
    this.#lanes = lanes
    this.#batches = batches
    this.#breakers = breakers
    this.#attempts = new Attempts({ ...results, runner, outcome, lifecycle, breakers })
    this.#yielding = new Yielding(clock, this.#runStarted)
    this.#deadlines = new RequestDeadlines(clock, (request, sinceMs) => this.#expire(request, sinceMs))
    this.#drained = {
      ...{ inbox, clock, lifecycle, lanes, backlog, runner, outcome, events, counts: this.counts },
      flush: () => this.#pump(),
      stopTimers: () => {
        batches.stop()
        breakers.stop()
      },
    }
  }

  /**
   * Gives messages their places in their lanes, before the inbox has them: their order is the order of these calls. The end
   * of a request can be awaited only when it `isWatched`.
   */
  add(messages: readonly Waiting[], scope: RequestScope, isWatched: boolean = false): RequestWork {
    const request = new RequestWork(messages, scope, isWatched)
    for (const work of request.works) {
      if (request.isBound) bindTurn(work, this.#takeTurn)
      else this.#mergeable?.set(work.id, work)
      this.#lanes.add(this.#hasLanes ? work.laneKey : work.id, work)
    }
    return request
  }

  /** The inbox has the request's messages: their handlers start in a task of their own, after the answer. */
  start(request: RequestWork): void {
    if (request.isBound) this.#deadlines.hold(request)
    const backlog = this.#backlog
    for (const work of request.works)
      if (!backlog.keepsIds || !backlog.shelve(work, this.#lanes)) this.#started.push(work)
    if (!request.isBound) request.works = none
    this.#yielding.later(request.isBound)
  }

  /** The inbox did not take its messages. */
  cancel(request: RequestWork): void {
    for (const work of request.works) {
      this.#end(work)
      request.oneIsOver()
    }
    this.#pump()
  }

  /** Messages were merged into others of their lanes and have no turn of their own. */
  merged(ids: readonly string[]): void {
    for (const id of ids) {
      const work = this.#mergeable?.get(id)
      if (work?.state !== 'waiting') continue
      this.#end(work)
      work.request.oneIsOver()
    }
  }

  /** Ends all work: see `draining.ts`. */
  drain(options: DrainOptions): Promise<DrainResult> {
    return drain(this.#drained, options)
  }

  /** The handlers whose circuit breaker is open. */
  resting(): readonly RestingHandler[] {
    return this.#breakers.resting()
  }

  /** The number of lanes with work. */
  get lanes(): number {
    return this.#lanes.size + this.#backlog.size
  }

  /** Runs in a task of its own, after messages have started. */
  readonly #runStarted = (): void => {
    const started = this.#started
    this.#started = []
    const now = this.#options.clock.now()
    for (const work of started) {
      if (work.notBefore > now) this.#rest(work, work.notBefore - now)
      else this.#lanes.ready(work)
    }
    this.#pump()
    if (this.#backlog.keepsIds) for (const work of started) this.#backlog.shelveHead(work, this.#lanes)
  }

  /** Starts due batches and messages whose turn it is, until `concurrency` of them run. */
  #pump(): void {
    const lifecycle = this.lifecycle
    const batches = this.#batches
    // A drain does not wait until batches are full.
    if (lifecycle.isDraining) batches.flush()
    while (lifecycle.running < this.#options.concurrency && !lifecycle.isStopped) {
      if ((batches.due.length === 0 && this.#lanes.first === undefined) || !this.#yielding.mayStart()) break
      const batch = batches.due.shift()
      if (batch === undefined) {
        const work = this.#lanes.take()
        if (work === undefined) break
        lifecycle.running += 1
        beginTurn(work)
        if (work.gate === undefined) void this.#attempts.attempt(work).then((verdict) => this.#endTurn(work, verdict))
        else work.gate()
      } else {
        lifecycle.running += 1
        if (batch.gate === undefined) this.#runBatch(batch)
        else batch.gate()
      }
    }
    lifecycle.onChange?.()
  }

  /** The turn of a message with a gate, now in the I/O context of its request. */
  readonly #takeTurn = async (work: Work): Promise<void> => {
    if (work.state === 'running') this.#endTurn(work, await this.#attempts.attempt(work))
  }

  #runBatch(batch: GatheredBatch): void {
    void this.#batches.run(batch).then((verdicts) => {
      for (const { work, verdict } of verdicts) this.#leaveBatch(work, verdict)
      this.lifecycle.running -= 1
      this.#pump()
    })
  }

  /** Its turn has ended. A message that rests holds its lane, but no slot of `concurrency`. */
  #endTurn(work: Work, verdict: Verdict): void {
    if (work.state === 'running') {
      if (verdict === 'over') this.#end(work, true)
      else {
        this.lifecycle.running -= 1
        if (verdict === 'gather' && mayJoinPrevious(work)) this.#gather(work)
        else if (typeof verdict === 'number') this.#rest(work, verdict)
        else if (typeof verdict === 'object') this.#block(work, verdict.blockedBy)
        else this.#park(work)
      }
    }
    this.#pump()
  }

  /** It waits in its lane for a handler whose circuit breaker is open. Messages that wait for the same handler are in order. */
  #block(work: Work, handler: object): void {
    block(work)
    let blocked = this.#blocked.get(handler)
    if (blocked === undefined) {
      blocked = { untried: new Set(), failed: new Set() }
      this.#blocked.set(handler, blocked)
    }
    const isKnown = this.#breakers.hasFailedFor(handler, work.laneKey)
    blocked[isKnown ? 'failed' : 'untried'].add(work)
    // The try has ended, so the handler may be tried with a vehicle that it has not failed for.
    if (isKnown) this.#wakeFirst(blocked.untried)
  }

  #wakeFirst(works: Set<Work>): boolean {
    for (const work of works) {
      works.delete(work)
      if (work.state !== 'blocked') continue
      this.#readyAgain(work)
      return true
    }
    return false
  }

  /** A resting handler may be tried with one message. */
  readonly #tryBlocked = (handler: object): void => {
    const blocked = this.#blocked.get(handler)
    if (blocked !== undefined && !this.#wakeFirst(blocked.untried)) this.#wakeFirst(blocked.failed)
    this.#pump()
  }

  /** A resting handler has succeeded again. */
  readonly #unblock = (handler: object): void => {
    const blocked = this.#blocked.get(handler)
    this.#blocked.delete(handler)
    if (blocked === undefined) return
    for (const work of blocked.untried) if (work.state === 'blocked') this.#readyAgain(work)
    // The handler may still fail for these, so they come back one after another.
    for (const work of blocked.failed)
      if (work.state === 'blocked') this.#rest(work, backoffMs(this.#options.retry, work.attempt))
    this.#pump()
  }

  #gather(work: Work): void {
    this.#batches.gather(work)
    this.#lanes.pass(work)
    this.#wake(work.lane?.turn)
  }

  /** Its batch has run. */
  #leaveBatch(work: Work, verdict: 'over' | 'parked' | number): void {
    if (work.state !== 'gathered') return
    if (verdict === 'over') {
      this.#end(work, true)
      return
    }
    const { previous } = work
    if (previous === undefined || previous.batch !== undefined) this.#lanes.recall(work)
    if (verdict === 'parked') this.#park(work)
    else this.#rest(work, verdict)
  }

  /** It waits until those before it in its lane are over, which they may be already. */
  #park(work: Work): void {
    park(work)
    if (work.previous === undefined) this.#wake(work)
  }

  #wake(work: Work | undefined): void {
    if (work?.state === 'parked') this.#readyAgain(work)
  }

  #rest(work: Work, restMs: number): void {
    const goOn = (): void => {
      this.#readyAgain(work)
      this.#pump()
    }
    waitForTurn(work, this.lifecycle.isStopped ? undefined : this.#options.clock.after(restMs, goOn))
  }

  #readyAgain(work: Work): void {
    waitForTurn(work)
    bindTurn(work, this.#takeTurn)
    this.#lanes.ready(work)
  }

  /** It leaves its lane for good, whatever its state. `isSettled`: the inbox no longer has it as waiting. */
  #end(work: Work, isSettled: boolean = false): void {
    const { lane } = work
    if (work.state === 'running') this.lifecycle.running -= 1
    endWork(work)
    this.#lanes.remove(work)
    if (lane?.head !== undefined) this.#wake(lane.head)
    this.#mergeable?.delete(work.id)
    const next = this.#backlog.keepsIds ? this.#backlog.next(this.#lanes) : undefined
    if (next !== undefined) {
      this.#lanes.add(next.id, next)
      this.#lanes.ready(next)
    }
    if (!isSettled) return
    this.#options.events.onCapacity(work.request)
    work.request.oneIsOver()
  }

  /** The runtime is about to end the request's work, or has ended it: what is not finished now never will be. */
  #expire(request: RequestWork, sinceMs: number): void {
    const { runner } = this.#drained
    const reason = new FleethookError(
      'drain_deadline',
      `The work of the request took longer than ${requestWorkMs} ms, and the runtime is about to end it.`,
      { hint: 'Use an inbox that outlives the request, or make the handlers faster.' },
    )
    runner.abort(reason, request)
    const unfinished = request.works.filter((work) => work.state !== 'over')
    for (const work of unfinished) this.#end(work)
    void giveUp(unfinished, this.#drained).then((lost) => {
      for (const { laneKey } of lost) this.#options.events.missed(laneKey, sinceMs)
    })
    this.#pump()
  }
}

/** How long the work of a request may go on after it began. Workers cut off what `waitUntil` holds at 30 seconds. */
const requestWorkMs = 25_000

/** Follows the requests whose work the runtime ends by itself, with or without notice. */
class RequestDeadlines {
  readonly #clock: Clock
  readonly #expire: (request: RequestWork, sinceMs: number) => void
  readonly #held = new Map<RequestWork, number>()
  /** When each request began, as far as it is known: the runtime counts from then. */
  readonly #began = new WeakMap<object, number>()

  constructor(clock: Clock, expire: (request: RequestWork, sinceMs: number) => void) {
    this.#clock = clock
    this.#expire = expire
  }

  /** Keeps the request's work alive until its messages are settled, and calls `expire` when that takes too long. */
  hold(request: RequestWork): void {
    const now = this.#clock.now()
    // The timer of a request is gone when the runtime has ended the request. The requests are nearly in order of age, so this
    // looks at a few at most.
    for (const [other, sinceMs] of this.#held) {
      if (now - sinceMs <= requestWorkMs) break
      this.#end(other, sinceMs)
    }
    const { context } = request
    if (context === undefined) return
    const sinceMs = this.#began.get(context) ?? now
    this.#began.set(context, sinceMs)
    this.#held.set(request, sinceMs)
    const timer = this.#clock.after(Math.max(0, sinceMs + requestWorkMs - now), () => this.#end(request, sinceMs))
    context.waitUntil(this.#settled(request, timer))
  }

  #end(request: RequestWork, sinceMs: number): void {
    if (this.#held.delete(request)) this.#expire(request, sinceMs)
  }

  async #settled(request: RequestWork, timer: Timer): Promise<void> {
    await request.settled()
    timer.cancel()
    this.#held.delete(request)
  }
}
