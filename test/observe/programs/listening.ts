// A receiver with operatorRoutes and the inbox in memory, which prints what it gets, as it came.
import { Hono } from 'hono'
import { serve } from '../../../adapters/node.ts'
import { createReceiver } from '../../../src/index.ts'
import { operatorRoutes } from '../../../src/operator.ts'

const { PORT = '0', WEBHOOK_SECRET: secret } = process.env
const receiver = createReceiver({ secret }).on('*', ({ raw }) => console.log(`got ${JSON.stringify(raw)}`))
const app = new Hono()
app.route('/operator', operatorRoutes(receiver, { secret: 'the-operator' }))
app.route('/', receiver.routes())
await serve(app, { port: Number(PORT), hostname: '127.0.0.1' })
