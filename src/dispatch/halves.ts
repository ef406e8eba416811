import type { Work } from './work.ts'

/** A part of a batch, and what of its lane has to wait for it. */
export interface Half {
  readonly works: Work[]
  readonly later: readonly (readonly Work[])[]
}

/**
 * Splits a batch that has failed. Messages of one lane stay together, so that the halves do not wait for each other, until there
 * is only one lane left: then the second half waits for the first.
 */
export function halves(works: readonly Work[]): readonly Half[] {
  const byLane = new Map<unknown, Work[]>()
  for (const work of works) {
    const mates = byLane.get(work.lane)
    if (mates === undefined) byLane.set(work.lane, [work])
    else mates.push(work)
  }
  const middle = Math.ceil(works.length / 2)
  if (byLane.size === 1) return [{ works: works.slice(0, middle), later: [works.slice(middle)] }]
  const first: Work[] = []
  const second: Work[] = []
  for (const mates of byLane.values())
    (first.length === 0 || first.length + mates.length <= middle ? first : second).push(...mates)
  return [first, second].map((half) => ({ works: half, later: [] }))
}
