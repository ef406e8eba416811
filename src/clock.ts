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

/** The clock on the wall. */
export const systemClock: Clock = {
  now: () => Date.now(),
  after(ms, run) {
    const handle = setTimeout(run, ms)
    return { cancel: () => clearTimeout(handle) }
  },
}
