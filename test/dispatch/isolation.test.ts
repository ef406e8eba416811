import { FleethookError } from 'fleethook'
import { createOnce } from 'fleethook/once'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { turn } from './fake-clock.ts'
import { data, gates, scene, state } from './scene.ts'

const unhandled: unknown[] = []
const note = (error: unknown): void => void unhandled.push(error)
beforeEach(() => {
  unhandled.length = 0
  process.on('unhandledRejection', note)
})
afterEach(async () => {
  await turn()
  process.off('unhandledRejection', note)
  expect(unhandled).toEqual([])
})

const hostile = new Proxy(new Error('x'), {
  get() {
    throw new Error('hands off')
  },
  getPrototypeOf() {
    throw new Error('hands off')
  },
})

const throwing = (error: unknown) => (): never => {
  throw error
}
const thenable = (then: (resolve: () => void, reject: (error: unknown) => void) => void) => () => ({ then }) // oxlint-disable-line no-thenable
const [thrown, rejected] = [new RangeError('thrown'), new RangeError('rejected')]
const unreadable = Object.defineProperty({}, 'then', { get: throwing(thrown) }) // oxlint-disable-line no-thenable

/** The ways in which a handler can fail at once, and the error that observers get. */
const failures: readonly (readonly [name: string, fail: () => unknown, error: unknown])[] = [
  ['throws', throwing(thrown), thrown],
  ['rejects', () => Promise.reject(rejected), rejected],
  ['throws a text', throwing('a text'), 'a text'],
  ['throws null', throwing(null), null],
  ['rejects with undefined', () => Promise.reject(undefined), undefined], // oxlint-disable-line prefer-promise-reject-errors
  ['returns a thenable whose `then` throws', thenable(throwing(thrown)), thrown],
  ['returns a thenable whose `then` cannot be read', () => unreadable, thrown],
  [
    'returns a thenable that rejects and then resolves',
    thenable((resolve, reject) => (reject(rejected), resolve())),
    rejected,
  ],
  ['throws an error that cannot be read', throwing(hostile), undefined],
]

describe('a handler that fails', () => {
  test.each(failures)('%s: it is tried again, then given up, and nothing else stops', async (name, fail, error) => {
    const { receiver, post, send, clock } = scene({ retry: { attempts: 3, minMs: 100 } })
    const told: unknown[] = []
    const others: string[] = []
    let runs = 0
    receiver.observe({ failed: (given) => void told.push(given) })
    receiver
      .on('data', ({ vin }) => {
        if (vin !== 'A') return undefined
        runs += 1
        return fail()
      })
      .on('*', ({ vin }) => void others.push(vin ?? ''))
    await post(data('A', 1))
    await send(data('B', 1))
    for (const [ms, attempts] of [
      [0, 1],
      [100, 2],
      [200, 3],
      [60_000, 3],
    ] as const) {
      await clock.advance(ms)
      expect({ runs, others: others.toSorted() }).toEqual({ runs: attempts, others: ['A', 'B'] })
    }
    if (!name.includes('cannot be read') || error !== undefined) expect(told).toEqual([error, error, error])
    else expect(told).toHaveLength(3)
    const [letter] = await Array.fromAsync(receiver.deadLetters.list())
    expect(letter).toMatchObject({ attempts: 3, event: { topic: 'data', vin: 'A' }, error: expect.any(String) })
    if (error instanceof Error) expect(letter?.error).toBe(`RangeError: ${error.message}`)
    expect(receiver.stats()).toMatchObject({
      received: 2,
      handled: 1,
      deadLettered: 1,
      retried: 2,
      lanes: 0,
      running: 0,
    })
    expect(clock.timers()).toEqual([])
  })

  test('one that hangs fails after timeoutMs, its signal is aborted, and its lane goes on', async () => {
    const { receiver, post, clock } = scene({ timeoutMs: 1000, retry: { attempts: 1 } })
    const reasons: unknown[] = []
    const seen: unknown[] = []
    receiver.on('data', ({ data: { Odometer } }, { signal }) => {
      seen.push(Odometer)
      signal.addEventListener('abort', () => reasons.push(signal.reason))
      return Odometer === 1 ? new Promise(() => {}) : undefined
    })
    await post([data('A', 1), data('A', 2)])
    await clock.advance(999)
    expect({ seen, reasons }).toEqual({ seen: [1], reasons: [] })
    await clock.advance(1)
    expect(seen).toEqual([1, 2])
    expect(reasons).toEqual([expect.objectContaining({ code: 'handler_timeout' })])
    expect(reasons[0]).toBeInstanceOf(FleethookError)
    expect(await Array.fromAsync(receiver.deadLetters.list())).toMatchObject([
      { error: expect.stringContaining('1000 ms') },
    ])
  })

  test('a signal that nobody looked at in time reads as aborted afterwards', async () => {
    const { receiver, post, clock } = scene({ timeoutMs: 1000, retry: { attempts: 1 } })
    let late: (() => boolean) | undefined
    receiver.on('data', (_, context) => {
      late = () => context.signal.aborted
      return new Promise(() => {})
    })
    await post(data('A', 1))
    await clock.advance(1000)
    expect(late?.()).toBe(true)
  })

  test('a rejection that comes after the timeout changes nothing', async () => {
    const { receiver, post, clock } = scene({ timeoutMs: 1000, retry: { attempts: 1 } })
    const gate = gates()
    receiver.on('data', () => gate.wait('late'))
    await post(data('A', 1))
    await clock.advance(1000)
    gate.fail('late', new Error('late'))
    await turn()
    expect(receiver.stats()).toMatchObject({ deadLettered: 1, handled: 0 })
  })
})

describe('back-off', () => {
  test('doubles from minMs up to maxMs, at least half of it', async () => {
    const { receiver, send, clock } = scene({ retry: { attempts: 8, minMs: 1000, maxMs: 10_000 } })
    receiver.on('data', () => {
      throw new Error('always')
    })
    await send(data('A', 1))
    for (const ceiling of [1000, 2000, 4000, 8000, 10_000, 10_000, 10_000]) {
      const [restMs = 0, ...others] = clock.timers()
      expect(others).toEqual([])
      expect(restMs).toBeGreaterThanOrEqual(ceiling / 2)
      expect(restMs).toBeLessThanOrEqual(ceiling)
      await clock.advance(restMs)
    }
    expect(clock.timers()).toEqual([])
    expect(receiver.stats()).toMatchObject({ deadLettered: 1, retried: 7 })
  })

  test('is partly random, so that messages that failed together do not come back together', async () => {
    const { receiver, post, clock } = scene({ retry: { minMs: 10_000 }, concurrency: 200 })
    receiver.on('data', ({ vin }) => {
      // The handler works for some vehicles, so its circuit breaker stays closed.
      if (vin.startsWith('VIN')) throw new Error('always')
    })
    for (let n = 0; n < 100; n += 1) await post([data(`VIN${n}`, n), data(`GOOD${n}`, n)])
    await turn()
    expect(new Set(clock.timers()).size).toBeGreaterThan(50)
  })
})

test('failures count as attempts until the handler rests, and not while it rests', async () => {
  for (const [attempts, dead] of [
    [1, 4],
    [2, 0],
  ] as const) {
    const { receiver, post, clock } = scene({ retry: { attempts } })
    receiver.on('data', () => Promise.reject(new Error('no')))
    await post(Array.from({ length: 20 }, (_, n) => data(`A${n}`, 1)))
    await clock.advance(300_000)
    expect(receiver.stats()).toMatchObject({ deadLettered: dead, pending: { messages: 20 - dead } })
  }
})

test('a handler that ends after its time limit is reported, because it ran beside its retry', async () => {
  const { receiver, post, clock, lines } = scene({ timeoutMs: 1_000, retry: { minMs: 10_000, maxMs: 10_000 } })
  const gate = gates()
  const attempts: number[] = []
  const vin = '0FLEETV14T0000004'
  const ids: string[] = []
  receiver.on('data', function save(_, { delivery: { attempt, id } }) {
    attempts.push(attempt)
    ids.push(id)
    return attempt === 1 ? gate.wait('first') : undefined
  })
  await post(data(vin, 1))
  await clock.advance(12_000)
  expect(attempts).toEqual([1, 2])
  gate.open('first')
  await turn()
  expect(receiver.stats()).toMatchObject({ handled: 1, deadLettered: 0 })
  const said = lines.filter((line) => line.includes('ended after its time limit'))
  expect(said).toEqual([
    expect.stringContaining(
      `{"handler":"save","topic":"data","vehicle":"…0004","delivery":"${ids[0]}","attempt":1,"lateMs":11000}`,
    ),
  ])
})

test('handlers that end late are reported at most once in ten seconds, those of a batch with their number', async () => {
  const { receiver, post, clock, lines } = scene({ timeoutMs: 1_000, retry: { attempts: 1 } })
  const gate = gates()
  receiver.on('data', ({ vin }) => gate.wait(vin))
  let calls = 0
  receiver.batch('state', { size: 2, withinMs: 100 }, function insert() {
    return gate.wait(`batch ${(calls += 1)}`)
  })
  for (let n = 0; n < 3; n += 1) await post(data(`V${n}`, n))
  for (const vin of ['A', 'B']) await post(state(vin, 'online'))
  await clock.advance(5_000)
  for (let n = 0; n < 3; n += 1) gate.open(`V${n}`)
  gate.open('batch 1')
  await turn()
  const said = lines.filter((line) => line.includes('ended after its time limit'))
  expect(said).toHaveLength(2)
  expect(said.join('\n')).toMatch(
    /"handler":"insert","topic":"state","vehicle":"…A","delivery":"[^"]+","attempt":1,"messages":2,"lateMs":4\d{3}/,
  )
})

describe('dead letters', () => {
  const giveUp = { retry: { attempts: 1 } }

  test('are limited in number, and dropped ones are counted', async () => {
    const { memoryInbox } = await import('fleethook')
    const { receiver, post } = scene({ ...giveUp, inbox: memoryInbox({ deadLetters: 3 }) })
    receiver.on('data', () => {
      throw new Error('no')
    })
    for (let n = 0; n < 10; n += 1) await post(data('A', n))
    await turn()
    const letters = await Array.fromAsync(receiver.deadLetters.list())
    expect(letters.map(({ event }) => (event.topic === 'data' ? event.data.Odometer : undefined))).toEqual([7, 8, 9])
    expect(receiver.stats()).toMatchObject({ deadLettered: 10, deadLettersDropped: 7 })
  })

  test('are limited to the bytes of pending messages', async () => {
    const body = JSON.stringify(data('A', 1))
    const { receiver, send } = scene({ ...giveUp, limits: { pendingBytes: body.length * 2 } })
    receiver.on('data', () => {
      throw new Error('no')
    })
    for (let n = 0; n < 5; n += 1) await send(body)
    expect(await Array.fromAsync(receiver.deadLetters.list())).toHaveLength(2)
    expect(receiver.stats()).toMatchObject({ deadLettered: 5, deadLettersDropped: 3 })
  })

  test('replay hands the message over again, under the same id and as replayed, to all of its handlers', async () => {
    const { receiver, post, clock } = scene({ retry: { attempts: 2, minMs: 100 } })
    const deliveries: unknown[] = []
    const others: string[] = []
    let broken = true
    receiver
      .on('data', (event, { delivery }) => {
        deliveries.push({ ...delivery, event: event.id })
        if (broken) throw new Error('broken')
      })
      .on('*', (event) => void others.push(event.topic))
    await post(data('A', 1))
    await clock.advance(100)
    const [letter] = await Array.fromAsync(receiver.deadLetters.list())
    broken = false
    expect(await receiver.deadLetters.replay(letter?.id ?? '')).toBe(1)
    await turn()
    expect(await Array.fromAsync(receiver.deadLetters.list())).toEqual([])
    const { id } = letter ?? {}
    const event = letter?.event.topic === 'data' ? letter.event.id : undefined
    expect(deliveries).toEqual([
      { id, event, attempt: 1, redelivered: false, replayed: false },
      { id, event, attempt: 2, redelivered: true, replayed: false },
      { id, event, attempt: 1, redelivered: false, replayed: true },
    ])
    expect(others).toEqual(['data', 'data'])
    expect(await receiver.deadLetters.replay(letter?.id ?? '')).toBe(0)
    expect(receiver.stats()).toMatchObject({ received: 1, replayed: 1, handled: 1, deadLettered: 1 })
  })

  test('replay goes to the end of its lane', async () => {
    const { receiver, send } = scene(giveUp)
    const gate = gates()
    const seen: unknown[] = []
    receiver.on('data', async ({ data: { Odometer } }, { delivery }) => {
      seen.push(Odometer)
      if (Odometer === 1 && !delivery.replayed) throw new Error('no')
      await gate.wait(String(Odometer))
    })
    await send([data('A', 1), data('A', 2), data('A', 3)])
    const [letter] = await Array.fromAsync(receiver.deadLetters.list())
    await receiver.deadLetters.replay(letter?.id ?? '')
    gate.open('2')
    await turn()
    gate.open('3')
    await turn()
    expect(seen).toEqual([1, 2, 3, 1])
  })
})

test('a log that throws or rejects stops nothing', async () => {
  const bad = (): void => {
    throw new Error('log')
  }
  const worse = (): Promise<void> => Promise.reject(new Error('log'))
  // oxlint-disable-next-line no-misused-promises
  const { receiver, post } = scene({ retry: { attempts: 1 }, log: { debug: bad, info: bad, warn: bad, error: worse } })
  receiver.on('data', ({ data: { Odometer } }) => {
    if (Odometer === 1) throw new Error('no')
  })
  expect(await post([data('A', 1), data('A', 2)])).toMatchObject({ status: 200 })
  await turn()
  expect(receiver.stats()).toMatchObject({ handled: 1, deadLettered: 1, lanes: 0 })
})

test('of a handler in a transaction that takes too long, the log says that it may wait for itself', async () => {
  const { receiver, post, clock, lines } = scene({ timeoutMs: 1_000, retry: { attempts: 1 } })
  const once = createOnce<object>({ database: 'postgres', run: async () => 1, transaction: (work) => work({}) })
  receiver.on(
    'data',
    once('billing', () => new Promise(() => {})),
  )
  await post(data('A', 1))
  await clock.advance(1_000)
  expect(lines.join('\n')).toMatch(/"handler":"billing".*takes a second connection of the pool of its transaction/)
})
