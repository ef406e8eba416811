import type { StreamEvent } from 'fleethook/client'
import { describe, expect, test } from 'vitest'
import { ended, feed, item } from './sse.ts'
import { json, refusal, rejection, stub, vin } from './stub.ts'

const createdAt = '2026-11-21T10:00:00.000Z'
const data = (level: number): object => ({ data: { BatteryLevel: String(level) }, createdAt, vin })
const retry = { attempts: 2, minMs: 100, maxMs: 1_000 }

/** Reads this number of events, or all. */
async function take(stream: AsyncIterable<StreamEvent>, count = Infinity): Promise<readonly StreamEvent[]> {
  const events: StreamEvent[] = []
  if (count === 0) return events
  for await (const event of stream) {
    events.push(event)
    if (events.length >= count) break
  }
  return events
}

const levels = (events: readonly StreamEvent[]): unknown[] =>
  events.map((event) => (event.topic === 'data' ? event.data.BatteryLevel : event.topic))

describe('a stream', () => {
  test('asks for the vehicle, the field and the topics', async () => {
    const { client, asked, lines } = stub(ended(item(data(1))))
    await take(client.stream(vin), 1)
    await take(client.stream(vin, { field: 'BatteryLevel' }), 1)
    await take(client.stream(vin, { topics: ['data', 'vehicle_data'] }), 1)
    expect(lines()).toEqual([
      `GET /sse/${vin}`,
      `GET /sse/${vin}/BatteryLevel`,
      `GET /sse/${vin}?topics=data%2Cvehicle_data`,
    ])
    expect(asked.map(({ headers }) => headers.get('accept'))).toEqual(Array(3).fill('text/event-stream'))
  })

  test('does not connect before it is iterated, and closes the connection when the loop is left', async () => {
    const live = feed()
    const { client, asked, clock } = stub(live.answer)
    const stream = client.stream(vin)
    expect(asked).toEqual([])
    live.send(item(data(1)))
    expect(levels(await take(stream, 1))).toEqual([1])
    expect(live.cancelled()).toBe(true)
    expect(clock.timers()).toEqual([])
  })

  test('continues after an item that is not a JSON object, and logs it without its text', async () => {
    const { client, log } = stub(ended(`data: hunter2\n\ndata: [1]\n\ndata: 5\n\n${item(data(1))}`))
    expect(levels(await take(client.stream(vin), 1))).toEqual([1])
    expect(log.lines.join()).toMatch(/not a JSON object/)
    expect(log.lines.join()).not.toContain('hunter2')
  })
})

describe('a stream reconnects', () => {
  test.each([
    ['429', refusal(429, 'too_many_requests')],
    ['503', refusal(503, 'unavailable')],
    ['no answer', () => Promise.reject(new TypeError('fetch failed'))],
  ])('after %s, as often as it takes', async (_name, failing) => {
    const { client, asked, clock } = stub([...Array.from({ length: 9 }, () => failing), ended(item(data(2)))], {
      retry,
    })
    const events = take(client.stream(vin), 1)
    await clock.advance(20_000)
    expect(levels(await events)).toEqual([2])
    expect(asked).toHaveLength(10)
  })

  test('after a silence, and comments are not silence', async () => {
    const live = feed()
    const { client, asked, clock } = stub([live.answer, ended(item(data(2)))], { retry })
    const events = take(client.stream(vin, { heartbeatTimeoutMs: 5_000 }), 1)
    for (let sign = 0; sign < 5; sign += 1) {
      await clock.advance(4_000)
      live.send(':\n')
    }
    await clock.advance(4_900)
    expect(asked).toHaveLength(1)
    await clock.advance(2_000)
    expect(levels(await events)).toEqual([2])
    expect(live.cancelled()).toBe(true)
  })

  test('after no answer in time', async () => {
    const { client, asked, clock } = stub([() => new Promise(() => {}), ended(item(data(2)))], {
      retry,
      timeoutMs: 1_000,
    })
    const events = take(client.stream(vin), 1)
    await clock.advance(2_000)
    expect(levels(await events)).toEqual([2])
    expect(asked).toHaveLength(2)
  })

  test('after waits that grow, and that are short again once an item came', async () => {
    const failing = refusal(503, 'unavailable')
    const waits: number[] = []
    const { client, asked, clock } = stub([failing, failing, failing, ended(item(data(1))), failing], {
      retry: { attempts: 1, minMs: 100, maxMs: 100_000 },
    })
    const controller = new AbortController()
    const done = take(client.stream(vin, { signal: controller.signal }))
    for (let turn = 0; turn < 5; turn += 1) {
      await clock.advance(0)
      waits.push(clock.timers()[0] ?? 0)
      await clock.advance(waits.at(-1) ?? 0)
    }
    controller.abort()
    await done
    const ceilings = [100, 200, 400, 100, 200]
    expect(asked.length).toBeGreaterThanOrEqual(5)
    for (const [turn, ceiling] of ceilings.entries()) {
      expect(waits[turn]).toBeGreaterThanOrEqual(ceiling / 2)
      expect(waits[turn]).toBeLessThanOrEqual(ceiling)
    }
  })

  test('soon, when the connection was open for long without an item', async () => {
    const at: number[] = []
    const { client, clock } = stub(
      () => {
        at.push(clock.now())
        const live = feed()
        for (let beat = 1; beat <= 20; beat += 1) clock.after(beat * 1_000, () => live.send(':\n\n'))
        clock.after(21_000, live.end)
        return live.answer()
      },
      { retry: { attempts: 1, minMs: 100, maxMs: 10_000 } },
    )
    const controller = new AbortController()
    const done = take(client.stream(vin, { signal: controller.signal }))
    await clock.advance(220_000)
    controller.abort()
    await done
    expect(at.length).toBeGreaterThan(9)
    for (const [turn, time] of at.slice(1).entries()) expect(time - (at[turn] ?? 0)).toBeLessThanOrEqual(21_100)
  })

  test.each([
    ['`retry:` in the stream', ended(`retry: 7000\n${item(data(1))}`)],
    ['`Retry-After`', refusal(503, 'unavailable', { 'retry-after': '7' })],
  ])('not before %s allows it', async (_name, first) => {
    const { client, asked, clock } = stub([first, ended(item(data(2)))], { retry })
    const controller = new AbortController()
    const done = take(client.stream(vin, { signal: controller.signal }))
    await clock.advance(6_900)
    expect(asked).toHaveLength(1)
    await clock.advance(200)
    expect(asked.length).toBeGreaterThan(1)
    controller.abort()
    await done
  })

  test('and reports the gap to `onResumed`, whose errors stop nothing', async () => {
    const gaps: unknown[] = []
    const { client, clock } = stub([ended(item(data(1))), refusal(503, 'unavailable'), ended(item(data(2)))], {
      retry,
    })
    const events = take(
      client.stream(vin, {
        onResumed(gap) {
          gaps.push(gap)
          throw new Error('no')
        },
      }),
      2,
    )
    await clock.advance(5_000)
    expect(levels(await events)).toEqual([1, 2])
    const from = new Date(Date.UTC(2026, 10, 21, 10))
    expect(gaps).toEqual([{ vin, from, to: expect.any(Date), reason: 'no_snapshot' }])
  })

  test('and each gap begins with its own interruption', async () => {
    const begun: number[] = []
    const lives = [feed(), feed(), feed()]
    const { client, clock } = stub(
      lives.map(({ answer }) => answer),
      { retry },
    )
    const events = take(client.stream(vin, { onResumed: ({ from }) => begun.push(from.getTime()) }), 3)
    const heard: number[] = []
    for (const [turn, live] of lives.entries()) {
      await clock.advance(10_000)
      heard.push(clock.now())
      live.send(item(data(turn)))
      await clock.advance(5_000)
      if (turn < 2) live.end()
    }
    expect(levels(await events)).toEqual([0, 1, 2])
    expect(begun).toEqual(heard.slice(0, 2))
  })
})

test.each([Number.NaN, 0, -5])('a `heartbeatTimeoutMs` of %s is refused', (heartbeatTimeoutMs) => {
  const { client } = stub(json({}))
  expect(() => client.stream(vin, { heartbeatTimeoutMs })).toThrow('`heartbeatTimeoutMs`')
})

describe('a stream ends', () => {
  test('quietly when its signal is aborted: while it waits for items, between connections, before it begins', async () => {
    const live = feed()
    for (const answers of [live.answer, refusal(503, 'unavailable'), () => new Promise<Response>(() => {})]) {
      const controller = new AbortController()
      const { client, clock } = stub(answers, { retry })
      const done = take(client.stream(vin, { signal: controller.signal }))
      await clock.advance(10)
      controller.abort(new Error('enough'))
      expect(await done).toEqual([])
      expect(clock.timers()).toEqual([])
    }
    expect(live.cancelled()).toBe(true)
    const { client, asked } = stub(live.answer)
    expect(await take(client.stream(vin, { signal: AbortSignal.abort() }))).toEqual([])
    expect(asked).toEqual([])
  })

  test.each([
    [401, 'unauthorized'],
    [403, 'insufficient_scope'],
    [404, 'vehicle_not_found'],
    [400, 'invalid_request'],
  ])('with an error that waiting does not fix: %i %s', async (status, code) => {
    const { client, asked } = stub(refusal(status, code), { retry })
    expect(await rejection(take(client.stream(vin)))).toMatchObject({ status, code })
    expect(asked).toHaveLength(1)
  })

  test('with an error when the answer is not a stream', async () => {
    const { client } = stub(json({}))
    expect(await rejection(take(client.stream(vin)))).toMatchObject({ code: 'answer_unreadable' })
  })
})
