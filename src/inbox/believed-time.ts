import { type Clock, elapsedMs } from '../base/clock.ts'

/** The line of the log while a clock is not believed. */
export const clockAhead = 'the clock is far ahead of the last known time: nothing is deleted by it for an hour'

/** A smaller difference is no jump. */
const toleranceMs = 60_000
/** How long a clock has to stay ahead before it is believed, and how much of a downtime is believed at once, in milliseconds. */
const confirmMs = 3_600_000

/**
 * The time that deletes what is too old. A clock that jumps forward must not delete anything: the time that it skipped counts only once it has
 * stayed ahead for an hour. Until then, time goes on as it passes. After a start, the clock is compared with the newest time that was believed
 * before.
 */
export class BelievedTime {
  readonly #clock: Clock
  readonly #onAhead: (aheadMs: number) => void
  #ms: number
  /** When that was, by the clock that is never set. */
  #atMs: number
  /** How far the clock is ahead of what is believed, and since when. */
  #ahead: { readonly ms: number; readonly sinceMs: number } | undefined

  /** `onAhead` is called when the clock is ahead by much. */
  constructor(clock: Clock, onAhead: (aheadMs: number) => void = () => {}) {
    this.#clock = clock
    this.#onAhead = onAhead
    this.#ms = clock.now()
    this.#atMs = elapsedMs(clock)
  }

  /** An earlier process believed this time. */
  follow(knownMs: number): void {
    this.#ms = Math.min(this.#clock.now(), knownMs + confirmMs)
    this.#atMs = elapsedMs(this.#clock)
  }

  /** Milliseconds since the epoch. Ask at least every few minutes: a jump is what happened between two calls. */
  now(): number {
    const [atMs, clockMs] = [elapsedMs(this.#clock), this.#clock.now()]
    const believedMs = this.#ms + (atMs - this.#atMs)
    const aheadMs = clockMs - believedMs
    const isAhead = aheadMs > toleranceMs
    if (!isAhead) this.#ahead = undefined
    else if (this.#ahead === undefined || aheadMs > this.#ahead.ms + toleranceMs) {
      this.#ahead = { ms: aheadMs, sinceMs: atMs }
      if (aheadMs > confirmMs) this.#onAhead(aheadMs)
    }
    const isConfirmed = this.#ahead !== undefined && atMs - this.#ahead.sinceMs >= confirmMs
    this.#ms = Math.floor(isAhead && !isConfirmed ? believedMs : clockMs)
    this.#atMs = atMs
    if (isConfirmed) this.#ahead = undefined
    return this.#ms
  }
}
