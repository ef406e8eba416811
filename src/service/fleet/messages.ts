import { builtInFields } from '../../events/fields.ts'
import type { Alert, Format, Meta, VehicleError } from '../../events/event.ts'
import type { FieldCatalogue } from '../../events/fields.ts'
import type { FieldValue } from '../../events/values.ts'
import { type Encodable, encode } from '../../wire/encode.ts'
import type { JsonObject } from '../../wire/record.ts'
import { sectionNames, vehicleDocument } from './document.ts'
import { between, chance, oneOf, type Random, whole } from './random.ts'
import { dueValues } from './streaming.ts'
import type { Vehicle } from './vehicle.ts'

interface SimulatedBase {
  readonly vin: string
  /** ISO 8601 UTC, by the vehicle's clock. For `connectivity`, by the server's clock. */
  readonly createdAt: string
  readonly meta?: Meta
}

/** An event before it is written in a format. `undecoded` are constants that old firmware writes as text. */
export type SimulatedEvent =
  | (SimulatedBase & {
      readonly topic: 'data'
      readonly data: { readonly [field: string]: FieldValue }
      readonly undecoded?: { readonly [field: string]: string }
    })
  | (SimulatedBase & { readonly topic: 'state'; readonly state: 'online' | 'asleep' | 'driving' | 'offline' })
  | (SimulatedBase & { readonly topic: 'vehicle_data'; readonly vehicleData: { readonly [key: string]: unknown } })
  | (SimulatedBase & { readonly topic: 'alerts'; readonly alerts: readonly Alert[] })
  | (SimulatedBase & { readonly topic: 'errors'; readonly errors: readonly VehicleError[] })
  | (SimulatedBase & {
      readonly topic: 'connectivity'
      readonly status: 'connected' | 'disconnected'
      readonly networkInterface: 'wifi' | 'cellular'
      readonly connectionId: string
    })

/** An event, and when the service would post it. */
export interface SimulatedMessage {
  /** Milliseconds since the epoch. Later than `createdAt` by the network delay, or by hours after a tunnel. */
  readonly at: number
  readonly event: SimulatedEvent
}

const catalogue: FieldCatalogue = builtInFields

/** `encode`, except that a constant keeps its full name (`"ShiftStateD"`), as the service passes it on. */
export function wireMessage(event: Encodable, format: Format): JsonObject {
  if (event.topic !== 'data' || format === 'vehicle_maker') return encode(event, format)
  const { data, undecoded = {} } = event
  const entries = Object.entries(data).map(([field, value]): [string, unknown] => {
    const type = Object.hasOwn(catalogue, field) ? catalogue[field] : undefined
    const isConstant =
      typeof type === 'object' && 'enum' in type && typeof value === 'string' && type.enum.includes(value)
    return [field, isConstant && !Object.hasOwn(undecoded, field) ? `${type.prefix ?? ''}${value}` : value]
  })
  return encode({ ...event, data: Object.fromEntries(entries) }, format)
}

/** The life of a vehicle, step by step. A step yields at most one message and moves `vehicle.now`. */
export type Steps = Generator<SimulatedMessage | undefined, void, undefined>

/** Messages in the order in which they are posted. */
export type SimulatedMessages = Generator<SimulatedMessage, void, undefined>

function vehicleTime(vehicle: Vehicle, ms: number = vehicle.now): string {
  return timestamp(ms + vehicle.link.clockAheadMs, vehicle.firmware.fractionDigits, vehicle.random)
}

const made = (vehicle: Vehicle): SimulatedBase => ({ vin: vehicle.vin, createdAt: vehicleTime(vehicle) })

/** ISO 8601 UTC with this number of digits after the second. */
function timestamp(ms: number, digits: Vehicle['firmware']['fractionDigits'], random: Random): string {
  const iso = new Date(ms).toISOString()
  if (digits === 0) return `${iso.slice(0, 19)}Z`
  if (digits === 3) return iso
  const belowMs = digits - 3
  const fraction = String(whole(random, 0, 10 ** belowMs - 1)).padStart(belowMs, '0')
  return `${iso.slice(0, 23)}${fraction}Z`
}

/** Posts an event after the network delay and the vehicle's earlier messages, but not while it has no network. */
function post(vehicle: Vehicle, event: SimulatedEvent): SimulatedMessage {
  const arrives = vehicle.now + between(vehicle.random, 40, 350)
  const next = vehicle.link.postedAt + whole(vehicle.random, 4, 30)
  vehicle.link.postedAt = Math.round(Math.max(arrives, next, vehicle.link.offlineUntil))
  return { at: vehicle.link.postedAt, event }
}

/** The values that are due now, as one message, or `undefined` when none is. */
export function dataMessage(vehicle: Vehicle): SimulatedMessage | undefined {
  const due = dueValues(vehicle)
  if (due === undefined) return undefined
  const { data, texts } = due
  const old = Object.keys(texts).length > 0 ? { undecoded: texts } : {}
  return post(vehicle, { topic: 'data', ...made(vehicle), data, ...old })
}

export function changeState(vehicle: Vehicle, state: 'online' | 'asleep' | 'driving'): SimulatedMessage {
  vehicle.state = state
  return post(vehicle, { topic: 'state', ...made(vehicle), state })
}

export function documentMessage(vehicle: Vehicle): SimulatedMessage {
  return post(vehicle, { topic: 'vehicle_data', ...made(vehicle), vehicleData: vehicleDocument(vehicle, sectionNames) })
}

/** A connection opens. Messages of this topic carry the server's time. */
export function connect(vehicle: Vehicle, networkInterface: 'wifi' | 'cellular', at: number): SimulatedMessage {
  const part = (): number => whole(vehicle.random, 0, 0xffff_ffff)
  vehicle.link.connectionId = Array.from({ length: 4 }, () => part().toString(16).padStart(8, '0')).join('-')
  vehicle.link.networkInterface = networkInterface
  return connectivity(vehicle, 'connected', at)
}

export function disconnect(vehicle: Vehicle, at: number): SimulatedMessage {
  return connectivity(vehicle, 'disconnected', at)
}

/** Loses the network for a while. Messages of that time wait, and are then posted with their old times. */
export function* loseNetwork(vehicle: Vehicle, forMs: number): Steps {
  const back = vehicle.now + forMs
  const noticed = vehicle.now + whole(vehicle.random, 8_000, 20_000)
  if (noticed < back && chance(vehicle.random, 0.8)) yield disconnect(vehicle, noticed)
  yield connect(vehicle, 'cellular', back)
  vehicle.link.offlineUntil = back
}

function connectivity(vehicle: Vehicle, status: 'connected' | 'disconnected', at: number): SimulatedMessage {
  const { vin, link, random } = vehicle
  const { networkInterface, connectionId } = link
  vehicle.link.postedAt = Math.round(Math.max(at, vehicle.link.postedAt + 1))
  return {
    at: vehicle.link.postedAt,
    event: { topic: 'connectivity', vin, createdAt: timestamp(at, 9, random), status, networkInterface, connectionId },
  }
}

interface AlertKind {
  readonly name: string
  readonly audiences: readonly string[]
  readonly text: string
}

const alertKinds: readonly [AlertKind, ...AlertKind[]] = [
  { name: 'TPMS_a101_pressureLow', audiences: ['Customer', 'Service'], text: 'Tire pressure low. Inflate the tires.' },
  { name: 'UI_a021_washerFluidLow', audiences: ['Customer'], text: 'Washer fluid low.' },
  { name: 'CP_a043_cableNotLatched', audiences: ['Customer', 'ServiceFix'], text: 'Charge port latch not engaged.' },
  { name: 'BMS_a067_brickImbalance', audiences: ['Service'], text: 'Service battery at the next visit.' },
  { name: 'DAS_a211_cameraBlocked', audiences: ['Customer'], text: 'Camera blocked or blinded.' },
]

const faults: readonly [string, ...string[]] = [
  'stream_backpressure',
  'certificate_expires_soon',
  'config_field_unsupported',
]

interface ActiveAlert extends AlertKind {
  readonly startedAt: string
}

export function startAlert(vehicle: Vehicle): ActiveAlert {
  return { ...oneOf(vehicle.random, alertKinds), startedAt: vehicleTime(vehicle) }
}

export function alertMessage(
  vehicle: Vehicle,
  { name, startedAt, audiences, text }: ActiveAlert,
  over: boolean,
): SimulatedMessage {
  const end = over ? { endedAt: vehicleTime(vehicle) } : {}
  const alerts = [{ name, startedAt, ...end, audiences, userText: text }]
  return post(vehicle, { topic: 'alerts', ...made(vehicle), alerts })
}

export function errorMessage(vehicle: Vehicle): SimulatedMessage {
  const name = oneOf(vehicle.random, faults)
  const code = whole(vehicle.random, 100, 999)
  const error = {
    name,
    createdAt: vehicleTime(vehicle, vehicle.now - whole(vehicle.random, 200, 4_000)),
    tags: {
      firmware: vehicle.firmware.version.split(' ')[0] ?? vehicle.firmware.version,
      network: vehicle.link.networkInterface,
    },
    ...(chance(vehicle.random, 0.8) ? { body: `${name} (${code})` } : {}),
  }
  return post(vehicle, { topic: 'errors', ...made(vehicle), errors: [error] })
}
