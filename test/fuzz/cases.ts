import type { Random } from '../../src/fleet/random.ts'
import type { Face } from './face.ts'
import { randomOfCase } from './mutation.ts'

/** Which cases: the same ones every time. */
export interface Wanted {
  /** Any whole number: other numbers, other cases. */
  readonly run: number
  readonly from: number
  readonly cases: number
}

/** A case in which a promise was broken. */
export interface Failure {
  readonly number: number
  readonly flaw: string
}

/** What came out of them. */
export interface Summary {
  /** How many were run to their end: each is one body that was made, sent and looked at. */
  readonly cases: number
  readonly failures: readonly Failure[]
  readonly seconds: number
  /** How long the case took that took longest, in milliseconds. */
  readonly slowestMs: number
}

/** A body of at most some 100 kB that takes longer than this, three times, holds a process up. */
const tooSlowMs = 500

/** After so many failures the rest would be more of the same. */
const enough = 10

/** How often it is looked at what only several cases together show. */
const together = 500

/** Runs cases on a face. */
export async function runCases(face: Face, { run, from, cases }: Wanted): Promise<Summary> {
  const failures: Failure[] = []
  const startedAt = performance.now()
  let slowestMs = 0
  let done = 0
  while (done < cases && failures.length < enough) {
    const number = from + done
    const { flaw, ms } = await timed(face, () => randomOfCase(run, number))
    if (flaw !== undefined) failures.push({ number, flaw })
    slowestMs = Math.max(slowestMs, ms)
    done += 1
    if (done % together === 0 || done === cases) {
      const flaw = await face.checkAll()
      if (flaw !== undefined) failures.push({ number: from + Math.floor((done - 1) / together) * together, flaw })
    }
  }
  return { cases: done, failures, seconds: (performance.now() - startedAt) / 1000, slowestMs }
}

async function timed(
  face: Face,
  random: () => Random,
): Promise<{ readonly flaw: string | undefined; readonly ms: number }> {
  let least = Number.POSITIVE_INFINITY
  // Once more when it was slow: the machine may have been busy with something else.
  for (let turn = 0; turn < 3; turn++) {
    const startedAt = performance.now()
    const checked = face.check(random())
    const flaw = checked instanceof Promise ? await checked : checked
    least = Math.min(least, performance.now() - startedAt)
    if (flaw !== undefined || least < tooSlowMs) return { flaw, ms: least }
  }
  return { flaw: `It takes ${least.toFixed()} ms.`, ms: least }
}
