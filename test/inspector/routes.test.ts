import { createReceiver, vehicles } from 'fleethook'
import { inspectorRoutes, type InspectorOptions } from 'fleethook/inspector'
import { deliver, message } from 'fleethook/testing'
import { Hono } from 'hono'
import { describe, expect, test } from 'vitest'
import { page } from '../../src/inspector/page.generated.ts'

const secret = 'an-operator-of-the-tests'
const log = { debug() {}, info() {}, warn() {}, error() {} }

/** A receiver whose handler for alerts fails, with the inspector at /inspector. */
async function mounted(options: Partial<InspectorOptions> = {}): Promise<{
  readonly app: Hono
  ask(path: string, init?: RequestInit): Promise<{ readonly status: number; readonly body: string }>
}> {
  const receiver = createReceiver({
    ...{ secret: 'the-webhook', retry: { attempts: 1 }, log },
    parts: [vehicles({ fields: ['Location', 'Odometer'] })],
  })
    .on('data', function save() {})
    .on('alerts', function page() {
      throw new TypeError('4711 is too much')
    })
  const app = new Hono().route('/inspector', inspectorRoutes(receiver, { secret, ...options }))
  for (const each of [
    message.data({ Odometer: 4711, Location: { latitude: 48, longitude: 11 } }, { vin: 'A' }),
    message.alerts([{ name: 'A4711' }], { vin: 'B' }),
    message.state('online4711', { vin: 'C' }),
  ]) {
    const { settled } = await deliver(receiver, each, { secret: 'the-webhook' })
    await settled
  }
  return {
    app,
    async ask(path, init = {}) {
      const response = await app.request(`/inspector/${path}`, { ...init, headers: { authorization: secret } })
      return { status: response.status, body: await response.text() }
    },
  }
}

describe('the page', () => {
  test('is the only thing that is served without the secret', async () => {
    const { app } = await mounted()
    const shell = await app.request('/inspector/')
    expect([shell.status, await shell.text()]).toEqual([200, page.html])
    const bare = await app.request('/inspector')
    expect([bare.status, bare.headers.get('location')]).toEqual([308, 'inspector/'])
    for (const [name, { type, body }] of Object.entries(page.assets)) {
      const asset = await app.request(`/inspector/assets/${name}`)
      expect([asset.status, await asset.text(), asset.headers.get('content-type')]).toEqual([200, body, type])
      expect(asset.headers.get('cache-control')).toBe('public, max-age=31536000, immutable')
    }
    for (const path of ['about', 'stats', 'feed', 'messages', 'messages/x', 'dead', 'vehicles', 'samples', 'nothing'])
      expect((await app.request(`/inspector/${path}`)).status, path).toBe(401)
    for (const name of ['toString', '__proto__', '..%2fpackage.json'])
      expect((await app.request(`/inspector/assets/${name}`)).status, name).toBe(404)
  })

  test('and its data cannot be read, framed or scripted by another site', async () => {
    const { app } = await mounted()
    for (const path of ['/inspector/', '/inspector/stats', '/inspector/assets/none']) {
      const { headers } = await app.request(path, { headers: { origin: 'https://elsewhere.example.com' } })
      expect(Object.fromEntries(headers), path).toMatchObject({
        'content-security-policy': expect.stringMatching(
          /^default-src 'none'; script-src 'self';.* frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'$/,
        ),
        'x-content-type-options': 'nosniff',
        'cache-control': 'no-store',
        'cross-origin-resource-policy': 'same-origin',
        'cross-origin-opener-policy': 'same-origin',
        'referrer-policy': 'no-referrer',
      })
      expect([...headers.keys()].filter((name) => name.startsWith('access-control'))).toEqual([])
    }
  })

  test('needs a secret of its own', () => {
    const receiver = createReceiver({ secret: 'x' })
    expect(() => inspectorRoutes(receiver, { secret: undefined })).toThrow(/secret` of inspectorRoutes is missing/)
    expect(() => inspectorRoutes(receiver, { secret: false as never })).toThrow(/secret` of inspectorRoutes is false/)
    expect(() => inspectorRoutes(receiver, { secret, payloads: 'no' as never })).toThrow(/payloads/)
  })
})

describe('its data', () => {
  test('say what the receiver is, what it did, and where the vehicles are', async () => {
    const { ask } = await mounted()
    expect(JSON.parse((await ask('about')).body)).toEqual({
      ...{ payloads: true, receiver: true, vehicles: true },
      ready: { ready: true },
    })
    expect(JSON.parse((await ask('samples')).body)).toMatchObject({
      stepMs: 5_000,
      samples: [{ received: 3, handled: 2, dead: 1, refused: 0, lost: 0, waiting: 0 }],
    })
    expect(JSON.parse((await ask('vehicles')).body)).toMatchObject({
      vehicles: [
        { vin: 'A', fields: 2, location: { latitude: 48, longitude: 11, at: expect.any(String) } },
        { vin: 'B', location: null },
        { vin: 'C', location: null },
      ],
    })
  })

  test('hide values, raw messages, and the texts of errors with `payloads: false`', async () => {
    const { ask } = await mounted({ payloads: false })
    const [shown] = JSON.parse((await ask('dead')).body).letters
    const answers = await Promise.all(
      ['about', 'stats', 'samples', 'vehicles', 'vehicles/A', 'dead', `dead/${shown.id}`].map((path) => ask(path)),
    )
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200))
    expect(answers.map(({ body }) => body).join('\n')).not.toContain('4711')
    expect(shown).toMatchObject({ vin: 'B', topic: 'alerts', error: 'TypeError' })
    expect(JSON.parse(answers.at(-1)?.body ?? '').event).toEqual({
      ...{ topic: 'alerts', vin: 'B', format: 'service', id: expect.any(String) },
      ...{ createdAt: expect.any(String), at: expect.any(String), receivedAt: expect.any(String) },
    })
  })
})
