import { createReceiver } from 'fleethook'
import { deliver, message } from 'fleethook/testing'
import { describe, expect, test } from 'vitest'
import { json, refusal, stub, vin } from './stub.ts'

const [minute, hour] = [60_000, 3_600_000]
const other = '0FLEETV14T0000005'

const product = (id: string, ref?: string | null, granted = '2026-01-01T00:00:00Z'): object => ({
  product_type: 'vehicle',
  product_id: id,
  region: 'eu',
  customer: { id: `c-${ref}`, ...(ref === undefined ? {} : { ref }) },
  granted_at: granted,
})
const list = (...products: readonly object[]): (() => Response) => json({ response: products })

describe('client.customers', () => {
  test('says whose vehicle it is, after one request for all', async () => {
    const { client, lines } = stub(list(product(vin, '1007'), product(other, null)))
    const customers = client.customers()
    expect(lines()).toEqual([])
    expect(await Promise.all([customers.of(vin), customers.of(other), customers.of(vin)])).toEqual([
      { id: 'c-1007', ref: '1007' },
      { id: 'c-null', ref: null },
      { id: 'c-1007', ref: '1007' },
    ])
    expect(await customers.of(undefined)).toBeUndefined()
    expect(lines()).toEqual(['GET /api/business/products'])
  })

  test('lists every vehicle with its customer, the newest one of two, and rejects when the service does not say it', async () => {
    const { client } = stub([
      list(
        product(vin, 'new', '2026-05-01T00:00:00+02:00'),
        product(vin, 'old'),
        { product_type: 'vehicle', product_id: other },
        { ...product('site'), product_type: 'energy' },
      ),
      refusal(404, 'business_not_found'),
    ])
    const customers = client.customers()
    expect(await customers.list()).toEqual([{ vin, id: 'c-new', ref: 'new' }])
    await expect(customers.list()).rejects.toThrow('business_not_found')
  })

  test('asks again for a vehicle that it does not know, once a minute for all of them', async () => {
    const { client, lines, clock } = stub([list(), list(product(vin, '1007'))])
    const customers = client.customers()
    expect(await customers.of(vin)).toBeUndefined()
    await clock.advance(minute - 1)
    expect(await Promise.all([customers.of(vin), customers.of(other)])).toEqual([undefined, undefined])
    expect(lines()).toHaveLength(1)
    await clock.advance(1)
    expect(await Promise.all([customers.of(vin), customers.of(other)])).toEqual([
      { id: 'c-1007', ref: '1007' },
      undefined,
    ])
    expect(lines()).toHaveLength(2)
  })

  test('notices after an hour that a vehicle has changed hands', async () => {
    const { client, lines, clock } = stub([
      list(product(vin, 'old')),
      list(product(vin, 'new', '2026-05-01T00:00:00+02:00'), product(vin, 'old')),
      list(),
    ])
    const customers = client.customers()
    expect((await customers.of(vin))?.ref).toBe('old')
    await clock.advance(hour - 1)
    expect((await customers.of(vin))?.ref).toBe('old')
    await clock.advance(1)
    expect((await customers.of(vin))?.ref).toBe('new')
    await clock.advance(hour)
    expect(await customers.of(vin)).toBeUndefined()
    expect(lines()).toHaveLength(3)
  })

  test('a vehicle without a customer is known, and asks for nothing', async () => {
    const { client, lines, clock } = stub(list({ product_type: 'vehicle', product_id: vin }))
    const customers = client.customers()
    expect(await customers.of(vin)).toBeUndefined()
    await clock.advance(2 * minute)
    expect(await customers.of(vin)).toBeUndefined()
    expect(lines()).toHaveLength(1)
  })

  test('a product in another shape takes no other with it, and what is null is left out', async () => {
    const odd = [null, 'a text', { product_type: 'vehicle' }, { product_type: 7, product_id: other }]
    const sold = { product_type: 'vehicle', product_id: other, region: null, customer: null, granted_at: null }
    const mine = { ...product(vin), granted_at: null, customer: { id: 17, ref: 1007 } }
    const { client, clock, log } = stub([json({ response: [...odd, sold, mine] }), json({ response: odd })])
    const customers = client.customers()
    expect(await customers.of(vin)).toEqual({ id: '17', ref: '1007' })
    expect(await customers.of(other)).toBeUndefined()
    expect(log.lines).toEqual(['warn the list of customers has products that could not be read {"products":4}'])
    // Of a list of which nothing can be read, nothing follows.
    await clock.advance(hour)
    expect((await customers.of(vin))?.ref).toBe('1007')
    expect(log.lines.at(-1)).toContain('could not be read, and is read again in a minute')
  })

  test('answers with what it has while the service is down, asks once a minute, and says so once', async () => {
    const { client, lines, clock, log } = stub([list(product(vin, '1007')), refusal(503, 'down')])
    const customers = client.customers()
    await customers.of(vin)
    await clock.advance(hour)
    for (let n = 0; n < 5; n += 1) {
      expect((await customers.of(vin))?.ref).toBe('1007')
      expect(await customers.of(other)).toBeUndefined()
      await clock.advance(minute)
    }
    expect(lines()).toHaveLength(6)
    expect(log.lines).toEqual([
      'warn the list of customers could not be read, and is read again in a minute {"error":"down"}',
    ])
  })

  test('waits as long as the service says', async () => {
    const busy = refusal(429, 'too_many_requests', { 'retry-after': '300' })
    const { client, lines, clock } = stub([busy, list(product(vin, '1007'))])
    const customers = client.customers()
    expect(await customers.of(vin)).toBeUndefined()
    await clock.advance(4 * minute)
    expect(await customers.of(vin)).toBeUndefined()
    await clock.advance(minute)
    expect((await customers.of(vin))?.ref).toBe('1007')
    expect(lines()).toHaveLength(2)
  })

  test('never keeps a handler longer than five seconds, and never throws, whatever the service or the log does', async () => {
    const thrower = (): never => {
      throw new Error('the log is full')
    }
    const log = { debug: thrower, info: thrower, warn: thrower, error: thrower }
    const { client, clock } = stub(
      (_asked, { signal }) =>
        new Promise((_resolve, reject) => {
          signal?.addEventListener('abort', () => reject(signal.reason))
        }),
      { log },
    )
    const asked = client.customers().of(vin)
    await clock.advance(5_000)
    expect(await asked).toBeUndefined()
    const broken = stub(json({ response: [{ product_id: 7 }] }), { log })
    expect(await broken.client.customers().of(vin)).toBeUndefined()
  })

  test('gives a handler the customer’s own number for its row', async () => {
    const rows: unknown[] = []
    const { client } = stub(list(product(vin, '1007')))
    const customers = client.customers()
    const receiver = createReceiver({ secret: 'a-secret' }).on('data', async (event) => {
      const customer = await customers.of(event.vin)
      rows.push([customer?.ref, event.data.Odometer])
    })
    await (
      await deliver(receiver, message.data({ Odometer: 12 }, { vin }), { secret: 'a-secret' })
    ).settled
    expect(rows).toEqual([['1007', 12]])
  })
})
