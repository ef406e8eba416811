import { isDeepStrictEqual } from 'node:util'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { sceneOf } from './scene.ts'

type Fields = Record<string, Record<string, number> | null>

const given = fc.record(
  {
    interval_seconds: fc.integer({ min: 1, max: 9_999 }),
    minimum_delta: fc.integer({ min: 0, max: 50 }),
    resend_interval_seconds: fc.integer({ min: 1, max: 9_999 }),
  },
  { requiredKeys: ['interval_seconds'] },
)
/** `null` asks for the default interval. */
const setting = fc.option(given, { freq: 5 })
const known = ['BatteryLevel', 'Gear', 'Soc', 'Location']
const unknown = ['Gaer', 'batterylevel', 'constructor', 'toString']
const fields: fc.Arbitrary<Fields> = fc.dictionary(fc.constantFrom(...known, ...unknown), setting, { maxKeys: 5 })
const action = fc.oneof(
  fc.record({ kind: fc.constantFrom('PATCH', 'POST', 'default'), fields }),
  fc.record({ kind: fc.constantFrom('DELETE', 'share', 'unshare'), fields: fc.constant<Fields>({}) }),
)

const recognised = (sent: Fields): Fields =>
  Object.fromEntries(
    Object.entries(sent)
      .filter(([name]) => known.includes(name))
      .map(([name, value]) => [name, value ?? {}]),
  )
const ignored = (sent: Fields): readonly string[] => Object.keys(sent).filter((name) => !known.includes(name))

test('configs match a model after any sequence of PATCH, POST, DELETE, default, share and unshare', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(action, { maxLength: 25 }), async (actions) => {
      const { ask, vin } = await sceneOf({ vehicles: 1, energySites: 0 })
      let config: Fields | undefined
      let standard: Fields | null = null
      let shared = true
      for (const { kind, fields: sent } of actions) {
        const path = `/api/config/${vin}`
        if (kind === 'default') {
          const { body } = await ask('PUT', '/api/business/config/default', { fields: sent })
          standard = recognised(sent)
          expect(body).toEqual({ fields: standard, ignoredFields: ignored(sent) })
        } else if (kind === 'share') {
          await ask('POST', '/sandbox/vehicles', { vin })
          if (!shared) config ??= standard ?? undefined
          shared = true
        } else if (kind === 'unshare') {
          expect((await ask('DELETE', `/sandbox/vehicles/${vin}`)).status).toBe(shared ? 200 : 403)
          shared = false
        } else if (!shared) {
          expect(await ask(kind, path, { fields: sent })).toMatchObject({
            status: 403,
            body: { error: 'business_product_not_consented' },
          })
        } else if (kind === 'DELETE') {
          const count = config === undefined ? 0 : 1
          config = undefined
          expect(await ask(kind, path)).toEqual({
            status: 200,
            body: { response: true, updated_vehicles: count, skipped_vehicles: {} },
          })
        } else {
          const before: Fields | undefined = config
          config = kind === 'PATCH' ? { ...config, ...recognised(sent) } : recognised(sent)
          const count = isDeepStrictEqual(before, config) ? 0 : 1
          const { body } = await ask(kind, path, { fields: sent })
          const counted = { updated_vehicles: count, skipped_vehicles: {} }
          expect(body).toEqual({ ...counted, fields: config, ignoredFields: ignored(sent) })
        }
        const { status, body } = await ask('GET', path)
        if (!shared) expect([status, body.error]).toEqual([403, 'business_product_not_consented'])
        else if (config === undefined) expect([status, body.error]).toEqual([404, 'config_not_found'])
        else expect(body).toEqual({ fields: config })
        const kept = await ask('GET', '/api/business/config/default')
        expect(kept.body).toEqual(standard === null ? 'null' : { fields: standard })
      }
    }),
    { numRuns: 60 },
  )
})

test('a field whose setting is null is streamed at its default interval', async () => {
  const { ask, vin, sandbox, posted, client } = await sceneOf({ vehicles: 1 })
  await client.webhook.set({ url: 'https://receiver.example.com/', format: 'service' })
  await ask('PATCH', `/api/config/${vin}`, { fields: { Odometer: null } })
  await sandbox.advance(900_000)
  const times = posted.flatMap(({ body }) => {
    const message = JSON.parse(body)
    return 'Odometer' in Object(message.data) ? [Date.parse(message.createdAt)] : []
  })
  expect(times.length).toBeGreaterThan(5)
  const gaps = times.slice(1).map((time, place) => time - (times[place] ?? 0))
  expect(Math.min(...gaps.filter((gap) => gap > 0))).toBeGreaterThanOrEqual(59_000)
})
