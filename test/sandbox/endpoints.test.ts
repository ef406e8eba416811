import { describe, expect, test } from 'vitest'
import { apiKey, messagesIn, sceneOf } from './scene.ts'

const siteId = '12345'
const code = (answer: { readonly status: number; readonly body: { readonly error: string } }): readonly unknown[] => [
  answer.status,
  answer.body.error,
]

describe('the reads of a vehicle', () => {
  const paths = [
    '',
    ...['vehicle_data', 'telemetry', 'fleet_telemetry_config', 'fleet_telemetry_errors', 'charge_history'],
    ...['recent_alerts', 'nearby_charging_sites', 'release_notes', 'drivers', 'invitations'],
  ]
  test.each(paths)('/%s is answered in `response`, and only to GET', async (path) => {
    const { ask, vin, client } = await sceneOf()
    await client.wakeUp(vin)
    const url = `/api/1/vehicles/${vin}${path === '' ? '' : `/${path}`}`
    expect(await ask('GET', url)).toEqual({ status: 200, body: { response: expect.anything() } })
    const other = await ask('PUT', url)
    expect(['method_not_allowed', 'insufficient_scope']).toContain(other.body.error)
  })

  test('vehicle_data of an asleep vehicle is 408, and the read does not wake it', async () => {
    const { ask, vin } = await sceneOf()
    await ask('POST', `/sandbox/vehicles/${vin}/sleep`)
    for (const path of ['vehicle_data', 'nearby_charging_sites']) {
      expect(code(await ask('GET', `/api/1/vehicles/${vin}/${path}`))).toEqual([408, 'vehicle_unavailable'])
    }
    expect((await ask('GET', `/api/1/vehicles/${vin}`)).body.response.state).toBe('asleep')
  })

  test('telemetry, alerts and errors are those that it sent', async () => {
    const { ask, vin } = await sceneOf()
    await ask('POST', '/sandbox/messages', { vin, data: { BatteryLevel: 40, Gear: 'D' } })
    await ask('POST', '/sandbox/messages', { vin, data: { BatteryLevel: 41.5 } })
    await ask('POST', '/sandbox/messages', { vin, alerts: [{ name: 'A', startedAt: '2026-06-01T08:00:00Z' }] })
    await ask('POST', '/sandbox/messages', { vin, errors: [{ name: 'E', createdAt: '2026-06-01T08:00:00Z' }] })
    expect((await ask('GET', `/api/1/vehicles/${vin}/telemetry`)).body.response.data).toEqual({
      BatteryLevel: 41.5,
      Gear: 'D',
    })
    expect((await ask('GET', `/api/1/vehicles/${vin}/recent_alerts`)).body.response.recent_alerts[0].name).toBe('A')
    const errors = await ask('GET', `/api/1/vehicles/${vin}/fleet_telemetry_errors`)
    expect(errors.body.response.fleet_telemetry_errors[0].name).toBe('E')
  })

  test('the image is a PNG', async () => {
    const { client, vin } = await sceneOf()
    const { bytes, contentType } = await client.vehicle(vin).image()
    expect(contentType).toBe('image/png')
    expect([...bytes.slice(0, 4)]).toEqual([0x89, 0x50, 0x4e, 0x47])
  })
})

describe('energy sites', () => {
  test.each(['site_info', 'live_status', 'calendar_history', 'telemetry_history', 'programs'])(
    '%s is answered in `response`',
    async (path) => {
      const { ask } = await sceneOf()
      expect(await ask('GET', `/api/1/energy_sites/${siteId}/${path}`)).toEqual({
        status: 200,
        body: { response: expect.anything() },
      })
    },
  )

  test.each(['backup', 'operation', 'storm_mode', 'grid_import_export'])('%s is a command', async (name) => {
    const { client } = await sceneOf()
    expect(await client.energySite(siteId).command(name, {})).toMatchObject({ result: true })
  })

  test('a setting that a command changes is in site_info', async () => {
    const { client } = await sceneOf()
    await client.energySite(siteId).command('backup', { backup_reserve_percent: 55 })
    await client.energySite(siteId).command('operation', { default_real_mode: 'autonomous' })
    await client.energySite(siteId).command('storm_mode', { enabled: true })
    await client.energySite(siteId).command('grid_import_export', { customer_preferred_export_rule: 'pv_only' })
    expect(await client.energySite(siteId).siteInfo()).toMatchObject({
      backup_reserve_percent: 55,
      default_real_mode: 'autonomous',
      user_settings: { storm_mode_enabled: true },
      components: { customer_preferred_export_rule: 'pv_only' },
    })
  })
})

describe('refusals', () => {
  const vehicle = '/api/1/vehicles/0FLEETV17T0000000'
  test.each([
    ['GET', '/api/1/vehicles', 403, 'insufficient_scope'],
    ['GET', '/api/1/products', 403, 'insufficient_scope'],
    ['GET', '/api/1/energy_sites', 403, 'insufficient_scope'],
    ['GET', '/api/1/users/me', 403, 'insufficient_scope'],
    ['POST', '/api/1/vehicles/fleet_telemetry_config', 403, 'insufficient_scope'],
    ['DELETE', `${vehicle}/fleet_telemetry_config`, 403, 'insufficient_scope'],
    ['POST', `${vehicle}/invitations`, 403, 'insufficient_scope'],
    ['POST', `${vehicle}/invitations/7/revoke`, 403, 'insufficient_scope'],
    ['DELETE', `${vehicle}/drivers`, 403, 'insufficient_scope'],
    ['GET', '/api/1/vehicles/0FLEETX00X0000000', 404, 'vehicle_not_found'],
    ['GET', '/api/image/0FLEETX00X0000000', 404, 'vehicle_not_found'],
    ['PATCH', '/api/config/0FLEETX00X0000000', 404, 'vehicle_not_found'],
    ['DELETE', '/api/config/0FLEETX00X0000000', 404, 'vehicle_not_found'],
    ['GET', '/api/1/energy_sites/999/site_info', 404, 'energy_site_not_found'],
    ['GET', '/api/config/0FLEETV17T0000000', 404, 'config_not_found'],
    ['GET', '/api/business/webhook', 404, 'webhook_not_found'],
    ['DELETE', '/api/business/webhook', 404, 'webhook_not_found'],
    ['GET', `${vehicle}/no_such_thing`, 404, 'not_found'],
    ['GET', '/api/2/vehicles', 404, 'not_found'],
    ['POST', '/api/business/webhook', 405, 'method_not_allowed'],
    ['PATCH', '/api/business/config/default', 405, 'method_not_allowed'],
    ['PUT', '/api/config/0FLEETV17T0000000', 405, 'method_not_allowed'],
    ['POST', '/sse/0FLEETV17T0000000', 405, 'method_not_allowed'],
    ['GET', `${vehicle}/command/charge_start`, 405, 'method_not_allowed'],
    ['GET', '/sse/0FLEETV17T0000000?topics=weather', 400, 'invalid_request'],
  ])('%s %s is %i %s', async (method, path, status, error) => {
    const { ask } = await sceneOf()
    const answer = await ask(method, path, method === 'GET' ? undefined : {})
    expect(answer).toEqual({ status, body: { response: null, error, error_description: expect.any(String) } })
  })

  test('a webhook on this machine is refused, unless loopback is allowed', async () => {
    const put = { url: 'http://127.0.0.1:3000/', format: 'service' }
    const { ask } = await sceneOf()
    expect(code(await ask('PUT', '/api/business/webhook', put))).toEqual([400, 'invalid_webhook_url'])
    const local = await sceneOf({ allowLocal: true })
    expect((await local.ask('PUT', '/api/business/webhook', put)).status).toBe(200)
    for (const url of ['http://192.168.1.2/', 'http://mac.local/', 'ftp://localhost/']) {
      const answer = await local.ask('PUT', '/api/business/webhook', { ...put, url })
      expect(code(answer), url).toEqual([400, 'invalid_webhook_url'])
    }
  })

  test('every answer has a request id, refusals included', async () => {
    const { sandbox } = await sceneOf()
    const ids = await Promise.all(
      ['/api/business/products', '/x'].map(async (path) => {
        const request = new Request(`https://s.example.com${path}`, { headers: { authorization: `Bearer ${apiKey}` } })
        return (await sandbox.fetch(request)).headers.get('x-request-id')
      }),
    )
    expect(new Set(ids).size).toBe(2)
    expect(ids).not.toContain(null)
  })

  test('one key can replace another', async () => {
    const { sandbox } = await sceneOf({ apiKey: ['the-former-key', 'the-newer-key'] })
    const statusOf = async (key: string): Promise<number> => {
      const headers = { authorization: `Bearer ${key}` }
      return (await sandbox.fetch(new Request('https://s.example.com/api/business/products', { headers }))).status
    }
    expect(await Promise.all(['the-former-key', 'the-newer-key', 'the-wrong-key'].map(statusOf))).toEqual([
      200, 200, 401,
    ])
  })
})

describe('commands', () => {
  test.each([
    ['all', 'door_lock', 200],
    ['all', 'wake_up', 200],
    ['charging', 'set_charge_limit', 200],
    ['charging', 'wake_up', 200],
    ['charging', 'door_lock', 403],
    ['none', 'charge_start', 403],
    ['none', 'wake_up', 403],
  ] as const)('with access to %s, %s is %i', async (access, name, status) => {
    const { ask, vin } = await sceneOf({ commands: { vehicle: access } })
    expect((await ask('POST', `/api/1/vehicles/${vin}/command/${name}`, {})).status).toBe(status)
  })

  test('energy commands without access are refused, and reads are not', async () => {
    const { ask } = await sceneOf({ commands: { energy: false } })
    expect(code(await ask('POST', `/api/1/energy_sites/${siteId}/backup`, {}))).toEqual([403, 'insufficient_scope'])
    expect((await ask('GET', `/api/1/energy_sites/${siteId}/site_info`)).status).toBe(200)
  })

  test('an asleep vehicle is woken first, and reports its connection and state before anything else', async () => {
    const { ask, client, vin, posted } = await sceneOf()
    await client.config(vin).replace({ fields: { Locked: { interval_seconds: 1 } } })
    await ask('POST', `/sandbox/vehicles/${vin}/sleep`)
    await client.webhook.set({ url: 'https://receiver.example.com/', format: 'service' })
    expect(await client.command(vin, 'door_unlock')).toEqual({ result: true, reason: '' })
    expect((await ask('GET', '/sandbox/vehicles')).body.response[0]).toMatchObject({ vin, state: 'online' })
    await ask('GET', '/sandbox/deliveries')
    expect(messagesIn(posted)).toMatchObject([{ status: 'CONNECTED' }, { state: 'online' }])
  })

  test('an asleep vehicle without a network is not woken, and sends nothing', async () => {
    const { ask, client, vin, posted, sandbox } = await sceneOf()
    await client.config(vin).replace({ fields: { Locked: { interval_seconds: 1 } } })
    await ask('POST', `/sandbox/vehicles/${vin}/sleep`)
    await ask('POST', `/sandbox/vehicles/${vin}/network`, { connected: false })
    await client.webhook.set({ url: 'https://receiver.example.com/', format: 'service' })
    await expect(client.command(vin, 'door_lock')).rejects.toMatchObject({ status: 408, code: 'vehicle_unavailable' })
    await sandbox.advance(60_000)
    expect((await ask('GET', '/sandbox/vehicles')).body.response[0]).toMatchObject({ vin, state: 'asleep' })
    expect(messagesIn(posted)).toEqual([])
  })

  test('a command that does not reach the vehicle is retried, and is 408 after three attempts', async () => {
    const { ask, client, vin, sandbox } = await sceneOf()
    await ask('POST', `/sandbox/vehicles/${vin}/failures`, { count: 2 })
    const answer = await sandbox.fetch(
      new Request(`https://s.example.com/api/1/vehicles/${vin}/command/door_lock`, {
        method: 'POST',
        headers: { authorization: `Bearer ${apiKey}` },
      }),
    )
    expect(answer.headers.get('x-attempts')).toBe('3')
    expect(await answer.json()).toEqual({ response: { result: true, reason: '' } })
    await ask('POST', `/sandbox/vehicles/${vin}/failures`, { count: 3 })
    await expect(client.command(vin, 'door_lock')).rejects.toMatchObject({ status: 408, code: 'vehicle_unavailable' })
    expect(await client.command(vin, 'door_lock')).toEqual({ result: true, reason: '' })
  })

  test('a command that the vehicle refuses is answered with its reason', async () => {
    const { client, vin } = await sceneOf()
    expect(await client.command(vin, 'charge_start')).toEqual({ result: false, reason: 'disconnected' })
  })

  test('a change by a command is in the vehicle’s document', async () => {
    const { client, vin } = await sceneOf()
    await client.command(vin, 'set_charge_limit', { percent: 63 })
    expect(await client.vehicle(vin).data()).toMatchObject({ charge_state: { charge_limit_soc: 63 } })
  })

  test('the maker’s own path of wake_up works too', async () => {
    const { ask, vin } = await sceneOf()
    expect(await ask('POST', `/api/1/vehicles/${vin}/wake_up`)).toMatchObject({ status: 200 })
  })
})
