import type { Clock } from '../base/clock.ts'

/** Time that stands still until it is told to go on. */
export interface FakeClock extends Clock {
  /** Goes on by `ms` milliseconds: what falls due runs in order, and everything that follows from it before the next. */
  advance(ms: number): Promise<void>
  /** In how many milliseconds each timer that is out falls due, soonest first. */
  timers(): readonly number[]
}

interface Out {
  readonly atMs: number
  readonly run: () => void
}

/** Lets everything run that can run without time going on. */
export async function turn(): Promise<void> {
  // Handlers start in a timer task that is a millisecond away at most; timers of one length run in order.
  for (let task = 0; task < 2; task += 1) await new Promise((resolve) => setTimeout(resolve, 1))
}

/**
 * A clock for the option `clock` of a receiver: retries, time limits and deadlines come when the test says so.
 *
 * Begins at `startMs`, milliseconds since the epoch; 2026-11-21T10:00:00Z when it is left out.
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
  const out = new Set<Out>()
  const soonest = (): readonly Out[] => [...out].toSorted((a, b) => a.atMs - b.atMs)

  return {
    now: () => now,
    after(ms, run) {
      const timer = { atMs: now + ms, run }
      out.add(timer)
      return { cancel: () => void out.delete(timer) }
    },
    async advance(ms) {
      const until = now + ms
      await turn()
      for (;;) {
        const [next] = soonest()
        if (next === undefined || next.atMs > until) break
        now = next.atMs
        out.delete(next)
        next.run()
        await turn()
      }
      now = until
    },
    timers: () => soonest().map(({ atMs }) => atMs - now),
  }
}
