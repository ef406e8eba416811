import type { Meta, StateEvent } from '../events/event.ts'
import type { FieldValues } from '../events/fields.ts'
import { syntheticVin } from '../service/fleet/vin.ts'
import type { Encodable } from '../wire/encode.ts'

/** What every message has beside its payload. */
export interface MessageDetails {
  /** Default: that of a vehicle that does not exist. */
  readonly vin?: string
  /** ISO 8601 UTC. Default 2026-11-21T10:00:00.000Z. */
  readonly createdAt?: string
  readonly meta?: Meta
}

/** A message of one topic. */
export type MessageOf<T extends Encodable['topic']> = Extract<Encodable, { readonly topic: T }>

type Base = Required<Pick<MessageDetails, 'vin' | 'createdAt'>> & Pick<MessageDetails, 'meta'>

function base({ vin = syntheticVin(1), createdAt = '2026-11-21T10:00:00.000Z', meta }: MessageDetails): Base {
  return meta === undefined ? { vin, createdAt } : { vin, createdAt, meta }
}

/** An alert, as far as a test cares. */
export interface GivenAlert {
  readonly name: string
  readonly startedAt?: string
  readonly endedAt?: string
  /** Default `['Customer']`. */
  readonly audiences?: readonly string[]
  readonly [key: string]: unknown
}

/** An error that a vehicle reported, as far as a test cares. */
export interface GivenError {
  readonly name: string
  readonly createdAt?: string
  /** Default none. */
  readonly tags?: { readonly [key: string]: string }
  readonly body?: string
  readonly [key: string]: unknown
}

/** One function a topic: makes a message, with a believable payload when it is given none. */
export interface MessageFactories {
  /** New values of some fields. */
  data(data?: FieldValues, details?: MessageDetails): MessageOf<'data'>
  /** The vehicle went online, fell asleep, drives, went offline. */
  state(state?: StateEvent['state'], details?: MessageDetails): MessageOf<'state'>
  /** A full vehicle data document, in the service's small form. */
  vehicleData(vehicleData?: { readonly [key: string]: unknown }, details?: MessageDetails): MessageOf<'vehicle_data'>
  /** Alerts: by default one that is active. */
  alerts(alerts?: readonly GivenAlert[], details?: MessageDetails): MessageOf<'alerts'>
  /** Errors that the vehicle reported. */
  errors(errors?: readonly GivenError[], details?: MessageDetails): MessageOf<'errors'>
  /** The vehicle connected or disconnected. */
  connectivity(
    connection?: { readonly status?: string; readonly networkInterface?: string; readonly connectionId?: string },
    details?: MessageDetails,
  ): MessageOf<'connectivity'>
}

/**
 * Messages to test a receiver with: one function a topic, each with a believable payload when it is given none, and the
 * same every time. `encode` of `fleethook/normalize` writes them in a format, and {@link deliver} posts them.
 *
 * @example
 * ```ts
 * import { message } from 'fleethook/testing'
 *
 * const driving = message.data({ VehicleSpeed: 34.8, Gear: 'D' }, { vin: '0FLEETV14T0000004' })
 * console.log(driving.data['Gear']) // D
 * ```
 *
 * Specification: "Topics", "Payload of a `data` message".
 */
export const message: MessageFactories = {
  data(
    data: FieldValues = {
      BatteryLevel: 71.5,
      Gear: 'D',
      Location: { latitude: 52.3731, longitude: 4.8926 },
      VehicleSpeed: 34.8,
    },
    details: MessageDetails = {},
  ): MessageOf<'data'> {
    return { ...base(details), topic: 'data', data }
  },

  state(state: StateEvent['state'] = 'online', details: MessageDetails = {}): MessageOf<'state'> {
    return { ...base(details), topic: 'state', state }
  },

  vehicleData(
    vehicleData: { readonly [key: string]: unknown } = {
      state: 'online',
      charge_state: { battery_level: 71, charging_state: 'Disconnected' },
      drive_state: { latitude: 52.3731, longitude: 4.8926, shift_state: null, speed: null },
      vehicle_state: { locked: true, odometer: 18_214.6 },
    },
    details: MessageDetails = {},
  ): MessageOf<'vehicle_data'> {
    return { ...base(details), topic: 'vehicle_data', vehicleData }
  },

  alerts(
    alerts: readonly GivenAlert[] = [
      { name: 'LowVoltageBatteryLow', startedAt: '2026-11-21T09:59:58Z', audiences: ['Customer', 'Service'] },
    ],
    details: MessageDetails = {},
  ): MessageOf<'alerts'> {
    return { ...base(details), topic: 'alerts', alerts: alerts.map((alert) => ({ audiences: ['Customer'], ...alert })) }
  },

  errors(
    errors: readonly GivenError[] = [
      { name: 'stream_backpressure', createdAt: '2026-11-21T09:59:59Z', tags: { dropped: '12' }, body: 'buffer full' },
    ],
    details: MessageDetails = {},
  ): MessageOf<'errors'> {
    return { ...base(details), topic: 'errors', errors: errors.map((error) => ({ tags: {}, ...error })) }
  },

  connectivity(
    connection: { readonly status?: string; readonly networkInterface?: string; readonly connectionId?: string } = {},
    details: MessageDetails = {},
  ): MessageOf<'connectivity'> {
    return {
      ...base(details),
      topic: 'connectivity',
      status: connection.status ?? 'connected',
      networkInterface: connection.networkInterface ?? 'cellular',
      connectionId: connection.connectionId ?? '7d1b2c9e',
    }
  },
}
