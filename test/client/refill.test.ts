import type { VehicleDataEvent } from 'fleethook'
import { describe, expect, test } from 'vitest'
import { type Asked, json, refusal, rejection, stub, vin } from './stub.ts'

const other = '0FLEETV14T0000005'
const asleep = '0FLEETV14T0000006'
const products = [vin, asleep, other, vin].map((id) => ({ product_type: 'vehicle', product_id: id }))

function service({ path }: Asked): Response {
  if (path === '/api/business/products')
    return json({ response: [...products, { product_type: 'energy', product_id: '7' }] })()
  if (path.includes(asleep)) return refusal(408, 'vehicle_unavailable')()
  return json({ response: { asked: path, charge_state: { battery_level: 81 } } })()
}

async function all(events: AsyncIterable<VehicleDataEvent>): Promise<readonly VehicleDataEvent[]> {
  const list: VehicleDataEvent[] = []
  for await (const event of events) list.push(event)
  return list
}

describe('refill', () => {
  test('fetches the full state of the gap’s vehicle as a vehicle_data event', async () => {
    const { client, lines } = stub(service)
    const [event, ...more] = await all(client.refill({ vin }))
    expect(more).toEqual([])
    expect(event).toMatchObject({
      topic: 'vehicle_data',
      vin,
      createdAt: '2026-11-21T10:00:00.000Z',
      vehicleData: { asked: `/api/1/vehicles/${vin}/vehicle_data`, charge_state: { battery_level: 81 } },
    })
    expect(lines()).toEqual([`GET /api/1/vehicles/${vin}/vehicle_data`])
  })

  test('fetches every shared vehicle once when the gap names none', async () => {
    const { client, lines } = stub(service)
    const failed: unknown[] = []
    const events = await all(client.refill({}, { onFailed: (who, error) => failed.push([who, error]) }))
    expect(events.map((event) => event.vin).toSorted()).toEqual([vin, other])
    expect(failed).toEqual([[asleep, expect.objectContaining({ code: 'vehicle_unavailable' })]])
    expect(lines()).toHaveLength(4)
  })

  test('throws the error of a vehicle after all others, when there is no `onFailed`', async () => {
    const { client } = stub(service)
    const events: VehicleDataEvent[] = []
    const done = (async () => {
      for await (const event of client.refill({})) events.push(event)
    })()
    expect(await rejection(done)).toMatchObject({ code: 'vehicle_unavailable', status: 408 })
    expect(events).toHaveLength(2)
  })

  test('asks at most four vehicles at once', async () => {
    let running = 0
    let most = 0
    const many = Array.from({ length: 20 }, (_, index) => ({ product_type: 'vehicle', product_id: `V${index}` }))
    const { client } = stub(async ({ path }) => {
      if (path === '/api/business/products') return json({ response: many })()
      running += 1
      most = Math.max(most, running)
      await new Promise((resolve) => setTimeout(resolve, 1))
      running -= 1
      return json({ response: {} })()
    })
    expect(await all(client.refill({}))).toHaveLength(20)
    expect(most).toBe(4)
  })

  test('cancels its open requests when the loop is left', async () => {
    const open: AbortSignal[] = []
    const { client } = stub((asked, { signal }) => {
      if (!asked.path.includes(other)) return service(asked)
      if (signal) open.push(signal)
      return new Promise(() => {})
    })
    for await (const event of client.refill({}, { onFailed: () => {} })) {
      expect(event.vin).toBe(vin)
      break
    }
    expect(open.map(({ aborted }) => aborted)).toEqual([true])
  })

  test('stops when its signal is aborted', async () => {
    const { client } = stub(service)
    expect(await rejection(all(client.refill({}, { signal: AbortSignal.abort() })))).toMatchObject({
      name: 'AbortError',
    })
  })

  test('sends nothing before it is iterated', () => {
    const { client, asked } = stub(service)
    client.refill({})
    expect(asked).toEqual([])
  })
})
