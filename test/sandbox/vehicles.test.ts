import { describe, expect, test } from 'vitest'
import type { Location } from 'fleethook'
import { createNormalizer } from 'fleethook/normalize'
import { type Loose, messagesIn, sceneOf, startAt } from './scene.ts'

const url = 'https://receiver.example.com/telemetry'
const hour = 3_600_000
const dataOf = (posted: Parameters<typeof messagesIn>[0]): readonly Loose[] =>
  messagesIn(posted).filter((message) => 'data' in message)

/** The distance on a flat map, exact enough within a few kilometers. */
function metersBetween(from: Location, to: Location): number {
  const north = (to.latitude - from.latitude) * 111_195
  const east = (to.longitude - from.longitude) * 111_195 * Math.cos((from.latitude * Math.PI) / 180)
  return Math.hypot(north, east)
}

describe('what a vehicle streams', () => {
  test('is nothing without a config', async () => {
    const { sandbox, client, posted } = await sceneOf()
    await client.webhook.set({ url, format: 'service' })
    await sandbox.advance(hour)
    expect(posted).toEqual([])
  })

  test('is the fields of its config and no others, at their intervals', async () => {
    const { sandbox, client, posted, vin } = await sceneOf({ vehicles: 1 })
    await client.webhook.set({ url, format: 'service' })
    await client
      .config(vin)
      .replace({ fields: { Location: { interval_seconds: 30 }, VehicleSpeed: { interval_seconds: 7 } } })
    await sandbox.advance(hour)
    const data = dataOf(posted)
    expect(new Set(data.flatMap((message) => Object.keys(message['data'])))).toEqual(
      new Set(['Location', 'VehicleSpeed']),
    )
    for (const [field, seconds] of [
      ['Location', 30],
      ['VehicleSpeed', 7],
    ] as const) {
      const times = data
        .filter((message) => field in message['data'])
        .map((message) => Date.parse(message['createdAt']))
      expect(times.length).toBeGreaterThan(5)
      const gaps = times.slice(1).map((time, place) => time - (times[place] ?? 0))
      expect(Math.min(...gaps.filter((gap) => gap > -60_000))).toBeGreaterThanOrEqual(seconds * 1_000 - 1_000)
    }
  })

  test('changes by at least minimum_delta, or is resent after resend_interval_seconds', async () => {
    const { sandbox, client, posted, vin } = await sceneOf({ vehicles: 1 })
    await client.webhook.set({ url, format: 'service' })
    await client.config(vin).replace({
      fields: {
        Soc: { interval_seconds: 1, minimum_delta: 3 },
        VehicleName: { interval_seconds: 1, resend_interval_seconds: 60 },
      },
    })
    await client.wakeUp(vin)
    posted.length = 0
    await sandbox.advance(900_000)
    const soc = dataOf(posted).flatMap(({ data }) => ('Soc' in data ? [Number(data.Soc)] : []))
    expect(soc.length).toBeGreaterThan(0)
    for (const [place, value] of soc.slice(1).entries())
      expect(Math.abs(value - (soc[place] ?? 0))).toBeGreaterThanOrEqual(2.999)
    const names = dataOf(posted).filter(({ data }) => 'VehicleName' in data)
    expect(names.length).toBeGreaterThan(10)
    expect(names.length).toBeLessThanOrEqual(17)
  })

  test('is a new location after minimum_delta meters', async () => {
    const { sandbox, client, posted, vin } = await sceneOf({ vehicles: 1 })
    await client.webhook.set({ url, format: 'service' })
    await client.config(vin).replace({ fields: { Location: { interval_seconds: 1, minimum_delta: 500 } } })
    await client.wakeUp(vin)
    await sandbox.advance(1_800_000)
    const normalizer = createNormalizer()
    const far = dataOf(posted).flatMap((message) => {
      const event = normalizer.normalize(message, startAt)
      return event.topic === 'data' && event.data.Location ? [event.data.Location] : []
    })
    expect(far.length).toBeGreaterThan(3)
    for (const [place, to] of far.slice(1).entries()) {
      const from = far[place]
      if (from !== undefined) expect(metersBetween(from, to)).toBeGreaterThan(499)
    }
  })

  test('stops with DELETE', async () => {
    const { sandbox, client, posted, vin } = await sceneOf({ vehicles: 1 })
    await client.webhook.set({ url, format: 'service' })
    await client.config(vin).replace({ fields: { VehicleName: { interval_seconds: 1, resend_interval_seconds: 5 } } })
    await sandbox.advance(120_000)
    expect(posted.length).toBeGreaterThan(0)
    await client.config(vin).stop()
    posted.length = 0
    await sandbox.advance(120_000)
    expect(posted).toEqual([])
  })

  test('is the same for the same seed, message by message', async () => {
    const bodies = async (seed: number): Promise<readonly string[]> => {
      const { sandbox, client, posted } = await sceneOf({
        seed,
        config: { fields: { Location: { interval_seconds: 5 } } },
      })
      await client.webhook.set({ url, format: 'service' })
      await sandbox.advance(hour / 2)
      return posted.map(({ body }) => body)
    }
    const first = await bodies(5)
    expect(first.length).toBeGreaterThan(50)
    expect(await bodies(5)).toEqual(first)
    expect(await bodies(6)).not.toEqual(first)
  })
})

describe('the webhook', () => {
  test('gets each message once, in its format, with its header', async () => {
    for (const [format, header] of [
      ['service', 'a-secret'],
      ['vehicle_maker', 'a-secret'],
      ['event_collector', 'Splunk a-secret'],
    ] as const) {
      const { client, posted, ask, vin } = await sceneOf()
      await client.webhook.set({ url, format, auth: 'a-secret', verify: false })
      await ask('POST', '/sandbox/messages', { vin, data: { Gear: 'D' } })
      expect(posted).toHaveLength(1)
      expect(posted[0]).toMatchObject({
        url,
        verify: false,
        headers: { authorization: header, 'content-type': 'application/json' },
      })
      const [message] = messagesIn(posted)
      const shape = {
        service: { data: { Gear: 'D' } },
        vehicle_maker: { data: [{ key: 'Gear' }] },
        event_collector: { event: { Gear: 'ShiftStateD' }, source: vin, sourcetype: 'vehicle:telemetry:data' },
      }
      expect(message).toMatchObject(shape[format])
    }
  })

  test('gets an unknown message as it was injected', async () => {
    const { client, posted, ask, vin } = await sceneOf()
    await client.webhook.set({ url, format: 'service' })
    await ask('POST', '/sandbox/messages', { vin, credits: 5 })
    expect(messagesIn(posted)).toEqual([{ vin, credits: 5 }])
    expect((await ask('GET', '/sandbox/deliveries')).body.response).toMatchObject([{ vin, topic: 'unknown' }])
  })

  test('gets the scheme of `auth` unchanged, and no header without `auth`', async () => {
    const { client, posted, ask, vin } = await sceneOf()
    await client.webhook.set({ url, format: 'event_collector', auth: 'Basic abc' })
    await ask('POST', '/sandbox/messages', { vin, state: 'online' })
    await client.webhook.set({ url, format: 'event_collector' })
    await ask('POST', '/sandbox/messages', { vin, state: 'online' })
    expect(posted.map(({ headers }) => headers['authorization'])).toEqual(['Basic abc', undefined])
  })

  test.each([
    ['paused', [url], 'failed'],
    ['deleted', [url], 'failed'],
    ['replaced', [url, `${url}/2`], 'accepted'],
  ])('gets nothing that still waits when it is %s', async (how, urls, outcome) => {
    const asked: string[] = []
    let answer: (status: number) => void = () => {}
    const { client, ask, vin } = await sceneOf({
      post: (message) => {
        asked.push(message.url)
        return asked.length > 1 ? Promise.resolve(200) : new Promise((resolve) => (answer = resolve))
      },
    })
    await client.webhook.set({ url, format: 'service' })
    const said = [1, 2].map((Soc) => ask('POST', '/sandbox/messages', { vin, data: { Soc } }))
    const heard = async (): Promise<unknown> =>
      (await ask('GET', `/api/1/vehicles/${vin}/telemetry`)).body.response.data.Soc
    await expect.poll(heard).toBe(2)
    expect(asked).toEqual([url])
    if (how === 'paused') await client.webhook.set({ url, format: 'service', enabled: false })
    else if (how === 'deleted') await client.webhook.delete()
    else await client.webhook.set({ url: `${url}/2`, format: 'service' })
    answer(200)
    await Promise.all(said)
    expect(asked).toEqual(urls)
    const { response } = (await ask('GET', '/sandbox/deliveries')).body
    expect(response).toMatchObject([
      { url, outcome: 'accepted' },
      { url: urls.at(-1), outcome },
    ])
  })

  test('has the time when it was set', async () => {
    const { client, sandbox } = await sceneOf()
    expect((await client.webhook.set({ url, format: 'service' })).updated_at).toBe('2026-06-01T08:00:00.000Z')
    await sandbox.advance(1_234)
    expect((await client.webhook.get()).updated_at).toBe('2026-06-01T08:00:00.000Z')
    expect((await client.webhook.set({ url, format: 'service' })).updated_at).toBe('2026-06-01T08:00:01.234Z')
  })

  test('gets a refused or failed message only once, and the list of deliveries has it', async () => {
    let asked = 0
    const { client, ask, vin } = await sceneOf({
      post: async () => {
        asked += 1
        if (asked === 2) throw Object.assign(new Error('to http://user:secret@host'), { code: 'ECONNREFUSED' })
        return [503, 0, 302][asked - 1] ?? 200
      },
    })
    await client.webhook.set({ url, format: 'service' })
    for (const state of ['online', 'driving', 'asleep', 'online'])
      await ask('POST', '/sandbox/messages', { vin, state })
    expect(asked).toBe(4)
    expect((await ask('GET', '/sandbox/deliveries')).body.response).toMatchObject([
      { vin, topic: 'state', outcome: 'refused', status: 503 },
      { outcome: 'failed', error: 'ECONNREFUSED' },
      { outcome: 'refused', status: 302 },
      { outcome: 'accepted', status: 200 },
    ])
  })
})

describe('sharing', () => {
  test.each([[{ id: 'c9' }], [{ id: 'c9', ref: {} }], [{ id: 'c9', ref: 5 }], [{ ref: null }], ['c9'], [null]])(
    'refuses %j as the customer',
    async (customer) => {
      const { ask } = await sceneOf({ vehicles: 0 })
      const { status, body } = await ask('POST', '/sandbox/vehicles', { customer })
      expect([status, body.error]).toEqual([400, 'invalid_request'])
    },
  )

  test('applies the default config once, to vehicles without one', async () => {
    const { client, ask } = await sceneOf({ vehicles: 0 })
    await client.defaultConfig.set({ fields: { Gear: { interval_seconds: 5 } } })
    const { vin } = (await ask('POST', '/sandbox/vehicles', { customer: { id: 'c9', ref: 'ours' } })).body.response
    expect((await client.config(vin).get()).fields).toEqual({ Gear: { interval_seconds: 5 } })
    await client.defaultConfig.set({ fields: { Soc: { interval_seconds: 9 } } })
    expect((await client.config(vin).get()).fields).toEqual({ Gear: { interval_seconds: 5 } })
    await ask('DELETE', `/sandbox/vehicles/${vin}`)
    await expect(client.config(vin).get()).rejects.toMatchObject({ code: 'business_product_not_consented' })
    await ask('POST', '/sandbox/vehicles', { vin })
    expect((await client.config(vin).get()).fields).toEqual({ Gear: { interval_seconds: 5 } })
    expect((await client.products())[0]).toMatchObject({ product_id: vin, customer: { id: 'c9', ref: 'ours' } })
  })
})

describe('the clock', () => {
  test('advances by the control', async () => {
    const { ask } = await sceneOf()
    const before = Date.parse((await ask('GET', '/sandbox/clock')).body.response.now)
    const after = (await ask('POST', '/sandbox/clock', { advance_seconds: 90 })).body.response.now
    expect(Date.parse(after) - before).toBe(90_000)
    expect((await ask('POST', '/sandbox/clock', { advance_seconds: -1 })).body.error).toBe('invalid_request')
  })

  test('runs at `speed`', async () => {
    const { clock, ask } = await sceneOf({ speed: 20 })
    await clock.advance(3_000)
    expect((await ask('GET', '/sandbox/clock')).body.response.now).toBe('2026-06-01T08:01:00.000Z')
  })
})
