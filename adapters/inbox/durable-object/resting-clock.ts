import type { Clock, Timer } from '../../../src/base/clock.ts'

/** A clock whose timers can sleep. A pending timer keeps an object in memory, and that time is billed. */
export interface RestingClock extends Clock {
  /** Lets all timers sleep. Returns when the next one is due, in milliseconds since the epoch. */
  sleep(): number | undefined
  /** Wakes all timers. Every call of `after` does so, too. */
  wake(): void
}

interface ScheduledCall {
  readonly ms: number
  readonly dueMs: number
  readonly run: () => void
  timer: Timer | undefined
}

export function createRestingClock(clock: Clock): RestingClock {
  const calls = new Set<ScheduledCall>()
  let asleep = false

  function arm(call: ScheduledCall): void {
    // Not later than it was to be: the clock may have been set back while it slept.
    call.timer = clock.after(Math.min(call.ms, Math.max(0, call.dueMs - clock.now())), () => {
      calls.delete(call)
      call.run()
    })
  }

  function wake(): void {
    if (!asleep) return
    asleep = false
    for (const call of calls) arm(call)
  }

  return {
    now: () => clock.now(),

    after(ms, run) {
      wake()
      const call: ScheduledCall = { ms, dueMs: clock.now() + ms, run, timer: undefined }
      calls.add(call)
      arm(call)
      return {
        cancel() {
          call.timer?.cancel()
          calls.delete(call)
        },
      }
    },

    sleep() {
      asleep = true
      let next: number | undefined
      for (const { timer, dueMs } of calls) {
        timer?.cancel()
        next = Math.min(dueMs, next ?? dueMs)
      }
      return next
    },

    wake,
  }
}
