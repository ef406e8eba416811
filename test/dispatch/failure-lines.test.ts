import { postgresInbox } from 'fleethook/inbox/postgres'
import { Discard, vehicles } from 'fleethook'
import { describe, expect, test } from 'vitest'
import { turn } from './fake-clock.ts'
import { data, scene, state } from './scene.ts'

const vin = '0FLEETV14T0000004'

/** The details of the first line that has this text. */
function details(lines: readonly string[], text: string): Record<string, unknown> {
  const line = lines.find((candidate) => candidate.includes(text)) ?? ''
  const parsed: unknown = JSON.parse(line.slice(line.indexOf('{')))
  return { ...(parsed as object) }
}

async function failing(
  error: () => unknown,
  options: Parameters<typeof scene>[0] = {},
): Promise<Record<string, unknown>> {
  const { receiver, send, lines } = scene({ retry: { attempts: 3, minMs: 100, maxMs: 100 }, ...options })
  receiver.on('data', () => {
    throw error()
  })
  await send(data(vin, 1))
  return details(lines, 'a handler for data failed')
}

describe('a line about a handler that failed', () => {
  test('names the handler, the vehicle by four characters, the delivery, the attempt and the next one', async () => {
    const { receiver, send, lines, clock } = scene({ retry: { attempts: 2, minMs: 20_000, maxMs: 20_000 } })
    receiver.on('data', function save() {
      throw new TypeError('no')
    })
    await send(data(vin, 1))
    const first = details(lines, 'a handler for data failed')
    expect(first).toMatchObject({ handler: 'save', vehicle: '…0004', attempt: '1 of 2', error: 'TypeError' })
    expect(first['delivery']).toMatch(/^[0-9a-f-]{36}$/)
    const restMs = Date.parse(String(first['next'])) - clock.now()
    expect(restMs).toBeGreaterThanOrEqual(10_000)
    expect(restMs).toBeLessThanOrEqual(20_000)
    await clock.advance(restMs)
    const [, second = ''] = lines.filter((line) => line.includes('a handler for data failed'))
    expect(second).toContain('"attempt":"2 of 2","next":"none"')
    expect(lines.join('\n')).not.toContain(vin)
  })

  test('says until when a handler without a limit of attempts is retried', async () => {
    const { receiver, send, lines, clock } = scene({ retry: { maxAgeMs: 60_000 } })
    const startedAt = clock.now()
    receiver.on('state', () => Promise.reject(new Error('no')))
    await send(state(vin, 'online'))
    expect(details(lines, 'a handler for state failed')).toMatchObject({
      attempt: 1,
      until: new Date(startedAt + 60_000).toISOString(),
    })
  })

  test('names the file and line where a handler without a name was registered', async () => {
    const line = await failing(() => new Error('no'))
    expect(line['handler']).toMatch(/^failure-lines\.test\.ts:\d+$/)
  })

  test('names a handler of exactlyOnce and createOnce as its marks do', async () => {
    const { receiver, send, lines } = scene()
    const exactly = postgresInbox({ db: { query: async () => ({ rows: [] }) } }).exactlyOnce(async (work) => work({}))
    receiver.on(
      'data',
      exactly('billing: rows', () => {}),
    )
    await send(data(vin, 1))
    expect(details(lines, 'a handler for data failed')).toMatchObject({ handler: 'billing: rows' })
    expect(exactly.batch('billing', () => {}).name).toBe('billing')
  })

  test('names the handler of a batch and the number of its messages', async () => {
    const { receiver, post, lines } = scene()
    receiver.batch('data', { size: 2, withinMs: 1_000 }, function insert() {
      throw new Error('no')
    })
    for (const odometer of [1, 2]) await post(data(vin, odometer))
    await turn()
    expect(details(lines, 'a handler for a batch of data failed')).toMatchObject({ handler: 'insert', messages: 2 })
  })

  test('is separate for each handler of a topic', async () => {
    const { receiver, send, lines } = scene()
    for (const name of ['one', 'two'])
      receiver.on(
        'data',
        Object.defineProperty(() => Promise.reject(new Error('no')), 'name', { value: name }),
      )
    await send(data(vin, 1))
    expect(lines.map((line) => /"handler":"(\w+)"/.exec(line)?.[1])).toEqual(['one', 'two'])
  })

  const coded = (text: string, code: unknown): Error => Object.assign(new Error(text), { code })
  test.each<readonly [what: string, error: unknown, expected: object, logErrorText: boolean]>([
    [
      'the first line of the text of an error with a code, without control characters and without the VIN',
      coded(`connect ECONNREFUSED \u001b[31m10.0.0.1:5432 for ${vin}\nsecond line`, 'ECONNREFUSED'),
      { error: 'Error', code: 'ECONNREFUSED', reason: 'connect ECONNREFUSED \\u001b[31m10.0.0.1:5432 for …0004' },
      false,
    ],
    [
      'the text of an error that begins with a code, as D1 writes it',
      new Error('D1_ERROR: no such table: fields: SQLITE_ERROR'),
      { code: 'D1_ERROR', reason: 'D1_ERROR: no such table: fields: SQLITE_ERROR' },
      false,
    ],
    [
      'the code of the cause, as fetch gives it',
      new TypeError('fetch failed', { cause: coded('getaddrinfo ENOTFOUND db', 'ENOTFOUND') }),
      { error: 'TypeError', cause: 'ENOTFOUND', reason: 'getaddrinfo ENOTFOUND db' },
      false,
    ],
    ['how to see the text of another error', new Error('no'), { hint: expect.stringContaining('logErrorText') }, false],
    ['that text with logErrorText', new Error(`no row for ${vin}\nand more`), { reason: 'no row for …0004' }, true],
    ['a text that was thrown', 'thrown text', { reason: 'thrown text' }, true],
  ])('has %s', async (_, error, expected, logErrorText) => {
    const line = await failing(() => error, { logErrorText })
    expect(line).toMatchObject(expected)
    if (logErrorText) expect(line).not.toHaveProperty('hint')
  })

  test.each([
    ...[`no row for ${vin}\nand more`, `${vin}: no row`, 'A_B', 'no D1_ERROR: here', '{"D1_ERROR: ": 1}'].map(Error),
    ...[coded('quoted', 7), coded('quoted', '{"vin":1}')],
  ])('has no text of %o', async (error) => {
    expect(await failing(() => error)).not.toHaveProperty('reason')
  })
})

describe('the text of an error without a code', () => {
  const seen = { ...data(vin, 81, { DestinationName: 'Rue Lepic', DetailedChargeState: 'Charging' }) }
  test.each([
    ['is there in plain words', 'the database is gone, try later.', 'the database is gone, try later.'],
    ['has the names of code', "Cannot read properties of undefined (reading 'rows')", undefined],
    [
      'has no number, address, id or key',
      'no row 81.5 for a@b.example at https://x.example/k3y?t=abc',
      'no row … for … at …',
    ],
    ['has nothing of the message', `no charger in Lepic for ${vin}, it is charging`, 'no charger in … for … it is …'],
    ['has only its first line', 'no row\nand more', 'no row'],
    ['has no word that may be a key', 'wrong key abcdefghijklmnop', 'wrong key …'],
    ['is left out when it is nothing else', `{"vin":"${vin}"}`, null],
  ])('%s', async (_, message, expected) => {
    const { receiver, send, lines } = scene()
    receiver.on('data', () => Promise.reject(new Error(message)))
    await send(seen)
    const line = details(lines, 'a handler for data failed')
    expect(line['error']).toBe('Error')
    expect(line['text'] ?? null).toBe(expected === undefined ? message : expected)
    expect(line).not.toHaveProperty('reason')
  })

  test('has nothing that the vehicle sent before, nor that another message of a batch has', async () => {
    const { receiver, send, lines, clock } = scene({ parts: [vehicles({ fields: ['DestinationName'] })] })
    await send(data(vin, 1, { DestinationName: 'Lepic' }))
    receiver.on('data', { vins: [vin] }, () => Promise.reject(new Error('no charger in Lepic')))
    receiver.batch('data', { size: 2, withinMs: 5 }, () => Promise.reject(new Error('not in Paris or in Bonn')))
    await send(data(vin, 2))
    expect(details(lines, 'a handler for data failed')['text']).toBe('no charger in …')
    await send([data('B', 1, { DestinationName: 'Paris' }), data('C', 1, { DestinationName: 'Bonn' })])
    await clock.advance(5)
    expect(details(lines, 'a handler for a batch of data failed')['text']).toBe('not in … or in …')
  })
})

describe('a line about a dead letter', () => {
  test('says how to see the whole error', async () => {
    const { receiver, send, lines } = scene({ retry: { attempts: 1 } })
    receiver.on('data', () => Promise.reject(new Error('no')))
    await send(data(vin, 1))
    const [letter] = await Array.fromAsync(receiver.deadLetters.list())
    expect(details(lines, 'a message of topic data is a dead letter after 1 attempt')).toEqual({
      vehicle: '…0004',
      delivery: letter?.id,
      show: `receiver.deadLetters.get('${letter?.id}')`,
    })
  })
})

describe('a burst of lines of one kind', () => {
  const give = { retry: { attempts: 1 } } as const

  test('ends with its last line, ten seconds after the first, without another message or a timer that keeps the process alive', async () => {
    const { receiver, post, lines, clock } = scene(give)
    receiver.on('state', () => Promise.reject(new Error('no')))
    for (const at of [0, 1, 2]) await post(state(`${vin}${at}`, 'online'))
    await clock.advance(9_999)
    const failed = (): readonly string[] => lines.filter((line) => line.includes('a handler for state failed'))
    expect(failed()).toHaveLength(1)
    expect(clock.timers()).toEqual([])
    await clock.advance(1)
    expect(failed()[1]).toMatch(/"vehicle":"…0042".*"repeated":2/)
    await clock.advance(60_000)
    expect(failed()).toHaveLength(2)
  })

  test('ends with its last line when the receiver drains before that', async () => {
    const { receiver, post, lines } = scene(give)
    receiver.on('state', () => Promise.reject(new Error('no')))
    for (const at of [0, 1, 2]) await post(state(`${vin}${at}`, 'online'))
    await receiver.drain()
    expect(lines.filter((line) => line.includes('a handler for state failed'))).toHaveLength(2)
  })

  test('adds up the messages that it is about', async () => {
    const { receiver, post, lines, clock } = scene(give)
    receiver.on('state', () => {
      throw new Discard('not ours')
    })
    for (const at of [0, 1, 2, 3]) await post(state(`${vin}${at}`, 'online'))
    await clock.advance(10_000)
    const discarded = lines.filter((line) => line.includes('threw Discard'))
    expect(discarded.map((line) => /"messages":\d+/.exec(line)?.[0])).toEqual(['"messages":1', '"messages":3'])
  })
})

test('the log tells of each handler that its circuit breaker opened and closed, however short the outage', async () => {
  const { receiver, send, lines, clock } = scene()
  let isAway = true
  receiver
    .on('data', function save() {
      if (isAway) throw new Error('no')
    })
    .on('state', function forward() {
      if (isAway) throw new Error('no')
    })
  await send([1, 2, 3, 4, 5].flatMap((n) => [data(`A${n}`, 1), state(`B${n}`, 'online')]))
  await clock.advance(500)
  isAway = false
  await clock.advance(8_000)
  expect(receiver.stats()).toMatchObject({ handled: 10, paused: [] })
  const told = lines.filter((line) => line.includes('circuit breaker'))
  for (const [what, handler] of [
    ['error: a handler fails for every vehicle', 'save'],
    ['error: a handler fails for every vehicle', 'forward'],
    ['warn: a handler succeeds again', 'save'],
    ['warn: a handler succeeds again', 'forward'],
  ] as const)
    expect(told.filter((line) => line.startsWith(what) && line.includes(`"handler":"${handler}"`))).toHaveLength(1)
})

test('the line of the last attempt comes before that of the dead letter, however soon it follows the first', async () => {
  const { receiver, clock, post, lines } = scene({ retry: { attempts: 3, minMs: 100, maxMs: 100 } })
  receiver.on('data', function billing() {
    throw new Error('no')
  })
  await post(data('V1', 1))
  await clock.advance(1_000)
  await clock.advance(60_000)
  const said = lines.flatMap((line) => /"attempt":"(\d of 3)"|dead letter after/.exec(line) ?? []).filter(Boolean)
  expect(said.filter((each) => /^\d|^dead/.test(each))).toEqual(['1 of 3', '3 of 3', 'dead letter after'])
})
