/** A pending call of {@link Clock.after}. */
export interface Timer {
  cancel(): void
  /** The call no longer keeps the process alive. */
  unref?(): void
}

/** The receiver's time. Tests pass a fake clock. */
export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number
  /** Milliseconds since a fixed moment, whatever happens to `now`. Default: `now`. */
  elapsedMs?(): number
  /** Calls `run` once, `ms` milliseconds from now. */
  after(ms: number, run: () => void): Timer
}

/** The longest wait that timers of every runtime support, in milliseconds: 25 days. A timer with a longer one would fire at once. */
export const longestMs = 2_147_483_647

/** The real time. */
export const systemClock: Clock = {
  now: () => Date.now(),
  elapsedMs: () => performance.now(),
  after(ms, run) {
    const handle = setTimeout(run, Math.min(ms, longestMs))
    return { cancel: () => clearTimeout(handle), unref: () => unref(handle) }
  },
}

/** Milliseconds that a change of the time of day does not affect. */
export function elapsedMs(clock: Clock): number {
  return clock.elapsedMs?.() ?? clock.now()
}

/** A timer that does not keep the process alive. */
export function backgroundTimer(clock: Clock, ms: number, run: () => void): Timer {
  const timer = clock.after(ms, run)
  timer.unref?.()
  return timer
}

/** A timer that never keeps the process alive. `undefined` where the clock cannot promise that. */
export function idleTimer(clock: Clock, ms: number, run: () => void): Timer | undefined {
  const timer = backgroundTimer(clock, ms, run)
  if (timer.unref !== undefined) return timer
  timer.cancel()
  return undefined
}

/** Waits. Rejects with the signal's reason when the signal is aborted first. */
export function pause(clock: Clock, ms: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted) return Promise.reject(signal.reason)
  return new Promise((resolve, reject) => {
    const abandon = (): void => {
      timer.cancel()
      reject(signal?.reason) // oxlint-disable-line prefer-promise-reject-errors -- the caller chooses the reason
    }
    const timer = clock.after(ms, () => {
      signal?.removeEventListener('abort', abandon)
      resolve()
    })
    signal?.addEventListener('abort', abandon, { once: true })
  })
}

/** Resolves when the promise settles, or when the time has passed. */
export async function resolvedOr(promise: Promise<unknown> | undefined, clock: Clock, atMostMs: number): Promise<void> {
  if (promise === undefined) return
  let timer: Timer | undefined
  const timeIsUp = new Promise<void>((resolve) => {
    timer = clock.after(Math.max(0, atMostMs), resolve)
  })
  await Promise.race([timeIsUp, promise.catch(() => {})])
  timer?.cancel()
}

/** Only some runtimes keep a process alive for a timer. */
function unref(handle: unknown): void {
  if (typeof handle === 'object' && handle !== null && 'unref' in handle && typeof handle.unref === 'function')
    handle.unref()
}
