import { backgroundTimer } from '../base/clock.ts'
import type { Core } from '../core/core.ts'
import type { RequestWork } from '../core/message.ts'
import type { Registry } from '../core/registry.ts'
import { longestAskedMs } from '../core/retry.ts'
import type { TimerEvent } from '../events/event.ts'
import type { GapReporting } from '../gaps/gaps.ts'
import type { Ack, OpenOptions } from '../hosting/drainable.ts'
import type { RequestScope } from '../hosting/execution-context.ts'
import type { Inbox, InboxMessage, Opened, Waiting } from '../inbox/inbox.ts'
import type { Receipts } from '../inbox/receipts.ts'
import type { Window } from '../inbox/window.ts'
import type { Reports } from '../reports/reports.ts'
import type { VehicleStates } from '../vehicles/open.ts'
import type { Following } from './following.ts'
import type { Settings } from './options.ts'

/** The intake whose new requests wait. */
interface ReadinessHost {
  readonly ack: Ack
  readonly inbox: Inbox
  readonly core: Core
  readonly gaps: GapReporting
  readonly states: VehicleStates | undefined
  readonly isDraining: boolean
  /** For what no request brings. */
  readonly scope: RequestScope
  readonly parts: {
    readonly settings: Settings
    readonly registry: Registry
    readonly receipts: Receipts
    readonly reports: Reports
    readonly behind: {
      opened: OpenOptions | undefined
      readonly branches: { open(options: OpenOptions): void } | undefined
    }
  }
  putTimers(timers: readonly TimerEvent[]): Promise<boolean>
  /** A drain waits for it. */
  during(run: () => Promise<void>): Promise<void>
  hintOf(error: unknown): string | undefined
}

/** How long a gap found at `open` waits for the first request: before that a refill would come too early. */
const startMs = 1_000

/** The longest rest of a recovered message, where retries do not wait longer: a handler may have asked for it by `Retry`. */
const leastRestMs = 60_000

/**
 * When new requests go on: the inbox is open, and the messages that it has from earlier have their places in their lanes. Gives places also to
 * messages that the inbox hands over later.
 */
export class Readiness {
  isReady = false
  isRecovered = false
  /** Why the inbox could not be opened. */
  hint: string | undefined
  /** `undefined`: every message that waits has its place. */
  readonly window: Window<Waiting> | undefined
  /** What a branch hears of the inbox of its receiver. */
  readonly following: Following | undefined
  readonly #host: ReadinessHost
  #opened: Promise<void> | undefined
  #recovered: Promise<void> | undefined
  #shared: Promise<boolean> | undefined
  /**
   * What new requests wait for: that earlier messages have their places, a window that is about to be closed, and those requests that wait already,
   * or were released and have not gone on yet.
   */
  #waitsFor = 1
  /** The newest message of earlier processes. */
  #lastId = ''
  /** Messages of this process with smaller ids, which a branch gets, that wait in the inbox only. */
  readonly #putBefore = new Set<string>()
  /** The bindings of the last request whose messages are read from the inbox. */
  #env: unknown

  constructor(host: ReadinessHost, following: Following | undefined) {
    this.#host = host
    this.following = following
    const { ack, inbox, core, parts } = host
    const { lifecycle, lanes } = core
    if (ack !== 'handled')
      this.window = inbox.window?.({
        clock: parts.settings.clock,
        add: (page) => this.#addWaiting(page),
        messages: () => (lifecycle.startsNoMore ? Infinity : lanes.messages),
        holdBack: (until) => this.#holdBack(until),
        failed: parts.reports.inboxFailed,
      })
  }

  /**
   * Opens the inbox and goes on with the messages that an earlier process left: once, and before any new message. Resolves
   * when the inbox is open. Rejects when it cannot be opened; the next call tries again.
   */
  open(options?: OpenOptions): Promise<void> {
    return (this.#opened ??= this.#begin(options).catch((error: unknown) => {
      this.#opened = undefined
      this.#recovered = undefined
      throw error
    }))
  }

  async whenRecovered(): Promise<void> {
    await this.open()
    await this.#recovered
  }

  /** One promise for all requests, so that they go on in the order in which they came, and none overtakes them. */
  becomeReady(): Promise<boolean> {
    const { gaps, parts } = this.#host
    this.#waitFor(1)
    const fromMs = parts.settings.clock.now()
    const shared = (this.#shared ??= this.whenRecovered().then(
      () => true,
      (error: unknown) => {
        this.#shared = undefined
        this.hint = this.#host.hintOf(error)
        parts.reports.inboxFailed(error)
        return false
      },
    ))
    void shared.then((ready) => {
      if (!ready) gaps.note({ reason: 'inbox_unavailable', fromMs, missed: 1 })
      // Every request that waited for the same promise goes on first.
      queueMicrotask(() => this.#waitFor(-1))
    })
    return shared
  }

  /** For what no request brought. */
  get scope(): RequestScope {
    const { env = this.#env ?? this.following?.env, context } = this.#host.scope
    return { env, context }
  }

  /** The inbox gets these messages, and they get their places when it hands them over. */
  expect(messages: readonly InboxMessage[], from: RequestScope): void {
    this.#env = from.env ?? this.#env
    for (const { id } of messages) if (id <= this.#lastId) this.#putBefore.add(id)
  }

  /** Messages that another process received. */
  adopt(page: readonly Waiting[]): void {
    const known = page.filter(({ id }) => this.window?.includes(id) !== false)
    this.#host.parts.reports.noteRecovered(page.filter((each) => known.includes(each) || each.id > this.#lastId))
    this.#add(known)
  }

  async #begin(options: OpenOptions = {}): Promise<void> {
    const { inbox, gaps, parts } = this.#host
    const { receipts, reports, settings, registry, behind } = parts
    const opened = await inbox.open(options)
    const [forward] = registry.ownRetries
    if (settings.branch === undefined && forward !== undefined) reports.noteForward(forward.name)
    if (opened.lastId !== undefined) receipts.follow(opened.lastId)
    for (const gap of opened.gaps ?? []) gaps.note(gap)
    behind.opened = options
    behind.branches?.open(options)
    this.#recovered = this.#host.during(() => this.#recover(opened))
    // A stall of a process that takes no messages is no gap: the others receive. A branch hears of it from its receiver.
    const watches = inbox.time !== 'elsewhere' && inbox.shared?.takesNone === undefined && this.following === undefined
    if (watches && !this.#host.isDraining) gaps.watchForStalls()
  }

  /** Messages of an earlier process get their places, and the timers of their vehicles start. Never rejects. */
  async #recover({ lastId = '', gaps: found = [], waiting, unapplied, gapsKnown }: Opened): Promise<void> {
    const host = this.#host
    const { inbox, core, gaps, parts, scope } = host
    const { time, shared } = inbox
    const { receipts, reports, settings } = parts
    try {
      const states = shared?.handsOut === 'elsewhere' ? undefined : host.states
      await states?.recover(unapplied, receipts.reread, lastId)
      const startTimers = await states?.timers.find(
        (timers) => host.putTimers(timers),
        shared?.takesNone !== undefined ? 'none' : time === 'elsewhere' ? time : 'own',
      )
      this.#lastId = lastId
      this.following?.begin()
      if (this.window === undefined) for await (const page of waiting) this.#addWaiting(page)
      else await this.window.recover(waiting)
      this.following?.end()
      if (gapsKnown === undefined) startTimers?.()
      else void gapsKnown.then(() => core.lifecycle.startsNoMore || startTimers?.())
    } catch (error) {
      reports.inboxFailed(error)
    }
    this.isRecovered = true
    this.#waitFor(-1)
    if (found.length === 0) gaps.start(scope)
    else backgroundTimer(settings.clock, startMs, () => gaps.start(scope))
  }

  /** New requests wait until the promise resolves, and then go on in the order in which they came. */
  #holdBack(until: Promise<void>): void {
    if (!this.isRecovered) return
    this.#waitFor(1)
    this.#shared = until.then(() => {
      this.#waitFor(-1)
      this.#host.gaps.emit(this.#host.scope)
      return true
    })
  }

  #waitFor(more: 1 | -1): void {
    this.#waitsFor += more
    this.isReady = this.#waitsFor === 0
  }

  /** Messages that wait in the inbox. Those up to `#lastId` are from an earlier process. */
  #addWaiting(page: readonly Waiting[]): void {
    const { reports } = this.#host.parts
    reports.noteRecovered(page.filter(({ id }) => id <= this.#lastId && !this.#putBefore.delete(id)))
    const request = this.#add(page)
    this.following?.read(page, request)
  }

  #add(page: readonly Waiting[]): RequestWork {
    const { core, parts } = this.#host
    // A rest lasts no longer than the longest wait of `retry`: the clock that wrote it may have been ahead. A server may ask `forward` to wait longer.
    const askedMs = parts.registry.ownRetries.length > 0 ? longestAskedMs : 0
    const longestMs = Math.max(core.options.retry.maxMs, leastRestMs, askedMs)
    const latest = parts.settings.clock.now() + longestMs
    const clamped = page.map((each) => ((each.notBefore ?? 0) > latest ? { ...each, notBefore: latest } : each))
    const request = core.add(clamped, this.scope)
    core.start(request)
    return request
  }
}
