import { longestMs } from '../base/clock.ts'
import { FleethookError, storable } from '../base/errors.ts'

/** The option `retry`: when a failing handler runs again. */
export interface RetryOptions {
  /** The most runs, the first included. Default: no limit but `maxAgeMs`. */
  readonly attempts: number
  /** The wait before the second run, in milliseconds. Default 200. */
  readonly minMs: number
  /** The longest wait, in milliseconds. Default 60,000; 10,000 with an inbox in memory. */
  readonly maxMs: number
  /**
   * The longest time from the first failure to the last run, in milliseconds. Default one hour, and one minute with an inbox
   * in memory; no limit when `attempts` is given.
   */
  readonly maxAgeMs?: number
}

/** The defaults of the option `retry`. With a durable inbox, whose messages outlive an outage, retries go on for longer. */
export function retryOptions(given: Partial<RetryOptions>, isDurable: boolean): Required<RetryOptions> {
  const { attempts = Infinity, minMs = 200, maxMs = isDurable ? 60_000 : 10_000 } = given
  const { maxAgeMs = given.attempts === undefined ? (isDurable ? 3_600_000 : 60_000) : Infinity } = given
  return { attempts, minMs, maxMs, maxAgeMs }
}

const ownOptions = /* @__PURE__ */ new WeakMap<object, Required<RetryOptions>>()

/** This handler is tried again as it says itself, whatever the option `retry` of its receiver is. */
export function retriedAs<Handler extends object>(handler: Handler, options: Required<RetryOptions>): Handler {
  ownOptions.set(handler, options)
  return handler
}

/** `undefined`: as its receiver says. */
export const ownRetry = (handler: object): Required<RetryOptions> | undefined => ownOptions.get(handler)

/** The longest that the other side may ask to wait, in milliseconds. */
export const longestAskedMs = 86_400_000

const leastWaits = /* @__PURE__ */ new WeakMap<object, number>()

/** It fails like any other error, but the next try comes no sooner, because the other side has said so. */
export function notBefore<Failure extends Error>(failure: Failure, afterMs: number): Failure {
  leastWaits.set(failure, Math.min(afterMs, longestAskedMs))
  return failure
}

/** The shortest wait after this failure, in milliseconds. */
export const leastWaitMs = (thrown: unknown): number =>
  (typeof thrown === 'object' && thrown !== null && leastWaits.get(thrown)) || 0

/** The time that the attempts of an earlier process have probably taken, in milliseconds. The process did not write it down. */
export function expectedMs({ minMs, maxMs }: RetryOptions, attempts: number): number {
  let sum = 0
  for (let attempt = 1; attempt <= Math.min(attempts, 10_000); attempt += 1)
    sum += 0.75 * Math.min(maxMs, minMs * 2 ** Math.min(attempt - 1, 52))
  return sum
}

/** The wait after attempt `attempt` (1-based) failed: twice as long each time, half of it random. */
export function backoffMs({ minMs, maxMs }: RetryOptions, attempt: number): number {
  const ceiling = Math.min(maxMs, minMs * 2 ** Math.min(attempt - 1, 52))
  return Math.round(ceiling / 2 + (ceiling / 2) * Math.random())
}

/**
 * Thrown by a handler that wants to run again after `afterMs` milliseconds, instead of after the back-off of the option
 * `retry`: for instance when a rate limit says how long to wait. It counts as an attempt, and after the last attempt the
 * message becomes a dead letter. `cause` goes into the dead letter, for people. Observers do not see a `Retry`. The wait may be longer
 * than `retry.maxMs`; a restart cuts what is left of it to `retry.maxMs`, or to a minute if that is longer.
 *
 * Throws `option_invalid` when `afterMs` is not a number from 0 to 2,147,483,647. A fraction is rounded up.
 *
 * @example
 * ```ts
 * import { createReceiver, Retry } from 'fleethook'
 *
 * createReceiver({ secret: 'a-long-random-value' }).on('data', async (event, { signal }) => {
 *   const answer = await fetch('data:,stored', { signal })
 *   if (answer.status === 429) throw new Retry(Number(answer.headers.get('retry-after') ?? 1) * 1000)
 * })
 * ```
 */
export class Retry extends Error {
  override readonly name = 'Retry'
  /** Marks it, so that a `Retry` from another copy of this package works too. */
  readonly fleethook = 'retry'
  readonly afterMs: number

  constructor(afterMs: number, options: { readonly cause?: unknown } = {}) {
    super(`The handler asked to run again after ${String(afterMs)} ms.`, options)
    if (!(typeof afterMs === 'number' && afterMs >= 0 && afterMs <= longestMs)) {
      throw new FleethookError(
        'option_invalid',
        `Retry takes milliseconds from 0 to ${longestMs} and was given ${typeof afterMs === 'number' ? afterMs : `a ${typeof afterMs}`}.`,
      )
    }
    this.afterMs = Math.ceil(afterMs)
  }
}

/**
 * Thrown by a handler that is done with a message although it did nothing with it: no retry and no dead letter follow.
 * `stats().discarded` counts it. The log shows the reason, so the reason must not quote the message.
 *
 * @example
 * ```ts
 * import { createReceiver, Discard } from 'fleethook'
 *
 * createReceiver({ secret: 'a-long-random-value' }).on('data', (event) => {
 *   if (event.at.getTime() < Date.now() - 7 * 86_400_000) throw new Discard('older than a week')
 * })
 * ```
 */
export class Discard extends Error {
  override readonly name = 'Discard'
  /** Marks it, so that a `Discard` from another copy of this package works too. */
  readonly fleethook = 'discard'
  readonly reason: string

  constructor(reason: string) {
    super(`The handler discarded the message: ${reason}`)
    this.reason = reason
  }
}

/** What a handler asks for by throwing a {@link Retry} or a {@link Discard}, or because another try would end the same way, from this copy of the package or another. */
type HandlerRequest =
  | { readonly kind: 'give-up' }
  | { readonly kind: 'retry'; readonly afterMs: number; readonly cause: unknown }
  | { readonly kind: 'discard'; readonly reason: string }

/** `undefined` for everything else that can be thrown. */
export function requestOf(thrown: unknown): HandlerRequest | undefined {
  try {
    if (!(thrown instanceof Error) || !('fleethook' in thrown)) return undefined
    if (thrown.fleethook === 'give-up') return { kind: 'give-up' }
    if (thrown.fleethook === 'discard' && 'reason' in thrown) return { kind: 'discard', reason: String(thrown.reason) }
    if (thrown.fleethook !== 'retry' || !('afterMs' in thrown)) return undefined
    // It may be of another copy of this package, or changed since: inboxes store whole numbers.
    const afterMs = Math.ceil(Math.min(longestMs, Math.max(0, Number(thrown.afterMs) || 0)))
    return { kind: 'retry', afterMs, cause: thrown.cause }
  } catch {
    // An error that cannot be read asks for nothing.
    return undefined
  }
}

/** The text of a handler's error for the dead letter, where a person reads it. */
export function errorText(thrown: unknown): string {
  try {
    const request = requestOf(thrown)
    const error = request?.kind === 'retry' ? (request.cause ?? thrown) : thrown
    const text = error instanceof Error ? `${error.name}: ${error.message}` : `a ${typeof error} was thrown`
    return storable(text.length > 500 ? `${text.slice(0, 500)}…` : text)
  } catch {
    return 'an error that cannot be read'
  }
}
