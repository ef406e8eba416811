import type { FieldValue, Location } from '../../events/values.ts'
import { between, chance, oneOf, randomFrom, whole, type Random } from './random.ts'
import { type Model, modelOf, syntheticVin } from './vin.ts'

/** How one field is streamed, with the names of a streaming config. */
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

/** What its owner chose, and what commands change. */
export interface OwnerSettings {
  sentry: boolean
  valet: boolean
  guest: boolean
  pinToDrive: boolean
  speedLimit: boolean
  speedLimitMph: number
  chargingAmps: number
  overheat: 'Off' | 'On' | 'FanOnly'
  overheatLimit: 'Low' | 'Medium' | 'High'
  keeper: 'Off' | 'On' | 'Dog' | 'Party'
  defrost: boolean
  /** Driver, passenger, rear left, rear center, rear right: 0 to 3. */
  seatHeat: readonly number[]
  /** Driver, passenger: 0 to 3. */
  seatCool: readonly number[]
  wheelHeat: number
  volume: number
  mediaPaused: boolean
  vented: boolean
  updateAt: number | undefined
}

/** A vehicle at one moment, in physical units. `signals.ts` has the values that it sends. */
export interface Vehicle {
  readonly vin: string
  readonly index: number
  readonly model: Model
  readonly random: Random
  readonly settings: OwnerSettings

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
  state: 'online' | 'asleep' | 'driving'
  /** The longest step of the simulation, in seconds. `Infinity` leaves the length to the activity. */
  stepSeconds: number
  /** What the vehicle streams. `undefined`: what every vehicle of a fleet streams. */
  streaming: Streaming | undefined
  /** How far the vehicle's own clock is ahead. */
  clockAheadMs: number
  /** The last value that was sent, by the index of the signal. Empty after sleep. */
  sent: unknown[]
  /** When the signals were last read. */
  readAt: number
  /** When the last message is posted. */
  postedAt: number
  /** The vehicle has no network until then. Its messages wait and are then posted one after another. */
  offlineUntil: number
  connectionId: string
  networkInterface: 'wifi' | 'cellular'

  latitude: number
  longitude: number
  /** Clockwise from north. */
  headingRadians: number
  metersPerSecond: number
  acceleration: number
  /** To the right, in meters per second squared. */
  lateral: number
  odometerMeters: number
  gear: 'P' | 'R' | 'N' | 'D'
  trip: Trip | undefined

  energyWh: number
  /** Energy from braking that is not used yet. It does not raise the gauge: the gauge falls later. */
  recuperatedWh: number
  /** Power out of the battery. Negative into it. */
  watts: number
  charging: Charging | undefined
  portOpen: boolean

  cabinCelsius: number
  tireCelsius: number
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
  /** The sensor is in the wheel, so there is no tire pressure until the wheel has turned. */
  tiresSeen: boolean
  /** When the sensors in the wheels were last heard, in milliseconds since the epoch. */
  tiresSeenAt: number
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

const chosen: OwnerSettings = {
  sentry: true,
  valet: false,
  guest: false,
  pinToDrive: false,
  speedLimit: false,
  speedLimitMph: 85,
  chargingAmps: 32,
  overheat: 'On',
  overheatLimit: 'High',
  keeper: 'Off',
  defrost: false,
  seatHeat: [0, 0, 0, 0, 0],
  seatCool: [0, 0],
  wheelHeat: 0,
  volume: 3.3333,
  mediaPaused: false,
  vented: false,
  updateAt: undefined,
}

/** A parked, locked, sleeping vehicle at home. */
export function createVehicle(index: number, seed: number, startAt: number, firmware: Firmware = 'today'): Vehicle {
  const random = randomFrom(seed)
  const town = oneOf(random, towns)
  const home = {
    latitude: town.latitude + between(random, -0.08, 0.08),
    longitude: town.longitude + between(random, -0.1, 0.1),
  }
  const model = modelOf(index)
  const capacityWh = model === 'S' || model === 'X' ? 95_000 : oneOf(random, [57_500, 75_000])
  const bars = between(random, 2.75, 3)
  const celsius = between(random, 4, 24)
  return {
    vin: syntheticVin(index),
    index,
    model,
    random,
    settings: { ...chosen },
    spelling: firmware === 'old' || (firmware === 'mixed' && index % 3 === 2) ? 'text' : 'typed',
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
    sent: [],
    readAt: 0,
    postedAt: startAt,
    offlineUntil: 0,
    connectionId: '',
    networkInterface: chance(random, 0.5) ? 'wifi' : 'cellular',

    latitude: home.latitude,
    longitude: home.longitude,
    headingRadians: between(random, 0, 2 * Math.PI),
    metersPerSecond: 0,
    acceleration: 0,
    lateral: 0,
    odometerMeters: whole(random, 900, 180_000) * 1_000 + between(random, 0, 1_000),
    gear: 'P',
    trip: undefined,

    energyWh: capacityWh * between(random, 0.42, 0.78),
    recuperatedWh: 0,
    watts: 0,
    charging: undefined,
    portOpen: false,

    cabinCelsius: celsius + 1,
    tireCelsius: celsius,
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
    tiresSeen: false,
    tiresSeenAt: startAt,
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
