import type { FleetEvent } from 'fleethook'
import { encode, normalize } from 'fleethook/normalize'
import { message } from 'fleethook/testing'
import {
  all,
  any,
  circle,
  type Edge,
  episode,
  type Episode,
  type EpisodeEdge,
  type EpisodeOptions,
  growth,
  inside,
  is,
  type Measure,
  type Measures,
  path,
  range,
  type Span,
  span,
  starts,
} from 'fleethook/when'
import { afterEach, describe, expect, test } from 'vitest'
import {
  type EpisodeScene,
  episodeScene,
  type Place,
  type Said,
  type SceneOptions,
  startMs,
  vin,
} from './episodes-scene.ts'

const driving = any(is('Gear', 'D'), is('Gear', 'R'), is('Gear', 'N'))
export const measures: { readonly odometer: Measure<Span<number>>; readonly energy: Measure<Span<number>> } = {
  odometer: span('Odometer'),
  energy: span('EnergyRemaining'),
}
type Two = typeof measures
export const options: EpisodeOptions<Two> = { during: driving, joins: { minutes: 3 }, silence: { hours: 1 }, measures }
export const trip: EpisodeEdge<Two> = episode('trip', options)

export const parked: readonly Said[] = [
  [-600, { Gear: 'P' }],
  [-590, { Odometer: 1000 }],
  [-580, { EnergyRemaining: 50 }],
]
export const values: readonly Said[] = [
  [630, { Odometer: 1013 }],
  [645, { EnergyRemaining: 46.5 }],
]
export const at = (second: number): Date => new Date(startMs + second * 1_000)
const lasts = (from: number, to: number): object => ({ startedAt: at(from), endedAt: at(to) })
const whole = { odometer: { from: 1000, to: 1013 }, energy: { from: 50, to: 46.5 }, missing: [] }
/** The last telling of each episode, without what was revoked. */
const settledOf = <Of extends Measures>(told: readonly Episode<Of>[]): readonly Episode<Of>[] =>
  [...new Map(told.map((one) => [one.id, one])).values()].filter(({ revoked }) => !revoked)
/** A rule that never happens. */
const unrelated = episode('unrelated', { during: is('Gear', 'SNA'), measures })
/** The events of these messages, each received when the receiver would get it. */
const eventsOf = (said: readonly Said[]): FleetEvent[] =>
  said.flatMap(([second, data, late = 0]) =>
    normalize(
      [
        encode(
          { ...message.data({}, { vin, createdAt: at(second).toISOString() }), ...('state' in data ? {} : { data }) },
          'service',
        ),
      ],
      { receivedAt: at(second + late) },
    ),
  )

/**
 * Each row of the table of semantics, for every inbox that keeps vehicles. `open` makes a new place. `survives`: what it keeps outlives a process. `knowsTimesOfGaps`: its numbers are times.
 */
export function episodeRows(
  where: string,
  open: () => Place | Promise<Place>,
  survives: boolean,
  knowsTimesOfGaps = true,
): void {
  describe(where, () => {
    rows(open, survives, knowsTimesOfGaps)
  })
}

function rows(open: () => Place | Promise<Place>, survives: boolean, knowsTimesOfGaps: boolean): void {
  const places: Place[] = []
  const opened = async (): Promise<Place> => {
    const place = await open()
    places.push(place)
    return place
  }
  afterEach(async () => {
    for (const place of places.splice(0)) await place.end?.()
  })
  const sceneOf = async <Of extends Measures>(
    edge: Edge<Episode<Of>>,
    more: SceneOptions<Episode<Of>> = {},
  ): Promise<EpisodeScene<Episode<Of>>> => episodeScene(edge, { place: await opened(), ...more })
  const scene = <Of extends Measures>(
    of: Partial<EpisodeOptions<Of>> & Pick<EpisodeOptions<Of>, 'measures'>,
  ): Promise<EpisodeScene<Episode<Of>>> => sceneOf(episode('trip', { ...options, ...of }))
  /** What these messages tell in two hours after the last of them. */
  const toldBy = async <Of extends Measures>(
    { say, until, told: found, stop }: EpisodeScene<Episode<Of>>,
    said: readonly Said[],
  ): Promise<readonly Episode<Of>[]> => {
    await say(...said)
    await until(Math.max(...said.map(([second, , late = 0]) => second + late)) + 7_200)
    await stop()
    return found
  }
  const toldOf = async <Of extends Measures>(
    said: readonly Said[],
    of: Partial<EpisodeOptions<Of>> & Pick<EpisodeOptions<Of>, 'measures'>,
  ): Promise<readonly Episode<Of>[]> => toldBy(await scene(of), said)
  const told = async (said: readonly Said[]): Promise<readonly Episode<Two>[]> => toldBy(await sceneOf(trip), said)
  const stop = (seconds: number): readonly Said[] => [
    ...parked,
    [0, { Gear: 'D' }],
    [300, { Gear: 'P' }],
    [300 + seconds, { Gear: 'D' }],
    [600, { Gear: 'P' }],
    ...values,
  ]
  /** Of two in the order of their first telling. */
  const [first, second] = [{ nth: 1 }, { nth: 2 }]
  const ended = (...more: readonly Said[]): readonly Said[] => [
    ...parked,
    [0, { Gear: 'D' }],
    [590, { Odometer: 1012, EnergyRemaining: 47 }],
    [600, { Gear: 'P' }],
    ...more,
  ]
  const drive = (...more: readonly Said[]): readonly Said[] => [
    ...parked,
    [0, { Gear: 'D' }],
    [300, { Odometer: 1003.2 }],
    [600, { Gear: 'P' }],
    [610, { EnergyRemaining: 47 }],
    ...more,
  ]

  test.each<readonly [name: string, said: readonly Said[], expected: readonly object[]]>([
    [
      'the start is the time of the message that made `during` true, and all values with the same time count before',
      [...parked, [0, { Gear: 'D', Odometer: 1001 }], [600, { Gear: 'P' }], ...values],
      [
        {
          ...lasts(0, 600),
          odometer: { from: 1001, fromAt: at(0) },
          acrossGap: false,
          revision: 1,
          durationMs: 600_000,
        },
      ],
    ],
    [
      'it is true with the first message of a vehicle: it starts there, and may have begun earlier',
      [[0, { Gear: 'D', Odometer: 1000, EnergyRemaining: 50 }], [600, { Gear: 'P' }], ...values],
      [{ ...lasts(0, 600), acrossGap: true }],
    ],
    [
      'while a field of the condition has no value, it goes on',
      [...parked, [0, { Gear: 'D' }], [200, { Gear: null }], [400, { Gear: 'D' }], [600, { Gear: 'P' }], ...values],
      [{ ...lasts(0, 600), ...whole, pausedMs: 0 }],
    ],
    [
      'an interruption that is as long as `joins` belongs to it',
      stop(180),
      [{ ...lasts(0, 600), ...whole, pausedMs: 180_000 }],
    ],
    ['an interruption that is longer does not', stop(181), [lasts(0, 300), lasts(481, 600)]],
    [
      '`span` is from the last certain value at or before the start, however old, and otherwise from the first after it',
      [
        [-3_000, { Odometer: 1000 }],
        [-600, { Gear: 'P' }],
        [0, { Gear: 'D' }],
        [45, { EnergyRemaining: 50 }],
        [600, { Gear: 'P' }],
        ...values,
      ],
      [{ ...whole, odometer: { fromAt: at(-3_000) }, energy: { fromAt: at(45) } }],
    ],
    [
      '`span` is to the last value since the start, when none comes at or after the end',
      ended(),
      [{ odometer: { to: 1012 }, energy: { to: 47 }, missing: [] }],
    ],
    [
      '`span` is to the first value at or after the end',
      ended([620, { Odometer: 1013 }], [640, { Odometer: 1014 }]),
      [{ odometer: { to: 1013 } }],
    ],
    [
      '`span` without a value since the start has no end',
      [...parked, [0, { Gear: 'D' }], [600, { Gear: 'P' }]],
      [{ odometer: { from: 1000, to: null, toAt: null }, missing: ['odometer', 'energy'] }],
    ],
    [
      'a value that comes later than `waits` belongs to the end when the vehicle has not moved since',
      drive([3_600, { Odometer: 1004.8 }]),
      [
        { revision: 1, odometer: { to: 1003.2 }, missing: ['odometer'] },
        { revision: 2, odometer: { to: 1004.8 }, missing: [] },
      ],
    ],
    [
      'a number that goes the other way after `waits` is not that of the end: the vehicle was charged since',
      [
        ...parked,
        [0, { Gear: 'D' }],
        [550, { EnergyRemaining: 47 }],
        [600, { Gear: 'P' }],
        [610, { Odometer: 1013 }],
        [3_000, { EnergyRemaining: 70 }],
        [3_100, { EnergyRemaining: 46 }],
      ],
      [{ energy: { to: 47 }, revision: 1 }],
    ],
    [
      'a first value later than `waits`, or one value for both ends, is there once, and its name is in `missing`',
      [
        [-600, { Gear: 'P' }],
        [0, { Gear: 'D' }],
        [130, { Odometer: 1001 }],
        [590, { EnergyRemaining: 47 }],
        [600, { Gear: 'P' }],
        [610, { Odometer: 1013 }],
      ],
      [{ odometer: { from: 1001, to: 1013 }, energy: { from: 47, to: null }, missing: ['odometer', 'energy'] }],
    ],
    [
      'a message after the telling corrects it: the same id and the next revision, once for a burst',
      [
        ...parked,
        [0, { Gear: 'D' }],
        [600, { Gear: 'P' }],
        ...values,
        [601, { Odometer: 1012 }, 900],
        [602, { EnergyRemaining: 47 }, 910],
      ],
      [
        { ...first, odometer: { to: 1013 } },
        { ...first, revision: 2, odometer: { to: 1012 }, energy: { to: 47 } },
      ],
    ],
    [
      'when a late message shows that two were one, the first is corrected and the second is revoked',
      [
        ...parked,
        [0, { Gear: 'D' }],
        [300, { Gear: 'P' }],
        [310, { Odometer: 1005, EnergyRemaining: 49 }],
        [600, { Gear: 'D' }],
        [900, { Gear: 'P' }],
        [910, { Odometer: 1013, EnergyRemaining: 46.5 }],
        [450, { Gear: 'D' }, 1_000],
        [451, { Gear: 'P' }, 1_000],
      ],
      [
        { ...first, ...lasts(0, 300) },
        { ...second, ...lasts(600, 900) },
        { ...first, revision: 2, ...lasts(0, 900) },
        { ...second, revision: 2, revoked: true },
      ],
    ],
    [
      'when a late message shows that one was two, the first is corrected at once, and then the second is told',
      [
        ...parked,
        [0, { Gear: 'D' }],
        [550, { Gear: 'D' }],
        [900, { Gear: 'P' }],
        [910, { Odometer: 1013, EnergyRemaining: 46.5 }],
        [300, { Gear: 'P', Odometer: 1005, EnergyRemaining: 49 }, 1_000],
      ],
      [
        { ...first, ...lasts(0, 900) },
        { ...first, revision: 2, ...lasts(0, 300) },
        { ...second, revision: 1, ...lasts(550, 900) },
      ],
    ],
    [
      'a message that comes twice changes nothing',
      (
        [...parked, [0, { Gear: 'D' }], [300, { Odometer: 1005 }], [600, { Gear: 'P' }], ...values] as readonly Said[]
      ).flatMap(([second, data]): readonly Said[] => [
        [second, data],
        [second, data, 20],
        [second, data, 800],
      ]),
      [{ revision: 1 }],
    ],
    [
      'a vehicle that is silent for `silence` ended with its last message, and starts again only with a value of the condition',
      [
        ...parked,
        [0, { Gear: 'D' }],
        [600, { Odometer: 1013 }],
        [700, { state: 'online' }],
        [40_000, { Odometer: 1013 }],
        [40_100, { Gear: 'D' }],
        [40_500, { Gear: 'P' }],
      ],
      [
        { ...lasts(0, 700), cut: true },
        { ...lasts(40_100, 40_500), cut: false },
      ],
    ],
    [
      'what a vehicle sent before an end by silence begins nothing when it comes again hours later',
      [
        ...parked,
        [0, { Gear: 'D' }],
        [300, { Gear: 'D' }],
        [600, { Odometer: 1013 }],
        ...[12_000, 16_000, 20_000].map((at): Said => [at, { Odometer: 1013 }]),
        [300, { Gear: 'D' }, 22_000],
        [26_000, { Odometer: 1013 }],
      ],
      [{ ...lasts(0, 600), cut: true, revision: 1 }],
    ],
  ])('%s', async (_, said, expected) => {
    const found = await told(said)
    const ids = [...new Set(found.map(({ id }) => id))]
    expect(found.map((one) => ({ ...one, nth: ids.indexOf(one.id) + 1 }))).toMatchObject(expected)
  })

  test('the receiver gets the edge while vehicles are driving: it starts when the value became what it is, and may have begun earlier', async () => {
    const { receiver, say, until } = await sceneOf(unrelated)
    await say(...parked, [0, { Gear: 'D' }], [300, { Gear: 'D', Odometer: 1004 }])
    const found: Episode<Two>[] = []
    receiver.when(trip, ({ change }) => void found.push(change))
    await say([310, { Odometer: 1005 }], [600, { Gear: 'P' }], ...values)
    await until(4_000)
    expect(found).toMatchObject([{ ...lasts(0, 600), odometer: { to: 1013 }, acrossGap: true }])
  })

  test('a value that is unknown neither starts nor ends it, and one that is uncertain counts and says `acrossGap`', async () => {
    const isShut = { during: all(is('Gear', 'D'), is('Locked', true)), silence: { hours: 1 }, measures } as const
    // `Locked` is not known.
    expect(await toldOf([...parked, [0, { Gear: 'D' }], [600, { Gear: 'P' }]], isShut)).toEqual([])
    const { say, gap, until, told: found } = await scene(isShut)
    await say(...parked, [-500, { Locked: true }])
    await gap(-400)
    // Whether it is still locked is not certain.
    await say([0, { Gear: 'D' }], [50, { Locked: true }])
    await gap(300)
    // Whether it still drives is not certain, but that it is not locked.
    await say([400, { Locked: true }], [500, { Locked: false }])
    await until(8_000)
    expect(found.at(-1)).toMatchObject({ ...lasts(0, 500), pausedMs: 0, acrossGap: true })
    expect(new Set(found.map(({ id }) => id)).size).toBe(1)
  })

  test('an interruption is measured by the vehicle’s clock, also when the messages come in one burst', async () => {
    const atOnce = (seconds: number): readonly Said[] =>
      stop(seconds).map(([second, data]): Said => [second, data, second < 0 ? 0 : 3_000 - second])
    expect((await told(atOnce(180))).at(-1)).toMatchObject({ ...lasts(0, 600), ...whole, pausedMs: 180_000 })
    expect(settledOf(await told(atOnce(181)))).toMatchObject([lasts(0, 300), lasts(481, 600)])
  })

  test('it is told when it has been over for `joins` and has each value of the end, and otherwise after the longer of `joins` and `waits`', async () => {
    const complete = await scene({ measures })
    await complete.say(...parked, [0, { Gear: 'D' }], [600, { Gear: 'P' }], ...values)
    await complete.until(779)
    expect(complete.told).toEqual([])
    await complete.until(781)
    expect(complete.told).toMatchObject([whole])
    const waiting = await scene({ joins: { seconds: 10 }, waits: { minutes: 5 }, measures })
    await waiting.say(
      ...parked,
      [0, { Gear: 'D' }],
      [590, { Odometer: 1012 }],
      [600, { Gear: 'P' }],
      [610, { EnergyRemaining: 46 }],
    )
    await waiting.until(899)
    expect(waiting.told).toEqual([])
    await waiting.until(901)
    expect(waiting.told).toMatchObject([{ odometer: { from: 1000, to: 1012 } }])
  })

  test('the first value after the end is not its value when it is already of the next trip', async () => {
    const next = await told(ended([800, { Gear: 'D' }], [810, { Odometer: 1014 }], [1_000, { Gear: 'P' }]))
    expect(settledOf(next)).toMatchObject([{ odometer: { to: 1012 } }, { odometer: { from: 1012, to: 1014 } }])
    const moved = await told(drive([2_000, { Gear: 'D' }], [3_000, { Odometer: 1009 }], [3_100, { Gear: 'P' }]))
    expect(moved[0]).toMatchObject({ odometer: { to: 1003.2 }, missing: ['odometer'] })
    expect(moved.filter(({ id }) => id === moved[0]?.id)).toHaveLength(1)
  })

  const kwh = { kwh: growth('ACChargingEnergyIn', { startsAt: 0 }) } as const
  const charging = { during: is('DetailedChargeState', 'Charging'), measures: kwh } as const
  const charge = (...said: readonly Said[]): readonly Said[] => [
    [-600, { DetailedChargeState: 'Disconnected' }],
    ...said,
  ]

  test('`growth` is the sum of all increases, a fall to less than half is a reset, and a smaller fall is subtracted', async () => {
    const said = charge(
      [-500, { ACChargingEnergyIn: 10 }],
      [0, { DetailedChargeState: 'Charging' }],
      [10, { ACChargingEnergyIn: 10 }],
      [20, { ACChargingEnergyIn: 1 }],
      [300, { ACChargingEnergyIn: 5 }],
      [310, { ACChargingEnergyIn: 4.5 }],
      [600, { DetailedChargeState: 'Complete' }],
      [650, { ACChargingEnergyIn: 8 }],
      [900, { ACChargingEnergyIn: 9 }],
    )
    expect(await toldOf(said, charging)).toMatchObject([{ kwh: 8, missing: [] }])
  })

  test('`growth` without a value before the start counts from the first value, or with `startsAt` from there', async () => {
    const said = charge(
      [0, { DetailedChargeState: 'Charging' }],
      [10, { ACChargingEnergyIn: 0.2 }],
      [600, { DetailedChargeState: 'Complete' }],
      [620, { ACChargingEnergyIn: 10.4 }],
    )
    expect(await toldOf(said, charging)).toMatchObject([{ kwh: 10.4, missing: [] }])
    const from = { during: charging.during, measures: { kwh: growth('ACChargingEnergyIn') } } as const
    expect(await toldOf(said, from)).toMatchObject([{ kwh: 10.2, missing: [] }])
  })

  test('`growth` counts what a counter says with the start: it has run since the value before', async () => {
    const kwhOf = async (before: readonly Said[], first: number, last: number): Promise<unknown> => {
      const start: Said = [0, { DetailedChargeState: 'Charging', ACChargingEnergyIn: first }]
      const end: readonly Said[] = [
        [1_200, { DetailedChargeState: 'Complete' }],
        [1_220, { ACChargingEnergyIn: last }],
      ]
      return (await toldOf(charge(...before, start, ...end), charging)).map(({ kwh: found, missing }) => [
        found,
        missing,
      ])
    }
    expect(await kwhOf([], 0.4, 16.2)).toEqual([[16.2, []]])
    expect(await kwhOf([[-500, { ACChargingEnergyIn: 5 }]], 5.1, 9)).toEqual([[4, []]])
    expect(await kwhOf([[-500, { ACChargingEnergyIn: 31.6 }]], 0.1, 16.2)).toEqual([[16.2, []]])
    // Alone, it says nothing.
    const alone = charge(
      [0, { DetailedChargeState: 'Charging', ACChargingEnergyIn: 0 }],
      [600, { DetailedChargeState: 'Complete' }],
    )
    expect(await toldOf(alone, charging)).toMatchObject([{ kwh: null, missing: ['kwh'] }])
    // What it stood at before is not known.
    const { say, gap, until, told: found } = await scene(charging)
    await say(...charge([-500, { ACChargingEnergyIn: 1 }]))
    await gap(-100)
    await say(
      [0, { DetailedChargeState: 'Charging', ACChargingEnergyIn: 14 }],
      [600, { DetailedChargeState: 'Complete' }],
      [620, { ACChargingEnergyIn: 22.6 }],
    )
    await until(4_000)
    expect(settledOf(found)).toMatchObject([{ kwh: 8.6, acrossGap: true }])
  })

  test('`growth` is null when the counter said only what it stood at before, or at the start', async () => {
    const again = { joins: { minutes: 15 }, splits: is('DetailedChargeState', 'Disconnected') } as const
    const said = (counter: number, end: number): readonly Said[] => [
      [-900, { DetailedChargeState: 'Charging' }],
      [-890, { ACChargingEnergyIn: 2 }],
      [-500, { DetailedChargeState: 'Complete' }],
      [-490, { ACChargingEnergyIn: 5 }],
      [-400, { DetailedChargeState: 'Disconnected' }],
      [0, { DetailedChargeState: 'Charging' }],
      [5, { ACChargingEnergyIn: counter }],
      [end, { DetailedChargeState: 'Complete' }],
    ]
    for (const [counter, end] of [
      [5, 60],
      [5, 600],
      [0, 600],
    ] as const)
      expect((await toldOf(said(counter, end), { ...charging, ...again })).at(-1)).toMatchObject({
        ...lasts(0, end),
        kwh: null,
        missing: ['kwh'],
      })
    expect((await toldOf(said(0, 60), { ...charging, ...again })).at(-1)).toMatchObject({ kwh: 0, missing: [] })
  })

  test('a measure that gets no value is null, and its name is in `missing`, never 0', async () => {
    const of = {
      during: charging.during,
      measures: {
        kwh: growth('ACChargingEnergyIn'),
        level: span('BatteryLevel'),
        speed: range('VehicleSpeed'),
        route: path(),
      },
    } as const
    const said = charge([0, { DetailedChargeState: 'Charging' }], [600, { DetailedChargeState: 'Complete' }])
    const nothing = {
      kwh: null,
      level: { from: null, to: null },
      speed: { least: null, most: null },
      route: { points: [], meters: null },
    }
    expect(await toldOf(said, of)).toMatchObject([{ ...nothing, missing: ['kwh', 'level', 'speed', 'route'] }])
  })

  const place = (meters: number): { Location: { latitude: number; longitude: number } } => ({
    Location: { latitude: 52 + meters / 111_195, longitude: 4 },
  })

  test('`range` and `path` are from the start to the end without interruptions, and a path has the positions of both ends', async () => {
    const of = { measures: { speed: range('VehicleSpeed'), route: path({ everyMeters: 50 }) } } as const
    // prettier-ignore
    const said: readonly Said[] = [[-600, { Gear: 'P', ...place(0) }], [0, { Gear: 'D' }], [10, { VehicleSpeed: 30 }], [60, place(500)], [100, place(510)], [200, { Gear: 'P' }], [210, { VehicleSpeed: 0 }], [260, { Gear: 'D' }], [300, { VehicleSpeed: 70 }], [400, place(1_500)], [600, { Gear: 'P' }], [640, place(2_000)]]
    const [found] = await toldOf(said, of)
    expect(found).toMatchObject({ speed: { least: 30, most: 70 }, missing: [] })
    expect(found?.route.points.map(({ latitude }) => Math.round((latitude - 52) * 111_195))).toEqual([
      0, 500, 1_500, 2_000,
    ])
    expect(found?.route.meters).toBeCloseTo(2_000, -1)
  })

  test('a path with more than `mostPoints` has them at twice the distance', async () => {
    const of = { measures: { route: path({ everyMeters: 10, mostPoints: 8 }) } } as const
    const drive: Said[] = Array.from({ length: 60 }, (_, index): Said => [index * 10 + 5, place(index * 20)])
    const [found] = await toldOf(
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

  test('a vehicle that uploads hours later, in order, is exact, and one that was cut meanwhile is corrected', async () => {
    const away = (second: number, data: Said[1]): Said => [second, data, 10_000 - second * 0.9]
    const found = await told([
      ...parked,
      [0, { Gear: 'D' }],
      away(300, { Odometer: 1005 }),
      away(600, { Gear: 'P' }),
      away(630, { Odometer: 1013 }),
      away(645, { EnergyRemaining: 46.5 }),
    ])
    expect(found[0]).toMatchObject({ cut: true, ...lasts(0, 0) })
    expect(found.at(-1)).toMatchObject({ ...lasts(0, 600), ...whole, cut: false, id: found[0]?.id })
  })

  test('open for too long: without `silence` it goes on, and `after` reports it', async () => {
    const endless = episode('trip', { during: driving, measures })
    const { say, until, receiver, told: found } = await sceneOf(endless)
    const tooLong: Date[] = []
    receiver.when(starts(driving).after({ hours: 12 }), ({ change }) => void tooLong.push(change.since))
    await say(...parked, [0, { Gear: 'D' }])
    await until(90_000)
    expect(found).toEqual([])
    expect(tooLong).toEqual([at(0)])
    await say([90_100, { Gear: 'P' }])
    await until(91_000)
    expect(found).toMatchObject([lasts(0, 90_100)])
  })

  test('single messages hours late: a value whose order does not matter counts, a path names itself in `missing`, and one of the condition says `acrossGap`', async () => {
    const of = { measures: { speed: range('VehicleSpeed'), route: path() } } as const
    const { say, until, told: found } = await scene(of)
    const hours = Array.from({ length: 36 }, (_, n): Said => [600 * (n + 1), { VehicleSpeed: 50 }])
    await say(...parked, [-570, place(0)], [0, { Gear: 'D' }], [100, place(500)], ...hours.slice(0, 10))
    await say([6_100, { Gear: 'D' }], [6_110, place(2_000)], ...hours.slice(10, 30))
    const [late, later] = [(second: number) => 18_010 - second, (second: number) => 36_000 - second]
    await say([620, { VehicleSpeed: 99 }, late(620)], [630, place(300), late(630)], [640, { Gear: 'D' }, late(640)])
    await say(...hours.slice(30), [21_700, { Gear: 'P' }], [21_710, place(9_000)])
    await until(30_000)
    expect(settledOf(found)).toMatchObject([
      { ...lasts(0, 21_700), acrossGap: true, speed: { least: 50, most: 99 }, missing: ['route'] },
    ])
    // It is no longer corrected.
    const count = found.length
    await say([30_000, { Gear: 'P' }], [33_000, { Gear: 'P' }], [35_000, { Gear: 'P' }])
    await say([650, { VehicleSpeed: 120 }, later(650)], [660, { Gear: 'P' }, later(660)])
    await until(50_000)
    expect(found).toHaveLength(count)
  })

  test('a gap: an open one goes on and says `acrossGap`', async () => {
    const { say, gap, until, told: found } = await sceneOf(trip)
    await say(...parked, [0, { Gear: 'D' }])
    await gap(300)
    await say([600, { Gear: 'P' }], ...values)
    await until(4_000)
    expect(found).toMatchObject([{ ...lasts(0, 600), odometer: { from: 1000, to: 1013 }, acrossGap: true }])
  })

  test.skipIf(!knowsTimesOfGaps)(
    'a gap of which the receiver learns late: what came before it is uncertain, and what came after it is not',
    async () => {
      const { say, gap, until, told: found } = await sceneOf(trip)
      await say(...parked, [0, { Gear: 'D' }], [200, { Gear: 'D' }], [600, { Gear: 'P' }], ...values)
      await say([1_800, { Gear: 'P', Odometer: 1013, EnergyRemaining: 46.5 }])
      await gap(300, 1_700)
      await say([2_100, { Gear: 'D' }], [2_500, { Gear: 'P' }], [2_520, { Odometer: 1019, EnergyRemaining: 44 }])
      await until(9_000)
      expect(settledOf(found)).toMatchObject([
        { ...lasts(0, 600), ...whole, acrossGap: true, revision: 2 },
        { ...lasts(2_100, 2_500), acrossGap: false, odometer: { from: 1013, to: 1019 }, missing: [] },
      ])
    },
  )

  test('a gap: one that starts with values from before it does not use them, says `acrossGap`, and tells what grew in it as unseen', async () => {
    const { say, gap, until, told: found } = await sceneOf(trip)
    await say(...parked)
    await gap(-100)
    await say([0, { Gear: 'D' }], [60, { Odometer: 1003 }], [600, { Gear: 'P' }], ...values)
    await until(4_000)
    expect(settledOf(found)).toMatchObject([
      {
        ...lasts(0, 600),
        acrossGap: true,
        odometer: { from: 1003, to: 1013, unseen: 3 },
        energy: { from: null, to: 46.5 },
        missing: ['odometer', 'energy'],
      },
    ])
  })

  test('a gap: a counter that starts at 0 counts from the next value, because what it stood at is not known', async () => {
    const { say, gap, until, told: found } = await scene(charging)
    await say(...charge([-500, { ACChargingEnergyIn: 13.5 }]))
    await gap(-100)
    await say(
      [0, { DetailedChargeState: 'Charging' }],
      [60, { ACChargingEnergyIn: 14 }],
      [600, { DetailedChargeState: 'Complete' }],
    )
    await say([620, { ACChargingEnergyIn: 22.6 }])
    await until(4_000)
    expect(settledOf(found)).toMatchObject([{ ...lasts(0, 600), acrossGap: true, kwh: 8.6, missing: ['kwh'] }])
  })

  test('a gap: one that began before its end, as a message says that came after it, says `acrossGap`', async () => {
    const { say, gap, until, told: found } = await sceneOf(trip)
    await say(...parked)
    await gap(100)
    // Between the newest message before the gap and its end.
    await say([-60, { Gear: 'P', Odometer: 1000, EnergyRemaining: 50 }, 170], [0, { Gear: 'D' }, 120])
    await say([600, { Gear: 'P' }], ...values)
    await until(4_000)
    expect(settledOf(found)).toMatchObject([{ ...lasts(0, 600), ...whole, acrossGap: true }])
  })

  test('a gap: one that may be the rest of another one, which was lost in it, says `acrossGap`', async () => {
    const isAcross = async (from: number, to: number, start: number): Promise<boolean | undefined> => {
      const { say, gap, until, told: found } = await sceneOf(trip)
      // It may have driven in the gap.
      await say(...parked, [from, { Gear: 'P' }])
      await gap(to)
      await say([to + 10, { Gear: 'P', Odometer: 1005, EnergyRemaining: 48 }])
      await say([start, { Gear: 'D' }], [start + 600, { Gear: 'P' }])
      await say([start + 630, { Odometer: 1013, EnergyRemaining: 46.5 }])
      await until(start + 4_000)
      return found.at(-1)?.acrossGap
    }
    expect(await isAcross(-500, 0, 100)).toBe(true)
    expect(await isAcross(-500, 0, 500)).toBe(false)
    // In so short a gap it did not go far.
    expect(await isAcross(-60, 0, 100)).toBe(false)
  })

  test('the values of `client.refill` count at their own times, are certain, and may end it', async () => {
    const { say, gap, refill, until, told: found } = await sceneOf(trip)
    const document = (second: number, gear: string, odometer: number): object => ({
      drive_state: { timestamp: at(second).getTime(), shift_state: gear },
      vehicle_state: { timestamp: at(second).getTime(), odometer },
    })
    await say(...parked)
    await gap(-300)
    await refill(-200, document(-210, 'P', 1000))
    await say([-100, { EnergyRemaining: 50 }], [0, { Gear: 'D' }], [600, { Gear: 'P' }], ...values)
    await until(4_000)
    expect(found).toMatchObject([{ ...lasts(0, 600), ...whole, acrossGap: false }])
    await say([10_000, { Gear: 'D' }])
    await gap(10_300)
    await refill(10_500, document(10_400, 'P', 1030))
    await until(14_000)
    expect(found.at(-1)).toMatchObject({
      ...lasts(10_000, 10_400),
      cut: false,
      acrossGap: true,
      odometer: { to: 1030 },
    })
  })

  test('a handler that fails is told the same again, and so is the replay of a dead letter', async () => {
    let failures = 1
    const handle = (): void => {
      if ((failures -= 1) >= 0) throw new Error('The handler fails.')
    }
    const { say, until, receiver, told: found, happenings } = await sceneOf(trip, { handle })
    await say(...parked, [0, { Gear: 'D' }], [600, { Gear: 'P' }], ...values)
    await until(1_000)
    expect(found).toHaveLength(2)
    expect(found[1]).toEqual(found[0])
    failures = 2
    await say([2_000, { Gear: 'D' }], [2_600, { Gear: 'P' }], [2_610, { Odometer: 1020, EnergyRemaining: 44 }])
    await until(3_000)
    expect(found).toHaveLength(4)
    const [letter, ...more] = await Array.fromAsync(receiver.deadLetters.list({}))
    expect(more).toEqual([])
    await receiver.deadLetters.replay(letter?.id ?? '')
    await until(4_000)
    expect(found).toHaveLength(5)
    expect(found[2]).toMatchObject({ ...lasts(2_000, 2_600), revision: 1, odometer: { to: 1020, toAt: at(2_610) } })
    expect(found.slice(3)).toEqual([found[2], found[2]])
    expect(new Set(happenings.map(({ id }) => id)).size).toBe(2)
    // What was found once is not told as new.
    await until(20_000)
    expect(found).toHaveLength(5)
  })

  test('the replay of a dead letter does not tell an older revision after a newer one', async () => {
    let failures = 2
    const handle = (): void => {
      if ((failures -= 1) >= 0) throw new Error('The handler fails.')
    }
    const { say, until, receiver, told: found } = await sceneOf(trip, { handle })
    await say(...parked, [0, { Gear: 'D' }], [600, { Gear: 'P' }], ...values, [601, { Odometer: 1012 }, 900])
    await until(2_000)
    expect(found.map(({ revision }) => revision)).toEqual([1, 1, 2])
    expect(await receiver.deadLetters.replay({ vin })).toBe(1)
    await until(2_100)
    expect(found).toHaveLength(3)
    expect(await Array.fromAsync(receiver.deadLetters.list({}))).toEqual([])
  })

  test('the replay of a dead letter does not tell an older revision when the vehicle has said much since', async () => {
    let failures = 2
    const handle = (): void => {
      if ((failures -= 1) >= 0) throw new Error('The handler fails.')
    }
    const { say, until, receiver, told: found } = await sceneOf(trip, { handle })
    await say(...parked, [0, { Gear: 'D' }], [600, { Gear: 'P' }], ...values, [601, { Odometer: 1012 }, 400])
    await until(1_500)
    expect(found.map(({ revision }) => revision)).toEqual([1, 1, 2])
    // More than is kept: what was known of the first trip is folded.
    const drive = Array.from({ length: 500 }, (_, n): Said => [1_510 + 3 * n, { Odometer: 1013.125 + n / 16 }])
    await say([1_505, { Gear: 'D' }], ...drive)
    expect(await receiver.deadLetters.replay({ vin })).toBe(1)
    await until(3_500)
    expect(found).toHaveLength(3)
  })

  test('`forget` forgets the one that is open, and it is never told', async () => {
    const { say, until, receiver, told: found } = await sceneOf(trip)
    await say(...parked, [0, { Gear: 'D' }], [300, { Odometer: 1005 }])
    expect(await receiver.vehicles.forget(vin)).toBe(true)
    await say([600, { Gear: 'P' }], ...values)
    await until(8_000)
    expect(found).toEqual([])
  })

  test('a vehicle’s clock that is slow: all times are its own, and nothing is decided early', async () => {
    const { say, until, told: found } = await sceneOf(trip)
    // prettier-ignore
    const said: readonly Said[] = [...parked, [0, { Gear: 'D' }], [300, { Gear: 'P' }], [460, { Gear: 'D' }], [600, { Gear: 'P' }], ...values]
    await say(...said.map(([second, data]): Said => [second, data, 600]))
    await until(600 + 779)
    expect(found).toEqual([])
    await until(600 + 782)
    expect(found).toMatchObject([{ ...lasts(0, 600), ...whole, pausedMs: 160_000 }])
  })

  test('a vehicle’s clock that is fast: no time is later than the receipt', async () => {
    // prettier-ignore
    const said: readonly Said[] = [...parked, [0, { Gear: 'D' }], [300, { Gear: 'P' }], [460, { Gear: 'D' }], [600, { Gear: 'P' }], ...values]
    const found = await told(said.map(([second, data]): Said => [second + 600, data, -600]))
    expect(found).toMatchObject([{ ...lasts(0, 600), ...whole, odometer: { toAt: at(630) }, pausedMs: 160_000 }])
    // One that comes late keeps its time.
    // prettier-ignore
    const late: readonly Said[] = [...parked, [200, { Gear: 'D' }, -200], [210, { Odometer: 1002 }, -200], [-100, { Odometer: 1001 }, 120], [600, { Gear: 'P' }], ...values]
    expect(await told(late)).toMatchObject([{ ...lasts(0, 600), odometer: { from: 1001, fromAt: at(-100), to: 1013 } }])
  })

  test('a vehicle’s clock that is fast: what it says keeps its order, also when messages overtake each other or come twice', async () => {
    const fast = (second: number, data: Said[1], late = 0.2): Said => [second + 240, data, late - 240]
    const rest: readonly Said[] = [[600, { Gear: 'P' }], ...values]
    // That it was parked comes after that it drives.
    const overtaken = await told([...parked, fast(-10, { Gear: 'P' }, 15), fast(0, { Gear: 'D' }), ...rest])
    expect(overtaken.at(-1)).toMatchObject({ ...lasts(0.2, 600), ...whole })
    // So does the clock that is right again by then.
    const corrected = await told([
      ...parked,
      fast(-20, { Gear: 'P' }),
      [0, { Gear: 'D' }],
      fast(-30, { Gear: 'P' }, 100),
      [50, { Gear: 'D' }],
      ...rest,
    ])
    expect(corrected.at(-1)).toMatchObject({ ...lasts(0, 600), ...whole })
    const twice = await told([
      ...parked,
      fast(0, { Gear: 'D' }),
      fast(40, { Gear: 'P' }),
      fast(0, { Gear: 'D' }, 60),
      [70, { Odometer: 1001 }],
      [80, { EnergyRemaining: 49 }],
    ])
    expect(twice).toMatchObject([{ ...lasts(0.2, 40.2), cut: false }])
  })

  test('`atLeast` leaves shorter ones out, and one that was told and gets shorter is revoked', async () => {
    const of = { atLeast: { minutes: 5 }, measures } as const
    expect(await toldOf([...parked, [0, { Gear: 'D' }], [200, { Gear: 'P' }]], of)).toEqual([])
    const found = await toldOf(
      [...parked, [0, { Gear: 'D' }], [600, { Gear: 'P' }], ...values, [200, { Gear: 'P' }, 800]],
      of,
    )
    expect(found).toMatchObject([{ revision: 1 }, { revision: 2, revoked: true }])
  })

  test('`until` ends it, and `splits` keeps an interruption from joining', async () => {
    const plugged = {
      during: is('DetailedChargeState', 'Charging'),
      until: is('DetailedChargeState', 'Disconnected'),
      joins: { seconds: 1 },
      measures: kwh,
    } as const
    const said = charge(
      [0, { DetailedChargeState: 'Charging' }],
      [600, { DetailedChargeState: 'Complete' }],
      [5_000, { DetailedChargeState: 'Charging' }],
      [5_600, { DetailedChargeState: 'Disconnected' }],
    )
    expect(await toldOf(said, { ...plugged, silence: { days: 1 } })).toMatchObject([lasts(0, 5_600)])
    const unplugged: readonly Said[] = charge(
      [0, { DetailedChargeState: 'Charging' }],
      [600, { DetailedChargeState: 'Disconnected' }],
      [700, { DetailedChargeState: 'Charging' }],
      [900, { DetailedChargeState: 'Complete' }],
    )
    expect(await toldOf(unplugged, { ...charging, joins: { minutes: 15 } })).toMatchObject([lasts(0, 900)])
    expect(
      await toldOf(unplugged, {
        ...charging,
        joins: { minutes: 15 },
        splits: is('DetailedChargeState', 'Disconnected'),
      }),
    ).toMatchObject([lasts(0, 600), lasts(700, 900)])
  })

  test('a condition over two fields starts when the last of them is known', async () => {
    const depot = circle({ latitude: 52, longitude: 4, radiusMeters: 200 })
    const stay = episode('stay', { during: all(is('Gear', 'P'), inside(depot)), silence: { hours: 1 }, measures: {} })
    const { say, until, told: found } = await sceneOf(stay)
    await say(
      [0, { Gear: 'P' }],
      [100, place(0)],
      [200, { Gear: 'D' }],
      [300, place(5_000)],
      [400, place(0)],
      [500, { Gear: 'P' }],
    )
    await until(10_000)
    // After the silence, one of the two is reported again.
    await say([20_000, { Gear: 'P' }], [20_100, { Gear: 'D' }])
    await until(30_000)
    expect(found).toMatchObject([
      lasts(100, 200),
      { ...lasts(500, 500), cut: true },
      { ...lasts(20_000, 20_100), cut: false },
    ])
  })

  test('an episode of the past is the same in a list of events, in any order', async () => {
    // prettier-ignore
    const said: readonly Said[] = [...parked, [0, { Gear: 'D' }], [300, { Gear: 'P' }], [360, { Gear: 'D' }], [600, { Gear: 'P' }], ...values, [2_000, { Gear: 'D' }], [2_500, { Gear: 'P' }]]
    const found = await told(said)
    expect(trip.in(eventsOf(said).toReversed())).toEqual(found)
  })

  test('in a list of events, one that lasts is not over, so it is not there', async () => {
    // prettier-ignore
    const said: readonly Said[] = [...parked, [0, { Gear: 'D' }], [300, { Gear: 'P' }], [900, { Gear: 'D' }], [950, { Odometer: 1013 }]]
    const { silence: _, ...goesOn } = options
    expect(episode('trip', goesOn).in(eventsOf(said))).toMatchObject([lasts(0, 300)])
    expect(trip.in(eventsOf(said))).toMatchObject([lasts(0, 300), { ...lasts(900, 950), cut: true }])
  })

  test('`open` is the episode that lasts, so far', async () => {
    const { say, receiver } = await sceneOf(trip)
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
    await say([600, { Gear: 'P' }], [1_000, { Gear: 'P' }])
    const over = await receiver.vehicles.get(vin)
    expect(over && trip.open(over)).toBeUndefined()
  })

  if (!survives) return
  /** The next process on the same place. */
  const after = async <Of extends Measures>(
    place: Place,
    before: Pick<EpisodeScene<Episode>, 'stop' | 'clock'>,
    edge: Edge<Episode<Of>>,
    downSeconds: number = 20,
  ): Promise<EpisodeScene<Episode<Of>>> => {
    await before.stop()
    await before.clock.advance(downSeconds * 1_000, async () => {})
    const next = episodeScene(edge, { place, clock: before.clock })
    await next.receiver.open()
    return next
  }

  test('a process that ends: the one that is open goes on in the next process', async () => {
    const place_ = await opened()
    const before = episodeScene(trip, { place: place_ })
    await before.say(...parked, [0, { Gear: 'D' }], [300, { Odometer: 1006 }])
    const next = await after(place_, before, trip)
    await next.say([600, { Gear: 'P' }], ...values)
    await next.until(4_000)
    expect(before.told).toEqual([])
    expect(settledOf(next.told)).toMatchObject([{ ...lasts(0, 600), odometer: { from: 1000, to: 1013 } }])
    await next.stop()
  })

  test('a process that ends: one that became over while nobody ran is told by the next process', async () => {
    const place_ = await opened()
    const before = episodeScene(trip, { place: place_ })
    await before.say(...parked, [0, { Gear: 'D' }], [600, { Gear: 'P' }], ...values)
    const next = await after(place_, before, trip, 3_000)
    await next.until(5_000)
    // Its timers wait for the port.
    await next.until(5_010)
    expect(before.told).toEqual([])
    expect(next.told).toMatchObject([{ ...lasts(0, 600), ...whole, revision: 1 }])
    await next.stop()
  })

  test('a process that ends while its handler runs: the same episode is told in the same message, with the same ids', async () => {
    const place_ = await opened()
    // Told with the last value of its end.
    const atOnce = episode('trip', { during: driving, measures })
    const before = episodeScene(atOnce, { place: place_, hangs: true })
    await before.say(...parked, [0, { Gear: 'D' }], [600, { Gear: 'P' }], ...values)
    expect(before.told).toMatchObject([{ ...lasts(0, 600), ...whole, revision: 1 }])
    const next = await after(place_, before, atOnce)
    await next.until(8_000)
    expect(next.told).toEqual(before.told)
    expect(next.happenings.map(({ id }) => id)).toEqual(before.happenings.map(({ id }) => id))
    await next.stop()
  })

  test('the definition changes: the one that is open goes on under the new one, and measures that are new name themselves in `missing`', async () => {
    const place_ = await opened()
    const before = episodeScene(trip, { place: place_ })
    await before.say(
      [-4_000, { Gear: 'P', Odometer: 990, EnergyRemaining: 55 }],
      [-3_000, { Gear: 'D' }],
      [-2_400, { Gear: 'P' }],
    )
    await before.say([-2_390, { Odometer: 1000, EnergyRemaining: 50 }])
    await before.until(-1_000)
    expect(before.told).toHaveLength(1)
    await before.say([0, { Gear: 'D' }], [100, { VehicleSpeed: 90 }])
    const changed = episode('trip', {
      ...options,
      joins: { minutes: 5 },
      measures: { energy: span('EnergyRemaining'), speed: range('VehicleSpeed'), odometer: span('Odometer') },
    })
    const next = await after(place_, before, changed)
    await next.say(
      [300, { Gear: 'P' }],
      [500, { Gear: 'D' }],
      [510, { VehicleSpeed: 30 }],
      [600, { Gear: 'P' }],
      ...values,
    )
    await next.until(8_000)
    // What was told stays as it was told.
    expect(settledOf(next.told)).toMatchObject([
      {
        ...lasts(0, 600),
        pausedMs: 200_000,
        odometer: { from: 1000, to: 1013 },
        speed: { most: 30 },
        missing: ['speed'],
      },
    ])
    await next.stop()
  })

  test('another name is another episode', async () => {
    const place_ = await opened()
    const before = episodeScene(trip, { place: place_ })
    await before.say(...parked, [0, { Gear: 'D' }])
    const next = await after(place_, before, episode('drive', options))
    await next.say([300, { Gear: 'D' }], [600, { Gear: 'P' }], ...values)
    await next.until(8_000)
    expect(settledOf(next.told)).toMatchObject([
      { acrossGap: true, id: expect.stringContaining(':drive:'), endedAt: at(600) },
    ])
    await next.stop()
  })

  test('the edge is removed: its memory is deleted with the next message of the vehicle', async () => {
    const place_ = await opened()
    const before = episodeScene(trip, { place: place_ })
    await before.say(...parked, [0, { Gear: 'D' }], [300, { Odometer: 1005 }])
    const none = await after(place_, before, unrelated)
    await none.say([400, { Odometer: 1006 }])
    const again = await after(place_, none, trip)
    await again.say([500, { Odometer: 1007 }])
    const view = await again.receiver.vehicles.get(vin)
    await again.say([600, { Gear: 'P' }], ...values)
    await again.until(8_000)
    // Where no message is missing, it starts again with what is known of the vehicle.
    const found = [view && trip.open(view), ...again.told].filter((one) => one !== undefined)
    expect(found.filter(({ odometer, acrossGap }) => odometer.from === 1000 || !acrossGap)).toEqual([])
    await again.stop()
  })
}
