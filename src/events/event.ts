import type { BuiltInFields, FieldCatalogue, FieldValues } from './fields.ts'
import type { Json } from './values.ts'

/** The payload formats in which the service posts (specification: "Business webhook", `format`). */
export type Format = 'service' | 'vehicle_maker' | 'event_collector'

/** The topics of the wire (specification: "Topics"). */
export type WireTopic = 'data' | 'state' | 'vehicle_data' | 'alerts' | 'errors' | 'connectivity'

/** Everything a handler can be registered for, except `'*'` and `'malformed'`. */
export type Topic = WireTopic | 'unknown' | 'gap'

/** What the wire carried beside the payload, and what fleethook has to say about the reading. */
export interface Meta {
  /** The host that served an `event_collector` message. */
  readonly host?: string
  /** The colon-separated label of an `event_collector` message. */
  readonly sourcetype?: string
  /** The maker sent this message before. */
  readonly isResend?: boolean
  /** The service answered from its cache. */
  readonly isCache?: boolean
  /**
   * On an event of a stream's snapshot: what is new since the stream last delivered it. For `data` these are fields, for `alerts`
   * and `errors` names, for `connectivity` the network, for other topics the topic. On the first connection everything is new.
   */
  readonly changed?: readonly string[]
  /** Tells overlapping connections of one vehicle apart. */
  readonly connectionId?: string
  /** The message had no readable time: `createdAt` and `at` are the time of receipt. */
  readonly createdAtMissing?: true
  /** So many queued messages were merged into this one (`overflow: 'conflate'`). */
  readonly conflated?: number
  readonly [key: string]: unknown
}

/** What every event has. */
export interface EventBase {
  /** The vehicle. */
  readonly vin: string
  /** When the vehicle (for `connectivity`: the server) made the message: ISO 8601 UTC, verbatim, up to nanoseconds. */
  readonly createdAt: string
  /** `createdAt` as a `Date`, to the millisecond. */
  readonly at: Date
  /** When the message reached this receiver. */
  readonly receivedAt: Date
  /** The payload format in which the message came. */
  readonly format: Format
  /**
   * The identity of the content: derived from vin, topic, time to the millisecond and the canonical payload. The same
   * message in another format, or sent again, has the same id. Computed when it is read.
   */
  readonly id: string
  /** The parsed message, untouched. */
  readonly raw: { readonly [key: string]: unknown }
  readonly meta: Meta
}

/** Telemetry: new values of some fields (specification: "Payload of a `data` message"). */
export interface DataEvent<Fields extends FieldCatalogue = BuiltInFields> extends EventBase {
  readonly topic: 'data'
  readonly data: FieldValues<Fields>
  /** Values that did not read as the type the catalogue gives them, as they were sent; `data` has `null` for them. */
  readonly undecoded: { readonly [field: string]: Json }
}

/** The vehicle went online, fell asleep, drives, went offline. */
export interface StateEvent extends EventBase {
  readonly topic: 'state'
  readonly state: 'online' | 'asleep' | 'driving' | 'offline' | (string & {})
}

/** A full vehicle data document. */
export interface VehicleDataEvent extends EventBase {
  readonly topic: 'vehicle_data'
  readonly vehicleData: { readonly [key: string]: unknown }
}

/** One alert of a vehicle. What else the entry carried is kept under its own name. */
export interface Alert {
  readonly name: string
  /** ISO 8601, as sent. */
  readonly startedAt?: string
  /** ISO 8601, as sent; absent while the alert is active. */
  readonly endedAt?: string
  /** `Customer`, `Service`, `ServiceFix`, … */
  readonly audiences: readonly string[]
  readonly [key: string]: unknown
}

/** Alerts of a vehicle, whether they were sent as a list or keyed by name. */
export interface AlertsEvent extends EventBase {
  readonly topic: 'alerts'
  readonly alerts: readonly Alert[]
}

/** One error that a vehicle reported. What else the entry carried is kept under its own name. */
export interface VehicleError {
  readonly name: string
  /** ISO 8601, as sent. */
  readonly createdAt?: string
  readonly tags: { readonly [key: string]: string }
  readonly body?: string
  readonly [key: string]: unknown
}

/** Errors of a vehicle, whether they were sent as a list or keyed by name. */
export interface ErrorsEvent extends EventBase {
  readonly topic: 'errors'
  readonly errors: readonly VehicleError[]
}

/** A vehicle connected or disconnected. Values are in lower case; the spelling sent is in `raw`. */
export interface ConnectivityEvent extends EventBase {
  readonly topic: 'connectivity'
  readonly status: 'connected' | 'disconnected' | (string & {})
  readonly networkInterface: 'wifi' | 'cellular' | (string & {})
  readonly connectionId?: string
}

/** Why an authentic message could not be mapped to a topic. */
export type UnknownReason =
  /** No key that names a topic. */
  | 'no_topic'
  /** The topic's payload has a shape that the topic never has. */
  | 'payload_mismatch'
  /** A topic, but no vehicle. */
  | 'vin_missing'
  /** The format was pinned and this message has another. */
  | 'format_mismatch'
  /** A collector event that is not telemetry: no `source`, a text `event`, another `sourcetype`. */
  | 'foreign_event'

/** An authentic message that is none of the topics. It was acknowledged; nothing of it is lost. */
export interface UnknownEvent extends Omit<EventBase, 'vin'> {
  readonly topic: 'unknown'
  readonly vin?: string
  readonly reason: UnknownReason
}

/** Why messages may be missing. */
export type GapReason =
  'inbox_full' | 'inbox_unavailable' | 'inbox_damaged' | 'restarted' | 'deadline' | 'stream_interrupted'

/**
 * Made by the receiver, never by the wire: between `from` and `to` messages may have been lost, so that the business
 * can fetch the full state and close the hole.
 */
export interface GapEvent extends Omit<EventBase, 'vin' | 'format' | 'raw'> {
  readonly topic: 'gap'
  /** The vehicle concerned; absent when any vehicle may be concerned. */
  readonly vin?: string
  readonly from: Date
  readonly to: Date
  readonly reason: GapReason
  /** How many messages were refused or lost, as far as is known. */
  readonly missed: number
  readonly format: null
  readonly raw: null
}

/** An event that came over the wire. */
export type WireEvent<Fields extends FieldCatalogue = BuiltInFields> =
  DataEvent<Fields> | StateEvent | VehicleDataEvent | AlertsEvent | ErrorsEvent | ConnectivityEvent | UnknownEvent

/** The union of everything that handlers receive, discriminated by `topic`. */
export type FleetEvent<Fields extends FieldCatalogue = BuiltInFields> = WireEvent<Fields> | GapEvent
