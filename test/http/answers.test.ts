import { createReceiver } from 'fleethook'
import { Hono } from 'hono'
import { afterAll, describe, expect, test } from 'vitest'
import { payloadMark, type Row, rowsOf } from '../../adapters/cli/conform/answer-table.ts'
import { type Answered, type Entrance, remember, ways } from './ways.ts'

const secret = 'a-long-random-value'
const limit = 400
const rows = rowsOf(secret, limit)

const texts: Readonly<Record<number, string>> = {
  2: 'Token is required',
  3: 'Invalid authorization',
  4: 'Invalid token',
  5: 'No data',
  6: 'Invalid data format',
  12: 'Event field is required',
  13: 'Event field cannot be blank',
  404: 'Not found',
  405: 'Method not allowed',
}

function checkAnswer(answer: Answered, row: Row): void {
  expect(answer.headers['content-type']).toBe('application/json')
  expect(answer.headers).toMatchObject(row.answers ?? {})
  for (const hidden of [secret, payloadMark]) expect(answer.text).not.toContain(hidden)
  const body: unknown = JSON.parse(answer.text)
  expect([answer.status, body]).toMatchObject([row.status, { code: row.code }])
  if (row.code === 0) return expect(answer.text).toBe('{"text":"Success","code":0}')
  if (row.code === 17) return expect(answer.text).toBe('{"text":"HEC is healthy","code":17}')
  expect(body).toEqual({
    text: texts[row.code],
    code: row.code,
    error: row.error,
    hint: expect.stringMatching(/^.{20,}\.$/),
    ...(row.number === undefined ? {} : { 'invalid-event-number': row.number }),
  })
}

describe.each(ways)('The same answer by $name', (way) => {
  let entrance: Promise<Entrance> | undefined
  const log = remember()
  const open = (): Promise<Entrance> => (entrance ??= way.open({ secret, log, limits: { bodyBytes: limit } }))
  afterAll(async () => (await entrance)?.close())

  const fitting = rows.filter((row) => (way.http || !row.http) && (way.alone || !row.alone))
  test.each(fitting)('$case: $status, code $code', async (row) => {
    const { send } = await open()
    checkAnswer(await send(row), row)
  })
})

describe.each(ways.filter(({ http }) => http))('HEAD by $name', (way) => {
  test.each([
    ['/', 405],
    ['/services/collector/health', 200],
  ])('%s has the status of GET and no body', async (path, status) => {
    const { send, close } = await way.open({ secret })
    const answer = await send({ method: 'HEAD', path })
    await close()
    expect([answer.status, answer.text]).toEqual([status, ''])
  })
})

describe.each(ways)('A receiver that takes nothing, by $name', (way) => {
  const sent = { headers: { authorization: secret }, body: '{"vin":"A","state":"online"}' }

  test('answers 503, code 9 and Retry-After when full', async () => {
    const { receiver, send, close } = await way.open({ secret, log: remember(), limits: { pendingMessages: 1 } })
    let release = (): void => {}
    receiver.on('state', () => new Promise<void>((resolve) => (release = resolve)))
    expect((await send(sent)).status).toBe(200)
    const answer = await send(sent)
    expect([answer.status, JSON.parse(answer.text)]).toMatchObject([503, { code: 9, error: 'inbox_full' }])
    expect(answer.headers['retry-after']).toMatch(/^\d+$/)
    if (way.http) {
      const health = await send({ method: 'GET', path: '/services/collector/health' })
      expect([health.status, JSON.parse(health.text)]).toMatchObject([503, { code: 18 }])
      expect(health.headers['retry-after']).toMatch(/^\d+$/)
    }
    await expect.poll(() => receiver.stats().running).toBe(1)
    release()
    await close()
  })

  test('answers 503, code 23 and Retry-After while draining, after the secret', async () => {
    const { receiver, send, close } = await way.open({ secret, log: remember() })
    await receiver.drain()
    const answer = await send(sent)
    expect([answer.status, JSON.parse(answer.text)]).toMatchObject([503, { code: 23, error: 'draining' }])
    expect(answer.headers['retry-after']).toMatch(/^\d+$/)
    expect((await send({ ...sent, headers: { authorization: 'wrong' } })).status).toBe(403)
    if (way.http) {
      const health = await send({ method: 'GET', path: '/services/collector/health' })
      expect([health.status, JSON.parse(health.text)]).toMatchObject([503, { code: 23 }])
    }
    await close()
  })
})

describe('A host that mounts routes()', () => {
  test.each(['/', '/hooks'])(
    'at %s keeps its own paths below it, and its own answer to unknown ones',
    async (mount) => {
      const below = mount === '/' ? '' : mount
      const host = new Hono()
        .route(mount, createReceiver({ secret }).routes())
        .get(`${below}/later`, (c) => c.text('later'))
        .notFound((c) => c.text('host', 404))
      expect(await (await host.request(`${below}/later`)).text()).toBe('later')
      expect(await (await host.request(`${below}/nowhere`)).text()).toBe('host')
    },
  )
})

test('accept() takes no path but those of messages', async () => {
  const { accept } = createReceiver({ secret: false })
  for (const path of ['/services/collector/health', '/elsewhere', 'services/collector']) {
    expect(await accept({ authorization: undefined, body: '{}', path })).toMatchObject({ status: 404 })
  }
})
