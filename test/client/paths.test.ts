import { describe, expect, test } from 'vitest'
import { json, refusal, rejection, stub, vin } from './stub.ts'

describe('every path of the specification', () => {
  const base = `/api/1/vehicles/${vin}`
  const { client, lines } = stub(json({ response: { is: 'kept' } }))
  const vehicle = client.vehicle(vin)
  const site = client.energySite(12345)

  test.each([
    ['summary', () => vehicle.summary(), base],
    ['data', () => vehicle.data(), `${base}/vehicle_data`],
    [
      'data with sections',
      () => vehicle.data({ endpoints: ['charge_state', 'location_data'], query: { a: 1 } }),
      `${base}/vehicle_data?endpoints=charge_state%3Blocation_data&a=1`,
    ],
    ['telemetry', () => vehicle.telemetry(), `${base}/telemetry`],
    ['telemetryConfig', () => vehicle.telemetryConfig(), `${base}/fleet_telemetry_config`],
    ['telemetryErrors', () => vehicle.telemetryErrors(), `${base}/fleet_telemetry_errors`],
    ['recentAlerts', () => vehicle.recentAlerts(), `${base}/recent_alerts`],
    ['nearbyChargingSites', () => vehicle.nearbyChargingSites(), `${base}/nearby_charging_sites`],
    ['releaseNotes', () => vehicle.releaseNotes(), `${base}/release_notes`],
    ['another', () => vehicle.get('mobile_enabled', { query: { a: 1, b: undefined } }), `${base}/mobile_enabled?a=1`],
    ['siteInfo', () => site.siteInfo(), '/api/1/energy_sites/12345/site_info'],
    ['liveStatus', () => site.liveStatus(), '/api/1/energy_sites/12345/live_status'],
    [
      'calendarHistory',
      () => site.calendarHistory({ query: { kind: 'energy' } }),
      '/api/1/energy_sites/12345/calendar_history?kind=energy',
    ],
    ['telemetryHistory', () => site.telemetryHistory(), '/api/1/energy_sites/12345/telemetry_history'],
    ['programs', () => site.programs(), '/api/1/energy_sites/12345/programs'],
  ])('%s is read, and what was in `response` is given back', async (_name, run, path) => {
    expect(await run()).toEqual({ is: 'kept' })
    expect(lines().at(-1)).toBe(`GET ${path}`)
  })
})

test('the charge history is requested by POST, and resolves to `response`', async () => {
  const { client, asked, lines } = stub(json({ response: { is: 'kept' } }))
  expect(await client.vehicle(vin).chargeHistory({ query: { page: 2 } })).toEqual({ is: 'kept' })
  expect(lines()).toEqual([`POST /api/1/vehicles/${vin}/charge_history?page=2`])
  expect(asked[0]?.body).toBeUndefined()
})

test('an image resolves to its bytes and their type', async () => {
  const bytes = new Uint8Array([137, 80, 78, 71, 0, 255])
  const { client, asked, lines } = stub(() => new Response(bytes, { headers: { 'content-type': 'image/png' } }))
  expect(await client.vehicle(vin).image()).toEqual({ bytes, contentType: 'image/png' })
  expect(lines()).toEqual([`GET /api/image/${vin}`])
  expect(asked[0]?.headers.get('accept')).toBe('image/*')
})

test('products have their customer and region, and keep unknown members', async () => {
  const products = [
    {
      product_type: 'vehicle',
      product_id: vin,
      customer: { id: 'c1', ref: 'our-7', since: 2024 },
      region: 'eu',
      more: 1,
    },
    { product_type: 'energy', product_id: 12345, customer: { id: 'c2', ref: null } },
  ]
  const { client, lines } = stub(json({ response: products }))
  expect(await client.products()).toEqual([products[0], { ...products[1], product_id: '12345' }])
  expect(lines()).toEqual(['GET /api/business/products'])
})

describe('commands', () => {
  test('are posted with their body, or with an empty object', async () => {
    const { client, asked, lines } = stub(json({ response: { result: true, reason: '' } }))
    expect(await client.command(vin, 'set_charge_limit', { percent: 80 })).toEqual({ result: true, reason: '' })
    await client.command(vin, 'charge_start')
    await client.energySite('12345').command('backup', { backup_reserve_percent: 20 })
    expect(lines()).toEqual([
      `POST /api/1/vehicles/${vin}/command/set_charge_limit`,
      `POST /api/1/vehicles/${vin}/command/charge_start`,
      'POST /api/1/energy_sites/12345/backup',
    ])
    expect(asked.map(({ body }) => body)).toEqual([{ percent: 80 }, {}, { backup_reserve_percent: 20 }])
  })

  test('resolve with the reason when the vehicle refused them', async () => {
    const { client } = stub(json({ response: { result: false, reason: 'complete' } }))
    expect(await client.command(vin, 'charge_start')).toEqual({ result: false, reason: 'complete' })
  })

  test('wakeUp is sent once to the path that clients use, and resolves to the vehicle', async () => {
    const { client, asked, lines } = stub(json({ response: { vin, state: 'online', id_s: '1' } }))
    expect(await client.wakeUp(vin)).toEqual({ vin, state: 'online', id_s: '1' })
    expect(lines()).toEqual([`POST /api/1/vehicles/${vin}/wake_up`])
    expect(asked[0]?.body).toEqual({})
  })

  test.each(['not_found', 'vehicle_not_found'])('wakeUp tries no other path after 404 %s', async (code) => {
    const { client, asked } = stub(refusal(404, code))
    expect(await rejection(client.wakeUp(vin))).toMatchObject({ code })
    expect(asked).toHaveLength(1)
  })
})

describe('a value that would lead to another path is refused before it is sent', () => {
  const { client, asked } = stub(json({}))
  test.each(['', '.', '..', '../7', 'a/b', 'a%2Fb', 'a?b', 'a#b', 'a b', 'ü', 'a\\b'])('%j', async (value) => {
    const calls: (() => Promise<unknown>)[] = [
      async () => client.vehicle(value).summary(),
      async () => client.config(value).get(),
      async () => client.energySite(value).siteInfo(),
      async () => client.command(value, 'wake_up'),
      async () => client.command(vin, value),
      async () => client.energySite(1).command(value),
      async () => client.wakeUp(value),
      async () => client.stream(value),
      async () => client.stream(vin, { field: value }),
    ]
    for (const run of calls) expect(await rejection(run())).toMatchObject({ code: 'invalid_request' })
    if (value !== 'a/b')
      expect(await rejection(client.vehicle(vin).get(value))).toMatchObject({ code: 'invalid_request' })
    expect(asked).toEqual([])
  })
})
