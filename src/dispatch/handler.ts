import type { Env } from 'hono'
import type { FleetEvent, Topic } from '../events/event.ts'
import type { BuiltInFields, FieldCatalogue } from '../events/fields.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { Log } from '../log.ts'

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
  /** 1 for the first run of this handler, up to `retry.attempts`. */
  readonly attempt: number
  /** The message was handed out before: by an earlier attempt, or by a process that ended before it was handled. */
  readonly redelivered: boolean
  /** The message was put back from the dead letters. */
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
export interface HandlerFilter {
  /** Only messages that carry at least one of these fields of `data`. */
  readonly fields?: readonly string[]
  /** Only messages of these vehicles. */
  readonly vins?: readonly string[] | ((vin: string) => boolean)
}
