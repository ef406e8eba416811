import type { Alert, Meta, VehicleError } from '../../events/event.ts'
import type { FieldValue } from '../../events/values.ts'

interface SimulatedBase {
  readonly vin: string
  /** ISO 8601 UTC, by the vehicle's clock; for `connectivity` by the server's. */
  readonly createdAt: string
  readonly meta?: Meta
}

/**
 * What a simulated vehicle says: the parts of an event that exist before it is written in one of the formats.
 *
 * The values of `data` are those of the catalogue, or the text in which older firmware spells them.
 */
export type SimulatedEvent =
  | (SimulatedBase & { readonly topic: 'data'; readonly data: { readonly [field: string]: FieldValue } })
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
  /** Milliseconds since the epoch. Later than `createdAt` by the way to the service, by hours after a tunnel. */
  readonly at: number
  readonly event: SimulatedEvent
}

/** What a vehicle does, step by step: a message, or nothing when it has only lived on. `vehicle.now` says until when. */
export type Steps = Generator<SimulatedMessage | undefined, void, undefined>

/** Messages in the order in which they are posted. */
export type Messages = Generator<SimulatedMessage, void, undefined>
