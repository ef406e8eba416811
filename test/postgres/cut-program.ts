// As a user writes it: no listeners, and pools that have connections before there is a receiver. `SETTINGS` has the port of the server and the schema.
// It writes `ready` when there is an inbox and no receiver yet, and goes on when its input says so.
import { once } from 'node:events'
import pg from 'pg'
import { postgresInbox } from '../../adapters/inbox/postgres.ts'
import { serve } from '../../adapters/node.ts'
import { createReceiver } from '../../src/index.ts'

export interface CutSettings {
  readonly port: number
  readonly schema: string
}

const { port, schema }: CutSettings = JSON.parse(process.env['SETTINGS'] ?? '{}')
const address = { host: '127.0.0.1', port, user: 'test', database: 'postgres' }
const db = new pg.Pool({ ...address, max: 3, application_name: 'inbox' })
const handlers = new pg.Pool({ ...address, max: 4, application_name: 'handlers' })
for (const pool of [db, handlers]) await Promise.all([pool.query('SELECT 1'), pool.query('SELECT 1')])

const inbox = postgresInbox({ db, schema, leaseMs: 2_000 })
const exactly = inbox.exactlyOnce(handlers)
console.log('ready')
await once(process.stdin, 'data')
const retry = { attempts: 1_000, minMs: 10, maxMs: 50 }
const log = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} }
const receiver = createReceiver({ secret: false, inbox, retry, log }).on(
  'data',
  exactly('readings', async (event, _context, tx) => {
    await tx.query(`INSERT INTO ${schema}.readings VALUES ($1)`, [Number(event.data.Odometer)])
    await tx.query('SELECT pg_sleep(0.2)')
  }),
)
const server = await serve(receiver, { port: 0, hostname: '127.0.0.1' })
await server.closed
process.exit()
