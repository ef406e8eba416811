import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { createReceiver, memoryInbox } from 'fleethook'
import { branch } from 'fleethook/branch'
import type { Claim, InboxFactory } from 'fleethook/extend'
import { forward as onNode, type ForwardOptions } from 'fleethook/forward'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { deliver, fakeClock, message } from 'fleethook/testing'
import { Webhook } from 'standardwebhooks'
import { afterEach, describe, expect, test } from 'vitest'
import { forward as anywhere } from '../../src/forward.ts'
import { soon } from './soon.ts'
import { oddTexts } from '../dispatch/odd-texts.ts'
import { data, logInto } from '../dispatch/scene.ts'
import { silent, unwatched } from '../vehicles/scene.ts'
import { newFolder } from '../folder.ts'

const stops: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const stop of stops.splice(0).toReversed()) await stop()
})

interface Request {
  readonly headers: IncomingMessage['headers']
  readonly body: string
}
type Answer = (response: ServerResponse, request: Request, at: number) => void

/** A server that answers as the test says. */
async function destination(answer: Answer) {
  const requests: Request[] = []
  const server = createServer((incoming, response) => {
    let body = ''
    incoming.on('data', (part) => (body += String(part)))
    incoming.on('end', () => {
      const request = { headers: incoming.headers, body }
      requests.push(request)
      answer(response, request, requests.length)
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  stops.push(async () => {
    server.closeAllConnections()
    server.close()
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook?token=in-the-query`, requests }
}

const ok = (response: ServerResponse): void => void response.end('{"text":"Success","code":0}')

/** Answers so at first, and then takes each message. */
const atFirst =
  (status: number, headers: Readonly<Record<string, string>> = {}, times = 1): Answer =>
  (response, _request, at) =>
    at <= times ? void response.writeHead(status, headers).end('private words') : ok(response)

const lines: string[] = []
const secret = 'the-secret-of-staging'

describe.each([
  ['on Node', onNode],
  ['with fetch', anywhere],
])('%s', (_name, forward) => {
  /** A receiver with a branch that forwards to a server. */
  function receiverTo(to: string, options: Partial<ForwardOptions> = {}, clock = fakeClock(), inbox = memoryInbox()) {
    const receiver = createReceiver({ secret: false, clock, log: logInto(lines), logErrorText: true })
    stops.push(() => receiver.drain({ deadlineMs: 0 }))
    branch(receiver, { name: 'staging', inbox }).on('*', forward({ to, auth: secret, ...options }))
    return {
      ...{ receiver, clock, staging: () => receiver.stats().branches?.['staging'] },
      async post(...numbers: readonly number[]) {
        for (const at of numbers) await receiver.accept({ authorization: undefined, body: data('A', at) })
      },
      /** Lets the time pass until the check holds. */
      until: (check: () => void, stepMs = 1_000) => soon(async () => (await clock.advance(stepMs), check())),
    }
  }

  async function forwarding(answer: Answer, options: Partial<ForwardOptions> = {}, clock = fakeClock()) {
    lines.length = 0
    const { url, requests } = await destination(answer)
    const isSent = (count: number): void => expect(requests).toHaveLength(count)
    return { ...receiverTo(url, options, clock), url, requests, isSent }
  }

  test('posts each message as it came, with the secret as the service sends it and the id of the receipt', async () => {
    const { receiver, requests, isSent } = await forwarding(ok)
    const bodies = [
      data('A', 1),
      { vin: 'A', createdAt: '2024-02-24T04:58:44Z', data: [{ key: 'Odometer', value: { doubleValue: 2.5 } }] },
      { source: 'A', time: 1_700_000_000, event: { data: { Odometer: 3 }, vin: 'A' } },
      { what: 'is this' },
    ]
    for (const body of bodies) await receiver.accept({ authorization: undefined, body })
    await soon(() => isSent(4))
    const byBody = new Map(requests.map((request) => [request.body, request.headers]))
    expect([...byBody.keys()].toSorted()).toEqual(bodies.map((body) => JSON.stringify(body)).toSorted())
    for (const [at, body] of bodies.entries()) {
      const headers = byBody.get(JSON.stringify(body))
      expect(headers).toMatchObject({
        'content-type': 'application/json',
        authorization: at === 2 ? `Splunk ${secret}` : secret,
        'fleethook-delivery': expect.stringMatching(/^[\da-f]{8}-[\da-f]{4}-7/),
      })
      expect(headers).not.toHaveProperty('webhook-id')
    }
    expect(new Set(requests.map(({ headers }) => headers['fleethook-delivery'])).size).toBe(4)
  })

  test('what it posts is the text of the one message, byte for byte as it came', async () => {
    const { receiver, requests, isSent } = await forwarding(ok)
    const inEnvelope = '{"time":1700000000.10,"source":"A","event":{"vin":"A","data":{"Odometer":1e400}}}'
    const texts = [...oddTexts, inEnvelope]
    for (const body of [texts.join(''), `[${texts.join(', ')}]`])
      await receiver.accept({ authorization: undefined, body })
    await soon(() => isSent(2 * texts.length))
    expect(requests.map(({ body }) => body).toSorted()).toEqual([...texts, ...texts].toSorted())
  })

  test('what it posts is what a second receiver takes', async () => {
    const behind: unknown[] = []
    const second = createReceiver({ secret }).on('*', (event) => void behind.push([event.id, event.topic]))
    const before: unknown[] = []
    const { receiver } = await forwarding((response, request) => {
      void second
        .accept({ authorization: request.headers.authorization, body: request.body })
        .then(({ status, body }) => response.writeHead(status).end(body))
    })
    receiver.on('*', (event) => void before.push([event.id, event.topic]))
    for (const each of [message.data({ Gear: 'D' }), message.state('online'), message.alerts(), message.errors()])
      await deliver(receiver, each)
    await soon(() => expect(behind).toHaveLength(4))
    expect(behind).toEqual(before)
  })

  test('signs as Standard Webhooks says, with a time of its own for each attempt', async () => {
    const sign = `whsec_${Buffer.from('a secret of twenty-four').toString('base64')}`
    const { requests, post, until, isSent } = await forwarding(atFirst(503), { sign })
    await post(1)
    await soon(() => isSent(1))
    await until(() => isSent(2))
    const webhook = new Webhook(sign)
    for (const { headers, body } of requests)
      expect(webhook.verify(body, headers as Record<string, string>)).toEqual(data('A', 1))
    expect(requests[1]?.headers['webhook-id']).toBe(requests[0]?.headers['fleethook-delivery'])
    expect(requests[1]?.headers['fleethook-delivery']).toBe(requests[0]?.headers['fleethook-delivery'])
  })

  describe('what follows from the answer', () => {
    test.each([408, 425, 429, 500, 502, 503, 504, 599])('%i is tried again, in order per vehicle', async (status) => {
      const { requests, post, until, staging } = await forwarding(atFirst(status, {}, 2))
      await post(1, 2, 3)
      await until(() => expect(staging()?.handled).toBe(3))
      expect(requests.map(({ body }) => JSON.parse(body).data.Odometer)).toEqual([1, 1, 1, 2, 3])
      expect(lines.join()).not.toContain('private words')
    })

    test.each([400, 401, 403, 404, 409, 410, 413, 422, 301, 302, 307, 308, 304, 600, 999])(
      '%i is a dead letter at once, and the vehicle goes on',
      async (status) => {
        const other = await destination(ok)
        const { post, staging, isSent } = await forwarding(atFirst(status, { location: other.url }))
        await post(1, 2)
        await soon(() => expect(staging()).toMatchObject({ handled: 1, deadLettered: 1, retried: 0 }))
        isSent(2)
        expect(other.requests).toEqual([])
        const said = lines.join('\n')
        expect(said).toContain(`/hook ${status >= 300 && status < 400 ? 'redirects' : `answered ${status}`}`)
        for (const text of ['private words', secret, 'in-the-query']) expect(said).not.toContain(text)
      },
    )

    test.each([
      ['60', 60_000],
      [() => new Date(Date.now() + 60_000).toUTCString(), 60_000],
      ['soon', 1_000],
      ['2050.5', 1_000],
    ])('Retry-After %s is honored', async (after, ms) => {
      const retryAfter = typeof after === 'string' ? after : after()
      const { post, clock, staging, until, isSent } = await forwarding(atFirst(429, { 'retry-after': retryAfter }))
      await post(1)
      await soon(() => expect(staging()?.failing?.messages).toBe(1))
      await clock.advance(ms - 2_000)
      isSent(1)
      await until(() => isSent(2), 500)
    })

    test.each(['0', new Date(0).toUTCString()])('Retry-After %s makes no wait shorter', async (after) => {
      const { post, clock, staging, until, isSent } = await forwarding(atFirst(503, { 'retry-after': after }))
      await post(1)
      await soon(() => expect(staging()?.failing?.messages).toBe(1))
      await clock.advance(400)
      isSent(1)
      expect(staging()?.running).toBe(0)
      await until(() => isSent(2), 100)
    })

    test('Retry-After is honored through a restart', async () => {
      const { url, requests } = await destination(atFirst(429, { 'retry-after': '3600' }))
      const clock = unwatched(fakeClock())
      const path = join(newFolder('retry-after'), 'staging.db')
      const start = () => receiverTo(url, {}, clock, sqliteInbox({ path }))
      const first = start()
      await first.post(1)
      await soon(() => expect(first.staging()?.failing?.messages).toBe(1))
      await first.receiver.drain({ handlerGraceMs: 0 })
      const { receiver, staging, until } = start()
      await receiver.open()
      await soon(() => expect(staging()?.recovered).toBe(1))
      for (let minutes = 0; minutes < 59; minutes += 1) {
        await clock.advance(60_000)
        await soon(() => expect(staging()?.running).toBe(0))
      }
      expect(requests).toHaveLength(1)
      await until(() => expect(requests).toHaveLength(2), 10_000)
    })

    test('a server that is down and says when to come back gets no message sooner, and the log says that it is down', async () => {
      let isDown = true
      const { receiver, requests, clock, staging, until, isSent } = await forwarding((response) =>
        isDown ? response.writeHead(503, { 'retry-after': '120' }).end() : ok(response),
      )
      const vins = Array.from({ length: 20 }, (_, at) => `V${at}`)
      for (const at of [1, 2])
        for (const vin of vins) await receiver.accept({ authorization: undefined, body: data(vin, at) })
      await soon(() => isSent(20))
      for (let seconds = 0; seconds < 115; seconds += 5) {
        await clock.advance(5_000)
        await soon(() => expect(staging()?.running).toBe(0))
      }
      isSent(20)
      expect(lines.join('\n')).toContain('/hook answered 503')
      expect(staging()?.paused).toHaveLength(1)
      isDown = false
      await until(() => expect(staging()?.handled).toBe(40))
      expect(requests.slice(20)).toHaveLength(40)
    })

    const unfinished: Answer = (response) => void response.writeHead(200).write('and so on')
    test.each<readonly [how: string, Answer, Partial<ForwardOptions>]>([
      ['its end never comes', unfinished, {}],
      ['its end is late', unfinished, { timeoutMs: 500 }],
      ['it breaks off', (response) => void response.socket?.end('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nOK'), {}],
      [
        'it has a wrong chunk',
        (response) => {
          response.writeHead(200).write('a chunk')
          setTimeout(() => response.socket?.end('no chunk at all\r\n'), 50)
        },
        {},
      ],
    ])('a 2xx is the answer, also when %s, and the next message follows', async (_how, answer, options) => {
      const { post, staging, isSent } = await forwarding(answer, options)
      await post(1, 2)
      await soon(() => expect(staging()).toMatchObject({ handled: 2, retried: 0 }))
      isSent(2)
    })

    test('a lost connection and a server that does not answer are tried again', async () => {
      const answer: Answer = (response, _request, at) => {
        if (at === 1) response.destroy()
        else if (at > 2) ok(response)
      }
      const { post, staging, until, isSent } = await forwarding(answer, { timeoutMs: 2_000 })
      await post(1)
      await until(() => expect(staging()?.handled).toBe(1))
      isSent(3)
      expect(lines.join('\n')).toContain('could not be reached')
    })

    test('an answer that is none is tried again', async () => {
      const { post, staging, until, isSent } = await forwarding((response, _request, at) => {
        if (at > 3) ok(response)
        else if (at === 1)
          response.socket?.end('HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n')
        else response.socket?.end(at === 2 ? 'nonsense' : 'HTTP/1.1 200 OK\r\nContent-')
      })
      await post(1)
      await until(() => expect(staging()?.handled).toBe(1))
      isSent(4)
    })

    test('a long answer is not read to its end', async () => {
      let sent = 0
      let isCut = false
      const { post, staging } = await forwarding((response) => {
        response.writeHead(200)
        response.on('close', () => (isCut = true))
        const more = (): void => {
          while (!isCut && sent < 1e9 && response.write('x'.repeat(65_536))) sent += 65_536
          sent += 65_536
        }
        response.on('drain', more)
        more()
      })
      await post(1)
      await soon(() => expect(staging()?.handled).toBe(1))
      await soon(() => expect(isCut).toBe(true))
      expect(sent).toBeLessThan(50_000_000)
    })

    test('what is not one message is a dead letter, and not dropped in silence', async () => {
      const { url, requests } = await destination(ok)
      const receiver = createReceiver({ secret: false, log: silent })
      stops.push(() => receiver.drain({ deadlineMs: 0 }))
      receiver.batch('data', { size: 1, withinMs: 0 }, forward({ to: url, auth: secret }) as never)
      await receiver.accept({ authorization: undefined, body: data('A', 1) })
      await soon(() => expect(receiver.stats()).toMatchObject({ deadLettered: 1 }))
      expect(requests).toHaveLength(0)
    })

    test('it is posted, however many processes have ended while the server did not answer', async () => {
      const { url } = await destination(ok)
      const receiver = createReceiver({ secret: false })
      stops.push(() => receiver.drain({ deadlineMs: 0 }))
      const afterKills: InboxFactory = (settings) => {
        const inbox = memoryInbox()(settings)
        const claim = async (id: string): Promise<Claim | undefined> => {
          const claimed = await inbox.claim(id)
          return claimed && { ...claimed, deliveries: 3 }
        }
        return { ...inbox, claim }
      }
      branch(receiver, { name: 'staging', inbox: afterKills }).on('*', forward({ to: url, auth: secret }))
      await receiver.accept({ authorization: undefined, body: data('A', 1) })
      await soon(() => expect(receiver.stats().branches?.['staging']).toMatchObject({ handled: 1, deadLettered: 0 }))
    })

    test('it is tried for 24 hours, whatever the receiver does with others', async () => {
      const clock = unwatched(fakeClock())
      const { post, staging } = await forwarding((response) => response.writeHead(503).end(), {}, clock)
      await post(1)
      for (let hour = 0; hour < 23; hour += 1) {
        await soon(() => expect(staging()?.running).toBe(0))
        await clock.advance(3_600_000)
      }
      expect(staging()?.deadLettered).toBe(0)
      await soon(async () => {
        await clock.advance(600_000)
        expect(staging()?.deadLettered).toBe(1)
      }, 30_000)
    })
  })

  test.each([
    [{}, '`to`'],
    [{ to: 'staging.example.com', auth: secret }, '`to`'],
    [{ to: 'ftp://staging.example.com', auth: secret }, '`to`'],
    [{ to: 'https://user:word@staging.example.com', auth: secret }, '`to`'],
    [{ to: 'https://staging.example.com' }, '`auth`'],
    [{ to: 'https://staging.example.com', auth: undefined }, '`auth`'],
    [{ to: 'https://staging.example.com', auth: '' }, '`auth`'],
    [{ to: 'https://staging.example.com', auth: 'a\nb' }, '`auth`'],
    [{ to: 'https://staging.example.com', auth: secret, sign: 'not base64 !' }, '`sign`'],
    [{ to: 'https://staging.example.com', auth: secret, forMs: -1 }, '`forMs`'],
    [{ to: 'https://staging.example.com', auth: secret, retries: 3 }, '`retries`'],
  ])('refuses %o', (options, problem) => {
    expect(() => forward(options as never)).toThrow(expect.objectContaining({ code: 'option_invalid' }))
    expect(() => forward(options as never)).toThrow(problem)
    expect(() => forward(options as never)).not.toThrow('not base64 !')
  })

  test.runIf(forward === onNode)('a connection that the other server has closed meanwhile is no failure', async () => {
    const used = new Set<unknown>()
    const { requests, post, staging } = await forwarding((response) => {
      const isUsed = used.has(response.socket)
      used.add(response.socket)
      if (isUsed) response.socket?.resetAndDestroy()
      else ok(response)
    })
    await post(1, 2, 3)
    await soon(() => expect(staging()).toMatchObject({ handled: 3, retried: 0 }))
    expect(requests.map(({ body }) => JSON.parse(body).data.Odometer)).toEqual([1, 2, 2, 3, 3])
  })
})
