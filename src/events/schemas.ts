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
import { builtInFields, type FieldValues, type UnlimitedType } from './fields.ts'
import type { Doors, FieldValue, Json, Location, Tires, TimeOfDay } from './values.ts'

/** Gives a schema the JSON Schema that zod cannot derive from it. */
function describedAs<Schema extends z.ZodMiniType>(schema: Schema, json: object): Schema {
  schema._zod.toJSONSchema = () => ({ ...json }) // oxlint-disable-line no-underscore-dangle -- zod's name for its internals
  return schema
}

/** A `Date`. Its JSON Schema describes the text that `JSON.stringify` writes. */
function date(): z.ZodMiniType<Date, Date> {
  return describedAs(z.date(), { type: 'string', format: 'date-time' })
}

/** Any JSON value. The schema does not look inside, because a message can be nested deeper than the call stack allows. */
function anyValue<Value>(): z.ZodMiniType<Value, Value> {
  return describedAs(z.custom<Value>(), {})
}

const location: z.ZodMiniType<Location> = z.object({ latitude: z.number(), longitude: z.number() })

const doors: z.ZodMiniType<Doors> = z.object({
  driverFront: z.boolean(),
  driverRear: z.boolean(),
  passengerFront: z.boolean(),
  passengerRear: z.boolean(),
  trunkFront: z.boolean(),
  trunkRear: z.boolean(),
})

const tires: z.ZodMiniType<Tires> = z.object({
  frontLeft: z.boolean(),
  frontRight: z.boolean(),
  rearLeft: z.boolean(),
  rearRight: z.boolean(),
  semiMiddleAxleLeft2: z.boolean(),
  semiMiddleAxleRight2: z.boolean(),
  semiRearAxleLeft: z.boolean(),
  semiRearAxleRight: z.boolean(),
  semiRearAxleLeft2: z.boolean(),
  semiRearAxleRight2: z.boolean(),
})

const timeOfDay: z.ZodMiniType<TimeOfDay> = z.object({ hour: z.int(), minute: z.int(), second: z.int() })

/** The schema of a value of this type, without the `null` that every field can be. */
function valueOf(type: UnlimitedType): z.ZodMiniType {
  if (typeof type === 'object') return z.enum([...type.enum])
  switch (type) {
    case 'string':
      return z.string()
    case 'number':
    case 'timestamp':
      return z.number()
    case 'boolean':
      return z.boolean()
    case 'location':
      return location
    case 'doors':
      return doors
    case 'tires':
      return tires
    case 'time':
      return timeOfDay
    default:
      return anyValue<FieldValue>()
  }
}

/** The `data` of a message by the built-in catalogue. Names outside it are allowed. */
function fieldValues(): z.ZodMiniType<FieldValues, FieldValues> {
  const shape: Record<string, z.ZodMiniType> = {}
  for (const [name, type] of Object.entries(builtInFields)) shape[name] = z.exactOptional(z.nullable(valueOf(type)))
  // The shape and the type both come from the catalogue, but the compiler cannot see that the shape has this type.
  return z.looseObject(shape) as z.ZodMiniType as z.ZodMiniType<FieldValues, FieldValues> // oxlint-disable-line no-unsafe-type-assertion
}

const meta: z.ZodMiniType<Meta> = z.looseObject({
  host: z.exactOptional(z.string()),
  sourcetype: z.exactOptional(z.string()),
  isResend: z.exactOptional(z.boolean()),
  isCache: z.exactOptional(z.boolean()),
  changed: z.exactOptional(z.array(z.string())),
  connectionId: z.exactOptional(z.string()),
  createdAtMissing: z.exactOptional(z.literal(true)),
  secret: z.exactOptional(z.int().check(z.nonnegative())),
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
  reason: z.enum([
    'inbox_full',
    'inbox_unavailable',
    'inbox_damaged',
    'inbox_expired',
    'body_too_large',
    'body_unreadable',
    'stopped',
    'restarted',
    'stalled',
    'deadline',
    'not_handled',
    'stream_interrupted',
  ]),
  missed: z.number(),
})

/**
 * The schema of a `data` event, by the built-in catalogue.
 *
 * Use the schemas for events that you stored, for instance in a queue, a table or a test. The events that a receiver passes
 * to handlers already match them. `z.toJSONSchema` derives the JSON Schema of the event as `JSON.stringify` writes it.
 *
 * @example
 * ```ts
 * import { dataEvent } from 'fleethook/schemas'
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

/** The schema of every event that a handler can receive, discriminated by `topic`. See {@link dataEvent}. */
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
