import type { D1Database } from '@cloudflare/workers-types'
import { createReceiver } from 'fleethook'
import { worker } from 'fleethook/workers'
import { Hono } from 'hono'
import { bearerAuth } from 'hono/bearer-auth'
import { timingSafeEqual } from 'hono/utils/buffer'

interface Env {
  Bindings: { DB: D1Database; READ_TOKEN: string; WEBHOOK_SECRET: string }
}

// The newest value of each field, by the vehicle's clock: after a tunnel, old messages arrive late.
const upsert = `
  INSERT INTO fields (vin, field, value, at) VALUES (?, ?, ?, ?)
  ON CONFLICT (vin, field) DO UPDATE SET value = excluded.value, at = excluded.at WHERE excluded.at > at`

const receiver = createReceiver({
  secret: (env: Env['Bindings']) => env.WEBHOOK_SECRET,
  // A 2xx says that the message is in the database. Three attempts fit into the 25 seconds of a request.
  ack: 'handled',
  timeoutMs: 7_000,
  retry: { attempts: 3 },
}).on('data', async (event, { env }) => {
  const at = event.at.toISOString()
  const rows = Object.entries(event.data).map(([field, value]) =>
    env.DB.prepare(upsert).bind(event.vin, field, JSON.stringify(value), at),
  )
  if (rows.length > 0) await env.DB.batch(rows)
})

const app = new Hono<Env>()
app.route('/telemetry', receiver.routes())
app.use('/vehicles/*', bearerAuth<Env>({ verifyToken: (token, c) => timingSafeEqual(token, c.env.READ_TOKEN) }))
app.get('/vehicles/:vin', async (c) => {
  const select = c.env.DB.prepare('SELECT field, value, at FROM fields WHERE vin = ? ORDER BY field')
  const { results } = await select.bind(c.req.param('vin')).all()
  return c.json(results)
})

export default worker(app)
