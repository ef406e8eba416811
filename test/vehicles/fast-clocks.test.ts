import { createReceiver, type Log, memoryInbox, vehicles } from 'fleethook'
import { fakeClock } from 'fleethook/testing'
import { becomes, comesOnline, goesOffline, starts, is, alertStarts } from 'fleethook/when'
import { describe, expect, test } from 'vitest'
import { durablePlaces, type Place, places } from './places.ts'
import { silent } from './scene.ts'

const vin = '0FLEETV14T0000001'
const minute = 60_000
const week = 7 * 24 * 60 * minute

function car(
  inbox: ReturnType<Place['next']>,
  clock = fakeClock(),
  parts = vehicles({ fields: ['Gear', 'BatteryLevel'] }),
) {
  const told: string[] = []
  const warned: string[] = []
  const log: Log = { ...silent, warn: (line) => void warned.push(line) }
  const receiver = createReceiver({ secret: false, clock, log, inbox, parts: [parts] as const })
    .when(becomes('Gear', 'P'), ({ change }) => void told.push(`P${change.acrossGap ? '~' : ''}`))
    .when(becomes('Gear', 'D'), ({ change }) => void told.push(`D${change.acrossGap ? '~' : ''}`))
    .when(comesOnline(), () => void told.push('online'))
    .when(goesOffline(), () => void told.push('offline'))
    .when(alertStarts(), ({ change }) => void told.push(`alert ${change.at.getTime() - clock.now()}`))
    .when(starts(is('Gear', 'R')).after({ minutes: 30 }), () => void told.push('R for 30 minutes'))
  return {
    receiver,
    clock,
    told,
    warned,
    /** Sends a message that the vehicle's clock stamps this much later than the receipt, and lets time pass. */
    async says(message: object, aheadMs = 0, thenMs = 100): Promise<void> {
      const createdAt = new Date(clock.now() + aheadMs).toISOString()
      const { status } = await receiver.accept({ authorization: undefined, body: { ...message, vin, createdAt } })
      expect(status).toBe(200)
      while (receiver.stats().pending.messages > 0) await clock.advance(0)
      await clock.advance(thenMs)
    },
    gear: async () => (await receiver.vehicles.get(vin))?.value('Gear'),
  }
}

const gear = (Gear: string | null): object => ({ data: { Gear } })
const memory = (): ReturnType<Place['next']> => memoryInbox()

describe('a clock that is ahead', () => {
  test.each(places)('and is corrected a moment later makes no value vanish, %s', async (_, open) => {
    const { says, told, receiver, clock } = car(open().next())
    await says(gear('R'), -500)
    await says(gear('P'), 30_000, 300)
    await says(gear('D'), -400)
    expect(told).toEqual(['P', 'D'])
    const vehicle = await receiver.vehicles.get(vin)
    expect(vehicle?.at('Gear')?.getTime()).toBeLessThanOrEqual(clock.now())
    expect(vehicle?.since('Gear')).toEqual(vehicle?.at('Gear'))
  })

  test.each([0, 50])(
    'and is corrected, with a receiver %i ms behind, loses nothing in one upload or after it',
    async (behindMs) => {
      for (const farMs of [6_000, 30_000, 4 * minute, 40 * minute])
        for (const thenMs of [0, 20, 2_000]) {
          const { says, told, gear: now, receiver, clock } = car(memory())
          const alert = (name: string, aheadMs: number): object => ({
            alerts: [{ name, startedAt: new Date(clock.now() + aheadMs).toISOString() }],
          })
          await says(gear('R'), behindMs - 300)
          await says({ state: 'asleep' }, farMs, thenMs)
          await says(alert('Low', farMs), farMs, thenMs)
          const saidMs = clock.now() + farMs
          await says(gear('P'), farMs, thenMs)
          for (const value of ['D', 'P', 'D', 'P', 'D', 'P', 'D']) await says(gear(value), behindMs, thenMs)
          expect(told.filter((each) => /^[PD]/.test(each))).toEqual(['P', 'D', 'P', 'D', 'P', 'D', 'P', 'D'])
          await says({ state: 'online' }, behindMs, thenMs)
          expect((await receiver.vehicles.get(vin))?.online).toBe(true)
          await says(alert('High', behindMs), behindMs, thenMs)
          await says(alert('Low', behindMs + 10), behindMs + 10, thenMs)
          expect(told.filter((each) => each.startsWith('alert'))).toHaveLength(3)
          // What the fast clock stamped before the correction comes late.
          const aheadMs = saidMs - 100 - clock.now()
          if (aheadMs > 5_000) await says(gear('R'), aheadMs)
          expect(await now()).toBe('D')
          expect((await receiver.vehicles.get(vin))?.isCertain('Gear')).toBe(true)
        }
    },
  )

  test('and is corrected does not make an alert of the past new', async () => {
    const { says, told, clock } = car(memory())
    const alert = (aheadMs: number): object => ({
      alerts: [{ name: 'Low', startedAt: new Date(clock.now() + aheadMs).toISOString() }],
    })
    await says(alert(30_000), 30_000)
    for (const agoMs of [60_000, 3_600_000]) await says(alert(-agoMs), 50)
    expect(told).toHaveLength(1)
  })

  test.each([50, 2_000, 4 * minute])(
    'by %i ms in each message, and falls back by weeks, is noticed',
    async (aheadMs) => {
      const { says, gear: now, warned } = car(memory())
      for (const value of ['R', 'P', 'D']) await says(gear(value), aheadMs, 10_000)
      for (let message = 0; message < 12; message += 1)
        await says(gear(message % 2 === 0 ? 'P' : 'R'), aheadMs - 1_024 * week, 10_000)
      expect(await now()).toBe('R')
      expect(warned.filter((line) => line.includes('clock'))).not.toEqual([])
    },
  )

  test('and reports no value does not hide the value that follows', async () => {
    const { says, told, receiver } = car(memory())
    await says(gear('P'), -300)
    await says(gear(null), 30_000, 200)
    await says(gear('D'), -400)
    expect(told).toEqual(['D'])
    await says(gear('P'), 40_000, 200)
    await says(gear(null), -300)
    expect((await receiver.vehicles.get(vin))?.invalidSince('Gear')).toBeInstanceOf(Date)
    await says(gear('D'), -300)
    expect(told).toEqual(['D', 'P', 'D'])
  })

  test('in a state or a connection does not keep the vehicle online', async () => {
    const { says, told } = car(memory())
    await says({ state: 'asleep' }, -300)
    await says({ state: 'online' }, 30_000, 200)
    await says({ state: 'asleep' }, -300)
    const link = { networkInterface: 'wifi', connectionId: 'a' }
    await says({ ...link, status: 'CONNECTED' }, 30_000, 200)
    await says({ ...link, status: 'DISCONNECTED' }, -300)
    expect(told).toEqual(['online', 'offline', 'online', 'offline'])
  })

  test.each(durablePlaces)('is remembered as such by the next process, %s', async (_, open) => {
    const place = open()
    const first = car(place.next())
    await first.says(gear('R'), -300)
    await first.says(gear('P'), 30_000)
    await first.receiver.drain()
    const next = car(place.next(), first.clock)
    await next.says(gear('R'), -5_000)
    await next.says(gear('D'), -150)
    expect(next.told.map((one) => one.slice(0, 1))).toEqual(['D'])
    await next.receiver.drain()
  })
})

describe('a clock that was set back', () => {
  /** What it sends live, once in each 20 seconds, with each value twice. */
  async function live(one: ReturnType<typeof car>, behindMs: number, messages: number): Promise<void> {
    for (let n = 0; n < messages; n += 1) await one.says(gear(n % 4 < 2 ? 'D' : 'P'), -behindMs - 200, 20_000)
  }

  test.each([
    ['a day', 24 * 60 * minute],
    ['1,024 weeks', 1_024 * week],
    ['20 minutes', 20 * minute],
  ])('by %s counts after a minute of live messages, and somebody is told', async (_, behindMs) => {
    const one = car(memory())
    await one.says({ data: { BatteryLevel: 50 } }, -200)
    await live(one, 0, 6)
    one.told.length = 0
    await live(one, behindMs, 3)
    expect([one.told, one.receiver.stats().clocksBehind]).toEqual([[], 0])
    await live(one, behindMs, 9)
    expect(one.told.slice(0, 3)).toEqual(['P', 'D', 'P'])
    const vehicle = await one.receiver.vehicles.get(vin)
    expect(Math.abs((vehicle?.clockBehindMs ?? 0) - behindMs)).toBeLessThan(1_000)
    expect(vehicle?.ageMs('Gear')).toBeLessThan(minute)
    // A value of it may have been lost in that minute.
    expect([vehicle?.isCertain('Gear'), vehicle?.isCertain('BatteryLevel')]).toEqual([true, false])
    expect(one.receiver.stats().clocksBehind).toBe(1)
    expect(one.warned).toEqual([expect.stringContaining('the clock of a vehicle was set back')])
    // Its own late messages are still older.
    await one.says(gear('R'), -behindMs - 5 * minute)
    expect(await one.gear()).not.toBe('R')
    await one.says({ alerts: [{ name: 'Low' }] }, -behindMs - 200)
    expect(Math.abs(Number(one.told.at(-1)?.slice(6)))).toBeLessThan(1_000)
    // It is right again.
    await one.says(gear('R'), -200)
    expect(await one.gear()).toBe('R')
    expect((await one.receiver.vehicles.get(vin))?.clockBehindMs).toBeUndefined()
    expect(one.receiver.stats().clocksBehind).toBe(0)
  })

  test('starts no time that has passed long ago', async () => {
    const one = car(memory())
    await live(one, 0, 6)
    await live(one, week, 12)
    await one.says(gear('R'), -week)
    expect(one.told).not.toContain('R for 30 minutes')
    await one.clock.advance(31 * minute)
    expect(one.told).toContain('R for 30 minutes')
  })

  test('is something else than messages that are uploaded late, however many and however slowly', async () => {
    for (const [stepMs, everyMs] of [
      [minute, 0],
      [minute, 10],
      [minute, 1_000],
      [minute, 5_000],
      [7_000, 1_200],
      [9_000, 6_000],
    ] as const) {
      const one = car(memory())
      await one.says(gear('P'), -200)
      one.told.length = 0
      // Of the past: a message each 7 seconds to a minute, and live messages only before and after.
      for (let n = 120; n > 0; n -= 1) await one.says(gear(n % 2 === 0 ? 'D' : 'R'), -n * stepMs - 60 * minute, everyMs)
      expect([stepMs, everyMs, one.told, await one.gear()]).toEqual([stepMs, everyMs, [], 'P'])
      expect(one.receiver.stats().clocksBehind).toBe(0)
    }
  })

  test('is something else than a second way of messages that is always late', async () => {
    const one = car(memory())
    await one.says(gear('P'), -200)
    for (let n = 0; n < 60; n += 1) {
      await one.says(gear('D'), -10 * minute, 2_000)
      await one.says({ data: { BatteryLevel: n } }, -200, 2_000)
    }
    expect([await one.gear(), one.receiver.stats().clocksBehind]).toEqual(['P', 0])
  })

  test.each([0, 3 * minute])(
    'is something else than messages that overtake each other by less than a minute, with a clock that is ahead by %d',
    async (aheadMs) => {
      const one = car(memory())
      await one.says({ data: { BatteryLevel: 50 } }, -200 + aheadMs)
      await one.says({ data: { BatteryLevel: 51 } }, aheadMs, 1_000)
      // For a minute, no message is newer than that one.
      for (const lateMs of [59_000, 60_000, 62_000, 62_000, 62_000, 62_500])
        await one.says(gear(lateMs === 62_500 ? 'R' : 'D'), aheadMs - lateMs, 15_000)
      const vehicle = await one.receiver.vehicles.get(vin)
      expect([vehicle?.clockBehindMs, one.receiver.stats().clocksBehind]).toEqual([undefined, 0])
      expect(vehicle?.isCertain('BatteryLevel')).toBe(true)
    },
  )

  test('and ahead before that counts after a minute too, and is not called behind', async () => {
    const one = car(memory())
    await live(one, -4 * minute, 6)
    one.told.length = 0
    await live(one, -2 * minute, 8)
    expect(one.told.length).toBeGreaterThan(0)
    expect((await one.receiver.vehicles.get(vin))?.clockBehindMs).toBeUndefined()
  })

  test.each(durablePlaces)('is found across a restart, %s', async (_, open) => {
    const place = open()
    const first = car(place.next())
    await live(first, 0, 4)
    await live(first, week, 4)
    await first.receiver.drain()
    const next = car(place.next(), first.clock)
    await live(next, week, 4)
    expect((await next.receiver.vehicles.get(vin))?.clockBehindMs).toBeGreaterThan(week - minute)
    await next.receiver.drain()
    const third = car(place.next(), first.clock)
    await live(third, week, 1)
    expect(third.receiver.stats().clocksBehind).toBe(1)
    await third.receiver.drain()
  })
})

describe('connections that arrive out of order', () => {
  /** A message, how far the vehicle's clock is ahead, and the time that passes then. Or whether the vehicle is online, or what was told. */
  type Step = readonly [message: object, aheadMs: number, thenMs?: number] | boolean | string
  const link = (connectionId: string | undefined, status: string, networkInterface = 'cellular'): object => ({
    ...{ connectionId, status, networkInterface },
  })
  const opens = (id: string | undefined, aheadMs = 0, thenMs = 100, network = 'cellular'): Step => [
    link(id, 'CONNECTED', network),
    aheadMs,
    thenMs,
  ]
  const closes = (id: string | undefined, aheadMs = 0, thenMs = 100, network = 'cellular'): Step => [
    link(id, 'DISCONNECTED', network),
    aheadMs,
    thenMs,
  ]
  const is = (state: string, aheadMs = 0): Step => [{ state }, aheadMs]

  test.each<readonly [name: string, steps: readonly Step[]]>([
    [
      'a connection that is over does not bring the vehicle online',
      [
        opens('a', -5_000),
        closes('a', -4_000),
        closes('b', -1_000),
        opens('b', -3_000),
        false,
        'offline',
        [gear('P'), 0],
        false,
        opens('c'),
        true,
        'offline online',
      ],
    ],
    ...[0, 50, 1_000, 30_000].map(
      (ms) =>
        [
          `nor one whose messages are ${ms} ms ahead of their receipt`,
          [
            opens('a', 0, 0),
            closes('a', ms, 2_000),
            opens('a', ms / 2 - 2_000),
            false,
            closes('b', ms + 2_000),
            opens('b', ms + 1_000),
            false,
            opens('c', 50),
            true,
            closes('c', 50),
            false,
          ],
        ] as const,
    ),
    [
      'nor one whose start is late, by a clock that was minutes ahead and is right at its end',
      [
        opens('a', 120_000),
        closes('a', -200),
        opens('a', 115_000),
        false,
        closes('b', -200),
        opens('b', 120_000),
        false,
        opens('c', 120_000),
        true,
      ],
    ],
    [
      'a vehicle that is asleep has no connection any more',
      [opens('c', 120_000), is('asleep', -200), opens('c', 115_000), false, opens('d', 100_000), true],
    ],
    [
      'a late state, end or start does not count',
      [
        is('online'),
        opens('w'),
        is('asleep', -60_000),
        true,
        closes('w', -60_000),
        true,
        is('asleep'),
        false,
        opens('w', -60_000),
        false,
      ],
    ],
    [
      'the end of an old connection after the start of the next leaves the vehicle online',
      [opens('a', -5_000), opens('b', -1_000), closes('a', -2_000), true, closes('b'), false],
    ],
    [
      'of two networks the vehicle is online while one is open, also when its start comes after a newer state',
      [
        opens('w', -5_000, 100, 'wifi'),
        is('online', -2_000),
        opens('c', -3_000),
        closes('w', -1_000, 100, 'wifi'),
        true,
        closes('c'),
        false,
      ],
    ],
    [
      'a network without an id is opened again in the same moment, and not by a late start',
      [
        opens(undefined, -5_000, 0),
        closes(undefined, -1_000, 0),
        opens(undefined, -2_000, 0),
        false,
        opens(undefined, -1_000, 0),
        true,
      ],
    ],
  ])('%s', async (_, steps) => {
    const { says, told, receiver } = car(memory())
    for (const step of steps)
      if (typeof step === 'boolean') expect((await receiver.vehicles.get(vin))?.online).toBe(step)
      else if (typeof step === 'string') expect(told.join(' ')).toBe(step)
      else await says(...step)
  })

  test.each(durablePlaces)('is known to the next process, and takes little room, %s', async (_, open) => {
    const place = open()
    const first = car(place.next())
    for (let n = 0; n < 50; n += 1) {
      await first.says(link(`n${n}`, 'CONNECTED'), -300)
      await first.says(link(`n${n}`, 'DISCONNECTED'), -200)
    }
    await first.says(link('b', 'DISCONNECTED'), -200)
    await first.receiver.drain()
    const next = car(place.next(), first.clock)
    await next.says(link('b', 'CONNECTED'), -10_000)
    expect((await next.receiver.vehicles.get(vin))?.online).toBe(false)
    await next.receiver.drain()
  })
})
