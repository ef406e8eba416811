import { DatabaseSync } from 'node:sqlite'
import { Consumer, stringDeserializers } from '@platformatic/kafka'
import { createReceiver, vehicles } from 'fleethook'
import type { Part } from 'fleethook/extend'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { addHandlers } from './handlers.ts'

const { KAFKA_BROKERS, KAFKA_TOPICS, DATABASE = 'readings.db', FLEETHOOK_INBOX = 'data/inbox.db' } = process.env
// Nothing is posted, so there is no secret. What fails for a minute becomes a dead letter, and its partition goes on.
const options = { secret: false, ack: 'handled', retry: { maxAgeMs: 60_000 } } as const
// A record that ended three processes is a dead letter, and comes again, because its offset has not moved.
const dead = new Set<string>()
const admit: Part['admit'] = ({ event }) => (event && 'id' in event && dead.has(event.id) ? 'skip' : undefined)
const parts = [vehicles({ fields: ['Gear'] }), { create: () => ({ admit }) }] as const
const receiver = createReceiver({ ...options, inbox: sqliteInbox({ path: FLEETHOOK_INBOX }), parts })
addHandlers(receiver, new DatabaseSync(DATABASE, { timeout: 5_000 }))
for await (const { event } of receiver.deadLetters.list()) if ('id' in event) dead.add(event.id)
// With the name of its predecessor, a process that was killed is back at once.
const names = { clientId: 'fleethook', groupId: 'fleethook', groupInstanceId: 'fleethook', sessionTimeout: 10_000 }
const settings = { ...names, bootstrapBrokers: (KAFKA_BROKERS || 'localhost:9092').split(',') }
const consumer = new Consumer({ ...settings, deserializers: stringDeserializers })
const topics = (KAFKA_TOPICS || 'telemetry_V').split(',')
const stream = await consumer.consume({ topics, autocommit: false, mode: 'committed', fallbackMode: 'earliest' })
let stopping: Promise<never> | undefined
for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => (stopping ??= stop(0)))
async function stop(code: number): Promise<never> {
  await receiver.drain()
  await consumer.close(true) // commits what was handled
  process.exit(code)
}
const handled = new Map<string, Promise<void>>() // for each partition, when everything so far is handled
const open: Promise<void>[] = []
for await (const record of stream) {
  const partition = `${record.topic} ${record.partition}`
  const accepted = receiver.accept({ headers: null, body: record.value })
  const done = Promise.all([accepted, handled.get(partition)]).then(([{ status }]) => {
    // 4xx is no message, for instance protobuf: the log says so. After 5xx, the next process begins at the last commit.
    if (status >= 500) return (stopping ??= stop(1))
    void record.commit()
  })
  handled.set(partition, done)
  if (open.push(done) > 500) await open.shift()
}
