import { describe, expect, test } from 'vitest'
import { json, refusal, rejection, stub, vin } from './stub.ts'

test('what was in `response` is given back, and a query reaches the service', async () => {
  const base = `/api/1/vehicles/${vin}`
  const { client, lines } = stub(json({ response: { is: 'kept' } }))
  const vehicle = client.vehicle(vin)
  expect(await vehicle.data({ endpoints: ['charge_state', 'location_data'], query: { a: 1 } })).toEqual({ is: 'kept' })
  await vehicle.get('mobile_enabled', { query: { a: 1, b: undefined } })
  await client.energySite(12345).get('calendar_history', { query: { kind: 'energy' } })
  expect(lines()).toEqual([
    `GET ${base}/vehicle_data?endpoints=charge_state%3Blocation_data&a=1`,
    `GET ${base}/mobile_enabled?a=1`,
    'GET /api/1/energy_sites/12345/calendar_history?kind=energy',
  ])
})

test('an image resolves to its bytes and their type', async () => {
  const bytes = new Uint8Array([137, 80, 78, 71, 0, 255])
  const { client, asked, lines } = stub(() => new Response(bytes, { headers: { 'content-type': 'image/png' } }))
  expect(await client.vehicle(vin).image()).toEqual({ bytes, contentType: 'image/png' })
  expect(lines()).toEqual([`GET /api/image/${vin}`])
  expect(asked[0]?.headers.get('accept')).toBe('image/*')
})

describe('commands', () => {
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
