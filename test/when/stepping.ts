import type { Clock, Receiver } from 'fleethook'
import type { InboxFactory } from 'fleethook/extend'
import { systemClock } from '../../src/base/clock.ts'

/**
 * A clock that goes from timer to timer. `fakeClock` waits two milliseconds at each of them, and the hours of an episode have thousands. This one
 * waits until nothing is in hand, which is at once for most.
 */
export interface SteppingClock extends Clock {
  /** When the next timer is due. */
  nextMs(): number
  /** Lets the time pass. At each timer, nothing is in hand before it, and what follows from it is over before the next one. */
  advance(ms: number, settled: () => Promise<void>): Promise<void>
}

interface Pending {
  readonly atMs: number
  readonly run: () => void
}

export function steppingClock(startMs: number): SteppingClock {
  let now = startMs
  const pending = new Set<Pending>()
  const first = (): Pending | undefined => {
    let soonest: Pending | undefined
    for (const each of pending) if (soonest === undefined || each.atMs < soonest.atMs) soonest = each
    return soonest
  }
  return {
    now: () => now,
    nextMs: () => first()?.atMs ?? Infinity,
    after(ms, run) {
      // The watch for stalls and for a deleted file looks each second.
      if (ms === 1_000) return { cancel() {}, unref() {} }
      const timer = { atMs: now + ms, run }
      pending.add(timer)
      return { cancel: () => void pending.delete(timer), unref() {} }
    },
    async advance(ms, settled) {
      const until = now + ms
      while ((first()?.atMs ?? Infinity) <= until) {
        await settled()
        // What was in hand may have set or cancelled one.
        const next = first()
        if (next === undefined || next.atMs > until) break
        now = Math.max(now, next.atMs)
        pending.delete(next)
        next.run()
        await settled()
      }
      now = until
    },
  }
}

/** Resolves when nothing is in hand, seen twice in a row: what a timer of the clock puts is not counted in the same task. */
export async function idle(pending: () => number | Promise<number>): Promise<void> {
  const untilMs = performance.now() + 30_000
  for (let quiet = 0; quiet < 2;) {
    if (performance.now() > untilMs) throw new Error('Messages are still pending.')
    await new Promise((resolve) => setImmediate(resolve))
    quiet = (await pending()) === 0 ? quiet + 1 : 0
  }
}

export const pendingOf =
  (receiver: Pick<Receiver, 'stats'>): (() => number) =>
  () =>
    receiver.stats().pending.messages

/** An inbox whose own timers run by the real clock: in the hours of an episode, it would tidy up a thousand times. */
export const untidied =
  (create: InboxFactory): InboxFactory =>
  (settings) =>
    create({ ...settings, clock: { now: () => settings.clock.now(), after: systemClock.after } })
