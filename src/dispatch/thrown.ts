import { FleethookError } from '../base/errors.ts'

/** The longest wait that timers know, in milliseconds. */
const longestMs = 2 ** 31 - 1

/**
 * Thrown by a handler that wants to be run again after `afterMs` milliseconds, instead of after the back-off of the option
 * `retry`: when a rate limit says how long to wait, for instance. It counts as an attempt, and after the last one the
 * message is a dead letter. `cause` is for the dead letter, and for people. It is no failure that `onError` is told of.
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
  /** By which it is known, also when it comes from another copy of this package. */
  readonly fleethook = 'retry'
  readonly afterMs: number

  constructor(afterMs: number, options: { readonly cause?: unknown } = {}) {
    super(`The handler asked to be run again after ${afterMs} ms.`, options)
    if (!(afterMs >= 0 && afterMs <= longestMs)) {
      throw new FleethookError(
        'option_invalid',
        `Retry takes milliseconds from 0 to ${longestMs} and was given ${afterMs}.`,
      )
    }
    this.afterMs = afterMs
  }
}

/**
 * Thrown by a handler that is done with a message although it did nothing with it: there is no retry and no dead letter.
 * `stats().discarded` counts it, and the log says why: so the reason must not quote the message.
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
  /** By which it is known, also when it comes from another copy of this package. */
  readonly fleethook = 'discard'
  readonly reason: string

  constructor(reason: string) {
    super(`The handler discarded the message: ${reason}`)
    this.reason = reason
  }
}

/** What a handler wants that threw a {@link Retry} or a {@link Discard}, of this copy of the package or another. */
export type Wish =
  | { readonly kind: 'retry'; readonly afterMs: number; readonly cause: unknown }
  | { readonly kind: 'discard'; readonly reason: string }

/** `undefined` for everything else that can be thrown. */
export function wishOf(thrown: unknown): Wish | undefined {
  try {
    if (!(thrown instanceof Error) || !('fleethook' in thrown)) return undefined
    if (thrown.fleethook === 'discard' && 'reason' in thrown) return { kind: 'discard', reason: String(thrown.reason) }
    if (thrown.fleethook !== 'retry' || !('afterMs' in thrown)) return undefined
    const afterMs = Math.min(longestMs, Math.max(0, Number(thrown.afterMs) || 0))
    return { kind: 'retry', afterMs, cause: thrown.cause }
  } catch {
    // An error that cannot be read wants nothing.
    return undefined
  }
}
