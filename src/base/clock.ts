/** A pending call of {@link Clock.after}. */
export interface Timer {
  cancel(): void
}

/** The receiver's time. Tests pass a fake clock. */
export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number
  /** Calls `run` once, `ms` milliseconds from now. */
  after(ms: number, run: () => void): Timer
}

/** The longest wait of a timer, 25 days. A longer one would end at once. */
const longestMs = 2 ** 31 - 1

/** The real time. */
export const systemClock: Clock = {
  now: () => Date.now(),
  after(ms, run) {
    const handle = setTimeout(run, Math.min(ms, longestMs))
    return { cancel: () => clearTimeout(handle) }
  },
}
