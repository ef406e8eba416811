// What one would write without fleethook, based on the client's README: a server that sends each message with `producer.send`.
import { serve } from '@hono/node-server'
import { ProduceAcks, Producer, stringSerializers } from '@platformatic/kafka'
import { Hono } from 'hono'

const settings: { readonly brokers: string[]; readonly topic: string } = JSON.parse(process.env['SETTINGS'] ?? '{}')
const { brokers: bootstrapBrokers, topic } = settings
const producer = new Producer({ clientId: 'peer', bootstrapBrokers, serializers: stringSerializers })
const app = new Hono()
  .get('/readyz', (context) => context.text('ready'))
  .post('/', async (context) => {
    if (context.req.header('authorization') !== process.env['WEBHOOK_SECRET']) return context.body(null, 401)
    const value = await context.req.text()
    const { vin }: { vin: string } = JSON.parse(value)
    await producer.send({ messages: [{ topic, key: vin, value }], acks: ProduceAcks.ALL })
    return context.json({ success: true })
  })
serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }, ({ port }) => {
  console.log(`listening on http://127.0.0.1:${port}`)
})
