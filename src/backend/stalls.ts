import { backgroundTimer, type Clock, elapsedMs, type Timer } from '../base/clock.ts'

/** The interval between two ticks. */
const tickMs = 1_000
/** When two ticks are this far apart, a sender may have given up waiting for its answer. */
const standstillMs = 3_000

/**
 * Reports when the process or the machine stood still, which shows in a late tick, by the time of day or by the clock that is
 * never set back. A clock that is set forward looks the same as a machine that slept. A clock without `elapsedMs` cannot show
 * it. Returns a function that ends the watch.
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
