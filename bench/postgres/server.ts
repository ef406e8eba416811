// A server of the benchmark: `node server.ts <what> <port of Postgres>`. Prints its port.
import { serve as serveHono } from '@hono/node-server'
import { createReceiver } from 'fleethook'
import { branch } from 'fleethook/branch'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { serve } from 'fleethook/node'
import { Hono } from 'hono'
import pg from 'pg'
import { PgBoss } from 'pg-boss'

const [, , what = '', databasePort = ''] = process.argv
const at = { host: '127.0.0.1', port: Number(databasePort), user: 'test', database: 'postgres' }

function hono(keep: (body: object) => Promise<unknown>): void {
  const app = new Hono()
  app.post('/', async (context) => {
    if (context.req.header('authorization') !== 'secret') return context.body(null, 401)
    const body: unknown = await context.req.json()
    if (typeof body !== 'object' || body === null) return context.body(null, 400)
    await keep(body)
    return context.text('ok')
  })
  serveHono({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }, ({ port }) => console.log(port))
}

if (what === 'insert') {
  const pool = new pg.Pool({ ...at, max: 20 })
  hono((body) => pool.query('INSERT INTO inbox (body) VALUES ($1)', [body]))
} else if (what === 'pg-boss') {
  const boss = new PgBoss({ ...at, max: 20 })
  await boss.start()
  await boss.createQueue('telemetry')
  hono((body) => boss.send('telemetry', body))
} else {
  const role = what === 'both' ? 'both' : 'receive'
  const inbox = postgresInbox({ db: new pg.Pool({ ...at, max: 3 }), role })
  const receiver = createReceiver({ secret: 'secret', inbox }).on('*', () => {})
  if (what === 'branch') branch(receiver, { name: 'crm' }).on('*', () => {})
  const { port } = await serve(receiver, { port: 0, hostname: '127.0.0.1', announce: false })
  console.log(port)
}
