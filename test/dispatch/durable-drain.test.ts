import type { ReceiverOptions } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { describe, expect, test } from 'vitest'
import { createFiles } from '../inbox/sqlite-files.ts'
import { disk, storedInbox } from '../inbox/stored-inbox.ts'
import { turn } from './fake-clock.ts'
import { data, gates, scene } from './scene.ts'

const files = createFiles()

describe('the drain of a durable inbox', () => {
  test('starts no handler, and leaves waiting messages to the next process in order', async () => {
    const on = disk()
    const first = scene({ inbox: storedInbox(on), concurrency: 1 })
    const gate = gates()
    first.receiver.on('data', ({ data: { Odometer } }) => gate.wait(String(Odometer)))
    await first.post([data('A', 1), data('A', 2), data('B', 3)])
    await turn()
    const drained = first.receiver.drain()
    await turn()
    gate.open('1')
    await first.clock.advance(0)
    expect(await drained).toEqual({ handled: 1, left: 2, lost: 0 })
    const seen: unknown[] = []
    const next = scene({ inbox: storedInbox(on) })
    next.receiver.on('data', ({ data: { Odometer } }) => void seen.push(Odometer))
    await next.receiver.open()
    await turn()
    expect(seen).toEqual([2, 3])
  })

  test('aborts a handler that hangs after `handlerGraceMs`, and its attempt does not count', async () => {
    const on = disk()
    const { receiver, post, clock } = scene({ inbox: storedInbox(on) })
    let aborted = false
    receiver.on('data', (_, { signal }) => {
      signal.addEventListener('abort', () => (aborted = true))
      return new Promise(() => {})
    })
    await post(data('A', 1))
    await turn()
    const drained = receiver.drain({ handlerGraceMs: 500 })
    await clock.advance(499)
    expect(aborted).toBe(false)
    await clock.advance(1)
    expect(aborted).toBe(true)
    expect(await drained).toEqual({ handled: 0, left: 1, lost: 0 })
    const attempts: number[] = []
    const next = scene({ inbox: storedInbox(on) })
    next.receiver.on('data', (_, { delivery }) => void attempts.push(delivery.attempt))
    await next.receiver.open()
    await turn()
    expect(attempts).toEqual([1])
  })

  test('still takes messages until `takeUntil` resolves, and refuses them from then on', async () => {
    const on = disk()
    const { receiver, post } = scene({ inbox: storedInbox(on) })
    receiver.on('data', () => {})
    await receiver.open()
    let close = (): void => {}
    const drained = receiver.drain({ takeUntil: new Promise<void>((resolve) => (close = resolve)) })
    expect((await post(data('A', 1))).status).toBe(200)
    close()
    expect(await drained).toEqual({ handled: 0, left: 1, lost: 0 })
    expect((await post(data('A', 2))).status).toBe(503)
  })

  test('acknowledges a message that the inbox stores after the handlers were aborted', async () => {
    const on = disk()
    const slow: { storing?: Promise<void> } = {}
    const { receiver, post, clock } = scene({ inbox: storedInbox(on, { put: () => slow.storing }) })
    receiver.on('data', () => new Promise(() => {}))
    const numbers = Array.from({ length: 10 }, (_, n) => n + 1)
    for (const n of numbers.slice(0, 8)) await post(data('A', n))
    let store = (): void => {}
    slow.storing = new Promise((resolve) => (store = resolve))
    const late = numbers.slice(8).map((n) => post(data('A', n)))
    await turn()
    let close = (): void => {}
    const takeUntil = new Promise<void>((resolve) => (close = resolve))
    const drained = receiver.drain({ handlerGraceMs: 500, takeUntil })
    await clock.advance(500)
    store()
    expect((await Promise.all(late)).map(({ status }) => status)).toEqual([200, 200])
    close()
    expect(await drained).toMatchObject({ handled: 0, lost: 0 })
    const seen: unknown[] = []
    const next = scene({ inbox: storedInbox(on) })
    next.receiver.on('data', ({ data: { Odometer } }) => void seen.push(Odometer))
    await next.receiver.open()
    await next.clock.advance(1_000)
    expect(seen).toEqual(numbers)
  })

  test("with ack: 'handled' an answer to what was not handled is 503", async () => {
    const { receiver, post, clock } = scene({ inbox: storedInbox(disk()), ack: 'handled' })
    receiver.on('data', () => new Promise(() => {}))
    const answer = post(data('A', 1))
    await turn()
    const drained = receiver.drain()
    await clock.advance(2_000)
    expect((await answer).status).toBe(503)
    expect(await drained).toEqual({ handled: 0, left: 1, lost: 0 })
  })
})

describe('a handler that fails for every vehicle', () => {
  test.each<[string, Partial<ReceiverOptions>]>([
    ['in memory', { limits: { pendingMessages: 100_000 } }],
    ['with SQLite', { inbox: sqliteInbox({ path: files.path() }) }],
  ])(
    'rests: ten minutes without its database make no dead letter and keep the order (%s)',
    async (_, options) => {
      const { receiver, post, clock, lines } = scene(options)
      const seen = new Map<string, unknown[]>()
      let isAway = true
      let runs = 0
      receiver.on('data', async function save({ vin, data: { Odometer } }) {
        runs += 1
        if (isAway) throw new Error('connection refused')
        seen.set(vin, [...(seen.get(vin) ?? []), Odometer])
      })
      await receiver.open()
      const perSecond = 40
      let sent = 0
      /** The number of lines in each ten seconds. */
      const logged: number[] = []
      for (let second = 0; second < 600; second += 5) {
        const before = lines.length
        const body = Array.from({ length: 5 * perSecond }, () => data(`VIN${sent % 50}`, (sent += 1)))
        expect((await post(body)).status).toBe(200)
        await clock.advance(5_000)
        if (second % 10 === 0) logged.push(lines.length - before)
        else logged.push((logged.pop() ?? 0) + lines.length - before)
      }
      expect(receiver.stats()).toMatchObject({ handled: 0, deadLettered: 0, resting: [{ handler: 'save' }] })
      expect(runs).toBeLessThan(200)
      expect(logged).toHaveLength(60)
      expect(Math.max(...logged), lines.join('\n')).toBeLessThanOrEqual(1)
      isAway = false
      for (let waited = 0; receiver.stats().pending.messages > 0 && waited < 120; waited += 1)
        await clock.advance(1_000)
      expect(receiver.stats()).toMatchObject({ handled: sent, deadLettered: 0, pending: { messages: 0 } })
      for (const numbers of seen.values())
        expect(numbers).toEqual([...numbers].toSorted((a, b) => Number(a) - Number(b)))
      const drained = receiver.drain()
      await clock.advance(2_000)
      expect(await drained).toMatchObject({ left: 0, lost: 0 })
    },
    60_000,
  )

  test('does not delay vehicles for which it works', async () => {
    const { receiver, post, clock } = scene({ inbox: storedInbox(disk()) })
    let handled = 0
    receiver.on('data', ({ vin }) => {
      if (vin.startsWith('BAD')) throw new Error('no')
      handled += 1
    })
    for (let n = 0; n < 20; n += 1) await post(data(`BAD${n}`, n))
    await turn()
    for (let n = 0; n < 20; n += 1) await post(data(`GOOD${n}`, n))
    await turn()
    await clock.advance(0)
    expect(handled).toBe(20)
    expect(receiver.stats().resting).toEqual([])
  })

  test('by default a message is retried for an hour with a durable inbox, and for a minute in memory', async () => {
    const lives: number[] = []
    for (const durable of [true, false]) {
      const { receiver, post, clock } = scene(durable ? { inbox: storedInbox(disk()) } : {})
      receiver.on('data', () => {
        throw new Error('always')
      })
      await post(data('A', 1))
      let ms = 0
      while (receiver.stats().deadLettered === 0 && ms < 10_000_000) {
        await clock.advance(5_000)
        ms += 5_000
      }
      lives.push(ms)
    }
    const [disked = 0, memory = 0] = lives
    expect(disked).toBeGreaterThanOrEqual(3_600_000)
    expect(disked).toBeLessThan(3_700_000)
    expect(memory).toBeGreaterThanOrEqual(60_000)
    expect(memory).toBeLessThan(80_000)
  })
})
