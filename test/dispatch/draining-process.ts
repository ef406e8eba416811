// A process that drains and must then end by itself, without `process.exit`.
import { createReceiver } from '../../src/index.ts'

const data = (vin: string): object => ({ vin, createdAt: '2024-02-24T04:58:44Z', data: { Odometer: 1 } })
const receiver = createReceiver({ secret: false, retry: { attempts: 2, minMs: 10, maxMs: 10 } }).on(
  'data',
  async ({ vin }, { delivery }) => {
    if (vin === 'HANGS') await new Promise(() => {})
    if (vin === 'DIES' || (vin === 'RETRIED' && delivery.attempt === 1)) throw new Error('no')
  },
)
const quiet = console
quiet.warn = () => {}
quiet.error = () => {}

const post = (vin: string): Promise<unknown> => receiver.accept({ authorization: undefined, body: data(vin) })
await post('EARLY')
await post('EARLY')
while (receiver.stats().handled < 2) await new Promise((resolve) => setTimeout(resolve, 1))
for (const vin of ['HANGS', 'HANGS', 'DIES', 'RETRIED', 'LATE']) await post(vin)
const result = await receiver.drain({ deadlineMs: 1_000 })
const { received, handled, deadLettered, lost, pending } = receiver.stats()
console.log(JSON.stringify({ result, received, handled, deadLettered, lost, pending: pending.messages }))
