import type { FakeClock } from './fake-clock.ts'

/** A fake clock for tests that decide when a task runs: `letRun` runs what is due. */
export function stepClock(letRun: () => Promise<void>): FakeClock {
  let now = Date.parse('2024-02-24T05:00:00Z')
  const out = new Set<{ readonly atMs: number; readonly run: () => void }>()
  const soonest = (): readonly { readonly atMs: number; readonly run: () => void }[] =>
    [...out].toSorted((a, b) => a.atMs - b.atMs)
  return {
    now: () => now,
    after(ms, run) {
      const timer = { atMs: now + ms, run }
      out.add(timer)
      return { cancel: () => void out.delete(timer) }
    },
    async advance(ms) {
      const until = now + ms
      await letRun()
      for (let [next] = soonest(); next !== undefined && next.atMs <= until; [next] = soonest()) {
        now = next.atMs
        out.delete(next)
        next.run()
        await letRun()
      }
      now = until
    },
    timers: () => soonest().map(({ atMs }) => atMs - now),
  }
}
