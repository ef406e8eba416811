import type { Env } from 'hono'
import type { FleetEvent, Topic } from '../events/event.ts'
import type { BuiltInFields, FieldCatalogue, FieldName } from '../events/fields.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { Log } from '../base/log.ts'

/** What a handler can be registered for: a topic, `'*'` for every event, `'malformed'` for bodies that were refused. */
export type Subject = Topic | '*' | 'malformed'

/** What a handler for a subject is given: `EventOf<'data'>`, `EventOf<'alerts' | 'errors'>`, `EventOf<'*'>`. */
export type EventOf<S extends Subject, Fields extends FieldCatalogue = BuiltInFields> = S extends '*'
  ? FleetEvent<Fields>
  : S extends 'malformed'
    ? MalformedBody
    : Extract<FleetEvent<Fields>, { readonly topic: S }>

/** Which receipt this is, and the how-manieth time it is handed over. */
export interface Delivery {
  /** UUIDv7, made at receipt; the same on every attempt and every redelivery. `event.id` is of the content. */
  readonly id: string
  /** 1 for the first run, up to `retry.attempts`; runs of earlier processes count. */
  readonly attempt: number
  /** The message was handed out before: by an earlier attempt, or by a process that ended before it was handled. */
  readonly redelivered: boolean
  /** The message was put back from the dead letters, or from what was handled. */
  readonly replayed: boolean
}

/** What a handler gets beside the event. Pass it on as it is: a copy made by spreading has no `signal`. */
export interface HandlerContext<E extends Env = Env> {
  /** Aborted when the run has taken `timeoutMs`, or when a drain has reached its deadline. */
  readonly signal: AbortSignal
  /** The receiver's log. */
  readonly log: Log
  /** The runtime's bindings, as the request that brought the message had them. */
  readonly env: NonNullable<E['Bindings']>
  readonly delivery: Delivery
}

/**
 * A function for the events of a topic. It may be asynchronous. When it throws or rejects, it is run again, alone, up
 * to `retry.attempts` times; it never decides the answer to the service, which was given long before.
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

/** Narrows what a handler is run for. */
export interface HandlerFilter<Fields extends FieldCatalogue = BuiltInFields> {
  /** Only messages that carry at least one of these fields of `data`. */
  readonly fields?: readonly FieldName<Fields>[]
  /** Only messages of these vehicles. */
  readonly vins?: readonly string[] | ((vin: string) => boolean)
}

/** How messages are gathered for the handler of a batch, and which. */
export interface BatchOptions<Fields extends FieldCatalogue = BuiltInFields> extends HandlerFilter<Fields> {
  /** The handler is run as soon as so many messages are gathered. */
  readonly size: number
  /** Or so many milliseconds after the first of them was. */
  readonly withinMs: number
}

/** What the handler of a batch gets beside the events. */
export interface BatchContext<E extends Env = Env> extends Omit<HandlerContext<E>, 'delivery'> {
  /** Which receipts these are: one for each event, in the same order. */
  readonly deliveries: readonly Delivery[]
}

/**
 * A function for many events of a topic at once: those of one VIN are in order of arrival. When it throws or rejects, it is
 * run again with halves of them, until the one that it fails for is found and tried again alone.
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
