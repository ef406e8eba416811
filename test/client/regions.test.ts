import { createClient } from 'fleethook/client'
import { fakeClock } from 'fleethook/testing'
import { describe, expect, test } from 'vitest'
import { remember } from '../http/ways.ts'
import { apiKey, rejection } from './stub.ts'

const [american, european, site] = ['0FLEETV14T0000004', '0FLEETV14T0000005', '12345']
const product = (id: string, region: string | null, type = 'vehicle'): object => ({
  product_type: type,
  product_id: id,
  region,
  customer: { id: 'c1', ref: null },
})
const shared = [product(american, 'NA'), product(european, 'EU'), product(site, 'eu', 'energy')]

/** A client of a service with a host for each region, and the requests that it made. */
function regional(lists: readonly (readonly object[] | number)[] = [shared]) {
  const lines: string[] = []
  const clock = fakeClock()
  let read = 0
  const client = createClient({
    baseUrl: { NA: 'https://na.service.example', eu: 'https://eu.service.example/v1/' },
    apiKey,
    clock,
    log: remember(),
    retry: { attempts: 1 },
    fetch: (url, { method }) => {
      const { host, pathname } = new URL(url)
      lines.push(`${method} ${host}${pathname}`)
      if (!pathname.endsWith('/products')) return Response.json({ response: { fields: {} } })
      const list = lists[Math.min(read++, lists.length - 1)] ?? []
      return typeof list === 'number' ? new Response(null, { status: list }) : Response.json({ response: list })
    },
  })
  return { client, lines, clock }
}

describe('a client of a service with a host for each region', () => {
  test('asks about a product at the host of its region, whatever the case, and reads the list once', async () => {
    const { client, lines } = regional()
    await client.vehicle(european).summary()
    await client.config(european).get()
    await client.command(american, 'charge_start')
    await client.energySite(site).liveStatus()
    await client.vehicle(american).image()
    expect(lines).toEqual([
      'GET na.service.example/api/business/products',
      `GET eu.service.example/v1/api/1/vehicles/${european}`,
      `GET eu.service.example/v1/api/config/${european}`,
      `POST na.service.example/api/1/vehicles/${american}/command/charge_start`,
      `GET eu.service.example/v1/api/1/energy_sites/${site}/live_status`,
      `GET na.service.example/api/image/${american}`,
    ])
  })

  test('names the host that gave no answer', async () => {
    const client = createClient({
      baseUrl: { na: 'https://na.service.example', eu: 'https://eu.service.example/v1/' },
      apiKey,
      log: remember(),
      retry: { attempts: 1 },
      fetch: (url) => {
        if (!url.endsWith('/products')) throw new Error('no route')
        return Response.json({ response: shared })
      },
    })
    const message = expect.stringContaining('no answer from https://eu.service.example/v1, no route.')
    await expect(client.config(european).get()).rejects.toMatchObject({ code: 'unreachable', message })
  })

  test('asks what concerns the business at the first one', async () => {
    const { client, lines } = regional()
    await client.products()
    await client.defaultConfig.get()
    expect(lines).toEqual([
      'GET na.service.example/api/business/products',
      'GET na.service.example/api/business/config/default',
    ])
  })

  test('opens a stream at the host of its region', async () => {
    const { client, lines } = regional()
    expect(await rejection(Array.fromAsync(client.stream(european)))).toMatchObject({ code: 'answer_unreadable' })
    expect(lines.at(-1)).toBe(`GET eu.service.example/v1/sse/${european}`)
  })

  test('a product that is new, or without a region, goes to the first; the list is read again after a minute', async () => {
    const { client, lines, clock } = regional([[product(american, null)], shared])
    await client.vehicle(american).summary()
    await client.vehicle(european).summary()
    await clock.advance(60_000)
    await client.vehicle(european).summary()
    expect(lines.filter((line) => !line.endsWith('products'))).toEqual([
      `GET na.service.example/api/1/vehicles/${american}`,
      `GET na.service.example/api/1/vehicles/${european}`,
      `GET eu.service.example/v1/api/1/vehicles/${european}`,
    ])
    expect(lines.filter((line) => line.endsWith('products'))).toHaveLength(2)
  })

  test('does not guess a region while the list cannot be read, and reads it again with the next request', async () => {
    const { client, lines } = regional([503, shared])
    expect(await rejection(client.vehicle(european).summary())).toMatchObject({ status: 503 })
    await client.vehicle(european).summary()
    expect(lines.at(-1)).toBe(`GET eu.service.example/v1/api/1/vehicles/${european}`)
  })
})

test.each([
  {},
  { na: undefined },
  { na: 'na.service.example' },
  { na: 'https://a.example', eu: 'https://u:p@b.example' },
])('addresses of regions are checked as a single one is: %j', (baseUrl) => {
  expect(() => createClient({ baseUrl, apiKey })).toThrow('`baseUrl`')
})
