import { backgroundTimer, type Clock, elapsedMs, type Timer } from '../base/clock.ts'
import type { GapEvent, GapReason } from '../events/event.ts'
import { gapEvent, gapOf } from '../events/gap.ts'
import type { KeptGap } from '../inbox/inbox.ts'

/** Lost messages that no gap event reports yet. */
interface OpenGap {
  readonly vin: string | undefined
  readonly reason: GapReason
  readonly from: Moment
  /** The last known loss. */
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
export class Gaps {
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
  note(vin: string | undefined, reason: GapReason, fromMs: number, missed: number = 1, toMs?: number): void {
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

  /** The event is in the inbox. */
  stored(event: GapEvent): void {
    this.#underWay.delete(event)
  }

  /** The inbox had no room for the event. */
  giveBack(event: GapEvent): void {
    const { vin, reason, from, to, missed } = event
    this.#underWay.delete(event)
    widen(this.#returned, { ...this.#opened(vin, reason, from.getTime(), missed), last: this.#moment(to.getTime()) })
  }

  /** Every gap whose event is not in the inbox yet. */
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
export function watchForStalls(clock: Clock, onStall: (fromMs: number, toMs: number) => void): () => void {
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
