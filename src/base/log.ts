import { type Clock, elapsedMs, idleTimer, type Timer } from './clock.ts'
import { defined } from './options.ts'

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

const { process: host }: typeof globalThis & { readonly process?: { readonly stderr?: { readonly isTTY?: boolean } } } =
  globalThis

/** One line for each call: as a person reads it in a terminal, and as JSON for a program that collects it. */
const print =
  (level: 'warn' | 'error'): Log['warn'] =>
  (message, details = {}) => {
    const text = `fleethook: ${message}`
    const isForPeople = host?.stderr?.isTTY
    const shown = Object.keys(details).length === 0 ? text : `${text} ${jsonLine(details)}`
    console[level](isForPeople ? shown : jsonLine({ time: new Date().toISOString(), level, message: text, ...details }))
  }

/** What is no JSON, such as a `bigint` of a user's observer, must not lose the line. */
const jsonLine = (value: Record<string, unknown>): string =>
  JSON.stringify(value, (_, each: unknown) => (typeof each === 'bigint' || each instanceof Error ? String(each) : each))

/** Prints warnings and errors to the console, one line for each, and as JSON where that is no terminal. It is the default of the option `log`. */
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

/** Numbers that one line adds up over all the lines that it stands for. */
type Sums = Readonly<Record<string, number>>

/** A log that writes at most one line in ten seconds for each `key`, by default the line itself. */
interface ThrottledLog {
  warn(message: string, details?: Record<string, unknown>, key?: unknown, sums?: Sums): void
  error(message: string, details?: Record<string, unknown>, key?: unknown, sums?: Sums): void
  /** Says that what other lines of the key report has ended. One such line in ten seconds does not wait behind them, and replaces the line that waits. */
  warnOfEnd(message: string, details: Record<string, unknown>, key: unknown): void
  /** When the next line that it holds back is due, by `elapsedMs`. `undefined`: it holds none back. */
  dueAtMs(): number | undefined
  flush(): void
  /** The same, and starts no timer any more. */
  stop(): void
}

interface Line {
  readonly level: 'warn' | 'error'
  readonly message: string
  readonly details: Record<string, unknown>
  readonly sums: Sums
  /** The number of lines since the last written line, itself included. */
  readonly repeated: number
}

/** The time after a line in which no other line of its key is written. */
interface QuietTime {
  endsAtMs: number
  /** The last line of this time, not written yet. */
  held: Line | undefined
  timer: Timer | undefined
}

/** The time that one log line covers, in milliseconds. */
export const quietMs = 10_000

/** The sums of a line and of the line that waits. */
function summed(sums: Sums, waiting: Sums = {}): Sums {
  const added = Object.entries(waiting).map(([name, sum]) => [name, sum + (sums[name] ?? 0)])
  return { ...sums, ...Object.fromEntries(added) }
}

/** Writes the first line of a key at once, and one line for all lines of the next ten seconds, with their sums or number. */
export function throttled(log: Log, clock: Clock): ThrottledLog {
  const quiet = new Map<unknown, QuietTime>()
  /** When the next line about an end may pass the waiting line of its key. */
  const nextEndMs = new Map<unknown, number>()
  let isStopped = false

  function write(key: unknown, { level, message, details, sums, repeated }: Line): void {
    quiet.get(key)?.timer?.cancel()
    quiet.set(key, { endsAtMs: elapsedMs(clock) + quietMs, held: undefined, timer: undefined })
    const more = repeated === 0 || Object.keys(sums).length > 0 ? sums : { repeated }
    // A log that throws must not stop a message.
    guarded(() => log[level](message, { ...defined(details), ...more }))
  }

  function say(
    level: 'warn' | 'error',
    message: string,
    details: Record<string, unknown> = {},
    key: unknown = message,
    sums: Sums = {},
  ): void {
    const current = quiet.get(key)
    const held = current?.held
    const line = { level, message, details, sums: summed(sums, held?.sums), repeated: (held?.repeated ?? 0) + 1 }
    const leftMs = (current?.endsAtMs ?? -Infinity) - elapsedMs(clock)
    if (current === undefined || leftMs <= 0) return write(key, held === undefined ? { ...line, repeated: 0 } : line)
    current.held = line
    if (!isStopped) current.timer ??= idleTimer(clock, leftMs, () => write(key, current.held ?? line))
  }

  function flush(): void {
    for (const [key, { held }] of quiet) if (held !== undefined) write(key, held)
  }

  return {
    warn: (message, details, key, sums) => say('warn', message, details, key, sums),
    error: (message, details, key, sums) => say('error', message, details, key, sums),
    warnOfEnd(message, details, key) {
      const now = elapsedMs(clock)
      if (now >= (nextEndMs.get(key) ?? -Infinity)) {
        nextEndMs.set(key, now + quietMs)
        const current = quiet.get(key)
        if (current !== undefined) current.endsAtMs = now
      }
      say('warn', message, details, key)
    },
    dueAtMs() {
      const due = [...quiet.values()].filter(({ held }) => held !== undefined).map(({ endsAtMs }) => endsAtMs)
      return due.length === 0 ? undefined : Math.min(...due)
    },
    flush,
    stop() {
      isStopped = true
      flush()
    },
  }
}
