// What one would write without fleethook, based on the client's README: a server that sends each message with `producer.send`, or a
// consumer with `autocommit: true`.
import { appendFileSync } from 'node:fs'
import { serve } from '@hono/node-server'
import {
  Consumer,
  MessagesStreamFallbackModes,
  MessagesStreamModes,
  Producer,
  ProduceAcks,
  stringDeserializers,
  stringSerializers,
} from '@platformatic/kafka'
import { Hono } from 'hono'
import type { RunLine } from '../faults/process/journal.ts'

/** The settings from the test. */
export interface PeerSettings {
  readonly brokers: readonly string[]
  readonly topic: string
  readonly role: 'receive' | 'handle'
  /** The file to which every run of a handler is written. Default: none. */
  readonly journal?: string
  /** The duration of a handler in milliseconds. Default 0. */
  readonly handlerMs?: number
}

const settings: PeerSettings = JSON.parse(process.env['SETTINGS'] ?? '{}')
const { topic, role, journal, handlerMs = 0 } = settings
const bootstrapBrokers = [...settings.brokers]
const now = (): number => performance.timeOrigin + performance.now()

async function handle(text: string): Promise<void> {
  const { vin, data }: { vin: string; data: { Odometer: number } } = JSON.parse(text)
  const startedAtMs = now()
  if (handlerMs > 0) await new Promise((resolve) => setTimeout(resolve, handlerMs))
  if (journal === undefined) return
  const run: RunLine = {
    ...{ kind: 'run', pid: process.pid, vin, number: data.Odometer, delivery: '', attempt: 1, redelivered: false },
    replayed: false,
    startedAtMs,
    atMs: now(),
  }
  appendFileSync(journal, `${JSON.stringify(run)}\n`)
}

const app = new Hono()
if (role === 'receive') {
  const producer = new Producer({ clientId: 'peer', bootstrapBrokers, serializers: stringSerializers })
  app.post('/', async (context) => {
    if (context.req.header('authorization') !== process.env['WEBHOOK_SECRET']) return context.body(null, 401)
    const value = await context.req.text()
    const { vin }: { vin: string } = JSON.parse(value)
    await producer.send({ messages: [{ topic, key: vin, value }], acks: ProduceAcks.ALL })
    return context.json({ success: true })
  })
} else {
  const consumer = new Consumer({
    groupId: `${topic}-peer`,
    clientId: 'peer',
    bootstrapBrokers,
    deserializers: stringDeserializers,
  })
  const stream = await consumer.consume({
    autocommit: true,
    topics: [topic],
    sessionTimeout: 10_000,
    heartbeatInterval: 500,
    // With its default `LATEST`, it would skip messages that arrived before it joined.
    mode: MessagesStreamModes.COMMITTED,
    fallbackMode: MessagesStreamFallbackModes.EARLIEST,
  })
  stream.on('data', ({ value }) => void handle(value))
  // It leaves the group as in the README, without waiting for the handlers.
  process.once('SIGTERM', () => void consumer.close(true).then(() => process.exit()))
}
app.get('/readyz', (context) => context.text('ready'))
serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }, ({ port }) => {
  console.log(`listening on http://127.0.0.1:${port}`)
})
