import type { ReceiverOptions } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { describe, expect, test } from 'vitest'
import { createFiles } from '../inbox/sqlite-files.ts'
import { disk, storedInbox } from '../inbox/stored-inbox.ts'
import { turn } from './fake-clock.ts'
import { data, gates, scene } from './scene.ts'

const files = createFiles()
describe('a handler that fails for every vehicle', () => {
  test.each<[string, Partial<ReceiverOptions>]>([
    ['in memory', { limits: { pendingMessages: 100_000 } }],
    ['with SQLite', { inbox: sqliteInbox({ path: files.path() }) }],
  ])(
    'rests: ten minutes without its database make no dead letter and keep the order (%s)',
    async (_, options) => {
      /** When each line was logged. */
      const logged = new Map<string, number[]>()
      const note = (line: string): void => void logged.set(line, [...(logged.get(line) ?? []), clock.now()])
      const log = { debug: () => {}, info: () => {}, warn: note, error: note }
      const { receiver, post, clock, drainedIn } = scene({ ...options, log })
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
      for (let second = 0; second < 600; second += 5) {
        const body = Array.from({ length: 5 * perSecond }, () => data(`VIN${sent % 50}`, (sent += 1)))
        expect((await post(body)).status).toBe(200)
        await clock.advance(5_000)
      }
      expect(receiver.stats()).toMatchObject({ handled: 0, deadLettered: 0, paused: [{ handler: 'save' }] })
      expect(runs).toBeLessThan(200)
      const rests = [...logged].find(([line]) => line.startsWith('a handler fails for every vehicle'))
      expect(rests?.[1].length).toBeGreaterThan(10)
      for (const times of logged.values())
        for (const [index, atMs] of times.slice(1).entries())
          expect(atMs - (times[index] ?? 0)).toBeGreaterThanOrEqual(10_000)
      isAway = false
      for (let waited = 0; receiver.stats().pending.messages > 0 && waited < 120; waited += 1)
        await clock.advance(1_000)
      expect(receiver.stats()).toMatchObject({ handled: sent, deadLettered: 0, pending: { messages: 0 } })
      for (const numbers of seen.values())
        expect(numbers).toEqual([...numbers].toSorted((a, b) => Number(a) - Number(b)))
      expect(await drainedIn(2_000)).toMatchObject({ left: 0, lost: 0 })
    },
    180_000,
  )

  test('lets a message wait whose other handler fails for the last time, and it is a dead letter when it is done', async () => {
    const { receiver, post, clock } = scene({ retry: { attempts: 2 } })
    let isAway = true
    const saved: string[] = []
    receiver
      .on('data', function book({ vin }) {
        if (vin === 'X') throw new Error('never')
      })
      .on('data', function save({ vin }) {
        if (isAway) throw new Error('connection refused')
        saved.push(vin)
      })
    await post(['A', 'B', 'C', 'D', 'E'].map((vin) => data(vin, 1)))
    await clock.advance(1_000)
    expect(receiver.stats().paused).toMatchObject([{ handler: 'save' }])
    await post(data('X', 1))
    await clock.advance(30_000)
    expect(receiver.stats()).toMatchObject({ deadLettered: 0, handled: 0 })
    isAway = false
    await clock.advance(120_000)
    expect(saved.toSorted()).toEqual(['A', 'B', 'C', 'D', 'E', 'X'])
    expect(await Array.fromAsync(receiver.deadLetters.list())).toMatchObject([
      { event: { vin: 'X' }, error: 'Error: never' },
    ])
    expect(receiver.stats()).toMatchObject({ deadLettered: 1, handled: 5, lanes: 0 })
  })

  test('counts no attempt during an outage, also when a stop comes before the batch of the message', async () => {
    const on = disk()
    const retry = { attempts: 5, maxAgeMs: 1e9 }
    const first = scene({ inbox: storedInbox(on), retry })
    const gate = gates()
    let mode: 'away' | 'slow' = 'away'
    first.receiver
      .on('data', () => {
        if (mode === 'away') throw new Error('connection refused')
        return gate.wait('save')
      })
      .batch('data', { size: 10, withinMs: 60_000 }, () => {})
    const vins = ['A', 'B', 'C', 'D', 'E']
    await first.post(vins.map((vin) => data(vin, 1)))
    await first.clock.advance(7_200_000)
    mode = 'slow'
    while (gate.waiting.length === 0) await first.clock.advance(1_000)
    const drained = first.receiver.drain({ handlerGraceMs: 1_000 })
    await turn()
    gate.open('save')
    await first.clock.advance(1_000)
    expect(await drained).toEqual({ handled: 0, left: 5, lost: 0 })
    const next = scene({ inbox: storedInbox(on), retry })
    const batched: string[] = []
    next.receiver
      .on('data', () => {})
      .batch('data', { size: 10, withinMs: 100 }, (events) => {
        batched.push(...events.map(({ vin }) => vin))
      })
    await next.receiver.open()
    await next.clock.advance(60_000)
    expect(batched.toSorted()).toEqual(vins)
    expect(next.receiver.stats()).toMatchObject({ handled: 5, deadLettered: 0 })
  })

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
    expect(receiver.stats().paused).toEqual([])
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

  test.each([{ maxAgeMs: 600_000 }, { attempts: 10 }])(
    'takes no attempts and no time from its messages, also when the process ends after a long outage (retry: %j)',
    async (retry) => {
      const on = disk()
      const first = scene({ inbox: storedInbox(on), retry })
      first.receiver.on('data', () => {
        throw new Error('connection refused')
      })
      await first.post([0, 1, 2, 3, 4].map((n) => data(`VIN${n}`, n)))
      for (let minute = 0; minute < 100; minute += 1) await first.clock.advance(60_000)
      expect(first.receiver.stats()).toMatchObject({ deadLettered: 0, handled: 0 })
      expect(first.receiver.stats().retried).toBeGreaterThan(80)
      expect(await first.drainedIn(2_000)).toMatchObject({ left: 5 })
      const next = scene({ inbox: storedInbox(on), retry }, first.clock)
      const tried = new Set<string>()
      next.receiver.on('data', ({ vin }) => {
        if (tried.has(vin)) return
        tried.add(vin)
        if (tried.size % 2 === 0) throw new Error('once')
      })
      await next.receiver.open()
      await next.clock.advance(10_000)
      expect(next.receiver.stats()).toMatchObject({ deadLettered: 0, handled: 5 })
    },
  )

  test('is tried with one message of a batch, and the others wait', async () => {
    const { receiver, post, clock } = scene()
    const sizes: number[] = []
    let isAway = true
    receiver.batch('data', { size: 6, withinMs: 10 }, (events) => {
      sizes.push(events.length)
      if (isAway) throw new Error('connection refused')
    })
    await post([0, 1, 2, 3, 4].map((n) => data(`VIN${n}`, n)))
    await clock.advance(10)
    expect(receiver.stats().paused).toHaveLength(1)
    sizes.length = 0
    await post(['A', 'B', 'C', 'D', 'E', 'F'].map((vin, n) => data(vin, n)))
    await clock.advance(70)
    expect(sizes).toEqual([1, 1, 1, 1, 1, 1])
    await clock.advance(60_000)
    isAway = false
    await clock.advance(60_000)
    expect(new Set(sizes.slice(0, 12))).toEqual(new Set([1]))
    expect(receiver.stats()).toMatchObject({ handled: 11, deadLettered: 0, lanes: 0, paused: [] })
  })

  test('is tried in every rest, although many messages of one vehicle found it paused', async () => {
    const { receiver, post, clock } = scene()
    const gate = gates()
    let isAway = true
    let runs = 0
    receiver.batch('data', { size: 50, withinMs: 10 }, async (events) => {
      runs += 1
      if (isAway && events[0]?.vin === 'PROBE' && runs === 7) await gate.wait('probe')
      if (isAway) throw new Error('connection refused')
    })
    await post([0, 1, 2, 3, 4].map((n) => data(`VIN${n}`, n)))
    await clock.advance(10)
    expect(receiver.stats().paused).toHaveLength(1)
    await post(data('PROBE', 1))
    await clock.advance(10)
    expect(gate.waiting).toEqual(['probe'])
    await post(Array.from({ length: 50 }, (_, n) => data('A', n)))
    await clock.advance(10)
    gate.fail('probe', new Error('connection refused'))
    await clock.advance(1_000)
    runs = 0
    // Rests of 2, 4 and 8 seconds.
    await clock.advance(20_000)
    expect(runs).toBeGreaterThanOrEqual(3)
    isAway = false
    await clock.advance(120_000)
    expect(receiver.stats()).toMatchObject({ handled: 56, deadLettered: 0, lanes: 0, paused: [] })
  })

  test('takes no attempt from a message that only found it paused', async () => {
    const { receiver, send, clock } = scene({ retry: { attempts: 2, minMs: 100 } })
    const gate = gates()
    let isAway = true
    const attempts: number[] = []
    receiver
      .on('data', async function save({ vin }, { delivery }) {
        if (isAway) throw new Error('connection refused')
        if (vin === 'PROBE') await gate.wait('save')
        if (vin === 'A' && attempts.push(delivery.attempt) === 1) throw new Error('no')
      })
      .on('data', () => {})
    await send([0, 1, 2, 3, 4].map((n) => data(`VIN${n}`, n)))
    isAway = false
    await send(data('PROBE', 1))
    await send(data('A', 1))
    gate.open('save')
    await clock.advance(10_000)
    // The number never repeats, also of attempts that do not count.
    expect(attempts).toEqual([2, 3])
    expect(receiver.stats()).toMatchObject({ handled: 7, deadLettered: 0, lanes: 0 })
  })
})
