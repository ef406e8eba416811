import { createReceiver, type FleetEvent } from 'fleethook'
import type { StreamEvent, StreamGap, StreamOptions } from 'fleethook/client'
import type { BuiltInFields } from 'fleethook'
import { fakeClock } from 'fleethook/testing'
import { describe, expect, test } from 'vitest'
import { ended, feed, item } from './sse.ts'
import { refusal, stub, type Stub, vin } from './stub.ts'

const start = Date.UTC(2026, 10, 21, 10)
const time = (seconds: number): string => new Date(start + seconds * 1_000).toISOString()
const retry = { attempts: 2, minMs: 100, maxMs: 1_000 }
const nothingMore = (): Response => new Response(null, { status: 204 })

const data = (values: object, seconds = 0): object => ({ data: values, createdAt: time(seconds), vin })
const cached = (message: object): object => ({ ...message, isCache: true })
const snapshot = (values: object, seconds = 0): string =>
  item(cached({ state: 'online', createdAt: time(0), vin })) + item(cached(data(values, seconds)))

/** Reads a stream to its end. Returns its events, and the gaps among them in their order. */
async function all(
  { client, clock }: Stub,
  options: StreamOptions<BuiltInFields> = {},
  product: string | number = vin,
): Promise<readonly (StreamEvent | StreamGap)[]> {
  const seen: (StreamEvent | StreamGap)[] = []
  const stream = client.stream(product, { ...options, onResumed: (gap) => seen.push(gap) })
  const done = (async () => {
    for await (const event of stream) seen.push(event)
  })()
  await clock.advance(120_000)
  await done
  return seen
}

/** Each event as its topic, with what is new when it is of a snapshot, and each gap as its reason. */
const said = (seen: readonly (StreamEvent | StreamGap)[]): readonly string[] =>
  seen.map((each) => {
    if (!('topic' in each)) return `gap ${each.reason}`
    const { isCache, changed = [] } = each.meta
    return isCache === true ? `${each.topic}: ${changed.join(' ')}` : each.topic
  })

describe('the snapshot of a connection', () => {
  test('is read as events with isCache, and on the first connection everything in it is new', async () => {
    const alerts = { alerts: [{ name: 'a', audiences: [] }], createdAt: time(0), vin }
    const network = { networkInterface: 'WIFI', status: 'CONNECTED', createdAt: time(0), vin }
    const text =
      snapshot({ Soc: 5, Gear: 'ShiftStateP' }) + item(cached(alerts)) + item(cached(network)) + item(data({ Soc: 6 }))
    const seen = await all(stub([ended(text), nothingMore]))
    expect(said(seen)).toEqual(['state: state', 'data: Soc Gear', 'alerts: a', 'connectivity: wifi', 'data'])
    expect(seen[1]).toMatchObject({ data: { Soc: 5, Gear: 'P' }, meta: { isCache: true, changed: ['Soc', 'Gear'] } })
  })

  test('names the alerts, the errors and the network that are new', async () => {
    const old = { name: 'old', startedAt: time(-9), audiences: [] }
    const texts = [[old], [old, { name: 'new', audiences: [] }], [{ ...old, endedAt: time(9) }]].map(
      (alerts, turn) =>
        item(cached({ alerts, createdAt: time(0), vin })) +
        item(cached({ errors: [{ name: 'e', createdAt: time(turn), tags: {} }], createdAt: time(0), vin })) +
        item(
          cached({
            networkInterface: 'wifi',
            status: turn === 2 ? 'DISCONNECTED' : 'CONNECTED',
            createdAt: time(0),
            vin,
          }),
        ),
    )
    const seen = await all(stub([...texts.map((text) => ended(text)), nothingMore], { retry }))
    expect(said(seen)).toEqual([
      'alerts: old',
      'errors: e',
      'connectivity: wifi',
      'alerts: new',
      'errors: e',
      'alerts: old',
      'errors: e',
      'connectivity: wifi',
    ])
  })

  test('with an empty list is new once', async () => {
    const text = item(cached({ alerts: [], createdAt: time(0), vin }))
    expect(said(await all(stub([ended(text), ended(text), nothingMore], { retry })))).toEqual(['alerts: alerts'])
  })

  test('is recognized in what an earlier connection delivered and the new one sends again', async () => {
    const event = item(data({ Soc: 6, Gear: 'ShiftStateP' }, 1))
    const again = snapshot({ Soc: 6, Gear: 'ShiftStateP', Odometer: 7 }, 5)
    const seen = await all(stub([ended(snapshot({ Soc: 5 }) + event), ended(again + event), nothingMore], { retry }))
    expect(said(seen)).toEqual(['state: state', 'data: Soc', 'data', 'data: Odometer'])
  })

  test('`messages` yields every message as it came', async () => {
    const text = snapshot({ Soc: 5 })
    const { client, clock } = stub([ended(text), ended(text), nothingMore], { retry })
    const texts: string[] = []
    const done = (async () => {
      for await (const message of client.stream(vin).messages()) texts.push(message.text)
    })()
    await clock.advance(5_000)
    await done
    expect(texts).toHaveLength(4)
    expect(texts.map((each) => `data: ${each}\n\n`).join('')).toBe(text + text)
  })
})

describe('a planned change of connections is no gap', () => {
  test('when the stream breaks off, and when one attempt to reconnect fails', async () => {
    const first = feed()
    const service = stub([first.answer, refusal(503, 'unavailable'), ended(snapshot({ Soc: 6 }, 1)), nothingMore], {
      retry,
    })
    first.send(snapshot({ Soc: 5 }))
    service.clock.after(1_000, first.breakOff)
    expect(said(await all(service))).toEqual(['state: state', 'data: Soc', 'data: Soc'])
  })

  test('when messages of other topics come before the snapshot', async () => {
    const others =
      item({ credits: { balance: 1 } }) +
      item({ config: { fields: {} }, createdAt: time(0), vin }) +
      'data: no json\n\n'
    const seen = await all(
      stub([ended(snapshot({ Soc: 5 })), ended(others + snapshot({ Soc: 5 })), nothingMore], { retry }),
    )
    expect(said(seen)).toEqual(['state: state', 'data: Soc', 'unknown', 'config'])
  })

  test('for an energy site, when a whole document comes', async () => {
    const site = '2252147638651020'
    const status = (seconds: number): string =>
      item({ live_status: { solar_power: 5 }, createdAt: time(seconds), site_id: site })
    const seen = await all(stub([ended(status(0)), ended(status(9)), nothingMore], { retry }), {}, site)
    expect(said(seen)).toEqual(['live_status', 'live_status'])
  })
})

describe('a gap is', () => {
  test('a connection that was lost for longer than a planned change takes, whatever the snapshot says', async () => {
    const failures = Array.from({ length: 8 }, () => refusal(503, 'unavailable', { 'retry-after': '1' }))
    const answers = [ended(snapshot({ Soc: 5 })), ...failures, ended(snapshot({ Soc: 6 }, 9)), nothingMore]
    expect(said(await all(stub(answers, { retry })))).toEqual([
      'state: state',
      'data: Soc',
      'gap lost_too_long',
      'data: Soc',
    ])
  })

  test('a silence, which is longer than a planned change', async () => {
    const first = feed()
    const service = stub([first.answer, ended(snapshot({ Soc: 5 })), nothingMore], { retry })
    first.send(snapshot({ Soc: 5 }))
    expect(said(await all(service))).toEqual(['state: state', 'data: Soc', 'gap lost_too_long'])
  })

  test('a change after which nothing comes, reported after five seconds', async () => {
    const gaps: StreamGap[] = []
    const live = feed()
    const { client, clock } = stub([ended(snapshot({ Soc: 5 })), live.answer, nothingMore], { retry })
    const controller = new AbortController()
    const options = {
      signal: controller.signal,
      onResumed: (gap: StreamGap) => gaps.push(gap),
    }
    const done = (async () => {
      for await (const _ of client.stream(vin, options));
    })()
    await clock.advance(4_900)
    expect(gaps).toEqual([])
    await clock.advance(300)
    expect(gaps).toMatchObject([{ vin, reason: 'no_snapshot', from: new Date(start) }])
    controller.abort()
    await done
    expect(clock.timers()).toEqual([])
  })

  test('a snapshot without data, on a stream that had data', async () => {
    const online = item(cached({ state: 'online', createdAt: time(0), vin }))
    const answers = [ended(snapshot({ Soc: 5 })), ended(online + item(data({ Soc: 6 }, 1))), nothingMore]
    expect(said(await all(stub(answers, { retry })))).toEqual(['state: state', 'data: Soc', 'gap no_snapshot', 'data'])
  })

  test('the time before the first connection, when the service was not there', async () => {
    const failures = Array.from({ length: 8 }, () => refusal(503, 'unavailable', { 'retry-after': '1' }))
    const [gap] = await all(stub([...failures, ended(snapshot({ Soc: 5 })), nothingMore], { retry }))
    expect(gap).toMatchObject({ reason: 'lost_too_long', from: new Date(start) })
  })

  test('one gap, however many connections it takes to end it', async () => {
    const empty = ended(':\n\n')
    const answers = [ended(snapshot({ Soc: 5 })), empty, empty, ended(item(data({ Soc: 6 }, 1))), nothingMore]
    const seen = await all(stub(answers, { retry }))
    expect(said(seen).slice(2)).toEqual(['gap no_snapshot', 'data'])
    expect(seen[2]).toMatchObject({ from: new Date(start) })
  })

  test('one of the site, for the stream of an energy site', async () => {
    const site = 2252147638651020
    const { client, clock } = stub([ended(item({ live_status: {}, site_id: site })), feed().answer], { retry })
    const gaps: StreamGap[] = []
    const controller = new AbortController()
    const done = (async () => {
      for await (const _ of client.stream(site, { signal: controller.signal, onResumed: (gap) => gaps.push(gap) }));
    })()
    await clock.advance(10_000)
    controller.abort()
    await done
    expect(gaps).toMatchObject([{ siteId: String(site), reason: 'no_snapshot' }])
    expect(gaps[0]).not.toHaveProperty('vin')
    // No vehicle is concerned, so no vehicle is asked.
    const { client: other, asked } = stub(nothingMore)
    for await (const _ of other.refill(gaps[0] ?? {}));
    for await (const _ of other.refill({ meta: { siteId: String(site) } }));
    expect(asked).toEqual([])
  })

  test('and the connection is closed when the loop is left at a gap', async () => {
    const live = feed()
    const { client, clock } = stub([ended(item(data({ Soc: 5 }))), live.answer], { retry })
    const stream = client.stream(vin)[Symbol.asyncIterator]()
    await stream.next()
    const next = stream.next()
    await clock.advance(1_000)
    live.send(item(data({ Soc: 6 }, 1)))
    await next
    await stream.return?.()
    expect(live.cancelled()).toBe(true)
    expect(clock.timers()).toEqual([])
  })
})

test('the time that a reader takes does not count as silence of the stream', async () => {
  const live = feed()
  const { client, asked, clock } = stub([live.answer, nothingMore], { retry })
  live.send(item(data({ Soc: 1 })))
  const seen: unknown[] = []
  const done = (async () => {
    for await (const event of client.stream(vin, { heartbeatTimeoutMs: 5_000 })) {
      seen.push(event.topic)
      await new Promise<void>((resolve) => clock.after(60_000, resolve))
    }
  })()
  await clock.advance(59_000)
  live.send(item(data({ Soc: 2 }, 1)))
  await clock.advance(5_000)
  expect(seen).toHaveLength(2)
  expect(asked).toHaveLength(1)
  live.end()
  await clock.advance(120_000)
  await done
})

describe('receiver.from', () => {
  test('emits a gap at once, even when no message follows it', async () => {
    const clock = fakeClock()
    const seen: FleetEvent[] = []
    const receiver = createReceiver({ secret: false, clock }).on('gap', (gap) => seen.push(gap))
    const done = receiver.from(stub([ended(snapshot({ Soc: 5 })), feed().answer], { clock, retry }).client.stream(vin))
    await clock.advance(10_000)
    expect(seen).toMatchObject([{ vin, reason: 'stream_interrupted', from: new Date(start) }])
    void receiver.drain()
    await clock.advance(0)
    await done
  })
})

/** Time that passes when the service says so. No timer falls due: a wait would end the test. */
function scriptedClock(): { now(): number; pass(ms: number): void; after(): { cancel(): void } } {
  let now = start
  return { now: () => now, pass: (ms) => void (now += ms), after: () => ({ cancel: () => {} }) }
}

/** A service that ends each stream after a few seconds. Values also change while nobody listens. */
function endingService(rounds: number, clock: ReturnType<typeof scriptedClock>) {
  const values: Record<string, number> = {}
  const made: string[] = []
  const encoder = new TextEncoder()
  let state = 'online'
  let changedAt = start
  let round = 0

  function change(field: string): string {
    clock.pass(1)
    changedAt = clock.now()
    const value = (values[field] ?? 0) + 1
    values[field] = value
    made.push(`${field}=${value}`)
    return item({ data: { [field]: value }, createdAt: new Date(changedAt).toISOString(), vin })
  }
  function turn(): string {
    state = state === 'online' ? 'asleep' : 'online'
    made.push(`state=${state}`)
    return item({ state, createdAt: new Date(clock.now()).toISOString(), vin })
  }
  function known(): string {
    const createdAt = new Date(changedAt).toISOString()
    const parts = [{ state }, ...(Object.keys(values).length > 0 ? [{ data: { ...values } }] : [])]
    return parts.map((part) => item({ ...part, createdAt, vin, isCache: true })).join('')
  }

  function answer(): Response {
    if (round === rounds) return nothingMore()
    round += 1
    // Changes while nobody listens. The last one may also be sent live, after the snapshot that already has it.
    if (round % 2 === 0) change('Odometer')
    if (round % 5 === 0) turn()
    const raced = round % 4 === 0 ? change('VehicleSpeed') : ''
    clock.pass(round % 3 === 0 ? 900 : 20)
    const steps: (() => string)[] = [
      () => `retry: 1000\n\n${known()}${raced}`,
      () => change('BatteryLevel') + change('OutsideTemp'),
      () => (clock.pass(700), round % 6 === 0 ? turn() : change('VehicleSpeed')),
      // The last change before the end is no longer sent.
      () => (clock.pass(3_000), round % 7 === 0 && change('InsideTemp'), ':\n\n'),
    ]
    const body = new ReadableStream<Uint8Array>(
      {
        pull(controller) {
          const step = steps.shift()
          if (step === undefined) controller.close()
          else controller.enqueue(encoder.encode(step()))
        },
      },
      { highWaterMark: 0 },
    )
    return new Response(body, { headers: { 'content-type': 'text/event-stream' } })
  }
  return { answer, made }
}

test('of a service that ends streams every few seconds, a thousand times: no gap, no duplicate handler run, nothing missed', async () => {
  const clock = scriptedClock()
  const { answer, made } = endingService(1_000, clock)
  const { client, asked, log } = stub(answer, { clock })
  const seen: string[] = []
  const gaps: unknown[] = []
  const empty: unknown[] = []
  const receiver = createReceiver({ secret: false })
    .on('data', ({ data: values, meta }) => {
      const changed = meta.changed ?? Object.keys(values)
      if (changed.length === 0) empty.push(values)
      for (const field of changed) seen.push(`${field}=${String(Reflect.get(values, field))}`)
    })
    .on('state', (event) => seen.push(`state=${event.state}`))
    .on('gap', (gap) => gaps.push(gap))
  await receiver.from(client.stream(vin, { onResumed: (gap) => gaps.push(gap) }))
  await receiver.drain()

  expect(asked).toHaveLength(1_001)
  expect(gaps).toEqual([])
  expect(empty).toEqual([])
  // The first snapshot says that the vehicle is online.
  expect(seen.toSorted()).toEqual(['state=online', ...made].toSorted())
  expect(receiver.stats()).toMatchObject({ openGaps: 0, lost: 0 })
  expect(log.lines).toEqual([])
})
