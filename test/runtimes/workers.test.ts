import { describe, test } from 'vitest'
import { spawnTarget } from '../conformance/spawn.ts'
import { letIt, post, seen } from './client.ts'
import { appCommand, appWorker, workerCommand, type WorkerOptions } from './targets.ts'

const strayWork = /Illegal invocation|different request|hang|cross-request/i
const handledAll = (count: number): object => ({ stats: { received: count, handled: count, lost: 0, lanes: 0 } })

describe.concurrent('one receiver of a module serves the requests of its isolate', () => {
  test('a lane continues from one request to the next, each in its own context', async ({ expect }) => {
    await using target = await spawnTarget(await appCommand('workerd', { holdsHandlers: true }))
    expect(await post(target.url, 'V1', 1)).toBe(200)
    expect(await post(target.url, 'V1', 2)).toBe(200)
    expect(await post(target.url, 'V2', 3)).toBe(200)
    await letIt(target.url, 'handle')
    await expect.poll(() => seen(target.url)).toMatchObject(handledAll(3))
    expect(target.output.join('\n')).not.toMatch(strayWork)
  })

  test('requests wait while others use all of the concurrency, and then run', async ({ expect }) => {
    await using target = await spawnTarget(await appCommand('workerd', { concurrency: 2, handlerMs: 10 }))
    const answers = await Promise.all(
      Array.from({ length: 100 }, (_, number) => post(target.url, `V${number % 7}`, number)),
    )
    expect(new Set(answers)).toEqual(new Set([200]))
    await expect.poll(() => seen(target.url)).toMatchObject(handledAll(100))
    expect(target.output.join('\n')).not.toMatch(strayWork)
  })

  test('a handler that fails is retried after a pause, although its request is answered', async ({ expect }) => {
    await using target = await spawnTarget(await appCommand('workerd', { failures: 3, retryMs: 50 }))
    await Promise.all(['V1', 'V1', 'V2'].map((vin) => post(target.url, vin)))
    await expect.poll(() => seen(target.url)).toMatchObject(handledAll(3))
    expect((await seen(target.url)).steps.filter((step) => step === 'failed V1')).toHaveLength(6)
  })

  test('handlers can use what a request allows: bindings as env, which the secret function gets as well, fetch, timers, digests, random values', async ({
    expect,
  }) => {
    const command = await workerCommand(`
      import { createReceiver } from '../../../src/index.ts'
      import { worker } from '../../../adapters/workers.ts'
      const done = []
      const receiver = createReceiver({ secret: (env) => env.WEBHOOK_SECRET, concurrency: 1 }).on('*', async (event, { env }) => {
        const answer = await env.SELF.fetch('http://self/done')
        await new Promise((resolve) => setTimeout(resolve, 5))
        await crypto.subtle.digest('SHA-256', crypto.getRandomValues(new Uint8Array(8)))
        await caches.default.match('http://self/cached')
        done.push(answer.status)
      })
      const { fetch } = worker(receiver)
      export default { fetch: (request, env, context) =>
        request.url.endsWith('/done') ? Response.json(done) : fetch(request, env, context) }`)
    await using target = await spawnTarget(command)
    const answers = await Promise.all(
      Array.from({ length: 30 }, (_, number) => post(target.url, `V${number % 3}`, number)),
    )
    expect(new Set(answers)).toEqual(new Set([200]))
    const done = async (): Promise<unknown> => (await fetch(`${target.url}/done`)).json()
    await expect.poll(done).toEqual(Array.from({ length: 30 }, () => 200))
    expect(target.output.join('\n')).not.toMatch(strayWork)
  })
})

// Waits in real time: workerd ends a request half a minute after its answer.
describe('work that is not done when workerd ends its request', { concurrent: true }, () => {
  const lost = /acknowledged messages were not handled in time and are lost/

  test('is counted and reported, and later messages can use its lane and its place', async ({ expect }) => {
    const command = await workerCommand(appWorker({ holdsHandlers: true, concurrency: 1 }))
    await using target = await spawnTarget(command)
    expect(await post(target.url, 'V1', 1)).toBe(200)
    await target.line(lost)
    expect(await seen(target.url)).toMatchObject({ stats: { received: 1, handled: 0, lost: 1 } })
    await letIt(target.url, 'handle')
    expect(await post(target.url, 'V1', 2)).toBe(200)
    await expect.poll(() => seen(target.url)).toMatchObject({ stats: { handled: 1 }, numbers: [2] })
  })

  test('is counted and reported when the platform ends it without a signal', async ({ expect }) => {
    // This context holds nothing, so the request's work ends with its answer, and the handler never starts.
    const command = await workerCommand(`
      import { createApp } from './app.ts'
      import { worker } from '../../../adapters/workers.ts'
      const { fetch } = worker(createApp({ concurrency: 1 }))
      const unheld = { waitUntil() {}, passThroughOnException() {}, props: {} }
      export default { fetch: (request, env, context) =>
        fetch(request, env, request.headers.has('x-unheld') ? unheld : context) }`)
    await using target = await spawnTarget(command)
    expect(await post(target.url, 'V1', 1, { 'x-unheld': 'yes' })).toBe(200)
    const later = async (): Promise<unknown> => {
      await post(target.url, 'V1', 2)
      return seen(target.url)
    }
    await expect
      .poll(later, { timeout: 90_000, interval: 1_000 })
      .toMatchObject({ stats: { lost: expect.toSatisfy((count) => count >= 1), lanes: 0 } })
    await target.line(lost)
    expect((await seen(target.url)).numbers).toContain(2)
    expect((await seen(target.url)).numbers).not.toContain(1)
  })

  test("is answered with 503 instead of a 2xx with ack: 'handled'", async ({ expect }) => {
    await using target = await spawnTarget(await appCommand('workerd', { ack: 'handled', holdsHandlers: true }))
    expect(await post(target.url, 'V1')).toBe(503)
    expect(await seen(target.url)).toMatchObject({ stats: { handled: 0, lost: 1 } })
  })
})

describe.concurrent('the secret is compared', () => {
  test.for<readonly [string, WorkerOptions]>([
    ['with the global Buffer', { compatibilityDate: '2026-08-04' }],
    [
      'with that of nodejs_compat at an older date',
      { compatibilityDate: '2025-01-01', compatibilityFlags: ['nodejs_compat'] },
    ],
    ['without a global Buffer', { compatibilityDate: '2026-08-03' }],
    ['without one at a much older date', { compatibilityDate: '2025-01-01' }],
  ])('%s, and work goes on after the answer', async ([, options], { expect }) => {
    await using target = await spawnTarget(await workerCommand(appWorker({ handlerMs: 5 }), options))
    const wrong = { method: 'POST', headers: { authorization: 'wrong' }, body: '{}' }
    expect((await fetch(target.url, wrong)).status).toBe(403)
    for (const number of [1, 2, 3]) expect(await post(target.url, 'V1', number)).toBe(200)
    await expect.poll(() => seen(target.url)).toMatchObject(handledAll(3))
  })
})

test('a Worker serves the page of the inspector, and its data with the secret', async ({ expect }) => {
  const command = await workerCommand(`
    import { Hono } from 'hono'
    import { createReceiver } from '../../../src/index.ts'
    import { inspectorRoutes } from '../../../src/inspector.ts'
    const receiver = createReceiver({ secret: (env) => env.WEBHOOK_SECRET }).on('*', () => {})
    const app = new Hono()
    app.route('/hook', receiver.routes())
    app.route('/inspector', inspectorRoutes(receiver, { secret: (env) => env.PLACE }))
    export default app`)
  await using target = await spawnTarget(command)
  const shell = await fetch(`${target.url}/inspector/`)
  expect([shell.status, shell.headers.get('content-security-policy')]).toEqual([
    200,
    expect.stringContaining("require-trusted-types-for 'script'"),
  ])
  const assets = [...(await shell.text()).matchAll(/(?:src|href)="(?:\.\/)?(assets\/[^"]+)"/g)].map(([, path]) => path)
  expect(assets.length).toBeGreaterThan(1)
  for (const path of assets) expect((await fetch(`${target.url}/inspector/${path}`)).status, path).toBe(200)
  const stats = (headers: Record<string, string>): Promise<Response> =>
    fetch(`${target.url}/inspector/stats`, { headers })
  expect((await stats({})).status).toBe(401)
  expect(await post(`${target.url}/hook`, 'V1')).toBe(200)
  const answer = await stats({ authorization: 'from env' })
  expect([answer.status, await answer.json()]).toMatchObject([200, { received: 1 }])
})
