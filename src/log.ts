/** Where the receiver says what an operator should know. Never given a secret, a header or a payload. */
export interface Log {
  debug(message: string, details?: Record<string, unknown>): void
  info(message: string, details?: Record<string, unknown>): void
  warn(message: string, details?: Record<string, unknown>): void
  error(message: string, details?: Record<string, unknown>): void
}

const silent = (): void => {}

/** Warnings and errors to the console, the rest nowhere: what a receiver does when no log is given. */
export const consoleLog: Log = {
  debug: silent,
  info: silent,
  warn: (message, details) =>
    details ? console.warn(`fleethook: ${message}`, details) : console.warn(`fleethook: ${message}`),
  error: (message, details) =>
    details ? console.error(`fleethook: ${message}`, details) : console.error(`fleethook: ${message}`),
}
