/** How two sets of times compare. */
export interface Comparison {
  /** Welch's t: the distance of the means in standard errors. Positive when the second set takes longer. */
  readonly t: number
  /** How much longer the mean of the second set is, in nanoseconds. */
  readonly differenceNs: number
  /** The standard error of that. */
  readonly errorNs: number
}

/** The parts of the times to compare: all of them, then only the fastest. */
const parts = [1, 0.999, 0.99, 0.95, 0.9, 0.75, 0.5, 0.25]

/**
 * Welch's t-test as dudect does it: on all times, and again on the times below a percentile of all of them, because
 * garbage collection or another process hides differences of nanoseconds. `t` is from the part with the largest |t|.
 * The difference is from the part with the smallest error. Times are in nanoseconds.
 */
export function compareTimes(first: readonly number[], second: readonly number[]): Comparison {
  const sorted = Float64Array.from([...first, ...second]).sort()
  const comparisons = parts.map((part) => {
    const most = sorted[Math.ceil(part * sorted.length) - 1] ?? Number.POSITIVE_INFINITY
    return welch(momentsOf(first, most), momentsOf(second, most))
  })
  const { differenceNs, errorNs } = comparisons.reduce((best, other) => (other.errorNs < best.errorNs ? other : best))
  const { t } = comparisons.reduce((most, other) => (Math.abs(other.t) > Math.abs(most.t) ? other : most))
  return { t, differenceNs, errorNs }
}

interface Moments {
  readonly count: number
  readonly mean: number
  readonly variance: number
}

/** Welford's algorithm, which keeps the variance of large numbers. */
function momentsOf(times: readonly number[], most: number): Moments {
  let count = 0
  let mean = 0
  let squares = 0
  for (const time of times) {
    if (time > most) continue
    count += 1
    const off = time - mean
    mean += off / count
    squares += off * (time - mean)
  }
  return { count, mean, variance: squares / (count - 1) }
}

function welch(first: Moments, second: Moments): Comparison {
  const differenceNs = second.mean - first.mean
  const errorNs = Math.sqrt(first.variance / first.count + second.variance / second.count)
  return { t: errorNs > 0 ? differenceNs / errorNs : 0, differenceNs, errorNs }
}
