import { createServer } from 'node:http'
import { once } from 'node:events'
import { getRequestListener } from '@hono/node-server'
import { createSandbox } from 'fleethook/sandbox'
import { describe, expect, test } from 'vitest'
import { apiKey, sceneOf } from './scene.ts'

const products = '/api/business/products'
const request = (path: string): Request =>
  new Request(`https://s.example.com${path}`, { headers: { authorization: `Bearer ${apiKey}` } })

describe('the rate limit', () => {
  test('answers 429 with Retry-After until the minute is over', async () => {
    const { sandbox, clock, ask } = await sceneOf({ rateLimit: 2 })
    for (const expected of [200, 200, 429]) expect((await ask('GET', products)).status).toBe(expected)
    await clock.advance(20_000)
    const refused = await sandbox.fetch(request(products))
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '40'])
    expect(await refused.json()).toMatchObject({ response: null, error: 'too_many_requests' })
    await clock.advance(40_000)
    expect((await ask('GET', products)).status).toBe(200)
  })

  test('does not count the controls, and is off by default', async () => {
    const limited = await sceneOf({ rateLimit: 1 })
    for (let count = 0; count < 3; count += 1) {
      expect((await limited.ask('GET', '/sandbox/clock')).status).toBe(200)
    }
    const { ask } = await sceneOf()
    for (let count = 0; count < 200; count += 1) expect((await ask('GET', products)).status).toBe(200)
  })
})

describe('failures on request', () => {
  test.each([
    ['500', 500, 'internal_error'],
    ['429', 429, 'too_many_requests'],
  ] as const)('the next answers are %s, and then as before', async (kind, status, code) => {
    const { ask } = await sceneOf()
    expect((await ask('POST', '/sandbox/failures', { kind, count: 2 })).status).toBe(200)
    for (let count = 0; count < 2; count += 1) {
      expect(await ask('GET', products)).toMatchObject({ status, body: { response: null, error: code } })
    }
    expect((await ask('GET', products)).status).toBe(200)
  })

  test('502 is the page of a proxy, as HTML', async () => {
    const { sandbox } = await sceneOf()
    sandbox.fail({ kind: '502' })
    const answer = await sandbox.fetch(request(products))
    expect([answer.status, answer.headers.get('content-type')]).toEqual([502, 'text/html'])
    expect(await answer.text()).toContain('Bad Gateway')
  })

  test('a slow answer comes after its wait, and a closed sandbox waits no longer', async () => {
    const { sandbox, clock } = await sceneOf()
    sandbox.fail({ kind: 'slow', delayMs: 5_000, count: 2 })
    let done = 0
    const first = Promise.resolve(sandbox.fetch(request(products))).then(() => (done += 1))
    await clock.advance(4_999)
    expect(done).toBe(0)
    await clock.advance(1)
    await first
    const second = sandbox.fetch(request(products))
    await sandbox.close()
    expect((await second).status).toBe(200)
    expect(clock.timers()).toEqual([])
  })

  test('a slow request that was given up is not carried out', async () => {
    const { sandbox, clock, ask, vin } = await sceneOf()
    sandbox.fail({ kind: 'slow', delayMs: 5_000 })
    const controller = new AbortController()
    const given = sandbox.fetch(
      new Request(`https://s.example.com/api/config/${vin}`, {
        method: 'POST',
        headers: { authorization: `Bearer ${apiKey}` },
        body: JSON.stringify({ fields: { Gear: { interval_seconds: 5 } } }),
        signal: controller.signal,
      }),
    )
    controller.abort()
    await clock.advance(5_000)
    expect((await given).status).toBe(500)
    expect((await ask('GET', `/api/config/${vin}`)).body.error).toBe('config_not_found')
  })

  test('a cut answer breaks in the middle, on a real connection too', async () => {
    const { sandbox } = await sceneOf()
    sandbox.fail({ kind: 'cut', count: 2 })
    const answer = await sandbox.fetch(request(products))
    expect(answer.status).toBe(200)
    await expect(answer.text()).rejects.toThrow()

    const server = createServer(getRequestListener(sandbox.fetch)).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const url = `http://127.0.0.1:${Object(server.address()).port}${products}`
    const get = async (): Promise<string> =>
      (await fetch(url, { headers: { authorization: `Bearer ${apiKey}` } })).text()
    await expect(get()).rejects.toThrow()
    expect(JSON.parse(await get()).response.length).toBeGreaterThan(0)
    server.closeAllConnections()
    server.close()
  })

  test('only the paths fail that begin as asked, and DELETE ends all failures', async () => {
    const { ask, sandbox, vin } = await sceneOf()
    sandbox.fail({ kind: '500', path: '/api/config' })
    expect((await ask('GET', products)).status).toBe(200)
    expect((await ask('GET', `/api/config/${vin}`)).status).toBe(500)
    await ask('POST', '/sandbox/failures', { kind: '500', count: 100 })
    await ask('DELETE', '/sandbox/failures')
    expect((await ask('GET', products)).status).toBe(200)
  })

  test.each([
    [{ kind: 'boom' }, 'kind'],
    [{}, 'kind'],
    [{ kind: '500', count: 0 }, 'count'],
    [{ kind: '500', count: 1.5 }, 'count'],
    [{ kind: 'slow', delay_ms: -1 }, 'delayMs'],
    [{ kind: '500', path: 'api' }, 'path'],
    [{ kind: '429', retry_after_seconds: 'soon' }, 'retryAfterSeconds'],
  ])('%j is refused', async (body, name) => {
    const { ask } = await sceneOf()
    const answer = await ask('POST', '/sandbox/failures', body)
    expect([answer.status, answer.body.error]).toEqual([400, 'invalid_request'])
    expect(answer.body.error_description).toContain(`\`${name}\``)
  })

  test('a failure that does not exist throws', async () => {
    const sandbox = createSandbox({ apiKey, speed: 0 })
    expect(() => sandbox.fail({ kind: Object('boom') })).toThrow(expect.objectContaining({ code: 'option_invalid' }))
    await sandbox.close()
  })
})

describe('streams that fail on request', () => {
  async function reader(
    scene: Awaited<ReturnType<typeof sceneOf>>,
  ): Promise<{ text: () => string; end: Promise<string> }> {
    const { body } = await scene.sandbox.fetch(request(`/sse/${scene.vin}`))
    let text = ''
    const end = (async () => {
      const decoder = new TextDecoder()
      try {
        for await (const chunk of body ?? []) text += decoder.decode(chunk, { stream: true })
        return 'ended'
      } catch {
        return 'broke'
      }
    })()
    return { text: () => text, end }
  }

  test('`drop` breaks the connection', async () => {
    const scene = await sceneOf()
    const { end } = await reader(scene)
    expect((await scene.ask('POST', '/sandbox/streams', { action: 'drop' })).body).toEqual({ response: { streams: 1 } })
    expect(await end).toBe('broke')
    expect(scene.clock.timers()).toEqual([])
  })

  test('`silent` sends neither items nor comments', async () => {
    const scene = await sceneOf()
    const { text, end } = await reader(scene)
    expect(scene.sandbox.failStreams('silent', scene.vin)).toBe(1)
    await scene.clock.advance(0)
    const before = text()
    await scene.ask('POST', '/sandbox/messages', { vin: scene.vin, state: 'driving' })
    await scene.clock.advance(60_000)
    expect(text()).toBe(before)
    await scene.sandbox.close()
    expect(await end).toBe('ended')
  })

  test('`garbage` sends bytes that are not an item, and the stream goes on', async () => {
    const scene = await sceneOf()
    const { text, end } = await reader(scene)
    scene.sandbox.failStreams('garbage')
    await scene.ask('POST', '/sandbox/messages', { vin: scene.vin, state: 'driving' })
    await scene.sandbox.close()
    expect(await end).toBe('ended')
    expect(text()).toMatch(/<html>not an item[^]*"state":"driving"/)
  })

  test.each([[{}], [{ action: 'explode' }], [{ action: 'drop', product: 5 }]])('%j is refused', async (body) => {
    const { ask } = await sceneOf()
    const answer = await ask('POST', '/sandbox/streams', body)
    expect([answer.status, answer.body.error]).toEqual([400, 'invalid_request'])
  })
})
