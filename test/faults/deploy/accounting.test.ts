import { randomInt } from 'node:crypto'
import { appendFileSync, readFileSync } from 'node:fs'
import { afterAll, expect, test } from 'vitest'
import { inForm } from '../../form.ts'
import { account, type Account } from '../accounting.ts'
import { type Row, versionsOf, writeFigures } from '../figures.ts'
import { type Fault, goThrough, possible, type RoundsOptions } from './rounds.ts'

/*
 * Each message is handled, or is a dead letter, or lies inside a gap event, or was refused with a 4xx that the log counted. Real
 * processes under load go through every fault that can part a sender from its receiver.
 */
type Receiver = Pick<RoundsOptions, 'runtime' | 'thread'>

interface Course extends Receiver {
  readonly name: string
  readonly faults: readonly Fault[]
}

const receivers: readonly Receiver[] = [
  { runtime: 'node24' },
  { runtime: 'node24', thread: true },
  { runtime: 'bun' },
  { runtime: 'deno' },
]
const nameOf = ({ runtime, thread }: Receiver): string => (thread ? `${runtime}, thread` : runtime)

/**
 * The thousand rounds take half an hour. They can run in parts, which add up in a file that each part extends:
 * `COURSES=1-20 ACCOUNTS=accounts.jsonl npm run test:faults -- test/faults/deploy/accounting.test.ts`, then `COURSES=21-40`.
 */
const [firstCourse = 1, lastCourse = 100] = process.env['COURSES']?.split('-').map(Number) ?? []
const accountsFile = process.env['ACCOUNTS']

/** One receiver after another goes through ten random faults. A thousand faults in all. */
const random = (): readonly Course[] =>
  Array.from({ length: lastCourse - firstCourse + 1 }, (_, at) => {
    const n = firstCourse + at - 1
    const receiver = receivers[n % receivers.length] ?? { runtime: 'node24' }
    const faults = Array.from(
      { length: 10 },
      () => possible[randomInt(possible.length)] ?? 'kill -9, restarted at once',
    )
    return { ...receiver, faults, name: `${nameOf(receiver)}, ${n + 1}` }
  })

/** One of each kind, without those that take seconds. */
const kinds: readonly Fault[] = [
  'SIGTERM, restarted at once',
  'kill -9, down for a while',
  'frozen, then kill -9',
  'inbox full, then kill -9',
  'clock set back while it runs',
  'disk fails, then recovers',
]

/** Each fault once. In the real form, each kind of fault. */
const each = (receiver: Receiver, groups: number): readonly Course[] =>
  Array.from({ length: groups }, (_, group) => ({
    ...receiver,
    faults: inForm({ real: possible.filter((fault) => kinds.includes(fault)), full: possible }).filter(
      (_fault, at) => at % groups === group,
    ),
    name: `${nameOf(receiver)}, ${group + 1}`,
  }))

const courses = inForm<readonly Course[]>({
  real: each({ runtime: 'node24' }, 3),
  full: receivers.flatMap((receiver) => each(receiver, 2)),
  long: random(),
})
const frozenMs = inForm({ real: 3_000, full: 5_000, long: 20_000 })
interface Finished {
  readonly course: Course
  readonly result: Account
}
const finished: Finished[] = []

test.concurrent.each(courses)(
  'each message is handled, a dead letter, inside a gap event, or a 4xx that the log counted ($name)',
  async (course) => {
    const { account: result, evidence } = await goThrough({ ...course, frozenMs })
    finished.push({ course, result })
    if (accountsFile !== undefined) appendFileSync(accountsFile, `${JSON.stringify({ course, result })}\n`)
    const { unaccounted, ...violations } = result.violations
    // The first stories are enough to find a cause.
    expect({ unaccounted: unaccounted.slice(0, 10), ...violations }, `${unaccounted.length} unaccounted for`).toEqual({
      unaccounted: [],
      outOfOrder: [],
      settledAgain: [],
      handledTwice: [],
    })
    expect(result.fates.handled).toBeGreaterThan(0)
    expect(result.fates.dead).toBeGreaterThan(0)
    expect(result.fates.gap).toBeGreaterThan(0)

    // Control: without its gap events, the same history has messages that nobody accounts for.
    const { sent, journal } = evidence
    const unheard = account({ ...evidence, journal: { ...journal, gaps: [] } })
    expect(unheard.fates.unaccounted).toBeGreaterThan(0)
    // Control: when no handler had seen one acknowledged message, it would be lost.
    const first = sent.find(({ vin, status }) => vin === 'V1' && status === 200)
    const runs = journal.runs.filter(({ vin, number }) => vin !== 'V1' || number !== first?.number)
    expect(account({ ...evidence, journal: { ...journal, runs } }).fates.unaccounted).toBe(1)
  },
  inForm({ full: 240_000, long: 600_000 }),
)

afterAll(async () => {
  const results: readonly Finished[] =
    accountsFile === undefined
      ? finished
      : readFileSync(accountsFile, 'utf8')
          .trimEnd()
          .split('\n')
          .map((line): Finished => JSON.parse(line))
  const rows: Row[] = []
  for (const [name, of] of Map.groupBy(results, ({ course }) => nameOf(course))) {
    const sum = (count: (result: Account) => number): number => of.reduce((all, { result }) => all + count(result), 0)
    rows.push({
      receiver: name,
      faults: of.reduce((all, { course }) => all + course.faults.length, 0),
      sent: sum(({ fates }) => Object.values(fates).reduce((a, b) => a + b, 0)),
      handled: sum(({ fates }) => fates.handled),
      'dead letters': sum(({ fates }) => fates.dead),
      'inside a gap': sum(({ fates }) => fates.gap),
      'refused with a 4xx, counted': sum(({ fates }) => fates.refused),
      'unaccounted for': sum(({ fates }) => fates.unaccounted),
      'out of order': sum(({ violations }) => violations.outOfOrder.length),
      'handled twice without a mark': sum(({ violations }) => violations.handledTwice.length),
    })
  }
  await writeFigures({
    piece: 'deploys-accounting',
    title: 'Every message accounted for',
    file: 'test/faults/deploy/accounting.test.ts',
    about:
      'Receivers with the SQLite inbox under load, each restarted on the same port. 40 vehicles send 200 messages a second, half of them over a new connection for each message. One message in ten has a wrong secret, a cut body or a wrong path. The handlers of one vehicle always fail. The sender waits five seconds for an answer and never sends again. The faults are random: SIGTERM and kill -9, at once and after a pause; a process frozen for 3 to 20 seconds; a full inbox; a clock set back by an hour; a disk whose syncs fail. Each message has one fate.',
    tables: [{ title: 'Fates', rows }],
    versions: versionsOf(['bun', 'deno']),
  })
})
