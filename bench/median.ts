/** The median of some numbers. 0: there are none. */
export function median(numbers: Iterable<number>): number {
  return percentile(Float64Array.from(numbers), 0.5)
}

/** The number below which `share` of them lie. 0: there are none. */
export function percentile(numbers: Float64Array, share: number): number {
  const sorted = numbers.toSorted()
  return sorted[Math.round((sorted.length - 1) * share)] ?? 0
}
