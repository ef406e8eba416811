import { backgroundTimer, type Clock, elapsedMs, type Timer } from '../base/clock.ts'

/** The interval between two ticks. */
const tickMs = 1_000
/** After this time between two ticks, a sender may have given up waiting for its answer. */
const longestMs = 3_000

/**
 * Reports when the process or the machine stood still: a tick came late, by the time of day or by the clock that is never set
 * back. A clock that is set forward looks the same as a machine that slept. Without `elapsedMs`, a clock cannot show it.
 * Returns a function that ends the watch.
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
      // Not the delay alone: the time can have stood still right after the last tick.
      if (Math.max(elapsed, now - atMs) >= longestMs)
        onStall(Math.floor(Math.min(atMs, now - elapsed)), Math.max(now, atMs))
      tick()
    })
  }
  tick()
  return () => timer.cancel()
}
