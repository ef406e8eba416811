/** How a failing handler is run again: the option `retry`. */
export interface RetryOptions {
  /** Runs in all, the first included. Default 5. */
  readonly attempts: number
  /** The wait before the second run, in milliseconds. Default 200. */
  readonly minMs: number
  /** The longest wait, in milliseconds. Default 30,000. */
  readonly maxMs: number
}

/** How long to wait after attempt `attempt` (1-based) failed: twice as long each time, half of it by chance. */
export function backoffMs({ minMs, maxMs }: RetryOptions, attempt: number, random: () => number = Math.random): number {
  const ceiling = Math.min(maxMs, minMs * 2 ** Math.min(attempt - 1, 52))
  return Math.round(ceiling / 2 + (ceiling / 2) * random())
}
