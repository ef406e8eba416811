/**
 * Measures facts of a whole fleet: a table of 100,000 vehicles by `setAll`, the same table again, and the moment at which a rule with `hours` begins for
 * all of them: how long it takes until the last one is told, and what a message waits for its answer meanwhile.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { sqliteInbox } from '../adapters/inbox/sqlite.ts'
import type { InboxFactory } from '../src/extend.ts'
import { createReceiver, memoryInbox, vehicles } from '../src/index.ts'
import { fact, hours, starts } from '../src/when.ts'
import { median, percentile } from './median.ts'
import { table } from './table.ts'

const { values } = parseArgs({ options: { vehicles: { type: 'string', default: '100000' } } })
const count = Number(values.vehicles)
const folder = mkdtempSync(join(tmpdir(), 'fleethook-bench-'))
const log = { debug() {}, info() {}, warn() {}, error() {} }
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))
const vinOf = (n: number): string => `0FLEETV14T${String(n).padStart(7, '0')}`

const minuteMs = 60_000
/** The longest that the tables may take before the rule begins. */
const tablesMs = 2 * minuteMs

/** In milliseconds of CPU. */
async function cpuOf(run: () => Promise<unknown>): Promise<number> {
  const before = process.cpuUsage()
  await run()
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1_000
}

/** The CPU of both tables in milliseconds, and what {@link night} returns. */
async function measure(inbox: InboxFactory): Promise<readonly number[]> {
  const beginsMs = Math.ceil((Date.now() + tablesMs) / minuteMs) * minuteMs
  const [from, until] = [beginsMs, beginsMs + 60 * minuteMs].map((ms) => new Date(ms).toISOString().slice(11, 16))
  let told = 0
  const facts = [fact('customer', 'string'), fact('nightShift', 'boolean')] as const
  const receiver = createReceiver({
    ...{ secret: false, log, inbox, limits: { pendingMessages: 2 * count } },
    parts: [vehicles({ fields: ['BatteryLevel'], facts })] as const,
  }).when(starts(hours(String(from), String(until), { zone: 'UTC' })), () => void (told += 1))
  const rows = Array.from({ length: count }, (_, n) => ({ vin: vinOf(n), customer: `c-${n % 100}`, nightShift: true }))
  const first = await cpuOf(async () => {
    await receiver.vehicles.setAll(rows)
    while (receiver.stats().pending.messages > 0) await pause(10)
  })
  // The states are written.
  await pause(6_000)
  const again: number[] = []
  for (let round = 0; round < 5; round += 1) again.push(await cpuOf(() => receiver.vehicles.setAll(rows)))
  if (Date.now() > beginsMs) throw new Error('The tables took too long: pass fewer --vehicles.')
  await pause(beginsMs - Date.now())
  const figures = await night(receiver, () => told < count)
  await receiver.drain()
  return [first, median(again), ...figures]
}

/** Posts while a rule begins for all vehicles. Returns how long that takes, its CPU, and how long an answer takes: the median, 99 %, and the longest. */
async function night(
  { accept }: Pick<ReturnType<typeof createReceiver>, 'accept'>,
  lasts: () => boolean,
): Promise<readonly number[]> {
  const waits: number[] = []
  const startedAt = performance.now()
  const cpu = await cpuOf(async () => {
    for (let n = 0; lasts(); n += 1) {
      const [sentAt, data] = [performance.now(), { BatteryLevel: 50 + (n % 10) }]
      const body = { vin: vinOf(n % count), createdAt: new Date().toISOString(), data }
      const { status } = await accept({ authorization: undefined, body })
      if (status !== 200) throw new Error(`A message got ${status}.`)
      waits.push(performance.now() - sentAt)
      await pause(5)
    }
  })
  const sorted = Float64Array.from(waits)
  return [performance.now() - startedAt, cpu, ...[0.5, 0.99, 1].map((share) => percentile(sorted, share))]
}

const figures = [await measure(memoryInbox()), await measure(sqliteInbox({ path: join(folder, 'inbox.db') }))]
const names = [
  'the table for the first time, until it is applied, CPU ms',
  'the same table again, CPU ms',
  'a rule with `hours` begins, until the last vehicle is told, ms',
  'the same, CPU ms',
  'an answer meanwhile, median ms',
  'an answer meanwhile, 99 % ms',
  'an answer meanwhile, longest ms',
]
console.log(
  table(
    [`${count} vehicles`, 'in memory', 'SQLite'],
    names.map((name, nth) => [name, ...figures.map((of) => (of[nth] ?? 0).toFixed(nth < 4 ? 0 : 1))]),
  ),
)
rmSync(folder, { recursive: true, force: true })
