import type { FieldValues } from 'fleethook'
import type { Said } from '../when/episodes-scene.ts'
import type { History } from '../when/histories.ts'

/** A field from one number to another, each minute. */
function runs(field: string, from: number, to: number, start: number, end: number): readonly Said[] {
  const steps = Math.ceil((end - start) / 60)
  return Array.from({ length: steps + 1 }, (_, nth): Said => {
    const value = from + ((to - from) * nth) / steps
    return [start + ((end - start) * nth) / steps, { [field]: Math.round(value * 1_000) / 1_000 }]
  })
}

const parked: readonly Said[] = [[-600, { Gear: 'P', Odometer: 10_000 }]]
const miles = (from: number, to: number, start: number, end: number): readonly Said[] =>
  runs('Odometer', from, to, start, end)
/** Ten miles from 60 s to 900 s, and parked at 910 s. */
const tenMiles: readonly Said[] = [[0, { Gear: 'D' }], ...miles(10_000.5, 10_010, 60, 900), [910, { Gear: 'P' }]]
const unplugged: readonly Said[] = [[-7_200, { DetailedChargeState: 'Disconnected', BatteryLevel: 40 }]]
const ac = (from: number, to: number, start: number, end: number): readonly Said[] =>
  runs('ACChargingEnergyIn', from, to, start, end)
const dc = (from: number, to: number, start: number, end: number): readonly Said[] =>
  runs('DCChargingEnergyIn', from, to, start, end)
const state = (second: number, name: string): Said => [second, { DetailedChargeState: name } as FieldValues] // oxlint-disable-line no-unsafe-type-assertion -- one of the constants

/** Others of the same kinds as in test/when/histories.ts. */
export const trips: readonly History[] = [
  {
    name: 'no gear is ever said, only the speed',
    kind: 'trip',
    // prettier-ignore
    says: [[-600, { VehicleSpeed: 0, Odometer: 10_000 }], [0, { VehicleSpeed: 30 }], ...miles(10_000.5, 10_010, 60, 900), [910, { VehicleSpeed: 0 }]],
    sum: 10,
  },
  {
    name: 'the gear of a sleeping car is SNA',
    kind: 'trip',
    // prettier-ignore
    says: [[-40_000, { Gear: 'P' }], [-39_000, { Gear: 'SNA' }], ...parked, ...tenMiles, [2_000, { Gear: 'SNA' }], [40_000, { Gear: 'P' }]],
    sum: 10,
  },
  {
    name: 'the odometer is null now and then, and right before the end',
    kind: 'trip',
    says: [...parked, ...tenMiles, [330, { Odometer: null }], [905, { Odometer: null }], [940, { Odometer: 10_010 }]],
    sum: 10,
  },
  {
    name: 'each odometer comes half a minute late, after the next one',
    kind: 'trip',
    // prettier-ignore
    says: [...parked, ...tenMiles.map(([second, data], nth): Said => ('Odometer' in data && nth % 2 === 0 ? [second, data, 70] : [second, data]))],
    sum: 10,
  },
  {
    name: 'two odd samples in a row',
    kind: 'trip',
    says: [...parked, ...tenMiles, [333, { Odometer: 0 }], [335, { Odometer: 0 }]],
    sum: 10,
    isNamed: true,
  },
  {
    name: 'the odometer steps back by a tenth',
    kind: 'trip',
    says: [...parked, ...tenMiles, [333, { Odometer: 10_003.2 }], [920, { Odometer: 10_010 }]],
    sum: 10,
  },
  {
    name: 'the end is lost, and the next morning it drives again',
    kind: 'trip',
    // prettier-ignore
    says: [...parked, ...tenMiles.slice(0, -1), [43_000, { Gear: 'D' }], ...miles(10_010.5, 10_014, 43_060, 43_400), [43_410, { Gear: 'P' }]],
    sum: 14,
  },
  {
    name: 'five miles on a tow truck, parked',
    kind: 'trip',
    // prettier-ignore
    says: [...parked, ...tenMiles, [5_000, { Odometer: 10_015 }], [9_000, { Gear: 'D' }], ...miles(10_015.5, 10_020, 9_060, 9_400), [9_410, { Gear: 'P' }]],
    sum: 20,
  },
  {
    name: 'every message comes twice, minutes apart',
    kind: 'trip',
    says: [...parked, ...tenMiles, ...tenMiles.map(([second, data]): Said => [second, data, 200])],
    sum: 10,
  },
  {
    name: 'it uploads the whole trip hours later, in order',
    kind: 'trip',
    says: [...parked, ...tenMiles.map(([second, data]): Said => [second, data, 20_000 - second])],
    sum: 10,
  },
]

export const charges: readonly History[] = [
  {
    name: 'clouds: pauses of ten minutes',
    kind: 'charge',
    // prettier-ignore
    says: [...unplugged, state(0, 'Charging'), ...ac(0, 1, 5, 600), state(610, 'Stopped'), state(1_200, 'Charging'), ...ac(1.01, 3, 1_210, 2_400), state(2_410, 'Complete')],
    sum: 3,
  },
  {
    name: 'the counter is null before the end',
    kind: 'charge',
    // prettier-ignore
    says: [...unplugged, state(0, 'Charging'), ...ac(0, 8, 5, 2_400), [2_405, { ACChargingEnergyIn: null }], state(2_410, 'Complete')],
    sum: 8,
  },
  {
    name: 'one with DC, and then one with AC',
    kind: 'charge',
    // prettier-ignore
    says: [...unplugged, state(0, 'Charging'), ...dc(0, 30, 5, 1_200), state(1_210, 'Complete'), state(1_500, 'Disconnected'), state(9_000, 'Charging'), ...ac(0, 6, 9_005, 11_000), ...dc(0, 5.6, 9_010, 11_000), state(11_010, 'Complete')],
    sum: 36,
  },
  {
    name: '9917 twice in a row',
    kind: 'charge',
    // prettier-ignore
    says: [...unplugged, state(0, 'Charging'), ...ac(0, 8, 5, 2_400), [2_403, { ACChargingEnergyIn: 9_917 }], [2_405, { ACChargingEnergyIn: 9_917 }], ...ac(8.1, 12, 2_460, 3_600), state(3_610, 'Complete')],
    sum: 12,
    isNamed: true,
  },
  {
    name: 'the last value comes 40 s after the end, and the one before it after that',
    kind: 'charge',
    // prettier-ignore
    says: [...unplugged, state(0, 'Charging'), ...ac(0, 7.9, 5, 2_340), [2_400, { ACChargingEnergyIn: 8 }, 40], [2_370, { ACChargingEnergyIn: 7.95 }, 90], state(2_410, 'Complete')],
    sum: 8,
  },
  {
    name: 'the counter steps back a little',
    kind: 'charge',
    // prettier-ignore
    says: [...unplugged, state(0, 'Charging'), ...ac(0, 8, 5, 2_400), [2_430, { ACChargingEnergyIn: 7.95 }], ...ac(8.1, 12, 2_460, 3_600), state(3_610, 'Complete')],
    sum: 12,
  },
  {
    name: 'it was charging when the receiver heard it first',
    kind: 'charge',
    // prettier-ignore
    says: [[0, { DetailedChargeState: 'Charging', ACChargingEnergyIn: 5 }], ...ac(5.1, 9, 60, 1_800), state(1_810, 'Complete')],
    sum: 9,
    isNamed: true,
  },
  {
    name: 'every message comes twice, minutes apart',
    kind: 'charge',
    // prettier-ignore
    says: [...unplugged, ...[0, 200].flatMap((late) => [state(0, 'Charging'), ...ac(0, 8, 5, 2_400), state(2_410, 'Complete')].map(([second, data]): Said => [second, data, late]))],
    sum: 8,
  },
]
