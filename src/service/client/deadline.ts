import type { Clock } from '../../base/clock.ts'

interface Deadline {
  readonly clock: Clock
  readonly ms: number
  /** Makes the error to reject with when the time limit is reached. */
  readonly onTimeout: () => Error
  readonly signal: AbortSignal | undefined
}

/** Runs with a time limit. Rejects with `onTimeout()` or the signal's reason even when `run` ignores its signal. */
export function withDeadline<T>(deadline: Deadline, run: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const { clock, ms, signal, onTimeout } = deadline
  if (signal?.aborted) return Promise.reject(signal.reason)
  return new Promise((resolve, reject) => {
    const controller = new AbortController()
    const stop = (reason: unknown): void => {
      done()
      reject(reason) // oxlint-disable-line prefer-promise-reject-errors -- the caller chooses the reason
      controller.abort(reason)
    }
    const abandon = (): void => stop(signal?.reason)
    const timer = clock.after(ms, () => stop(onTimeout()))
    signal?.addEventListener('abort', abandon, { once: true })
    const done = (): void => {
      timer.cancel()
      signal?.removeEventListener('abort', abandon)
    }
    run(controller.signal).finally(done).then(resolve, reject)
  })
}
