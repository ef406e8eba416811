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

/** A vehicle at one moment, in physical units: at first parked, locked and asleep at home. `signals.ts` has the values that it sends. */
export class Vehicle {
  readonly vin: string
  readonly index: number
  readonly model: Model
  readonly random: Random

  /** How the firmware writes values: with their types or, when it is old, as text. */
  readonly spelling: 'typed' | 'text'
  /** The digits that the firmware writes after the second. */
  readonly fractionDigits: 0 | 3 | 6 | 9
  readonly version: string
  name: string
  readonly home: Location
  readonly capacityWh: number
  chargeLimitPercent: number
  readonly outsideCelsius: number

  /** The true time, in milliseconds since the epoch. */
  now: number
  state: 'online' | 'asleep' | 'driving' = 'asleep'
  streaming: Streaming = { fields: new Map(), sent: new Map() }
  clockAheadMs = 0
  postedAt: number
  /** The vehicle has no network until then. Its messages wait and are then posted one after another. */
  offlineUntil = 0
  connectionId = ''
  networkInterface: 'wifi' | 'cellular'

  latitude: number
  longitude: number
  /** Clockwise from north. */
  headingRadians: number
  metersPerSecond = 0
  odometerMeters: number
  gear: 'P' | 'R' | 'N' | 'D' = 'P'
  trip: Trip | undefined

  energyWh: number
  /** Power out of the battery. Negative into it. */
  watts = 0
  charging: Charging | undefined
  portOpen = false

  climateOn = false
  wantedCelsius: number
  driverDoorOpen = false
  trunkOpen = false
  occupied = false
  locked = true

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
    this.capacityWh = oneOf(random, [57_500, 75_000, 95_000])
    this.outsideCelsius = whole(random, 8, 56) / 2
    this.spelling = firmware === 'old' || (firmware === 'mixed' && index % 3 === 2) ? 'text' : 'typed'
    this.fractionDigits = oneOf(random, [9, 9, 9, 6, 3, 0])
    this.version = oneOf(random, ['2026.32.6 8f2a51c3d0', '2026.36.1 17be90aa42', '2026.38.4.2 c5d0719e6f'])
    this.name = `Car ${index + 1}`
    this.chargeLimitPercent = oneOf(random, [80, 80, 80, 90, 100])
    this.now = startAt
    this.postedAt = startAt
    this.networkInterface = chance(random, 0.5) ? 'wifi' : 'cellular'
    this.headingRadians = between(random, 0, 2 * Math.PI)
    this.odometerMeters = whole(random, 900, 180_000) * 1_000 + between(random, 0, 1_000)
    this.energyWh = this.capacityWh * between(random, 0.42, 0.78)
    this.wantedCelsius = whole(random, 38, 45) / 2
  }
}

export function socPercent(vehicle: Vehicle): number {
  return (100 * vehicle.energyWh) / vehicle.capacityWh
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
