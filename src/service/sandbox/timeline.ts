import type { Clock } from '../../base/clock.ts'

/** The time of the sandbox's vehicles: that of the clock, faster or standing, and whatever it was advanced by. */
export interface Timeline {
  now(): number
  advance(ms: number): void
}

/** Begins at `startAt` and goes on at `speed` times the clock's pace. */
export function createTimeline(clock: Clock, startAt: number, speed: number): Timeline {
  const began = clock.now()
  let advancedMs = 0
  return {
    now: () => Math.round(startAt + advancedMs + (clock.now() - began) * speed),
    advance: (ms) => void (advancedMs += ms),
  }
}
