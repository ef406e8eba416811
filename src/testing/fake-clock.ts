import type { Clock } from '../base/clock.ts'

/** A clock that moves only when a test advances it. */
export interface FakeClock extends Clock {
  /**
   * Moves the time by `ms` milliseconds. Timers run in order. Everything that follows from a timer runs before the next one.
   */
  advance(ms: number): Promise<void>
  /** The milliseconds until each pending timer runs, soonest first. Timers that do not keep the process alive are left out. */
  timers(): readonly number[]
}

interface Pending {
  readonly atMs: number
  readonly run: () => void
  keepsAlive: boolean
}

/** Runs everything that does not wait for time to pass. */
export async function turn(): Promise<void> {
  // Handlers start in a timer task at most a millisecond later. Timers of the same length run in order.
  for (let task = 0; task < 2; task += 1) await new Promise((resolve) => setTimeout(resolve, 1))
}

/**
 * A clock for the option `clock` of a receiver. Retries, time limits and deadlines happen when the test advances it.
 *
 * Starts at `startMs`, in milliseconds since the epoch. Default 2026-11-21T10:00:00Z.
 *
 * @example
 * ```ts
 * import { createReceiver } from 'fleethook'
 * import { fakeClock } from 'fleethook/testing'
 *
 * const clock = fakeClock()
 * createReceiver({ secret: 'a-long-random-value', clock })
 * await clock.advance(30_000)
 * ```
 */
export function fakeClock(startMs: number = Date.UTC(2026, 10, 21, 10)): FakeClock {
  let now = startMs
  const pending = new Set<Pending>()
  const soonest = (): readonly Pending[] => [...pending].toSorted((a, b) => a.atMs - b.atMs)

  return {
    now: () => now,
    after(ms, run) {
      const timer: Pending = { atMs: now + ms, run, keepsAlive: true }
      pending.add(timer)
      return { cancel: () => void pending.delete(timer), unref: () => void (timer.keepsAlive = false) }
    },
    async advance(ms) {
      const until = now + ms
      await turn()
      for (;;) {
        const [next] = soonest()
        if (next === undefined || next.atMs > until) break
        now = next.atMs
        pending.delete(next)
        next.run()
        await turn()
      }
      now = until
    },
    timers: () => soonest().flatMap(({ atMs, keepsAlive }) => (keepsAlive ? [atMs - now] : [])),
  }
}
