import { backgroundTimer, elapsedMs, type Timer } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import { guardedLog } from '../base/log.ts'
import { Core } from '../core/core.ts'
import { noRequest, type RequestScope, type RequestWork } from '../core/message.ts'
import { drain, resolvedOr } from '../core/draining.ts'
import type { Lifecycle } from '../core/lifecycle.ts'
import type { Part } from '../core/part.ts'
import { retryOptions } from '../core/retry.ts'
import type { Ack, DrainOptions, DrainResult, Durability, OpenOptions } from '../hosting/drainable.ts'
import { isBound } from '../hosting/execution-context.ts'
import { type Readiness, readinessOf, type Refusal } from '../http/answers.ts'
import type { DeadLetters, Forgotten, Messages } from '../inbox/dead-letters.ts'
import type { Inbox, InboxFactory, InboxGap, InboxMessage, Opened, Waiting } from '../inbox/inbox.ts'
import type { Observer, OperatorApi } from '../inbox/observer.ts'
import { laneOf, vinOf } from '../inbox/receipts.ts'
import type { Window } from '../inbox/window.ts'
import { failingOf } from '../inbox/failing.ts'
import type { Failing, Stats } from '../inbox/stats.ts'
import { type Backend, type BackendParts, type BackendState, cannotForget, statsOf } from './backend.ts'
import { GapPace, Gaps, watchForStalls } from './gaps.ts'
import { createReplays, deadMessage, type Replays } from './replay.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { KeptStates } from '../parts/vehicles.ts'
import type { LocalVehicles } from '../vehicles/vehicles.ts'

interface LocalBackendOptions extends BackendParts {
  readonly inbox: InboxFactory
  /** The bindings for work that no request brings: messages that the inbox finds, and gaps. Default: none. */
  readonly scope?: RequestScope
  /** Reports stalls and forgets silent vehicles. `false` where time passes without the process, or others receive. */
  readonly watchesTime?: boolean
  /** Whether messages can wait at the port of this process while it does not run. Default `true`. */
  readonly receives?: boolean
  /** Timers start when this is resolved. Default: at once. */
  readonly timersAfter?: Promise<void> | undefined
}

/** How long a gap found at `open` waits for the first request: before that a refill would come too early. */
const startMs = 1_000

/** How long messages can still be lost after a stall: connections that waited too long fill the kernel's queue. */
const catchUpMs = 3_000

/** The longest rest of a recovered message, where retries do not wait longer: a handler may have asked for it by `Retry`. */
const leastRestMs = 60_000

/** Gap events in the inbox at the same time: they must not take the room that messages need. */
const gapsAtOnce = 16

/** An inbox of this process, and the scheduler that runs the handlers of its messages. */
export class LocalBackend implements Backend {
  readonly ack: Ack
  readonly durability: Durability
  readonly deadLetters: DeadLetters
  readonly vehicles: LocalVehicles | undefined
  readonly messages: Messages
  readonly lifecycle: Lifecycle
  isDraining = false
  isReady = false
  readonly #parts: BackendParts
  readonly #scope: RequestScope
  readonly #gaps: Gaps
  readonly #pace: GapPace
  readonly #inbox: Inbox
  readonly #core: Core
  readonly replay: Replays['replay']
  readonly replaySome: Replays['replaySome']
  /** `undefined`: every message that waits has its place. */
  readonly #window: Window<Waiting> | undefined
  readonly #kept: KeptStates | undefined
  #draining: Promise<DrainResult> | undefined
  #opened: Promise<void> | undefined
  #recovered: Promise<void> | undefined
  #readiness: Promise<boolean> | undefined
  /** The number of requests that wait until it is ready, or were released and have not gone on yet. */
  #waiters = 0
  #isRecovered = false
  /** New requests wait for a moment, because the window is about to be closed. */
  #isHeldBack = false
  /** The newest message of earlier processes. */
  #lastId = ''
  /** Messages of this process with smaller ids, which a branch gets, that wait in the inbox only. */
  readonly #putBefore = new Set<string>()
  /** The bindings of the last request: those of messages that are read from the inbox. */
  #env: unknown
  #isClosed = false
  #gapsUnderWay = 0
  #emits = false
  readonly #longestWaitMs: number
  readonly #watchesTime: boolean
  readonly #timersAfter: Promise<void> | undefined
  #stopWatching = (): void => {}
  /** Set when the process stood still a moment ago. Until this timer fires, that gap grows, and no gap is emitted. */
  #catchingUp: Timer | undefined

  constructor({
    inbox: createInbox,
    scope = noRequest,
    watchesTime = true,
    receives = true,
    timersAfter,
    ...parts
  }: LocalBackendOptions) {
    const { settings, registry, receipts, reports, vehicles } = parts
    const { clock, limits, concurrency, timeoutMs } = settings
    // A log that throws must not stop the inbox between a write and its report.
    const log = guardedLog(settings.log)
    const { inboxFailed } = reports.dispatch
    const gaps = new Gaps(clock)
    this.#gaps = gaps
    this.#pace = new GapPace(clock)
    this.#parts = parts
    this.#scope = scope
    this.#inbox = createInbox({
      pendingMessages: limits.pendingMessages,
      pendingBytes: limits.pendingBytes,
      clock,
      ...(vehicles === undefined ? {} : { keepsVehicles: true, vehiclesInMemory: () => vehicles.inMemory(log) }),
      log,
      onFailure: inboxFailed,
      onCapacity: () => this.#emitGap(scope),
      onWaiting: (page) => this.#addAdopted(page),
      onGone: (ids) => this.#core.gone(ids),
      onDropped: (deadLetters) => reports.noteDropped(deadLetters),
      inLanes: () => this.#core.lanes.messages,
      onRefused: (id, reason) => this.#core.refused(id, reason),
      onGap: (gap) => {
        this.noteGap(gap)
        this.#emitGap(scope)
      },
      openGaps: () => {
        // A crash must not lose counts of refused requests that no gap covers.
        reports.refusals.flush()
        this.#extendStall()
        return gaps.list()
      },
      operator: this,
    })
    this.durability = this.#inbox.durability
    const inbox = this.#inbox
    const kept = vehicles?.in({
      inbox,
      clock,
      receipts,
      watchesTime,
      receives,
      failed: inboxFailed,
      put: (messages) => this.#putOwn(messages, this.#ownScope),
    })
    this.#kept = kept
    this.vehicles = kept?.states.api(() => this.#whenRecovered())
    this.ack = chooseAck(settings.ack, this.durability)
    const retry = retryOptions(settings.retry, this.durability !== 'memory')
    this.#longestWaitMs = Math.max(retry.maxMs, leastRestMs)
    this.#watchesTime = watchesTime
    this.#timersAfter = timersAfter
    const added: Part[] = []
    for (const part of settings.parts) if ('create' in part) added.push(part.create())
    this.#core = new Core({
      clock,
      log: settings.log,
      concurrency,
      timeoutMs,
      retry,
      inbox,
      registry,
      vehicles: kept?.states,
      parts: added,
      read: receipts.reread,
      events: {
        ...reports.dispatch,
        died: (letter, request) => {
          const told = reports.noteDead(deadMessage(letter, receipts.reread), this.durability)
          // On a function, what goes on after the answer is frozen.
          if (told !== undefined) request.alsoWaitFor(this.#during(() => resolvedOr(told, clock, settings.timeoutMs)))
        },
        requestEnds: reports.requestEnds,
        missed: (lane, fromMs) => this.noteGap({ vin: vinOf(lane), reason: 'deadline', fromMs, missed: 1 }),
        onCapacity: (request) => {
          this.#window?.refill()
          if (gaps.size > 0) this.#emitGap(request)
        },
      },
    })
    this.lifecycle = this.#core.lifecycle
    if (this.ack !== 'handled')
      this.#window = inbox.window?.({
        clock,
        add: (page) => this.#addWaiting(page),
        messages: () => (this.lifecycle.startsNoMore ? Infinity : this.#core.lanes.messages),
        holdBack: (until) => this.#holdBack(until),
        failed: inboxFailed,
      })
    const replays = createReplays({
      inbox,
      open: () => this.#whenRecovered(),
      read: receipts.reread,
      isDraining: () => this.isDraining,
      revived: async (message, from) => {
        reports.noteReplayed(message)
        if (this.#window?.includes(message.id) === false) return
        const request = this.#core.add([message], from)
        this.#core.start(request)
        await request.settled()
      },
    })
    this.deadLetters = replays.deadLetters
    this.messages = replays.messages
    this.replay = replays.replay
    this.replaySome = replays.replaySome
  }

  /** For operators that reach it through its inbox. */
  get branches(): NonNullable<OperatorApi['branches']> {
    return this.#parts.behind.branches?.byName ?? new Map<string, OperatorApi>()
  }

  nextTimerMs(): number | undefined {
    return this.#kept?.states.nextTimerMs()
  }

  refusing(): 'inbox_full' | 'inbox_unavailable' | undefined {
    return this.#inbox.refusing()
  }

  put(messages: readonly InboxMessage[], from: RequestScope): Refusal | undefined | Promise<Refusal | undefined> {
    if (messages.length === 0) return undefined
    if (this.#takesNothing()) return { error: 'draining' }
    if (this.ack === 'received' && this.durability !== 'memory') {
      this.#putAfterAnswer(messages, from)
      return undefined
    }
    // When too many messages wait already, these wait in the inbox only.
    const window = this.#windowBefore(messages)
    if (window !== undefined) {
      this.#env = from.env
      for (const { id } of messages) if (id <= this.#lastId) this.#putBefore.add(id)
    }
    const request = this.#core.add(window === undefined ? messages : [], from)
    const refused = (error: unknown): Refusal => {
      this.#core.cancel(request)
      return this.#noteRefused(messages, error, from)
    }
    try {
      const stored =
        window === undefined ? this.#inbox.put(messages) : window.put(messages, () => this.#inbox.put(messages))
      if (stored instanceof Promise) return stored.then(() => this.#accept(messages, request), refused)
    } catch (error) {
      return refused(error)
    }
    return this.#accept(messages, request)
  }

  /** The inbox has the messages, so their handlers start. The answer may wait for them. */
  #accept(messages: readonly InboxMessage[], request: RequestWork): undefined | Promise<Refusal | undefined> {
    this.#parts.reports.noteAccepted(messages)
    this.#core.start(request)
    if (this.#gaps.size > 0) this.#startEmitting(request)
    request.context?.watch?.(request.settled())
    return this.ack === 'handled' ? this.#whenHandled(request, messages) : undefined
  }

  async #whenHandled(request: RequestWork, [first]: readonly InboxMessage[]): Promise<Refusal | undefined> {
    // No handler of this process will run any more.
    if (this.lifecycle.startsNoMore) return { error: 'draining' }
    await request.settled()
    if (request.unhandled > 0) return { error: this.lifecycle.startsNoMore ? 'draining' : 'not_handled_in_time' }
    // Only a dead letter that survives this process can be replayed later.
    if (request.givenUp === undefined || this.durability !== 'memory') return undefined
    const fromMs = first?.receivedAt ?? this.#parts.settings.clock.now()
    for (const lane of request.givenUp) this.noteGap({ vin: vinOf(lane), reason: 'not_handled', fromMs, missed: 1 })
    this.#startEmitting(request)
    return { error: 'not_handled' }
  }

  putInternal(message: InboxMessage, from: RequestScope): Promise<boolean> {
    return this.#putOwn([message], from)
  }

  /**
   * Opens the inbox and goes on with the messages that an earlier process left: once, and before any new message. Resolves
   * when the inbox is open. Rejects when it cannot be opened; the next call tries again.
   */
  open(options?: OpenOptions): Promise<void> {
    this.#opened ??= this.#begin(options).catch((error: unknown) => {
      this.#opened = undefined
      this.#recovered = undefined
      throw error
    })
    return this.#opened
  }

  /** One promise for all requests, so that they go on in the order in which they came, and none overtakes them. */
  becomeReady(): Promise<boolean> {
    this.#countWaiters(1)
    const fromMs = this.#parts.settings.clock.now()
    const shared = (this.#readiness ??= this.#prepare())
    void shared.then((ready) => {
      if (!ready) this.noteGap({ reason: 'inbox_unavailable', fromMs, missed: 1 })
      // By then every request that waited for the same promise has gone on.
      queueMicrotask(() => this.#countWaiters(-1))
    })
    return shared
  }

  /** Messages are missing. Their vehicles are uncertain from now on, and a gap event follows: with `from` at once, because the inbox has room. */
  noteGap(
    { vin, reason, fromMs, toMs, missed = 0 }: Omit<InboxGap, 'vin'> & { vin?: string | undefined },
    from?: RequestScope,
  ): void {
    this.#gaps.note(vin, reason, fromMs, missed, toMs)
    this.#kept?.states.noteGap(vin, fromMs, toMs ?? this.#parts.settings.clock.now())
    if (from === undefined) return
    if (this.isDraining) this.#startEmitting(from)
    else this.#pace.soon(from, (scope) => this.#startEmitting(scope))
  }

  drain(options: DrainOptions): Promise<DrainResult> {
    return (this.#draining ??= this.#drain(options))
  }

  readonly stats = (): Stats => statsOf(this, this.#parts)

  readonly failing = async (): Promise<Failing> => this.#failing(true)

  async forget(vin: string, { dryRun = false }: { readonly dryRun?: boolean } = {}): Promise<Forgotten> {
    await this.#whenRecovered()
    const erase = this.#inbox.forget?.bind(this.#inbox) ?? cannotForget
    if (dryRun) return erase(vin, true)
    const { counts } = this.#core
    const before = counts.forgotten
    this.letGoOf(vin)
    await this.vehicles?.forget(vin)
    const erased = await erase(vin, false)
    // Not all that wait have a place in memory.
    counts.forgotten = Math.max(counts.forgotten, before + erased.waiting)
    this.#parts.reports.observers.forgotten?.(vin)
    return erased
  }

  /** Other processes of the same store erase the rest. */
  letGoOf(vin: string): void {
    this.#core.forget(laneOf(vin))
    this.#gaps.forget(vin)
  }

  readonly observe = (observer: Observer): (() => void) => this.#parts.reports.observers.add(observer)

  readonly readiness = (): Readiness => readinessOf(this.isDraining ? 'draining' : this.refusing())

  readonly handlersOf = (event: FleetEvent | MalformedBody): readonly string[] => this.#parts.registry.namesFor(event)

  state(): BackendState {
    const { counts, lanes } = this.#core
    const { running } = this.lifecycle
    const inbox = this.#inbox.stats?.() ?? {}
    const resting = this.#core.breakers.resting().map(({ handler, sinceMs, nextTryMs }) => ({
      handler,
      since: new Date(sinceMs),
      nextTryAt: new Date(nextTryMs),
    }))
    const pending = this.#inbox.usage()
    const { oldestWaitingMs } = inbox
    const { messages } = pending
    return {
      ...counts,
      pending,
      backlog: { messages, ...(oldestWaitingMs === undefined ? {} : { oldestMs: oldestWaitingMs }), processes: 1 },
      failing: this.#failing(false),
      inbox,
      running,
      lanes: lanes.size,
      resting,
      openGaps: this.#gaps.size,
    }
  }

  #failing(shows: boolean): Failing {
    return failingOf(this.#core.failing(), shows)
  }

  /** Stores messages whose answer leaves now. */
  #putAfterAnswer(messages: readonly InboxMessage[], from: RequestScope): void {
    const stored = this.#store(messages, from, (error) => {
      this.#noteRefused(messages, error, from)
      this.#parts.reports.noteLost(messages)
    })
    from.context?.watch?.(stored.then((request) => request?.settled()))
    this.#hold(from, async () => {
      if ((await stored) === undefined) return
      this.#parts.reports.noteAccepted(messages)
      if (this.#gaps.size > 0) this.#startEmitting(from)
    })
  }

  /** Stores messages that no answer waits for. Calls `failed` and resolves to `undefined` when the inbox refuses. */
  async #store(
    messages: readonly InboxMessage[],
    from: RequestScope,
    failed: (error: unknown) => void = () => {},
  ): Promise<RequestWork | undefined> {
    const window = this.#windowBefore(messages)
    // What several processes share comes back in its order, by `onWaiting`.
    const isHere = window === undefined && this.#inbox.isStillHeld === undefined
    const request = this.#core.add(isHere ? messages : [], from)
    try {
      const put = (): void | Promise<void> => this.#inbox.put(messages)
      await (window === undefined ? put() : window.put(messages, put))
    } catch (error) {
      this.#core.cancel(request)
      failed(error)
      return undefined
    }
    this.#core.start(request)
    const { gap } = this.#parts.reports.observers
    if (gap !== undefined) for (const { event } of messages) if (event?.topic === 'gap') gap(event)
    return request
  }

  /** The inbox did not take these messages. Notes the gap, and returns why. */
  #noteRefused(messages: readonly InboxMessage[], error: unknown, from: RequestScope): Refusal {
    const { code, hint } = error instanceof FleethookError ? error : {}
    const reason = code === 'inbox_full' || code === 'body_too_large' ? code : 'inbox_unavailable'
    if (reason === 'inbox_unavailable') this.#parts.reports.dispatch.inboxFailed(error)
    // There is room for the event of the gap.
    const scope = reason === 'body_too_large' ? from : undefined
    for (const { lane, receivedAt } of messages)
      this.noteGap({ vin: vinOf(lane), reason, fromMs: receivedAt, missed: 1 }, scope)
    // A full disk and slow handlers need different advice.
    return { error: reason, hint: reason === 'inbox_unavailable' ? undefined : hint }
  }

  /** A durable inbox keeps messages for the next process until it closes. In memory nobody would handle them. */
  #takesNothing(): boolean {
    return this.#isClosed || (this.lifecycle.startsNoMore && this.durability === 'memory')
  }

  async #begin(options?: OpenOptions): Promise<void> {
    const { receipts, reports } = this.#parts
    const { lastId, gaps = [], waiting, unapplied } = await this.#inbox.open(options)
    if (lastId !== undefined) receipts.follow(lastId)
    for (const gap of gaps) this.noteGap(gap)
    this.#recovered = this.#during(async () => {
      try {
        const startTimers = await this.#kept?.recover(unapplied, lastId)
        this.#lastId = lastId ?? ''
        await this.#recover(waiting)
        if (this.#timersAfter === undefined) startTimers?.()
        else void this.#timersAfter.then(() => this.lifecycle.startsNoMore || startTimers?.())
      } catch (error) {
        reports.dispatch.inboxFailed(error)
      }
      this.#isRecovered = true
      this.#countWaiters(0)
      if (gaps.length === 0) this.#startEmitting(this.#scope)
      else backgroundTimer(this.#parts.settings.clock, startMs, () => this.#startEmitting(this.#scope))
    })
    if (this.#watchesTime && !this.isDraining) this.#watch()
  }

  async #recover(waiting: Opened['waiting']): Promise<void> {
    if (this.#window === undefined) for await (const page of waiting) this.#addWaiting(page)
    else await this.#window.recover(waiting)
  }

  /** The window, when it has no places for these messages. */
  #windowBefore(messages: readonly InboxMessage[]): Window<Waiting> | undefined {
    const window = this.#window
    return window === undefined || window.takes(messages.at(-1)?.id ?? '') ? undefined : window
  }

  /** Messages that wait in the inbox. Those up to `#lastId` are from an earlier process. */
  #addWaiting(page: readonly Waiting[]): void {
    this.#parts.reports.noteRecovered(page.filter(({ id }) => id <= this.#lastId && !this.#putBefore.delete(id)))
    this.#add(page)
  }

  /** Messages that another process received. */
  #addAdopted(page: readonly Waiting[]): void {
    const known = page.filter(({ id }) => this.#window?.includes(id) !== false)
    this.#parts.reports.noteRecovered(page.filter((each) => known.includes(each) || each.id > this.#lastId))
    this.#add(known)
  }

  #add(page: readonly Waiting[]): void {
    this.#core.start(this.#core.add(this.#clamped(page), this.#ownScope))
  }

  /** New requests wait until the promise resolves, and then go on in the order in which they came. */
  #holdBack(until: Promise<void>): void {
    if (!this.#isRecovered) return
    this.#isHeldBack = true
    this.#countWaiters(0)
    this.#readiness = until.then(() => {
      this.#isHeldBack = false
      this.#countWaiters(0)
      this.#emitGap(this.#scope)
      return true
    })
  }

  #watch(): void {
    const { clock, log } = this.#parts.settings
    this.#stopWatching = watchForStalls(clock, (fromMs, toMs) => {
      guardedLog(log).warn('the process stood still, and messages may be missing', { ms: toMs - fromMs })
      this.noteGap({ reason: 'stalled', fromMs, toMs })
      this.#catchingUp?.cancel()
      this.#catchingUp = backgroundTimer(clock, catchUpMs, () => {
        this.#endCatchUp()
        this.#emitGap(this.#scope)
      })
    })
  }

  #endCatchUp(): void {
    this.#extendStall()
    this.#catchingUp?.cancel()
    this.#catchingUp = undefined
  }

  #extendStall(): void {
    const now = this.#parts.settings.clock.now()
    if (this.#catchingUp !== undefined) this.noteGap({ reason: 'stalled', fromMs: now, toMs: now })
  }

  /** Messages that the receiver made get their places behind those of their vehicles. */
  async #putOwn(messages: readonly InboxMessage[], from: RequestScope): Promise<boolean> {
    return !this.#takesNothing() && (await this.#store(messages, from)) !== undefined
  }

  /** For what no request brought. */
  get #ownScope(): RequestScope {
    const { env = this.#env, context } = this.#scope
    return { env, context }
  }

  #countWaiters(more: number): void {
    this.#waiters += more
    this.isReady = this.#isRecovered && !this.#isHeldBack && this.#waiters === 0
  }

  /** A rest that was read lasts no longer than the longest wait of `retry`: the clock that wrote it may have been ahead. */
  #clamped(page: readonly Waiting[]): readonly Waiting[] {
    const latest = this.#parts.settings.clock.now() + this.#longestWaitMs
    return page.map((waiting) => ((waiting.notBefore ?? 0) > latest ? { ...waiting, notBefore: latest } : waiting))
  }

  async #whenRecovered(): Promise<void> {
    await this.open()
    await this.#recovered
  }

  async #prepare(): Promise<boolean> {
    try {
      await this.#whenRecovered()
      return true
    } catch (error) {
      this.#readiness = undefined
      this.#parts.reports.dispatch.inboxFailed(error)
      return false
    }
  }

  #startEmitting(from: RequestScope): void {
    this.#emits = true
    this.#emitGap(from)
  }

  /** The inbox may have room: emits the open gaps, the oldest first, so that a business can fetch what it missed. */
  #emitGap(from: RequestScope): void {
    const gaps = this.#gaps
    const { receipts } = this.#parts
    if (!this.#isRecovered || !this.#emits || this.#catchingUp !== undefined || this.#window?.isBehind === true) return
    if (this.#gapsUnderWay >= gapsAtOnce || this.#takesNothing()) return
    const gap = gaps.take()
    if (gaps.size === 0) this.#pace.stop()
    if (gap === undefined) return
    this.#gapsUnderWay += 1
    this.#hold(from, async () => {
      const request = this.#takesNothing() ? undefined : await this.#store([receipts.own(gap)], from)
      if (request === undefined) gaps.giveBack(gap)
      else {
        gaps.stored(gap)
        // Where one gap found room there may be room for another.
        this.#emitGap(from)
        if (!this.lifecycle.startsNoMore) await request.settled()
      }
      this.#gapsUnderWay -= 1
      if (request !== undefined && !isBound(from.context)) this.#emitGap(from)
    })
  }

  async #drain(options: DrainOptions): Promise<DrainResult> {
    const { clock } = this.#parts.settings
    let refusesSinceMs = Infinity
    this.#startEmitting(this.#scope)
    const { takeUntil, notListeningMs = () => 0 } = options
    const refuse = (): void => {
      if (this.isDraining) return
      refusesSinceMs = elapsedMs(clock)
      this.isDraining = true
      this.#stopWatching()
      this.#pace.stop()
      // Messages that are lost from here on are in the gap of the stop.
      this.#endCatchUp()
      this.#emitGap(this.#scope)
    }
    // An answer that waits for handlers would wait in vain.
    if (takeUntil === undefined || this.ack === 'handled') refuse()
    else takeUntil.then(refuse, refuse)
    const result = await drain(this.#core, options)
    refuse()
    this.#isClosed = true
    this.#parts.reports.noteUnreportedGaps(this.#inbox.keepsGaps === true ? 0 : this.#gaps.size)
    const stoppedForMs = Math.max(elapsedMs(clock) - refusesSinceMs, notListeningMs())
    const left = this.#window?.isBehind === true ? this.#inbox.usage().messages : result.left
    await this.#inbox.close(clock.now() - Math.ceil(stoppedForMs))
    return { ...result, left }
  }

  async #during(run: () => Promise<void>): Promise<void> {
    this.lifecycle.enter()
    try {
      await run()
    } finally {
      this.lifecycle.leave()
    }
  }

  /** Work that no answer waits for. A drain waits for it, and a bound request is kept alive for it. */
  #hold({ context }: RequestScope, run: () => Promise<void>): void {
    const done = this.#during(run)
    if (isBound(context)) context.waitUntil(done)
  }
}

/** When the 2xx is sent. Throws `ack_unavailable` for a promise that the inbox cannot keep. */
function chooseAck(ack: Ack | undefined, durability: Durability): Ack {
  if (ack === 'stored' && durability === 'memory') {
    throw new FleethookError(
      'ack_unavailable',
      "Option `ack` is 'stored' and the inbox keeps messages in memory only.",
      { hint: "Use a durable inbox, or ack: 'received' or 'handled'." },
    )
  }
  return ack ?? (durability === 'memory' ? 'received' : 'stored')
}
