import type { Clock } from './clock.ts'

/**
 * Receives the log lines of a receiver, for an operator. `details` never contain a secret, a header or a payload.
 *
 * @example
 * ```ts
 * import { createReceiver, type Log } from 'fleethook'
 *
 * const print = (message: string, details?: Record<string, unknown>): void => console.log(message, details)
 * const log: Log = { debug: () => {}, info: print, warn: print, error: print }
 * createReceiver({ secret: 'a-long-random-value', log })
 * ```
 */
export interface Log {
  debug(message: string, details?: Record<string, unknown>): void
  info(message: string, details?: Record<string, unknown>): void
  warn(message: string, details?: Record<string, unknown>): void
  error(message: string, details?: Record<string, unknown>): void
}

const silent = (): void => {}

const print =
  (level: 'warn' | 'error'): Log['warn'] =>
  (message, details) =>
    details ? console[level](`fleethook: ${message}`, details) : console[level](`fleethook: ${message}`)

/** Prints warnings and errors to the console. It is the default of the option `log`. */
export const consoleLog: Log = {
  debug: silent,
  info: silent,
  warn: /* @__PURE__ */ print('warn'),
  error: /* @__PURE__ */ print('error'),
}

/** Runs a user's function without waiting for it. Passes what it throws, or rejects with, to `failed`. */
export function guarded(run: () => unknown, failed: (thrown: unknown) => void = silent): void {
  new Promise((resolve) => resolve(run())).catch(failed)
}

/** The same log, except that it never throws: for code that must not stop between two steps. */
export function guardedLog(log: Log): Log {
  const say =
    (level: keyof Log) =>
    (message: string, details?: Record<string, unknown>): void =>
      guarded(() => (details === undefined ? log[level](message) : log[level](message, details)))
  return { debug: say('debug'), info: say('info'), warn: say('warn'), error: say('error') }
}

/** A log that writes at most one line in ten seconds for each `key`, by default the line itself. */
interface ThrottledLog {
  warn(message: string, details?: Record<string, unknown>, key?: unknown): void
  error(message: string, details?: Record<string, unknown>, key?: unknown): void
}

const quietMs = 10_000

/** Writes a line at once, and then at most every ten seconds, with the number of repetitions in between. */
export function throttled(log: Log, clock: Clock): ThrottledLog {
  const written = new Map<unknown, { readonly atMs: number; repeated: number }>()

  function say(level: 'warn' | 'error', message: string, details: Record<string, unknown> = {}, key: unknown): void {
    const last = written.get(key)
    const now = clock.now()
    if (last !== undefined && now - last.atMs < quietMs) {
      last.repeated += 1
      return
    }
    written.set(key, { atMs: now, repeated: 0 })
    const repeated = last !== undefined && last.repeated > 0 ? { repeated: last.repeated } : {}
    // A log that throws must not stop a message.
    guarded(() => log[level](message, { ...details, ...repeated }))
  }

  return {
    warn: (message, details, key = message) => say('warn', message, details, key),
    error: (message, details, key = message) => say('error', message, details, key),
  }
}
