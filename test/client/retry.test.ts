import { describe, expect, test } from 'vitest'
import { readRetryAfter } from '../../src/base/retry-after.ts'
import { baseUrl, json, refusal, rejection, stub, vin } from './stub.ts'

const retry = { attempts: 3, minMs: 100, maxMs: 60_000 }
const busy = refusal(503, 'unavailable')
const products = json({ response: [] })
const broken = (): never => {
  throw new TypeError('fetch failed', { cause: Object.assign(new Error('connect'), { code: 'ECONNREFUSED' }) })
}

describe('an idempotent call is retried', () => {
  test.each([
    ['429', refusal(429, 'too_many_requests')],
    ['500', refusal(500, 'internal')],
    ['502 with a page', () => new Response('<html>', { status: 502 })],
    ['503', busy],
    ['no answer', broken],
  ])('after %s, and leaves no timer when it is answered', async (_name, failing) => {
    const { client, asked, clock } = stub([failing, failing, products], { retry })
    const result = client.products()
    await clock.advance(1_000)
    expect(await result).toEqual([])
    expect(asked).toHaveLength(3)
    expect(clock.timers()).toEqual([])
  })

  test('with the same body', async () => {
    const { client, asked, clock } = stub([busy, json({ ignoredFields: [] })], { retry })
    const result = client.config(vin).patch({ fields: { Gear: { interval_seconds: 1 } } })
    await clock.advance(1_000)
    await result
    expect(asked[1]).toMatchObject({ method: 'PATCH', body: { fields: { Gear: { interval_seconds: 1 } } } })
  })

  test('after waits that grow and are half by chance', async () => {
    const { client, asked, clock } = stub(busy, { retry: { attempts: 4, minMs: 100, maxMs: 250 } })
    const error = rejection(client.products())
    const waits: number[] = []
    for (let before = 0; before < 3; before += 1) {
      await clock.advance(0)
      // The time limit of an attempt can be a timer too.
      const [next = 0] = clock.timers()
      waits.push(next)
      await clock.advance(next)
    }
    await error
    expect(asked).toHaveLength(4)
    for (const [index, ceiling] of [100, 200, 250].entries()) {
      expect(waits[index]).toBeGreaterThanOrEqual(ceiling / 2)
      expect(waits[index]).toBeLessThanOrEqual(ceiling)
    }
  })
})

describe('is not retried', () => {
  test.each([400, 401, 403, 404, 408, 409])('a call that was answered with %i', async (status) => {
    const { client, asked } = stub(refusal(status, 'some_code'), { retry })
    expect(await rejection(client.products())).toMatchObject({ status, code: 'some_code' })
    expect(asked).toHaveLength(1)
  })
})

describe('Retry-After', () => {
  test.each([
    ['in seconds', '20'],
    ['as a date', new Date(Date.UTC(2026, 10, 21, 10, 0, 20)).toUTCString()],
  ])('%s is kept', async (_name, header) => {
    const { client, asked, clock } = stub([refusal(429, 'too_many_requests', { 'retry-after': header }), products], {
      retry,
    })
    const result = client.products()
    await clock.advance(19_990)
    expect(asked).toHaveLength(1)
    await clock.advance(20)
    expect(asked).toHaveLength(2)
    expect(await result).toEqual([])
  })

  test('longer than retry.maxMs ends the call at once, with the wait in the error', async () => {
    const { client, asked } = stub(refusal(429, 'too_many_requests', { 'retry-after': '3600' }), { retry })
    expect(await rejection(client.products())).toMatchObject({ status: 429, retryAfterMs: 3_600_000 })
    expect(asked).toHaveLength(1)
  })

  test.each([
    ['0', 0],
    [' 7 ', 7_000],
    ['1.5', 1_500],
    ['Sat, 21 Nov 2026 10:00:30 GMT', 30_000],
    ['Sat, 21 Nov 2026 09:00:00 GMT', 0],
    ['', undefined],
    ['-5', undefined],
    ['soon', undefined],
    ['5 minutes', undefined],
    ['2026-11-21', undefined],
    ['Sat, 21 Nov 2026 10:00:30', 30_000],
    ['Sat, 21 Nov 2026 10:00:30 +0000', 30_000],
    ['Saturday, 21-Nov-26 10:00:30 GMT', 30_000],
    ['Saturday, 21-Nov-77 10:00:30 GMT', 0],
    ['Sat Nov 21 10:00:30 2026', 30_000],
    ['Wed Dec  2 10:00:00 2026', 11 * 86_400_000],
    ['sat, 21 nov 2026 10:00:30 gmt', 30_000],
    ['Sat, 21 Nov 2026 10:00:30 PST', undefined],
    ['Sat, 21 Foo 2026 10:00:30 GMT', undefined],
    ['Sat Nov 21 10:00:30', undefined],
    ['Sat, 99999999999999999 Nov 2026', undefined],
  ])('%j is %j ms, in every time zone of the machine', (header, ms) => {
    const zone = process.env['TZ']
    try {
      for (const each of ['UTC', 'America/Los_Angeles', 'Asia/Tokyo']) {
        process.env['TZ'] = each
        expect(readRetryAfter(header, Date.UTC(2026, 10, 21, 10))).toBe(ms)
      }
    } finally {
      if (zone === undefined) Reflect.deleteProperty(process.env, 'TZ')
      else process.env['TZ'] = zone
    }
  })
})

describe('time limits', () => {
  const never = (): Promise<Response> => new Promise(() => {})

  test('an attempt without an answer is aborted and counts as failed', async () => {
    const signals: AbortSignal[] = []
    const { client, asked, clock } = stub(
      (_asked, { signal }) => {
        if (signal) signals.push(signal)
        return never()
      },
      { timeoutMs: 1_000, retry: { ...retry, attempts: 2 } },
    )
    const error = rejection(client.products())
    await clock.advance(2_500)
    expect(await error).toMatchObject({
      code: 'timeout',
      status: undefined,
      message: `GET /api/business/products: no answer from ${baseUrl} within 1000 ms.`,
    })
    expect(asked).toHaveLength(2)
    expect(signals.map(({ aborted }) => aborted)).toEqual([true, true])
  })

  test('a body that does not end counts as failed too', async () => {
    const { client, clock } = stub(() => new Response(new ReadableStream()), {
      timeoutMs: 1_000,
      retry: { attempts: 1 },
    })
    const error = rejection(client.products())
    await clock.advance(1_000)
    expect(await error).toMatchObject({ code: 'timeout' })
  })

  test('and ends a wait between two attempts', async () => {
    const controller = new AbortController()
    const { client, asked, clock } = stub(busy, { retry: { attempts: 3, minMs: 1_000, maxMs: 1_000 } })
    const error = rejection(client.products({ signal: controller.signal }))
    await clock.advance(100)
    controller.abort()
    expect(await error).toMatchObject({ name: 'AbortError' })
    expect(asked).toHaveLength(1)
    expect(clock.timers()).toEqual([])
  })

  test('a call with an aborted signal is never sent', async () => {
    const { client, asked } = stub(products)
    expect(await rejection(client.products({ signal: AbortSignal.abort() }))).toMatchObject({ name: 'AbortError' })
    expect(asked).toEqual([])
  })
})
