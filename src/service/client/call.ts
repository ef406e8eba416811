import { backoffMs } from '../../dispatch/retry.ts'
import { pause, withDeadline } from './deadline.ts'
import { exchange } from './exchange.ts'
import { type Connection, nameOf, type ServiceRequest } from './request.ts'
import { ServiceError } from './service-error.ts'

/** Sends a request, again where that is allowed, and reads the answer. */
export type Call = <T>(request: ServiceRequest, read: (answer: Response) => T | Promise<T>) => Promise<T>

/**
 * Requests with a time limit for each attempt. An idempotent one is sent again after 429, 5xx and when no answer came, with
 * growing waits; never before `Retry-After` allows it, and not at all when that is further away than `retry.maxMs`.
 */
export function createCall(connection: Connection): Call {
  const { clock, retry, timeoutMs } = connection

  return async (request, read) => {
    const { signal } = request
    const late = (): Error =>
      new ServiceError('timeout', `${nameOf(request)}: no answer within ${timeoutMs} ms.`, {
        hint: 'Raise `timeoutMs`, or try again later.',
      })
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await withDeadline({ clock, ms: timeoutMs, signal, late }, (given) =>
          exchange(connection, request, given, read),
        )
      } catch (error) {
        const waitMs = backoffMs(retry, attempt)
        const askedMs = error instanceof ServiceError ? (error.retryAfterMs ?? 0) : 0
        if (!request.idempotent || attempt >= retry.attempts || !isPassing(error) || askedMs > retry.maxMs) throw error
        await pause(clock, Math.max(waitMs, askedMs), signal)
      }
    }
  }
}

/** Whether the same request may fare better later. */
export function isPassing(error: unknown): boolean {
  if (!(error instanceof ServiceError)) return false
  const { code, status } = error
  return status === undefined ? code === 'unreachable' || code === 'timeout' : status === 429 || status >= 500
}
