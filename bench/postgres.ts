/**
 * Measures the inbox in Postgres beside what else keeps messages in Postgres. `npm run bench -- postgres`, about ten minutes; with the names of
 * parts behind it, only those: acks, branch, backlog, once, delay, idle. Prints rows for RESULTS-postgres.md. Needs Debian's `postgresql`.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { cpus, loadavg, release, type } from 'node:os'
import { fileURLToPath } from 'node:url'
import { postgresInbox } from '../adapters/inbox/postgres.ts'
import { createReceiver } from '../src/index.ts'
import { quiet } from '../test/postgres/quiet.ts'
import { transactionsOf } from '../test/postgres/transactions.ts'
import { corpus } from './corpus.ts'
import { load, requestOf } from './load.ts'
import { median, percentile } from './median.ts'
import { backlog, type PeerName, peerNames } from './postgres/backlog.ts'
import { startDatabase } from './postgres/database.ts'
import { table } from './table.ts'

const rounds = 3
/** More of them, because the two differ by less. */
const branchRounds = 6
const database = await startDatabase()
const { pool, newPool, prepare, port: databasePort } = database
console.log(
  `Node ${process.versions.node}, Postgres ${database.version}; ${type()} ${release()}, ${cpus().length} × ${cpus()[0]?.model.trim()}, load ${loadavg()[0]?.toFixed(1)}\n`,
)
await prepare('fleethook')

const bodies = corpus({ messages: 2_000, vins: 1_000, format: 'service' })
const rows: string[][] = []

/** Rates of several things, by round. */
class Rates<Name extends string> {
  readonly #rates = new Map<Name, number[]>()

  add(name: Name, perSecond: number): void {
    console.log(`${name}: ${perSecond.toFixed(0)} a second`)
    this.#rates.set(name, [...this.#of(name), perSecond])
  }

  /** The median of the rounds. */
  of(name: Name): string {
    return median(this.#of(name)).toLocaleString('en-US', { maximumFractionDigits: 0 })
  }

  /** The median of the ratios of each round, and the lowest and the highest. */
  ratio(one: Name, other: Name, digitsBelowTen: number = 1): string {
    const ratios = this.#of(one).map((rate, round) => rate / (this.#of(other)[round] ?? Number.NaN))
    const digits = median(ratios) < 10 ? digitsBelowTen : 0
    const [middle, least, most] = [median(ratios), Math.min(...ratios), Math.max(...ratios)].map((ratio) =>
      ratio.toFixed(digits),
    )
    return `${middle} times (${least} to ${most})`
  }

  #of(name: Name): readonly number[] {
    return this.#rates.get(name) ?? []
  }
}

/** Posts to a server of its own over 64 connections. Resolves to acknowledged messages per second. */
async function acknowledged(name: string, count: number, requests: readonly Buffer[]): Promise<number> {
  const path = fileURLToPath(new URL('postgres/server.ts', import.meta.url))
  const child = spawn(process.execPath, [path, name, String(databasePort)], { stdio: ['ignore', 'pipe', 'inherit'] })
  const [line]: unknown[] = await once(child.stdout, 'data')
  const port = Number(String(line).trim().split('\n')[0])
  await load({ port, requests, connections: 64, count: Math.ceil(count / 4) })
  const { seconds, refused } = await load({ port, requests, connections: 64, count })
  if (refused > 0) throw new Error(`${refused} of ${count} requests were refused by ${name}.`)
  child.kill('SIGKILL')
  await once(child, 'exit')
  return count / seconds
}

/** The same of a receiver that only receives, with a branch and without. */
async function branch(): Promise<void> {
  const requests = bodies.map((body) => requestOf(body, 'secret'))
  const rates = new Rates<'receive' | 'branch'>()
  for (let round = 0; round < branchRounds; round += 1)
    for (const name of round % 2 === 0 ? (['receive', 'branch'] as const) : (['branch', 'receive'] as const)) {
      rates.add(name, await acknowledged(name, 12_000, requests))
      const { rows: placed } = await pool.query('SELECT FROM fleethook.branch_1_waiting LIMIT 1')
      if (placed.length !== (name === 'branch' ? 1 : 0)) throw new Error(`The branch has the wrong places: ${name}.`)
      await pool.query('TRUNCATE fleethook.waiting, fleethook.branch_1_waiting, fleethook.message, fleethook.branch')
    }
  rows.push(
    [
      "acknowledged POSTs, 64 connections, `role: 'receive'`, with a branch against without",
      rates.ratio('branch', 'receive', 2),
      '',
    ],
    ['messages a second: with a branch, without', `${rates.of('branch')}, ${rates.of('receive')}`, ''],
  )
}

/** Acknowledged POSTs per second over 64 connections. */
async function acks(): Promise<void> {
  await pool.query(
    'CREATE TABLE IF NOT EXISTS inbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body jsonb NOT NULL)',
  )
  const requests = bodies.map((body) => requestOf(body, 'secret'))
  const servers = { receive: 12_000, both: 12_000, insert: 12_000, 'pg-boss': 3_000 } as const
  type Server = keyof typeof servers
  const rates = new Rates<Server>()
  for (let round = 0; round < rounds; round += 1)
    for (const [name, count] of Object.entries(servers) as [Server, number][]) {
      const perSecond = await acknowledged(name, count, requests)
      await pool.query('TRUNCATE fleethook.waiting, fleethook.message, inbox')
      rates.add(name, perSecond)
    }
  await pool.query('UPDATE fleethook.part SET owner = NULL, clean = true')
  await pool.query('DELETE FROM fleethook.process')
  rows.push(
    [
      "acknowledged POSTs, 64 connections, `role: 'receive'`, against Hono with one INSERT each",
      rates.ratio('receive', 'insert'),
      '2',
    ],
    ['the same against Hono with `send` of pg-boss', rates.ratio('receive', 'pg-boss'), '6'],
    [
      "the same with `role: 'both'` and an empty handler, against the INSERT / against pg-boss",
      `${rates.ratio('both', 'insert')} / ${rates.ratio('both', 'pg-boss')}`,
      '',
    ],
    [
      'messages a second: `receive`, the INSERT, pg-boss',
      `${rates.of('receive')}, ${rates.of('insert')}, ${rates.of('pg-boss')}`,
      '',
    ],
  )
}

async function backlogs(): Promise<void> {
  const rates = new Rates<PeerName>()
  for (let round = 0; round < rounds; round += 1)
    for (const name of peerNames) rates.add(name, await backlog(name, database))
  rows.push(
    [
      'a backlog of 1,000 vehicles in order, two processes, empty handlers, against pg-boss with `key_strict_fifo`',
      rates.ratio('fleethook', 'pg-boss'),
      '3',
    ],
    [
      'the same against graphile-worker with a queue for each vehicle',
      rates.ratio('fleethook', 'graphile-worker'),
      '8',
    ],
    [
      'the same against graphile-worker with its `localQueue`',
      rates.ratio('fleethook', 'graphile-worker, localQueue'),
      '',
    ],
    [
      'messages a second: fleethook, pg-boss, the two of graphile-worker',
      peerNames.map((name) => rates.of(name)).join(', '),
      '',
    ],
  )
}

/** Handles a backlog with `exactlyOnce`. Resolves to messages per second, from the first call of the handler to the end of the last. */
async function exactlyOnce(schema: string, size: number, concurrency: number, count: number): Promise<number> {
  await prepare(schema)
  await pool.query(`CREATE TABLE ${schema}.ledger (vin text NOT NULL)`)
  const front = createReceiver({
    secret: false,
    log: quiet,
    inbox: postgresInbox({ db: newPool(3), schema, role: 'receive' }),
  })
  await front.open()
  await Promise.all(
    Array.from({ length: count }, (_, n) =>
      front.accept({ authorization: undefined, body: bodies[n % bodies.length] ?? '' }),
    ),
  )
  await front.drain()
  await pool.query(`VACUUM ANALYZE ${schema}.waiting, ${schema}.message`)
  const inbox = postgresInbox({ db: newPool(3), schema, role: 'handle' })
  const exactly = inbox.exactlyOnce(transactionsOf(newPool(concurrency)))
  const worker = createReceiver({ secret: false, log: quiet, inbox, concurrency })
  let startedMs: number | undefined
  if (size === 1)
    worker.on(
      '*',
      exactly('ledger', (event, _, tx) => {
        startedMs ??= performance.now()
        return tx.query(`INSERT INTO ${schema}.ledger VALUES ($1)`, [event.vin ?? ''])
      }),
    )
  else
    worker.batch(
      '*',
      { size, withinMs: 100 },
      exactly.batch('ledger', (events, _, tx) => {
        startedMs ??= performance.now()
        return tx.query(`INSERT INTO ${schema}.ledger SELECT unnest($1::text[])`, [events.map(({ vin }) => vin ?? '')])
      }),
    )
  await worker.open()
  // `stats` looks at all that waits.
  while (worker.stats().handled < count) await new Promise((resolve) => setTimeout(resolve, 25))
  const seconds = (performance.now() - (startedMs ?? Number.NaN)) / 1_000
  await worker.drain()
  await pool.query(`DROP SCHEMA ${schema} CASCADE`)
  return count / seconds
}

async function onces(): Promise<void> {
  const rates = new Rates<'each' | 'batches' | 'each, one at a time' | 'batches, one at a time'>()
  for (let round = 0; round < rounds; round += 1) {
    rates.add('each', await exactlyOnce('each', 1, 8, 6_000))
    rates.add('batches', await exactlyOnce('batches', 100, 8, 30_000))
    rates.add('each, one at a time', await exactlyOnce('each', 1, 1, 2_000))
    rates.add('batches, one at a time', await exactlyOnce('batches', 100, 1, 20_000))
  }
  rows.push(
    [
      '`exactlyOnce`, batches of 100 against a transaction for each message, 8 transactions at once in both',
      rates.ratio('batches', 'each'),
      '10',
    ],
    ['the same, one transaction at a time in both', rates.ratio('batches, one at a time', 'each, one at a time'), ''],
    [
      'messages a second: batches and each, 8 at once; batches and each, one at a time',
      `${rates.of('batches')}, ${rates.of('each')}; ${rates.of('batches, one at a time')}, ${rates.of('each, one at a time')}`,
      '',
    ],
  )
}

/** From the acknowledgment to the start of the handler at 200 messages a second, in milliseconds. */
async function toHandler(schema: string, isApart: boolean): Promise<Float64Array> {
  await prepare(schema)
  const startedMs: number[] = []
  const ackedMs: number[] = []
  const handle = (event: { readonly data: { readonly Odometer?: number | null } }): void => {
    startedMs[Number(event.data.Odometer)] = performance.now()
  }
  const front = createReceiver({
    secret: false,
    log: quiet,
    inbox: postgresInbox({ db: newPool(3), schema, role: isApart ? 'receive' : 'both' }),
  }).on('data', handle)
  const back = isApart
    ? createReceiver({
        secret: false,
        log: quiet,
        inbox: postgresInbox({ db: newPool(3), schema, role: 'handle' }),
      }).on('data', handle)
    : undefined
  await front.open()
  await back?.open()
  const count = 1_000
  const pending: Promise<void>[] = []
  for (let n = 0; n < count; n += 1) {
    const body = {
      vin: `0FLEETV14T${String(n % 500).padStart(7, '0')}`,
      createdAt: '2026-01-01T00:00:00Z',
      data: { Odometer: n },
    }
    pending.push(
      front.accept({ authorization: undefined, body }).then(() => {
        ackedMs[n] = performance.now()
      }),
    )
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
  await Promise.all(pending)
  while (startedMs.filter(() => true).length < count) await new Promise((resolve) => setTimeout(resolve, 5))
  await Promise.all([front.drain(), back?.drain()])
  return Float64Array.from(startedMs, (ms, n) => Math.max(0, ms - (ackedMs[n] ?? ms))).toSorted()
}

async function delay(): Promise<void> {
  const row = async (what: string, schema: string, isApart: boolean): Promise<string[]> => {
    const times = await toHandler(schema, isApart)
    const [p50, p99] = [0.5, 0.99].map((share) => percentile(times, share).toFixed(1))
    return [what, `p50 ${p50} ms, p99 ${p99} ms`, '25 ms']
  }
  rows.push(
    await row(
      'from the acknowledgment to the start of the handler, one process, up to 200 a second',
      'together',
      false,
    ),
    await row('the same with a process for each role, in one Node', 'apart', true),
  )
}

/** The processor time of all processes of the server so far, in seconds. `/proc` counts it in hundredths. */
async function serverSeconds(): Promise<number> {
  const { rows } = await pool.query<{ pid: number }>('SELECT pid FROM pg_stat_activity')
  const ticks = rows.map(({ pid }) => {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? []
    return Number(fields[11]) + Number(fields[12])
  })
  return ticks.reduce((sum, each) => sum + each, 0) / 100
}

async function idle(): Promise<void> {
  await prepare('idle')
  const waiting = createReceiver({
    secret: false,
    log: quiet,
    inbox: postgresInbox({ db: newPool(3), schema: 'idle', role: 'handle' }),
  }).on('data', () => {})
  await waiting.open()
  // Connections of the measurements before have ended by then.
  await new Promise((resolve) => setTimeout(resolve, 15_000))
  const before = await serverSeconds()
  const idleSeconds = 60
  await new Promise((resolve) => setTimeout(resolve, idleSeconds * 1_000))
  const busy = (await serverSeconds()) - before
  await waiting.drain()
  rows.push([
    'processor of the server with an idle reader',
    `${((busy / idleSeconds) * 100).toFixed(2)} % of a core`,
    '1 %',
  ])
}

const parts = { acks, branch, backlog: backlogs, once: onces, delay, idle }
const chosen = process.argv.slice(2)
for (const [name, run] of Object.entries(parts)) if (chosen.length === 0 || chosen.includes(name)) await run()
console.log(`\n${table(['what', 'result', 'goal'], rows)}\n\nload ${loadavg()[0]?.toFixed(1)}`)
await database.end()
process.exit()
