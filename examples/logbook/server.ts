import { createReceiver, vehicles } from 'fleethook'
import { createClient } from 'fleethook/client'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { serve } from 'fleethook/node'
import { operatorRoutes } from 'fleethook/operator'
import { Hono } from 'hono'
import pg from 'pg'
import { tellBookings } from './bookings.ts'
import { check } from './check.ts'
import { customer, fields } from './episodes.ts'
import { addHandlers } from './handlers.ts'

const { DATABASE_URL: connectionString, FLEETHOOK_OPERATOR_SECRET, PORT = '3000', WEBHOOK_SECRET } = process.env
const { BOOKINGS_SECONDS = '5', CHECK_HOURS = '24', FLEETHOOK_MEANWHILE = 'data/meanwhile.db' } = process.env
const { SERVICE_API_KEY: apiKey, SERVICE_URL: baseUrl } = process.env
const hourMs = 3_600_000

const inbox = postgresInbox({
  // A pool of its own, so that busy handlers never delay a 2xx.
  db: new pg.Pool({ connectionString, allowExitOnIdle: true, max: 3 }),
  // While Postgres is away, this file keeps what arrives, and nothing is refused. Each process has its own.
  meanwhile: sqliteInbox({ path: FLEETHOOK_MEANWHILE }),
  keepForMs: 48 * hourMs, // for the check of the day before
})
// As many connections as handlers run at once (`concurrency`). Each handler gets one in a transaction.
const handlers = new pg.Pool({ connectionString, allowExitOnIdle: true, max: 16, connectionTimeoutMillis: 10_000 })
const receiver = createReceiver({ secret: WEBHOOK_SECRET, inbox, parts: [vehicles({ fields, facts: [customer] })] })
addHandlers(receiver, inbox.exactlyOnce(handlers), baseUrl ? createClient({ baseUrl, apiKey }) : undefined)

const app = new Hono()
// For `npx fleethook dead` and `replay`.
if (FLEETHOOK_OPERATOR_SECRET) app.route('/operator', operatorRoutes(receiver, { secret: FLEETHOOK_OPERATOR_SECRET }))
app.route('/', receiver.routes())

const server = await serve(app, { port: Number(PORT) })
const tell = () => tellBookings(receiver.vehicles, handlers).catch((error) => console.error(String(error)))
setInterval(tell, Number(BOOKINGS_SECONDS) * 1_000).unref()
setInterval(() => check(receiver, handlers).catch(console.error), Number(CHECK_HOURS) * hourMs).unref()
await server.closed
