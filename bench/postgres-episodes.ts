/**
 * What an episode costs the write-ahead log of a Postgres: bytes a message of the same receiver with and without it, in turns.
 * `node bench/postgres-episodes.ts [messages] [rounds]`, default 6,000 and 3. Forty vehicles on the road. Needs Debian's `postgresql`.
 */
import { cpus, loadavg, release, type } from 'node:os'
import { postgresInbox } from '../adapters/inbox/postgres.ts'
import { createReceiver, vehicles } from '../src/index.ts'
import type { Edge } from '../src/when.ts'
import { quiet } from '../test/postgres/quiet.ts'
import { median } from './median.ts'
import { startDatabase } from './postgres/database.ts'
import { type Body, drives, episodeKinds, fields } from './road.ts'
import { table } from './table.ts'

const count = Number(process.argv[2] ?? 6_000)
const rounds = Number(process.argv[3] ?? 3)
const { pool, newPool, prepare, version, end } = await startDatabase()
console.log(
  `Node ${process.versions.node}, Postgres ${version}; ${type()} ${release()}, ${cpus().length} × ${cpus()[0]?.model.trim()}, load ${loadavg()[0]?.toFixed(1)}`,
)

const lsn = async (): Promise<number> =>
  Number((await pool.query<{ at: string }>(`SELECT pg_current_wal_lsn() - '0/0' AS at`)).rows[0]?.at)

/** The bytes of a message. `atOnce`: how many messages are under way. */
async function bytesOf(edges: readonly Edge[], sent: readonly Body[], atOnce: number): Promise<number> {
  await pool.query('DROP SCHEMA IF EXISTS fleethook CASCADE')
  await prepare('fleethook')
  const db = newPool(3)
  const receiver = createReceiver({
    ...{ secret: false, log: quiet, inbox: postgresInbox({ db }), parts: [vehicles({ fields })] },
  })
  for (const edge of edges) receiver.when(edge, () => undefined)
  await receiver.open()
  const settled = async (): Promise<void> => {
    for (;;) {
      const { rowCount } = await pool.query('SELECT FROM fleethook.waiting LIMIT 1')
      if (rowCount === 0 && receiver.stats().pending.messages === 0) return
      await new Promise((resolve) => setTimeout(resolve, 2))
    }
  }
  // Whole pages are written after a checkpoint, and a part of them belongs to each message.
  await pool.query('CHECKPOINT')
  const before = await lsn()
  for (let from = 0; from < sent.length; from += atOnce) {
    await Promise.all(
      sent.slice(from, from + atOnce).map((body) => receiver.accept({ authorization: undefined, body })),
    )
    await settled()
  }
  const after = await lsn()
  await receiver.drain()
  await db.end()
  return (after - before) / sent.length
}

const rows: string[][] = []
const sent = drives(Math.ceil(count / 360), 0).slice(0, count)
for (const [how, atOnce] of [
  ['one of each vehicle at a time', 40],
  ['bursts of ten of each vehicle', 400],
] as const) {
  const found = new Map<string, number[]>(Object.keys(episodeKinds).map((name) => [name, []]))
  for (let round = 0; round < rounds; round += 1)
    for (const [name, edges] of Object.entries(episodeKinds)) found.get(name)?.push(await bytesOf(edges, sent, atOnce))
  const least = median(found.get('no edge') ?? [])
  for (const [name, each] of found)
    rows.push([how, name, `${Math.round(median(each))}`, `${(median(each) / least).toFixed(2)} times`])
}
console.log(table(['messages', 'receiver', 'bytes of log a message', 'to no edge'], rows))
await end()
process.exit()
