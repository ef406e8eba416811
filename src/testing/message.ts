import type { Meta, StateEvent } from '../events/event.ts'
import type { ExtendedBy, FieldCatalogue, FieldValues } from '../events/fields.ts'
import { syntheticVin } from '../service/fleet/vin.ts'
import type { Encodable } from '../wire/encode.ts'

/** The parts of a message besides its payload. */
export interface MessageDetails {
  /** Default: the VIN of a vehicle that does not exist. */
  readonly vin?: string
  /** ISO 8601 UTC. Default 2026-11-21T10:00:00.000Z. */
  readonly createdAt?: string
  /** What the wire carries beside the payload. Default: nothing. */
  readonly meta?: Meta
}

/** A message of one topic. */
export type MessageOf<T extends Encodable['topic']> = Extract<Encodable, { readonly topic: T }>

type Base = Required<Pick<MessageDetails, 'vin' | 'createdAt'>> & Pick<MessageDetails, 'meta'>

function base({ vin = syntheticVin(1), createdAt = '2026-11-21T10:00:00.000Z', meta }: MessageDetails): Base {
  return meta === undefined ? { vin, createdAt } : { vin, createdAt, meta }
}

/** An alert, with the parts that a test needs. */
export interface GivenAlert {
  readonly name: string
  readonly startedAt?: string
  readonly endedAt?: string
  /** Default `['Customer']`. */
  readonly audiences?: readonly string[]
  readonly [key: string]: unknown
}

/** An error that a vehicle reported, with the parts that a test needs. */
export interface GivenError {
  readonly name: string
  readonly createdAt?: string
  /** Default none. */
  readonly tags?: { readonly [key: string]: string }
  readonly body?: string
  readonly [key: string]: unknown
}

/** One function for each topic. Without a payload, the message has a realistic one. */
export interface MessageFactories {
  /**
   * New values of some fields. For fields of your own, pass the type of your catalogue:
   * `message.data<typeof fields>({ CabinHumidity: 40 })`.
   */
  data<Own extends FieldCatalogue = FieldCatalogue>(
    data?: FieldValues<ExtendedBy<Own>>,
    details?: MessageDetails,
  ): MessageOf<'data'>
  /** The new state of the vehicle. Default `'online'`. */
  state(state?: StateEvent['state'], details?: MessageDetails): MessageOf<'state'>
  /** A vehicle data document. The default has four small sections. */
  vehicleData(vehicleData?: { readonly [key: string]: unknown }, details?: MessageDetails): MessageOf<'vehicle_data'>
  /** Alerts of the vehicle. The default is one active alert. */
  alerts(alerts?: readonly GivenAlert[], details?: MessageDetails): MessageOf<'alerts'>
  /** Errors that the vehicle reported. The default is one error. */
  errors(errors?: readonly GivenError[], details?: MessageDetails): MessageOf<'errors'>
  /** The vehicle connected or disconnected. The default is connected by cellular. */
  connectivity(
    connection?: { readonly status?: string; readonly networkInterface?: string; readonly connectionId?: string },
    details?: MessageDetails,
  ): MessageOf<'connectivity'>
}

/**
 * Messages to test a receiver with: one function for each topic. Without a payload, a message has a realistic one, the same
 * every time. `encode` of `fleethook/normalize` writes a message in a format, and {@link deliver} posts it.
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
  data<Own extends FieldCatalogue = FieldCatalogue>(
    data: FieldValues<ExtendedBy<Own>> | FieldValues = {
      BatteryLevel: 71.5,
      Gear: 'D',
      Location: { latitude: 52.3731, longitude: 4.8926 },
      VehicleSpeed: 34.8,
    },
    details: MessageDetails = {},
  ): MessageOf<'data'> {
    return { ...base(details), topic: 'data', data }
  },

  state: (state = 'online', details = {}) => ({ ...base(details), topic: 'state', state }),

  vehicleData: (
    vehicleData = {
      state: 'online',
      charge_state: { battery_level: 71, charging_state: 'Disconnected' },
      drive_state: { latitude: 52.3731, longitude: 4.8926, shift_state: null, speed: null },
      vehicle_state: { locked: true, odometer: 18_214.6 },
    },
    details = {},
  ) => ({ ...base(details), topic: 'vehicle_data', vehicleData }),

  alerts: (
    alerts = [{ name: 'LowVoltageBatteryLow', startedAt: '2026-11-21T09:59:58Z', audiences: ['Customer', 'Service'] }],
    details = {},
  ) => ({ ...base(details), topic: 'alerts', alerts: alerts.map((alert) => ({ audiences: ['Customer'], ...alert })) }),

  errors: (
    errors = [
      { name: 'stream_backpressure', createdAt: '2026-11-21T09:59:59Z', tags: { dropped: '12' }, body: 'buffer full' },
    ],
    details = {},
  ) => ({ ...base(details), topic: 'errors', errors: errors.map((error) => ({ tags: {}, ...error })) }),

  connectivity: (
    { status = 'connected', networkInterface = 'cellular', connectionId = '7d1b2c9e' } = {},
    details = {},
  ) => ({ ...base(details), topic: 'connectivity', status, networkInterface, connectionId }),
}
