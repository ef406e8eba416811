import { chance, whole } from './random.ts'
import type { SimulatedMessage, Steps } from './simulated.ts'
import { timestamp } from './timestamp.ts'
import type { Vehicle } from './vehicle.ts'

/** A connection comes up. Its message carries the server's clock, as do all of this topic. */
export function connect(vehicle: Vehicle, networkInterface: 'wifi' | 'cellular', at: number): SimulatedMessage {
  vehicle.connectionId = Array.from({ length: 4 }, () => hex(vehicle)).join('-')
  vehicle.networkInterface = networkInterface
  return connectivity(vehicle, 'connected', at)
}

/** The connection goes down. */
export function disconnect(vehicle: Vehicle, at: number): SimulatedMessage {
  return connectivity(vehicle, 'disconnected', at)
}

/**
 * The vehicle drives out of its network for a while. The server notices late, or never; what the vehicle says meanwhile
 * waits, and is posted in a row, with its old times, once the vehicle is back.
 */
export function* loseNetwork(vehicle: Vehicle, forMs: number): Steps {
  const back = vehicle.now + forMs
  const noticed = vehicle.now + whole(vehicle.random, 8_000, 20_000)
  if (noticed < back && chance(vehicle.random, 0.8)) yield disconnect(vehicle, noticed)
  yield connect(vehicle, 'cellular', back)
  vehicle.offlineUntil = back
}

function connectivity(vehicle: Vehicle, status: 'connected' | 'disconnected', at: number): SimulatedMessage {
  const { vin, networkInterface, connectionId, random } = vehicle
  vehicle.postedAt = Math.round(Math.max(at, vehicle.postedAt + 1))
  return {
    at: vehicle.postedAt,
    event: { topic: 'connectivity', vin, createdAt: timestamp(at, 9, random), status, networkInterface, connectionId },
  }
}

function hex(vehicle: Vehicle): string {
  return whole(vehicle.random, 0, 0xffff_ffff).toString(16).padStart(8, '0')
}
