import { backgroundTimer, type Clock, elapsedMs, type Timer } from '../base/clock.ts'
import type { Log } from '../base/log.ts'
import type { GapEvent, GapReason } from '../events/event.ts'
import { gapEvent, gapOf } from '../events/gap.ts'
import { isBound, type RequestScope } from '../hosting/execution-context.ts'
import type { InboxGap, KeptGap } from '../inbox/inbox.ts'

/** What the reporting of gaps needs of its receiver. */
interface GapHost {
  readonly clock: Clock
  readonly log: Log
  /** For gaps that no request brings. */
  readonly scope: RequestScope
  /** Whether the inbox takes gap events now: they must not take the room that messages need. */
  hasRoom(): boolean
  /** Keeps gap events. Resolves to `undefined` when the inbox does not take them. `settled` resolves when their handlers are done. */
  put(gaps: readonly GapEvent[], from: RequestScope): Promise<{ settled(): Promise<void> } | undefined>
  /** Whether handlers may start. */
  mayHandle(): boolean
  /** The process stood still until now. */
  stoodStill(): void
  /** What is known of these vehicles is uncertain. */
  uncertain(vin: string | undefined, fromMs: number, toMs: number): void
  /** Runs work that no answer waits for: a drain waits for it, and a bound request lives on until it is done. */
  inBackground(from: RequestScope, run: () => Promise<void>): void
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
  readonly open: Gaps
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
    this.open = new Gaps(host.clock)
  }

  /** Every gap whose event is not in the inbox yet. */
  list(): readonly KeptGap[] {
    this.#extendStall()
    return this.open.list()
  }

  /** Messages are missing. With `from`, the inbox has room, so an event reports it at once, or within a second. */
  note({ vin, reason, fromMs, toMs, missed = 0 }: InboxGap, from?: RequestScope): void {
    this.open.note(vin, reason, fromMs, missed, toMs)
    this.#host.uncertain(vin, fromMs, toMs ?? this.#host.clock.now())
    if (from !== undefined) this.soon(from)
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
    const gaps: GapEvent[] = []
    for (let gap = this.#take(); gap !== undefined; gap = this.#take()) gaps.push(gap)
    if (gaps.length === 0) return
    inBackground(from, async () => {
      const stored = await put(gaps, from)
      for (const gap of gaps) this.open.ended(gap, stored !== undefined)
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
      this.#host.stoodStill()
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
    const { hasRoom, put, mayHandle, inBackground } = this.#host
    if (!this.#isStarted || this.#catchingUp !== undefined || this.#underWay >= atOnce || !hasRoom()) return
    const gap = this.#take()
    if (gap === undefined) return
    const signs = this.#signs
    this.#underWay += 1
    inBackground(from, async () => {
      const stored = await put([gap], from)
      this.open.ended(gap, stored !== undefined)
      // Where one gap found room there may be room for another.
      if (stored !== undefined || signs !== this.#signs) this.#emitNext(from)
      if (mayHandle()) await stored?.settled()
      this.#underWay -= 1
      if (stored !== undefined && !isBound(from.context)) this.#emitNext(from)
    })
  }

  #take(): GapEvent | undefined {
    const gap = this.open.take()
    if (this.open.size === 0) this.#stopWaiting()
    return gap
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

/** Lost messages that no gap event reports yet. `last` is the last known loss. */
interface OpenGap {
  readonly vin: string | undefined
  readonly reason: GapReason
  readonly from: Moment
  readonly last: Moment
  /** It ends at `last`, not when it is reported. */
  readonly isOver: boolean
  readonly missed: number
}

/** A time of day, and the same moment on the clock that is never set back. */
interface Moment {
  readonly ms: number
  readonly elapsedMs: number
}

/** Beyond this number of vehicles a gap no longer says which vehicle it concerns. */
const mostGaps = 10_000

/** A smaller difference between the two clocks is not a clock that was set back. */
const driftMs = 1_000

/** Remembers lost messages until a gap event can report them: one gap per VIN and reason. */
class Gaps {
  readonly #clock: Clock
  readonly #open = new Map<string, OpenGap>()
  /** Gaps for whose event the inbox had no room. They are the next to be reported. */
  readonly #returned = new Map<string, OpenGap>()
  /** Events that are being stored. */
  readonly #underWay = new Set<GapEvent>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  get size(): number {
    return this.#open.size + this.#returned.size
  }

  /** A message was lost at `fromMs` or later. `missed` 0: unknown how many. Without `toMs` it lasts until reported. */
  note(vin: string | undefined, reason: GapReason, fromMs: number, missed: number, toMs?: number): void {
    const known = this.#returned.has(key(vin, reason)) || this.#open.has(key(vin, reason))
    const concerned = known || this.#open.size < mostGaps ? vin : undefined
    const gaps = this.#returned.has(key(concerned, reason)) ? this.#returned : this.#open
    widen(gaps, this.#opened(concerned, reason, fromMs, missed, toMs))
  }

  /** Takes the oldest gap as an event. Messages that are lost from now on belong to another gap. */
  take(): GapEvent | undefined {
    const gaps = this.#returned.size > 0 ? this.#returned : this.#open
    const [oldest] = gaps
    if (oldest === undefined) return undefined
    gaps.delete(oldest[0])
    const event = gapEvent(this.#reported(oldest[1], true), this.#clock.now())
    this.#underWay.add(event)
    return event
  }

  /** The inbox has the event, or had no room for it. */
  ended(event: GapEvent, isStored: boolean): void {
    const { vin, reason, from, to, missed } = event
    this.#underWay.delete(event)
    if (isStored) return
    widen(this.#returned, { ...this.#opened(vin, reason, from.getTime(), missed), last: this.#moment(to.getTime()) })
  }

  list(): readonly KeptGap[] {
    const open = [...this.#returned.values(), ...this.#open.values()]
    return [...[...this.#underWay].map(gapOf), ...open.map((gap) => this.#reported(gap, false))]
  }

  /** Its vehicle is erased, so nobody has to learn what is missing of it. */
  forget(vin: string): void {
    for (const gaps of [this.#returned, this.#open]) for (const [at, gap] of gaps) if (gap.vin === vin) gaps.delete(at)
  }

  #opened(vin: string | undefined, reason: GapReason, fromMs: number, missed: number, toMs?: number): OpenGap {
    return {
      vin,
      reason,
      from: this.#moment(fromMs),
      last: this.#moment(Math.max(fromMs, toMs ?? this.#clock.now())),
      isOver: toMs !== undefined && reason !== 'stopped' && reason !== 'restarted',
      missed,
    }
  }

  #moment(ms: number): Moment {
    return { ms, elapsedMs: elapsedMs(this.#clock) - (this.#clock.now() - ms) }
  }

  #reported({ vin, reason, from, last, isOver, missed }: OpenGap, isTaken: boolean): KeptGap {
    const toMs = this.#timeOf(last)
    return {
      vin,
      reason,
      fromMs: this.#timeOf(from),
      toMs: isTaken && !isOver ? Math.max(this.#clock.now(), toMs) : toMs,
      missed,
    }
  }

  /** The time of day of that moment, by the clock as it is now, so that no gap gets longer or shorter. */
  #timeOf({ ms, elapsedMs: thenMs }: Moment): number {
    const nowMs = Math.floor(this.#clock.now() - (elapsedMs(this.#clock) - thenMs))
    return nowMs < ms - driftMs ? nowMs : ms
  }
}

function widen(gaps: Map<string, OpenGap>, gap: OpenGap): void {
  const { vin, reason, from, last, isOver, missed } = gap
  const open = gaps.get(key(vin, reason)) ?? gap
  gaps.set(key(vin, reason), {
    vin,
    reason,
    from: from.elapsedMs < open.from.elapsedMs ? from : open.from,
    last: last.elapsedMs > open.last.elapsedMs ? last : open.last,
    isOver: isOver && open.isOver,
    missed: open === gap ? missed : missed + open.missed,
  })
}

const key = (vin: string | undefined, reason: GapReason): string => `${reason} ${vin ?? ''}`

/** The interval between two ticks. */
const tickMs = 1_000
/** When two ticks are this far apart, a sender may have given up waiting for its answer. */
const standstillMs = 3_000

/**
 * Reports when the process or the machine stood still: a tick is late by one of the clocks. A clock that is set forward
 * looks the same, and a clock without `elapsedMs` cannot show it. Returns what ends the watch.
 */
function watchForStalls(clock: Clock, onStall: (fromMs: number, toMs: number) => void): () => void {
  if (clock.elapsedMs === undefined) return () => {}
  let timer: Timer
  const tick = (): void => {
    const atMs = clock.now()
    const atElapsedMs = elapsedMs(clock)
    timer = backgroundTimer(clock, tickMs, () => {
      const now = clock.now()
      const elapsed = elapsedMs(clock) - atElapsedMs
      // Not only from the delay on: the process can have stood still right after the last tick.
      if (Math.max(elapsed, now - atMs) >= standstillMs)
        onStall(Math.floor(Math.min(atMs, now - elapsed)), Math.max(now, atMs))
      tick()
    })
  }
  tick()
  return () => timer.cancel()
}
