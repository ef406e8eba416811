import type { Clock } from './clock.ts'
import { guarded } from './guarded.ts'
import type { Log } from './log.ts'

/** A line of the log at most every so often, however often there is something to say. */
export interface ThrottledLog {
  warn(message: string, details?: Record<string, unknown>): void
  error(message: string, details?: Record<string, unknown>): void
}

const quietMs = 10_000

/** Says each message at once the first time, then at most every ten seconds, with how often it was meant. */
export function throttled(log: Log, clock: Clock): ThrottledLog {
  const said = new Map<string, { readonly atMs: number; since: number }>()

  function say(level: 'warn' | 'error', message: string, details: Record<string, unknown> = {}): void {
    const last = said.get(message)
    const now = clock.now()
    if (last !== undefined && now - last.atMs < quietMs) {
      last.since += 1
      return
    }
    said.set(message, { atMs: now, since: 0 })
    const repeated = last !== undefined && last.since > 0 ? { repeated: last.since } : {}
    // There is nobody left to tell when a log fails, and no message may stop for it.
    guarded(
      () => log[level](message, { ...details, ...repeated }),
      () => {},
    )
  }

  return {
    warn: (message, details) => say('warn', message, details),
    error: (message, details) => say('error', message, details),
  }
}
