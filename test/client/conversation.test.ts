import type { Client, StreamEvent } from 'fleethook/client'
import { expect, test } from 'vitest'
import {
  differences,
  type Exchange,
  exchanges,
  pathOf,
  type RecordedStream,
  recordedSite,
  recordedVin,
  streams,
  textOf,
} from '../interface/conversation.ts'
import { ended } from './sse.ts'
import { json, refusal, rejection, stub } from './stub.ts'

const vin = recordedVin

/** For each exchange: the call that leads to it, and its result or the members of its error. */
interface Held {
  readonly call: (client: Client) => Promise<unknown>
  readonly resolves?: unknown
  readonly rejects?: object
}

const first = async (stream: AsyncIterable<StreamEvent>): Promise<StreamEvent | undefined> => {
  for await (const event of stream) return event
  return undefined
}

const held: Readonly<Record<string, Held>> = {
  'a field is streamed at its default interval': {
    call: (client) => client.config(vin).patch({ fields: { BatteryLevel: null } }),
    resolves: { updatedVehicles: 1, skipped: {}, ignoredFields: [] },
  },
  'a whole config is replaced, and names that the service does not know are dropped': {
    call: (client) =>
      client.config(vin).replace({
        fields: {
          BatteryLevel: { interval_seconds: 60, minimum_delta: 1 },
          ['Gaer' as string]: { interval_seconds: 1 },
        },
      }),
    resolves: { updatedVehicles: 1, skipped: {}, ignoredFields: ['Gaer'] },
  },
  'a config changes no vehicle, and the answer says why': {
    call: (client) => client.config(vin).patch({ fields: { BatteryLevel: null } }),
    resolves: { updatedVehicles: 0, skipped: { missing_key: [vin], max_configs: [] }, ignoredFields: [] },
  },
  'a stored setting is an empty object': {
    call: (client) => client.config(vin).get(),
    resolves: { fields: { BatteryLevel: null } },
  },
  'a vehicle stops streaming': {
    call: (client) => client.config(vin).stop(),
    resolves: { updatedVehicles: 1, skipped: {} },
  },
  'a product has its region': {
    call: async (client) => (await client.products()).map(({ product_id: id, region }) => [id, region]),
    resolves: [
      [vin, 'NA'],
      [recordedSite, 'EU'],
    ],
  },
  'the stream of a product that no customer shares is refused for good': {
    call: (client) => first(client.stream(vin)),
    rejects: { code: 'business_product_not_consented', hint: expect.stringContaining('products()') },
  },
  'a wrong key is refused': {
    call: (client) => client.products(),
    rejects: { code: 'invalid_token', hint: expect.stringContaining('apiKey') },
  },
  'an asleep vehicle does not answer a read, in the words of the maker': {
    call: (client) => client.vehicle(vin).data(),
    rejects: {
      code: 'vehicle_unavailable',
      hint: expect.stringContaining('wakeUp'),
    },
  },
  'the same has a code of its own at times': {
    call: (client) => client.vehicle(vin).data(),
    rejects: {
      code: 'vehicle_unavailable',
      hint: expect.stringContaining('wakeUp'),
    },
  },
  'an unknown command is refused': {
    call: (client) => client.command(vin, 'fly'),
    rejects: { code: 'invalid_command', hint: expect.stringContaining('parameter') },
  },
  'a command without its parameter is refused': {
    call: (client) => client.command(vin, 'set_charge_limit'),
    rejects: { code: 'invalid_command' },
  },
  'too many requests are refused with the wait': {
    call: (client) => client.products(),
    rejects: { code: 'too_many_requests', retryAfterMs: 7_000 },
  },
  'a vehicle is woken, and is the answer': {
    call: (client) => client.wakeUp(vin),
    resolves: { vin, state: 'online', id_s: '1234567890' },
  },
  'a command is answered with its result': {
    call: (client) => client.command(vin, 'set_charge_limit', { percent: 80 }),
    resolves: { result: true, reason: '' },
  },
  'the charge history is asked for by POST': { call: (client) => client.vehicle(vin).chargeHistory(), resolves: {} },
  'the summary of a vehicle': {
    call: async (client) => Object.keys(await client.vehicle(vin).summary()),
    resolves: ['vin', 'state', 'id_s', 'tokens', 'option_codes', 'granular_access', 'calendar_enabled'],
  },
  'the sections of the full document that were asked for': {
    call: async (client) =>
      (await client.vehicle(vin).data({ endpoints: ['location_data', 'charge_state'] }))['location_data'],
    resolves: { latitude: 30.222222, longitude: -97.617347 },
  },
  'the full document, without the location that was not asked for': {
    call: async (client) => (await client.vehicle(vin).data())['location_data'],
    resolves: undefined,
  },
  'what a site consists of': {
    call: (client) => client.energySite(recordedSite).siteInfo(),
    resolves: { components: { solar: true, battery: true, grid: true, wall_connectors: [] } },
  },
  'what a site does now': {
    call: (client) => client.energySite(recordedSite).liveStatus(),
    resolves: { wall_connectors: [] },
  },
}

const ofTheClient = exchanges.filter(({ side }) => side !== 'sandbox')

test.each(ofTheClient.map((exchange) => [exchange.name, exchange] as const))('%s', async (name, exchange) => {
  const { call, resolves, rejects } = held[name] ?? expect.fail('No call of the client leads to it.')
  const { status, body, headers } = exchange.answer
  const { client, asked } = stub(json(body, status, headers), { retry: { attempts: 1 } })
  if (rejects === undefined) expect(await call(client)).toEqual(resolves)
  else expect(await rejection(call(client))).toMatchObject({ ...rejects, status })
  expect(asked).toMatchObject([{ method: exchange.request.method, path: pathOf(exchange.request.path) }])
  expect(asked[0]?.body).toEqual(exchange.request.body)
})

test('every call of this file is in the conversation', () => {
  expect(Object.keys(held).toSorted()).toEqual(ofTheClient.map(({ name }) => name).toSorted())
})

test.each(streams.map((recorded) => [recorded.name, recorded] as const))(
  'the stream of %s',
  async (_name, recorded) => {
    const { client, asked, log } = stub([ended(textOf(recorded)), refusal(401, 'invalid_token')])
    const events: StreamEvent[] = []
    const id = recorded.path.includes('{site}') ? recordedSite : vin
    const error = await rejection(
      (async () => {
        for await (const event of client.stream(id)) {
          events.push(event)
          if (events.length === recorded.snapshot.length + recorded.live.length) throw new Error('That was all.')
        }
      })(),
    )
    expect(String(error)).toContain('That was all.')
    expect(asked[0]).toMatchObject({ method: 'GET', path: pathOf(recorded.path) })
    expect(events.map(({ topic }) => topic)).toEqual(topicsOf(recorded))
    for (const [index, event] of events.entries()) {
      if (index < recorded.snapshot.length) expect(event.meta.isCache).toBe(true)
      else expect(event.raw).toEqual(recorded.live[index - recorded.snapshot.length])
    }
    expect(log.lines).toEqual([])
  },
)

/** A message does not state its topic: one of its keys names it. */
function topicsOf({ snapshot, live }: RecordedStream): readonly string[] {
  const topics = ['state', 'data', 'alerts', 'errors', 'config', 'live_status', 'site_info', 'tariff_content_v2']
  return [...snapshot, ...live].map((message) => {
    if ('networkInterface' in message) return 'connectivity'
    if ('totals' in message) return 'energy_totals'
    return topics.find((topic) => topic in message) ?? 'unknown'
  })
}

test('documents of a site and configs of a vehicle are typed, and a message without a known shape is unknown', async () => {
  const { client } = stub(
    ended(
      [
        { site_id: recordedSite, live_status: { solar_power: 5 }, isCache: true },
        { site_id: 7, tariff_content_v2: null },
        { id: recordedSite, totals: { total_home_usage: 5 } },
        { live_status: {} },
        { site_id: recordedSite, live_status: 'sunny' },
        { site_id: recordedSite, weather: {} },
        { vin, config: { fields: { Gear: {} } } },
        { vin, config: { fields: 5 } },
        { config: { fields: {} } },
        { credits: { balance: 5 } },
      ]
        .map((message) => `data: ${JSON.stringify({ createdAt: '2026-11-21T10:00:00Z', ...message })}\n\n`)
        .join(''),
    ),
  )
  const events: StreamEvent[] = []
  for await (const event of client.stream(recordedSite)) if (events.push(event) === 10) break
  const siteId = recordedSite
  expect(events).toMatchObject([
    { topic: 'live_status', siteId, document: { solar_power: 5 }, meta: { isCache: true, changed: ['live_status'] } },
    { topic: 'tariff_content_v2', siteId: '7', document: null, meta: {} },
    { topic: 'energy_totals', siteId, document: { total_home_usage: 5 } },
    { topic: 'live_status', siteId, document: {} },
    { topic: 'unknown', reason: 'no_topic' },
    { topic: 'unknown', reason: 'no_topic' },
    { topic: 'config', vin, config: { fields: { Gear: null } } },
    { topic: 'unknown', reason: 'no_topic' },
    { topic: 'unknown', reason: 'no_topic' },
    { topic: 'unknown', reason: 'no_topic' },
  ])
  expect(events[0]?.meta).not.toHaveProperty('live_status')
  expect(new Set(events.map(({ id }) => id)).size).toBe(10)
  expect(events[0]?.at).toEqual(new Date(Date.UTC(2026, 10, 21, 10)))
})

test('the comparison finds a member that is missing, has another type or another value, or must not be there', () => {
  const exchange: Exchange = {
    name: '',
    item: '',
    side: 'both',
    request: { method: 'GET', path: '/' },
    answer: { status: 200, body: { a: [{ b: 1 }], c: 'x', d: null } },
    exact: ['c'],
    absent: ['e.f'],
  }
  expect(differences(exchange, { a: [{ b: 5, more: 1 }], c: 'x', d: null, e: {} })).toEqual([])
  expect(differences(exchange, { a: [], c: 'x', d: null })).toEqual([])
  expect(differences(exchange, { a: [{ b: 1 }, { b: '1' }], c: 'y', d: 0, e: { f: 1 } })).toEqual([
    'body.a.1.b is a string instead of a number',
    'body.d is a number instead of null',
    'c is "y" instead of "x"',
    'e.f must not be there',
  ])
  expect(differences(exchange, [])).toEqual(['body is a list instead of an object', 'c is undefined instead of "x"'])
})
