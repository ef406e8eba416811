import { join } from 'node:path'
import { createReceiver, vehicles } from 'fleethook'
import { createClient } from 'fleethook/client'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { metricsRoutes } from 'fleethook/metrics'
import { serve } from 'fleethook/node'
import { operatorRoutes } from 'fleethook/operator'
import { createSandbox } from 'fleethook/sandbox'
import { vehicle } from 'fleethook/testing'
import { Hono } from 'hono'
import { expect, onTestFinished, test } from 'vitest'
import { command } from '../cli/command.ts'
import { newFolder } from '../folder.ts'

const log = { debug() {}, info() {}, warn() {}, error() {} }
const SERVICE_API_KEY = 'sk_the_key_of_the_business'

/** A business with four vehicles: one is heard, one asleep, one has lost its key, and one its customer. The webhook is set. */
async function fleet(): Promise<{
  readonly url: string
  readonly operatorUrl: string
  readonly file: string
  readonly vins: readonly string[]
  readonly metrics: () => Promise<string>
}> {
  const config = { fields: { BatteryLevel: { interval_seconds: 60 } } }
  const apiKey = SERVICE_API_KEY
  const sandbox = createSandbox({ apiKey, speed: 0, vehicles: 4, energySites: 0, config, post: async () => 200 })
  const service = await serve(sandbox.app, { port: 0, hostname: '127.0.0.1', signals: [] })
  const client = createClient({ baseUrl: service.url, apiKey, log })
  await client.webhook.set({ url: 'https://receiver.example/', format: 'service', auth: 'hunter2' })
  const vins = (await client.products()).map(({ product_id: vin }) => vin)
  const [heard = '', asleep = '', keyless = '', left = ''] = vins
  for (const [vin, fault] of [
    [keyless, 'key_not_installed'],
    [left, 'customer_reconnect_required'],
  ]) {
    const init = { method: 'POST', headers: { authorization: `Bearer ${apiKey}` }, body: JSON.stringify({ fault }) }
    expect((await fetch(`${service.url}/sandbox/vehicles/${vin}/fault`, init)).status).toBe(200)
  }
  const file = join(newFolder('missing'), 'inbox.db')
  const receiver = createReceiver({
    secret: false,
    log,
    parts: [vehicles({ fields: ['BatteryLevel'] })],
    inbox: sqliteInbox({ path: file }),
  })
  await vehicle(receiver, heard).state('online')
  await vehicle(receiver, asleep).state('asleep')
  const missing = client.missing(receiver)
  const app = new Hono()
    .route('/ops', operatorRoutes(receiver, { secret: 'an-operator', missing }))
    .route('/metrics', metricsRoutes(receiver, { secret: false, missing }))
  const server = await serve(app, { port: 0, hostname: '127.0.0.1', signals: [] })
  onTestFinished(async () => {
    await receiver.drain()
    await server.close()
    await sandbox.close()
    await service.close()
  })
  const metrics = async (): Promise<string> => (await fetch(`${server.url}/metrics`)).text()
  return { url: service.url, operatorUrl: `${server.url}/ops`, file, vins, metrics }
}

test('`vehicles --missing` lists the shared vehicles that are not heard, with the reason and what to do', async () => {
  const { url, file, vins } = await fleet()
  const env = { SERVICE_URL: url, SERVICE_API_KEY, FLEETHOOK_INBOX: file }
  const { stdout, stderr } = await command(['vehicles', '--missing', '--json'], env)
  expect(stderr).toBe('')
  const [, asleep, keyless, left] = vins
  expect(JSON.parse(stdout)).toMatchObject({
    vehicles: [
      { vin: left, reason: 'customer_reconnect_required', customer: { ref: 'our-4' } },
      { vin: keyless, reason: 'key_not_installed' },
      { vin: asleep, reason: 'asleep', heardAt: expect.stringContaining('T') },
    ],
  })
  const shown = await command(['vehicles', '--missing'], env)
  expect(shown.stdout).toMatch(new RegExp(`${keyless} +key_not_installed +never +our-3`))
  expect(shown.stdout).toContain('customer_reconnect_required: The connection of this customer is gone.')
})

test('without the key of the service, it asks a receiver whose `operatorRoutes` know the missing vehicles', async () => {
  const { operatorUrl, vins } = await fleet()
  const env = { FLEETHOOK_OPERATOR_URL: operatorUrl, FLEETHOOK_OPERATOR_SECRET: 'an-operator' }
  const { stdout } = await command(['vehicles', '--missing', '--json'], env)
  expect(
    JSON.parse(stdout)
      .vehicles.map(({ vin }: { readonly vin: string }) => vin)
      .toSorted(),
  ).toEqual(vins.slice(1).toSorted())
})

test('a business that is not active is told as such, with what to do', async () => {
  const { url, file } = await fleet()
  const init = { method: 'POST', headers: { authorization: `Bearer ${SERVICE_API_KEY}` }, body: '{"active":false}' }
  await fetch(`${url}/sandbox/business`, init)
  const env = { SERVICE_URL: url, SERVICE_API_KEY, FLEETHOOK_INBOX: file }
  const { stdout, status } = await command(['vehicles', '--missing'], env)
  expect(status).toBe(0)
  expect(stdout).toContain('business_not_active: The service has suspended or removed your business.')
})

test('the metric counts them by their reason, with 0 for every other reason', async () => {
  const { metrics } = await fleet()
  expect(await metrics()).not.toContain('fleethook_vehicles_missing')
  await expect.poll(metrics).toContain('fleethook_vehicles_missing{fleethook_reason="key_not_installed"} 1')
  const text = await metrics()
  expect(text).toContain('fleethook_vehicles_missing{fleethook_reason="asleep"} 1')
  expect(text).toContain('fleethook_vehicles_missing{fleethook_reason="webhook_paused"} 0')
})

test('doctor names the reasons, and what is at rest is no fault', async () => {
  const { url, file } = await fleet()
  const env = { SERVICE_URL: url, SERVICE_API_KEY, FLEETHOOK_INBOX: file }
  const { stdout, status } = await command(['doctor', '--only', 'vehicles', '--json'], env)
  expect(status).toBe(0)
  expect(JSON.parse(stdout).findings).toEqual([
    {
      id: 'vehicles.missing',
      status: 'warn',
      found: 'Shared vehicles that are not heard: customer_reconnect_required 1, key_not_installed 1.',
      todo: expect.stringContaining('fleethook vehicles --missing'),
    },
  ])
  for (const { vin } of JSON.parse((await command(['vehicles', '--missing', '--json'], env)).stdout).vehicles) {
    const init = { method: 'POST', headers: { authorization: `Bearer ${SERVICE_API_KEY}` }, body: '{"fault":null}' }
    await fetch(`${url}/sandbox/vehicles/${vin}/fault`, init)
  }
  const well = await command(['doctor', '--only', 'vehicles', '--json'], env)
  expect(JSON.parse(well.stdout).findings[0]).toMatchObject({
    status: 'ok',
    found: 'every shared vehicle is heard, or at rest: asleep 3.',
  })
})
