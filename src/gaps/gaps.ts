import { backgroundTimer, type Clock, elapsedMs, type Timer } from '../base/clock.ts'
import type { Log } from '../base/log.ts'
import type { GapEvent, GapReason } from '../events/event.ts'
import { gapEvent, gapOf } from '../events/gap.ts'
import { isBound, type RequestScope } from '../hosting/execution-context.ts'
import { driftMs } from '../inbox/delivery-id.ts'
import type { InboxGap, KeptGap } from '../inbox/inbox.ts'

interface GapHost {
  readonly clock: Clock
  readonly log: Log
  /** For gaps that no request brings. */
  readonly scope: RequestScope
  /** Whether the inbox takes gap events now: they must not take the room that messages need. */
  hasRoom(): boolean
  /** Keeps gap events. Resolves to `undefined` when the inbox does not take them. `settled` resolves when their handlers are done. */
  put(gaps: readonly GapEvent[], from: RequestScope): Promise<{ settled(): Promise<void> } | undefined>
  mayHandle(): boolean
  stoodStill(): void
  /** What is known of these vehicles is uncertain. */
  uncertain(gap: KeptGap): void
  /** Runs work that no answer waits for: a drain waits for it, and a bound request lives on until it is done. */
  inBackground(from: RequestScope, run: () => Promise<void>): void
}

/** How long messages can still be lost after a stall: connections that waited too long fill the kernel's queue. */
const catchUpMs = 3_000

/** The interval between two ticks. When two are as far apart as a standstill, a sender may have given up waiting for its answer. */
const tickMs = 1_000
const standstillMs = 3_000

/** The shortest time between two reports of refused requests, in milliseconds: bodies can be refused as fast as they come. */
const leastMs = 1_000

/** Gap events in the inbox at the same time, when each of them has to be handled here. */
const atOnce = 16

/** Beyond this number of vehicles a gap no longer says which vehicle it concerns. */
const mostGaps = 10_000

/** A time of day, and the same moment on the clock that is never set back. */
interface Moment {
  readonly ms: number
  readonly elapsedMs: number
}

/** Lost messages of a vehicle, for one reason. `last` is the last known loss. */
interface Gap {
  readonly vin: string | undefined
  readonly reason: GapReason
  readonly from: Moment
  readonly last: Moment
  /** It ends at `last`, not when it is reported. */
  readonly isOver: boolean
  readonly missed: number
}

/** What is missing of a vehicle, for one reason. */
interface OpenGap {
  readonly vin: string | undefined
  /** What no event reports yet. */
  lost: Gap | undefined
  /** Events that are being stored, and what they report. */
  readonly underWay: Map<GapEvent, Gap>
}

/**
 * Where messages are missing, until a `gap` event in the inbox reports it. There are two ways to report: `emit` for one gap after the other, as
 * the inbox has room, and `emitAll` for all of them, in front of messages whose vehicles must be uncertain first.
 */
export class GapReporting {
  /** The oldest first, one for each vehicle and reason. */
  readonly open: Map<string, OpenGap> = new Map()
  readonly #host: GapHost
  /** Events that are being stored, or were and are not handled. */
  #inInbox = 0
  /** Rises with each sign of room: room that comes while an event is being refused is room for the next try. */
  #signs = 0
  #isStarted = false
  #isDraining = false
  /** When the gaps of refused requests were last reported. */
  #reportedMs = -Infinity
  /** Ends the wait for their next report. */
  #endWait: (() => void) | undefined
  #tick: Timer | undefined
  /** Set when the process stood still a moment ago. Until this timer fires, that gap grows, and `emit` does nothing. */
  #catchingUp: Timer | undefined
  #stalledUntilMs = 0

  constructor(host: GapHost) {
    this.#host = host
  }

  list(): readonly KeptGap[] {
    this.#extendStall()
    return [...this.open.values()].flatMap(({ underWay, lost }) => [
      ...[...underWay.keys()].map(gapOf),
      ...(lost === undefined ? [] : [this.#reported(lost, false)]),
    ])
  }

  /** Messages are missing. With `from`, the inbox has room, so an event reports it at once, or within a second. */
  note({ vin, reason, fromMs, toMs, missed = 0 }: InboxGap, from?: RequestScope): void {
    const now = this.#host.clock.now()
    const isKnown = this.open.has(keyOf({ vin, reason }))
    const gap: Gap = {
      vin: isKnown || this.open.size < mostGaps ? vin : undefined,
      reason,
      from: this.#moment(fromMs),
      last: this.#moment(Math.max(fromMs, toMs ?? now)),
      isOver: toMs !== undefined && reason !== 'stopped' && reason !== 'restarted',
      missed,
    }
    const open = this.open.get(keyOf(gap))
    if (open === undefined) this.open.set(keyOf(gap), { vin: gap.vin, lost: gap, underWay: new Map() })
    else open.lost = widened(gap, open.lost)
    this.#host.uncertain({ vin, reason, fromMs, toMs: toMs ?? now, missed })
    if (from !== undefined) this.soon(from)
  }

  /** Its vehicle is erased, so nobody has to learn what is missing of it. */
  forget(vin: string): void {
    for (const [key, open] of this.open) if (open.vin === vin) this.open.delete(key)
  }

  /**
   * Reports gaps of refused requests: now, then at most once a second, and never sooner than `waitMs` from now. They do not wait for the next message
   * that is accepted: a sender of which everything is refused would never hear of it. A bound request is kept alive until then.
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
    if (this.open.size > 0) this.#emitNext(from)
  }

  /** Reports all open gaps in one call of `put`, before it returns. */
  emitAll(from: RequestScope): void {
    const { put, inBackground } = this.#host
    this.#extendStall()
    const gaps = [...this.#take()]
    if (gaps.length === 0) return
    inBackground(from, async () => {
      const stored = await put(gaps, from)
      for (const gap of gaps) this.#ended(gap, stored !== undefined)
    })
  }

  /**
   * Reports when the process or the machine stood still, because messages may have been lost in that time: a tick is late by one of the clocks. A clock
   * that is set forward looks the same, and a clock without `elapsedMs` cannot show it.
   */
  watchForStalls(): void {
    const { clock } = this.#host
    if (clock.elapsedMs === undefined) return
    const atMs = clock.now()
    const atElapsedMs = elapsedMs(clock)
    this.#tick = backgroundTimer(clock, tickMs, () => {
      const now = clock.now()
      const elapsed = elapsedMs(clock) - atElapsedMs
      // Not only from the delay on: the process can have stood still right after the last tick.
      if (Math.max(elapsed, now - atMs) >= standstillMs)
        this.#stoodStill(Math.floor(Math.min(atMs, now - elapsed)), Math.max(now, atMs))
      this.watchForStalls()
    })
  }

  /** The receiver refuses messages from now on. What is lost from here on is in the gap of the stop. */
  drain(): void {
    this.#isDraining = true
    this.#tick?.cancel()
    this.#stopWaiting()
    this.#endCatchUp()
    this.#emitNext(this.#host.scope)
  }

  #emitNext(from: RequestScope): void {
    const { hasRoom, put, mayHandle, inBackground } = this.#host
    if (!this.#isStarted || this.#catchingUp !== undefined || this.#inInbox >= atOnce || !hasRoom()) return
    const [gap] = this.#take()
    if (gap === undefined) return
    const signs = this.#signs
    this.#inInbox += 1
    inBackground(from, async () => {
      const stored = await put([gap], from)
      this.#ended(gap, stored !== undefined)
      // Where one gap found room there may be room for another.
      if (stored !== undefined || signs !== this.#signs) this.#emitNext(from)
      if (mayHandle()) await stored?.settled()
      this.#inInbox -= 1
      if (stored !== undefined && !isBound(from.context)) this.#emitNext(from)
    })
  }

  /** Takes what no event reports yet. */
  *#take(): Generator<GapEvent> {
    for (const open of this.open.values()) {
      if (open.lost === undefined) continue
      const event = gapEvent(this.#reported(open.lost, true), this.#host.clock.now())
      open.underWay.set(event, open.lost)
      open.lost = undefined
      yield event
    }
  }

  /** The inbox has the event, or had no room for it. */
  #ended(event: GapEvent, isStored: boolean): void {
    const open = this.open.get(keyOf(event))
    const gap = open?.underWay.get(event)
    if (open === undefined || gap === undefined) return
    open.underWay.delete(event)
    if (!isStored) open.lost = widened(gap, open.lost)
    if (open.lost === undefined && open.underWay.size === 0) this.open.delete(keyOf(event))
    if (this.open.size === 0) this.#stopWaiting()
  }

  #stopWaiting(): void {
    this.#endWait?.()
    this.#endWait = undefined
  }

  #stoodStill(fromMs: number, toMs: number): void {
    const { clock, log, scope, stoodStill } = this.#host
    // What to do: A handler blocked the event loop, the process was paused, or the clock was set forward. It is a `gap`.
    log.warn('the process stood still, and messages may be missing', { ms: toMs - fromMs })
    this.note({ reason: 'stalled', fromMs, toMs })
    this.#stalledUntilMs = toMs
    stoodStill()
    this.#catchingUp?.cancel()
    this.#catchingUp = backgroundTimer(clock, catchUpMs, () => {
      this.#endCatchUp()
      this.emit(scope)
    })
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

  #reported({ vin, reason, from, last, isOver, missed }: Gap, isTaken: boolean): KeptGap {
    const untilMs = isTaken && !isOver ? this.#host.clock.now() : -Infinity
    return { vin, reason, fromMs: this.#timeOf(from), toMs: Math.max(untilMs, this.#timeOf(last)), missed }
  }

  #moment(ms: number): Moment {
    const { clock } = this.#host
    return { ms, elapsedMs: elapsedMs(clock) - (clock.now() - ms) }
  }

  /** The time of day of that moment, by the clock as it is now, so that no gap gets longer or shorter. */
  #timeOf({ ms, elapsedMs: thenMs }: Moment): number {
    const { clock } = this.#host
    const nowMs = Math.floor(clock.now() - (elapsedMs(clock) - thenMs))
    return nowMs < ms - driftMs ? nowMs : ms
  }
}

const keyOf = ({ vin, reason }: { readonly vin?: string | undefined; readonly reason: GapReason }): string =>
  `${reason} ${vin ?? ''}`

function widened(gap: Gap, known: Gap = gap): Gap {
  const { vin, reason, from, last, isOver, missed } = gap
  return {
    vin,
    reason,
    from: from.elapsedMs < known.from.elapsedMs ? from : known.from,
    last: last.elapsedMs > known.last.elapsedMs ? last : known.last,
    isOver: isOver && known.isOver,
    missed: known === gap ? missed : missed + known.missed,
  }
}
