import { backgroundTimer, elapsedMs, type Timer } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import { guardedLog } from '../base/log.ts'
import type { Lifecycle } from '../dispatch/running.ts'
import { labelOf } from '../dispatch/registry.ts'
import { retryOptions } from '../dispatch/retry.ts'
import { Scheduler } from '../dispatch/scheduler.ts'
import { noRequest, type RequestScope, type RequestWork } from '../dispatch/work.ts'
import type { Ack, DrainOptions, DrainResult, Durability, OpenOptions } from '../hosting/drainable.ts'
import { isBound } from '../hosting/execution-context.ts'
import { type Readiness, readinessOf, type Refusal } from '../http/answers.ts'
import type { DeadLetters, Messages, ReplaySelection } from '../inbox/dead-letters.ts'
import type { Inbox, InboxFactory, InboxGap, InboxMessage, Waiting } from '../inbox/inbox.ts'
import type { Observer } from '../inbox/observer.ts'
import { type SyncInbox, syncInboxOf } from '../inbox/memory.ts'
import { vinOf } from '../inbox/receipts.ts'
import type { Stats } from '../inbox/stats.ts'
import { type Backend, type BackendParts, type BackendState, statsOf } from './backend.ts'
import { Gaps } from './gaps.ts'
import { createReplays, deadMessage, type Replays } from './replay.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import { type LocalVehicles, VehicleStates } from '../vehicles/vehicles.ts'
import { watchForStalls } from './stalls.ts'

interface LocalBackendOptions extends BackendParts {
  readonly inbox: InboxFactory
  /** The bindings for work that no request brings: messages that the inbox finds, and gaps. Default: none. */
  readonly scope?: RequestScope
  /**
   * Whether it reports when the process stood still, and forgets silent vehicles by a timer. `false` where time passes without
   * the process, as in a Durable Object, or where another process receives meanwhile. Default `true`.
   */
  readonly watchesTime?: boolean
}

/**
 * How long a gap that the inbox found at `open` waits for the first request: nobody listens yet, and a business that fetches
 * what it missed must not do so too early.
 */
const startMs = 1_000

/**
 * How long messages can still be lost after the process stood still: connections that waited too long fill the kernel's queue,
 * which then refuses new ones.
 */
const catchUpMs = 3_000

/** The longest rest of a recovered message, where retries do not wait longer. */
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
  readonly #inbox: Inbox
  readonly #syncInbox: SyncInbox | undefined
  readonly #scheduler: Scheduler
  readonly #replays: Replays
  readonly #states: VehicleStates | undefined
  #draining: Promise<DrainResult> | undefined
  #opened: Promise<void> | undefined
  #recovered: Promise<void> | undefined
  #readiness: Promise<boolean> | undefined
  /** The number of requests that wait until it is ready, or were released and have not gone on yet. */
  #waiters = 0
  #isRecovered = false
  #isClosed = false
  #gapsUnderWay = 0
  #emits = false
  readonly #longestWaitMs: number
  readonly #watchesTime: boolean
  #stopWatching = (): void => {}
  #forgetting: Timer | undefined
  /** Set when the process stood still a moment ago. Until this timer fires, that gap grows, and no gap is emitted. */
  #catchingUp: Timer | undefined

  constructor({ inbox: createInbox, scope = noRequest, watchesTime = true, ...parts }: LocalBackendOptions) {
    const { settings, registry, receipts, reports } = parts
    const { clock, limits, log, overflow } = settings
    const gaps = new Gaps(clock)
    this.#gaps = gaps
    this.#parts = parts
    this.#scope = scope
    this.#inbox = createInbox({
      pendingMessages: limits.pendingMessages,
      pendingBytes: limits.pendingBytes,
      overflow,
      clock,
      keepsVehicles: parts.vehicles !== undefined,
      // A log that throws must not stop the inbox between a write and its report.
      log: guardedLog(log),
      onConflated: (ids) => {
        reports.noteConflated(ids)
        this.#scheduler.merged(ids)
      },
      onFailure: (error) => reports.dispatch.inboxFailed(error),
      onCapacity: () => this.#emitGap(scope),
      onWaiting: (page) => this.#addWaiting(page),
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
    this.#syncInbox = syncInboxOf(this.#inbox)
    this.durability = this.#inbox.durability
    this.#states = statesOf(parts, this.#inbox)
    this.vehicles = this.#states?.api(() => this.#whenRecovered())
    this.ack = chooseAck(settings.ack, this.durability)
    const retry = retryOptions(settings.retry, this.durability !== 'memory')
    this.#longestWaitMs = Math.max(retry.maxMs, leastRestMs)
    this.#watchesTime = watchesTime
    this.#scheduler = new Scheduler({
      ...settings,
      ack: this.ack,
      retry,
      inbox: this.#inbox,
      syncInbox: this.#syncInbox,
      registry,
      states: this.#states,
      read: receipts.reread,
      events: {
        ...reports.dispatch,
        died: (letter, dropped) => reports.noteDead(deadMessage(letter, receipts.reread), dropped, this.durability),
        missed: (lane, fromMs) => this.noteGap({ vin: vinOf(lane), reason: 'deadline', fromMs, missed: 1 }),
        onCapacity: (request) => {
          if (gaps.size > 0) this.#emitGap(request)
        },
      },
    })
    this.lifecycle = this.#scheduler.lifecycle
    this.#replays = createReplays({
      inbox: this.#inbox,
      open: () => this.open(),
      read: receipts.reread,
      states: this.#states,
      isDraining: () => this.isDraining,
      revived: async (message, from) => {
        reports.noteReplayed(message)
        const request = this.#scheduler.add([message], from, true)
        this.#scheduler.start(request)
        await request.settled()
      },
    })
    this.deadLetters = this.#replays.deadLetters
    this.messages = this.#replays.messages
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
    const request = this.#scheduler.add(messages, from)
    const refused = (error: unknown): Refusal => {
      this.#scheduler.cancel(request)
      return this.#noteRefused(messages, error)
    }
    try {
      if (this.#syncInbox === undefined)
        return this.#inbox.put(messages).then(() => this.#accept(messages, request), refused)
      this.#syncInbox.put(messages)
    } catch (error) {
      return refused(error)
    }
    return this.#accept(messages, request)
  }

  /** The inbox has the messages, so their handlers start. The answer may wait for them. */
  #accept(messages: readonly InboxMessage[], request: RequestWork): undefined | Promise<Refusal | undefined> {
    this.#parts.reports.noteAccepted(messages)
    this.#scheduler.start(request)
    if (this.#gaps.size > 0) this.#startEmitting(request)
    request.context?.watch?.(request.settled())
    return this.ack === 'handled' ? this.#whenHandled(request) : undefined
  }

  async #whenHandled(request: RequestWork): Promise<Refusal | undefined> {
    // No handler of this process will run any more.
    if (this.lifecycle.isStopped) return { error: 'draining' }
    await request.settled()
    if (request.unhandled === 0) return undefined
    return { error: this.lifecycle.isStopped ? 'draining' : 'inbox_unavailable' }
  }

  async putInternal(message: InboxMessage, from: RequestScope): Promise<boolean> {
    return !this.#takesNothing() && (await this.#store([message], from)) !== undefined
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

  /** Messages are missing. Their vehicles are uncertain from now on, and a gap event follows. */
  noteGap({ vin, reason, fromMs, toMs, missed = 0 }: Omit<InboxGap, 'vin'> & { vin?: string | undefined }): void {
    this.#gaps.note(vin, reason, fromMs, missed, toMs)
    this.#states?.noteGap(vin, fromMs, toMs ?? this.#parts.settings.clock.now())
  }

  replay(which: ReplaySelection, from?: Partial<RequestScope>): Promise<number> {
    return this.#replays.replay(which, from)
  }

  drain(options: DrainOptions): Promise<DrainResult> {
    return (this.#draining ??= this.#drain(options))
  }

  readonly stats = (): Stats => statsOf(this, this.#parts.reports)

  readonly observe = (observer: Observer): (() => void) => this.#parts.reports.observers.add(observer)

  readonly readiness = (): Readiness => readinessOf(this.isDraining ? 'draining' : this.refusing())

  readonly handlersOf = (event: FleetEvent | MalformedBody): readonly string[] => this.#parts.registry.namesFor(event)

  state(): BackendState {
    const { counts, lanes } = this.#scheduler
    const { running } = this.lifecycle
    const inbox = this.#inbox.stats?.() ?? {}
    const resting = this.#scheduler.resting().map(({ handler, sinceMs, nextTryMs }) => ({
      handler: labelOf(handler),
      since: new Date(sinceMs),
      nextTryAt: new Date(nextTryMs),
    }))
    return { ...counts, pending: this.#inbox.usage(), inbox, running, lanes, resting, openGaps: this.#gaps.size }
  }

  /** Stores messages whose answer leaves now. */
  #putAfterAnswer(messages: readonly InboxMessage[], from: RequestScope): void {
    const stored = this.#store(messages, from, (error) => {
      this.#noteRefused(messages, error)
      this.#parts.reports.noteLost(messages)
    })
    from.context?.watch?.(stored.then((request) => request?.settled()))
    this.#hold(from, async () => {
      if ((await stored) === undefined) return
      this.#parts.reports.noteAccepted(messages)
      if (this.#gaps.size > 0) this.#startEmitting(from)
    })
  }

  /**
   * Stores messages that no answer waits for. When the inbox does not take them, calls `failed` and resolves to `undefined`.
   */
  async #store(
    messages: readonly InboxMessage[],
    from: RequestScope,
    failed: (error: unknown) => void = () => {},
  ): Promise<RequestWork | undefined> {
    const request = this.#scheduler.add(messages, from)
    try {
      await this.#inbox.put(messages)
    } catch (error) {
      this.#scheduler.cancel(request)
      failed(error)
      return undefined
    }
    this.#scheduler.start(request)
    const { gap } = this.#parts.reports.observers
    if (gap !== undefined) for (const { event } of messages) if (event?.topic === 'gap') gap(event)
    return request
  }

  /** The inbox did not take these messages. Notes the gap, and returns why. */
  #noteRefused(messages: readonly InboxMessage[], error: unknown): Refusal {
    const full = error instanceof FleethookError && error.code === 'inbox_full' ? error : undefined
    const reason = full === undefined ? 'inbox_unavailable' : 'inbox_full'
    if (full === undefined) this.#parts.reports.dispatch.inboxFailed(error)
    for (const { lane, receivedAt } of messages)
      this.noteGap({ vin: vinOf(lane), reason, fromMs: receivedAt, missed: 1 })
    // A full disk and slow handlers need different advice.
    return { error: reason, hint: full?.hint }
  }

  /** A durable inbox keeps messages for the next process until it closes. In memory nobody would handle them. */
  #takesNothing(): boolean {
    return this.#isClosed || (this.lifecycle.isStopped && this.durability === 'memory')
  }

  async #begin(options?: OpenOptions): Promise<void> {
    const { receipts, reports } = this.#parts
    const { lastId, gaps = [], waiting, unapplied } = await this.#inbox.open(options)
    if (lastId !== undefined) receipts.follow(lastId)
    for (const gap of gaps) this.noteGap(gap)
    this.#recovered = this.#during(async () => {
      try {
        await this.#states?.recover(unapplied, receipts.reread, lastId)
        for await (const page of waiting) this.#addWaiting(page)
      } catch (error) {
        reports.dispatch.inboxFailed(error)
      }
      this.#isRecovered = true
      this.#countWaiters(0)
      if (gaps.length === 0) this.#startEmitting(this.#scope)
      else backgroundTimer(this.#parts.settings.clock, startMs, () => this.#startEmitting(this.#scope))
    })
    if (this.#watchesTime && !this.isDraining) this.#watch()
    this.#forgetRegularly()
  }

  /** Messages that this process did not receive: an earlier one left them, or another one received them. */
  #addWaiting(page: readonly Waiting[]): void {
    this.#parts.reports.noteRecovered(page)
    this.#scheduler.start(this.#scheduler.add(this.#clamped(page), this.#scope))
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

  #forgetRegularly(): void {
    const { clock, vehicles } = this.#parts.settings
    const afterMs = vehicles?.forgetAfterMs
    const store = this.#inbox.vehicles
    if (afterMs === undefined || store === undefined || !this.#watchesTime) return
    this.#forgetting = backgroundTimer(clock, Math.min(afterMs / 2, forgetMs), () => {
      store
        .forgetUnseen(clock.now() - afterMs)
        .catch((error: unknown) => this.#parts.reports.dispatch.inboxFailed(error))
      if (!this.isDraining) this.#forgetRegularly()
    })
  }

  #countWaiters(more: number): void {
    this.#waiters += more
    this.isReady = this.#isRecovered && this.#waiters === 0
  }

  /** Shortens waits, so that after the clock was set back no message rests longer than the longest wait of a retry. */
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
    if (!this.#isRecovered || !this.#emits || this.#catchingUp !== undefined) return
    if (this.#gapsUnderWay >= gapsAtOnce || this.#takesNothing()) return
    const gap = gaps.take()
    if (gap === undefined) return
    this.#gapsUnderWay += 1
    this.#hold(from, async () => {
      const request = this.#takesNothing() ? undefined : await this.#store([receipts.gap(gap)], from)
      if (request === undefined) gaps.giveBack(gap)
      else {
        gaps.stored(gap)
        // Where one gap found room there may be room for another.
        this.#emitGap(from)
        if (!this.lifecycle.isStopped) await request.settled()
      }
      this.#gapsUnderWay -= 1
      if (request !== undefined && !isBound(from.context)) this.#emitGap(from)
    })
  }

  async #drain(options: DrainOptions): Promise<DrainResult> {
    const { clock } = this.#parts.settings
    let refusesSinceMs = Infinity
    this.#forgetting?.cancel()
    this.#startEmitting(this.#scope)
    const { takeUntil, notListeningMs = () => 0 } = options
    const refuse = (): void => {
      if (this.isDraining) return
      refusesSinceMs = elapsedMs(clock)
      this.isDraining = true
      this.#stopWatching()
      // Messages that are lost from here on are in the gap of the stop.
      this.#endCatchUp()
      this.#emitGap(this.#scope)
    }
    // An answer that waits for handlers would wait in vain.
    if (takeUntil === undefined || this.ack === 'handled') refuse()
    else takeUntil.then(refuse, refuse)
    const result = await this.#scheduler.drain(options)
    refuse()
    this.#isClosed = true
    this.#parts.reports.noteUnreportedGaps(this.#inbox.keepsGaps === true ? 0 : this.#gaps.size)
    const stoppedForMs = Math.max(elapsedMs(clock) - refusesSinceMs, notListeningMs())
    await this.#inbox.close(clock.now() - Math.ceil(stoppedForMs))
    return result
  }

  async #during(run: () => Promise<void>): Promise<void> {
    this.lifecycle.enter()
    try {
      await run()
    } finally {
      this.lifecycle.leave()
    }
  }

  /**
   * Work that no answer waits for. A drain waits for it, and a runtime that would end it with its request has to keep it
   * alive.
   */
  #hold({ context }: RequestScope, run: () => Promise<void>): void {
    const done = this.#during(run)
    if (isBound(context)) context.waitUntil(done)
  }
}

/** The interval at which vehicles that were not seen are removed, in milliseconds. Each search can read every one of them. */
export const forgetMs = 3_600_000

/** The newest state of each vehicle. Throws `option_invalid` for an inbox that cannot keep it. */
function statesOf({ vehicles, settings }: BackendParts, { vehicles: store }: Inbox): VehicleStates | undefined {
  if (vehicles === undefined) return undefined
  if (store === undefined) {
    throw new FleethookError(
      'option_invalid',
      'Option `vehicles` of createReceiver needs an inbox that keeps the state of vehicles, and this one cannot keep it.',
      { hint: 'Use sqliteInbox(…), durableObjectInbox(…) or memoryInbox().' },
    )
  }
  return new VehicleStates({ ...vehicles, store, clock: settings.clock })
}

/**
 * When the 2xx is sent. The default depends on the inbox. Throws `ack_unavailable` for a promise that the inbox cannot keep.
 */
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
