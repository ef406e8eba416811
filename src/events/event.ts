import type { BuiltInFields, FieldCatalogue, FieldValues } from './fields.ts'
import type { FieldValue, Json } from './values.ts'

/** The payload formats in which the service posts (specification: "Business webhook", `format`). */
export type Format = 'service' | 'vehicle_maker' | 'event_collector'

/** The topics of the wire (specification: "Topics"). */
export type WireTopic = 'data' | 'state' | 'vehicle_data' | 'alerts' | 'errors' | 'connectivity'

/** Everything a handler can be registered for, except `'*'` and `'malformed'`. */
export type Topic = WireTopic | 'unknown' | 'gap'

/** What the wire carried beside the payload, and what fleethook adds. */
export interface Meta {
  /** The `host` of an `event_collector` message. */
  readonly host?: string
  /** The colon-separated label of an `event_collector` message. */
  readonly sourcetype?: string
  /** The maker sent this message before. */
  readonly isResend?: boolean
  /** The service sent it from its cache. */
  readonly isCache?: boolean
  /**
   * On an event of a stream's snapshot: what is new since the stream last delivered it. For `data` these are fields, for `alerts`
   * and `errors` names, for `connectivity` the network, for other topics the topic. On the first connection everything is new.
   */
  readonly changed?: readonly string[]
  /** Tells overlapping connections of one vehicle apart. */
  readonly connectionId?: string
  /** The message had no readable time, or its clock was never set: `createdAt` and `at` are the time of receipt. */
  readonly createdAtMissing?: true
  /** The place of the secret that the message came with in the list `secret`, from 0. Only for a list, so that each sender can have its own. */
  readonly secret?: number
  readonly [key: string]: unknown
}

/** The properties of every event. */
export interface EventBase {
  /** The vehicle. */
  readonly vin: string
  /**
   * When the vehicle (for `connectivity`: the server) made the message: ISO 8601 UTC, exactly as sent, up to nanoseconds. A number is
   * written as ISO 8601, to the millisecond.
   */
  readonly createdAt: string
  /** `createdAt` as a `Date`, to the millisecond. */
  readonly at: Date
  /** When the message reached this receiver. */
  readonly receivedAt: Date
  /** The payload format in which the message came. */
  readonly format: Format
  /**
   * The id of the content, derived from vin, topic, time to the millisecond and the canonical payload. The same message in
   * another format, or sent again, has the same id. It is computed when it is read, and copies of the event have it.
   */
  readonly id: string
  /**
   * The parsed message, untouched. Numbers are JavaScript numbers: an id of 17 digits is rounded. `context.text` has the message byte for byte as
   * it came.
   */
  readonly raw: { readonly [key: string]: unknown }
  /** What the wire carried beside the payload. */
  readonly meta: Meta
}

/** New values of some fields (specification: "Payload of a `data` message"). */
export interface DataEvent<Fields extends FieldCatalogue = BuiltInFields> extends EventBase {
  readonly topic: 'data'
  /** Field name to value. A misspelled name is a type error. */
  readonly data: FieldValues<Fields>
  /**
   * Values that did not read as the type in the catalogue, and values nested deeper than 64 levels, as they were sent. `data` has
   * `null` for them.
   */
  readonly undecoded: { readonly [field: string]: Json }
}

/** The new state of a vehicle (specification: "Topics"). */
export interface StateEvent extends EventBase {
  readonly topic: 'state'
  readonly state: 'online' | 'asleep' | 'driving' | 'offline' | (string & {})
}

/** A full vehicle data document (specification: "Topics"). */
export interface VehicleDataEvent extends EventBase {
  readonly topic: 'vehicle_data'
  readonly vehicleData: { readonly [key: string]: unknown }
}

/** One alert of a vehicle. Other properties of the entry keep their names. */
export interface Alert {
  readonly name: string
  /** ISO 8601: a text as sent, or a number in any unit of time, to the millisecond. */
  readonly startedAt?: string
  /** ISO 8601, like `startedAt`. Absent while the alert is active. */
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

/** One error that a vehicle reported. Other properties of the entry keep their names. */
export interface VehicleError {
  readonly name: string
  /** ISO 8601: a text as sent, or a number in any unit of time, to the millisecond. */
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

/** A vehicle connected or disconnected. Values are in lower case. `raw` has the spelling as sent. */
export interface ConnectivityEvent extends EventBase {
  readonly topic: 'connectivity'
  readonly status: 'connected' | 'disconnected' | (string & {})
  readonly networkInterface: 'wifi' | 'cellular' | (string & {})
  readonly connectionId?: string
}

/** Why an authentic message is an `unknown` event. */
export type UnknownReason =
  /** No key that names a topic. */
  | 'no_topic'
  /** The topic's payload has a shape that the topic never has, for instance an item without a key, or more than 2,000 fields. */
  | 'payload_mismatch'
  /** A topic, but no VIN of 1 to 64 characters without control characters and unpaired surrogates. */
  | 'vin_missing'
  /** The option `format` names another format. */
  | 'format_mismatch'
  /** A collector event that is not telemetry: no `source`, a text `event`, another `sourcetype`. */
  | 'foreign_event'

/** An authentic message of no known topic. It was acknowledged, and `raw` has all of it. */
export interface UnknownEvent extends Omit<EventBase, 'vin'> {
  readonly topic: 'unknown'
  readonly vin?: string
  readonly reason: UnknownReason
}

/** Why messages may be missing. */
export type GapReason =
  /** The inbox had no room. */
  | 'inbox_full'
  /** The inbox could not be used. */
  | 'inbox_unavailable'
  /** The inbox file was damaged and moved aside with what waited in it. */
  | 'inbox_damaged'
  /**
   * Messages were gone from a topic before they were handled: its retention was too short, or all replicas lost them. Or the disk of
   * an inbox was full, and dead letters made room for new messages.
   */
  | 'inbox_expired'
  /** A body with the right secret was larger than the limit, so it was not read. */
  | 'body_too_large'
  /** A body with the right secret could not be read: it was cut off, was not JSON, or had an encoding other than gzip. */
  | 'body_unreadable'
  /** The receiver was stopped, and nobody listened until it started again. */
  | 'stopped'
  /** The receiver crashed, and nobody listened until it started again. */
  | 'restarted'
  /** The process or the machine stood still. */
  | 'stalled'
  /** A runtime or a drain ended before the handlers did. */
  | 'deadline'
  /** With `ack: 'handled'` and the inbox in memory: handlers failed for good, and the request was answered with 500. */
  | 'not_handled'
  /** The connection of a stream broke. */
  | 'stream_interrupted'

/**
 * Messages may have been lost between `from` and `to`. The receiver makes this event, so that the business can fetch the
 * full state of its vehicles.
 */
export interface GapEvent extends Omit<EventBase, 'vin' | 'format' | 'raw'> {
  readonly topic: 'gap'
  /** The vehicle. Absent when it can be any vehicle. */
  readonly vin?: string
  readonly from: Date
  readonly to: Date
  readonly reason: GapReason
  /** The known number of refused or lost messages. */
  readonly missed: number
  readonly format: null
  readonly raw: null
}

/** An event that came over the wire. */
export type WireEvent<Fields extends FieldCatalogue = BuiltInFields> =
  DataEvent<Fields> | StateEvent | VehicleDataEvent | AlertsEvent | ErrorsEvent | ConnectivityEvent | UnknownEvent

/**
 * Time of a vehicle has run out, as an edge such as `silent` asked for. The receiver makes it. Only handlers of such edges receive it:
 * `at` is when it was due, and `receivedAt` when the receiver noticed.
 */
export interface TimerEvent extends Omit<EventBase, 'format' | 'raw'> {
  readonly topic: 'timer'
  readonly format: null
  readonly raw: null
}

/**
 * What the business said of a vehicle, by `receiver.vehicles.set`. Only handlers of edges over facts receive it: `at` is `from`, and `receivedAt` when
 * the receiver got it.
 */
export interface FactsEvent extends Omit<EventBase, 'format' | 'raw'> {
  readonly topic: 'facts'
  /** By the name of the fact, as it is stored. `null`: none. */
  readonly facts: Readonly<Record<string, FieldValue>>
  /** Left out: since it was received. */
  readonly from?: Date | undefined
  /** Left out: until something else is said. */
  readonly until?: Date | undefined
  readonly format: null
  readonly raw: null
}

/** Every event that a handler can receive, discriminated by `topic`. */
export type FleetEvent<Fields extends FieldCatalogue = BuiltInFields> =
  WireEvent<Fields> | GapEvent | TimerEvent | FactsEvent
