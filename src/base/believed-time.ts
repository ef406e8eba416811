import { type Clock, elapsedMs } from './clock.ts'

/** The line of the log while a clock is not believed. */
// What to do: The machine was off for long, or its clock jumped by `aheadMs`.
export const clockAhead = 'the clock is far ahead of the last known time: nothing is deleted by it for an hour'

/** A smaller difference is no jump. */
const toleranceMs = 60_000
/** How long a clock has to stay ahead before it is believed, in milliseconds. */
const confirmMs = 3_600_000

/** What the next process has to know, in milliseconds. */
export interface Believed {
  readonly knownMs: number
  /** For how long the clock has stayed ahead of that. 0: it is not ahead. */
  readonly doubtedMs: number
  /** The time by the clock when that was so. */
  readonly seenMs: number
}

/**
 * The time that deletes what is too old. A clock that jumps forward must not delete anything: the time that it skipped counts only once it has
 * stayed ahead for an hour, over restarts too. Until then, time goes on as it passes. After a start, the clock is compared with the time that was
 * believed before.
 */
export class BelievedTime {
  readonly #clock: Clock
  readonly #onAhead: (aheadMs: number) => void
  /** The last answer of `now`. */
  knownMs: number
  /** When that was, by the clock that is never set. */
  #atMs: number
  /** How far the clock was ahead at the last look, and for how long it has been. 0: it was not. */
  #aheadMs = 0
  #doubtedMs = 0

  /** `onAhead` is called when the clock turns out to be ahead by much. */
  constructor(clock: Clock, onAhead: (aheadMs: number) => void = () => {}) {
    this.#clock = clock
    this.#onAhead = onAhead
    this.knownMs = clock.now()
    this.#atMs = elapsedMs(clock)
  }

  get state(): Believed {
    const doubtedMs = this.#aheadMs > 0 ? Math.max(1, Math.floor(this.#doubtedMs)) : 0
    return { knownMs: this.knownMs, doubtedMs, seenMs: this.knownMs + this.#aheadMs }
  }

  /** An earlier process left this. */
  follow({ knownMs, doubtedMs, seenMs }: Believed): void {
    const clockMs = this.#clock.now()
    const goneMs = clockMs - seenMs
    this.knownMs = Math.min(clockMs, knownMs)
    this.#atMs = elapsedMs(this.#clock)
    // Another jump begins another doubt.
    const goesOn = doubtedMs > 0 && goneMs >= 0 && goneMs <= confirmMs
    this.#aheadMs = goesOn ? clockMs - this.knownMs : 0
    this.#doubtedMs = goesOn ? doubtedMs + goneMs : 0
  }

  /** Milliseconds since the epoch. Ask at least every few minutes: a jump is what happened between two calls. */
  now(): number {
    const [atMs, clockMs] = [elapsedMs(this.#clock), this.#clock.now()]
    const passedMs = atMs - this.#atMs
    const believedMs = Math.floor(this.knownMs + passedMs)
    const aheadMs = clockMs - believedMs
    if (aheadMs > this.#aheadMs + toleranceMs) {
      this.#doubtedMs = 0
      if (aheadMs > confirmMs) this.#onAhead(aheadMs)
    } else this.#doubtedMs += passedMs
    const isBelieved = aheadMs <= toleranceMs || (this.#aheadMs > 0 && this.#doubtedMs >= confirmMs)
    this.knownMs = isBelieved ? clockMs : believedMs
    this.#aheadMs = isBelieved ? 0 : aheadMs
    this.#atMs = atMs
    if (isBelieved) this.#doubtedMs = 0
    return this.knownMs
  }
}
