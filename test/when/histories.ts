import type { FieldValues } from 'fleethook'
import { expect } from 'vitest'
import type { Said } from './episodes-scene.ts'

/** What vehicles said in public bug reports, and what was true. Seconds, miles and kWh. */
export interface History {
  readonly name: string
  readonly kind: 'trip' | 'charge'
  readonly says: readonly Said[]
  /** The sum of all rows, with what lies between them. */
  readonly sum: number
  /** A row that may be another number, when it names itself. */
  readonly isNamed?: true
  /** What else is true of the rows, in their order. */
  readonly rows?: readonly object[]
}

const unplugged: readonly Said[] = [[-7_200, { DetailedChargeState: 'Disconnected', BatteryLevel: 40 }]]
/** A counter from one number to another, each minute. */
const runs = (field: string, from: number, to: number, start: number, end: number): readonly Said[] => {
  const steps = Math.ceil((end - start) / 60)
  return Array.from({ length: steps + 1 }, (_, nth): Said => {
    const value = from + ((to - from) * nth) / steps
    return [start + ((end - start) * nth) / steps, { [field]: Math.round(value * 1_000) / 1_000 }]
  })
}
const state = (second: number, name: 'Starting' | 'Charging' | 'Complete' | 'Stopped' | 'Disconnected'): Said => [
  second,
  { DetailedChargeState: name },
]
const before = (data: FieldValues, second = -86_400): readonly Said[] => [[second, data]]
const gear = (second: number, name: 'P' | 'D' | 'R'): Said => [second, { Gear: name }]
const odometer = (second: number, miles: number): Said => [second, { Odometer: miles }]
const drives = (from: number, to: number, start: number, end: number): readonly Said[] =>
  runs('Odometer', from, to, start, end)
const there = (second: number, meters: number): Said => [
  second,
  { Location: { latitude: 52 + meters / 111_195, longitude: 4 } },
]

export const charges: readonly History[] = [
  {
    name: 'the DC counter goes on from the charge before, and AC starts at 0',
    kind: 'charge',

    says: [
      ...before({ DCChargingEnergyIn: 19.34, ACChargingEnergyIn: 20.1 }),
      ...unplugged,
      state(0, 'Charging'),
      ...runs('ACChargingEnergyIn', 0, 2.1, 5, 1_200),
      ...runs('DCChargingEnergyIn', 19.34, 21.28, 10, 1_200),
      state(1_230, 'Complete'),
    ],
    sum: 2.1,
  },
  ...[0.06, 1].map((after): History => ({
    name: `\`Starting\` still carries the old counter, and 0 follows after ${after} s`,
    kind: 'charge',

    says: [
      ...unplugged,
      [0, { DetailedChargeState: 'Starting', ACChargingEnergyIn: 19.24 }],
      [after, { ACChargingEnergyIn: 0 }],
      state(3, 'Charging'),
      ...runs('ACChargingEnergyIn', 0.02, 2.1, 60, 1_200),
      state(1_230, 'Complete'),
    ],
    sum: 2.1,
  })),
  {
    name: 'both counters reset, and DC begins with the lag of the charge before',
    kind: 'charge',

    says: [
      ...before({ DCChargingEnergyIn: 19.34, ACChargingEnergyIn: 20.1 }),
      ...unplugged,
      state(0, 'Charging'),
      ...runs('ACChargingEnergyIn', 0, 2.02, 5, 1_200),
      ...runs('DCChargingEnergyIn', 0.48, 2.4, 10, 1_200),
      state(1_230, 'Complete'),
    ],
    sum: 2.02,
  },
  {
    name: 'the counter of the charge before is repeated, and nothing is charged',
    kind: 'charge',

    says: [
      ...before({ ACChargingEnergyIn: 9.5 }),
      ...unplugged,
      state(0, 'Charging'),
      [5, { ACChargingEnergyIn: 9.5 }],
      state(60, 'Complete'),
    ],
    sum: 0,
  },
  {
    name: 'two zeros agree, and the counter goes on',
    kind: 'charge',

    says: [
      ...unplugged,
      state(0, 'Charging'),
      ...runs('ACChargingEnergyIn', 0, 1.36, 5, 700),
      [760, { ACChargingEnergyIn: 0 }],
      [820, { ACChargingEnergyIn: 0 }],
      ...runs('ACChargingEnergyIn', 1.5, 2.4, 880, 1_500),
      state(1_510, 'Complete'),
    ],
    sum: 2.4,
    isNamed: true,
  },
  {
    name: 'the last value of a charge is an odd one, and the next charge begins with the same',
    kind: 'charge',

    says: [
      ...unplugged,
      state(0, 'Charging'),
      ...runs('DCChargingEnergyIn', 0, 50, 5, 1_800),
      [1_860, { DCChargingEnergyIn: 0 }],
      state(1_863, 'Complete'),
      state(2_400, 'Disconnected'),
      state(9_000, 'Charging'),
      ...runs('DCChargingEnergyIn', 0, 20, 9_005, 9_800),
      state(9_802, 'Complete'),
    ],
    sum: 72,
    isNamed: true,
    rows: [{ isNamed: true }, { kwh: 20 }],
  },
  {
    name: 'one 0 in between',
    kind: 'charge',

    says: [
      ...unplugged,
      state(0, 'Charging'),
      ...runs('ACChargingEnergyIn', 0, 8, 5, 2_400),
      [2_460, { ACChargingEnergyIn: 0 }],
      ...runs('ACChargingEnergyIn', 8.1, 12, 2_520, 3_600),
      state(3_610, 'Complete'),
    ],
    sum: 12,
  },
  {
    name: 'one 9917 in between',
    kind: 'charge',

    says: [
      ...unplugged,
      state(0, 'Charging'),
      ...runs('ACChargingEnergyIn', 0, 8, 5, 2_400),
      [2_460, { ACChargingEnergyIn: 9917 }],
      ...runs('ACChargingEnergyIn', 8.2, 12, 2_520, 3_600),
      state(3_610, 'Complete'),
    ],
    sum: 12,
  },
  {
    name: 'the last sample is doubled',
    kind: 'charge',

    says: [
      ...unplugged,
      state(0, 'Charging'),
      ...runs('ACChargingEnergyIn', 0, 8, 5, 2_400),
      state(2_430, 'Complete'),
      [2_440, { ACChargingEnergyIn: 16 }],
    ],
    sum: 8,
  },
  {
    name: 'unplugged for two seconds, and the counter goes on',
    kind: 'charge',

    says: [
      ...unplugged,
      state(0, 'Charging'),
      ...runs('ACChargingEnergyIn', 0, 8, 5, 2_400),
      state(2_430, 'Disconnected'),
      state(2_432, 'Charging'),
      ...runs('ACChargingEnergyIn', 8.02, 12, 2_440, 3_600),
      state(3_610, 'Complete'),
    ],
    sum: 12,
  },
  {
    name: 'the counter is not reset at the plug',
    kind: 'charge',

    says: [
      ...before({ ACChargingEnergyIn: 11 }),
      ...unplugged,
      state(0, 'Charging'),
      ...runs('ACChargingEnergyIn', 11.05, 18, 30, 3_600),
      state(3_610, 'Complete'),
    ],
    sum: 7,
  },
  {
    name: 'a charge that was silent for seven hours',
    kind: 'charge',

    says: [
      ...unplugged,
      state(0, 'Charging'),
      ...runs('ACChargingEnergyIn', 0, 3, 5, 1_800),
      [27_000, { ACChargingEnergyIn: 45.9 }],
      [27_060, { ACChargingEnergyIn: 46 }],
      state(27_070, 'Complete'),
    ],
    sum: 46,
  },
  {
    name: 'a charge that was silent for seven hours, and complete by then',
    kind: 'charge',

    says: [
      ...unplugged,
      state(0, 'Charging'),
      ...runs('ACChargingEnergyIn', 0, 3, 5, 1_800),
      state(27_000, 'Complete'),
      [27_010, { ACChargingEnergyIn: 46 }],
    ],
    sum: 46,
  },
  {
    name: 'the first value is the last one of the charge before',
    kind: 'charge',

    says: [
      ...unplugged,
      state(0, 'Charging'),
      [30, { ACChargingEnergyIn: 4.94 }],
      [31, { ACChargingEnergyIn: 0.02 }],
      [3_600, { ACChargingEnergyIn: 8.34 }],
      state(3_610, 'Complete'),
    ],
    sum: 8.34,
    isNamed: true,
  },
  {
    name: 'an idle AC counter is first seen in a charge with DC',
    kind: 'charge',

    says: [
      ...unplugged,
      state(0, 'Charging'),
      [20, { ACChargingEnergyIn: 16.2 }],
      ...runs('DCChargingEnergyIn', 0, 30.5, 5, 1_200),
      state(1_210, 'Complete'),
    ],
    sum: 30.5,
  },
  {
    name: 'the old number is repeated after the end',
    kind: 'charge',

    says: [
      ...before({ ACChargingEnergyIn: 20.03 }),
      ...unplugged,
      state(0, 'Charging'),
      state(30, 'Complete'),
      [40, { ACChargingEnergyIn: 20.03 }],
    ],
    sum: 0,
  },
  {
    name: 'the charge before was never seen to begin',
    kind: 'charge',

    says: [
      ...unplugged,
      ...runs('ACChargingEnergyIn', 0, 7, 0, 3_600),
      state(3_610, 'Complete'),
      state(4_000, 'Disconnected'),
      state(9_000, 'Charging'),
      ...runs('ACChargingEnergyIn', 0, 5, 9_005, 12_000),
      state(12_010, 'Complete'),
    ],
    sum: 12,
    isNamed: true,
  },
  {
    name: 'its end was not heard, and the next value is from after a reset',
    kind: 'charge',
    says: [
      ...unplugged,
      state(0, 'Charging'),
      ...runs('ACChargingEnergyIn', 0, 20.5, 5, 9_700),
      state(28_000, 'Disconnected'),
      [28_010, { ACChargingEnergyIn: 0 }],
    ],
    sum: 28,
    isNamed: true,
    rows: [{ kwh: 20.5, isNamed: true }],
  },
  {
    name: 'the old number is repeated at its start, and the next one is heard once it is unplugged',
    kind: 'charge',
    says: [
      ...before({ ACChargingEnergyIn: 15.36, DCChargingEnergyIn: 14.55 }),
      ...unplugged,
      [0, { DetailedChargeState: 'Starting', ACChargingEnergyIn: 15.36, DCChargingEnergyIn: 14.55 }],
      state(8_890, 'Disconnected'),
      [8_891, { ACChargingEnergyIn: 0, DCChargingEnergyIn: 14.34 }],
    ],
    sum: 14.34,
    isNamed: true,
    rows: [{ isNamed: true }],
  },
  {
    name: 'its first number was heard, and the next one once it is unplugged',
    kind: 'charge',
    says: [
      ...before({ ACChargingEnergyIn: 18.9 }),
      ...unplugged,
      state(0, 'Charging'),
      [5, { ACChargingEnergyIn: 0.01 }],
      state(19_700, 'Disconnected'),
      [19_701, { ACChargingEnergyIn: 9.3 }],
    ],
    sum: 9.3,
  },
  {
    name: 'the value of the end falls once it is unplugged',
    kind: 'charge',
    says: [
      ...unplugged,
      state(0, 'Charging'),
      ...runs('ACChargingEnergyIn', 0, 1.2, 5, 600),
      state(19_700, 'Disconnected'),
      [19_701, { ACChargingEnergyIn: 21.6 }],
      [25_000, { ACChargingEnergyIn: 9.3 }],
    ],
    sum: 22,
    isNamed: true,
    rows: [{ isNamed: true }],
  },
  {
    name: 'a charge ends and the next one begins unheard, and the counter went on',
    kind: 'charge',
    says: [
      ...unplugged,
      state(0, 'Charging'),
      ...runs('ACChargingEnergyIn', 0, 20, 5, 7_000),
      state(20_000, 'Disconnected'),
      state(20_010, 'Charging'),
      ...runs('ACChargingEnergyIn', 20.9, 25, 20_090, 22_000),
      state(22_010, 'Complete'),
    ],
    sum: 25,
    rows: [{ isNamed: true }, { isNamed: true }],
  },
  {
    name: 'a charge ends and the next one begins unheard, and the counter began again',
    kind: 'charge',
    says: [
      ...unplugged,
      state(0, 'Charging'),
      ...runs('ACChargingEnergyIn', 0, 3, 5, 1_800),
      ...runs('ACChargingEnergyIn', 4.5, 9, 12_000, 15_000),
      state(15_010, 'Complete'),
    ],
    sum: 13,
    isNamed: true,
    rows: [{ isNamed: true }],
  },
  {
    name: 'a charge with DC and one with AC are one, because what lies between was not heard',
    kind: 'charge',
    says: [
      ...unplugged,
      state(0, 'Charging'),
      [5, { ACChargingEnergyIn: 0 }],
      ...runs('DCChargingEnergyIn', 0, 8.2, 5, 520),
      ...runs('ACChargingEnergyIn', 5.6, 10, 6_300, 8_600),
      ...runs('DCChargingEnergyIn', 5.3, 9.4, 6_301, 8_601),
      state(8_620, 'Complete'),
    ],
    sum: 32,
    isNamed: true,
    rows: [{ isNamed: true }],
  },
  {
    name: 'the socket gave twice what the battery got',
    kind: 'charge',
    says: [
      ...unplugged,
      state(0, 'Charging'),
      ...runs('ACChargingEnergyIn', 0, 4.8, 5, 1_950),
      ...runs('DCChargingEnergyIn', 0, 4.5, 6, 1_950),
      state(22_400, 'Disconnected'),
      [22_401, { ACChargingEnergyIn: 60.9, DCChargingEnergyIn: 27.2 }],
    ],
    sum: 61,
    isNamed: true,
    rows: [{ isNamed: true }],
  },
  {
    name: 'two zeros and a third odd number, and the counter goes on',
    kind: 'charge',
    says: [
      ...unplugged,
      state(0, 'Charging'),
      ...runs('ACChargingEnergyIn', 0, 2.06, 5, 1_018),
      [1_095, { ACChargingEnergyIn: 0 }],
      [1_180, { ACChargingEnergyIn: 0 }],
      [1_250, { ACChargingEnergyIn: 8.08 }],
      ...runs('ACChargingEnergyIn', 2.69, 3.8, 1_324, 1_900),
      state(1_910, 'Complete'),
    ],
    sum: 3.8,
    isNamed: true,
    rows: [{ isNamed: true }],
  },
  {
    name: 'a counter began near 0 long ago, and the next one begins again',
    kind: 'charge',
    says: [
      ...unplugged,
      [0, { DetailedChargeState: 'Starting', ACChargingEnergyIn: 1.1 }],
      [6, { ACChargingEnergyIn: 0.01 }],
      ...runs('ACChargingEnergyIn', 0.1, 28.3, 60, 12_500),
      state(12_510, 'Complete'),
      state(12_600, 'Disconnected'),
      ...runs('ACChargingEnergyIn', 1.7, 3, 21_000, 21_600),
    ],
    sum: 28.3,
  },
]

const parked: readonly Said[] = [
  [-600, { Gear: 'P' }],
  [-590, { Odometer: 10_000 }],
  [-580, { EnergyRemaining: 50 }],
]
export const trips: readonly History[] = [
  {
    name: 'the odometer is 0 with the first gear after a reboot',
    kind: 'trip',
    says: [...parked, [0, { Gear: 'D', Odometer: 0 }], ...drives(10_000.5, 10_010, 60, 900), gear(910, 'P')],
    sum: 10,
  },
  {
    name: 'the odometer is set back',
    kind: 'trip',
    says: [
      gear(-600, 'P'),
      odometer(-590, 50_000),
      gear(0, 'D'),
      ...drives(12, 22, 30, 900),
      gear(910, 'P'),
      odometer(920, 22),
    ],
    sum: 10,
    isNamed: true,
  },
  {
    name: 'another odometer says 0 long before it counts',
    kind: 'trip',
    says: [
      gear(-60_000, 'P'),
      odometer(-59_990, 50_000),
      odometer(-30_000, 0),
      odometer(-590, 12),
      gear(0, 'D'),
      ...drives(12.1, 22, 30, 900),
      gear(910, 'P'),
      odometer(920, 22),
    ],
    sum: 10,
  },
  {
    name: 'the odometer is 429,496 once after the end',
    kind: 'trip',
    says: [...parked, gear(0, 'D'), ...drives(10_000.5, 10_010, 60, 900), gear(910, 'P'), odometer(915, 429_496)],
    sum: 10,
  },
  {
    name: '18 miles before the first D that was seen',
    kind: 'trip',
    says: [...parked, gear(0, 'D'), ...drives(10_018.2, 10_020, 10, 200), gear(210, 'P'), odometer(220, 10_020)],
    sum: 20,
  },
  {
    name: '71 minutes without network, then D again',
    kind: 'trip',

    says: [
      ...parked,
      gear(0, 'D'),
      ...drives(10_000.5, 10_040, 60, 2_400),
      gear(6_660, 'D'),
      ...drives(10_095, 10_100, 6_670, 7_000),
      gear(7_010, 'P'),
      odometer(7_020, 10_100),
    ],
    sum: 100,
  },
  {
    name: '71 minutes without network, and the gear is not said again',
    kind: 'trip',

    says: [
      ...parked,
      gear(0, 'D'),
      ...drives(10_000.5, 10_040, 60, 2_400),
      ...drives(10_095, 10_100, 6_670, 7_000),
      gear(7_010, 'P'),
      odometer(7_020, 10_100),
    ],
    sum: 100,
  },
  {
    name: 'a trip without an odometer, then a short one',
    kind: 'trip',

    says: [
      ...parked,
      gear(0, 'D'),
      gear(900, 'P'),
      gear(3_600, 'D'),
      [3_605, { Odometer: 10_012.3 }],
      [3_606, { EnergyRemaining: 32 }],
      ...drives(10_012.3, 10_015, 3_660, 4_000),
      gear(4_010, 'P'),
      [4_020, { EnergyRemaining: 31 }],
    ],
    sum: 15,
    rows: [{}, { miles: 2.7, kwh: 1 }],
  },
  {
    name: 'plugged in 20 s after the end: the energy is that of the charge',
    kind: 'trip',

    says: [
      ...parked,
      gear(0, 'D'),
      ...drives(10_000.5, 10_010, 60, 900),
      [880, { EnergyRemaining: 47 }],
      gear(910, 'P'),
      odometer(915, 10_010),
      [1_000, { EnergyRemaining: 51 }],
    ],
    sum: 10,
    rows: [{ kwh: 3 }],
  },
  {
    name: 'plugged in after the end, and no energy was heard before',
    kind: 'trip',

    says: [
      ...parked,
      gear(0, 'D'),
      ...drives(10_000.5, 10_010, 60, 900),
      gear(910, 'P'),
      odometer(915, 10_010),
      [3_000, { EnergyRemaining: 95.9 }],
    ],
    sum: 10,
    rows: [{ missing: expect.arrayContaining(['energy']) }],
  },
  {
    name: 'the position is 0,0 once',
    kind: 'trip',

    says: [
      ...parked,
      there(-570, 0),
      gear(0, 'D'),
      ...drives(10_000.1, 10_001, 60, 300),
      there(100, 700),
      [150, { Location: { latitude: 0, longitude: 0 } }],
      there(200, 1_200),
      there(290, 1_700),
      gear(300, 'P'),
      [310, { Location: { latitude: 0, longitude: 0 } }],
      odometer(311, 10_001),
    ],
    sum: 1,
    rows: [{ meters: 1_700 }],
  },
  {
    name: 'one fix 17 km away',
    kind: 'trip',

    says: [
      ...parked,
      there(-570, 0),
      gear(0, 'D'),
      ...drives(10_000.1, 10_001, 60, 300),
      there(100, 700),
      there(150, 17_000),
      there(200, 1_200),
      there(290, 1_700),
      gear(300, 'P'),
      odometer(311, 10_001),
    ],
    sum: 1,
    rows: [{ meters: 1_700 }],
  },
]
