import { Buffer } from 'node:buffer'
import { gzipSync } from 'node:zlib'
import {
  createReceiver,
  type FleetEvent,
  type GivenMessage,
  type MalformedBody,
  type Receiver,
  type ReceiverOptions,
} from 'fleethook'
import { type Context, Hono, type MiddlewareHandler } from 'hono'
import { bodyLimit } from 'hono/body-limit'
import { describe, expect, test } from 'vitest'
import { fakeClock } from 'fleethook/testing'
import { remember, requestOf, streaming, streamed } from './ways.ts'

const secret = 'a-long-random-value'
const state = (vin: string): string => JSON.stringify({ vin, createdAt: '2024-02-24T04:58:44Z', state: 'online' })
const object = (text: string): object => JSON.parse(text)

interface Watched {
  readonly receiver: Receiver
  /** What its handlers got, when they are done. */
  readonly handled: () => Promise<readonly (FleetEvent | MalformedBody)[]>
}

function watched(options: Partial<ReceiverOptions> = {}): Watched {
  const events: (FleetEvent | MalformedBody)[] = []
  const receiver = createReceiver({ secret, log: remember(), ...options })
    .on('*', (event) => void events.push(event))
    .on('malformed', (body) => void events.push(body))
  return {
    receiver,
    async handled() {
      await receiver.drain()
      return events
    },
  }
}

async function accept({ receiver }: Watched, body: unknown, path = '/'): Promise<{ status: number; error?: string }> {
  const authorization = path === '/' ? secret : `Splunk ${secret}`
  const answer = await receiver.accept({ authorization, body, path })
  return { ...JSON.parse(answer.body), status: answer.status }
}

const reading =
  (read: (c: Context) => Promise<unknown>): MiddlewareHandler =>
  async (c, next) => {
    await read(c)
    await next()
  }

const vins = (events: readonly (FleetEvent | MalformedBody)[]): unknown[] =>
  events.map((event) => (event.topic === 'malformed' ? event.topic : event.vin))

describe('Collectors and relays batch', () => {
  const three = ['A', 'B', 'C'].map(state)
  const pretty = three.map((text) => JSON.stringify(object(text), null, 2))

  test.each([
    ['nothing between', three.join('')],
    ['line ends between', three.join('\n')],
    ['pretty-printed, nothing between', pretty.join('')],
    ['an array', `[${three.join(',')}]`],
    ['a parsed list', three.map(object)],
    ['bytes after a byte order mark', Buffer.from(`\ufeff${three.join('\n')}`)],
  ])('%s: every event reaches its handlers, in order', async (_case, body) => {
    const watching = watched()
    expect(await accept(watching, body)).toMatchObject({ status: 200 })
    expect(vins(await watching.handled())).toEqual(['A', 'B', 'C'])
  })
})

describe('Events before a broken one are accepted', () => {
  test.each([
    ['truncated', `${state('A')}${state('B')}{"vin":"C"`, '/', 'body_not_json', 2],
    ['in a parsed list', [object(state('A')), object(state('B')), null, object(state('C'))], '/', 'body_not_json', 2],
    [
      'a wrong time',
      `${state('A')}${state('B')}{"event":{},"source":"C","time":"x"}${state('D')}`,
      '/',
      'time_invalid',
      2,
    ],
    [
      'no event',
      '{"event":{},"source":"A"}{"event":{},"source":"B"}{"source":"C"}',
      '/services/collector',
      'event_missing',
      2,
    ],
    [
      'a blank event',
      '{"event":{},"source":"A"}{"event":{},"source":"B"}{"event":""}',
      '/services/collector',
      'event_blank',
      2,
    ],
  ])('%s: invalid-event-number is 0-based, handlers get what came before', async (_case, body, path, error, number) => {
    const watching = watched()
    const answer = await accept(watching, body, path)
    expect(answer).toMatchObject({ status: 400, error, 'invalid-event-number': number })
    const events = await watching.handled()
    expect(vins(events.slice(0, 2))).toEqual(['A', 'B'])
    expect(events.slice(2)).toMatchObject([
      { topic: 'malformed', error, eventNumber: number, text: expect.any(String) },
      { topic: 'gap', reason: 'body_unreadable', missed: 1 },
    ])
    expect(watching.receiver.stats()).toMatchObject({ received: 2, refused: { [error]: 1 } })
  })
})

describe('An authentic body that cannot be parsed is handed, bounded, to `on(malformed)`', () => {
  test('with the beginning of its text and its length', async () => {
    const watching = watched()
    await accept(watching, `not JSON ${'x'.repeat(100_000)}`)
    const [malformed] = await watching.handled()
    expect(malformed).toMatchObject({ topic: 'malformed', error: 'body_not_json', length: 100_009, eventNumber: 0 })
    expect(malformed).toMatchObject({ receivedAt: expect.any(Date), text: expect.stringMatching(/^not JSON x{4087}$/) })
  })

  test('a parsed value as its JSON', async () => {
    const watching = watched()
    await accept(watching, [['list']])
    expect(await watching.handled()).toMatchObject([{ text: '[["list"]]', length: 10 }, { topic: 'gap' }])
  })

  test('broken gzip without its bytes', async () => {
    const watching = watched()
    const body = Uint8Array.of(0x1f, 0x8b, 8, 0, 0)
    await watching.receiver.accept({ authorization: secret, body, contentEncoding: 'gzip' })
    expect(await watching.handled()).toMatchObject([
      { error: 'body_gzip_broken', text: '', length: 0 },
      { topic: 'gap' },
    ])
  })

  test("'*' gets the gap alone, and a receiver that does not ask keeps nothing", async () => {
    const topics: string[] = []
    const receiver = createReceiver({ secret, log: remember() }).on('*', ({ topic }) => void topics.push(topic))
    const errors: unknown[] = []
    receiver.observe({ failed: (error) => void errors.push(error) })
    await receiver.accept({ authorization: secret, body: 'hello' })
    await receiver.drain()
    expect(errors).toEqual([])
    expect(topics).toEqual(['gap'])
    expect(receiver.stats().pending).toEqual({ messages: 0, bytes: 0 })
  })

  test('it never takes the space of a message', async () => {
    const watching = watched({ limits: { pendingBytes: 1000 } })
    expect(await accept(watching, 'x'.repeat(900))).toMatchObject({ status: 400 })
    for (let turn = 0; turn < 20; turn++) await accept(watching, 'x'.repeat(900))
    expect(watching.receiver.stats().pending.bytes).toBeLessThanOrEqual(1000)
  })
})

describe('A body with the right secret that cannot be read is a gap', () => {
  const cases: readonly [
    what: string,
    posted: Omit<RequestInit, 'method'>,
    error: string,
    reason: string,
    path?: string,
  ][] = [
    ['cut', { body: '{"vin":"A"' }, 'body_not_json', 'body_unreadable'],
    ['no JSON', { body: 'hello' }, 'body_not_json', 'body_unreadable'],
    ['empty', { body: '' }, 'body_empty', 'body_unreadable'],
    ['a wrong time', { body: '{"event":{},"source":"C","time":"x"}' }, 'time_invalid', 'body_unreadable'],
    [
      'another encoding',
      { body: state('A'), headers: { 'content-encoding': 'br' } },
      'encoding_unsupported',
      'body_unreadable',
    ],
    ['no gzip', { body: state('A'), headers: { 'content-encoding': 'gzip' } }, 'body_gzip_broken', 'body_unreadable'],
    ['without an event', { body: '{"source":"A"}' }, 'event_missing', 'body_unreadable', '/services/collector'],
    ['with a blank event', { body: '{"event":""}' }, 'event_blank', 'body_unreadable', '/services/collector'],
    ['too large', { body: ' '.repeat(1001) }, 'body_too_large', 'body_too_large'],
    ['of too many messages', { body: state('A').repeat(11) }, 'body_too_large', 'body_too_large'],
  ]
  const limits = { bodyBytes: 1000, pendingMessages: 10 }
  const ask = async (
    watching: Watched,
    posted: RequestInit,
    path = '/',
    headers: Record<string, string> = {},
  ): Promise<unknown> => {
    const authorization = `Splunk ${secret}`
    const all = { authorization, ...Object.fromEntries(new Headers(posted.headers)), ...headers }
    const request = new Request(`http://localhost${path}`, { ...posted, method: 'POST', headers: all })
    return (await watching.receiver.fetch(request)).json()
  }

  test.each(cases)('%s', async (_what, posted, error, reason, path) => {
    const watching = watched({ limits })
    expect(await ask(watching, posted, path)).toMatchObject({ error })
    expect(await ask(watching, posted, path, { authorization: 'another' })).not.toMatchObject({ error })
    expect(watching.receiver.stats()).toMatchObject({ refused: { [error]: 1 } })
    const gaps = (await watching.handled()).filter(({ topic }) => topic === 'gap')
    expect(gaps).toMatchObject([{ reason, missed: 1 }])
    expect(gaps[0]).not.toHaveProperty('vin')
  })

  test('one that the host read before is a gap, too', async () => {
    const watching = watched()
    const request = new Request('http://localhost/', {
      method: 'POST',
      body: state('A'),
      headers: { authorization: secret },
    })
    await request.text()
    expect(await (await watching.receiver.fetch(request)).json()).toMatchObject({ error: 'body_consumed' })
    expect(await watching.handled()).toMatchObject([{ topic: 'gap', reason: 'body_unreadable', missed: 1 }])
  })

  test('one that the host failed to read is a gap, too, and no drain waits for it', async () => {
    const watching = watched()
    const broken = (): ReadableStream =>
      new ReadableStream({ pull: (controller) => controller.error(new Error('gone')) })
    const host = new Hono().use(reading(({ req }) => req.text().catch(() => {}))).route('/', watching.receiver.routes())
    const posted = { method: 'POST', headers: { authorization: secret }, body: broken(), duplex: 'half' }
    const answer = await host.fetch(new Request('http://localhost/', posted))
    expect(await answer.json()).toMatchObject({ error: 'body_interrupted' })
    const detached = new ArrayBuffer(8)
    structuredClone(detached, { transfer: [detached] })
    expect(await watching.receiver.accept({ authorization: secret, body: detached })).toMatchObject({ status: 400 })
    expect(watching.receiver.stats().refused).toEqual({ body_interrupted: 2 })
    const gap = { topic: 'gap', reason: 'body_unreadable', missed: 1 }
    expect(await watching.handled()).toMatchObject([gap, gap])
  })

  test('is told at once, and several within a second are one gap that counts them and lasts from the first to the last', async () => {
    const clock = fakeClock()
    const gaps: unknown[] = []
    const receiver = createReceiver({ secret, log: remember(), clock, limits }).on('gap', (gap) => void gaps.push(gap))
    const post = (): Promise<unknown> => receiver.accept({ authorization: secret, body: ' '.repeat(1001) })
    const at = new Date(clock.now())
    await post()
    await clock.advance(100)
    expect(gaps).toHaveLength(1)
    const from = new Date(clock.now())
    await post()
    await clock.advance(200)
    for (let n = 0; n < 50; n += 1) await post()
    const to = new Date(clock.now())
    expect(gaps).toMatchObject([{ missed: 1, from: at, to: at }])
    await clock.advance(1_000)
    expect(gaps).toHaveLength(2)
    await receiver.drain()
    expect(gaps).toMatchObject([{ missed: 1 }, { missed: 51, from, to }])
  })

  test('is told by a drain when a moment has not passed', async () => {
    const gaps: unknown[] = []
    const receiver = createReceiver({ secret, log: remember(), clock: fakeClock(), limits })
    receiver.on('gap', (gap) => void gaps.push(gap))
    for (let n = 0; n < 3; n += 1) await receiver.accept({ authorization: secret, body: '' })
    await receiver.drain()
    expect(gaps).toMatchObject([{ missed: 1 }, { missed: 2 }])
  })

  test.each(cases)('but not when the request is marked as a test (%s)', async (_what, posted, error, _reason, path) => {
    const watching = watched({ limits })
    expect(await ask(watching, posted, path, { 'fleethook-test': '1' })).toMatchObject({ error })
    expect((await watching.handled()).filter(({ topic }) => topic === 'gap')).toEqual([])
    expect(watching.receiver.stats()).toMatchObject({ refused: { test: 1 }, openGaps: 0 })
  })
})

describe('A foreign event never sinks its batch', () => {
  const foreign = [
    '{"event":"a line of a log"}',
    '{"event":"a line of a log","source":"/var/log/messages","sourcetype":"syslog"}',
    '{"event":{"cpu":5},"sourcetype":"metrics","host":"relay"}',
    '{"event":{"cpu":5}}',
    '{"event":7,"source":"S"}',
    '{"event":[1,2]}',
    '{"event":false,"source":"S"}',
  ]

  test.each(['/', '/services/collector'])('at %s', async (path) => {
    const watching = watched()
    const ours = '{"event":{"BatteryLevel":50},"source":"A","sourcetype":"maker:telemetry:data"}'
    const body = foreign.flatMap((one) => [ours, one]).join('\n') + ours
    expect(await accept(watching, body, path)).toEqual({ text: 'Success', code: 0, status: 200 })
    const events = await watching.handled()
    expect(events).toHaveLength(2 * foreign.length + 1)
    expect(events.filter((event) => event.topic === 'data').map((event) => event.vin)).toEqual(
      Array.from({ length: foreign.length + 1 }, () => 'A'),
    )
    expect(events.filter((event) => event.topic === 'unknown')).toHaveLength(foreign.length)
  })
})

test('nothing carries over from one event of a batch to the next', async () => {
  const watching = watched()
  const first =
    '{"event":{"BatteryLevel":50},"source":"A","sourcetype":"maker:telemetry:data","time":1708750724,"host":"h"}'
  await accept(watching, `${first}{"event":{"BatteryLevel":51}}${first}{"event":{"BatteryLevel":52},"source":"B"}`)
  const events = await watching.handled()
  const [a, again] = events.filter((event) => event.topic === 'data' && event.vin === 'A')
  const none = events.find((event) => event.topic === 'unknown')
  const b = events.find((event) => event.topic === 'data' && event.vin === 'B')
  expect(a).toMatchObject({ vin: 'A', at: new Date(1_708_750_724_000), meta: { host: 'h' } })
  expect(none).toMatchObject({ topic: 'unknown' })
  expect(none).not.toHaveProperty('vin')
  expect(none).not.toHaveProperty('meta.host')
  expect(again).toMatchObject({ vin: 'A', data: { BatteryLevel: 50 } })
  expect(b).toMatchObject({ vin: 'B', meta: { createdAtMissing: true } })
  expect(b).not.toHaveProperty('meta.host')
})

describe('A body that somebody else parsed before', () => {
  const hosts: Readonly<Record<string, MiddlewareHandler>> = {
    'c.req.json()': reading((c) => c.req.json()),
    'c.req.text()': reading((c) => c.req.text()),
    'c.req.arrayBuffer()': reading((c) => c.req.arrayBuffer()),
    'c.req.parseBody()': reading((c) => c.req.parseBody()),
    'the body limit middleware': bodyLimit({ maxSize: 10_000 }),
  }

  test.each(Object.entries(hosts))('by a middleware with %s is taken', async (_case, middleware) => {
    const watching = watched()
    const app = new Hono().use(middleware).route('/hook', watching.receiver.routes())
    const sent = { path: '/hook', headers: { authorization: secret }, body: state('A') }
    expect((await app.fetch(requestOf(sent))).status).toBe(200)
    expect((await app.fetch(streaming('/hook', sent.headers, streamed(state('B'))))).status).toBe(200)
    expect(vins(await watching.handled())).toEqual(['A', 'B'])
  })

  test('by a middleware is held to the limit', async () => {
    const { receiver } = watched({ limits: { bodyBytes: 20 } })
    const app = new Hono().use(reading((c) => c.req.text())).route('/', receiver.routes())
    expect((await app.fetch(requestOf({ headers: { authorization: secret }, body: state('A') }))).status).toBe(413)
  })

  const consume: Record<string, (request: Request) => Promise<unknown>> = {
    'request.text()': (request) => request.text(),
    'request.json()': (request) => request.json(),
    'a reader that read it': async (request) => {
      const reader = request.body?.getReader()
      await reader?.read()
      reader?.releaseLock()
    },
    'a reader that holds it': async (request) => request.body?.getReader(),
  }
  test.each(Object.entries(consume))('past Hono, by %s, is refused, saying what to change', async (_case, read) => {
    const { receiver } = watched()
    for (const request of [
      requestOf({ headers: { authorization: secret }, body: state('A') }),
      streaming('/', { authorization: secret }, streamed(state('A'))),
      streaming('/', { authorization: secret, 'content-encoding': 'gzip' }, streamed(state('A'))),
    ]) {
      await read(request)
      const response = await receiver.fetch(request)
      expect(response.status).toBe(400)
      const answer: unknown = await response.json()
      expect(answer).toMatchObject({ error: 'body_consumed', code: 6 })
      expect(answer).toHaveProperty('hint', expect.stringContaining('receiver.accept()'))
    }
  })

  test('by a form reader is refused, saying what to change', async () => {
    const { receiver } = watched()
    const app = new Hono().use(reading((c) => c.req.formData()))
    app.route('/', receiver.routes())
    const headers = { authorization: secret, 'content-type': 'application/x-www-form-urlencoded' }
    const response = await app.fetch(requestOf({ headers, body: state('A') }))
    expect([response.status, await response.json()]).toMatchObject([400, { error: 'body_consumed' }])
  })

  test.each([
    ['undefined', undefined, 'body_empty'],
    ['null', null, 'body_empty'],
    ['a number', 7, 'body_not_json'],
    ['a big integer', 7n, 'body_not_json'],
    ['a symbol', Symbol('x'), 'body_not_json'],
    ['a function', () => {}, 'body_not_json'],
    ['an object with a big integer', { x: 7n }, 'body_not_json'],
    ['gzip that was read as text', '\u001f\ufffd\b\0', 'body_gzip_broken'],
  ])('as %s is refused by accept(), which never rejects', async (_case, body, error) => {
    expect(await accept(watched(), body)).toMatchObject({ status: 400, error })
  })

  test('as an object with a cycle is refused', async () => {
    const circle: Record<string, unknown> = {}
    circle['circle'] = circle
    expect(await accept(watched(), circle)).toMatchObject({ status: 400, error: 'body_not_json' })
    expect(await accept(watched(), [object(state('A')), circle])).toMatchObject({ 'invalid-event-number': 1 })
  })

  test('that the host inflated without removing the header is taken', async () => {
    const watching = watched()
    const body = Buffer.from(state('A'))
    const answer = await watching.receiver.accept({ authorization: secret, body, contentEncoding: 'gzip' })
    expect(answer.status).toBe(200)
    expect(vins(await watching.handled())).toEqual(['A'])
  })

  test('is taken in every type of bytes', async () => {
    const bytes = new TextEncoder().encode(state('A'))
    const shared = new Uint8Array(new SharedArrayBuffer(bytes.length))
    shared.set(bytes)
    for (const body of [bytes, bytes.buffer, new DataView(bytes.buffer), Buffer.from(bytes), shared]) {
      expect(await accept(watched(), body)).toMatchObject({ status: 200 })
    }
  })
})

describe('The headers that a host passes to accept()', () => {
  const body = state('0FLEETV14T0000004')
  const receiver = createReceiver({ secret, log: remember() })
  const status = async (message: GivenMessage): Promise<number> => (await receiver.accept(message)).status

  test.each([
    ['as Node has them', { authorization: secret, 'set-cookie': ['a', 'b'], host: undefined }],
    ['in capitals', { Authorization: secret }],
    ['in a Headers', new Headers({ authorization: secret })],
    ['in lists', { AUTHORIZATION: [secret] }],
  ])('count %s', async (_how, headers) => {
    expect(await status({ headers, body })).toBe(200)
  })

  test('that are missing, or there twice, are refused as over HTTP', async () => {
    for (const headers of [{}, null, undefined]) expect(await status({ headers, body })).toBe(401)
    for (const headers of [{ authorization: [secret, secret] }, { authorization: secret, Authorization: secret }])
      expect((await receiver.accept({ headers, body })).body).toContain('two Authorization headers')
  })

  test('say how bytes are encoded, and count nothing for a body that the host has parsed', async () => {
    const headers = { Authorization: secret, 'Content-Encoding': 'gzip' }
    expect(await status({ headers, body: gzipSync(body) })).toBe(200)
    expect(await status({ headers, body })).toBe(200)
    expect(await status({ headers, body: object(body) })).toBe(200)
  })

  test('show observers the names of a test message', async () => {
    const seen: unknown[] = []
    const watching = createReceiver({
      secret,
      observe: { tested: ({ headers, encoding }) => seen.push(headers, encoding) },
    })
    const headers = { Authorization: secret, 'Fleethook-Test': '1' }
    await watching.accept({ headers, body: { fleethook: { test: 'x' } } })
    await watching.accept({ headers: { 'Fleethook-Test': '1' }, body })
    expect(seen[0]).toEqual([
      { name: 'authorization', length: secret.length },
      { name: 'fleethook-test', length: 1 },
    ])
    expect([seen[1], watching.stats().refused]).toEqual(['identity', expect.objectContaining({ test: 1 })])
  })
})
