import { createReceiver, type FleetEvent, type Format } from 'fleethook'
import { createClient } from 'fleethook/client'
import { serve } from 'fleethook/node'
import { createSandbox } from 'fleethook/sandbox'
import { serve as serveApp } from '@hono/node-server'
import { once } from 'node:events'
import { expect, test } from 'vitest'
import { apiKey, startAt } from './scene.ts'

const secret = 'a-long-random-value-of-the-tests'
const formats: readonly Format[] = ['service', 'vehicle_maker', 'event_collector']
const topics = ['data', 'state', 'vehicle_data', 'alerts', 'errors', 'connectivity']

/** Client to sandbox to receiver, all over HTTP. */
async function story(format: Format, work: (given: { ask: Ask; vins: readonly string[] }) => Promise<void>) {
  const handled: FleetEvent[] = []
  const receiver = createReceiver({ secret, format }).on('*', (event) => void handled.push(event))
  const listening = await serve(receiver, { port: 0, hostname: '127.0.0.1', announce: false, signals: false })
  const sandbox = createSandbox({ apiKey, startAt, speed: 0, seed: 3, allowLocal: true, vehicles: 6 })
  const server = serveApp({ fetch: sandbox.fetch, port: 0, hostname: '127.0.0.1' })
  if (!server.listening) await once(server, 'listening')
  const baseUrl = `http://127.0.0.1:${Object(server.address()).port}`
  const client = createClient({ baseUrl, apiKey })
  const ask: Ask = async (path, body) => {
    const init = body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }
    return (await fetch(`${baseUrl}${path}`, { ...init, headers: { authorization: `Bearer ${apiKey}` } })).json()
  }
  try {
    await client.webhook.set({ url: listening.url, format, auth: secret }, { allowLocal: true })
    const products = await client.products()
    const vins = products.flatMap((one) => (one.product_type === 'vehicle' ? [one.product_id] : []))
    const fields = {
      Location: { interval_seconds: 30 },
      Gear: { interval_seconds: 1 },
      DoorState: { interval_seconds: 1 },
    }
    await Promise.all(vins.map((vin) => client.config(vin).replace({ fields })))
    await work({ ask, vins })
    const deliveries: readonly { readonly outcome: string }[] = Object(await ask('/sandbox/deliveries')).response
    expect(deliveries.filter(({ outcome }) => outcome !== 'accepted')).toEqual([])
  } finally {
    await sandbox.close()
    server.close()
    await listening.close()
  }
  return { handled, refused: receiver.stats().refused }
}
type Ask = (path: string, body?: object) => Promise<unknown>

const payloads: Readonly<Record<string, object>> = {
  data: { data: { Gear: 'D', Location: { latitude: 1.5, longitude: 2.5 } } },
  state: { state: 'driving' },
  vehicle_data: { vehicle_data: { vin: 'x', charge_state: { battery_level: 5 } } },
  alerts: { alerts: [{ name: 'A', startedAt: '2026-06-01T08:00:00Z', audiences: ['Customer'] }] },
  errors: { errors: [{ name: 'E', createdAt: '2026-06-01T08:00:00Z', tags: {}, body: 'b' }] },
  connectivity: { status: 'CONNECTED', networkInterface: 'wifi', connectionId: 'c' },
}

test.each(formats)('every topic arrives as the same event, as %s', async (format) => {
  const seen: Record<string, unknown> = {}
  const { handled } = await story(format, async ({ ask, vins }) => {
    for (const topic of topics) {
      await ask('/sandbox/messages', { vin: vins[0], createdAt: '2026-06-01T08:00:00.5Z', ...payloads[topic] })
    }
  })
  expect(handled.map(({ topic }) => topic)).toEqual(topics)
  for (const event of handled) {
    expect(event.at).toEqual(new Date('2026-06-01T08:00:00.5Z'))
    seen[event.topic] = event
  }
  expect(seen).toMatchObject({
    data: { data: { Gear: 'D', Location: { latitude: 1.5, longitude: 2.5 } } },
    state: { state: 'driving' },
    vehicle_data: { vehicleData: { charge_state: { battery_level: 5 } } },
    alerts: { alerts: [{ name: 'A' }] },
    errors: { errors: [{ name: 'E', body: 'b' }] },
    connectivity: { status: 'connected', networkInterface: 'wifi', connectionId: 'c' },
  })
})
