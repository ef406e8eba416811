import fc from 'fast-check'
import { expect, test } from 'vitest'
import { inForm } from '../form.ts'
import { expectNoLeftovers } from '../fuzz/leftovers.ts'
import { mutatedText, randomOfCase } from '../fuzz/mutation.ts'
import { apiKey, sceneOf } from './scene.ts'

const vin = '0FL3EETV6T0000000'
const site = '12345'
const secret = 'a-secret-of-the-webhook'

expectNoLeftovers()

const real = [
  ...['/api/business/webhook', '/api/business/config/default', '/api/business/products', '/api/metadata'],
  ...[`/api/config/${vin}`, `/api/image/${vin}`, `/api/1/vehicles/${vin}`, '/api/1/vehicles'],
  ...['vehicle_data', 'telemetry', 'charge_history', 'wake_up', 'command/set_temps', 'command/fly', 'drivers'].map(
    (rest) => `/api/1/vehicles/${vin}/${rest}`,
  ),
  ...['site_info', 'calendar_history', 'telemetry_history', 'backup', 'time_of_use_settings', 'fly', ''].map(
    (rest) => `/api/1/energy_sites/${site}/${rest}`,
  ),
  ...[`/sse/${vin}`, `/sse/${vin}/Soc`, `/sse/${site}`],
  ...['/sandbox/vehicles', `/sandbox/vehicles/${vin}/wake`],
  ...['/sandbox/messages', '/sandbox/clock', '/sandbox/deliveries'],
]
const methods = fc.oneof(
  { weight: 6, arbitrary: fc.constant('POST') },
  { weight: 2, arbitrary: fc.constantFrom('GET', 'HEAD', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'PROPFIND') },
)
const odd = fc.constantFrom(
  ...['', '/', '%', '%00', '%2e%2e', '__proto__', 'constructor', ';', '//', '\u{1f697}', 'x'.repeat(5_000)],
)
const path = fc.oneof(
  { weight: 5, arbitrary: fc.constantFrom(...real) },
  { weight: 2, arbitrary: fc.tuple(fc.constantFrom(...real), odd).map(([one, end]) => `${one}${end}`) },
  { weight: 1, arbitrary: fc.webPath() },
)
const query = fc.oneof(
  fc.constant(''),
  fc
    .tuple(
      fc.constantFrom('topics', 'endpoints', 'kind', 'period', '__proto__'),
      fc.oneof(
        fc.constantFrom('data', 'data,state', ',', ';', 'charge_state;location_data', 'energy'),
        fc.string({ maxLength: 30 }),
      ),
    )
    .map(([name, value]) => `?${name}=${encodeURIComponent(value.toWellFormed())}`),
)
const name = fc.constantFrom(
  ...['fields', 'url', 'format', 'auth', 'kind', 'count', 'action', 'product', 'vin', '__proto__', 'data'],
)
const inner = fc.constantFrom(
  ...['Soc', 'Gear', 'Location', 'interval_seconds', 'minimum_delta', '__proto__', 'constructor'],
)
const leaf = fc.constantFrom(null, true, 0, -1, 1.5, 1e308, '', 'x', vin, [], {}, 2 ** 53)
const body = fc.oneof(
  { weight: 3, arbitrary: fc.nat().map((number) => mutatedText(randomOfCase(1, number))) },
  {
    weight: 4,
    arbitrary: fc
      .dictionary(name, fc.oneof(leaf, fc.dictionary(inner, fc.oneof(leaf, fc.dictionary(inner, leaf)))))
      .map((value) => JSON.stringify(value)),
  },
  { weight: 1, arbitrary: fc.string({ unit: 'binary', maxLength: 100 }) },
)

test('whatever is sent, the sandbox answers with a code and a hint, and nothing crashes it', async () => {
  const scene = await sceneOf({ allowLocal: true })
  const { sandbox, client, ask } = scene
  await client.webhook.set({ url: 'https://receiver.example.com/', format: 'service', auth: secret })
  let refused = 0
  let number = 0
  await fc.assert(
    fc.asyncProperty(methods, path, query, body, async (method, where, asked, text) => {
      const url = `https://s.example.com${where.startsWith('/') ? where : `/${where}`}${asked}`
      if (!URL.canParse(url)) return
      const hasBody = method !== 'GET' && method !== 'HEAD'
      const answer = await sandbox.fetch(
        new Request(url, {
          method,
          headers: { authorization: `Bearer ${apiKey}` },
          ...(hasBody ? { body: text } : {}),
        }),
      )
      const type = answer.headers.get('content-type') ?? ''
      if (type.startsWith('text/event-stream')) {
        await answer.body?.cancel()
        return
      }
      const said = await answer.text().catch(() => '')
      expect(said).not.toContain(secret)
      if (answer.status < 400 || said === '') return
      refused += 1
      const refusal = JSON.parse(said)
      expect(refusal).toEqual({ response: null, error: expect.any(String), error_description: expect.any(String) })
      expect(refusal.error_description.length).toBeGreaterThan(10)
      expect(answer.status).toBeLessThan(500)
      number += 1
      if (number % 50 === 0) await sandbox.advance(1_000)
    }),
    { numRuns: inForm({ short: 600, full: 3_000 }) },
  )
  expect(refused).toBeGreaterThan(500)
  expect((await ask('GET', '/api/business/products')).status).toBe(200)
  await sandbox.close()
})
