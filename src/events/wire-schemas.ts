import * as z from 'zod/mini'

const optional = { isResend: z.optional(z.boolean()), isCache: z.optional(z.boolean()) }
const common = { ...optional, vin: z.string(), createdAt: z.optional(z.nullable(z.string())) }
const entry = z.looseObject({})
const entries = z.union([z.array(entry), z.record(z.string(), z.union([entry, z.array(entry)]))])

const statePayload = { state: z.string() }
const vehicleDataPayload = { vehicle_data: z.record(z.string(), z.unknown()) }
const alertsPayload = { alerts: entries }
const errorsPayload = { errors: entries }
const connectivityPayload = {
  status: z.string(),
  networkInterface: z.string(),
  connectionId: z.optional(z.string()),
}

const fieldMap = z.record(z.string(), z.unknown())
const fieldList = z.array(
  z.looseObject({ key: z.optional(z.union([z.string(), z.number()])), value: z.optional(z.unknown()) }),
)

const otherTopics = [
  z.looseObject({ ...common, ...statePayload }),
  z.looseObject({ ...common, ...vehicleDataPayload }),
  z.looseObject({ ...common, ...alertsPayload }),
  z.looseObject({ ...common, ...errorsPayload }),
  z.looseObject({ ...common, ...connectivityPayload }),
] as const

/** A message as it was posted. */
interface SentMessage {
  readonly [key: string]: unknown
}

/**
 * The schema of a message in the `service` format, as it is posted. Use it for documentation and for tests of a sender. The
 * receiver does not use it, and accepts messages that do not match it.
 *
 * Specification: "Payload of a `data` message".
 */
export const serviceMessage: z.ZodMiniType<SentMessage> = z.union([
  z.looseObject({ ...common, data: fieldMap }),
  ...otherTopics,
])

/** The schema of a message in the `vehicle_maker` format, as it is posted. See {@link serviceMessage}. */
export const vehicleMakerMessage: z.ZodMiniType<SentMessage> = z.union([
  z.looseObject({ ...common, data: fieldList }),
  ...otherTopics,
])

/** The schema of a message in the `event_collector` format, as it is posted. See {@link serviceMessage}. */
export const eventCollectorMessage: z.ZodMiniType<SentMessage> = z.looseObject({
  time: z.optional(z.union([z.number(), z.string()])),
  host: z.optional(z.string()),
  source: z.string(),
  sourcetype: z.string(),
  event: z.union([
    z.looseObject(statePayload),
    z.looseObject(vehicleDataPayload),
    z.looseObject(alertsPayload),
    z.looseObject(errorsPayload),
    z.looseObject(connectivityPayload),
    fieldMap,
  ]),
})

/** The schema of a message in any of the three formats, as it is posted. See {@link serviceMessage}. */
export const wireMessage: z.ZodMiniType<SentMessage> = z.union([
  serviceMessage,
  vehicleMakerMessage,
  eventCollectorMessage,
])
