import { AsyncLocalStorage } from 'node:async_hooks'
import { dedupe, FleethookError, memoryInbox, type Observer } from 'fleethook'
import type { ObservedRun, RunEnd } from 'fleethook/extend'
import { describe, expect, test } from 'vitest'
import { data, scene } from '../dispatch/scene.ts'

/** An observer that records its reports. */
function recording(): { readonly told: unknown[][]; readonly observer: Observer } {
  const told: unknown[][] = []
  const note =
    (name: string) =>
    (...given: unknown[]): void =>
      void told.push([name, ...given])
  return {
    told,
    observer: {
      attached: note('attached'),
      received: note('received'),
      refused: note('refused'),
      tested: note('tested'),
      failed: note('failed'),
      settled: note('settled'),
      dead: note('dead'),
      gap: note('gap'),
    },
  }
}

const names = (told: readonly unknown[][]): unknown[] => told.map(([name]) => name)

describe('an observer', () => {
  test('gets reports of a message from its receipt to its end', async () => {
    const { told, observer } = recording()
    const { receiver, post, clock } = scene({ observe: observer, retry: { attempts: 2 } })
    receiver.on('data', ({ vin }) => {
      if (vin === 'BAD') throw new Error('no')
    })
    await post(data('A', 1))
    await post(data('BAD', 2))
    await clock.advance(2_000)
    await post('nothing')
    await clock.advance(10)
    const order = [
      ...['attached', 'received', 'received', 'settled', 'failed', 'failed', 'dead', 'gap', 'refused', 'settled'],
      ...['settled'],
    ]
    expect(names(told)).toEqual(order)
    const first = (name: string): unknown[] => told.find(([said]) => said === name) ?? []
    expect(first('received')).toMatchObject(['received', [{ event: { vin: 'A', topic: 'data' }, door: 'root' }]])
    const handled = { vin: 'A', outcome: 'handled', attempts: 1, event: { topic: 'data' } }
    expect(first('settled')).toMatchObject(['settled', handled])
    const run = { kind: 'handler', event: { vin: 'BAD' }, delivery: { attempt: 1 }, nextAt: expect.any(Date) }
    expect(first('failed')).toMatchObject(['failed', new Error('no'), run])
    expect(first('dead')).toMatchObject(['dead', { error: 'Error: no', attempts: 2 }])
    expect(first('refused')).toMatchObject(['refused', { error: 'body_not_json', isAuthentic: true }])
  })

  test('receives duplicates, lost messages, and gaps', async () => {
    const { told, observer } = recording()
    const twice = scene({ observe: observer, parts: [dedupe({ withinMs: 60_000 })] })
    twice.receiver.on('data', () => {})
    await twice.post(data('A', 1))
    await twice.clock.advance(10)
    await twice.post(data('A', 1))
    await twice.clock.advance(10)
    const full = scene({ observe: observer, limits: { pendingMessages: 2 } })
    full.receiver.on('data', () => new Promise(() => {}))
    for (let n = 0; n < 4; n += 1) await full.post(data('B', n))
    const drained = full.receiver.drain({ deadlineMs: 0 })
    await full.clock.advance(10_000)
    await drained
    const small = scene({ observe: observer, limits: { pendingMessages: 1 } })
    small.receiver.on('data', () => {})
    await Promise.all([small.post(data('C', 1)), small.post(data('D', 1))])
    await small.clock.advance(1_000)
    const outcomes = told.flatMap(([name, message]) =>
      name === 'settled' && typeof message === 'object' && message !== null ? [Reflect.get(message, 'outcome')] : [],
    )
    expect(new Set(outcomes)).toEqual(new Set(['handled', 'duplicate', 'lost']))
    expect(told.find(([name]) => name === 'gap')).toMatchObject(['gap', { topic: 'gap', reason: 'inbox_full' }])
  })

  test('can be added to a running receiver, and removed', async () => {
    const { told, observer } = recording()
    const { receiver, post, clock } = scene()
    receiver.on('data', () => {})
    const remove = receiver.observe(observer)
    await post(data('A', 1))
    await clock.advance(10)
    expect(names(told)).toEqual(['attached', 'received', 'settled'])
    remove()
    await post(data('A', 2))
    await clock.advance(10)
    expect(told).toHaveLength(3)
  })

  test.each([
    [
      'throws',
      () => {
        throw new Error('of the observer')
      },
    ],
    ['rejects', () => Promise.reject(new Error('of the observer'))],
    ['never ends', () => new Promise(() => {})],
  ])('that %s in every member changes nothing, and the next observer is told everything', async (kind, bad) => {
    const { told, observer } = recording()
    const broken: Observer = {
      ...{ attached: bad, received: bad, refused: bad, tested: bad, around: bad },
      ...{ failed: bad, settled: bad, dead: bad, gap: bad },
    }
    const { receiver, post, clock, lines } = scene({ observe: [broken, observer], retry: { attempts: 1 } })
    receiver.on('data', ({ vin }) => {
      if (vin === 'BAD') throw new Error('no')
    })
    for (const body of [data('A', 1), data('BAD', 2)]) expect((await post(body)).status).toBe(200)
    expect((await post('nothing')).status).toBe(400)
    await clock.advance(1_000)
    expect(receiver.stats()).toMatchObject({ received: 2, handled: 1, deadLettered: 1 })
    const expected = ['attached', 'received', 'settled', 'failed', 'dead', 'refused', 'gap']
    expect(new Set(names(told))).toEqual(new Set(expected))
    if (kind !== 'never ends') expect(lines.some((line) => line.startsWith('error: an observer failed'))).toBe(true)
  })

  test('of another shape is refused when the receiver is created', () => {
    const given: unknown = { received: 'yes' }
    expect(() => scene({ observe: given as Observer })).toThrow(FleethookError)
  })
})

describe('around', () => {
  test('wraps each attempt, and learns what the handler threw', async () => {
    const ends: (RunEnd & { readonly what: ObservedRun })[] = []
    const observer: Observer = {
      async around(run, what) {
        ends.push({ ...(await run()), what })
      },
    }
    const { receiver, post, clock } = scene({ observe: observer, retry: { attempts: 2 } })
    let runs = 0
    receiver.on('data', async () => {
      runs += 1
      await Promise.resolve()
      if (runs === 1) throw new Error('once')
    })
    await post(data('A', 1))
    await clock.advance(2_000)
    expect(ends.map(({ failure, what }) => [failure?.error, what.isBatch, what.messages[0]?.delivery])).toMatchObject([
      [new Error('once'), false, { attempt: 1, redelivered: false }],
      [undefined, false, { attempt: 2, redelivered: true }],
    ])
    expect(receiver.stats()).toMatchObject({ handled: 1, retried: 1 })
  })

  test('can be a span of the Workers platform, whose callback gets the span', async () => {
    const spans: string[] = []
    const tracing = {
      async enterSpan<Result>(name: string, within: (span: object) => Promise<Result>): Promise<Result> {
        spans.push(`begin ${name}`)
        const result = await within({ setAttribute() {} })
        spans.push(`end ${name}`)
        return result
      },
    }
    const observe: Observer = {
      around: (run, { messages }) => tracing.enterSpan(`process ${messages[0]?.event.topic}`, run),
    }
    const { receiver, post, clock } = scene({ observe })
    receiver.on('data', () => void spans.push('handler'))
    await post(data('A', 1))
    await clock.advance(10)
    expect(spans).toEqual(['begin process data', 'handler', 'end process data'])
    expect(receiver.stats()).toMatchObject({ handled: 1 })
  })

  test.each(['one message', 'a batch'])('%s: what starts next is outside of its context', async (kind) => {
    const spans = new AsyncLocalStorage<string>()
    const outside: unknown[] = []
    const observe: Observer = {
      around: (run) => {
        outside.push(spans.getStore())
        return spans.run('a span', run)
      },
    }
    const { receiver, post, clock } = scene({ observe, concurrency: 1, retry: { attempts: 2, minMs: 100 } })
    const failed = new Set<string>()
    const handle = async (vin: string): Promise<void> => {
      await Promise.resolve()
      if (failed.has(vin)) return
      failed.add(vin)
      throw new Error('once')
    }
    if (kind === 'one message') receiver.on('data', ({ vin }) => handle(vin))
    else receiver.batch('data', { size: 1, withinMs: 0 }, ([first]) => handle(first?.vin ?? ''))
    await post(['A', 'B', 'C', 'D'].map((vin) => data(vin, 1)))
    await clock.advance(10_000)
    expect(receiver.stats()).toMatchObject({ handled: 4, retried: 4, running: 0 })
    expect(outside).toEqual(Array.from({ length: 8 }, () => undefined))
  })

  test('wraps the run of a batch once', async () => {
    const seen: number[] = []
    const { receiver, post, clock } = scene({
      observe: { around: (run, { messages }) => run().then(() => seen.push(messages.length)) },
    })
    receiver.batch('data', { size: 3, withinMs: 100 }, () => {})
    for (const vin of ['A', 'B', 'C']) await post(data(vin, 1))
    await clock.advance(200)
    expect(seen).toEqual([3])
    expect(receiver.stats()).toMatchObject({ handled: 3 })
  })

  test('runs handlers once, whatever the observer does with `run`', async () => {
    let runs = 0
    const observe: Observer[] = [
      { around: () => {} },
      { around: (run) => Promise.all([run(), run()]) },
      { around: (run) => void setTimeout(() => void run(), 0) },
    ]
    const { receiver, post, clock } = scene({ observe })
    receiver.on('data', () => {
      runs += 1
    })
    await post(data('A', 1))
    await clock.advance(10)
    expect(runs).toBe(1)
    expect(receiver.stats()).toMatchObject({ handled: 1, retried: 0 })
  })
})

describe('a test message', () => {
  const marked = { fleethook: { test: '2d6b3a30-5a3c-4d8e-9a52-0c3cf7b2f001' } }

  test('is answered, counted and reported, and reaches neither a handler nor the inbox', async () => {
    const { told, observer } = recording()
    const { receiver } = scene({ observe: observer, secret: 'a-long-random-value' })
    const handled: unknown[] = []
    receiver.on('*', (event) => void handled.push(event)).on('malformed', (body) => void handled.push(body))
    const send = (authorization: string): Promise<Response> | Response =>
      receiver.fetch(
        new Request('http://localhost/', { method: 'POST', headers: { authorization }, body: JSON.stringify(marked) }),
      )
    expect((await send('wrong')).status).toBe(403)
    const answer = await send('a-long-random-value')
    expect([answer.status, await answer.json()]).toEqual([200, { text: 'Success', code: 0 }])
    expect(receiver.stats()).toMatchObject({ tests: 1, received: 0, pending: { messages: 0 } })
    expect(handled).toEqual([])
    const [, message] = told.find(([name]) => name === 'tested') ?? []
    expect(message).toMatchObject({ test: marked.fleethook.test, door: 'root', encoding: 'identity', bytes: 61 })
    expect(message).toHaveProperty('headers', expect.arrayContaining([{ name: 'authorization', length: 19 }]))
    expect(JSON.stringify(message)).not.toContain('a-long-random-value')
  })

  test('can stand in a batch with telemetry, and on the paths of the collector', async () => {
    const { receiver, post } = scene({ inbox: memoryInbox() })
    expect((await post([data('A', 1), marked, data('B', 1)])).status).toBe(200)
    const path = '/services/collector/event'
    expect((await receiver.accept({ authorization: undefined, body: marked, path })).status).toBe(200)
    expect(receiver.stats()).toMatchObject({ tests: 2, received: 2 })
  })

  test.each([[{ fleethook: { test: 7 } }], [{ fleethook: { test: '' } }], [{ ...marked, vin: 'A' }]])(
    'is not %j: that is an unknown message',
    async (body) => {
      const { receiver, post } = scene()
      expect((await post(body)).status).toBe(200)
      expect(receiver.stats()).toMatchObject({ tests: 0, received: 1, topics: { unknown: 1 } })
    },
  )
})
