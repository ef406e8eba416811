import type { Clock } from '../../base/clock.ts'

/** How long something may take. */
export interface Deadline {
  readonly clock: Clock
  readonly ms: number
  /** What to reject with when the time is over. */
  readonly late: () => Error
  /** Whoever asked may give up earlier. */
  readonly signal: AbortSignal | undefined
}

/**
 * Runs with a signal that is aborted when the time is over, or with the caller's own. Rejects at once then, even if what runs
 * does not heed its signal: with `late()`, or with the reason of the caller's signal.
 */
export function withDeadline<T>(deadline: Deadline, run: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const { clock, ms, signal, late } = deadline
  if (signal?.aborted) return Promise.reject(signal.reason)
  return new Promise((resolve, reject) => {
    const controller = new AbortController()
    const stop = (reason: unknown): void => {
      done()
      reject(reason) // oxlint-disable-line prefer-promise-reject-errors -- the caller's reason is the caller's own
      controller.abort(reason)
    }
    const abandon = (): void => stop(signal?.reason)
    const timer = clock.after(ms, () => stop(late()))
    signal?.addEventListener('abort', abandon, { once: true })
    const done = (): void => {
      timer.cancel()
      signal?.removeEventListener('abort', abandon)
    }
    run(controller.signal).finally(done).then(resolve, reject)
  })
}

/** Waits. Rejects with the reason of the signal when it is aborted first. */
export function pause(clock: Clock, ms: number, signal: AbortSignal | undefined): Promise<void> {
  if (signal?.aborted) return Promise.reject(signal.reason)
  return new Promise((resolve, reject) => {
    const abandon = (): void => {
      timer.cancel()
      reject(signal?.reason) // oxlint-disable-line prefer-promise-reject-errors -- the caller's reason is the caller's own
    }
    const timer = clock.after(ms, () => {
      signal?.removeEventListener('abort', abandon)
      resolve()
    })
    signal?.addEventListener('abort', abandon, { once: true })
  })
}
