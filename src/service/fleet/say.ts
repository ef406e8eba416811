import type { FieldValue } from '../../events/values.ts'
import { between, whole } from './random.ts'
import { signalList } from './signals.ts'
import type { SimulatedEvent, SimulatedMessage } from './simulated.ts'
import { asText } from './spelling.ts'
import { streamed } from './streaming.ts'
import { timestamp } from './timestamp.ts'
import type { Vehicle } from './vehicle.ts'

/** The moment as the vehicle's own clock writes it. */
export function vehicleTime(vehicle: Vehicle, ms: number = vehicle.now): string {
  return timestamp(ms + vehicle.clockAheadMs, vehicle.fractionDigits, vehicle.random)
}

/** Posts what the vehicle says: after the way to the service, after what it said before, and not while it has no network. */
export function post(vehicle: Vehicle, event: SimulatedEvent): SimulatedMessage {
  const arrives = vehicle.now + between(vehicle.random, 40, 350)
  const next = vehicle.postedAt + whole(vehicle.random, 4, 30)
  vehicle.postedAt = Math.round(Math.max(arrives, next, vehicle.offlineUntil))
  return { at: vehicle.postedAt, event }
}

/** What changed since the vehicle looked last, as one bundle; nothing when nothing did. */
export function changes(vehicle: Vehicle): SimulatedMessage | undefined {
  const data = vehicle.streaming ? streamed(vehicle, vehicle.streaming) : changed(vehicle)
  vehicle.lookedAt = vehicle.now
  if (data === undefined) return undefined
  return post(vehicle, { topic: 'data', vin: vehicle.vin, createdAt: vehicleTime(vehicle), data })
}

function changed(vehicle: Vehicle): Record<string, FieldValue> | undefined {
  const data: Record<string, FieldValue> = {}
  for (const [index, { field, every, read, alwaysTyped }] of signalList.entries()) {
    if (every > 0 && !isDue(every * 1_000, index, vehicle)) continue
    const value = read(vehicle)
    if (isSame(vehicle.said[index], value)) continue
    vehicle.said[index] = value
    data[field] = vehicle.spelling === 'text' && !alwaysTyped ? asText(value) : value
  }
  return Object.keys(data).length > 0 ? data : undefined
}

/** The vehicle went online, fell asleep, drives. */
export function changeState(vehicle: Vehicle, state: 'online' | 'asleep' | 'driving'): SimulatedMessage {
  vehicle.state = state
  return post(vehicle, { topic: 'state', vin: vehicle.vin, createdAt: vehicleTime(vehicle), state })
}

// Signals of one interval are looked at in different seconds, so that they do not all come at once.
function isDue(everyMs: number, index: number, vehicle: Vehicle): boolean {
  const shift = index * 1_009
  return Math.floor((vehicle.now + shift) / everyMs) > Math.floor((vehicle.lookedAt + shift) / everyMs)
}

function isSame(said: unknown, value: FieldValue): boolean {
  if (said === value) return true
  return typeof value === 'object' && value !== null && JSON.stringify(said) === JSON.stringify(value)
}
