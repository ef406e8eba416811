/** What two sets of times have to do with each other. */
export interface Comparison {
  /** Welch's t: by how many standard errors the means are apart. Positive when the second set takes longer. */
  readonly t: number
  /** By how much the mean of the second set is longer, in nanoseconds. */
  readonly differenceNs: number
  /** The standard error of that. */
  readonly errorNs: number
}

/** Which part of the times is looked at: all of them, then only the quickest. */
const parts = [1, 0.999, 0.99, 0.95, 0.9, 0.75, 0.5, 0.25]

/**
 * Welch's t-test as dudect does it: on all times, and again on those below a percentile of all of them together, since
 * the collection of garbage or another process hides what a comparison of nanoseconds would tell. `t` is that of the part
 * that tells most, the difference that of the part with the least error. Times are in nanoseconds.
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

/** By Welford's way, which does not lose the variance of large numbers. */
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
