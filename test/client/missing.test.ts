import { createReceiver, vehicles } from 'fleethook'
import { type Client, createClient, type HeardVehicle, type MissingVehicle } from 'fleethook/client'
import { createSandbox, type SandboxOptions } from 'fleethook/sandbox'
import { type FakeClock, fakeClock } from 'fleethook/testing'
import { describe, expect, test } from 'vitest'
import { remember } from '../http/ways.ts'
import { json, refusal, rejection, stub } from './stub.ts'

const apiKey = 'sk_the_key_of_the_business'
const [hour, day] = [3_600_000, 86_400_000]

interface Scene {
  readonly client: Client
  readonly clock: FakeClock
  readonly vins: readonly string[]
  /** The paths of all requests of the client. */
  readonly asked: string[]
  readonly control: (method: string, path: string, body?: unknown) => Promise<void>
}

/** A sandbox whose vehicles have a config, and whose webhook is set. */
async function sceneOf(options: Partial<SandboxOptions> = {}): Promise<Scene> {
  const clock = fakeClock(Date.UTC(2026, 5, 1, 8))
  const config = { fields: { BatteryLevel: { interval_seconds: 60 } } }
  const sandbox = createSandbox({ apiKey, speed: 0, clock, config, energySites: 0, post: async () => 200, ...options })
  const asked: string[] = []
  const send = async (url: string, init: RequestInit): Promise<Response> => sandbox.fetch(new Request(url, init))
  const client = createClient({
    baseUrl: 'https://sandbox.example.com',
    apiKey,
    clock,
    log: remember(),
    fetch: (url, init) => {
      asked.push(new URL(url).pathname)
      return send(url, init)
    },
  })
  const control: Scene['control'] = async (method, path, body) => {
    const init = { method, headers: { authorization: `Bearer ${apiKey}` }, body: JSON.stringify(body) ?? null }
    const { status } = await send(`https://sandbox.example.com/sandbox/${path}`, init)
    expect(status, path).toBe(200)
  }
  await client.webhook.set({ url: 'https://receiver.example/', format: 'service', auth: 'hunter2' })
  const vins = (await client.products()).map(({ product_id: vin }) => vin)
  asked.length = 0
  return { client, clock, vins, asked, control }
}

const heard = (vin: string, agoMs: number, at: FakeClock, more: Partial<HeardVehicle> = {}): HeardVehicle => ({
  vin,
  seenAt: new Date(at.now() - agoMs),
  online: true,
  state: 'online',
  ...more,
})

/** All missing vehicles, while the clock goes on. */
async function found(
  { client, clock }: Pick<Scene, 'client' | 'clock'>,
  known: readonly HeardVehicle[],
): Promise<readonly MissingVehicle[]> {
  let isOver = false
  const all = Array.fromAsync(client.missing({ vehicles: { list: () => known } }))
  const over = all
    .then(
      () => {},
      () => {},
    )
    .finally(() => (isOver = true))
  while (!isOver) await clock.advance(100)
  await over
  return all
}

const reasons = (list: readonly MissingVehicle[]): Readonly<Record<string, string>> =>
  Object.fromEntries(list.map(({ vin, reason }) => [vin, reason]))

describe('the reason why a vehicle is not heard', () => {
  test.each([
    ['customer_reconnect_required', 'sign in'],
    ['customer_scope_missing', 'connect again'],
    ['key_not_installed', 'virtual key'],
    ['config_not_synced', 'config'],
    ['stream_limit_reached', 'remove one'],
    ['offline', 'network'],
  ])('%s', async (fault, todo) => {
    const scene = await sceneOf({ vehicles: 2 })
    const [vin = '', other = ''] = scene.vins
    await scene.control('POST', `vehicles/${vin}/wake`)
    await scene.control('POST', `vehicles/${vin}/fault`, { fault })
    const list = await found(scene, [heard(other, 0, scene.clock)])
    expect(reasons(list)).toEqual({ [vin]: fault })
    expect(list[0]?.hint).toContain(todo)
    expect(list[0]?.customer).toEqual({ id: 'customer-1', ref: 'our-1' })
  })

  test('no config: it was never set, or stopped, or has no field', async () => {
    const scene = await sceneOf({ vehicles: 2, config: { fields: {} } })
    const [vin = '', other = ''] = scene.vins
    await scene.client.config(other).stop()
    expect(reasons(await found(scene, []))).toEqual({ [vin]: 'config_not_found', [other]: 'config_not_found' })
  })

  test('asleep: the vehicle said so, or the service does', async () => {
    const scene = await sceneOf({ vehicles: 2 })
    const [said = '', known = ''] = scene.vins
    const asleep = heard(said, hour / 2, scene.clock, { online: false, state: 'asleep' })
    const list = await found(scene, [asleep])
    expect(reasons(list)).toEqual({ [said]: 'asleep', [known]: 'asleep' })
    expect(list.find(({ vin }) => vin === said)?.heardAt).toEqual(asleep.seenAt)
    expect(scene.asked.filter((path) => path.includes(said))).toEqual([])
  })

  test('one that has slept for a day is asked about: it may have lost its key', async () => {
    const scene = await sceneOf({ vehicles: 1 })
    const [vin = ''] = scene.vins
    await scene.control('POST', `vehicles/${vin}/fault`, { fault: 'key_not_installed' })
    const asleep = heard(vin, day + 1, scene.clock, { online: false, state: 'asleep' })
    expect(reasons(await found(scene, [asleep]))).toEqual({ [vin]: 'key_not_installed' })
  })

  test('silent or never heard: the service finds nothing wrong', async () => {
    const scene = await sceneOf({ vehicles: 3 })
    const [silent = '', never = '', well = ''] = scene.vins
    for (const vin of scene.vins) await scene.control('POST', `vehicles/${vin}/wake`)
    const list = await found(scene, [heard(silent, hour + 1, scene.clock), heard(well, hour, scene.clock)])
    expect(reasons(list)).toEqual({ [silent]: 'silent', [never]: 'never_heard' })
  })

  test('a consent that was withdrawn: nobody shares a vehicle that was heard before', async () => {
    const scene = await sceneOf({ vehicles: 2 })
    const [gone = '', well = ''] = scene.vins
    await scene.control('DELETE', `vehicles/${gone}`)
    const known = [heard(gone, 2 * hour, scene.clock), heard(well, 0, scene.clock)]
    expect(reasons(await found(scene, known))).toEqual({ [gone]: 'business_product_not_consented' })
    expect(scene.asked).toEqual(['/api/business/products', '/api/business/webhook'])
  })

  test('the webhook is paused, or none is set, and nothing is heard: no vehicle is asked about', async () => {
    const scene = await sceneOf({ vehicles: 2 })
    await scene.client.webhook.set({ url: 'https://receiver.example/', format: 'service', auth: 'x', enabled: false })
    expect(new Set(Object.values(reasons(await found(scene, []))))).toEqual(new Set(['webhook_paused']))
    await scene.client.webhook.delete()
    scene.asked.length = 0
    expect(new Set(Object.values(reasons(await found(scene, []))))).toEqual(new Set(['webhook_not_found']))
    expect(scene.asked).toHaveLength(2)
  })

  test('without a webhook, vehicles come by streams: each one that is not heard has its own reason', async () => {
    const scene = await sceneOf({ vehicles: 3 })
    const [well = '', silent = '', keyless = ''] = scene.vins
    await scene.client.webhook.delete()
    await scene.control('POST', `vehicles/${silent}/wake`)
    await scene.control('POST', `vehicles/${keyless}/fault`, { fault: 'key_not_installed' })
    const list = await found(scene, [heard(well, 0, scene.clock)])
    expect(reasons(list)).toEqual({ [silent]: 'webhook_not_found', [keyless]: 'key_not_installed' })
  })

  test('the business is not active: that is the reason of every vehicle that the receiver knows', async () => {
    const scene = await sceneOf({ vehicles: 2 })
    const [one = '', other = ''] = scene.vins
    await scene.control('POST', 'business', { active: false })
    const known = [heard(one, 2 * hour, scene.clock), heard(other, 0, scene.clock)]
    expect(reasons(await found(scene, known))).toEqual({ [one]: 'business_not_active' })
    expect(await rejection(found(scene, []))).toMatchObject({ code: 'business_not_active' })
  })

  test('the service cannot tell: the reason is its own code, and the others are asked all the same', async () => {
    const scene = await sceneOf({ vehicles: 2 })
    const [lost = '', keyless = ''] = scene.vins
    await scene.control('POST', `vehicles/${keyless}/fault`, { fault: 'key_not_installed' })
    const { client, clock } = stub(
      async ({ path, method, headers }) => {
        if (path === `/api/config/${lost}`) return refusal(500, 'internal_error')()
        const answer = await fetchOf(scene)(path, method, headers)
        return answer
      },
      { retry: { attempts: 2 } },
    )
    expect(reasons(await found({ client, clock }, []))).toEqual({
      [lost]: 'internal_error',
      [keyless]: 'key_not_installed',
    })
  })
})

describe('the requests of a look', () => {
  test('of thousands of vehicles, only those that are not heard are asked about, at most ten requests in a second', async () => {
    const all = Array.from({ length: 3_000 }, (_, n) => `0FLEETV14T${String(n).padStart(7, '0')}`)
    const times: number[] = []
    const clock = fakeClock(Date.UTC(2026, 5, 1, 8))
    const products = all.map((vin) => ({ product_type: 'vehicle', product_id: vin, region: 'EU', customer: null }))
    const { client, lines } = stub(
      ({ path }) => {
        times.push(clock.now())
        if (path === '/api/business/products') return json({ response: products })()
        if (path === '/api/business/webhook') return refusal(404, 'webhook_not_found')()
        return path.startsWith('/api/config/')
          ? json({ fields: { Gear: null } })()
          : json({ response: { key_paired: true, synced: true, state: 'asleep' } })()
      },
      { clock },
    )
    const list = await found(
      { client, clock },
      all.slice(40).map((vin) => heard(vin, 0, clock)),
    )
    expect(list.map(({ vin }) => vin).toSorted()).toEqual(all.slice(0, 40))
    expect(lines()).toHaveLength(2 + 40 * 3)
    for (const [n, time] of times.entries()) {
      if (n >= 10) expect(time - (times[n - 10] ?? 0)).toBeGreaterThanOrEqual(1_000)
    }
  })

  test('wait as long as the service says, all of them', async () => {
    const clock = fakeClock()
    const times: number[] = []
    const two = ['0FLEETV14T0000004', '0FLEETV14T0000005']
    const { client } = stub(
      ({ path }) => {
        if (path === '/api/business/products')
          return json({ response: two.map((vin) => ({ product_type: 'vehicle', product_id: vin })) })()
        if (path === '/api/business/webhook') return refusal(404, 'webhook_not_found')()
        times.push(clock.now())
        return times.length === 1
          ? refusal(429, 'too_many_requests', { 'retry-after': '30' })()
          : json({ fields: {} })()
      },
      { clock },
    )
    // One vehicle is heard, so the missing webhook is not what silences the other.
    await found({ client, clock }, [heard('0FLEETV14T0000005', 0, clock)])
    expect((times[1] ?? 0) - (times[0] ?? 0)).toBeGreaterThanOrEqual(30_000)
  })
})

test('a receiver with the part `vehicles` says what it heard, and the watch remembers the last look', async () => {
  const { client, clock, vins, asked } = await sceneOf({ vehicles: 2 })
  const [well = '', asleep = ''] = vins
  const receiver = createReceiver({ secret: false, clock, parts: [vehicles({ fields: ['Gear'] })] })
  await receiver.accept({ headers: {}, body: { vin: well, createdAt: '2026-06-01T08:00:00Z', state: 'online' } })
  await receiver.accept({ headers: {}, body: { vin: asleep, createdAt: '2026-06-01T08:00:00Z', state: 'asleep' } })
  await expect.poll(async () => (await clock.advance(1), receiver.stats().handled)).toBe(2)
  const missing = client.missing(receiver)
  expect(missing.last()).toBeUndefined()
  await expect
    .poll(async () => (await clock.advance(100), missing.last()?.vehicles.map(({ vin }) => vin)))
    .toEqual([asleep])
  const before = asked.length
  expect((await missing.look()).vehicles).toEqual([
    {
      vin: asleep,
      reason: 'asleep',
      hint: 'Nothing to do: it sends again when it wakes.',
      heardAt: expect.any(Date),
      customer: { id: 'customer-2', ref: 'our-2' },
    },
  ])
  expect(asked).toHaveLength(before)
  await receiver.drain()
})

test('a look of a receiver that stops ends with it, and says so', async () => {
  const { client, clock } = await sceneOf({ vehicles: 3 })
  let ready = true
  const readiness = (): { ready: boolean; reason?: string } =>
    ready ? { ready } : { ready, reason: 'the receiver is stopping' }
  const missing = client.missing({ vehicles: { list: () => [] }, readiness })
  const look = missing.look()
  ready = false
  while (missing.last() === undefined) await clock.advance(100)
  expect(await look).toMatchObject({ error: 'ended_early' })
})

/** Asks the sandbox of a scene, as its own client does. */
function fetchOf(scene: Scene): (path: string, method: string, headers: Headers) => Promise<Response> {
  return async (path) => {
    const { client } = scene
    const [, vin = ''] = /([0-9A-Z]{17})/.exec(path) ?? []
    if (path === '/api/business/products') return Response.json({ response: await client.products() })
    if (path === '/api/business/webhook') return Response.json({ response: await client.webhook.get() })
    if (path.startsWith('/api/config/')) return Response.json(await client.config(vin).get())
    if (path.endsWith('/fleet_telemetry_config'))
      return Response.json({ response: await client.vehicle(vin).get('fleet_telemetry_config') })
    return Response.json({ response: await client.vehicle(vin).summary() })
  }
}
