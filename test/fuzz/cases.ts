import { cpuUsage } from 'node:process'
import type { Random } from '../../src/service/fleet/random.ts'
import type { Face } from './face.ts'
import { randomOfCase } from './mutation.ts'

/** Which cases: the same ones every time. */
export interface Wanted {
  /** Any whole number. Another number runs other cases. */
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
  /** The number of finished cases. Each one makes, sends and checks one body. */
  readonly cases: number
  readonly failures: readonly Failure[]
  readonly seconds: number
  /** The duration of the longest case, in milliseconds. */
  readonly slowestMs: number
}

/** A body of at most half a megabyte is too slow when it takes more CPU time than this, three times. */
const tooSlowMs = 1_000

/** After this number of failures, more would show nothing new. */
const enough = 10

/** The number of cases after which the checks over several cases run. */
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
  const startedAt = performance.now()
  const checked = face.check(random())
  const flaw = checked instanceof Promise ? await checked : checked
  let ms = performance.now() - startedAt
  // Repeats a slow case and measures its CPU time, because the machine may have been busy.
  for (let turn = 0; turn < 3 && flaw === undefined && ms >= tooSlowMs; turn++) {
    const before = cpuUsage()
    const flaw = await face.check(random())
    if (flaw !== undefined) return { flaw: `Only the second time: ${flaw}`, ms }
    const { user, system } = cpuUsage(before)
    ms = Math.min(ms, (user + system) / 1000)
  }
  return { flaw: flaw ?? (ms < tooSlowMs ? undefined : `It takes ${ms.toFixed()} ms.`), ms }
}
