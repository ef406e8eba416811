/**
 * The tables of the Postgres inbox after a day of load (one message a second, as fast as the machine can), while somebody holds a snapshot from
 * its beginning: sizes, dead rows, and the plan of each statement. `node bench/postgres-day.ts [messages]`. Needs Debian's `postgresql`.
 */
import pg from 'pg'
import { type PostgresClient, postgresInbox } from '../adapters/inbox/postgres.ts'
import { schemaStatements } from '../adapters/inbox/postgres/schema.ts'
import { createReceiver } from '../src/index.ts'
import { startPostgres } from '../test/once/servers.ts'
import { quiet } from '../test/postgres/quiet.ts'
import { transactionsOf } from '../test/postgres/transactions.ts'
import { corpus } from './corpus.ts'

const count = Number(process.argv[2] ?? 86_400)
const server = await startPostgres()
const newPool = (max: number): pg.Pool => {
  const made = new pg.Pool({ host: '127.0.0.1', port: server.port, user: 'test', database: 'postgres', max })
  made.on('error', () => {})
  made.on('connect', (client) => client.on('error', () => {}))
  return made
}
const pool = newPool(2)
for (let tries = 0; (await pool.query('SELECT 1').catch(() => undefined)) === undefined; tries += 1) {
  if (tries === 100) throw new Error('The server does not start.')
  await new Promise((resolve) => setTimeout(resolve, 100))
}
await pool.query(['BEGIN', ...schemaStatements('fleethook'), 'COMMIT'].join(';\n'))

const holder = await newPool(1).connect()
await holder.query('BEGIN ISOLATION LEVEL REPEATABLE READ')
await holder.query('SELECT count(*) FROM fleethook.waiting')

/** The last of each statement. Those of a mark name their rows. */
const statements = new Map<string, { readonly text: string; readonly values: unknown[] }>()
const inner = newPool(3)
const db: PostgresClient = {
  query(text, values = []) {
    statements.set(text.replace(/IN \(\(.*\)\)/, 'IN'), { text, values })
    return inner.query(text, values)
  },
}
const inbox = postgresInbox({ db })
const exactly = inbox.exactlyOnce<pg.PoolClient>(transactionsOf(newPool(4)))
const receiver = createReceiver({ secret: false, log: quiet, inbox, concurrency: 8 })
await pool.query('CREATE TABLE written (vin text NOT NULL)')
receiver.batch(
  '*',
  { size: 100, withinMs: 50 },
  exactly.batch('written', (events, _, tx) =>
    tx.query('INSERT INTO written SELECT unnest($1::text[])', [events.map(({ vin }) => vin ?? '')]),
  ),
)
await receiver.open()
const bodies = corpus({ messages: 2_000, vins: 1_000, format: 'service' })
for (let sent = 0; sent < count; sent += 500)
  await Promise.all(
    Array.from({ length: 500 }, (_, n) =>
      receiver.accept({ authorization: undefined, body: bodies[(sent + n) % bodies.length] ?? '' }),
    ),
  )
while (receiver.stats().handled < count) await new Promise((resolve) => setTimeout(resolve, 50))
await pool.query('ANALYZE')
await pool.query('VACUUM fleethook.waiting')

async function tables(): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, 2_000))
  const { rows } = await pool.query<{ relname: string; live: string; dead: string; size: string }>(
    `SELECT relname, n_live_tup AS live, n_dead_tup AS dead, pg_size_pretty(pg_total_relation_size(relid)) AS size
FROM pg_stat_user_tables WHERE schemaname = 'fleethook' AND relname IN ('message', 'waiting', 'part', 'process') ORDER BY relname`,
  )
  for (const { relname, live, dead, size } of rows) console.log(`- ${relname}: ${live} rows, ${dead} dead, ${size}`)
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

async function plans(): Promise<void> {
  const client = await pool.connect()
  for (const { text, values } of statements.values()) {
    await client.query('BEGIN')
    const { rows } = await client.query<{
      'QUERY PLAN': readonly { readonly Plan: Node; readonly 'Execution Time': number }[]
    }>(`EXPLAIN (ANALYZE, FORMAT JSON) ${text}`, values)
    await client.query('ROLLBACK')
    const [plan] = rows[0]?.['QUERY PLAN'] ?? []
    if (plan === undefined) continue
    const what = text.replaceAll(/\s+/g, ' ').slice(0, 100)
    console.log(
      `- ${plan['Execution Time'].toFixed(1)} ms, ${[...new Set(scans(plan.Plan))].join(', ') || 'no scan'}: ${what}`,
    )
  }
  client.release()
}

console.log(`\n${count} messages, all handled, with a snapshot from before the first:\n`)
await tables()
console.log('\nEach statement with its last values:\n')
await plans()
await holder.query('COMMIT')
await pool.query('VACUUM fleethook.waiting')
console.log('\nWithout the snapshot, after a vacuum:\n')
await tables()
console.log()
await plans()
await receiver.drain()
await server[Symbol.asyncDispose]()
process.exit()
