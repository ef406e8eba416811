import { randomBytes } from 'node:crypto'
import { gzipSync } from 'node:zlib'
import { createReceiver, type Receiver } from 'fleethook'
import { serve } from 'fleethook/node'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { rawConnection } from './raw.ts'
import { type Remembered, remember } from './ways.ts'

const secret = 'a-long-random-value'
const state = '{"vin":"A","state":"online"}'
const head = (...lines: readonly string[]): string =>
  ['POST / HTTP/1.1', 'Host: receiver.test', ...lines, '', ''].join('\r\n')
const auth = `Authorization: ${secret}`

let receiver: Receiver
let log: Remembered
let server: Awaited<ReturnType<typeof serve>>
const unhandled: unknown[] = []
const note = (reason: unknown): void => void unhandled.push(reason)

/** `serve` reads Node's own request for a receiver, and makes a `Request` for a host. */
const readers = {
  "Node's own request": (given: Receiver) => given,
  'a Request': ({ fetch }: Receiver) => ({ fetch }),
}

describe.each(Object.entries(readers))('With %s', (_reader, servedOf) => {
  beforeEach(async () => {
    process.on('unhandledRejection', note)
    process.on('uncaughtException', note)
    log = remember()
    receiver = createReceiver({ secret, log, limits: { bodyBytes: 100_000 } })
    server = await serve(servedOf(receiver), {
      port: 0,
      hostname: '127.0.0.1',
      signals: false,
      announce: false,
      graceMs: 1000,
    })
  })

  afterEach(async () => {
    // After every test, the process runs and takes messages.
    const response = await fetch(server.url, { method: 'POST', headers: { authorization: secret }, body: state })
    expect(await response.text()).toBe('{"text":"Success","code":0}')
    await server.close()
    await receiver.drain()
    process.off('unhandledRejection', note)
    process.off('uncaughtException', note)
    expect(unhandled).toEqual([])
  })

  describe('Over a socket', () => {
    test.each([
      ['no secret', [], 401],
      ['a wrong secret', ['Authorization: wrong'], 403],
      ['a declared body over the limit', [auth], 413],
      ['an unknown encoding', [auth, 'Content-Encoding: br'], 415],
    ] as const)('%s is answered before the body is sent', async (_case, headers, status) => {
      const { send, until, socket } = await rawConnection(server.url)
      await send(head('Content-Length: 1000000000', ...headers))
      expect(await until('\r\n\r\n{')).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `))
      socket.destroy()
    })

    test.each([
      ['over the limit in its declared length', [auth, 'Content-Length: 200000'], 413],
      ['over the limit in chunks', [auth, 'Transfer-Encoding: chunked'], 413],
      ['over the limit after inflating', [auth, 'Content-Length: 200000', 'Content-Encoding: gzip'], 413],
      ['with a wrong secret', ['Authorization: wrong', 'Content-Length: 200000'], 403],
      ['with an unknown encoding', [auth, 'Content-Length: 200000', 'Content-Encoding: br'], 415],
    ] as const)(
      'a request %s that has not come whole is the last of its connection',
      async (_case, headers, status) => {
        const { send, until, closed, received, socket } = await rawConnection(server.url)
        const chunked = headers.some((line) => line.includes('chunked'))
        const body = gzipSync(randomBytes(240_000), { level: 1 }).subarray(0, 200_000)
        await send(head(...headers))
        if (chunked) await send(`${body.length.toString(16)}\r\n`)
        await send(body.subarray(0, 160_000))
        expect(await until('"hint"')).toMatch(new RegExp(`^HTTP/1\\.1 ${status} .*\r\nconnection: close\r\n`, 'is'))
        // The sender goes on as if nothing had happened.
        const rest = [
          body.subarray(160_000),
          chunked ? '\r\n0\r\n\r\n' : '',
          head(auth, `Content-Length: ${state.length}`),
          state,
        ]
        for (const part of rest) await send(part).catch(() => {})
        await closed
        expect(received().match(/HTTP\/1\.1/g)).toHaveLength(1)
        expect(receiver.stats().received).toBe(0)
        socket.destroy()
      },
    )

    test.each([
      ['over the limit after inflating', [auth, 'Content-Encoding: gzip'], gzipSync(Buffer.alloc(1_048_576)), 413],
      ['with a wrong secret', ['Authorization: wrong'], Buffer.alloc(1_000), 403],
      ['of an unknown encoding', [auth, 'Content-Encoding: br'], Buffer.alloc(1_000), 415],
      ['with broken gzip', [auth, 'Content-Encoding: gzip'], Buffer.alloc(1_000), 400],
    ] as const)('the next message is taken behind a whole request %s', async (_case, headers, body, status) => {
      const { send, until, socket } = await rawConnection(server.url)
      await send(Buffer.concat([Buffer.from(head(...headers, `Content-Length: ${body.length}`)), body]))
      expect(await until('"hint"')).toMatch(new RegExp(`^HTTP/1\\.1 ${status} (?!.*connection: close)`, 'is'))
      await send(`${head(auth, `Content-Length: ${state.length}`)}${state}`)
      expect(await until('"Success"')).toContain('HTTP/1.1 200')
      socket.destroy()
    })

    test('Expect: 100-continue is answered', async () => {
      const { send, until, socket } = await rawConnection(server.url)
      await send(head(auth, `Content-Length: ${state.length}`, 'Expect: 100-continue'))
      await until('100 Continue')
      await send(state)
      await until('"code":0}')
      socket.destroy()
    })

    test.each([
      ['a path that is none', 'POST * HTTP/1.1\r\nHost: x\r\n\r\n'],
      ['a path with a backslash', 'POST /a\\b HTTP/1.1\r\nHost: x\r\n\r\n'],
      ['a host that is none', 'POST / HTTP/1.1\r\nHost: a b\r\n\r\n'],
    ])('%s is answered 400 in JSON', async (_case, bytes) => {
      const { send, until, socket } = await rawConnection(server.url)
      await send(bytes)
      const text = await until('"hint"')
      expect(text).toMatch(/^HTTP\/1\.1 400 .*content-type: application\/json/is)
      expect(text).toContain('"code":6,"error":"request_unreadable"')
      socket.destroy()
    })

    test('a health check of HTTP/1.0 without Host is answered', async () => {
      const { send, until, socket } = await rawConnection(server.url)
      await send('GET /services/collector/health HTTP/1.0\r\n\r\n')
      expect(await until('"code":17')).toMatch(/^HTTP\/1\.1 200 /)
      socket.destroy()
    })

    test('two Authorization headers are not the secret, whichever comes first', async () => {
      for (const lines of [
        [auth, auth],
        [auth, 'Authorization: Basic cHJveHk6cHJveHk='],
        ['Authorization: Basic cHJveHk6cHJveHk=', auth],
        [auth, `Authorization: Splunk ${secret}`],
      ]) {
        const { send, until, socket } = await rawConnection(server.url)
        await send(`${head(...lines, `Content-Length: ${state.length}`)}${state}`)
        const text = await until('"hint"')
        expect(text).toMatch(/^HTTP\/1\.1 40[13] /)
        expect(text).toContain('two Authorization headers')
        expect(text).not.toContain(secret)
        socket.destroy()
      }
    })
  })

  describe('A client that disconnects', () => {
    test.each([
      ['in its headers', 'POST / HTTP/1.1\r\nHost: rec'],
      ['after its headers', head(auth, 'Content-Length: 50')],
      ['in its body', `${head(auth, 'Content-Length: 50')}${state.slice(0, 9)}`],
      ['in a chunk', `${head(auth, 'Transfer-Encoding: chunked')}20\r\n${state.slice(0, 9)}`],
      ['between chunks', `${head(auth, 'Transfer-Encoding: chunked')}9\r\n${state.slice(0, 9)}\r\n`],
      [
        'before the last chunk, with a whole message sent',
        `${head(auth, 'Transfer-Encoding: chunked')}1c\r\n${state}\r\n`,
      ],
      [
        'in gzip',
        Buffer.concat([Buffer.from(head(auth, 'Content-Length: 90', 'Content-Encoding: gzip')), gzipSync(state)]),
      ],
      ['in chunked gzip', `${head(auth, 'Transfer-Encoding: chunked', 'Content-Encoding: gzip')}2\r\n\x1f\x8b\r\n`],
      ['in a body without a secret', `${head('Content-Length: 50')}${state.slice(0, 9)}`],
    ])('%s leaves nothing behind', async (_case, bytes) => {
      for (const end of ['destroy', 'resetAndDestroy', 'end'] as const) {
        const { send, closed, socket } = await rawConnection(server.url)
        await send(bytes)
        socket[end]()
        await closed
      }
      await expect.poll(() => receiver.stats().refused['body_interrupted'] ?? 0).toBeLessThanOrEqual(3)
      await expect.poll(() => receiver.stats().pending.messages).toBe(0)
      expect(receiver.stats()).toMatchObject({ received: 0, running: 0 })
    })

    test.each([
      ['in plain text', state.slice(0, 9), []],
      ['in gzip, which is not called broken', gzipSync(state), ['Content-Encoding: gzip']],
    ])('is counted as a message that was lost, %s', async (_case, body, headers) => {
      const { send, closed, socket } = await rawConnection(server.url)
      await send(head(auth, 'Content-Length: 90', ...headers))
      await send(body)
      socket.destroy()
      await closed
      await expect.poll(() => receiver.stats().refused).toEqual({ body_interrupted: 1 })
      expect(log.lines).toEqual([expect.stringContaining('body_interrupted')])
    })

    test('before its answer does not lose its message', async () => {
      const { send, closed, socket } = await rawConnection(server.url)
      await send(`${head(auth, `Content-Length: ${state.length}`)}${state}`)
      socket.destroy()
      await closed
      await expect.poll(() => receiver.stats().received).toBe(1)
    })
  })
})
