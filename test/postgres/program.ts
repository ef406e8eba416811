// A process that handles: each message becomes a row of `ledger`, in the transaction of `exactlyOnce`, or in one without a mark (the control).
// `SETTINGS` has the port of the server, the schema, and what to do.
import { createReceiver } from 'fleethook'
import { postgresInbox } from 'fleethook/inbox/postgres'
import pg from 'pg'
import { pause, systemClock } from '../../src/base/clock.ts'
import { quiet } from './quiet.ts'
import { transactionsOf } from './transactions.ts'

export interface ProgramSettings {
  readonly port: number
  readonly schema: string
  readonly leaseMs: number
  /** `unmarked`: writes without a mark. */
  readonly mode: 'single' | 'batch' | 'unmarked'
}

const { port, schema, leaseMs, mode }: ProgramSettings = JSON.parse(process.env['SETTINGS'] ?? '{}')
const newPool = (max: number): pg.Pool => {
  const pool = new pg.Pool({
    host: '127.0.0.1',
    port,
    user: 'test',
    database: 'postgres',
    max,
    connectionTimeoutMillis: 3_000,
  })
  pool.on('error', () => {})
  pool.on('connect', (client) => {
    client.on('error', () => {})
  })
  return pool
}

const inbox = postgresInbox({ db: newPool(3), schema, leaseMs, role: 'handle' })
const own = newPool(8)
const transaction = transactionsOf(own)
const exactly = inbox.exactlyOnce(transaction)
// Retries go on for as long as the server is down.
const retry = { attempts: 1_000, minMs: 20, maxMs: 200 }
const receiver = createReceiver({ secret: false, inbox, log: quiet, retry, concurrency: 16 })
const insert = (tx: pg.PoolClient, vin: string, n: number): Promise<unknown> =>
  tx.query(`INSERT INTO ${schema}.ledger (vin, n) VALUES ($1, $2)`, [vin, n])

if (mode === 'single')
  receiver.on(
    'data',
    exactly('ledger', (event, _, tx) => insert(tx, event.vin, Number(event.data.Odometer))),
  )
else if (mode === 'batch')
  receiver.batch(
    'data',
    { size: 50, withinMs: 20 },
    exactly.batch('ledger', async (events, _, tx) => {
      for (const event of events) await insert(tx, event.vin, Number(event.data.Odometer))
    }),
  )
else
  receiver.on('data', async (event) => {
    await transaction(async (tx) => {
      await insert(tx, event.vin, Number(event.data.Odometer))
    })
    // The time in which the row is written and the inbox does not know it. It is there without this pause too, but a kill seldom meets it.
    await pause(systemClock, 50)
  })

await receiver.open()
process.on('SIGTERM', () => void receiver.drain({ deadlineMs: 5_000 }).then(() => process.exit(0)))
console.log('ready')
