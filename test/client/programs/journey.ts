import { createClient, ServiceError } from '../../../src/client.ts'
import { createReceiver } from '../../../src/index.ts'

const vin = '0FLEETV14T0000004'

/** Uses the whole service with the runtime's own `fetch`, streams and timers. Returns what it saw. */
export async function journey(baseUrl: string): Promise<Readonly<Record<string, unknown>>> {
  const client = createClient({ baseUrl, apiKey: 'the-key-of-the-business', retry: { minMs: 1, maxMs: 20 } })
  const codeOf = async (promise: Promise<unknown>): Promise<unknown> =>
    promise.catch((error: unknown) => (error instanceof ServiceError ? [error.code, error.status] : String(error)))

  const before = await codeOf(client.webhook.get())
  await client.webhook.set({ url: 'https://receiver.example/', format: 'service', auth: 'a-long-random-value' })
  const { auth } = await client.webhook.get()
  await client.webhook.delete()
  const local = await codeOf(client.webhook.set({ url: 'https://[::ffff:7f00:1]/', format: 'service' }))
  const patched = await client.config(vin).patch({ fields: { Gear: { interval_seconds: 1 } } })
  const { bytes } = await client.vehicle(vin).image()

  const levels: unknown[] = []
  for await (const event of client.stream(vin)) {
    if (event.topic === 'data') levels.push(event.data.BatteryLevel)
    if (levels.length === 4) break
  }

  const controller = new AbortController()
  let aborted = 'not yet'
  for await (const event of client.stream('SILENT', { signal: controller.signal })) {
    aborted = event.topic
    setTimeout(() => controller.abort(), 5)
  }

  const handled: unknown[] = []
  const receiver = createReceiver({ secret: false }).on('data', (event) => {
    handled.push(event.data.BatteryLevel)
    if (handled.length === 4) void receiver.drain()
  })
  await receiver.from(client.stream(vin))

  const refilled: unknown[] = []
  for await (const event of client.refill({ vin })) refilled.push(event.vehicleData)

  const impatient = createClient({ baseUrl, apiKey: 'key', timeoutMs: 50, retry: { attempts: 1 } })
  return {
    before,
    auth,
    local,
    ignored: patched.ignoredFields,
    image: bytes.length,
    levels,
    aborted,
    refilled,
    handled: handled.slice(0, 4),
    patient: await client.products(),
    late: await codeOf(impatient.vehicle('SLOW').summary()),
    moved: await codeOf(client.vehicle('MOVED').summary()),
    gone: await codeOf(
      createClient({ baseUrl: 'http://127.0.0.1:9', apiKey: 'key', retry: { attempts: 1 } }).products(),
    ),
  }
}
