import { createServer } from 'node:http'
import { once } from 'node:events'
import { createSandbox } from 'fleethook/sandbox'
import { describe, expect, test } from 'vitest'
import { apiKey, sceneOf } from './scene.ts'

const products = '/api/business/products'
const url = 'https://receiver.example.com/telemetry'

test('the webhook has ten seconds to answer', async () => {
  const { client, ask, vin, clock } = await sceneOf({
    post: ({ signal }) => new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason))),
  })
  await client.webhook.set({ url, format: 'service' })
  let done = false
  const said = ask('POST', '/sandbox/messages', { vin, state: 'online' }).then(() => (done = true))
  await clock.advance(9_999)
  expect(done).toBe(false)
  await clock.advance(1)
  await said
  expect((await ask('GET', '/sandbox/deliveries')).body.response).toMatchObject([
    { outcome: 'failed', error: 'TimeoutError' },
  ])
})

test('the sandbox follows no redirection of the webhook', async () => {
  const asked: (string | undefined)[] = []
  const server = createServer((request, response) => {
    asked.push(request.url)
    response.writeHead(307, { location: '/elsewhere' }).end()
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const sandbox = createSandbox({ apiKey, speed: 0, allowLocal: true })
  const ask = async (method: string, path: string, body?: object): Promise<unknown> => {
    const init = { method, headers: { authorization: `Bearer ${apiKey}` } }
    const request = new Request(`https://s.example.com${path}`, body ? { ...init, body: JSON.stringify(body) } : init)
    return (await sandbox.fetch(request)).json()
  }
  const local = `http://127.0.0.1:${Object(server.address()).port}/telemetry`
  await ask('PUT', '/api/business/webhook', { url: local, format: 'service' })
  await ask('POST', '/sandbox/messages', { vin: '0FL3EETV6T0000000', state: 'online' })
  expect(await ask('GET', '/sandbox/deliveries')).toMatchObject({ response: [{ outcome: 'refused', status: 307 }] })
  expect(asked).toEqual(['/telemetry'])
  server.close()
})

test('the last 1,000 deliveries are listed until the list is cleared', async () => {
  const { client, ask, vin } = await sceneOf()
  await client.webhook.set({ url, format: 'service' })
  await Promise.all(Array.from({ length: 1_001 }, () => ask('POST', '/sandbox/messages', { vin, state: 'online' })))
  const { response } = (await ask('GET', '/sandbox/deliveries')).body
  expect([response.length, response[0].id, response.at(-1).id]).toEqual([1_000, 2, 1_001])
  await ask('DELETE', '/sandbox/deliveries')
  expect((await ask('GET', '/sandbox/deliveries')).body.response).toEqual([])
})

test('a body of more than a megabyte is refused', async () => {
  const { ask, vin } = await sceneOf()
  const answer = await ask('PATCH', `/api/config/${vin}`, { fields: {}, note: 'x'.repeat(1_048_576) })
  expect([answer.status, answer.body.error]).toEqual([400, 'invalid_request'])
})

test('a closed sandbox leaves no timer', async () => {
  const { sandbox, clock } = await sceneOf({ speed: 1 })
  expect(clock.timers()).toHaveLength(1)
  await sandbox.close()
  expect(clock.timers()).toEqual([])
})

describe('the rate limit', () => {
  test('answers 429 with Retry-After until the minute is over', async () => {
    const { sandbox, clock, ask } = await sceneOf({ rateLimit: 2 })
    for (const expected of [200, 200, 429]) expect((await ask('GET', products)).status).toBe(expected)
    await clock.advance(20_000)
    const refused = await sandbox.fetch(
      new Request(`https://s.example.com${products}`, { headers: { authorization: `Bearer ${apiKey}` } }),
    )
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
