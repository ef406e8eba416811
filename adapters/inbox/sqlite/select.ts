import { setImmediate } from 'node:timers/promises'
import { seqOf } from '../../../src/inbox/delivery-id.ts'
import type { Selection } from '../../../src/inbox/inbox.ts'
import type { Page } from './store.ts'

/** Reads a part of a list, from behind a place on. */
export type ReadPage<T> = (which: Selection, after: number) => Promise<Page<T>>

/** All that is asked for, in parts between which others have their turn. */
export async function selectAll<T>(which: Selection, read: ReadPage<T>): Promise<readonly T[]> {
  const start = which.after === undefined ? -1 : seqOf(which.after)
  const selected: T[] = []
  let next: number | undefined = Math.max(Number.isNaN(start) ? -1 : start, placeBefore(which.fromMs))
  while (next !== undefined && selected.length < which.limit) {
    const page: Page<T> = await read({ ...which, limit: which.limit - selected.length }, next)
    selected.push(...page.found)
    next = page.next
    if (next !== undefined) await setImmediate()
  }
  return selected
}

/** A place before those of this time: an id is never older than what it was made for. */
function placeBefore(ms: number | undefined): number {
  return ms === undefined ? -1 : ms * 2048 - 1
}
