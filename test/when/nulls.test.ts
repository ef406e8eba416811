import fc from 'fast-check'
import { createReceiver, type FieldValues, memoryInbox, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { fakeClock, vehicle } from 'fleethook/testing'
import {
  all,
  any,
  becomes,
  below,
  ceases,
  changed,
  circle,
  crosses,
  drives,
  type Edge,
  ends,
  enters,
  episode,
  is,
  leaves,
  moves,
  silent,
  span,
  starts,
} from 'fleethook/when'
import { describe, expect, test } from 'vitest'
import { inForm } from '../form.ts'
import { createFiles } from '../inbox/sqlite-files.ts'
import { silent as silentLog } from '../vehicles/scene.ts'

const vin = '0FLEETV14T0000004'
const startMs = Date.UTC(2026, 10, 21, 10)
const minute = (at: Date): number => (at.getTime() - startMs) / 60_000
const files = createFiles()
const depot = circle({ latitude: 52, longitude: 5, radiusMeters: 200 })
const fields = ['Gear', 'BatteryLevel', 'Locked', 'DetailedChargeState', 'Location', 'VehicleSpeed'] as const

function scene(edges: Readonly<Record<string, Edge>>, inbox = memoryInbox(), clock = fakeClock(startMs)) {
  const told: string[] = []
  const receiver = createReceiver({ secret: false, log: silentLog, clock, inbox, parts: [vehicles({ fields })] })
  for (const [name, edge] of Object.entries(edges))
    receiver.when(edge, ({ change }) => void told.push(`${name} ${minute(change.at)}`))
  const car = vehicle(receiver, vin, { clock })
  /** A message that the vehicle sent at this minute. */
  const sent = (minutes: number, data: FieldValues): Promise<void> =>
    car.data(data, { createdAt: new Date(startMs + minutes * 60_000).toISOString() })
  return { clock, car, sent, receiver, told }
}

describe('null keeps the last value, so a rule with a time goes on:', () => {
  const inTheDepot = { latitude: 52, longitude: 5 }
  const away = { latitude: 52.004, longitude: 5 }
  const pluggedIn = is('DetailedChargeState', 'Stopped')
  test.each<readonly [name: string, edge: Edge, before: FieldValues, begins: FieldValues, nothing: FieldValues]>([
    ['becomes', becomes('Locked', false), { Locked: true }, { Locked: false }, { Locked: null }],
    ['starts', starts(is('Locked', false)), { Locked: true }, { Locked: false }, { Locked: null }],
    ['ends', ends(is('Locked', true)), { Locked: true }, { Locked: false }, { Locked: null }],
    [
      'starts(all)',
      starts(all(is('Gear', 'P'), below('BatteryLevel', 20))),
      { Gear: 'D', BatteryLevel: 10 },
      { Gear: 'P' },
      { Gear: null, BatteryLevel: null },
    ],
    [
      'plugged in and not charging',
      starts(pluggedIn, { first: true }),
      {},
      { DetailedChargeState: 'Stopped' },
      { DetailedChargeState: null },
    ],
    [
      'in an area',
      starts(all(pluggedIn, is('Location', inTheDepot))),
      { DetailedChargeState: 'Stopped', Location: away },
      { Location: inTheDepot },
      { Location: null },
    ],
  ])('%s', async (_, edge, before, begins, nothing) => {
    const after = Reflect.get(edge, 'after')({ minutes: 5 })
    for (const isTwice of [false, true]) {
      const { car, clock, told } = scene({ after })
      await car.data(before)
      await car.data(begins)
      await car.wait({ minutes: 2 })
      await car.data(nothing)
      if (isTwice) await car.data(begins)
      await clock.advance(3_600_000)
      expect(told).toEqual(['after 5'])
    }
  })

  test('also over a restart with a file, and null begins nothing', async () => {
    const path = files.path()
    const edges = {
      open: becomes('Locked', false).after({ minutes: 5 }),
      low: crosses('BatteryLevel', { below: 20, first: true }),
      in: enters(depot, { first: true }),
      parked: starts(is('Gear', 'P'), { first: true }),
    }
    const first = scene(edges, sqliteInbox({ path }))
    await first.car.data({ Locked: true, BatteryLevel: null, Location: null, Gear: null })
    await first.car.data({ Locked: false })
    await first.car.data({ Locked: null })
    await first.receiver.drain()
    expect(first.told).toEqual([])
    const { car, told, receiver, clock } = scene(edges, sqliteInbox({ path }), first.clock)
    await receiver.open()
    await car.data({ Locked: null })
    await clock.advance(360_000)
    await expect.poll(() => told).toEqual(['open 5'])
    await receiver.drain()
  })

  test('with `invalid: true`, null ends what lasts, and the same value begins it again', async () => {
    const { car, told } = scene({ open: becomes('Locked', false, { invalid: true }).after({ minutes: 5 }) })
    await car.data({ Locked: true })
    await car.data({ Locked: false })
    await car.wait({ minutes: 2 })
    await car.data({ Locked: null })
    await car.wait({ minutes: 10 })
    await car.data({ Locked: false })
    await car.wait({ minutes: 6 })
    expect(told).toEqual(['open 17'])
  })
})

describe('a null that overtakes a value does not throw it away:', () => {
  const edges = { parks: becomes('Gear', 'P'), parked: starts(is('Gear', 'P')).after({ minutes: 5 }) }

  test.each([3, 2, 1])('sent at minute %d, and the value at minute 2', async (nullAt) => {
    const { clock, receiver, sent, told } = scene(edges)
    await sent(0, { Gear: 'D' })
    await clock.advance(180_000)
    await sent(nullAt, { Gear: null })
    await sent(2, { Gear: 'P' })
    const state = await receiver.vehicles.get(vin)
    expect(state?.value('Gear')).toBe('P')
    expect(state?.since('Gear')).toEqual(new Date(startMs + 120_000))
    expect(state?.invalidSince('Gear')).toEqual(nullAt > 2 ? new Date(startMs + nullAt * 60_000) : undefined)
    await clock.advance(3_600_000)
    expect(told).toEqual(['parks 2', 'parked 7'])
  })

  test('nor does one of a clock that is ahead', async () => {
    const { clock, receiver, sent } = scene(edges)
    await sent(0, { Gear: 'D' })
    await clock.advance(60_000)
    await sent(4, { Gear: null })
    await sent(3.9, { Gear: 'P' })
    expect((await receiver.vehicles.get(vin))?.value('Gear')).toBe('P')
    await clock.advance(60_000)
    await sent(1.99, { Gear: 'R' })
    const state = await receiver.vehicles.get(vin)
    expect(state?.value('Gear')).toBe('R')
    expect(state?.invalidSince('Gear')).toBeUndefined()
  })

  test('and an older value than the one that is known stays older', async () => {
    const { clock, receiver, sent } = scene(edges)
    await clock.advance(600_000)
    await sent(5, { Gear: 'P' })
    await sent(8, { Gear: null })
    await sent(4, { Gear: 'D' })
    expect((await receiver.vehicles.get(vin))?.value('Gear')).toBe('P')
  })
})

describe('a null says no more than a message about something else:', () => {
  const isLow = below('BatteryLevel', 20)
  const edges: Readonly<Record<string, Edge>> = {
    parks: becomes('Gear', 'P', { first: true }),
    leaves: ceases('Gear', 'P'),
    changed: changed('BatteryLevel', { delta: 15 }),
    low: crosses('BatteryLevel', { below: 20, again: 25 }),
    in: enters(depot, { first: true }),
    out: leaves(depot, { first: true, marginMeters: 50 }),
    starts: starts(all(is('Gear', 'P'), isLow)),
    ends: ends(any(is('Gear', 'P'), isLow), { first: true }),
    where: becomes('Gear', 'P').where(isLow),
    after: starts(all(is('Gear', 'P'), isLow), { first: true }).after({ minutes: 3 }),
    open: becomes('Gear', 'D').after({ minutes: 2 }).where(isLow),
    fresh: starts(below('BatteryLevel', 20, { freshFor: { minutes: 2 } })).after({ minutes: 3 }),
    drives: starts(drives()).after({ minutes: 4 }),
    moves: starts(moves({ meters: 300, within: { minutes: 3 } })),
    rests: ends(moves({ meters: 300, within: { minutes: 3 } })),
    lost: silent({ minutes: 5 }),
    trip: episode('trip', { during: drives(), joins: { minutes: 1 }, measures: { level: span('BatteryLevel') } }),
  }
  const place = fc.integer({ min: 0, max: 5 }).map((step) => ({ latitude: 52 + step / 500, longitude: 5 }))
  const line = fc.record({
    data: fc.oneof(
      fc.record({ Gear: fc.constantFrom('P', 'D', null) }),
      fc.record({ BatteryLevel: fc.constantFrom(10, 18, 22, 30, null) }),
      fc.record({ Location: fc.option(place) }),
    ),
    wait: fc.integer({ min: 0, max: 4 }),
    ago: fc.constantFrom(0, 0, 0, 1, 3, 6),
  })

  test('whatever the edge is, also when messages overtake each other', async () => {
    const happened = new Set<string>()
    await fc.assert(
      fc.asyncProperty(fc.array(line, { minLength: 1, maxLength: 15 }), async (lines) => {
        const run = async (isSent: boolean): Promise<readonly string[]> => {
          const { clock, sent, told } = scene(edges)
          await clock.advance(600_000)
          for (const { data, wait, ago } of lines) {
            await clock.advance(wait * 60_000)
            const isNone = Object.values(data).includes(null)
            await sent((clock.now() - startMs) / 60_000 - ago, isNone && !isSent ? { Locked: true } : data)
          }
          await clock.advance(30 * 60_000)
          return told
        }
        const told = await run(true)
        expect(told).toEqual(await run(false))
        for (const one of told) happened.add(one.split(' ')[0] ?? '')
      }),
      { numRuns: inForm({ short: 10, full: 100, long: 3_000 }) },
    )
    expect(happened.size).toBeGreaterThan(10)
  }, 600_000)
})
