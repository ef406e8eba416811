import * as z from 'zod/mini'
import type {
  Alert,
  AlertsEvent,
  ConnectivityEvent,
  DataEvent,
  ErrorsEvent,
  FleetEvent,
  GapEvent,
  Meta,
  StateEvent,
  UnknownEvent,
  VehicleDataEvent,
  VehicleError,
} from './event.ts'
import { anyValue, date, fieldValues } from './schema-parts.ts'
import type { Json } from './values.ts'

const meta: z.ZodMiniType<Meta> = z.looseObject({
  host: z.exactOptional(z.string()),
  sourcetype: z.exactOptional(z.string()),
  isResend: z.exactOptional(z.boolean()),
  isCache: z.exactOptional(z.boolean()),
  changed: z.exactOptional(z.array(z.string())),
  connectionId: z.exactOptional(z.string()),
  createdAtMissing: z.exactOptional(z.literal(true)),
  conflated: z.exactOptional(z.number()),
})

const json = z.record(z.string(), z.unknown())

const common = {
  createdAt: z.string(),
  at: date(),
  receivedAt: date(),
  format: z.enum(['service', 'vehicle_maker', 'event_collector']),
  id: z.string().check(z.regex(/^[0-9a-f]{32}$/)),
  raw: json,
  meta,
}

const vin = z.string().check(z.minLength(1))

const alert: z.ZodMiniType<Alert> = z.looseObject({
  name: z.string(),
  startedAt: z.exactOptional(z.string()),
  endedAt: z.exactOptional(z.string()),
  audiences: z.array(z.string()),
})

const vehicleError: z.ZodMiniType<VehicleError> = z.looseObject({
  name: z.string(),
  createdAt: z.exactOptional(z.string()),
  tags: z.record(z.string(), z.string()),
  body: z.exactOptional(z.string()),
})

const data = z.object({
  ...common,
  vin,
  topic: z.literal('data'),
  data: fieldValues(),
  undecoded: z.record(z.string(), anyValue<Json>()),
})
const state = z.object({ ...common, vin, topic: z.literal('state'), state: z.string() })
const vehicleData = z.object({ ...common, vin, topic: z.literal('vehicle_data'), vehicleData: json })
const alerts = z.object({ ...common, vin, topic: z.literal('alerts'), alerts: z.array(alert) })
const errors = z.object({ ...common, vin, topic: z.literal('errors'), errors: z.array(vehicleError) })
const connectivity = z.object({
  ...common,
  vin,
  topic: z.literal('connectivity'),
  status: z.string(),
  networkInterface: z.string(),
  connectionId: z.exactOptional(z.string()),
})
const unknown = z.object({
  ...common,
  vin: z.exactOptional(vin),
  topic: z.literal('unknown'),
  reason: z.enum(['no_topic', 'payload_mismatch', 'vin_missing', 'format_mismatch', 'foreign_event']),
})
const gap = z.object({
  ...common,
  vin: z.exactOptional(vin),
  topic: z.literal('gap'),
  id: z.string(),
  format: z.null(),
  raw: z.null(),
  from: date(),
  to: date(),
  reason: z.enum(['inbox_full', 'inbox_unavailable', 'inbox_damaged', 'restarted', 'deadline', 'stream_interrupted']),
  missed: z.number(),
})

/**
 * The schema of a `data` event, by the built-in catalogue.
 *
 * The schemas are for what comes back from somewhere (a queue, a table, a test); events of a receiver satisfy them
 * already. `z.toJSONSchema` derives from each the JSON Schema of the event as `JSON.stringify` writes it.
 *
 * @example
 * ```ts
 * import { dataEvent } from 'fleethook'
 * import * as z from 'zod/mini'
 *
 * console.log(JSON.stringify(z.toJSONSchema(dataEvent)))
 * ```
 *
 * Specification: "Payload of a `data` message".
 */
export const dataEvent: z.ZodMiniType<DataEvent> = data

/** The schema of a `state` event. See {@link dataEvent}. */
export const stateEvent: z.ZodMiniType<StateEvent> = state

/** The schema of a `vehicle_data` event. See {@link dataEvent}. */
export const vehicleDataEvent: z.ZodMiniType<VehicleDataEvent> = vehicleData

/** The schema of an `alerts` event. See {@link dataEvent}. */
export const alertsEvent: z.ZodMiniType<AlertsEvent> = alerts

/** The schema of an `errors` event. See {@link dataEvent}. */
export const errorsEvent: z.ZodMiniType<ErrorsEvent> = errors

/** The schema of a `connectivity` event. See {@link dataEvent}. */
export const connectivityEvent: z.ZodMiniType<ConnectivityEvent> = connectivity

/** The schema of an `unknown` event. See {@link dataEvent}. */
export const unknownEvent: z.ZodMiniType<UnknownEvent> = unknown

/** The schema of a `gap` event. See {@link dataEvent}. */
export const gapEvent: z.ZodMiniType<GapEvent> = gap

/** The schema of every event that a handler can be given, told apart by `topic`. See {@link dataEvent}. */
export const fleetEvent: z.ZodMiniType<FleetEvent> = z.discriminatedUnion('topic', [
  data,
  state,
  vehicleData,
  alerts,
  errors,
  connectivity,
  unknown,
  gap,
])
