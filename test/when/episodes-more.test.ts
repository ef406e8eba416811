// What an episode tells while it lasts, and what its newer measures and conditions say.
import {
  average,
  circle,
  curve,
  drives,
  type Edge,
  energy,
  episode,
  growth,
  inside,
  is,
  last,
  moves,
  type Occurrence,
  path,
} from 'fleethook/when'
import { expect, test } from 'vitest'
import { Snapshot } from '../../src/vehicles/state.ts'
import { at, measures, options, parked, trip, values } from './episodes-rows.ts'
import { episodeScene, type Said, vin } from './episodes-scene.ts'

const place = (second: number, meters: number): Said => [
  second,
  { Location: { latitude: 52 + meters / 111_195, longitude: 4 } },
]

test('with `tellsEach` it is told at once and while it lasts, under one id, and last when it is over', async () => {
  const scene = episodeScene(episode('trip', { ...options, tellsEach: { seconds: 60 } }))
  await scene.say(...parked, [0, { Gear: 'D' }])
  expect(scene.told).toMatchObject([{ lasts: true, revision: 1, odometer: { from: 1000, to: null } }])
  // Two D in the wrong order change no id.
  await scene.say(
    [-5, { Gear: 'D' }, 15],
    [30, { Odometer: 1002 }],
    [100, { Odometer: 1004 }],
    [120, { Odometer: 1005 }],
  )
  await scene.until(400)
  expect(scene.told.at(-1)).toMatchObject({ lasts: true, odometer: { from: 1000, to: 1005 } })
  const whileItLasts = scene.told.length
  expect(whileItLasts).toBeLessThanOrEqual(6)
  await scene.say([600, { Gear: 'P' }], ...values)
  await scene.until(720)
  expect(scene.told.at(-1)).toMatchObject({
    lasts: false,
    endedAt: at(600),
    odometer: { from: 1000, to: 1013 },
    missing: [],
  })
  await scene.until(4_000)
  expect(new Set(scene.told.map(({ id }) => id)).size).toBe(1)
  expect(scene.told.map(({ revision }) => revision)).toEqual(scene.told.map((_, nth) => nth + 1))
  expect(scene.told.at(-1)).toMatchObject({ lasts: false, revoked: false, energy: { from: 50, to: 46.5 } })
})

test('with `tellsEach` the values of the end are told soon, also when the vehicle says nothing more', async () => {
  const scene = episodeScene(episode('trip', { ...options, tellsEach: { seconds: 10 } }))
  await scene.say(
    ...parked,
    [0, { Gear: 'D' }],
    [600, { Gear: 'P' }],
    [601, { Odometer: 1013 }],
    [602, { EnergyRemaining: 46.5 }],
  )
  await scene.until(620)
  expect(scene.told.at(-1)).toMatchObject({ lasts: false, odometer: { to: 1013 }, energy: { to: 46.5 } })
})

async function found<Of extends Occurrence>(edge: Edge<Of>, said: readonly Said[], until: number): Promise<Of[]> {
  const scene = episodeScene(edge)
  await scene.say(...said)
  await scene.until(until)
  return scene.told
}

test('a curve is the growth by quarter hours, and its parts add up to the growth', async () => {
  const charge = episode('charge', {
    during: is('DetailedChargeState', 'Charging'),
    measures: { kwh: growth('ACChargingEnergyIn', { startsAt: 0 }), quarters: curve('ACChargingEnergyIn') },
  })
  const runs: readonly Said[] = Array.from({ length: 91 }, (_, minute): Said => [
    300 + minute * 60,
    { ACChargingEnergyIn: minute / 10 },
  ])
  // prettier-ignore
  const said: readonly Said[] = [[-60, { DetailedChargeState: 'Disconnected' }], [300, { DetailedChargeState: 'Charging' }], ...runs, [5_700, { DetailedChargeState: 'Complete' }], [5_710, { ACChargingEnergyIn: 9 }]]
  const [one] = await found(charge, said, 9_000)
  expect(one).toMatchObject({ kwh: 9, quarters: { everyMinutes: 15 }, missing: [] })
  const parts = (one?.quarters.parts ?? []).map((part) => [(part.at.getTime() - at(0).getTime()) / 60_000, part.growth])
  expect(parts).toEqual([
    [0, 1],
    [15, 1.5],
    [30, 1.5],
    [45, 1.5],
    [60, 1.5],
    [75, 1.5],
    [90, 0.5],
  ])
})

test('an average counts each value until the next one, without interruptions', async () => {
  const drive = episode('drive', {
    during: is('Gear', 'D'),
    joins: { minutes: 5 },
    measures: { speed: average('VehicleSpeed') },
  })
  // prettier-ignore
  const said: readonly Said[] = [[-10, { Gear: 'P', VehicleSpeed: 0 }], [0, { Gear: 'D' }], [60, { VehicleSpeed: 40 }], [120, { Gear: 'P' }], [240, { Gear: 'D' }], [300, { VehicleSpeed: 60 }], [360, { Gear: 'P' }]]
  // 60 s at 0, 120 s at 40 and 60 s at 60.
  expect(await found(drive, said, 9_000)).toMatchObject([{ speed: 35, missing: [] }])
})

test('what is said once is known at the end, and names nothing', async () => {
  const charge = episode('charge', {
    during: is('DetailedChargeState', 'Charging'),
    measures: { place: last('Location'), to: last('DestinationName') },
  })
  // prettier-ignore
  const said: readonly Said[] = [place(-86_400, 0), [-60, { DetailedChargeState: 'Disconnected' }], [0, { DetailedChargeState: 'Charging' }], [600, { DetailedChargeState: 'Complete' }]]
  const scene = episodeScene(charge, { startsAt: -90_000 })
  await scene.say(...said)
  await scene.until(9_000)
  expect(scene.told).toMatchObject([{ place: { latitude: 52, longitude: 4 }, to: null, missing: ['to'] }])
})

test('the points of a path have the values that `with` names', async () => {
  const drive = episode('drive', { during: is('Gear', 'D'), measures: { route: path({ with: ['VehicleSpeed'] }) } })
  // prettier-ignore
  const said: readonly Said[] = [[-10, { Gear: 'P' }], place(-9, 0), [0, { Gear: 'D' }], [50, { VehicleSpeed: 40 }], place(60, 700), [80, { VehicleSpeed: 60 }], place(100, 1_500), [120, { Gear: 'P' }]]
  const [one] = await found(drive, said, 9_000)
  expect(one?.route.points.map(({ with: values }) => values)).toEqual([
    { VehicleSpeed: null },
    { VehicleSpeed: 40 },
    { VehicleSpeed: 60 },
  ])
})

test('the position after the end has the values of its time, too', async () => {
  const drive = episode('drive', { during: is('Gear', 'D'), measures: { route: path({ with: ['VehicleSpeed'] }) } })
  const said: readonly Said[] = [
    [-10, { Gear: 'P' }],
    place(-9, 0),
    [0, { Gear: 'D' }],
    [50, { VehicleSpeed: 40 }],
    place(60, 700),
    [100, { Gear: 'P' }],
    [105, { VehicleSpeed: 5 }],
    place(110, 900),
  ]
  const one = (await found(drive, said, 9_000)).at(-1)
  expect(one?.route.points.at(-1)).toMatchObject({ at: at(110), with: { VehicleSpeed: 5 } })
})

test('a place that jumps breaks the way', async () => {
  const drive = episode('drive', { during: is('Gear', 'D'), measures: { route: path() } })
  // prettier-ignore
  const said: readonly Said[] = [[-10, { Gear: 'P' }], place(-9, 0), [0, { Gear: 'D' }], place(60, 700), place(100, 90_000), place(160, 90_900), [170, { Gear: 'P' }]]
  const [one] = await found(drive, said, 9_000)
  expect(Math.round((one?.route.meters ?? 0) / 100)).toBe(16)
  expect(one?.missing).toEqual(['route'])
})

test('one fix far away does not end a stay, and two of them do', async () => {
  const depot = circle({ latitude: 52, longitude: 4, radiusMeters: 200 })
  const stay = episode('stay', { during: inside(depot), measures: {} })
  const away = (second: number): Said => place(second, 17_000)
  const said: readonly Said[] = [
    place(-100, 5_000),
    place(0, 0),
    place(100, 10),
    away(160),
    place(220, 20),
    place(900, 20),
  ]
  expect(await found(stay, said, 2_000)).toEqual([])
  expect(await found(stay, [...said, away(960), place(1_020, 17_050)], 4_000)).toMatchObject([
    { startedAt: at(0), endedAt: at(960) },
  ])
})

test('an episode of a vehicle that says only positions begins with a move, and ends when it has stayed', async () => {
  const away = episode('away', { during: moves({ meters: 100, within: { minutes: 5 } }), measures: { route: path() } })
  // prettier-ignore
  const said: readonly Said[] = [place(-900, 0), place(-500, 5), ...Array.from({ length: 20 }, (_, n): Said => place(n * 30, n * 300)), place(600, 5_705), place(700, 5_702), place(860, 5_703)]
  const told = await found(away, said, 9_000)
  expect(told).toMatchObject([{ lasts: false, cut: false, missing: [] }])
  expect(Number(told[0]?.endedAt) - Number(told[0]?.startedAt)).toBeGreaterThan(500_000)
})

test('`drives` is a condition of an episode', async () => {
  const trips = episode('trip', { during: drives(), joins: { minutes: 3 }, measures })
  expect(await found(trips, [...parked, [0, { Gear: 'D' }], [600, { Gear: 'P' }], ...values], 4_000)).toMatchObject([
    { startedAt: at(0), endedAt: at(600), odometer: { from: 1000, to: 1013 } },
  ])
})

test('a memory that cannot be read starts anew, and says `acrossGap`', async () => {
  const broken = {
    ...trip,
    detect: (step: Parameters<typeof trip.detect>[0]) =>
      trip.detect({ ...step, memory: step.memory === undefined ? undefined : 'not a memory' }),
  }
  const told = await found(broken, [...parked, [0, { Gear: 'D' }], [600, { Gear: 'P' }]], 4_000)
  expect(told.every(({ acrossGap }) => acrossGap)).toBe(true)
})

test('what is remembered stays bounded, whatever is waited for', async () => {
  const days = { days: 300 }
  const slow = episode('trip', {
    during: is('Gear', 'D'),
    waits: days,
    corrects: days,
    joins: { minutes: 1 },
    measures: { ...measures, energy: energy() },
  })
  const { say, receiver } = episodeScene(slow)
  let most = 0
  for (let trips = 0; trips < 40; trips += 1) {
    const start = trips * 1_800
    await say([start, { Gear: 'P' }], [start + 10, { Gear: 'D' }])
    for (let second = 20; second < 900; second += 40)
      await say([start + second, { Odometer: 1_000 + trips * 20 + second / 60, EnergyRemaining: 50 - second / 1_000 }])
    await say([start + 901, { Gear: 'P' }], [start + 300, { Odometer: 1_000 + trips * 20 + 5.5 }, 900])
    const view = await receiver.vehicles.get(vin)
    if (view instanceof Snapshot) most = Math.max(most, String(view.parts().state.memory?.['trip']).length)
  }
  expect(most).toBeLessThan(12_000)
})
