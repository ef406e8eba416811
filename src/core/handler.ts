import type { FactsEvent, FleetEvent, TimerEvent, Topic, WireTopic } from '../events/event.ts'
import type { BuiltInFields, FieldCatalogue, FieldName } from '../events/fields.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { Log } from '../base/log.ts'
import type { Change, Occurrence, VehicleView } from '../vehicles/edge.ts'
import type { Delivery } from '../observe/observer.ts'

/** The first argument of `receiver.on`: a topic, `'*'` for every event, or `'malformed'` for bodies that could not be read. */
export type Subject = Topic | '*' | 'malformed'

/** The event that a handler receives: `EventOf<'data'>`, `EventOf<'alerts' | 'errors'>`, `EventOf<'*'>`. */
export type EventOf<S extends Subject, Fields extends FieldCatalogue = BuiltInFields> = S extends '*'
  ? Exclude<FleetEvent<Fields>, TimerEvent | FactsEvent>
  : S extends 'malformed'
    ? MalformedBody
    : Extract<FleetEvent<Fields>, { readonly topic: S }>

/**
 * The vehicle of the messages of a topic. `Keeps` says whether the receiver has the part `vehicles`. Every message of a topic of the wire
 * has a VIN, except the `unknown` ones.
 */
export type VehicleOf<S extends Subject, Keeps extends boolean, Fields extends FieldCatalogue> = [Keeps] extends [false]
  ? undefined
  : [Keeps, S] extends [true, WireTopic]
    ? VehicleView<Fields>
    : VehicleView<Fields> | undefined

/** The second argument of a handler. A copy made by spreading has no `signal`, so pass the object itself. */
export interface HandlerContext<
  Bindings extends object = object,
  Fields extends FieldCatalogue = BuiltInFields,
  Vehicle = VehicleView<Fields> | undefined,
> {
  /** Aborts when the run has taken `timeoutMs`, when a drain reaches its deadline, or when another process takes the message over. */
  readonly signal: AbortSignal
  /** The receiver's log. */
  readonly log: Log
  /** The runtime's bindings of the request that brought the message. */
  readonly env: Bindings
  readonly delivery: Delivery
  /**
   * The JSON text of this one message, byte for byte as it came, also out of a batch. `event.raw` is what JavaScript reads from it: a number beyond
   * 2^53 is rounded there, and when a name comes twice, the last value counts. For a gap or a timer, it is the text that the inbox keeps.
   */
  readonly text: string
  /**
   * The newest state of the vehicle as of this message (part `vehicles`). `undefined` for a message without a VIN, and
   * without the part. The types know both.
   */
  readonly vehicle: Vehicle
  /**
   * What this message changed in that state: at most one change per field. Empty without the part `vehicles`, for a message that is
   * older than what is known, and for the first value of a field.
   */
  readonly changes: readonly Change[]
}

/** The first argument of a handler of `receiver.when`. */
export interface Happening<Happened extends Occurrence = Occurrence, Fields extends FieldCatalogue = BuiltInFields> {
  readonly vin: string
  /** What happened: for most edges the change of a field. */
  readonly change: Happened
  /** The vehicle as of this message. */
  readonly vehicle: VehicleView<Fields>
  /** The name of the edge. */
  readonly edge: string
  /** The VIN, the name of the edge and the delivery's id: the same on every attempt, redelivery and replay. */
  readonly id: string
  /** The message that made it happen. */
  readonly event: FleetEvent<Fields>
}

/** A function for an edge. It is a {@link Handler} in every other way. */
export type EdgeHandler<
  Happened extends Occurrence = Occurrence,
  Bindings extends object = object,
  Fields extends FieldCatalogue = BuiltInFields,
> = (happening: Happening<Happened, Fields>, context: HandlerContext<Bindings, Fields, VehicleView<Fields>>) => unknown

/**
 * A function for the events of a topic. It can be asynchronous. When it throws or rejects, it is retried as the option `retry`
 * says, without the other handlers. It never decides the answer to the service.
 *
 * @example
 * ```ts
 * import type { Handler } from 'fleethook'
 *
 * export const onData: Handler<'data'> = (event) => {
 *   console.log(event.vin, event.data.BatteryLevel)
 * }
 * ```
 */
export type Handler<
  S extends Subject = '*',
  Bindings extends object = object,
  Fields extends FieldCatalogue = BuiltInFields,
  Vehicle = VehicleView<Fields> | undefined,
> = (event: EventOf<S, Fields>, context: HandlerContext<Bindings, Fields, Vehicle>) => unknown

/** Limits a handler to some messages. With both filters, a message must match both. Default: every message of the topic. */
export interface HandlerFilter<Fields extends FieldCatalogue = BuiltInFields> {
  /** Only `data` messages with at least one of these fields. A name that is not in the catalogue throws `handler_invalid`. */
  readonly fields?: readonly FieldName<Fields>[]
  /**
   * Only messages that changed at least one of these fields (part `vehicles`). The first value of a field is no change: where each
   * value counts, as for a counter, pass `first: true`. A field that the option does not keep throws `handler_invalid`.
   */
  readonly changed?: readonly FieldName<Fields>[]
  /** With `changed`: the first value of a field is a change, too. Default `false`. */
  readonly first?: boolean
  /**
   * With `changed`: it is also a change when a vehicle stops reporting a value of a field, or starts reporting the same value
   * again. Default `false`.
   */
  readonly invalid?: boolean
  /** Only messages of these vehicles: a list of VINs, or a function that returns true for a VIN. */
  readonly vins?: readonly string[] | ((vin: string) => boolean)
}

/** Options of `receiver.batch`. */
export interface BatchOptions<Fields extends FieldCatalogue = BuiltInFields> extends HandlerFilter<Fields> {
  /** The handler runs as soon as this many messages are gathered. From 1 to 2147483647. */
  readonly size: number
  /** Or this many milliseconds after the first of them was gathered. From 0 to 2147483647. */
  readonly withinMs: number
}

/** The second argument of the handler of a batch. */
export interface BatchContext<
  Bindings extends object = object,
  Fields extends FieldCatalogue = BuiltInFields,
  Vehicle = VehicleView<Fields> | undefined,
> extends Omit<HandlerContext<Bindings, Fields>, 'delivery' | 'text' | 'vehicle' | 'changes'> {
  /** The receipts of the events: one for each event, in the same order. */
  readonly deliveries: readonly Delivery[]
  /** The messages as they came: one for each event, in the same order. See `HandlerContext.text`. */
  readonly texts: readonly string[]
  /** The vehicles as of the events: one for each event, in the same order. See `HandlerContext.vehicle`. */
  readonly vehicles: readonly Vehicle[]
  /** What the events changed: one list for each event, in the same order. See `HandlerContext.changes`. */
  readonly changes: readonly (readonly Change[])[]
}

/**
 * A function for many events of a topic at once. Events of one VIN are in order of arrival. When it throws or rejects, it
 * runs again with each event alone. Only messages that fail again are retried.
 *
 * @example
 * ```ts
 * import type { BatchHandler } from 'fleethook'
 *
 * export const insert: BatchHandler<'data'> = (events) => {
 *   console.log(events.map((event) => event.vin))
 * }
 * ```
 */
export type BatchHandler<
  S extends Subject = '*',
  Bindings extends object = object,
  Fields extends FieldCatalogue = BuiltInFields,
  Vehicle = VehicleView<Fields> | undefined,
> = (events: readonly EventOf<S, Fields>[], context: BatchContext<Bindings, Fields, Vehicle>) => unknown

/** A function for many happenings of an edge at once. It is a {@link BatchHandler} in every other way. */
export type EdgeBatchHandler<
  Happened extends Occurrence = Occurrence,
  Bindings extends object = object,
  Fields extends FieldCatalogue = BuiltInFields,
> = (
  happenings: readonly Happening<Happened, Fields>[],
  context: BatchContext<Bindings, Fields, VehicleView<Fields>>,
) => unknown
