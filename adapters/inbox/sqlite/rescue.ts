import type { Row } from './rows.ts'

/** Reads so many rows of a table between two places, both included, the nearest to the first first. Throws on a damaged page. */
export type ReadRange = (from: number, to: number, rows: number) => readonly Row[]

export interface RescueOptions {
  readonly forward: ReadRange
  readonly backward: ReadRange
  readonly first: number
  readonly last: number
  /** Is given what can be read, in no particular order. */
  readonly found: (rows: readonly Row[]) => Promise<void>
}

interface Range {
  readonly from: number
  readonly to: number
}

const mostRows = 256
/** How often a damaged page is run into before the rest between damaged pages is left. */
const mostFailures = 4_000

/**
 * Reads a table of which some pages are damaged: from both ends as far as it goes, and then again from the middle of what is
 * left between. Resolves to the ranges that cannot be read.
 */
export async function rescue({ forward, backward, first, last, found }: RescueOptions): Promise<readonly Range[]> {
  const left: Range[] = [{ from: first, to: last }]
  const lost: Range[] = []
  let failures = 0

  /** Resolves to where it stopped, or to `undefined` when it read all. */
  async function run(read: ReadRange, start: number, end: number, step: 1 | -1): Promise<number | undefined> {
    let rows = mostRows
    for (let at = start; step > 0 ? at <= end : at >= end;) {
      let page: readonly Row[]
      try {
        page = step > 0 ? read(at, end, rows) : read(end, at, rows)
      } catch {
        if (rows === 1) {
          failures += 1
          return at
        }
        rows = Math.max(1, rows >> 2)
        continue
      }
      if (page.length > 0) await found(page)
      const last = page.at(-1)
      if (page.length < rows || last === undefined) return undefined
      at = Number(last['place']) + step
    }
    return undefined
  }

  for (let range = left.shift(); range !== undefined; range = left.shift()) {
    const low = await run(forward, range.from, range.to, 1)
    if (low === undefined) continue
    const high = await run(backward, range.to, low, -1)
    if (high === undefined) continue
    if (failures >= mostFailures || high - low < 2) {
      lost.push({ from: low, to: high })
      continue
    }
    const middle = Math.floor((low + high) / 2)
    left.push({ from: low, to: middle }, { from: middle + 1, to: high })
  }
  return merged(lost)
}

/** Neighbours as one. */
function merged(ranges: readonly Range[]): readonly Range[] {
  const sorted = ranges.toSorted((a, b) => a.from - b.from)
  const result: Range[] = []
  for (const range of sorted) {
    const before = result.at(-1)
    if (before !== undefined && before.to + 1 >= range.from)
      result[result.length - 1] = { from: before.from, to: range.to }
    else result.push(range)
  }
  return result
}
