/**
 * The tables of the Postgres inbox after a day of load, as fast as the machine can: sizes, dead rows, and the plan of each statement.
 * `node bench/postgres-day.ts [messages] [--snapshot]`. Handled messages are kept for a third of the time, so that `message` reaches its full size.
 * With `--snapshot` somebody holds a snapshot from the beginning, and nothing is deleted. Needs Debian's `postgresql`.
 */
import { cpus, loadavg, release, type } from 'node:os'
import type pg from 'pg'
import { type PostgresClient, postgresInbox } from '../adapters/inbox/postgres.ts'
import { createReceiver, type Receiver } from '../src/index.ts'
import { quiet } from '../test/postgres/quiet.ts'
import { transactionsOf } from '../test/postgres/transactions.ts'
import { corpus } from './corpus.ts'
import { startDatabase } from './postgres/database.ts'
import { table } from './table.ts'

const args = process.argv.slice(2)
const isSnapshot = args.includes('--snapshot')
const count = Number(args.find((arg) => !arg.startsWith('-')) ?? 500_000)
const { pool, newPool, prepare, version, end } = await startDatabase()
console.log(
  `Node ${process.versions.node}, Postgres ${version}; ${type()} ${release()}, ${cpus().length} × ${cpus()[0]?.model.trim()}, load ${loadavg()[0]?.toFixed(1)}`,
)
await prepare('fleethook')
await pool.query('CREATE TABLE written (vin text NOT NULL)')
const bodies = corpus({ messages: 2_000, vins: 1_000, format: 'service' })

/** The last of each statement of the inbox. */
const statements = new Map<string, { readonly text: string; readonly values: unknown[] }>()
const inner = newPool(3)
const db: PostgresClient = {
  query(text, values = []) {
    statements.set(text.replaceAll(/ARRAY\[[\d,]*\]|\(SELECT \d+\)|\$\d+/g, ''), { text, values })
    return inner.query(text, values)
  },
}

async function open(keepForMs: number): Promise<Receiver> {
  const inbox = postgresInbox({ db, keepForMs })
  const exactly = inbox.exactlyOnce<pg.PoolClient>(transactionsOf(newPool(4)))
  const receiver = createReceiver({ secret: false, log: quiet, inbox, concurrency: 8 })
  receiver.batch(
    '*',
    { size: 100, withinMs: 50 },
    exactly.batch('written', (events, _, tx) =>
      tx.query('INSERT INTO written SELECT unnest($1::text[])', [events.map(({ vin }) => vin ?? '')]),
    ),
  )
  await receiver.open()
  return receiver
}

/** Resolves to the time that it took, in milliseconds. At most 5,000 messages wait. */
async function handle(receiver: Receiver, messages: number): Promise<number> {
  const startedMs = performance.now()
  const before = receiver.stats().handled
  const until = async (handled: number): Promise<void> => {
    while (receiver.stats().handled - before < handled) await new Promise((resolve) => setTimeout(resolve, 5))
  }
  for (let sent = 0; sent < messages; sent += 500) {
    await Promise.all(
      Array.from({ length: 500 }, (_, n) =>
        receiver.accept({ authorization: undefined, body: bodies[(sent + n) % bodies.length] ?? '' }),
      ),
    )
    await until(sent - 5_000)
  }
  await until(messages)
  return performance.now() - startedMs
}

interface Sizes {
  readonly name: string
  readonly live: string
  readonly dead: string
  readonly bytes: string
  readonly indexes: string
}

async function sizes(): Promise<readonly Sizes[]> {
  const { rows } = await pool.query<Sizes>(
    `SELECT relname AS name, n_live_tup AS live, n_dead_tup AS dead, pg_table_size(relid) AS bytes, pg_indexes_size(relid) AS indexes
FROM pg_stat_user_tables WHERE schemaname = 'fleethook' AND relname IN ('message', 'waiting', 'part', 'process') ORDER BY relname`,
  )
  return rows
}

const largest = new Map<string, number>()
const noteSizes = async (): Promise<void> => {
  for (const { name, bytes, indexes } of await sizes())
    largest.set(name, Math.max(largest.get(name) ?? 0, Number(bytes) + Number(indexes)))
}

const megabytes = (bytes: number): string => `${(bytes / 1_048_576).toFixed(1)} MB`

async function tables(): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, 2_000))
  await noteSizes()
  const rows = (await sizes()).map(({ name, live, dead, bytes, indexes }) => [
    `\`${name}\``,
    ...[live, dead].map((rows) => Number(rows).toLocaleString('en-US')),
    ...[Number(bytes), Number(indexes), largest.get(name) ?? 0].map(megabytes),
  ])
  console.log(`\n${table(['table', 'live rows', 'dead rows', 'size', 'indexes', 'largest'], rows)}`)
}

interface Node {
  readonly 'Node Type': string
  readonly 'Relation Name'?: string
  readonly 'Index Name'?: string
  readonly Plans?: readonly Node[]
}

const scans = (node: Node): readonly string[] => [
  ...(/Scan/.test(node['Node Type']) && (node['Relation Name'] ?? node['Index Name']) !== undefined
    ? [`${node['Node Type']} of ${node['Index Name'] ?? node['Relation Name']}`]
    : []),
  ...(node.Plans ?? []).flatMap(scans),
]

/** Runs the last of each statement once more, and rolls it back. */
async function plans(): Promise<void> {
  const client = await pool.connect()
  const rows: string[][] = []
  for (const { text, values } of statements.values()) {
    await client.query('BEGIN')
    const { rows: found } = await client.query<{
      'QUERY PLAN': readonly { readonly Plan: Node; readonly 'Execution Time': number }[]
    }>(`EXPLAIN (ANALYZE, FORMAT JSON) ${text}`, values)
    await client.query('ROLLBACK')
    const [plan] = found[0]?.['QUERY PLAN'] ?? []
    if (plan === undefined) continue
    rows.push([
      `\`${text.replaceAll(/\s+/g, ' ').replaceAll('fleethook.', '').slice(0, 90)}\``,
      [...new Set(scans(plan.Plan))].join(', ') || 'no scan',
      `${plan['Execution Time'].toFixed(1)} ms`,
    ])
  }
  client.release()
  console.log(`\n${table(['statement, with its last values', 'plan', 'time'], rows)}`)
}

const print = (what: string): void =>
  console.log(`\n${count.toLocaleString('en-US')} messages${what}, load ${loadavg()[0]?.toFixed(1)}:`)

if (isSnapshot) {
  const holder = await newPool(1).connect()
  await holder.query('BEGIN ISOLATION LEVEL REPEATABLE READ')
  await holder.query('SELECT count(*) FROM fleethook.waiting')
  const receiver = await open(86_400_000)
  await handle(receiver, count)
  await pool.query('ANALYZE')
  await pool.query('VACUUM fleethook.waiting')
  print(', all handled, with a snapshot from before the first')
  await tables()
  await plans()
  await holder.query('COMMIT')
  await pool.query('VACUUM fleethook.waiting')
  print(' without the snapshot, after a vacuum')
  await tables()
  await plans()
} else {
  const trial = await open(0)
  const trialMs = await handle(trial, 20_000)
  await trial.drain()
  const keepForMs = Math.round((trialMs * count) / 20_000 / 3)
  const receiver = await open(keepForMs)
  const watching = setInterval(() => void noteSizes(), 5_000)
  const ms = await handle(receiver, count)
  clearInterval(watching)
  print(
    ` in ${Math.round(ms / 1_000)} s, ${Math.round((count / ms) * 1_000).toLocaleString('en-US')} a second, kept for ${Math.round(keepForMs / 1_000)} s`,
  )
  await tables()
  await plans()
}
await end()
process.exit()
