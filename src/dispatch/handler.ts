import type { Env } from 'hono'
import type { FleetEvent, Topic } from '../events/event.ts'
import type { BuiltInFields, FieldCatalogue, FieldName } from '../events/fields.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { Log } from '../base/log.ts'
import type { Delivery } from '../inbox/observer.ts'

/** The first argument of `receiver.on`: a topic, `'*'` for every event, or `'malformed'` for bodies that could not be read. */
export type Subject = Topic | '*' | 'malformed'

/** The event that a handler receives: `EventOf<'data'>`, `EventOf<'alerts' | 'errors'>`, `EventOf<'*'>`. */
export type EventOf<S extends Subject, Fields extends FieldCatalogue = BuiltInFields> = S extends '*'
  ? FleetEvent<Fields>
  : S extends 'malformed'
    ? MalformedBody
    : Extract<FleetEvent<Fields>, { readonly topic: S }>

/** The second argument of a handler. A copy made by spreading has no `signal`, so pass the object itself. */
export interface HandlerContext<E extends Env = Env> {
  /** Aborts when the run has taken `timeoutMs`, or when a drain reaches its deadline. */
  readonly signal: AbortSignal
  /** The receiver's log. */
  readonly log: Log
  /** The runtime's bindings of the request that brought the message. */
  readonly env: NonNullable<E['Bindings']>
  readonly delivery: Delivery
}

/**
 * A function for the events of a topic. It can be asynchronous. When it throws or rejects, it is retried, up to
 * `retry.attempts` times, without the other handlers. It never decides the answer to the service.
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
export type Handler<S extends Subject = '*', E extends Env = Env, Fields extends FieldCatalogue = BuiltInFields> = (
  event: EventOf<S, Fields>,
  context: HandlerContext<E>,
) => unknown

/** Limits a handler to some messages. With both filters, a message must match both. Default: every message of the topic. */
export interface HandlerFilter<Fields extends FieldCatalogue = BuiltInFields> {
  /** Only `data` messages with at least one of these fields. A name that is not in the catalogue throws `handler_invalid`. */
  readonly fields?: readonly FieldName<Fields>[]
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
export interface BatchContext<E extends Env = Env> extends Omit<HandlerContext<E>, 'delivery'> {
  /** The receipts of the events: one for each event, in the same order. */
  readonly deliveries: readonly Delivery[]
}

/**
 * A function for many events of a topic at once. Events of one VIN are in order of arrival. When it throws or rejects, it
 * runs again with each half of the events, until the failing event is found. Only that event is then retried.
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
  E extends Env = Env,
  Fields extends FieldCatalogue = BuiltInFields,
> = (events: readonly EventOf<S, Fields>[], context: BatchContext<E>) => unknown
