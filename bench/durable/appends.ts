/**
 * Measures the messages per second that reach the disk when a number of producers each wait for one put before the next.
 * Compares the SQLite inbox with a raw file with fdatasync and the same batching.
 *
 *     npm run bench -- durable
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { readsNothing } from '../../adapters/inbox/forwarding.ts'
import { sqliteInbox } from '../../adapters/inbox/sqlite.ts'
import { systemClock } from '../../src/base/clock.ts'
import type { Inbox } from '../../src/extend.ts'
import { median, percentile } from '../median.ts'
import { table } from '../table.ts'
import { largeBodies, messageMaker } from './messages.ts'
import { createRawLog } from './raw-log.ts'

const { values } = parseArgs({
  options: {
    folder: { type: 'string', default: '.' },
    seconds: { type: 'string', default: '2' },
    rounds: { type: 'string', default: '5' },
  },
})
const budgets = new Map([
  [16, 0.95],
  [64, 0.85],
  [256, 0.65],
])
const rounds = Number(values.rounds)
const roundMs = (Number(values.seconds) * 1000) / rounds
const folder = mkdtempSync(join(values.folder, 'fleethook-appends-'))
const make = messageMaker(largeBodies(2000, 1000))
const silent = (): void => {}

/** A store whose `put` resolves when a message is on disk. */
interface Store {
  put(): Promise<void>
  close(): unknown
}

function rawStore(name: string): Store {
  const log = createRawLog(join(folder, name))
  return { put: () => log.append(make().text), close: log.close }
}

async function sqliteStore(name: string, thread: boolean): Promise<Store> {
  const inbox: Inbox = sqliteInbox({ path: join(folder, name), thread })({
    limits: { pendingMessages: undefined, pendingBytes: undefined },
    read: readsNothing,
    clock: systemClock,
    log: { debug: silent, info: silent, warn: console.warn, error: console.error },
    on(event) {
      if (event.type === 'failed') throw event.error
    },
  })
  await inbox.open()
  return { put: async () => inbox.put([make()]), close: inbox.close }
}

interface Lap {
  readonly perSecond: number
  readonly p99: number
}

async function lap(store: Store, producers: number): Promise<Lap> {
  const taken: number[] = []
  const end = performance.now() + roundMs
  const startedAt = performance.now()
  await Promise.all(
    Array.from({ length: producers }, async () => {
      for (let since = performance.now(); since < end; since = performance.now()) {
        await store.put()
        taken.push(performance.now() - since)
      }
    }),
  )
  return {
    perSecond: (taken.length * 1000) / (performance.now() - startedAt),
    p99: percentile(Float64Array.from(taken), 0.99),
  }
}

const rows: string[][] = []
for (const [producers, budget] of budgets) {
  const stores = {
    raw: rawStore(`raw-${producers}`),
    sqlite: await sqliteStore(`sqlite-${producers}.db`, false),
    thread: await sqliteStore(`thread-${producers}.db`, true),
  }
  const laps: Record<keyof typeof stores, Lap[]> = { raw: [], sqlite: [], thread: [] }
  const names = ['raw', 'sqlite', 'thread'] as const
  for (const name of names) await lap(stores[name], producers)
  for (let round = 0; round < rounds; round++)
    for (const name of names) laps[name].push(await lap(stores[name], producers))
  for (const name of names) {
    await stores[name].close()
    const ratio = median(laps[name].map((each, round) => each.perSecond / (laps.raw[round]?.perSecond ?? Number.NaN)))
    rows.push([
      { raw: 'raw file + fdatasync', sqlite: 'sqliteInbox', thread: 'sqliteInbox, thread' }[name],
      String(producers),
      median(laps[name].map((each) => each.perSecond)).toFixed(0),
      median(laps[name].map((each) => each.p99)).toFixed(2),
      ratio.toFixed(2),
      name === 'sqlite' ? budget.toFixed(2) : '',
    ])
  }
}
rmSync(folder, { recursive: true })
console.log(table(['store', 'producers', 'messages/s', 'p99 ms', 'to raw', 'at least'], rows))
