import { describe, expect, test } from 'vitest'
import { vehicleCommands } from '../../src/service/sandbox/commands.ts'
import { apiKey, type Loose, messagesIn, sceneOf } from './scene.ts'

const siteId = '12345'
const code = (answer: { readonly status: number; readonly body: { readonly error: string } }): readonly unknown[] => [
  answer.status,
  answer.body.error,
]

describe('the reads of a vehicle', () => {
  test('telemetry, alerts and errors are those that it sent', async () => {
    const { ask, vin } = await sceneOf()
    await ask('POST', '/sandbox/messages', { vin, data: { BatteryLevel: 40, Gear: 'D' } })
    await ask('POST', '/sandbox/messages', { vin, data: { BatteryLevel: 41.5 } })
    await ask('POST', '/sandbox/messages', { vin, alerts: [{ name: 'A', startedAt: '2026-06-01T08:00:00Z' }] })
    await ask('POST', '/sandbox/messages', { vin, errors: [{ name: 'E', createdAt: '2026-06-01T08:00:00Z' }] })
    expect((await ask('GET', `/api/1/vehicles/${vin}/telemetry`)).body.response.data).toEqual({
      BatteryLevel: 41.5,
      Gear: 'ShiftStateD',
    })
    expect((await ask('GET', `/api/1/vehicles/${vin}/recent_alerts`)).body.response.recent_alerts[0].name).toBe('A')
    const errors = await ask('GET', `/api/1/vehicles/${vin}/fleet_telemetry_errors`)
    expect(errors.body.response.fleet_telemetry_errors[0].name).toBe('E')
  })

  test('the image is a picture, another one for each model', async () => {
    const { client } = await sceneOf({ vehicles: 4 })
    const pictures = await Promise.all(
      (await client.products())
        .filter(({ product_type: type }) => type === 'vehicle')
        .map(async ({ product_id: vin }) => client.vehicle(vin).image()),
    )
    expect(new Set(pictures.map(({ contentType }) => contentType))).toEqual(new Set(['image/svg+xml']))
    const texts = pictures.map(({ bytes }) => new TextDecoder().decode(bytes))
    for (const text of texts) expect(text).toMatch(/^<svg .*<path d="M.*<\/svg>$/)
    expect(new Set(texts.map((text) => /<title>(.*?)<\/title>/.exec(text)?.[1]))).toEqual(
      new Set(['Model 3', 'Model Y', 'Model S', 'Model X']),
    )
  })

  test('an unknown section of vehicle_data is refused, with those that there are', async () => {
    const { ask, vin, client } = await sceneOf()
    await client.wakeUp(vin)
    const refused = await ask('GET', `/api/1/vehicles/${vin}/vehicle_data?endpoints=charge_stat`)
    expect(code(refused)).toEqual([400, 'invalid_request'])
    expect(refused.body.error_description).toContain('charge_state')
  })

  test('every number is rounded as instruments give it', async () => {
    const { ask, vin, client, sandbox } = await sceneOf()
    await client
      .config(vin)
      .replace({ fields: { Location: { interval_seconds: 1 }, InsideTemp: { interval_seconds: 1 } } })
    await sandbox.advance(120_000)
    const paths = ['vehicle_data?endpoints=vehicle_data_combo%3Blocation_data', 'nearby_charging_sites', 'telemetry']
    const urls = [
      ...paths.map((path) => `/api/1/vehicles/${vin}/${path}`),
      ...['live_status', 'site_info', 'calendar_history'].map((path) => `/api/1/energy_sites/${siteId}/${path}`),
    ]
    for (const url of urls) {
      const long: string[] = []
      JSON.stringify((await ask('GET', url)).body.response, (key, value: unknown) => {
        if (typeof value === 'number' && (String(value).split('.')[1]?.length ?? 0) > 6) long.push(key)
        return value
      })
      expect(long, url).toEqual([])
    }
  })
})

describe('energy sites', () => {
  test.each([
    ['backup', { backup_reserve_percent: 30 }],
    ['operation', { default_real_mode: 'backup' }],
    ['storm_mode', { enabled: true }],
    ['grid_import_export', { disallow_charge_from_grid_with_solar_installed: true }],
    ['off_grid_vehicle_charging_reserve', { off_grid_vehicle_charging_reserve_percent: 60 }],
    ['time_of_use_settings', { tou_settings: { tariff_content_v2: { code: 'ours' } } }],
  ])('%s is a command, and is refused without its parameter', async (name, body) => {
    const { client, ask } = await sceneOf()
    expect(await client.energySite(siteId).command(name, body)).toMatchObject({ result: true })
    expect(code(await ask('POST', `/api/1/energy_sites/${siteId}/${name}`, {}))).toEqual([400, 'invalid_command'])
  })

  test('site_info, live_status and the histories have the members that clients read', async () => {
    const { ask } = await sceneOf()
    const read = async (path: string): Promise<Loose> =>
      (await ask('GET', `/api/1/energy_sites/${siteId}/${path}`)).body.response
    const info = await read('site_info')
    expect(Object.keys(info).length).toBeGreaterThanOrEqual(33)
    expect(info.components).toMatchObject({ solar: true, battery: true, grid: true, wall_connectors: [{}] })
    const live = await read('live_status')
    expect(live.wall_connectors).toHaveLength(1)
    expect(live.solar_power + live.battery_power + live.grid_power).toBe(live.load_power)
    const { time_series: series } = await read('calendar_history?kind=energy')
    expect(Object.keys(series[0]).length).toBeGreaterThanOrEqual(20)
    expect((await read('calendar_history?kind=backup')).events).toEqual([])
    expect((await read('telemetry_history?kind=charge')).charge_history[0]).toHaveProperty('energy_added_wh')
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
  const vehicle = '/api/1/vehicles/0FL3EETV6T0000000'
  test.each([
    ['GET', '/api/1/vehicles/0FLEETX00X0000000', 403, 'business_product_not_consented'],
    ['GET', '/api/image/0FLEETX00X0000000', 403, 'business_product_not_consented'],
    ['GET', '/api/1/energy_sites/999/site_info', 403, 'business_product_not_consented'],
    ['POST', '/api/1/energy_sites/12345/fly', 400, 'invalid_command'],
    ['GET', `${vehicle}/no_such_thing`, 404, 'not_found'],
    ['POST', '/api/business/webhook', 405, 'method_not_allowed'],
    ['PATCH', '/api/business/config/default', 405, 'method_not_allowed'],
    ['PUT', '/api/config/0FL3EETV6T0000000', 405, 'method_not_allowed'],
    ['POST', '/sse/0FL3EETV6T0000000', 405, 'method_not_allowed'],
    ['GET', `${vehicle}/command/charge_start`, 405, 'method_not_allowed'],
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
})

describe('commands', () => {
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

  test('a command that the vehicle refuses is answered with its reason', async () => {
    const { client, vin } = await sceneOf()
    expect(await client.command(vin, 'charge_start')).toEqual({ result: false, reason: 'disconnected' })
  })

  test('a change by a command is in the vehicle’s document', async () => {
    const { client, vin } = await sceneOf()
    await client.command(vin, 'set_charge_limit', { percent: 63 })
    expect(await client.vehicle(vin).data()).toMatchObject({ charge_state: { charge_limit_soc: 63 } })
  })

  test('every documented command has an answer with its parameters, and is refused without those it needs', async () => {
    const { ask, vin, client } = await sceneOf()
    await client.wakeUp(vin)
    const values = { string: 'rear', number: 1, boolean: true, any: {} }
    for (const [name, parameters] of Object.entries(vehicleCommands)) {
      const needed = parameters.split(' ').filter((one) => one !== '' && !one.includes('?'))
      const body = Object.fromEntries(
        needed.map((one) => {
          const [names = '', type = 'any'] = one.split(':')
          return [names.split('|')[0] ?? '', Object(values)[type]]
        }),
      )
      const url = `/api/1/vehicles/${vin}/command/${name}`
      expect((await ask('POST', url, body)).status, name).toBe(200)
      if (needed.length === 0) continue
      const refused = await ask('POST', url, {})
      expect(code(refused), name).toEqual([400, 'invalid_command'])
      expect(refused.body.error_description, name).toContain(needed[0]?.split(/[|:]/)[0])
    }
  })

  test('a parameter of the wrong type, or an unknown command, is refused, and wakes nobody', async () => {
    const { ask, vin } = await sceneOf()
    await ask('POST', `/sandbox/vehicles/${vin}/sleep`)
    const url = `/api/1/vehicles/${vin}/command`
    const wrong = await ask('POST', `${url}/set_charge_limit`, { percent: '80' })
    expect([...code(wrong), wrong.body.error_description]).toEqual([
      ...[400, 'invalid_command'],
      '`percent` of the command set_charge_limit must be a number.',
    ])
    expect((await ask('POST', `${url}/charge_begin`, {})).status).toBe(400)
    expect((await ask('GET', `/api/1/vehicles/${vin}`)).body.response.state).toBe('asleep')
  })

  test('a change by a command is streamed', async () => {
    const { client, vin, ask, sandbox } = await sceneOf()
    await client.wakeUp(vin)
    await client.config(vin).replace({ fields: { VehicleName: { interval_seconds: 1 } } })
    await client.command(vin, 'set_vehicle_name', { vehicle_name: 'Blue one' })
    await sandbox.advance(20_000)
    expect((await ask('GET', `/api/1/vehicles/${vin}/telemetry`)).body.response.data).toMatchObject({
      VehicleName: 'Blue one',
    })
  })
})
