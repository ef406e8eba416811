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
  metersLeft: number
}

/** Inland towns. The sea is more than a day's drive away. */
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
  readonly massKg: number
  readonly capacityWh: number
  chargeLimitPercent: number
  readonly coldBars: readonly [number, number, number, number]
  readonly yearlyMeanCelsius: number

  /** The true time, in milliseconds since the epoch. */
  now: number
  state: 'online' | 'asleep' | 'driving' = 'asleep'
  /** The longest step of the simulation, in seconds. `Infinity` leaves the length to the activity. */
  stepSeconds: number = Infinity
  /** What the vehicle streams. `undefined`: what every vehicle of a fleet streams. */
  streaming: Streaming | undefined
  clockAheadMs = 0
  /** The last value that was sent, by the index of the signal. Empty after sleep. */
  sent: unknown[] = []
  readAt = 0
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
  acceleration = 0
  /** To the right, in meters per second squared. */
  lateral = 0
  odometerMeters: number
  gear: 'P' | 'R' | 'N' | 'D' = 'P'
  trip: Trip | undefined

  energyWh: number
  /** Energy from braking that is not used yet. It does not raise the gauge: the gauge falls later. */
  recuperatedWh = 0
  /** Power out of the battery. Negative into it. */
  watts = 0
  charging: Charging | undefined
  portOpen = false

  cabinCelsius: number
  tireCelsius: number
  batteryCelsius: number
  climateOn = false
  wantedCelsius: number

  driverDoorOpen = false
  trunkOpen = false
  occupied = false
  buckled = false
  passengerBuckled = false
  locked = true
  windowOpen: boolean
  vented = false
  sentry = true
  /** The current that its owner allows. */
  chargingAmps = 32
  /** The sensor is in the wheel, so there is no tire pressure until the wheel has turned. */
  tiresSeen = false
  /** When the sensors in the wheels were last heard, in milliseconds since the epoch. */
  tiresSeenAt: number

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
    this.capacityWh = this.model === 'S' || this.model === 'X' ? 95_000 : oneOf(random, [57_500, 75_000])
    this.massKg = 1_500 + this.capacityWh / 125
    const bars = between(random, 2.75, 3)
    const celsius = between(random, 4, 24)
    this.yearlyMeanCelsius = celsius
    this.cabinCelsius = celsius + 1
    this.tireCelsius = celsius
    this.batteryCelsius = celsius
    this.spelling = firmware === 'old' || (firmware === 'mixed' && index % 3 === 2) ? 'text' : 'typed'
    this.fractionDigits = oneOf(random, [9, 9, 9, 6, 3, 0])
    this.version = oneOf(random, ['2026.32.6 8f2a51c3d0', '2026.36.1 17be90aa42', '2026.38.4.2 c5d0719e6f'])
    this.name = `Car ${index + 1}`
    this.chargeLimitPercent = oneOf(random, [80, 80, 80, 90, 100])
    this.coldBars = [bars, bars + 0.025, bars + between(random, -0.1, 0.1), bars - 0.025]
    this.now = startAt
    this.postedAt = startAt
    this.tiresSeenAt = startAt
    this.networkInterface = chance(random, 0.5) ? 'wifi' : 'cellular'
    this.headingRadians = between(random, 0, 2 * Math.PI)
    this.odometerMeters = whole(random, 900, 180_000) * 1_000 + between(random, 0, 1_000)
    this.energyWh = this.capacityWh * between(random, 0.42, 0.78)
    this.wantedCelsius = whole(random, 38, 45) / 2
    this.windowOpen = chance(random, 0.05)
  }
}

export function socPercent(vehicle: Vehicle): number {
  return (100 * vehicle.energyWh) / vehicle.capacityWh
}

/** The outside temperature: lowest at 5 am solar time, highest at 5 pm. */
export function outsideCelsius(vehicle: Vehicle): number {
  const solarHours = vehicle.now / 3_600_000 + vehicle.longitude / 15
  return vehicle.yearlyMeanCelsius + 5 * Math.sin(((solarHours - 11) / 24) * 2 * Math.PI)
}
