import { ServiceError } from 'fleethook/client'
import { describe, expect, test } from 'vitest'
import { rejection } from '../client/stub.ts'
import { apiKey, messagesIn, sceneOf } from './scene.ts'

const refused = ({ status, body }: { readonly status: number; readonly body: unknown }): readonly unknown[] => [
  status,
  Object(body)['error'],
]

test('a product has what clients of the service check: a region in upper case, and a customer with a ref', async () => {
  const { ask } = await sceneOf({ vehicles: 8 })
  const { response } = (await ask('GET', '/api/business/products')).body
  for (const { region, customer, granted_at: at } of response) {
    expect(['NA', 'EU']).toContain(region)
    expect(customer).toEqual({ id: expect.any(String), ref: expect.any(String) })
    expect(new Date(at).toISOString()).toBe(at)
  }
  expect(new Set(response.map(({ region }: { readonly region: string }) => region))).toEqual(new Set(['NA', 'EU']))
})

describe('the business and its key', () => {
  test('a business that is not active is refused everything, until it is active again', async () => {
    const { ask, vin } = await sceneOf()
    await ask('POST', '/sandbox/business', { active: false })
    for (const path of ['/api/business/products', `/api/config/${vin}`, `/api/1/vehicles/${vin}`, `/sse/${vin}`])
      expect(refused(await ask('GET', path)), path).toEqual([403, 'business_not_active'])
    await ask('POST', '/sandbox/business', { active: true })
    expect((await ask('GET', '/api/business/products')).status).toBe(200)
  })

  test('a key needs data:read to read, and streaming:write to change what streams', async () => {
    const { ask, vin } = await sceneOf()
    const change = ['PATCH', `/api/config/${vin}`, { fields: { Gear: null } }] as const
    await ask('POST', '/sandbox/business', { permissions: ['data:read'] })
    expect((await ask('GET', '/api/business/products')).status).toBe(200)
    expect(refused(await ask(...change))).toEqual([403, 'business_permission_missing'])
    await ask('POST', '/sandbox/business', { permissions: ['streaming:write'] })
    expect(refused(await ask('GET', '/api/business/products'))).toEqual([403, 'business_permission_missing'])
    expect((await ask(...change)).status).toBe(200)
    expect(refused(await ask('POST', '/sandbox/business', { permissions: ['all'] }))).toEqual([400, 'invalid_request'])
  })

  test.each(['/api/metadata', '/sse'])('%s is closed to it', async (path) => {
    const { ask } = await sceneOf()
    expect(refused(await ask('GET', path))).toEqual([403, 'business_route_not_allowed'])
  })

  test('while keys cannot be checked, every request is told when to come back, and the client does', async () => {
    const { ask, client, clock, sandbox } = await sceneOf()
    await ask('POST', '/sandbox/business', { auth_unavailable_seconds: 5 })
    const answer = await sandbox.fetch(
      new Request('https://sandbox.example.com/api/business/products', {
        headers: { authorization: `Bearer ${apiKey}` },
      }),
    )
    expect([answer.status, answer.headers.get('retry-after')]).toEqual([503, '5'])
    expect(await rejection(client.command('0FL3EETV6T0000000', 'charge_start'))).toMatchObject({
      code: 'business_auth_unavailable',
      retryAfterMs: 5_000,
    })
    await clock.advance(5_000)
    expect(await client.products()).toHaveLength(4)
  })

  test('the key is read from its header only', async () => {
    const { sandbox } = await sceneOf()
    for (const query of ['token', 'key', 'access_token', 'api_key'])
      expect(
        (await sandbox.fetch(new Request(`https://sandbox.example.com/api/business/products?${query}=${apiKey}`)))
          .status,
      ).toBe(401)
  })
})

describe('a customer and a vehicle', () => {
  test.each(['customer_reconnect_required', 'customer_scope_missing'])(
    '%s: every request about the vehicle is refused, nothing is posted, and the others go on',
    async (fault) => {
      const config = { fields: { BatteryLevel: { interval_seconds: 1 }, VehicleSpeed: { interval_seconds: 1 } } }
      const { ask, vin, client, posted, sandbox } = await sceneOf({ vehicles: 2, config })
      await client.webhook.set({ url: 'https://receiver.example/', format: 'service', auth: 'hunter2' })
      expect((await ask('POST', `/sandbox/vehicles/${vin}/fault`, { fault })).body.response.fault).toBe(fault)
      for (const path of [`/api/config/${vin}`, `/api/1/vehicles/${vin}`, `/api/image/${vin}`, `/sse/${vin}`])
        expect(refused(await ask('GET', path)), path).toEqual([403, fault])
      const error = await rejection(client.command(vin, 'charge_start'))
      expect(error instanceof ServiceError && error.hint).toContain('connect')
      expect(await rejection(Array.fromAsync(client.stream(vin)))).toMatchObject({ code: fault })
      await sandbox.advance(600_000)
      const vins = new Set(messagesIn(posted).map(({ vin: of }) => of))
      expect(vins.has(vin)).toBe(false)
      expect(vins.size).toBe(1)
      await ask('POST', `/sandbox/vehicles/${vin}/fault`, { fault: null })
      expect((await ask('GET', `/api/1/vehicles/${vin}`)).status).toBe(200)
    },
  )

  test('a vehicle without its key takes no config, and the answer says so', async () => {
    const { ask, vin, client } = await sceneOf()
    await ask('POST', `/sandbox/vehicles/${vin}/fault`, { fault: 'key_not_installed' })
    expect(await client.config(vin).patch({ fields: { Gear: null } })).toMatchObject({
      updatedVehicles: 0,
      skipped: { missing_key: [vin] },
    })
    expect(await client.vehicle(vin).get('fleet_telemetry_config')).toMatchObject({ key_paired: false, synced: false })
  })

  test('a fault that the sandbox does not know is refused, with those that it knows', async () => {
    const { ask, vin } = await sceneOf()
    const answer = await ask('POST', `/sandbox/vehicles/${vin}/fault`, { fault: 'broken' })
    expect(refused(answer)).toEqual([400, 'invalid_request'])
    expect(answer.body.error_description).toContain('key_not_installed')
  })
})
