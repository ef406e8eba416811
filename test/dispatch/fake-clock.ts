import type { Clock } from 'fleethook'

/** Time that stands still until it is told to go on. */
export interface FakeClock extends Clock {
  /** Goes on by `ms`: what falls due runs in order, and everything that follows from it before the next. */
  advance(ms: number): Promise<void>
  /** In how many milliseconds each timer that is out falls due, soonest first. */
  timers(): readonly number[]
}

/** Lets everything run that can run without time going on. */
export async function turn(): Promise<void> {
  // Handlers start in a timer task that is a millisecond away at most; timers of one length run in order.
  for (let task = 0; task < 2; task += 1) await new Promise((resolve) => setTimeout(resolve, 1))
}

export function fakeClock(startMs: number = Date.parse('2024-02-24T05:00:00Z')): FakeClock {
  let now = startMs
  const out = new Set<{ readonly atMs: number; readonly run: () => void }>()
  const soonest = (): readonly { readonly atMs: number; readonly run: () => void }[] =>
    [...out].sort((a, b) => a.atMs - b.atMs)
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
