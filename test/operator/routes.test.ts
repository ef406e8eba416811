import { createReceiver } from 'fleethook'
import { branch } from 'fleethook/branch'
import { inspectorRoutes } from 'fleethook/inspector'
import { serve } from 'fleethook/node'
import { metricsRoutes } from 'fleethook/metrics'
import { operatorRoutes } from 'fleethook/operator'
import { deliver, message } from 'fleethook/testing'
import { Hono } from 'hono'
import { describe, expect, test } from 'vitest'

const secret = 'an-operator-of-the-tests'
const log = { debug() {}, info() {}, warn() {}, error() {} }

async function withDeadLetters(): Promise<ReturnType<typeof operatorRoutes>> {
  const receiver = createReceiver({ secret: 'the-webhook', retry: { attempts: 1 }, log }).on('data', () => {
    throw new Error('no')
  })
  for (const vin of ['A', 'B']) {
    const { settled } = await deliver(receiver, message.data({ Odometer: 7 }, { vin }), { secret: 'the-webhook' })
    await settled
  }
  return operatorRoutes(receiver, { secret })
}

describe('operatorRoutes', () => {
  test('nobody who reads the feed keeps a server open that stops, of the receiver or of a branch', async () => {
    const receiver = createReceiver({ secret: 'the-webhook', log })
    branch(receiver, { name: 'crm' })
    const app = new Hono().route('/', receiver.routes()).route('/operator', operatorRoutes(receiver, { secret }))
    const server = await serve(app, { port: 0, announce: false, signals: false, graceMs: 60_000 })
    const headers = { authorization: secret }
    const feeds = await Promise.all(
      ['/feed', '/branches/crm/feed'].map((path) => fetch(`${server.url}/operator${path}`, { headers })),
    )
    expect(feeds.map(({ status }) => status)).toEqual([200, 200])
    const texts = feeds.map((feed) => feed.text())
    // Otherwise it takes half of the time to stop.
    await server.close()
    for (const text of texts) expect(await text).toContain('"items"')
    expect((await app.request('/operator/feed', { headers })).status).toBe(503)
  })

  test('ask for their secret before anything else', async () => {
    const app = await withDeadLetters()
    expect((await app.request('/dead')).status).toBe(401)
    expect((await app.request('/dead', { headers: { authorization: 'the-webhook' } })).status).toBe(403)
    expect((await app.request('/nothing')).status).toBe(401)
  })

  test.each([
    ['operatorRoutes', operatorRoutes, '/dead'],
    ['inspectorRoutes', inspectorRoutes, '/dead'],
    ['inspectorRoutes', inspectorRoutes, '/feed'],
    ['metricsRoutes', metricsRoutes, '/'],
  ] as const)('%s tell caches to keep nothing, and browsers to guess no type', async (_name, routes, path) => {
    const app = routes(createReceiver({ secret: 'the-webhook' }), { secret })
    for (const authorization of [secret, 'wrong']) {
      const answer = await app.request(path, { headers: { authorization } })
      await answer.body?.cancel()
      expect(answer.status).toBe(authorization === secret ? 200 : 403)
      const names = ['cache-control', 'x-content-type-options']
      expect(names.map((name) => answer.headers.get(name))).toEqual(['no-store', 'nosniff'])
    }
  })

  test('refuse a secret that is missing', () => {
    expect(() => operatorRoutes(createReceiver({ secret: 'x' }), { secret: undefined })).toThrow(/secret/)
    expect(() => operatorRoutes(createReceiver({ secret: 'x' }), { secret: '' })).toThrow(/secret/)
    expect(() => operatorRoutes(createReceiver({ secret: 'x' }), { secret: false as never })).toThrow(/secret/)
  })

  test('list without payloads, show with one, and say what is wrong with what was asked', async () => {
    const app = await withDeadLetters()
    const ask = async (path: string, init: RequestInit = {}): Promise<{ status: number; body: unknown }> => {
      const response = await app.request(path, { ...init, headers: { authorization: secret } })
      return { status: response.status, body: await response.json() }
    }
    const { body } = await ask('/dead?limit=1')
    expect(JSON.stringify(body)).not.toContain('Odometer')
    expect(body).toMatchObject({ letters: [{ vin: 'A', topic: 'data', attempts: 1, error: 'Error: no' }] })
    const [id] = JSON.stringify(body).match(/[0-9a-f]{8}-[0-9a-f-]{27}/) ?? []
    expect((await ask(`/dead/${id}`)).body).toMatchObject({ event: { data: { Odometer: 7 } } })
    expect((await ask('/dead/nothing')).status).toBe(404)
    expect((await ask('/dead?limit=0')).status).toBe(400)
    expect((await ask('/dead?from=yesterday')).status).toBe(400)
    for (const path of ['/dead?topic=dta', '/messages?topic=dta', '/feed?topic=dta'])
      expect(JSON.stringify(await ask(path))).toMatch(/'data' or 'state' or .* or 'malformed' and was given 'dta'/)
    const all = { method: 'POST', body: '{"dryRun":true}' }
    expect(await ask('/dead/discard', all)).toEqual({ status: 200, body: { messages: 2 } })
    expect(await ask('/dead/discard', { method: 'POST', body: '{"vin":"B"}' })).toMatchObject({ body: { messages: 1 } })
    expect(await ask('/dead/replay', { method: 'POST', body: 'no json' })).toMatchObject({ status: 400 })
  })
})
