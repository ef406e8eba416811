/**
 * Measures the inbox in Postgres beside Hono with one `INSERT` for each request, and beside Hono with pg-boss. `npm run bench -- postgres`, about
 * four minutes. Needs Debian's `postgresql`.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { cpus, release, type } from 'node:os'
import { fileURLToPath } from 'node:url'
import { createReceiver } from '../src/index.ts'
import { postgresInbox } from '../adapters/inbox/postgres.ts'
import { schemaStatements } from '../adapters/inbox/postgres/schema.ts'
import { startPostgres } from '../test/once/servers.ts'
import { quiet } from '../test/postgres/quiet.ts'
import { transactionsOf } from '../test/postgres/transactions.ts'
import pg from 'pg'
import { corpus } from './corpus.ts'
import { load, requestOf } from './load.ts'
import { median, percentile } from './median.ts'

const rounds = 3
const server = await startPostgres()
const newPool = (max: number): pg.Pool => {
  const made = new pg.Pool({ host: '127.0.0.1', port: server.port, user: 'test', database: 'postgres', max })
  // At the end the server goes first.
  made.on('error', () => {})
  return made
}
const pool = newPool(3)
for (let tries = 0; ; tries += 1) {
  try {
    await pool.query('SELECT 1')
    break
  } catch (error) {
    if (tries === 100) throw error
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
}
const version = await pool.query<{ server_version: string }>('SHOW server_version')
console.log(
  `Node ${process.versions.node}, Postgres ${String(version.rows[0]?.server_version)}; ${type()} ${release()}, ${cpus().length} × ${cpus()[0]?.model.trim()}`,
)
const prepare = (schema: string): Promise<unknown> =>
  pool.query(['BEGIN', ...schemaStatements(schema), 'COMMIT'].join(';\n'))
await prepare('fleethook')
await pool.query('CREATE TABLE inbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body jsonb NOT NULL)')

const bodies = corpus({ messages: 2_000, vins: 1_000, format: 'service' })
const requests = bodies.map((body) => requestOf(body, 'secret'))

/** Acknowledged POSTs per second over 64 connections. */
async function acked(what: string, count: number): Promise<{ readonly perSecond: number; readonly p99: number }> {
  const path = fileURLToPath(new URL('postgres/server.ts', import.meta.url))
  const child = spawn(process.execPath, [path, what, String(server.port)], { stdio: ['ignore', 'pipe', 'inherit'] })
  const [line]: unknown[] = await once(child.stdout, 'data')
  const port = Number(String(line).trim().split('\n')[0])
  await load({ port, requests, connections: 64, count: Math.ceil(count / 4) })
  const { seconds, ackMs, refused } = await load({ port, requests, connections: 64, count })
  if (refused > 0) throw new Error(`${refused} of ${count} requests were refused by ${what}.`)
  child.kill('SIGKILL')
  await once(child, 'exit')
  await pool.query('TRUNCATE fleethook.waiting, fleethook.message, inbox')
  return { perSecond: count / seconds, p99: percentile(ackMs.toSorted(), 0.99) }
}

const names = ['receive', 'both', 'insert', 'pg-boss'] as const
const results = new Map<string, { perSecond: number[]; p99: number[] }>(
  names.map((name) => [name, { perSecond: [], p99: [] }]),
)
for (let round = 0; round < rounds; round += 1)
  for (const name of names) {
    const { perSecond, p99 } = await acked(name, name === 'pg-boss' ? 3_000 : 12_000)
    results.get(name)?.perSecond.push(perSecond)
    results.get(name)?.p99.push(p99)
  }
const ratio = (one: string, other: string): string => {
  const ratios = (results.get(one)?.perSecond ?? []).map(
    (rate, round) => rate / (results.get(other)?.perSecond[round] ?? NaN),
  )
  return `${median(ratios).toFixed(1)} (${Math.min(...ratios).toFixed(1)} to ${Math.max(...ratios).toFixed(1)})`
}
console.log(`\nAcknowledged POSTs over 64 connections, ${rounds} rounds, medians:\n`)
for (const name of names) {
  const { perSecond = [], p99 = [] } = results.get(name) ?? {}
  console.log(`- ${name}: ${median(perSecond).toFixed(0)}/s, p99 ${median(p99).toFixed(0)} ms`)
}
console.log(`- receive against Hono + INSERT: ${ratio('receive', 'insert')}; both: ${ratio('both', 'insert')}`)
console.log(`- receive against Hono + pg-boss: ${ratio('receive', 'pg-boss')}; both: ${ratio('both', 'pg-boss')}`)

/** Handles a backlog with \`exactlyOnce\`. Resolves to messages per second. */
async function drained(schema: string, size: number, count: number): Promise<number> {
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
  const inbox = postgresInbox({ db: newPool(3), schema, role: 'handle' })
  const exactly = inbox.exactlyOnce(transactionsOf(newPool(8)))
  const worker = createReceiver({ secret: false, log: quiet, inbox, concurrency: 8 })
  if (size === 1)
    worker.on(
      '*',
      exactly('ledger', (event, _, tx) => tx.query(`INSERT INTO ${schema}.ledger VALUES ($1)`, [event.vin ?? ''])),
    )
  else
    worker.batch(
      '*',
      { size, withinMs: 100 },
      exactly.batch('ledger', (events, _, tx) =>
        tx.query(`INSERT INTO ${schema}.ledger SELECT unnest($1::text[])`, [events.map(({ vin }) => vin ?? '')]),
      ),
    )
  const startedMs = performance.now()
  await worker.open()
  while (worker.stats().handled < count) await new Promise((resolve) => setTimeout(resolve, 5))
  const seconds = (performance.now() - startedMs) / 1_000
  await worker.drain()
  return count / seconds
}

const single = await drained('single', 1, 3_000)
const batched = await drained('batched', 100, 30_000)
console.log(
  `\nexactlyOnce, a backlog: ${single.toFixed(0)} messages/s with a transaction for each, ${batched.toFixed(0)} in batches of 100: ${(batched / single).toFixed(1)} times`,
)

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

for (const [name, isApart] of [
  ['one process', false],
  ['roles of their own', true],
] as const) {
  const times = await toHandler(isApart ? 'apart' : 'together', isApart)
  console.log(
    `Ack to the start of the handler, up to 200 a second, ${name}: p50 ${percentile(times, 0.5).toFixed(1)} ms, p99 ${percentile(times, 0.99).toFixed(1)} ms`,
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
console.log(`Processor of the server with an idle reader: ${((busy / idleSeconds) * 100).toFixed(2)} % of a core`)
await server[Symbol.asyncDispose]()
process.exit()
