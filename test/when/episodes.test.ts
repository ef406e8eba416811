import { createReceiver, type FleetEvent, vehicles } from 'fleethook'
import type { InboxFactory } from 'fleethook/extend'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { normalize } from 'fleethook/normalize'
import type { OnceHandler } from 'fleethook/once'
import { encode } from 'fleethook/normalize'
import { fakeClock, type FakeClock, message } from 'fleethook/testing'
import { all, any, circle, episode, type Episode, type EpisodeOptions, growth, inside, is, type Measures, path, range, rulesFor, span, starts } from 'fleethook/when' // prettier-ignore
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { memoryInbox } from 'fleethook'
import { afterAll, describe, expect, expectTypeOf, test } from 'vitest'
import { type EpisodeScene, episodeScene, fields, type Said, startMs, vin } from './episodes-scene.ts'

const driving = any(is('Gear', 'D'), is('Gear', 'R'), is('Gear', 'N'))
const measures = { odometer: span('Odometer'), energy: span('EnergyRemaining') } as const
const options = { during: driving, joins: { minutes: 3 }, silence: { hours: 1 }, measures } as const
const trip = episode('trip', options)
const folder = mkdtempSync(join(tmpdir(), 'fleethook-episodes-rows-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))
let files = 0

const parked: readonly Said[] = [
  [-600, { Gear: 'P' }],
  [-590, { Odometer: 1000 }],
  [-580, { EnergyRemaining: 50 }],
]
const values: readonly Said[] = [
  [630, { Odometer: 1013 }],
  [645, { EnergyRemaining: 46.5 }],
]
const at = (second: number): Date => new Date(startMs + second * 1_000)
const lasts = (from: number, to: number): object => ({ startedAt: at(from), endedAt: at(to) })
const whole = { odometer: { from: 1000, to: 1013 }, energy: { from: 50, to: 46.5 }, missing: [] }
/** The events of these messages, each received when the receiver would get it. */
const eventsOf = (said: readonly Said[]): FleetEvent[] =>
  said.flatMap(
    ([second, data, late = 0]) =>
    normalize([encode({ ...message.data({}, { vin, createdAt: at(second).toISOString() }), ...('state' in data ? {} : { data }) }, 'service')], { receivedAt: at(second + late) }), // prettier-ignore
  )

const inboxes: readonly (readonly [string, () => InboxFactory])[] = [
  ['in memory', () => memoryInbox()],
  ['in SQLite', () => sqliteInbox({ path: join(folder, `${(files += 1)}.db`) })],
]

describe.each(inboxes)('%s', (_, inbox) => {
  const scene = <Of extends Measures>(of: Partial<EpisodeOptions<Of>> & Pick<EpisodeOptions<Of>, 'measures'>, clock?: FakeClock): EpisodeScene<Episode<Of>> =>
    episodeScene(episode('trip', { ...options, ...of }), clock === undefined ? { inbox: inbox() } : { inbox: inbox(), clock }) // prettier-ignore
  /** What is told of these messages in two hours after the last of them. */
  const told = async <Of extends Measures = typeof measures>(
    said: readonly Said[],
    of?: Partial<EpisodeOptions<Of>> & Pick<EpisodeOptions<Of>, 'measures'>,
  ): Promise<readonly Episode<Of>[]> => {
    const { say, until, told: found, receiver } = of === undefined ? (episodeScene(trip, { inbox: inbox() }) as unknown as EpisodeScene<Episode<Of>>) : scene(of) // prettier-ignore
    await say(...said)
    await until(Math.max(...said.map(([second, , late = 0]) => second + late)) + 7_200)
    const drained = receiver.drain()
    await drained
    return found
  }

  test('the start is the time of the message that made `during` true, and all values with the same time count before', async () => {
    expect(await told([...parked, [0, { Gear: 'D', Odometer: 1001 }], [600, { Gear: 'P' }], ...values])).toMatchObject([
      { ...lasts(0, 600), odometer: { from: 1001, fromAt: at(0) }, acrossGap: false, revision: 1, durationMs: 600_000 },
    ])
  })

  test('it is true with the first message of a vehicle: it starts there, and may have begun earlier', async () => {
    expect(
      await told([[0, { Gear: 'D', Odometer: 1000, EnergyRemaining: 50 }], [600, { Gear: 'P' }], ...values]),
    ).toMatchObject([{ ...lasts(0, 600), acrossGap: true }])
  })

  test('the receiver gets the edge while vehicles are driving: it starts when the value became what it is', async () => {
    const path_ = join(folder, `${(files += 1)}.db`)
    const clock = fakeClock(startMs - 3_600_000)
    const before = episodeScene(starts(is('Locked', true)), { inbox: sqliteInbox({ path: path_ }), clock })
    await before.say(...parked, [0, { Gear: 'D' }], [300, { Gear: 'D', Odometer: 1004 }])
    await before.receiver.drain()
    const after = episodeScene(trip, { inbox: sqliteInbox({ path: path_ }), clock })
    await after.say([310, { Odometer: 1005 }], [600, { Gear: 'P' }], ...values)
    await after.until(4_000)
    // Messages were missing between the two receivers, so it begins with the next value that says so.
    expect(after.told.every((one) => one.acrossGap)).toBe(true)
    await after.receiver.drain()
  })

  test('an interruption that is not longer than `joins` belongs to it', async () => {
    const stop = (seconds: number): readonly Said[] => [...parked, [0, { Gear: 'D' }], [300, { Gear: 'P' }], [300 + seconds, { Gear: 'D' }], [600, { Gear: 'P' }], ...values] // prettier-ignore
    expect(await told(stop(180))).toMatchObject([{ ...lasts(0, 600), ...whole, pausedMs: 180_000 }])
    expect(await told(stop(181))).toMatchObject([lasts(0, 300), lasts(481, 600)])
  })

  test('it is told when it has been over for `joins` and has each value of the end, and otherwise after the longer of `joins` and `waits`', async () => {
    const complete = scene({ measures })
    await complete.say(...parked, [0, { Gear: 'D' }], [600, { Gear: 'P' }], ...values)
    await complete.until(779)
    expect(complete.told).toEqual([])
    await complete.until(781)
    expect(complete.told).toMatchObject([whole])
    const waiting = scene({ joins: { seconds: 10 }, waits: { minutes: 5 }, measures })
    await waiting.say(...parked, [0, { Gear: 'D' }], [590, { Odometer: 1012 }], [600, { Gear: 'P' }], [610, { EnergyRemaining: 46 }]) // prettier-ignore
    await waiting.until(899)
    expect(waiting.told).toEqual([])
    await waiting.until(901)
    expect(waiting.told).toMatchObject([{ odometer: { from: 1000, to: 1012 } }])
  })

  test('`span` is from the last certain value at or before the start, however old, and otherwise from the first after it', async () => {
    const old: readonly Said[] = [[-3_000, { Odometer: 1000 }], [-600, { Gear: 'P' }], [0, { Gear: 'D' }], [45, { EnergyRemaining: 50 }], [600, { Gear: 'P' }], ...values] // prettier-ignore
    expect(await told(old)).toMatchObject([{ ...whole, odometer: { fromAt: at(-3_000) }, energy: { fromAt: at(45) } }])
  })

  test('`span` is to the first value at or after the end, and otherwise to the last one since the start', async () => {
    const said = (...more: readonly Said[]): readonly Said[] => [...parked, [0, { Gear: 'D' }], [590, { Odometer: 1012, EnergyRemaining: 47 }], [600, { Gear: 'P' }], ...more] // prettier-ignore
    expect(await told(said())).toMatchObject([{ odometer: { to: 1012 }, energy: { to: 47 }, missing: [] }])
    expect(await told(said([620, { Odometer: 1013 }], [640, { Odometer: 1014 }]))).toMatchObject([
      { odometer: { to: 1013 } },
    ])
    expect(await told([...parked, [0, { Gear: 'D' }], [600, { Gear: 'P' }]])).toMatchObject([
      { odometer: { from: 1000, to: null, toAt: null }, missing: ['odometer', 'energy'] },
    ])
  })

  test('a value that comes later than `waits` belongs to the end when the vehicle has not moved since', async () => {
    const drive: readonly Said[] = [...parked, [0, { Gear: 'D' }], [300, { Odometer: 1003.2 }], [600, { Gear: 'P' }], [610, { EnergyRemaining: 47 }]] // prettier-ignore
    expect(await told([...drive, [3_600, { Odometer: 1004.8 }]])).toMatchObject([
      { revision: 1, odometer: { to: 1003.2 }, missing: ['odometer'] },
      { revision: 2, odometer: { to: 1004.8 }, missing: [] },
    ])
    const moved = await told([...drive, [2_000, { Gear: 'D' }], [3_000, { Odometer: 1009 }], [3_100, { Gear: 'P' }]])
    expect(moved[0]).toMatchObject({ odometer: { to: 1003.2 }, missing: ['odometer'] })
    expect(moved.filter(({ id }) => id === moved[0]?.id)).toHaveLength(1)
  })

  test('a number that goes the other way after `waits` is not that of the end: the vehicle was charged since', async () => {
    expect(await told([...parked, [0, { Gear: 'D' }], [550, { EnergyRemaining: 47 }], [600, { Gear: 'P' }], [610, { Odometer: 1013 }], [3_000, { EnergyRemaining: 70 }]])).toMatchObject([{ energy: { to: 47 }, revision: 1 }]) // prettier-ignore
  })

  const kwh = { kwh: growth('ACChargingEnergyIn', { startsAt: 0 }) } as const
  const charging = { during: is('DetailedChargeState', 'Charging'), measures: kwh } as const
  const charge = (...said: readonly Said[]): readonly Said[] => [
    [-600, { DetailedChargeState: 'Disconnected' }],
    ...said,
  ]

  test('`growth` is the sum of all increases, a fall to less than half is a reset, and a smaller fall is subtracted', async () => {
    const said = charge([-500, { ACChargingEnergyIn: 10 }], [0, { DetailedChargeState: 'Charging' }], [10, { ACChargingEnergyIn: 10 }], [20, { ACChargingEnergyIn: 1 }], [300, { ACChargingEnergyIn: 5 }], [310, { ACChargingEnergyIn: 4.5 }], [600, { DetailedChargeState: 'Complete' }], [650, { ACChargingEnergyIn: 8 }], [900, { ACChargingEnergyIn: 9 }]) // prettier-ignore
    expect(await told(said, charging)).toMatchObject([{ kwh: 8, missing: [] }])
  })

  test('`growth` without a value before the start counts from the first value, or with `startsAt` from there', async () => {
    const said = charge([0, { DetailedChargeState: 'Charging' }], [10, { ACChargingEnergyIn: 2 }], [600, { DetailedChargeState: 'Complete' }], [620, { ACChargingEnergyIn: 10.4 }]) // prettier-ignore
    expect(await told(said, charging)).toMatchObject([{ kwh: 10.4, missing: [] }])
    const from = { during: charging.during, measures: { kwh: growth('ACChargingEnergyIn') } } as const
    expect(await told(said, from)).toMatchObject([{ kwh: 8.4, missing: [] }])
  })

  test('a measure that gets no value is null, and its name is in `missing`, never 0', async () => {
    const of = { during: charging.during, measures: { kwh: growth('ACChargingEnergyIn'), level: span('BatteryLevel'), speed: range('VehicleSpeed'), route: path() } } as const // prettier-ignore
    const said = charge([0, { DetailedChargeState: 'Charging' }], [600, { DetailedChargeState: 'Complete' }])
    const nothing = {
      kwh: null,
      level: { from: null, to: null },
      speed: { least: null, most: null },
      route: { points: [], meters: null },
    }
    expect(await told(said, of)).toMatchObject([{ ...nothing, missing: ['kwh', 'level', 'speed', 'route'] }])
  })

  test('a first value later than `waits`, or one value for both ends, is there once, and its name is in `missing`', async () => {
    const said: readonly Said[] = [[-600, { Gear: 'P' }], [0, { Gear: 'D' }], [130, { Odometer: 1001 }], [590, { EnergyRemaining: 47 }], [600, { Gear: 'P' }], [610, { Odometer: 1013 }]] // prettier-ignore
    expect(await told(said)).toMatchObject([
      { odometer: { from: 1001, to: 1013 }, energy: { from: 47, to: null }, missing: ['odometer', 'energy'] },
    ])
  })

  const place = (meters: number): { Location: { latitude: number; longitude: number } } => ({ Location: { latitude: 52 + meters / 111_195, longitude: 4 } }) // prettier-ignore

  test('`range` and `path` are from the start to the end without interruptions, and a path has the positions of both ends', async () => {
    const of = { measures: { speed: range('VehicleSpeed'), route: path({ everyMeters: 50 }) } } as const
    const said: readonly Said[] = [[-600, { Gear: 'P', ...place(0) }], [0, { Gear: 'D' }], [10, { VehicleSpeed: 30 }], [60, place(500)], [100, place(510)], [200, { Gear: 'P' }], [210, { VehicleSpeed: 0 }], [260, { Gear: 'D' }], [300, { VehicleSpeed: 70 }], [400, place(1_500)], [600, { Gear: 'P' }], [640, place(2_000)]] // prettier-ignore
    const [found] = await told(said, of)
    expect(found).toMatchObject({ speed: { least: 30, most: 70 }, missing: [] })
    expect(found?.route.points.map(({ latitude }) => Math.round((latitude - 52) * 111_195))).toEqual([
      0, 500, 1_500, 2_000,
    ])
    expect(found?.route.meters).toBeCloseTo(2_000, -1)
  })

  test('a path with more than `mostPoints` has them at twice the distance', async () => {
    const of = { measures: { route: path({ everyMeters: 10, mostPoints: 8 }) } } as const
    const drive: Said[] = Array.from({ length: 60 }, (_, index): Said => [index * 10 + 5, place(index * 20)])
    const [found] = await told(
      [[-600, { Gear: 'P', ...place(0) }], [0, { Gear: 'D' }], ...drive, [600, { Gear: 'P' }], [610, place(1_200)]],
      of,
    )
    expect(found?.route.points.length).toBeLessThanOrEqual(10)
    expect(found?.route.meters).toBeCloseTo(1_200, -1)
  })

  test('messages in another order are sorted by the vehicle’s time before anything is decided', async () => {
    const said: readonly Said[] = [...parked, [0, { Gear: 'D' }], [600, { Gear: 'P' }], ...values]
    const late = said.map(([second, data], index): Said => [
      second,
      data,
      second < 0 ? 0 : ([50, 10, 5, 0][index % 4] ?? 0),
    ])
    expect((await told(late)).at(-1)).toMatchObject({ ...lasts(0, 600), ...whole })
  })

  test('a message after the telling corrects it: the same id and the next revision, once for a burst', async () => {
    const found = await told([...parked, [0, { Gear: 'D' }], [600, { Gear: 'P' }], ...values, [601, { Odometer: 1012 }, 900], [602, { EnergyRemaining: 47 }, 910]]) // prettier-ignore
    expect(found).toMatchObject([
      { revision: 1, odometer: { to: 1013 } },
      { revision: 2, odometer: { to: 1012 }, energy: { to: 47 }, id: found[0]?.id },
    ])
    expect(found).toHaveLength(2)
  })

  test('when a late message shows that two were one, the first is corrected and the second is revoked', async () => {
    const found = await told([...parked, [0, { Gear: 'D' }], [300, { Gear: 'P' }], [310, { Odometer: 1005, EnergyRemaining: 49 }], [600, { Gear: 'D' }], [900, { Gear: 'P' }], [910, { Odometer: 1013, EnergyRemaining: 46.5 }], [450, { Gear: 'D' }, 1_000], [451, { Gear: 'P' }, 1_000]]) // prettier-ignore
    expect(found).toMatchObject([lasts(0, 300), lasts(600, 900), { revision: 2, id: found[0]?.id, ...lasts(0, 900) }, { revision: 2, id: found[1]?.id, revoked: true }]) // prettier-ignore
  })

  test('when a late message shows that one was two, the first is corrected at once, and then the second is told', async () => {
    const found = await told([...parked, [0, { Gear: 'D' }], [550, { Gear: 'D' }], [900, { Gear: 'P' }], [910, { Odometer: 1013, EnergyRemaining: 46.5 }], [300, { Gear: 'P', Odometer: 1005, EnergyRemaining: 49 }, 1_000]]) // prettier-ignore
    expect(found).toMatchObject([lasts(0, 900), { revision: 2, id: found[0]?.id, ...lasts(0, 300) }, { revision: 1, ...lasts(550, 900) }]) // prettier-ignore
  })

  test('a vehicle that uploads hours later, in order, is exact, and one that was cut meanwhile is corrected', async () => {
    const away = (second: number, data: Said[1]): Said => [second, data, 10_000 - second * 0.9]
    const found = await told([...parked, [0, { Gear: 'D' }], away(300, { Odometer: 1005 }), away(600, { Gear: 'P' }), away(630, { Odometer: 1013 }), away(645, { EnergyRemaining: 46.5 })]) // prettier-ignore
    expect(found[0]).toMatchObject({ cut: true, ...lasts(0, 0) })
    expect(found.at(-1)).toMatchObject({ ...lasts(0, 600), ...whole, cut: false, id: found[0]?.id })
  })

  test('a message that comes twice changes nothing', async () => {
    const said: readonly Said[] = [
      ...parked,
      [0, { Gear: 'D' }],
      [300, { Odometer: 1005 }],
      [600, { Gear: 'P' }],
      ...values,
    ]
    const twice = said.flatMap(([second, data]): readonly Said[] => [
      [second, data],
      [second, data, 20],
      [second, data, 800],
    ])
    expect((await told(twice)).map(({ revision }) => revision)).toEqual([1])
  })

  test('a vehicle that is silent for `silence` ended with its last message, and starts again only with a value of the condition', async () => {
    const found = await told([...parked, [0, { Gear: 'D' }], [600, { Odometer: 1013 }], [700, { state: 'online' }], [40_000, { Odometer: 1013 }], [40_100, { Gear: 'D' }], [40_500, { Gear: 'P' }]]) // prettier-ignore
    expect(found).toMatchObject([
      { ...lasts(0, 700), cut: true },
      { ...lasts(40_100, 40_500), cut: false },
    ])
  })

  test('open for too long: without `silence` it goes on, and `after` tells of it', async () => {
    const { say, until, told: found } = episodeScene(episode('trip', { during: driving, measures }), { inbox: inbox() })
    await say(...parked, [0, { Gear: 'D' }])
    await until(90_000)
    expect(found).toEqual([])
    await say([90_100, { Gear: 'P' }])
    await until(91_000)
    expect(found).toMatchObject([lasts(0, 90_100)])
  })

  test('`atLeast` leaves shorter ones out, and one that was told and gets shorter is revoked', async () => {
    const of = { atLeast: { minutes: 5 }, measures } as const
    expect(await told([...parked, [0, { Gear: 'D' }], [200, { Gear: 'P' }]], of)).toEqual([])
    const found = await told(
      [...parked, [0, { Gear: 'D' }], [600, { Gear: 'P' }], ...values, [200, { Gear: 'P' }, 800]],
      of,
    )
    expect(found).toMatchObject([{ revision: 1 }, { revision: 2, revoked: true }])
  })

  test('`until` ends it, and `splits` keeps an interruption from joining', async () => {
    const plugged = { during: is('DetailedChargeState', 'Charging'), until: is('DetailedChargeState', 'Disconnected'), joins: { seconds: 1 }, measures: kwh } as const // prettier-ignore
    const said = charge([0, { DetailedChargeState: 'Charging' }], [600, { DetailedChargeState: 'Complete' }], [5_000, { DetailedChargeState: 'Charging' }], [5_600, { DetailedChargeState: 'Disconnected' }]) // prettier-ignore
    expect(await told(said, { ...plugged, silence: { days: 1 } })).toMatchObject([lasts(0, 5_600)])
    const unplugged: readonly Said[] = charge([0, { DetailedChargeState: 'Charging' }], [600, { DetailedChargeState: 'Disconnected' }], [700, { DetailedChargeState: 'Charging' }], [900, { DetailedChargeState: 'Complete' }]) // prettier-ignore
    expect(await told(unplugged, { ...charging, joins: { minutes: 15 } })).toMatchObject([lasts(0, 900)])
    expect(await told(unplugged, { ...charging, joins: { minutes: 15 }, splits: is('DetailedChargeState', 'Disconnected') })).toMatchObject([lasts(0, 600), lasts(700, 900)]) // prettier-ignore
  })

  test('a condition over two fields starts when the last of them is known', async () => {
    const depot = circle({ latitude: 52, longitude: 4, radiusMeters: 200 })
    const stay = episode('stay', { during: all(is('Gear', 'P'), inside(depot)), silence: { hours: 1 }, measures: {} })
    const { say, until, told: found } = episodeScene(stay, { inbox: inbox() })
    await say([0, { Gear: 'P' }], [100, place(0)], [200, { Gear: 'D' }], [300, place(5_000)], [400, place(0)], [500, { Gear: 'P' }]) // prettier-ignore
    await until(10_000)
    // After the silence, one of the two is reported again.
    await say([20_000, { Gear: 'P' }], [20_100, { Gear: 'D' }])
    await until(30_000)
    expect(found).toMatchObject([lasts(100, 200), { ...lasts(500, 500), cut: true }, { ...lasts(20_000, 20_100), cut: false }]) // prettier-ignore
  })

  test('an episode of the past is the same in a list of events, in any order', async () => {
    const said: readonly Said[] = [...parked, [0, { Gear: 'D' }], [300, { Gear: 'P' }], [360, { Gear: 'D' }], [600, { Gear: 'P' }], ...values, [2_000, { Gear: 'D' }], [2_500, { Gear: 'P' }]] // prettier-ignore
    const found = await told(said)
    expect(trip.in(eventsOf(said).toReversed())).toEqual(found)
  })

  test('`open` is the episode that lasts, so far', async () => {
    const { say, receiver } = episodeScene(trip, { inbox: inbox() })
    await say(...parked)
    const view = await receiver.vehicles.get(vin)
    expect(view && trip.open(view)).toBeUndefined()
    await say([0, { Gear: 'D' }], [300, { Odometer: 1004.2 }])
    const later = await receiver.vehicles.get(vin)
    expect(later && trip.open(later)).toMatchObject({
      ...lasts(0, 300),
      revision: 0,
      odometer: { from: 1000, to: 1004.2 },
    })
    expect(later?.timers).toMatchObject([{ edge: 'trip' }])
    await receiver.vehicles.forget(vin)
    await say([600, { Gear: 'P' }])
    const forgotten = await receiver.vehicles.get(vin)
    expect(forgotten && trip.open(forgotten)).toBeUndefined()
  })
})

test('a span has the type of its field, also of your own', () => {
  const { span: own } = rulesFor({ Mood: { enum: ['Calm', 'Angry'] } } as const)
  const mixed = episode('mixed', { during: driving, measures: { mood: own('Mood'), odometer: span('Odometer'), place: span('Location'), kwh: growth('Odometer') } }) // prettier-ignore
  type Found = NonNullable<ReturnType<typeof mixed.open>>
  expectTypeOf<Found['mood']['from']>().toEqualTypeOf<'Calm' | 'Angry' | null>()
  expectTypeOf<Found['odometer']['to']>().toEqualTypeOf<number | null>()
  expectTypeOf<Found['place']['to']>().toEqualTypeOf<{ readonly latitude: number; readonly longitude: number } | null>()
  expectTypeOf<Found['kwh']>().toEqualTypeOf<number | null>()
  expectTypeOf<Found['revision']>().toEqualTypeOf<number>()
})

test('an option that is wrong is refused with what to do', () => {
  const refused = (name: string, given: object): void => {
    // @ts-expect-error Options of another shape.
    expect(() => episode(name, given)).toThrow(expect.objectContaining({ code: 'option_invalid' }))
  }
  refused('', options)
  refused('x'.repeat(101), options)
  refused('trip', { measures })
  refused('trip', { during: driving })
  refused('trip', { during: driving, measures: { id: span('Odometer') } })
  refused('trip', { during: driving, measures: { missing: span('Odometer') } })
  refused('trip', { during: driving, measures: { odometer: 'Odometer' } })
  refused('trip', { ...options, joins: { seconds: 0.1 } })
  refused('trip', { ...options, waits: 60 })
  refused('trip', { ...options, unknown: 1 })
  expect(() => trip.where()).toThrow('An episode has no `where`')
  const receiver = createReceiver({ secret: false, parts: [vehicles({ fields })] }).when(trip, () => undefined)
  expect(() => receiver.when(episode('trip', { ...options, joins: { minutes: 4 } }), () => undefined)).toThrow(
    expect.objectContaining({ code: 'handler_invalid' }),
  )
})

test('`exactly` can be replaced in a test without a cast', async () => {
  const save = (exactly: OnceHandler<string[]>) =>
    exactly('trips', (happening: { readonly id: string }, _context, rows) => rows.push(happening.id))
  const rows: string[] = []
  const handler = save((_name, handle) => async (what, context) => void (await handle(what, context, rows)))
  await handler({ id: 'one' }, { delivery: { id: '', attempt: 1, redelivered: false, replayed: false } })
  expect(rows).toEqual(['one'])
})

test('`messages.events` are those of the wire, of one vehicle, in the order of arrival', async () => {
  const { receiver, say, until, told } = episodeScene(trip, {
    inbox: sqliteInbox({ path: join(folder, 'history.db') }),
  })
  await say(...parked, [0, { Gear: 'D' }], [600, { Gear: 'P' }], ...values)
  await until(3_000)
  const events = await receiver.messages.events({ vin, from: at(-3_600), to: at(3_600) })
  expect(events.map(({ at: sent }) => sent.getTime())).toEqual(
    [-600, -590, -580, 0, 600, 630, 645].map((second) => at(second).getTime()),
  )
  expect(trip.in(events)).toEqual(told)
})
