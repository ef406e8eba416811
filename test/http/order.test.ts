import { createReceiver } from 'fleethook'
import { Hono } from 'hono'
import { describe, expect, test } from 'vitest'
import { remember, streaming } from './ways.ts'

const secret = 'a-long-random-value'

/** A body that nobody may look at. */
function untouchable(): { readonly body: ReadableStream<Uint8Array<ArrayBuffer>>; readonly pulls: () => number } {
  let pulls = 0
  const body = new ReadableStream<Uint8Array<ArrayBuffer>>(
    {
      pull(controller) {
        pulls += 1
        controller.error(new Error('the body was read'))
      },
    },
    // Otherwise a stream pulls once by itself.
    { highWaterMark: 0 },
  )
  return { body, pulls: () => pulls }
}

const strangers: readonly (readonly [string, string, Record<string, string>, number])[] = [
  ['no secret', '/', {}, 401],
  ['a wrong secret', '/', { authorization: 'wrong' }, 403],
  ['another scheme', '/', { authorization: 'Bearer wrong' }, 401],
  ['a bare secret on a collector path', '/services/collector', { authorization: secret }, 401],
  ['a declared size over the limit and no secret', '/', { 'content-length': '99999999' }, 401],
  ['an unknown encoding and no secret', '/', { 'content-encoding': 'br' }, 401],
  ['an unknown path', '/elsewhere', { authorization: secret }, 404],
]

describe('Nothing unauthenticated is read, buffered or logged', () => {
  test.each(strangers)('%s', async (_case, path, headers, status) => {
    const log = remember()
    const { body, pulls } = untouchable()
    const receiver = createReceiver({ secret, log })
    for (const app of [receiver, new Hono().route('/', receiver.routes())]) {
      const response = await app.fetch(streaming(path, headers, body))
      expect(response.status).toBe(status)
    }
    expect(pulls()).toBe(0)
    expect(body.locked).toBe(false)
    expect(log.lines).toEqual([])
    expect(receiver.stats()).toMatchObject({ received: 0, pending: { messages: 0, bytes: 0 } })
  })

  test('an asynchronous secret function resolves before the body is read', async () => {
    const { body, pulls } = untouchable()
    let tell = (_secret: string): void => {}
    const receiver = createReceiver({ secret: () => new Promise<string>((resolve) => (tell = resolve)) })
    const answer = receiver.fetch(streaming('/', { authorization: 'wrong' }, body))
    tell(secret)
    expect((await answer).status).toBe(403)
    expect(pulls()).toBe(0)
  })

  test('accept() does not look at the body before the secret', async () => {
    const body = new Proxy(
      {},
      {
        get: () => expect.unreachable(),
        ownKeys: () => expect.unreachable(),
        getPrototypeOf: () => expect.unreachable(),
      },
    )
    const { accept } = createReceiver({ secret })
    expect((await accept({ authorization: 'wrong', body })).status).toBe(403)
  })
})

describe('Size and encoding are looked at before the body', () => {
  test.each([
    ['an unknown encoding', { 'content-encoding': 'br' }, 415],
    ['a declared size over the limit', { 'content-length': '1048577' }, 413],
    ['a declared size over the limit, gzipped', { 'content-length': '1048577', 'content-encoding': 'gzip' }, 413],
  ])('%s', async (_case, headers, status) => {
    const { body, pulls } = untouchable()
    const receiver = createReceiver({ secret, log: remember() })
    const response = await receiver.fetch(streaming('/', { authorization: secret, ...headers }, body))
    expect(response.status).toBe(status)
    expect(pulls()).toBe(0)
  })

  test('a receiver that drains reads no body', async () => {
    const { body, pulls } = untouchable()
    const receiver = createReceiver({ secret, log: remember() })
    await receiver.drain()
    expect((await receiver.fetch(streaming('/', { authorization: secret }, body))).status).toBe(503)
    expect(pulls()).toBe(0)
  })
})
