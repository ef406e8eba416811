import type { D1Database } from '@cloudflare/workers-types'
import { createReceiver } from 'fleethook'
import { worker } from 'fleethook/workers'
import { Hono } from 'hono'
import { bearerAuth } from 'hono/bearer-auth'
import { timingSafeEqual } from 'hono/utils/buffer'
import { limited } from './limited.ts'

type Env = { Bindings: { DB: D1Database; READ_TOKEN: string; WEBHOOK_SECRET: string } }

// The newest value, by the vehicle's clock: old messages come late. A clock that is unset or fast says nothing, so its values win (?5).
const upsert = `
  INSERT INTO fields (vin, field, value, at) VALUES (?1, ?2, ?3, ?4)
  ON CONFLICT (vin, field) DO UPDATE SET value = ?3, at = ?4 WHERE ?4 >= at OR ?5`

const receiver = createReceiver({
  secret: (env: Env['Bindings']) => env.WEBHOOK_SECRET,
  ack: 'handled', // A 2xx says that the message is in the database. Three attempts fit into the 25 seconds of a request.
  timeoutMs: 7_000,
  retry: { attempts: 3 },
  parts: [limited(120)], // A vehicle that never stops sending must not fill the database.
}).on('data', async ({ vin, data, at, receivedAt }, { env }) => {
  const isWrong = at > receivedAt || at.getUTCFullYear() < 2015
  const time = (isWrong ? new Date(receivedAt.getTime() - 10_000) : at).toISOString()
  const values = Object.entries(data).filter(([, value]) => value !== null) // null is no value for a moment
  const rows = values.map(([field, value]) =>
    env.DB.prepare(upsert).bind(vin, field, JSON.stringify(value), time, Number(isWrong)),
  )
  if (rows.length > 0) await env.DB.batch(rows)
})

const app = new Hono<Env>()
app.route('/telemetry', receiver.routes())
app.use('/vehicles/*', bearerAuth<Env>({ verifyToken: (token, c) => timingSafeEqual(token, c.env.READ_TOKEN) }))
app.get('/vehicles/:vin', async (c) => {
  const select = c.env.DB.prepare('SELECT field, value, at FROM fields WHERE vin = ? ORDER BY field')
  return c.json((await select.bind(c.req.param('vin')).all()).results)
})

export default worker(app)
