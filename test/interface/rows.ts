import assert from 'node:assert/strict'
import { type Client, createClient, type FieldSetting, ServiceError } from 'fleethook/client'
import { remember } from '../http/ways.ts'

/** The service that is checked: the sandbox, or the real one. */
export interface ServiceUnderTest {
  readonly baseUrl: string
  readonly apiKey: string
}

/** What a check gets. */
export interface Scene extends ServiceUnderTest {
  readonly client: Client
  /** A shared vehicle. */
  readonly vin: string
  /** A shared energy site, if there is one. */
  readonly siteId: string | undefined
}

/** One check of one row of coverage.ts. */
export interface Check {
  readonly row: string
  readonly name: string
  /** Whether the check changes something. Checks that do not can run against the real service. */
  readonly writes: boolean
  readonly run: (scene: Scene) => Promise<void>
}

/** Finds a shared vehicle and energy site. */
export async function sceneOf(service: ServiceUnderTest): Promise<Scene> {
  const client = createClient({ ...service, log: remember() })
  const products = await client.products()
  const idOf = (type: string): string | undefined =>
    products.find((product) => product.product_type === type)?.product_id
  const vin = idOf('vehicle')
  assert(vin, 'no vehicle is shared with this business')
  return { ...service, client, vin, siteId: idOf('energy') }
}

const url = 'https://receiver.example.com/telemetry'
const auth = 'a-long-random-value-of-the-tests'
const fields: Record<string, FieldSetting> = {
  BatteryLevel: { interval_seconds: 60, minimum_delta: 1, resend_interval_seconds: 600 },
  Gear: { interval_seconds: 5 },
}

const reads = (row: string, name: string, run: Check['run']): Check => ({ row, name, writes: false, run })
const writes = (row: string, name: string, run: Check['run']): Check => ({ row, name, writes: true, run })

/** Asserts that a call is refused with this status and code. */
async function refused(call: Promise<unknown>, status: number, code: string): Promise<void> {
  const error: unknown = await call.then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
  assert(error instanceof ServiceError, `expected ${status} ${code} and got ${String(error)}`)
  assert.deepEqual([error.status, error.code], [status, code])
}

/** The service's answer to a request that the client would not send. */
async function raw(
  { baseUrl, apiKey }: ServiceUnderTest,
  method: string,
  path: string,
  body?: unknown,
  authorization: string | null = `Bearer ${apiKey}`,
): Promise<readonly [status: number, code: unknown]> {
  const answer = await fetch(`${baseUrl}${path}`, {
    method,
    headers: { 'content-type': 'application/json', ...(authorization === null ? {} : { authorization }) },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  })
  const text = await answer.text()
  const value: unknown = text.startsWith('{') ? JSON.parse(text) : undefined
  return [answer.status, Object(value)['error']]
}

const scope: readonly [number, string] = [403, 'insufficient_scope']

/** The checks of every row that a client can see. */
export const checks: readonly Check[] = [
  reads('What the service does', 'the business lists what its customers share', async ({ client }) => {
    assert((await client.products()).length > 0)
  }),

  writes('Streaming config', 'all settings of a field come back as they were sent', async ({ client, vin }) => {
    await client.config(vin).replace({ fields })
    assert.deepEqual((await client.config(vin).get()).fields, fields)
  }),
  writes('Streaming config', 'unknown names are dropped and listed', async ({ client, vin }) => {
    const setting = { interval_seconds: 1 }
    const sent = { ...fields, ['NoSuchField' as string]: setting, ['Gaer' as string]: setting }
    const { ignoredFields } = await client.config(vin).replace({ fields: sent })
    assert.deepEqual(ignoredFields.toSorted(), ['Gaer', 'NoSuchField'])
    assert.deepEqual((await client.config(vin).get()).fields, fields)
  }),
  writes('Streaming config', 'settings of the wrong type are refused', async (scene) => {
    for (const wrong of [{}, { interval_seconds: 0 }, { interval_seconds: '5' }, 5]) {
      const body = { fields: { BatteryLevel: wrong } }
      assert.deepEqual(await raw(scene, 'PATCH', `/api/config/${scene.vin}`, body), [400, 'invalid_request'])
    }
    assert.deepEqual(await raw(scene, 'POST', `/api/config/${scene.vin}`, { feilds: {} }), [400, 'invalid_request'])
  }),

  writes(
    'Business webhook',
    'the webhook comes back with its defaults, and without the value of auth',
    async ({ client }) => {
      const { updated_at: updatedAt, ...webhook } = await client.webhook.set({ url, format: 'service', auth })
      assert.deepEqual(webhook, { url, format: 'service', auth: true, verify: true, enabled: true })
      assert.match(updatedAt, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
      assert.deepEqual(await client.webhook.get(), { ...webhook, updated_at: updatedAt })
    },
  ),
  writes('Business webhook', 'a webhook without auth comes back with auth false', async ({ client }) => {
    assert.equal((await client.webhook.set({ url, format: 'event_collector' })).auth, false)
  }),
  writes('Business webhook', 'members that are missing or wrong are refused', async (scene) => {
    for (const body of [
      { url },
      { format: 'service' },
      { url, format: 'xml' },
      { url, format: 'service', verify: 'yes' },
    ]) {
      assert.deepEqual(await raw(scene, 'PUT', '/api/business/webhook', body), [400, 'invalid_request'])
    }
  }),

  reads('Other resources', 'a vehicle and its site are objects', async ({ client, vin, siteId }) => {
    assert.equal(typeof (await client.vehicle(vin).summary()), 'object')
    if (siteId !== undefined) assert.equal(typeof (await client.energySite(siteId).siteInfo()), 'object')
  }),

  writes('States and transitions', 'a webhook is replaced, paused and deleted', async ({ client }) => {
    await client.webhook.set({ url, format: 'service', auth, verify: false })
    const second = await client.webhook.set({ url: `${url}/2`, format: 'vehicle_maker', enabled: false })
    const { updated_at: _, ...rest } = second
    assert.deepEqual(rest, { url: `${url}/2`, format: 'vehicle_maker', auth: false, verify: true, enabled: false })
    assert.equal((await client.webhook.get()).enabled, false)
    await client.webhook.delete()
    await refused(client.webhook.get(), 404, 'webhook_not_found')
    await refused(client.webhook.delete(), 404, 'webhook_not_found')
  }),
  writes(
    'States and transitions',
    'a config is extended, replaced, stopped, and started again',
    async ({ client, vin }) => {
      const config = client.config(vin)
      await config.replace({ fields: { Gear: { interval_seconds: 5 } } })
      await config.patch({ fields: { BatteryLevel: { interval_seconds: 60 } } })
      await config.patch({ fields: { Gear: { interval_seconds: 1 } } })
      const both = { BatteryLevel: { interval_seconds: 60 }, Gear: { interval_seconds: 1 } }
      assert.deepEqual((await config.get()).fields, both)
      await config.replace({ fields: { Soc: { interval_seconds: 10 } } })
      assert.deepEqual((await config.get()).fields, { Soc: { interval_seconds: 10 } })
      await config.stop()
      await refused(config.get(), 404, 'config_not_found')
      await config.stop()
      await config.patch({ fields: { Gear: { interval_seconds: 1 } } })
      assert.deepEqual((await config.get()).fields, { Gear: { interval_seconds: 1 } })
    },
  ),

  reads('Business configuration', 'the default config is a config or null', async ({ client }) => {
    const config = await client.defaultConfig.get()
    assert(config === null || typeof config.fields === 'object')
  }),
  writes(
    'Business configuration',
    'a default comes back after it is set, with the ignored names',
    async ({ client, vin }) => {
      await client.config(vin).replace({ fields: { Gear: { interval_seconds: 7 } } })
      const before = await client.config(vin).get()
      const { ignoredFields } = await client.defaultConfig.set({
        fields: { ...fields, ['Gaer' as string]: { interval_seconds: 1 } },
      })
      assert.deepEqual(ignoredFields, ['Gaer'])
      assert.deepEqual((await client.defaultConfig.get())?.fields, fields)
      assert.deepEqual(await client.config(vin).get(), before, 'a vehicle that is shared already keeps its config')
    },
  ),

  reads('Per-vehicle streaming config', 'a vehicle has a config, or the code for none', async ({ client, vin }) => {
    const config = await client
      .config(vin)
      .get()
      .catch((error: unknown) => error)
    if (config instanceof Error) assert(config instanceof ServiceError && config.code === 'config_not_found')
  }),
  reads('Per-vehicle streaming config', 'a vehicle that is not shared has none', async ({ client }) => {
    await refused(client.config('0FLEETX00X0000000').get(), 403, 'business_product_not_consented')
  }),

  reads('Streaming by SSE', 'a stream opens, of all topics, of some, and of one field', async (scene) => {
    for (const path of [`/sse/${scene.vin}`, `/sse/${scene.vin}?topics=data,state`, `/sse/${scene.vin}/BatteryLevel`]) {
      const controller = new AbortController()
      const headers = { authorization: `Bearer ${scene.apiKey}`, accept: 'text/event-stream' }
      const answer = await fetch(`${scene.baseUrl}${path}`, { headers, signal: controller.signal })
      controller.abort()
      assert.equal(answer.status, 200)
      assert.match(answer.headers.get('content-type') ?? '', /^text\/event-stream/)
    }
  }),
  reads(
    'Streaming by SSE',
    'a topic that does not exist, and a vehicle that is not shared, are refused',
    async (scene) => {
      assert.deepEqual(await raw(scene, 'GET', `/sse/${scene.vin}?topics=weather`), [400, 'invalid_request'])
      assert.deepEqual(await raw(scene, 'GET', '/sse/0FLEETX00X0000000'), [403, 'business_product_not_consented'])
    },
  ),

  reads('Vehicles', 'every path answers', async ({ client, vin }) => {
    const vehicle = client.vehicle(vin)
    // The charge history is requested by POST: see conversation.ts.
    const paths = ['telemetry', 'fleet_telemetry_config', 'fleet_telemetry_errors', 'recent_alerts', 'release_notes']
    for (const path of ['vehicle_data', 'nearby_charging_sites', ...paths]) {
      // An asleep vehicle answers 408 here.
      await vehicle.get(path).catch((error: unknown) => {
        if (!(error instanceof ServiceError && error.status === 408)) throw error
      })
    }
    const { bytes, contentType } = await vehicle.image()
    assert(bytes.length > 0)
    assert.match(contentType, /^image\//)
  }),
  reads('Vehicles', 'a vehicle that is not shared is not found', async ({ client }) => {
    await refused(client.vehicle('0FLEETX00X0000000').data(), 403, 'business_product_not_consented')
  }),

  reads('Energy sites', 'every path answers', async ({ client, siteId }) => {
    if (siteId === undefined) return
    const site = client.energySite(siteId)
    await site.siteInfo()
    await site.liveStatus()
    for (const path of ['calendar_history', 'telemetry_history', 'programs']) await site.get(path)
  }),

  writes('Commands', 'a command is answered with its result', async ({ client, vin, siteId }) => {
    await client.wakeUp(vin)
    assert.equal(typeof (await client.command(vin, 'charge_start')).result, 'boolean')
    if (siteId !== undefined) await client.energySite(siteId).command('backup', { backup_reserve_percent: 20 })
  }),

  reads('Requests refused with 403 insufficient_scope', 'a path without a product is refused', async (scene) => {
    assert.deepEqual(await raw(scene, 'GET', '/api/1/vehicles'), scope)
  }),
  writes(
    'Requests refused with 403 insufficient_scope',
    'a change to the customer’s own account is refused',
    async (scene) => {
      const vehicle = `/api/1/vehicles/${scene.vin}`
      for (const [method, path] of [
        ['POST', '/api/1/vehicles/fleet_telemetry_config'],
        ['DELETE', `${vehicle}/fleet_telemetry_config`],
        ['POST', `${vehicle}/invitations`],
        ['POST', `${vehicle}/invitations/5/revoke`],
        ['DELETE', `${vehicle}/drivers`],
      ] as const) {
        assert.deepEqual(await raw(scene, method, path, {}), scope, `${method} ${path}`)
      }
    },
  ),

  reads('Consented products', 'each product has its customer', async ({ client }) => {
    for (const product of await client.products()) {
      assert(['vehicle', 'energy'].includes(product.product_type))
      assert.equal(typeof product.customer?.id, 'string')
    }
  }),

  reads('Authentication', 'no key and a wrong key are refused before anything else is checked', async (scene) => {
    for (const authorization of [null, 'Bearer a-wrong-key', scene.apiKey, `Basic ${scene.apiKey}`, 'Bearer ']) {
      for (const path of ['/api/business/products', `/sse/${scene.vin}`, '/api/1/vehicles']) {
        assert.deepEqual(await raw(scene, 'GET', path, undefined, authorization), [401, 'invalid_token'])
      }
    }
  }),

  writes('Errors', 'a webhook that the internet cannot reach is refused', async (scene) => {
    for (const local of [
      'https://localhost/',
      'https://mac.local/',
      'https://192.168.1.2/',
      'https://[fd00::1]/',
      'receiver',
    ]) {
      const body = { url: local, format: 'service' }
      assert.deepEqual(await raw(scene, 'PUT', '/api/business/webhook', body), [400, 'invalid_webhook_url'], local)
    }
  }),
  writes('Errors', 'a body that is not a JSON object is refused', async (scene) => {
    for (const body of [[], 'text', 5, null]) {
      assert.deepEqual(await raw(scene, 'PUT', '/api/business/webhook', body), [400, 'invalid_request'])
    }
  }),

  writes('Limits', 'there is one webhook', async ({ client }) => {
    await client.webhook.set({ url, format: 'service' })
    await client.webhook.set({ url: `${url}/2`, format: 'service' })
    assert.equal((await client.webhook.get()).url, `${url}/2`)
    await client.webhook.delete()
    await refused(client.webhook.get(), 404, 'webhook_not_found')
  }),

  reads('Versioning', 'another version does not exist', async (scene) => {
    const [status] = await raw(scene, 'GET', `/api/2/vehicles/${scene.vin}`)
    assert.equal(status, 404)
  }),
]
