import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { inspect } from 'node:util'
import { createReceiver, memoryInbox } from 'fleethook'
import { branch } from 'fleethook/branch'
import type { Claim, Inbox, InboxFactory } from 'fleethook/extend'
import { forward as onNode, type ForwardOptions } from 'fleethook/forward'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { deliver, fakeClock, message } from 'fleethook/testing'
import { Webhook } from 'standardwebhooks'
import { afterEach, describe, expect, test } from 'vitest'
import { forward as anywhere } from '../../src/forward.ts'
import { soon } from './soon.ts'
import { oddTexts } from '../dispatch/odd-texts.ts'
import { data, logInto } from '../dispatch/scene.ts'
import { few } from '../form.ts'
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

/** A date of HTTP in the form of C's asctime: it names no zone, and is GMT. */
const asctime = (date: Date): string => {
  const [day, number, month, year, time] = date.toUTCString().replace(',', '').split(' ')
  return `${day} ${month} ${String(Number(number)).padStart(2)} ${time} ${year}`
}

const lines: string[] = []
const secret = 'the-secret-of-staging'

describe.each([
  ['on Node', onNode],
  ['with fetch', anywhere],
])('%s', (_name, forward) => {
  /** A receiver with a branch that forwards to a server. */
  function receiverTo(to: string, options: Partial<ForwardOptions> = {}, clock = fakeClock(), inbox = memoryInbox()) {
    const receiver = createReceiver({ secret: false, clock, inbox, log: logInto(lines), logErrorText: true })
    stops.push(async () => {
      const drained = receiver.drain({ deadlineMs: 0 })
      await clock.advance(1_000)
      return drained
    })
    branch(receiver, { name: 'staging', timeoutMs: 2_000_000_000 }).on('*', forward({ to, auth: secret, ...options }))
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

  type Forwarded = Awaited<ReturnType<typeof forwarding>>

  describe('what follows from the answer', () => {
    test.each([408, 425, 429, 500, 502, 503, 504, 599])('%i is tried again, in order per vehicle', async (status) => {
      const { requests, post, until, staging } = await forwarding(atFirst(status, {}, 2))
      await post(1, 2, 3)
      await until(() => expect(staging()?.handled).toBe(3))
      expect(requests.map(({ body }) => JSON.parse(body).data.Odometer)).toEqual([1, 1, 1, 2, 3])
      expect(lines.join()).not.toContain('private words')
    })

    const refusals = [400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 301, 302, 307, 308, 304, 600, 999]

    test.each(few(refusals))(
      '%i to every message is the state of the server: all of them wait, in order, and go on when it takes them',
      async (status) => {
        const other = await destination(ok)
        let isRefusing = true
        const { requests, receiver, staging, until } = await forwarding((response) =>
          isRefusing ? void response.writeHead(status, { location: other.url }).end('private words') : ok(response),
        )
        const vins = Array.from({ length: 9 }, (_, at) => `V${at}`)
        for (const at of [1, 2, 3, 4, 5])
          for (const vin of vins) await receiver.accept({ authorization: undefined, body: data(vin, at) })
        let asked = 0
        await until(() => expect((asked = requests.length)).toBeGreaterThan(15), 5_000)
        expect(staging()).toMatchObject({ handled: 0, deadLettered: 0 })
        expect(staging()?.paused).toHaveLength(1)
        isRefusing = false
        await until(() => expect(staging()?.handled).toBe(45))
        expect(staging()?.deadLettered).toBe(0)
        expect(other.requests).toEqual([])
        const taken = requests.slice(asked).map(({ body }) => JSON.parse(body))
        for (const vin of vins)
          expect([...new Set(taken.filter((each) => each.vin === vin).map((each) => each.data.Odometer))]).toEqual([
            1, 2, 3, 4, 5,
          ])
        const said = lines.join('\n')
        expect(said).toContain(new URL(other.url).hostname)
        expect(said).toContain(status >= 300 && status < 400 ? ' redirects.' : ` answered ${status}.`)
        expect(said).toContain('Has its address or secret changed')
        for (const text of ['private words', secret, 'in-the-query', 'hook']) expect(said).not.toContain(text)
      },
    )

    /** One vehicle after another sends a message, until the check holds. */
    async function whileOthersPass(
      check: () => void,
      { receiver, until }: Pick<Forwarded, 'receiver' | 'until'>,
      stepMs?: number,
    ) {
      let at = 100
      await until(() => {
        void receiver.accept({ authorization: undefined, body: data(`V${at % 5}`, (at += 1)) })
        check()
      }, stepMs)
    }

    test.each([400, 413, 422, 401, 403, 404, 302])(
      '%i to one message, while others are taken, makes a dead letter of this one alone, also through a restart',
      async (status) => {
        const { url, requests } = await destination((response, { body }) =>
          body.includes('poison') ? void response.writeHead(status).end() : ok(response),
        )
        const path = join(newFolder('poison'), 'staging.db')
        lines.length = 0
        const clock = fakeClock()
        const first = receiverTo(url, {}, clock, sqliteInbox({ path }))
        await first.receiver.accept({ authorization: undefined, body: data('A', 1, { poison: true }) })
        await first.post(2, 3)
        await soon(() => expect(requests).toHaveLength(1))
        await first.receiver.drain({ handlerGraceMs: 0 })
        const second = receiverTo(url, {}, clock, sqliteInbox({ path }))
        await second.receiver.open()
        await whileOthersPass(() => expect(second.staging()?.deadLettered).toBe(1), second)
        const ofA = () =>
          requests
            .map(({ body }) => JSON.parse(body))
            .filter(({ vin }) => vin === 'A')
            .map((each) => each.data.Odometer)
        await second.until(() => expect(new Set(ofA())).toEqual(new Set([1, 2, 3])))
        expect(second.staging()?.deadLettered).toBe(1)
        const [letter] = await Array.fromAsync(second.receiver.branches.get('staging')?.deadLetters.list() ?? [])
        expect(letter?.error).toContain(
          `${new URL(url).origin} ${status === 302 ? 'redirects' : `answered ${status}`} to this message again, and takes others.`,
        )
      },
    )

    test('the messages of a vehicle that the server does not know wait no longer once one was given up', async () => {
      const scene = await forwarding((response, { body }) =>
        JSON.parse(body).vin === 'A' ? void response.writeHead(404).end() : ok(response),
      )
      await scene.post(1, 2, 3, 4, 5, 6)
      await whileOthersPass(() => expect(scene.staging()?.deadLettered).toBeGreaterThan(0), scene)
      const before = scene.requests.length
      await whileOthersPass(() => expect(scene.staging()?.deadLettered).toBe(6), scene, 1)
      expect(scene.requests.slice(before).filter(({ body }) => JSON.parse(body).vin === 'A').length).toBeLessThan(12)
    })

    test('a server that refuses everything now and then loses no message', async () => {
      let isRefusing = false
      const scene = await forwarding((response) => (isRefusing ? void response.writeHead(403).end() : ok(response)))
      let sent = 0
      for (let phase = 0; phase < 20; phase += 1) {
        isRefusing = !isRefusing
        for (let at = 0; at < 30; at += 1) {
          await scene.receiver.accept({ authorization: undefined, body: data(`V${at % 9}`, (sent += 1)) })
          if (at % 10 === 0)
            await soon(async () => (await scene.clock.advance(700), expect(scene.staging()?.running).toBe(0)))
        }
      }
      isRefusing = false
      await scene.until(() => expect(scene.staging()?.handled).toBe(sent), 10_000)
      expect(scene.staging()?.deadLettered).toBe(0)
    })

    test.each([
      [422, 1],
      [403, 0],
    ])('%i to each message of the only vehicle makes dead letters of %i in days', async (status, dead) => {
      let isRefusing = true
      const scene = await forwarding(
        (response) => (isRefusing ? void response.writeHead(status).end() : ok(response)),
        {},
        unwatched(fakeClock()),
      )
      await scene.post(1, 2, 3)
      while (scene.requests.length < 70) {
        await scene.clock.advance(61_000)
        await soon(() => expect(scene.staging()?.running).toBe(0))
      }
      expect(scene.staging()?.deadLettered).toBe(dead)
      isRefusing = false
      await scene.until(() => expect(scene.staging()?.handled).toBe(3 - dead), 61_000)
    })

    test.each([
      ['60', 60_000],
      [() => new Date(Date.now() + 60_000).toUTCString(), 60_000],
      [() => asctime(new Date(Date.now() + 60_000)), 60_000],
      ['soon', 1_000],
      ['2050-01-01', 1_000],
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
      expect(lines.join('\n')).toContain(' answered 503.')
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
      const afterKills: InboxFactory = (settings) => {
        const inbox = memoryInbox()(settings)
        const reader: Inbox['reader'] = (name, own) => {
          const made = inbox.reader?.(name, own)
          if (made === undefined) return expect.fail('The one in memory has readers.')
          const claim = async (id: string): Promise<Claim | undefined> => {
            const claimed = await made.claim(id)
            return claimed && { ...claimed, deliveries: 3 }
          }
          return { ...made, claim }
        }
        return { ...inbox, reader }
      }
      const receiver = createReceiver({ secret: false, inbox: afterKills })
      stops.push(() => receiver.drain({ deadlineMs: 0 }))
      branch(receiver, { name: 'staging' }).on('*', forward({ to: url, auth: secret }))
      await receiver.accept({ authorization: undefined, body: data('A', 1) })
      await soon(() => expect(receiver.stats().branches?.['staging']).toMatchObject({ handled: 1, deadLettered: 0 }))
    })

    test.each([503, 403])(
      'while the server answers %i it is tried for as long as it takes, whatever the receiver does with others',
      async (status) => {
        let isDown = true
        const { post, clock, requests, staging, until } = await forwarding(
          (response) => (isDown ? void response.writeHead(status, { 'retry-after': '86400' }).end() : ok(response)),
          {},
          unwatched(fakeClock()),
        )
        await post(1)
        while (requests.length < 20) {
          await soon(() => expect(staging()?.running).toBe(0))
          await clock.advance(86_500_000)
        }
        expect(staging()).toMatchObject({ deadLettered: 0, pending: { messages: 1 } })
        isDown = false
        await until(() => expect(staging()?.handled).toBe(1), 86_500_000)
      },
    )

    test('`forMs` ends it earlier', async () => {
      const clock = unwatched(fakeClock())
      const { post, staging } = await forwarding(
        (response) => response.writeHead(503).end(),
        { forMs: 86_400_000 },
        clock,
      )
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

  test('no part of `to` but its host is in the log, in errors and in dead letters', async () => {
    const paths = ['/services/T0/B0/the-token', '/hooks/catch/12/the-token/?key=the-token#the-token']
    for (const path of paths) {
      lines.length = 0
      const { url } = await destination((response, _request, at) =>
        at === 1 ? void response.writeHead(503).end() : response.destroy(),
      )
      const gone = 'http://127.0.0.1:9'
      const told: unknown[] = []
      for (const origin of [new URL(url).origin, gone]) {
        const receiver = createReceiver({ secret: false, log: logInto(lines), logErrorText: true })
        stops.push(() => receiver.drain({ deadlineMs: 0 }))
        const handler = forward({ to: `${origin}${path}`, auth: false, forMs: 0 })
        branch(receiver, {
          name: 'chat',
          observe: { failed: (error) => void told.push(error) },
        }).on('*', handler)
        await receiver.accept({ authorization: undefined, body: data('A', 1) })
        await soon(() => expect(receiver.stats().branches?.['chat']?.deadLettered).toBe(1))
        told.push(handler.name, await Array.fromAsync(receiver.branches.get('chat')?.deadLetters.list() ?? []))
      }
      expect(told.length).toBeGreaterThan(4)
      const all = [...lines, inspect(told, { depth: 20, showHidden: true })].join('\n')
      expect(all).toContain('127.0.0.1')
      expect(all).not.toContain('the-token')
    }
  })

  test('it warns once, at the start, when it is not on a branch', async () => {
    const { url } = await destination(ok)
    for (const isOnBranch of [true, false]) {
      lines.length = 0
      const receiver = createReceiver({ secret: false, log: logInto(lines) })
      stops.push(() => receiver.drain({ deadlineMs: 0 }))
      const handler = forward({ to: url, auth: secret })
      if (isOnBranch) branch(receiver, { name: 'staging' }).on('*', handler)
      else receiver.on('data', handler).on('state', handler)
      await receiver.open()
      await receiver.accept({ authorization: undefined, body: data('A', 1) })
      expect(lines.filter((line) => line.includes('`forward` is not on a branch'))).toHaveLength(isOnBranch ? 0 : 1)
    }
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
