import type { FieldValue, Location } from '../../events/values.ts'
import { between, chance, oneOf, randomFrom, whole, type Random } from './random.ts'
import { type Model, modelOf, syntheticVin } from './vin.ts'

export interface StreamedField {
  readonly interval_seconds?: number
  readonly minimum_delta?: number
  readonly resend_interval_seconds?: number
}

/** The streaming config of a vehicle, and the last value of each field that it sent. */
export interface Streaming {
  /** A setting of `null` streams the field at its default interval. */
  readonly fields: ReadonlyMap<string, StreamedField | null>
  readonly sent: Map<string, { readonly value: FieldValue; readonly at: number }>
}

/** The charger that is plugged in, and what the battery takes from it. */
export interface Charging {
  readonly kind: 'ac' | 'dc'
  readonly maxWatts: number
  state: 'Disconnected' | 'Starting' | 'Charging' | 'Stopped' | 'Complete'
  watts: number
  energyInWh: number
}

/** Which vehicles have old firmware: none, every third, or all. Old firmware writes most values as text. */
export type Firmware = 'today' | 'mixed' | 'old'

interface Trip {
  readonly origin: Location
  readonly destination: Location
  readonly name: string
  readonly meters: number
  metersLeft: number
}

/** Inland towns. The sea is more than a day's drive away. */
const towns: readonly [Location, ...Location[]] = [
  { latitude: 30.267, longitude: -97.743 },
  { latitude: 51.313, longitude: 9.481 },
  { latitude: 40.417, longitude: -3.704 },
  { latitude: 45.07, longitude: 7.687 },
  { latitude: -33.282, longitude: 149.1 },
]

/** How the firmware writes messages. */
interface WrittenBy {
  /** Values with their types or, when it is old, as text. */
  readonly spelling: 'typed' | 'text'
  /** The digits that it writes after the second. */
  readonly fractionDigits: 0 | 3 | 6 | 9
  readonly version: string
}

/** The connection to the service. */
interface Link {
  streaming: Streaming
  clockAheadMs: number
  postedAt: number
  /** The vehicle has no network until then. Its messages wait and are then posted one after another. */
  offlineUntil: number
  connectionId: string
  networkInterface: 'wifi' | 'cellular'
}

interface Drive {
  /** Clockwise from north. */
  headingRadians: number
  metersPerSecond: number
  odometerMeters: number
  gear: 'P' | 'R' | 'N' | 'D'
  trip: Trip | undefined
}

interface Battery {
  readonly capacityWh: number
  chargeLimitPercent: number
  energyWh: number
  /** Power out of the battery. Negative into it. */
  watts: number
  charging: Charging | undefined
  portOpen: boolean
}

interface Cabin {
  readonly outsideCelsius: number
  climateOn: boolean
  wantedCelsius: number
  driverDoorOpen: boolean
  trunkOpen: boolean
  occupied: boolean
  locked: boolean
}

/** A vehicle at one moment, in physical units: at first parked, locked and asleep at home. `signals.ts` has the values that it sends. */
export class Vehicle {
  readonly vin: string
  readonly index: number
  readonly model: Model
  readonly random: Random
  name: string
  readonly home: Location
  /** The true time, in milliseconds since the epoch. */
  now: number
  state: 'online' | 'asleep' | 'driving' = 'asleep'
  latitude: number
  longitude: number
  readonly firmware: WrittenBy
  readonly link: Link
  readonly drive: Drive
  readonly battery: Battery
  readonly cabin: Cabin

  /** The same seed gives the same vehicle, because the random numbers are always drawn in this order. */
  constructor(index: number, seed: number, startAt: number, firmware: Firmware = 'today') {
    const random = randomFrom(seed)
    const town = oneOf(random, towns)
    this.latitude = town.latitude + between(random, -0.08, 0.08)
    this.longitude = town.longitude + between(random, -0.1, 0.1)
    this.home = { latitude: this.latitude, longitude: this.longitude }
    this.vin = syntheticVin(index)
    this.index = index
    this.model = modelOf(index)
    this.random = random
    this.name = `Car ${index + 1}`
    this.now = startAt
    const capacityWh = oneOf(random, [57_500, 75_000, 95_000])
    const outsideCelsius = whole(random, 8, 56) / 2
    this.firmware = {
      spelling: firmware === 'old' || (firmware === 'mixed' && index % 3 === 2) ? 'text' : 'typed',
      fractionDigits: oneOf(random, [9, 9, 9, 6, 3, 0]),
      version: oneOf(random, ['2026.32.6 8f2a51c3d0', '2026.36.1 17be90aa42', '2026.38.4.2 c5d0719e6f']),
    }
    const chargeLimitPercent = oneOf(random, [80, 80, 80, 90, 100])
    this.link = {
      streaming: { fields: new Map(), sent: new Map() },
      clockAheadMs: 0,
      postedAt: startAt,
      offlineUntil: 0,
      connectionId: '',
      networkInterface: chance(random, 0.5) ? 'wifi' : 'cellular',
    }
    this.drive = {
      headingRadians: between(random, 0, 2 * Math.PI),
      metersPerSecond: 0,
      odometerMeters: whole(random, 900, 180_000) * 1_000 + between(random, 0, 1_000),
      gear: 'P',
      trip: undefined,
    }
    const energyWh = capacityWh * between(random, 0.42, 0.78)
    this.battery = { capacityWh, chargeLimitPercent, energyWh, watts: 0, charging: undefined, portOpen: false }
    this.cabin = {
      outsideCelsius,
      climateOn: false,
      wantedCelsius: whole(random, 38, 45) / 2,
      driverDoorOpen: false,
      trunkOpen: false,
      occupied: false,
      locked: true,
    }
  }
}

export function socPercent(vehicle: Vehicle): number {
  return (100 * vehicle.battery.energyWh) / vehicle.battery.capacityWh
}

const metersPerDegree = 111_195

/** The distance in meters, and the direction clockwise from north. Exact enough for a day's driving. */
export function courseTo(from: Location, to: Location): { readonly meters: number; readonly radians: number } {
  const north = (to.latitude - from.latitude) * metersPerDegree
  const middle = ((from.latitude + to.latitude) / 2) * (Math.PI / 180)
  const east = (to.longitude - from.longitude) * metersPerDegree * Math.cos(middle)
  return { meters: Math.hypot(north, east), radians: Math.atan2(east, north) }
}

export function placeAt(from: Location, meters: number, radians: number): Location {
  const latitude = from.latitude + (meters * Math.cos(radians)) / metersPerDegree
  const middle = ((from.latitude + latitude) / 2) * (Math.PI / 180)
  const longitude = from.longitude + (meters * Math.sin(radians)) / (metersPerDegree * Math.cos(middle))
  return { latitude, longitude }
}

export const isAtHome = (vehicle: Vehicle): boolean => courseTo(vehicle, vehicle.home).meters < 100

export const isAmerican = ({ home }: Vehicle): boolean => home.longitude < -30
