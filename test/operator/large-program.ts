// A receiver with the inspector. Its handler fails for VINs that begin with DEAD and never ends for those that begin with WAIT.
import { Hono } from 'hono'
import { sqliteInbox } from '../../adapters/inbox/sqlite.ts'
import { serve } from '../../adapters/node.ts'
import { createReceiver, vehicles } from '../../src/index.ts'
import { inspectorRoutes } from '../../src/inspector.ts'

const { INBOX: path = '', WEBHOOK_SECRET: secret } = process.env
let dead = 0
const receiver = createReceiver({
  secret,
  inbox: sqliteInbox({ path }),
  retry: { attempts: 1 },
  concurrency: 64,
  timeoutMs: 600_000,
  parts: [vehicles({ fields: 'all' })],
  observe: { dead: () => console.log(`dead ${(dead += 1)}`), settled: ({ vin }) => console.log(`settled ${vin}`) },
}).on('data', async ({ vin }) => {
  if (vin.startsWith('DEAD')) throw new Error('no')
  if (vin.startsWith('WAIT')) await new Promise(() => {})
})
const app = new Hono()
app.route('/telemetry', receiver.routes())
app.route('/inspector', inspectorRoutes(receiver, { secret: 'operator' }))
await serve(app, { port: 0, hostname: '127.0.0.1', signals: false })
