/** A pending call of {@link Clock.after}. */
export interface Timer {
  cancel(): void
}

/** Time as the receiver sees it. A test hands in a fake one. */
export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number
  /** Calls `run` once, `ms` milliseconds from now. */
  after(ms: number, run: () => void): Timer
}

/** The longest wait that timers know, 25 days: a longer one would be over at once. */
const longestMs = 2 ** 31 - 1

/** The clock on the wall. */
export const systemClock: Clock = {
  now: () => Date.now(),
  after(ms, run) {
    const handle = setTimeout(run, Math.min(ms, longestMs))
    return { cancel: () => clearTimeout(handle) }
  },
}
