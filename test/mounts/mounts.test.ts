import { createServer } from 'node:http'
import { getRequestListener } from '@hono/node-server'
import express from 'express'
import Fastify, { type FastifyReply, type FastifyRequest } from 'fastify'
import { createReceiver, type Receiver } from 'fleethook'
import { deliver, message } from 'fleethook/testing'
import { Hono } from 'hono'
import { inspectRoutes } from 'hono/dev'
import { requestId, type RequestIdVariables } from 'hono/request-id'
import { describe, expect, test } from 'vitest'
import { answeredByHost, conforms, remembering, secret } from './checks.ts'
import { listening } from './listening.ts'

const state = '{"vin":"0FLEETV14T0000004","createdAt":"2026-11-21T10:00:00Z","state":"online"}'
const posted = { method: 'POST', headers: { authorization: secret, 'content-type': 'application/json' }, body: state }

describe('in a Hono app', { timeout: 180_000 }, () => {
  test('the whole suite passes below a path and behind the middleware of the host', async () => {
    const { receiver, events } = remembering()
    const app = new Hono().use(requestId()).route('/api/telemetry', receiver.routes())
    await using server = await listening(createServer(getRequestListener(app.fetch)))
    await conforms(`${server.url}/api/telemetry`, events)
  })

  test("the host's variables are untouched, and its bindings reach handlers", async () => {
    interface Env {
      Bindings: { WEBHOOK_SECRET: string }
      Variables: RequestIdVariables
    }
    const seen: unknown[] = []
    const receiver = createReceiver({ secret: (env: Env['Bindings']) => env.WEBHOOK_SECRET }).on(
      'state',
      (_event, { env }) => seen.push(env.WEBHOOK_SECRET),
    )
    const after: string[] = []
    const app = new Hono<Env>()
      .use(requestId({ generator: () => 'the-id' }))
      .use(async (c, next) => {
        await next()
        after.push(c.var.requestId)
      })
      .route('/telemetry', receiver.routes())
    const { status, settled } = await deliver(app, message.state(), {
      path: '/telemetry',
      secret,
      env: { WEBHOOK_SECRET: secret },
    })
    await settled
    expect([status, seen, after]).toEqual([200, [secret], ['the-id']])
  })

  test('the routes that a developer is shown are few and readable', () => {
    const { receiver } = remembering()
    const app = new Hono().route('/telemetry', receiver.routes())
    const paths = inspectRoutes(app).map(({ path }) => path)
    const below = ['', '/:slash{.{0}}', '/services/collector/*', '/healthz', '/readyz']
    expect(new Set(paths)).toEqual(new Set(below.map((path) => `/telemetry${path}`)))
  })

  test('two receivers in one app each accept only their own secret', async () => {
    const one = createReceiver({ secret: 'secret-one' })
    const two = createReceiver({ secret: 'secret-two' })
    const app = new Hono().route('/one', one.routes()).route('/two', two.routes())
    const status = async (path: string, authorization: string): Promise<number> =>
      (await app.request(path, { ...posted, headers: { authorization } })).status
    expect(await status('/one', 'secret-one')).toBe(200)
    expect(await status('/two', 'secret-two')).toBe(200)
    expect(await status('/two', 'secret-one')).toBe(403)
    expect(one.stats().received).toBe(1)
  })
})

describe('in an Express app', { timeout: 180_000 }, () => {
  test('before the body parser the whole suite passes', async () => {
    const { receiver, events } = remembering()
    const app = express().use('/telemetry', getRequestListener(receiver.fetch)).use(express.json())
    await using server = await listening(createServer(app))
    await conforms(`${server.url}/telemetry`, events)
  })

  test('receiver.accept takes the body that the body parser made', async () => {
    const { receiver } = remembering()
    const app = express()
      .use(express.json())
      .post('/telemetry', async (request, response) => {
        const { status, headers, body } = await receiver.accept({ headers: request.headers, body: request.body })
        response.status(status).set(headers).send(body)
      })
    await using server = await listening(createServer(app))
    const answer = await fetch(`${server.url}/telemetry`, posted)
    expect([answer.status, await answer.text()]).toEqual([200, '{"text":"Success","code":0}'])
    const refused = await fetch(`${server.url}/telemetry`, {
      ...posted,
      headers: { 'content-type': 'application/json' },
    })
    expect(refused.status).toBe(401)
    expect(receiver.stats().topics).toEqual({ state: 1 })
  })

  const { authorization } = posted.headers
  test.each([
    {
      when: 'what to change when the body parser skips requests without a Content-Type',
      app: ({ accept }: Receiver) =>
        express()
          .use(express.json())
          .post('/telemetry', async ({ headers, body: parsed }, response) => {
            const { status, body } = await accept({ headers, body: parsed })
            response.status(status).send(body)
          }),
      sent: { method: 'POST', headers: { authorization }, body: new TextEncoder().encode(state) },
      said: { error: 'body_empty', hint: expect.stringContaining('Let it parse every type') },
    },
    {
      when: 'what to change when an older body parser made an empty object of a body',
      app: ({ accept }: Receiver) =>
        express().post('/telemetry', async ({ headers }, response) => {
          const { status, body } = await accept({ headers, body: {} })
          response.status(status).send(body)
        }),
      sent: { method: 'POST', headers: { authorization }, body: new TextEncoder().encode(state) },
      said: { error: 'body_empty', hint: expect.stringContaining('Let it parse every type') },
    },
    {
      when: 'where to look when the path is there twice',
      app: ({ fetch }: Receiver) => express().use('/telemetry', getRequestListener(fetch)),
      path: '/telemetry/telemetry',
      status: 404,
      said: { error: 'path_unknown', hint: expect.stringContaining('path in the url of the webhook') },
    },
    {
      when: 'what to change when the receiver is behind the body parser',
      app: ({ fetch }: Receiver) => express().use(express.json()).use('/telemetry', getRequestListener(fetch)),
      said: { error: 'body_consumed' },
    },
  ])('the answer says $when', async ({ app, path = '/telemetry', sent = posted, status = 400, said }) => {
    await using server = await listening(createServer(app(remembering().receiver)))
    const answer = await fetch(`${server.url}${path}`, sent)
    expect(answer.status).toBe(status)
    expect(await answer.json()).toMatchObject(said)
  })
})

test(
  'the whole suite passes in a Fastify app that hands requests on before it reads them',
  { timeout: 180_000 },
  async () => {
    const { receiver, events } = remembering({ basePath: '/telemetry' })
    const listener = getRequestListener(receiver.fetch)
    const app = Fastify()
    const options = {
      async onRequest({ raw }: FastifyRequest, reply: FastifyReply) {
        reply.hijack()
        await listener(raw, reply.raw)
      },
    }
    for (const path of ['/telemetry', '/telemetry/*']) app.all(path, options, () => {})
    await app.ready()
    await using server = await listening(app.server)
    // Fastify routes no method that it does not know.
    await conforms(`${server.url}/telemetry`, events, (name) => name.includes('PROPFIND'))
    const odd = { ...posted.headers, 'content-type': 'application json' }
    expect((await fetch(`${server.url}/telemetry`, { ...posted, headers: odd })).status).toBe(200)
    expect(await (await fetch(`${server.url}/telemetry/readyz`)).text()).toContain('ready')
  },
)

test('the whole suite passes in a Fastify app that does not parse bodies', { timeout: 180_000 }, async () => {
  const { receiver, events } = remembering({ basePath: '/telemetry' })
  const app = Fastify({ routerOptions: { ignoreTrailingSlash: true } })
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('*', { parseAs: 'buffer', bodyLimit: 4_194_304 }, (_request, body, done) => done(null, body))
  for (const path of ['/telemetry', '/telemetry/*']) {
    app.post(path, async ({ headers: given, url, body: bytes }, reply) => {
      const { status, headers, body } = await receiver.accept({ headers: given, path: url, body: bytes })
      return reply.code(status).headers(headers).send(body)
    })
  }
  await app.ready()
  await using server = await listening(app.server)
  await conforms(`${server.url}/telemetry`, events, answeredByHost)
})

test('the answer says where to look when the host passes its whole path', async () => {
  const { receiver } = remembering()
  const answer = await receiver.fetch(new Request('http://localhost/api/telemetry', posted))
  expect(answer.status).toBe(404)
  expect(await answer.json()).toMatchObject({
    error: 'path_unknown',
    hint: expect.stringContaining('at which the receiver is mounted'),
  })
})

test('a receiver with a base path is found below it, also by its collector and health paths, and nowhere else', async () => {
  const statusOf = async (basePath: string, path: string, method = 'POST'): Promise<number> => {
    const { fetch } = createReceiver({ secret, basePath })
    const { body, headers } = posted
    return (await fetch(new Request(`http://localhost${path}`, method === 'GET' ? {} : { method, headers, body })))
      .status
  }
  for (const basePath of ['/api/telemetry', '/api/telemetry/']) {
    for (const path of ['/api/telemetry', '/api/telemetry/', '/api/telemetry?x=1'])
      expect(await statusOf(basePath, path)).toBe(200)
    expect(await statusOf(basePath, '/api/telemetry/healthz', 'GET')).toBe(200)
    // Without the scheme word of the collector.
    expect(await statusOf(basePath, '/api/telemetry/services/collector/event')).toBe(401)
    for (const path of ['/', '/api', '/api/telemetryx', '/api/telemetry/x', '/telemetry', '/api/telemetry//'])
      expect(await statusOf(basePath, path)).toBe(404)
  }
  expect(await statusOf('/', '/')).toBe(200)
})

test('receiver.accept takes whole paths below the base path, and a message without a path', async () => {
  const { accept } = createReceiver({ secret, basePath: '/telemetry' })
  const statusAt = async (path?: string): Promise<number> =>
    (await accept({ headers: posted.headers, body: state, ...(path === undefined ? {} : { path }) })).status
  expect(await Promise.all([undefined, '/telemetry', '/telemetry/?x=1', '/', '/x'].map(statusAt))).toEqual([
    200, 200, 200, 404, 404,
  ])
})

test('a Hono app that mounts routes() decides about the path by itself', async () => {
  const receiver = createReceiver({ secret, basePath: '/telemetry' })
  const app = new Hono().route('/hook', receiver.routes())
  expect((await app.request('/hook', posted)).status).toBe(200)
})
