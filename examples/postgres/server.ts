import { createReceiver } from 'fleethook'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { serve } from 'fleethook/node'
import { operatorRoutes } from 'fleethook/operator'
import { Hono } from 'hono'
import pg from 'pg'
import { addHandlers } from './handlers.ts'

const { DATABASE_URL: connectionString, FLEETHOOK_OPERATOR_SECRET, PORT = '3000', WEBHOOK_SECRET } = process.env
const pool = new pg.Pool({
  connectionString,
  // As many as handlers run at once (`concurrency`).
  max: 16,
  allowExitOnIdle: true,
  idle_in_transaction_session_timeout: 20_000,
})
pool.on('error', (error) => console.warn(error.message))
// Without a listener, an error on a connection in use ends the process.
pool.on('connect', (client) => client.on('error', () => {}))

/** Runs work in a transaction. Drizzle, Kysely and Prisma have a function for it. */
async function transaction(work: (tx: pg.PoolClient) => Promise<void>): Promise<void> {
  const client = await pool.connect()
  let failure: Error | undefined
  try {
    await client.query('BEGIN')
    await work(client)
    await client.query('COMMIT')
  } catch (error) {
    failure = error instanceof Error ? error : new Error('unknown')
    throw error
  } finally {
    // A connection whose transaction failed is not used again.
    client.release(failure)
  }
}

// A pool of its own, so that busy handlers never delay a 2xx.
const inbox = postgresInbox({ db: new pg.Pool({ connectionString, allowExitOnIdle: true, max: 3 }) })
const receiver = addHandlers(createReceiver({ secret: WEBHOOK_SECRET, inbox }), inbox, transaction)

const app = new Hono()
// For `npx fleethook dead` and `replay`.
if (FLEETHOOK_OPERATOR_SECRET) app.route('/operator', operatorRoutes(receiver, { secret: FLEETHOOK_OPERATOR_SECRET }))
app.route('/', receiver.routes())

const server = await serve(app, { port: Number(PORT) })
await server.closed
