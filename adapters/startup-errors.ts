import process from 'node:process'
import { FleethookError } from '../src/base/errors.ts'

const startupErrors = new WeakSet<Error>()
let isListening = false

/**
 * Marks an error that stops a start. If nobody catches it, the process prints what happened and what to do, without a
 * stack, and ends with status 1. For code that catches it nothing changes.
 */
export function endsTheStart(error: unknown): unknown {
  if (!(error instanceof FleethookError)) return error
  startupErrors.add(error)
  if (!isListening) process.on('uncaughtExceptionMonitor', report)
  isListening = true
  return error
}

function report(error: Error): void {
  // A host with a listener of its own decides what happens.
  if (!(error instanceof FleethookError) || !startupErrors.has(error)) return
  if (process.listenerCount('uncaughtException') > 0) return
  const { message, hint } = error
  console.error(hint === undefined ? `fleethook: ${message}` : `fleethook: ${message}\n  ${hint}`)
  process.exit(1)
}
