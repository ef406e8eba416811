import { backgroundTimer, type Clock, elapsedMs, type Timer } from '../base/clock.ts'
import type { Log } from '../base/log.ts'
import type { GapEvent } from '../events/event.ts'
import { isBound, type RequestScope } from '../hosting/execution-context.ts'
import type { InboxGap, KeptGap } from '../inbox/inbox.ts'
import { Gaps, watchForStalls } from './gaps.ts'

/** What the reporting of gaps needs of its receiver. */
interface GapHost {
  readonly clock: Clock
  readonly log: Log
  /** For gaps that no request brings. */
  readonly scope: RequestScope
  /** Whether the inbox takes gap events now: they must not take the room that messages need. */
  hasRoom(): boolean
  /** Keeps gap events. Resolves to `undefined` when the inbox does not take them, otherwise to a way to wait for their handlers. */
  put(gaps: readonly GapEvent[], from: RequestScope): Promise<Kept | undefined>
  /** What is known of these vehicles is uncertain. */
  uncertain(vin: string | undefined, fromMs: number, toMs: number): void
  /** Runs work that no answer waits for: a drain waits for it, and a bound request lives on until it is done. */
  hold(from: RequestScope, run: () => Promise<void>): void
}

interface Kept {
  handled(): Promise<void>
}

/** How long messages can still be lost after a stall: connections that waited too long fill the kernel's queue. */
const catchUpMs = 3_000

/** The shortest time between two reports of refused requests, in milliseconds: bodies can be refused as fast as they come. */
const leastMs = 1_000

/** Gap events in the inbox at the same time, when each of them has to be handled here. */
const atOnce = 16

/**
 * Where messages are missing, until a `gap` event in the inbox reports it. There are two ways to report: `emit` for one gap after the other, as
 * the inbox has room, and `emitAll` for all of them in front of messages whose vehicles must be uncertain by then.
 */
export class GapReporting {
  readonly #host: GapHost
  readonly #gaps: Gaps
  #underWay = 0
  /** Rises with each sign of room: room that comes while an event is being refused is room for the next try. */
  #signs = 0
  #isStarted = false
  #isDraining = false
  /** When the gaps of refused requests were last reported. */
  #reportedMs = -Infinity
  /** Ends the wait for their next report. */
  #endWait: (() => void) | undefined
  #stopWatching = (): void => {}
  /** Set when the process stood still a moment ago. Until this timer fires, that gap grows, and `emit` does nothing. */
  #catchingUp: Timer | undefined
  #stalledUntilMs = 0

  constructor(host: GapHost) {
    this.#host = host
    this.#gaps = new Gaps(host.clock)
  }

  /** The number of gaps that no event reports. */
  get size(): number {
    return this.#gaps.size
  }

  /** Every gap whose event is not in the inbox yet. */
  list(): readonly KeptGap[] {
    this.#extendStall()
    return this.#gaps.list()
  }

  /** Messages are missing. With `from`, the inbox has room, so an event reports it at once, or within a second. */
  note({ vin, reason, fromMs, toMs, missed = 0 }: InboxGap, from?: RequestScope): void {
    this.#gaps.note(vin, reason, fromMs, missed, toMs)
    this.#host.uncertain(vin, fromMs, toMs ?? this.#host.clock.now())
    if (from !== undefined) this.soon(from)
  }

  /** Its vehicle is erased. */
  forget(vin: string): void {
    this.#gaps.forget(vin)
  }

  /**
   * Reports gaps of refused requests: now, then at most once a second, and never sooner than `waitMs` from now. They do not wait for the next message
   * that is accepted: whoever sends only what is refused would never hear of it. A bound request is kept alive until then.
   */
  soon(from: RequestScope, waitMs: number = 0): void {
    if (this.#isDraining) return this.start(from)
    if (this.#endWait !== undefined) return
    const { clock } = this.#host
    const report = (): void => {
      this.#reportedMs = elapsedMs(clock)
      this.start(from)
    }
    const restMs = Math.max(waitMs, Math.min(leastMs, this.#reportedMs + leastMs - elapsedMs(clock)))
    if (restMs <= 0) return report()
    const waited = new Promise<void>((resolve) => {
      const timer = backgroundTimer(clock, restMs, () => {
        report()
        this.#stopWaiting()
      })
      this.#endWait = () => {
        timer.cancel()
        resolve()
      }
    })
    if (isBound(from.context)) from.context.waitUntil(waited)
  }

  /** The inbox is open and takes messages. */
  start(from: RequestScope): void {
    this.#isStarted = true
    this.#emitNext(from)
  }

  /** The inbox has room: reports the open gaps, the oldest first. */
  emit(from: RequestScope): void {
    this.#signs += 1
    if (this.#gaps.size > 0) this.#emitNext(from)
  }

  /** Reports all open gaps in one call of `put`, before it returns. */
  emitAll(from: RequestScope): void {
    const { put, hold } = this.#host
    this.#extendStall()
    const gaps: GapEvent[] = []
    for (let gap = this.#take(); gap !== undefined; gap = this.#take()) gaps.push(gap)
    if (gaps.length === 0) return
    hold(from, async () => {
      const kept = await put(gaps, from)
      for (const gap of gaps) this.#ended(gap, kept)
    })
  }

  /** Reports when the process stood still: messages may have been lost meanwhile. */
  watchForStalls(): void {
    const { clock, log, scope } = this.#host
    this.#stopWatching = watchForStalls(clock, (fromMs, toMs) => {
      // What to do: A handler blocked the event loop, the process was paused, or the clock was set forward. It is a `gap`.
      log.warn('the process stood still, and messages may be missing', { ms: toMs - fromMs })
      this.note({ reason: 'stalled', fromMs, toMs })
      this.#stalledUntilMs = toMs
      this.#catchingUp?.cancel()
      this.#catchingUp = backgroundTimer(clock, catchUpMs, () => {
        this.#endCatchUp()
        this.emit(scope)
      })
    })
  }

  /** The receiver refuses messages from now on. What is lost from here on is in the gap of the stop. */
  drain(): void {
    this.#isDraining = true
    this.#stopWatching()
    this.#stopWaiting()
    this.#endCatchUp()
    this.#emitNext(this.#host.scope)
  }

  #emitNext(from: RequestScope): void {
    const { hasRoom, put, hold } = this.#host
    if (!this.#isStarted || this.#catchingUp !== undefined || this.#underWay >= atOnce || !hasRoom()) return
    const gap = this.#take()
    if (gap === undefined) return
    const signs = this.#signs
    this.#underWay += 1
    hold(from, async () => {
      const kept = await put([gap], from)
      this.#ended(gap, kept)
      // Where one gap found room there may be room for another.
      if (kept !== undefined || signs !== this.#signs) this.#emitNext(from)
      await kept?.handled()
      this.#underWay -= 1
      if (kept !== undefined && !isBound(from.context)) this.#emitNext(from)
    })
  }

  #take(): GapEvent | undefined {
    const gap = this.#gaps.take()
    if (this.#gaps.size === 0) this.#stopWaiting()
    return gap
  }

  #ended(gap: GapEvent, kept: Kept | undefined): void {
    if (kept === undefined) this.#gaps.giveBack(gap)
    else this.#gaps.stored(gap)
  }

  #stopWaiting(): void {
    this.#endWait?.()
    this.#endWait = undefined
  }

  #endCatchUp(): void {
    this.#extendStall()
    this.#catchingUp?.cancel()
    this.#catchingUp = undefined
  }

  #extendStall(): void {
    if (this.#catchingUp === undefined) return
    const now = this.#host.clock.now()
    this.note({ reason: 'stalled', fromMs: Math.min(this.#stalledUntilMs, now), toMs: now })
    this.#stalledUntilMs = now
  }
}
