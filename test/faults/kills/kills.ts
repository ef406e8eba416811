/* Ends processes under load, over and over, and accounts for every message: the same way for every runtime, inbox and fault. */
import { expect } from 'vitest'
import { judge, type Verdict } from '../accounting.ts'
import type { RunLine } from '../process/journal.ts'
import { createTraffic, type TrafficOptions } from '../process/traffic.ts'

/** A change of a vehicle, as an edge reported it. */
export interface Change {
  readonly vin: string
  readonly id: string
  readonly from: unknown
  readonly to: unknown
}

/** What is ended under load. What it has done is written down where no end removes it. */
export interface Victim extends AsyncDisposable {
  /** Starts what does not run. Resolves to where it takes messages. */
  begin(): Promise<string>
  /** Ends something at a random moment. `acknowledged`: `vin number` of the messages that were answered with 200. */
  strike(acknowledged: ReadonlySet<string>): Promise<void>
  /** Resolves when nothing waits any more. */
  finish(acknowledged: ReadonlySet<string>): Promise<void>
  /** The runs of handlers, in their order. */
  runs(): readonly RunLine[] | Promise<readonly RunLine[]>
  /** The dead letters, as `vin number`: those in hand at three ends of a process. */
  dead(): ReadonlySet<string> | Promise<ReadonlySet<string>>
  /** What edges reported, in its order. */
  changes?(): readonly Change[]
}

/** What came of the messages. */
export interface Found extends Verdict {
  /** Handled again without a mark that says so. */
  readonly unmarked: readonly RunLine[]
  readonly acknowledged: number
  readonly handled: number
  readonly dead: number
  readonly changes: number
  readonly reportedAgain: number
}

const nameOf = ({ vin, number }: RunLine): string => `${vin} ${number}`

/** Ends it `rounds` times, each time after some acknowledgments, and judges when everything is handled. */
export async function underLoad(
  victim: Omit<Victim, keyof AsyncDisposable>,
  { rounds, acksBefore = 20, ...load }: TrafficOptions & { readonly rounds: number; readonly acksBefore?: number },
): Promise<Found> {
  const traffic = createTraffic(load)
  const { acknowledged } = traffic
  for (let round = 0; round < rounds; round += 1) {
    const url = await victim.begin()
    const before = acknowledged.size
    let isOver = false
    const pouring = traffic.pour(url, () => isOver)
    // On a busy machine the first messages take longer than the pause of a strike, and a slow disk takes its time for each group of them.
    await expect.poll(() => acknowledged.size, { timeout: 120_000, interval: 1 }).toBeGreaterThan(before + acksBefore)
    await victim.strike(acknowledged)
    isOver = true
    await pouring
  }
  await victim.finish(acknowledged)
  const runs = await victim.runs()
  const dead = await victim.dead()
  const { duplicates, lost, settledAgain } = judge(acknowledged, runs)
  // A message without an answer may still be under way when the next one of its vehicle arrives, so it has no order.
  const { outOfOrder } = judge(
    acknowledged,
    runs.filter((run) => acknowledged.has(nameOf(run))),
  )
  const reported = victim.changes === undefined ? { changes: 0, reportedAgain: 0 } : await chains(victim)
  return {
    ...{ duplicates, settledAgain, outOfOrder, ...reported },
    lost: lost.filter((name) => !dead.has(name)),
    unmarked: duplicates.filter(({ redelivered, attempt }) => !redelivered && attempt === 1),
    acknowledged: acknowledged.size,
    handled: new Set(runs.map(nameOf)).size,
    dead: dead.size,
  }
}

/** One change from each message of a vehicle to its next one, and no other: none is missing, none is made up, and they are in order. */
async function chains(victim: Pick<Victim, 'changes' | 'runs'>): Promise<Pick<Found, 'changes' | 'reportedAgain'>> {
  const all = (): readonly Change[] => victim.changes?.() ?? []
  const firsts = (): ReadonlyMap<string, Change> =>
    new Map(
      all()
        .toReversed()
        .map((change) => [change.id, change]),
    )
  const wrong = async (): Promise<unknown> => {
    const reported = [...firsts().values()].toReversed()
    const vins = Map.groupBy(await victim.runs(), ({ vin }) => vin)
    return [...vins].flatMap(([vin, runs]) => {
      const numbers = [...new Set(runs.map(({ number }) => number))].toSorted((a, b) => a - b)
      const expected = numbers.slice(1).map((to, at) => `${numbers[at]} to ${to}`)
      const found = reported
        .filter((change) => change.vin === vin)
        .map(({ from, to }) => `${String(from)} to ${String(to)}`)
      return found.join() === expected.join() ? [] : [{ vin, found, expected }]
    })
  }
  // The last of them may still be under way.
  await expect.poll(wrong, { timeout: 120_000, interval: 500 }).toEqual([])
  const known = firsts()
  // A message that is handed out again reports the same change again.
  for (const { id, from, to } of all()) expect([from, to]).toEqual([known.get(id)?.from, known.get(id)?.to])
  return { changes: known.size, reportedAgain: all().length - known.size }
}
