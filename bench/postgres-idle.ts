/**
 * What postgresInbox costs without traffic: WAL and transactions, extrapolated to a day. `node bench/postgres-idle.ts [seconds]`, default 600. Two
 * receivers and two handlers with states of vehicles. Needs Debian's `postgresql`.
 */
import { cpus, loadavg, release, type } from 'node:os'
import { setTimeout } from 'node:timers/promises'
import { postgresInbox } from '../adapters/inbox/postgres.ts'
import { createReceiver, vehicles } from '../src/index.ts'
import { quiet } from '../test/postgres/quiet.ts'
import { startDatabase } from './postgres/database.ts'
import { table } from './table.ts'

const seconds = Number(process.argv[2] ?? 600)
const { pool, newPool, prepare, version, end } = await startDatabase()
console.log(
  `Node ${process.versions.node}, Postgres ${version}; ${type()} ${release()}, ${cpus().length} × ${cpus()[0]?.model.trim()}, load ${loadavg()[0]?.toFixed(1)}`,
)
await prepare('fleethook')

interface Counted {
  readonly bytes: number
  readonly pages: number
  readonly statements: number
}

/** `pg_stat_wal` lags behind by a second, so the position in the log is what counts. */
async function count(): Promise<Counted> {
  const { rows } = await pool.query<Record<keyof Counted, string>>(
    `SELECT pg_current_wal_lsn() - '0/0' AS bytes, (SELECT wal_fpi FROM pg_stat_wal) AS pages,
  (SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database WHERE datname = current_database()) AS statements`,
  )
  const [row] = rows
  return { bytes: Number(row?.bytes), pages: Number(row?.pages), statements: Number(row?.statements) }
}

async function measure(name: string): Promise<readonly string[]> {
  // Whole pages are written after a checkpoint, which a day has 288 of.
  await pool.query('CHECKPOINT')
  const before = await count()
  await setTimeout(seconds * 1_000)
  const after = await count()
  const perDay = 86_400 / seconds
  return [
    name,
    `${(((after.bytes - before.bytes) * perDay) / 1e6).toFixed(1)} MB`,
    String(Math.round((after.pages - before.pages) * perDay)),
    ((after.statements - before.statements) / seconds).toFixed(1),
  ]
}

const rows = [await measure('the server alone')]
const receivers = (['receive', 'receive', 'handle', 'handle'] as const).map((role) =>
  createReceiver({
    ...{ secret: false, log: quiet, inbox: postgresInbox({ db: newPool(3), role }) },
    parts: role === 'handle' ? [vehicles({ fields: ['Gear'] })] : [],
  }),
)
for (const receiver of receivers) receiver.on('data', () => {})
await Promise.all(receivers.map((receiver) => receiver.open()))
// Until each has its share.
await setTimeout(10_000)
rows.push(await measure('two receivers, two handlers'))
await Promise.all(receivers.map((receiver) => receiver.drain()))
console.log(table(['', 'WAL a day', 'whole pages a day', 'transactions a second'], rows))
await end()
process.exit()
