import { guarded } from './guarded.ts'
import type { Log } from './log.ts'

/** A log that never throws, for those who must not stop half-way: nobody is left to tell when a log fails. */
export function guardedLog(log: Log): Log {
  const say =
    (level: keyof Log) =>
    (message: string, details?: Record<string, unknown>): void =>
      guarded(
        () => (details === undefined ? log[level](message) : log[level](message, details)),
        () => {},
      )
  return { debug: say('debug'), info: say('info'), warn: say('warn'), error: say('error') }
}
