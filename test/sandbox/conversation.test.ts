import { describe, expect, test } from 'vitest'
import {
  differences,
  type Exchange,
  exchanges,
  type Json,
  pathOf,
  shapeDifferences,
  streams,
} from '../interface/conversation.ts'
import { apiKey, type Loose, sceneOf, type Scene } from './scene.ts'

const site = '12345'
const unshared = '0FLEETX00X0000000'

/** Brings the sandbox to the state that an exchange needs. */
async function prepare({ given }: Exchange, { ask, client, clock, vin }: Scene): Promise<void> {
  await client.wakeUp(vin)
  await client.config(vin).replace({ fields: { Gear: { interval_seconds: 5 } } })
  await client.command(vin, 'set_charge_limit', { percent: 71 })
  if (given === 'asleep') await ask('POST', `/sandbox/vehicles/${vin}/sleep`)
  // The three requests above were those of this minute.
  if (given === 'rate limited') await clock.advance(53_000)
}

describe('the sandbox answers as in the recorded conversation', () => {
  const held = exchanges.filter(({ name }) => name !== 'a config changes no vehicle, and the answer says why')
  test.each(held.filter(({ side }) => side !== 'client').map((one) => [one.name, one] as const))(
    '%s',
    async (_name, exchange) => {
      const { request, answer, given } = exchange
      const scene = await sceneOf(given === 'rate limited' ? { rateLimit: 3 } : {})
      await prepare(exchange, scene)
      const path = pathOf(request.path, given === 'not consented' ? unshared : scene.vin, site)
      const key = request.wrongKey === true ? 'a-wrong-key' : apiKey
      const response = await scene.sandbox.fetch(
        new Request(`https://s.example.com${path}`, {
          method: request.method,
          headers: { authorization: `Bearer ${key}` },
          ...(request.body === undefined ? {} : { body: JSON.stringify(request.body) }),
        }),
      )
      expect(response.status).toBe(answer.status)
      expect(differences(exchange, await response.json())).toEqual([])
      for (const [name, value] of Object.entries(answer.headers ?? {})) expect(response.headers.get(name)).toBe(value)
    },
  )
})

describe('the sandbox streams as in the recorded conversation:', () => {
  test.each(streams.map((one) => [one.name, one] as const))('%s', async (_name, recorded) => {
    const scene = await sceneOf({ vehicles: 1 })
    const { ask, client, sandbox, vin } = scene
    await client.wakeUp(vin)
    const fields = ['BatteryLevel', 'Gear', 'Location', 'Locked', 'VehicleSpeed', 'DetailedChargeState']
    await client
      .config(vin)
      .replace({ fields: Object.fromEntries(fields.map((field) => [field, { interval_seconds: 1 }])) })
    await ask('POST', '/sandbox/messages', { vin, status: 'CONNECTED', networkInterface: 'wifi', connectionId: 'c' })
    await sandbox.advance(5_000)
    const { body } = await sandbox.fetch(
      new Request(`https://s.example.com${pathOf(recorded.path, vin, site)}`, {
        headers: { authorization: `Bearer ${apiKey}` },
      }),
    )
    await ask('PATCH', `/api/config/${vin}`, { fields: { Gear: { interval_seconds: 1, minimum_delta: 1 }, Soc: null } })
    await client.command(vin, 'flash_lights')
    const createdAt = '2026-06-01T08:10:00Z'
    await ask('POST', '/sandbox/messages', { vin, alerts: [{ name: 'A', startedAt: createdAt, audiences: [] }] })
    await ask('POST', '/sandbox/messages', {
      vin,
      errors: [{ name: 'E', createdAt, tags: { reason: 'x' }, body: 'b' }],
    })
    await sandbox.advance(400_000)
    await client.energySite(site).command('backup', { backup_reserve_percent: 31 })
    await client
      .energySite(site)
      .command('time_of_use_settings', { tou_settings: { tariff_content_v2: { code: 'ours', name: 'Ours' } } })
    await sandbox.close()
    const text = await new Response(body).text()
    expect(text.startsWith(`retry: ${recorded.retryMs}\n\ndata: `)).toBe(true)
    // Items have neither a name nor a number.
    expect(text).not.toMatch(/^(event|id):/m)
    const messages: readonly Loose[] = [...text.matchAll(/^data: (.*)$/gm)].map(([, json = '']) => JSON.parse(json))
    const cached = messages.filter(({ isCache }) => isCache === true)
    const live = messages.filter(({ isCache }) => isCache !== true)
    for (const message of recorded.snapshot) expect(closest(message, cached)).toEqual([])
    for (const message of recorded.live) expect(closest(message, live)).toEqual([])
  })
})

/** The differences from the most similar message. The config of a recorded message has fields of its own. */
function closest(recorded: { readonly [name: string]: Json }, messages: readonly Loose[]): readonly string[] {
  const all = messages.map((message) => shapeDifferences(expected(recorded), message, 'message'))
  return all.toSorted((a, b) => a.length - b.length)[0] ?? ['no message came']
}

/** A message without the members that only its own moment has: which fields changed, and which a config names. */
function expected(recorded: { readonly [name: string]: Json }): Json {
  const { data, config, ...rest } = recorded
  return {
    ...rest,
    ...(config === undefined ? {} : { config: { fields: {} } }),
    ...(data === undefined ? {} : { data: 'isCache' in recorded ? data : {} }),
  }
}
