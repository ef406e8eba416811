// A process that handles, and that is killed once at each telling of an episode: before it writes, while the transaction is open, or when that is
// committed. `SETTINGS` has the port of the server, and more.
import { createHash } from 'node:crypto'
import { createReceiver, vehicles } from 'fleethook'
import { postgresInbox } from 'fleethook/inbox/postgres'
import pg from 'pg'
import { charge, fields, trip } from '../when/episodes-model.ts'
import { quiet } from './quiet.ts'
import { transactionsOf } from './transactions.ts'

export interface EpisodesProgramSettings {
  readonly port: number
  readonly schema: string
  readonly leaseMs: number
}

const { port, schema, leaseMs }: EpisodesProgramSettings = JSON.parse(process.env['SETTINGS'] ?? '{}')
const newPool = (max: number): pg.Pool => {
  const pool = new pg.Pool({ host: '127.0.0.1', port, user: 'test', database: 'postgres', max })
  pool.on('error', () => {})
  pool.on('connect', (client) => {
    client.on('error', () => {})
  })
  return pool
}
/** Ends this process, as the kernel does. */
function end(): Promise<never> {
  process.kill(process.pid, 'SIGKILL')
  return new Promise(() => {})
}

const others = newPool(2)
const run = transactionsOf(newPool(6))
const inbox = postgresInbox({ db: newPool(3), schema, leaseMs, role: 'handle' })
/** The transactions whose process ends when they are committed. */
const last = new Set<pg.PoolClient>()
const exactly = inbox.exactlyOnce<pg.PoolClient>(async (work) => {
  let isLast = false
  await run(async (tx) => {
    await work(tx)
    isLast = last.delete(tx)
  })
  if (isLast) await end()
})
const retry = { attempts: 1_000, minMs: 20, maxMs: 200 }
const receiver = createReceiver({
  secret: false,
  inbox,
  log: quiet,
  retry,
  concurrency: 4,
  parts: [vehicles({ fields })],
})

for (const edge of [trip, charge])
  receiver.when(
    edge,
    exactly(edge.name, async ({ vin, change }, _, tx) => {
      // The first process that is told ends, and the next one goes on.
      const died = await others.query(
        `INSERT INTO ${schema}.deaths (id, revision) VALUES ($1, $2) ON CONFLICT DO NOTHING`,
        [change.id, change.revision],
      )
      const point =
        died.rowCount === 1
          ? (createHash('md5')
              .update(change.id + change.revision)
              .digest()[0] ?? 0) % 3
          : 3
      if (point === 0) await end()
      await tx.query(`INSERT INTO ${schema}.tellings (vin, edge, id, revision, told) VALUES ($1, $2, $3, $4, $5)`, [
        vin,
        edge.name,
        change.id,
        change.revision,
        JSON.stringify(change),
      ])
      if (point === 1) await end()
      if (point === 2) last.add(tx)
    }),
  )

await receiver.open()
process.on('SIGTERM', () => void receiver.drain({ deadlineMs: 5_000 }).then(() => process.exit(0)))
console.log('ready')
