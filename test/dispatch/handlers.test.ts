import { createReceiver, type EventOf, type Handler, type HandlerContext } from 'fleethook'
import { describe, expect, expectTypeOf, onTestFinished, test, vi } from 'vitest'
import { turn } from './fake-clock.ts'
import { data, scene, state } from './scene.ts'

const alerts = (vin: string): object => ({ vin, createdAt: '2024-02-24T04:58:44Z', alerts: [{ name: 'Hot' }] })
const errors = (vin: string): object => ({ vin, createdAt: '2024-02-24T04:58:44Z', errors: [{ name: 'E1' }] })

describe('on', () => {
  test("one topic, several, '*' and 'unknown' each get theirs, in the order of registration", async () => {
    const { receiver, send } = scene()
    const seen: string[] = []
    receiver
      .on('data', ({ topic }) => void seen.push(`data: ${topic}`))
      .on(['alerts', 'errors'], ({ topic }) => void seen.push(`either: ${topic}`))
      .on('*', ({ topic }) => void seen.push(`*: ${topic}`))
      .on('unknown', ({ reason }) => void seen.push(`unknown: ${reason}`))
    for (const message of [data('A', 1), alerts('A'), errors('A'), state('A', 'online'), { vin: 'A', what: 1 }])
      await send(message)
    expect(seen).toEqual([
      ...['data: data', '*: data', 'either: alerts', '*: alerts', 'either: errors', '*: errors'],
      ...['*: state', '*: unknown', 'unknown: no_topic'],
    ])
  })

  test('a handler registered for several topics runs once for each message', async () => {
    const { receiver, send } = scene()
    let runs = 0
    receiver.on(['data', '*', 'data', 'state'], () => void (runs += 1))
    await send(data('A', 1))
    expect(runs).toBe(1)
  })

  test('messages whose handlers are done at once need one timer, however many there are', async () => {
    const receiver = createReceiver({ secret: false })
    const done = Promise.withResolvers<void>()
    let runs = 0
    receiver.on('data', () => {
      runs += 1
      if (runs === 20) done.resolve()
    })
    await receiver.open()
    const timers = vi.spyOn(globalThis, 'setTimeout')
    onTestFinished(() => timers.mockRestore())
    await Promise.all(Array.from({ length: 20 }, (_, n) => receiver.accept({ headers: {}, body: data(`V${n}`, n) })))
    await done.promise
    expect(timers).toHaveBeenCalledTimes(1)
  })

  test('a message that no handler is for is handled', async () => {
    const { receiver, send } = scene()
    receiver.on('state', () => {})
    await send(data('A', 1))
    expect(receiver.stats()).toMatchObject({ received: 1, handled: 1 })
  })

  const noHandler: unknown = 'nope'
  test.each<readonly [string, () => unknown, string]>([
    // @ts-expect-error: what a user without types can do
    ['a topic that does not exist', () => scene().receiver.on('date', () => {}), 'There is no topic "date"'],
    // @ts-expect-error: likewise
    ['one of several', () => scene().receiver.on(['data', 'date'], () => {}), 'There is no topic "date"'],
    ['no topic at all', () => scene().receiver.on([], () => {}), 'no topic'],
    // @ts-expect-error: likewise
    ['a topic that is no text', () => scene().receiver.on(undefined, () => {}), 'no topic of type undefined'],
    ['no function', () => scene().receiver.on('data', noHandler as Handler<'data'>), 'is string, not a function'],
    // @ts-expect-error: likewise
    ['fields as text', () => scene().receiver.on('data', { fields: 'Odometer' }, () => {}), '`fields` must be a list'],
    [
      'a misspelled field',
      // @ts-expect-error: likewise
      () => scene().receiver.on('data', { fields: ['Odometer', 'BateryLevel'] }, () => {}),
      'names `BateryLevel`',
    ],
    [
      'a misspelled field of a batch',
      // @ts-expect-error: likewise
      () => scene().receiver.batch('data', { size: 2, withinMs: 1, fields: ['Odometr'] }, () => {}),
      'names `Odometr`',
    ],
    // @ts-expect-error: likewise
    ['vins as text', () => scene().receiver.on('data', { vins: 'A' }, () => {}), '`vins` must be a list'],
    // @ts-expect-error: likewise
    ['an unknown filter', () => scene().receiver.on('data', { field: ['Odometer'] }, () => {}), 'no filter `field`'],
  ])('%s is refused with handler_invalid, naming it', (_, register, text) => {
    expect(register).toThrow(
      expect.objectContaining({ code: 'handler_invalid', message: expect.stringContaining(text) }),
    )
  })
})

describe('filters', () => {
  test.each([
    ['BateryLevel', 'Did you mean `BatteryLevel`?'],
    ['gear', 'Did you mean `Gear`?'],
    ['Mod', 'Did you mean `Mood`?'],
    ['CompletelyElse', "Add a field of your own to the option `fields`, for instance { CompletelyElse: 'any' }."],
  ])('fields: the name %s is refused with the hint "%s"', (name, hint) => {
    const receiver = createReceiver({ secret: false, fields: { Mood: 'string' } })
    const fields: readonly string[] = [name]
    expect(() => receiver.on('data', { fields: fields as readonly 'Gear'[] }, () => {})).toThrow(
      expect.objectContaining({ code: 'handler_invalid', hint: expect.stringContaining(hint) }),
    )
    expect(receiver.on('data', { fields: ['Mood', 'Gear'] }, () => {})).toBe(receiver)
  })

  test('fields: only messages that carry at least one of them, with a value or with null', async () => {
    const { receiver, post, send } = scene()
    const seen: unknown[] = []
    receiver.on(
      '*',
      {
        fields: ['BatteryLevel', 'Soc'],
      },
      (event) => void seen.push(event.topic === 'data' && event.data.Odometer),
    )
    await post(data('A', 1))
    await post(data('A', 2, { BatteryLevel: 80 }))
    await post(data('A', 3, { Soc: null }))
    await send(state('A', 'online'))
    expect(seen).toEqual([2, 3])
  })

  test.each([
    ['a list', ['A', 'C']],
    ['a function', (vin: string) => vin === 'A' || vin === 'C'],
  ])('vins: %s', async (_, vins) => {
    const { receiver, post, send } = scene()
    const seen: unknown[] = []
    receiver.on('*', { vins }, ({ vin }) => void seen.push(vin))
    for (const vin of ['A', 'B', 'C']) await post(data(vin, 1))
    await send({ what: 'without a vin' })
    expect(seen).toEqual(['A', 'C'])
  })

  test('a message must match both filters', async () => {
    const { receiver, send } = scene()
    const seen: unknown[] = []
    receiver.on('data', { vins: ['A'], fields: ['Soc'] }, (event) => void seen.push(event.data.Odometer))
    await send([data('A', 1), data('A', 2, { Soc: 1 }), data('B', 3, { Soc: 1 })])
    expect(seen).toEqual([2])
  })

  test('a filter that throws is the failure of its handler alone', async () => {
    const { receiver, send, clock } = scene({ retry: { attempts: 3, minMs: 100 } })
    const seen: string[] = []
    let asked = 0
    const vins = (): boolean => {
      asked += 1
      if (asked < 3) throw new Error('not now')
      return true
    }
    receiver.on('data', { vins }, () => void seen.push('filtered')).on('data', () => void seen.push('other'))
    await send(data('A', 1))
    expect(seen).toEqual(['other'])
    await clock.advance(10_000)
    expect(seen).toEqual(['other', 'filtered'])
    expect(receiver.stats()).toMatchObject({ handled: 1, lanes: 0 })
  })
})

describe('context', () => {
  test('env holds the bindings of the request that brought the message', async () => {
    const receiver = createReceiver<{ DB: string }>({ secret: false })
    const seen: string[] = []
    receiver.on('data', ({ vin }, { env }) => {
      expectTypeOf(env).toEqualTypeOf<{ DB: string }>()
      seen.push(`${vin} ${env.DB}`)
    })
    await receiver.accept({ authorization: undefined, body: data('A', 1), env: { DB: 'one' } })
    await receiver.accept({ authorization: undefined, body: data('B', 1), env: { DB: 'two' } })
    const body = JSON.stringify(data('C', 1))
    await receiver.fetch(new Request('http://x/', { method: 'POST', body }), { DB: 'three' })
    await turn()
    expect(seen).toEqual(['A one', 'B two', 'C three'])
  })

  test.each([
    ['@hono/node-server', { incoming: {}, outgoing: {} }],
    ['Deno', Object.create({ remoteAddr: {}, completed: Promise.resolve() })],
  ])(
    'env is not the connection that %s passes as the bindings: a waiting message would keep it in memory',
    async (_, connection) => {
      const receiver = createReceiver({ secret: false })
      const seen: unknown[] = []
      receiver.on('data', (_event, { env }) => void seen.push(env))
      const request = new Request('http://x/', { method: 'POST', body: JSON.stringify(data('A', 1)) })
      await receiver.fetch(request, connection)
      await turn()
      expect(seen).toEqual([{}])
    },
  )

  test('env is complete when a host adds something of its own to a connection', async () => {
    const receiver = createReceiver<{ DB: string }>({ secret: false })
    const seen: unknown[] = []
    receiver.on('data', (_event, { env }) => void seen.push(env.DB))
    const request = new Request('http://x/', { method: 'POST', body: JSON.stringify(data('A', 1)) })
    const connection: object = { incoming: {}, outgoing: {} }
    await receiver.fetch(request, { ...connection, DB: 'one' })
    await turn()
    expect(seen).toEqual(['one'])
  })

  test('log is the log of the receiver, env exists without bindings, delivery.id is a UUIDv7', async () => {
    const { receiver, send, lines } = scene()
    const contexts: HandlerContext[] = []
    receiver.on('data', (_, context) => {
      context.log.info('from a handler')
      contexts.push(context)
    })
    await send(data('A', 1))
    expect(lines).toEqual(['info: from a handler {}'])
    expect(contexts[0]?.env).toEqual({})
    expect(contexts[0]?.delivery.id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
    expect(contexts[0]?.signal.aborted).toBe(false)
  })
})

describe('types', () => {
  test('an event is narrowed by its topic without an annotation', () => {
    scene()
      .receiver.on('data', (event) => {
        expectTypeOf(event).toEqualTypeOf<EventOf<'data'>>()
        expectTypeOf(event.topic).toEqualTypeOf<'data'>()
        expectTypeOf(event.data.BatteryLevel).toEqualTypeOf<number | null | undefined>()
      })
      .on(['alerts', 'errors'], (event) => {
        expectTypeOf(event.topic).toEqualTypeOf<'alerts' | 'errors'>()
        if (event.topic === 'alerts') expectTypeOf(event.alerts[0]?.name).toEqualTypeOf<string | undefined>()
      })
      .on('gap', (event) => {
        expectTypeOf(event.from).toEqualTypeOf<Date>()
        expectTypeOf(event.vin).toEqualTypeOf<string | undefined>()
      })
      .on('malformed', (body) => expectTypeOf(body.text).toEqualTypeOf<string>())
      .on('*', (event) => {
        expectTypeOf(event.topic).toEqualTypeOf<EventOf<'*'>['topic']>()
        // @ts-expect-error: not every event has data
        expectTypeOf(event.data).toBeAny()
      })
  })

  test('a handler in a file of its own is typed by its topic', () => {
    const onData: Handler<'data'> = (event, { signal }) => {
      expectTypeOf(event.vin).toEqualTypeOf<string>()
      expectTypeOf(signal).toEqualTypeOf<AbortSignal>()
    }
    const onAny: Handler = (event) => void event.topic
    const { receiver } = scene()
    receiver.on('data', onData).on('data', onAny).on('*', onAny)
    // @ts-expect-error: a handler for data cannot take every event
    receiver.on('*', onData)
  })

  test("a user's own fields extend the type of data, and win over the built-in ones", () => {
    const receiver = createReceiver({ secret: false, fields: { MyField: 'boolean', BatteryLevel: 'string' } })
    receiver.on('data', ({ data: fields }) => {
      expectTypeOf(fields.MyField).toEqualTypeOf<boolean | null | undefined>()
      expectTypeOf(fields.BatteryLevel).toEqualTypeOf<string | null | undefined>()
      expectTypeOf(fields.Odometer).toEqualTypeOf<number | null | undefined>()
    })
  })
})
