import { createReceiver } from 'fleethook'
import { worker } from 'fleethook/workers'
import { Hono } from 'hono'

interface Env {
  Bindings: { WEBHOOK_SECRET: string; DB: Database }
}

/** As much of D1 as is used here. */
interface Database {
  prepare(sql: string): Statement
  batch(statements: Statement[]): Promise<unknown>
}
interface Statement {
  bind(...values: unknown[]): Statement
  all(): Promise<{ results: unknown[] }>
}

// The newest value of each field, by the vehicle's clock: after a tunnel, old messages arrive late.
const upsert = `
  INSERT INTO fields (vin, field, value, at) VALUES (?, ?, ?, ?)
  ON CONFLICT (vin, field) DO UPDATE SET value = excluded.value, at = excluded.at WHERE excluded.at > at`

// 'handled': the answer says that the message is in the database.
const receiver = createReceiver<Env>({ secret: (env) => env.WEBHOOK_SECRET, ack: 'handled' }).on(
  'data',
  async (event, { env }) => {
    const rows = Object.entries(event.data)
    const at = event.at.toISOString()
    await env.DB.batch(
      rows.map(([field, value]) => env.DB.prepare(upsert).bind(event.vin, field, JSON.stringify(value), at)),
    )
  },
)

const app = new Hono<Env>()
app.route('/telemetry', receiver.routes())
app.get('/vehicles/:vin', async (c) => {
  // Whoever reads must know the secret as well; a real app has users of its own.
  if (c.req.header('authorization') !== c.env.WEBHOOK_SECRET) return c.json({ error: 'unauthorized' }, 401)
  const { results } = await c.env.DB.prepare('SELECT field, value, at FROM fields WHERE vin = ?')
    .bind(c.req.param('vin'))
    .all()
  return c.json(results)
})

export default worker(app)
