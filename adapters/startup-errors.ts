import process from 'node:process'
import { FleethookError } from '../src/base/errors.ts'

const startupErrors = new WeakSet<Error>()
let isListening = false

/** If nobody catches this error, the process prints it without a stack and ends with status 1. */
export function markStartupError(error: unknown): void {
  if (!(error instanceof FleethookError)) return
  startupErrors.add(error)
  if (!isListening) process.on('uncaughtExceptionMonitor', report)
  isListening = true
}

function report(error: Error): void {
  // A host with a listener of its own decides what happens.
  if (startupErrors.has(error) && process.listenerCount('uncaughtException') === 0) exitWithError(error)
}

/**
 * Ends the process because it could not start: prints what happened and, on the next line, what to do, without a stack.
 * The exit status is 1.
 *
 * An uncaught error of `serve` ends the process in the same way. Use this function in a server that you start yourself.
 *
 * @example
 * ```ts
 * import { createReceiver } from 'fleethook'
 * import { exitWithError } from 'fleethook/node'
 *
 * const receiver = createReceiver({ secret: 'a-long-random-value' })
 * await receiver.open().catch(exitWithError)
 * ```
 */
export function exitWithError(error: unknown): never {
  const hint = error instanceof FleethookError ? error.hint : undefined
  console.error(`fleethook: ${error instanceof Error ? error.message : String(error)}`)
  if (hint !== undefined) console.error(`  ${hint}`)
  process.exit(1)
}
