import type { Location } from '../../events/values.ts'
import { between, chance, oneOf, randomFrom, whole, type Random } from './random.ts'
import type { Spelling } from './spelling.ts'
import type { FractionDigits } from './timestamp.ts'
import type { Streaming } from './streaming.ts'
import { syntheticVin } from './vin.ts'

/** Where the cable is plugged in, and how the battery takes it. */
export interface Charging {
  readonly kind: 'ac' | 'dc'
  readonly maxWatts: number
  state: 'Disconnected' | 'Starting' | 'Charging' | 'Stopped' | 'Complete'
  watts: number
  energyInWh: number
}

/** Where a trip leads. */
export interface Trip {
  readonly origin: Location
  readonly destination: Location
  readonly name: string
  metersLeft: number
}

/** A vehicle as it is at one moment. Physical units; what the wire wants of them is in `signals.ts`. */
export interface Vehicle {
  readonly vin: string
  readonly random: Random

  readonly spelling: Spelling
  readonly fractionDigits: FractionDigits
  readonly version: string
  readonly name: string
  readonly home: Location
  readonly massKg: number
  readonly capacityWh: number
  chargeLimitPercent: number
  readonly coldBars: readonly [number, number, number, number]
  readonly yearlyMeanCelsius: number

  /** The true time, ms since the epoch. */
  now: number
  state: 'online' | 'asleep' | 'driving'
  /** The longest step in which the vehicle lives. Infinity: as long as what it does allows. */
  stepSeconds: number
  /** What the vehicle streams; nothing: what every vehicle of a fleet does. */
  streaming: Streaming | undefined
  /** How far the vehicle's own clock is ahead. */
  clockAheadMs: number
  /** What was said last, by the index of the signal; empty after sleep. */
  said: unknown[]
  /** When the signals were looked at last. */
  lookedAt: number
  /** When the last message was posted. */
  postedAt: number
  /** Until then the vehicle has no network: its messages wait, and are posted in a row. */
  offlineUntil: number
  connectionId: string
  networkInterface: 'wifi' | 'cellular'

  latitude: number
  longitude: number
  /** Clockwise from north. */
  headingRadians: number
  metersPerSecond: number
  acceleration: number
  odometerMeters: number
  gear: 'P' | 'R' | 'N' | 'D'
  trip: Trip | undefined

  energyWh: number
  /** Won back by braking and not spent yet. The gauge does not rise by it: it falls later. */
  recuperatedWh: number
  /** Out of the battery; negative into it. */
  watts: number
  charging: Charging | undefined
  portOpen: boolean

  cabinCelsius: number
  tyreCelsius: number
  batteryCelsius: number
  climateOn: boolean
  wantedCelsius: number

  driverDoorOpen: boolean
  trunkOpen: boolean
  occupied: boolean
  buckled: boolean
  passengerBuckled: boolean
  locked: boolean
  windowOpen: boolean
  /** Tyre pressure is measured in the wheel: there is none until the wheel has turned. */
  tyresSeen: boolean
}

/** Inland towns, far enough from the sea for a day's driving. */
const towns: readonly [Location, ...Location[]] = [
  { latitude: 30.267, longitude: -97.743 },
  { latitude: 39.739, longitude: -104.99 },
  { latitude: 51.313, longitude: 9.481 },
  { latitude: 47.322, longitude: 5.041 },
  { latitude: 40.417, longitude: -3.704 },
  { latitude: 45.07, longitude: 7.687 },
  { latitude: 52.486, longitude: -1.89 },
  { latitude: -33.282, longitude: 149.1 },
]

/** A parked, locked, sleeping vehicle at home. */
export function createVehicle(index: number, seed: number, startAt: number): Vehicle {
  const random = randomFrom(seed)
  const town = oneOf(random, towns)
  const home = {
    latitude: town.latitude + between(random, -0.08, 0.08),
    longitude: town.longitude + between(random, -0.1, 0.1),
  }
  const capacityWh = oneOf(random, [57_500, 75_000, 95_000])
  const bars = between(random, 2.75, 3)
  const celsius = between(random, 4, 24)
  return {
    vin: syntheticVin(index),
    random,
    spelling: oneOf(random, ['typed', 'typed', 'typed', 'text']),
    fractionDigits: oneOf(random, [9, 9, 9, 6, 3, 0]),
    version: oneOf(random, ['2026.32.6 8f2a51c3d0', '2026.36.1 17be90aa42', '2026.38.4.2 c5d0719e6f']),
    name: `Car ${index + 1}`,
    home,
    massKg: 1_500 + capacityWh / 125,
    capacityWh,
    chargeLimitPercent: oneOf(random, [80, 80, 80, 90, 100]),
    coldBars: [bars, bars + 0.025, bars + between(random, -0.1, 0.1), bars - 0.025],
    yearlyMeanCelsius: celsius,

    now: startAt,
    state: 'asleep',
    stepSeconds: Infinity,
    streaming: undefined,
    clockAheadMs: 0,
    said: [],
    lookedAt: 0,
    postedAt: startAt,
    offlineUntil: 0,
    connectionId: '',
    networkInterface: chance(random, 0.5) ? 'wifi' : 'cellular',

    latitude: home.latitude,
    longitude: home.longitude,
    headingRadians: between(random, 0, 2 * Math.PI),
    metersPerSecond: 0,
    acceleration: 0,
    odometerMeters: whole(random, 900, 180_000) * 1_000 + between(random, 0, 1_000),
    gear: 'P',
    trip: undefined,

    energyWh: capacityWh * between(random, 0.42, 0.78),
    recuperatedWh: 0,
    watts: 0,
    charging: undefined,
    portOpen: false,

    cabinCelsius: celsius + 1,
    tyreCelsius: celsius,
    batteryCelsius: celsius,
    climateOn: false,
    wantedCelsius: whole(random, 38, 45) / 2,

    driverDoorOpen: false,
    trunkOpen: false,
    occupied: false,
    buckled: false,
    passengerBuckled: false,
    locked: true,
    windowOpen: chance(random, 0.05),
    tyresSeen: false,
  }
}

/** How full the battery is, in percent. */
export function socPercent(vehicle: Vehicle): number {
  return (100 * vehicle.energyWh) / vehicle.capacityWh
}

/** The air outside: coldest at five in the morning by the sun, warmest at five in the afternoon. */
export function outsideCelsius(vehicle: Vehicle): number {
  const solarHours = vehicle.now / 3_600_000 + vehicle.longitude / 15
  return vehicle.yearlyMeanCelsius + 5 * Math.sin(((solarHours - 11) / 24) * 2 * Math.PI)
}
