import type { Hono } from 'hono'
import type {
  BatchHandler,
  BatchOptions,
  EdgeBatchHandler,
  EdgeHandler,
  Handler,
  HandlerFilter,
  Subject,
  VehicleOf,
} from '../core/handler.ts'
import type { Edge, Occurrence } from '../vehicles/edge.ts'
import type { VehiclesPart } from '../parts/vehicles.ts'
import type { FactsBy, Vehicles } from '../vehicles/vehicles.ts'
import type { Clock } from '../base/clock.ts'
import type { GapEvent } from '../events/event.ts'
import type { BuiltInFields, FieldCatalogue } from '../events/fields.ts'
import type { Answer, RefusalError } from '../http/answers.ts'
import type { GivenMessage } from '../http/routes.ts'
import type { ExecutionContext } from '../hosting/execution-context.ts'
import type { Drainable } from '../hosting/drainable.ts'
import type { Operated } from '../observe/observer.ts'

/** The webhook of a receiver, and other ways by which messages come. */
export interface Webhook<Bindings extends object = object> {
  /** The Hono app to mount: `app.route('/telemetry', receiver.routes())`. Always the same one. */
  routes(): Hono<{ Bindings: Bindings }>
  /**
   * Takes a request at `/`, or at the option `basePath`, and on the collector's paths below it. Bound:
   * `export default { fetch: receiver.fetch }`.
   */
  readonly fetch: (request: Request, env?: Bindings, context?: ExecutionContext) => Response | Promise<Response>
  /** Takes a body that the host has read, and resolves to the answer to send. Never rejects. */
  readonly accept: (message: GivenMessage) => Promise<Answer>
  /**
   * Handles the messages of a source as if they were posted to the webhook: the same inbox, order, retries and dead letters,
   * but no webhook that the service has to reach. A source is a stream of `fleethook/client`, or the result of its `refill`.
   * When the inbox is full, the source waits. An interrupted stream that cannot continue from its last item becomes a `gap`.
   *
   * Resolves at the end of the source, or when the receiver drains. Rejects with the error that ended the source.
   *
   * @example
   * ```ts
   * import { createReceiver } from 'fleethook'
   * import { createClient } from 'fleethook/client'
   *
   * const client = createClient({ baseUrl: process.env.SERVICE_URL, apiKey: process.env.SERVICE_API_KEY })
   * const receiver = createReceiver({ secret: false }).on('data', (event) => console.log(event.vin, event.data.BatteryLevel))
   * await receiver.from(client.stream('0FLEETV14T0000004'))
   * ```
   */
  readonly from: (
    source: Source,
    scope?: { readonly env?: unknown; readonly context?: ExecutionContext },
  ) => Promise<void>
}

/** Messages that do not come by the webhook: a stream of `fleethook/client`, or the result of its `refill`. */
export interface Source {
  /** Hands over all of its messages, in order. Resolves at the end, or when the receiver takes no more. */
  feed(sink: Sink): Promise<void>
}

/** What a source sees of a receiver. */
export interface Sink {
  /**
   * Takes one message, as JSON text. Resolves to the reason when it was not taken. When the inbox is full, give it again
   * later.
   */
  take(text: string): Promise<RefusalError | undefined>
  /** Takes a `gap` that the source noticed. Resolves to whether there was room for it. */
  tell(gap: GapEvent): Promise<boolean>
  /** Aborted when the receiver takes no more messages. */
  readonly signal: AbortSignal
  readonly clock: Clock
}

/** The receiver of one webhook. `Keeps`: whether it has the part `vehicles`. Default: it may. */
export interface Receiver<
  Bindings extends object = object,
  Fields extends FieldCatalogue = BuiltInFields,
  Keeps extends boolean = boolean,
>
  extends Handling<Bindings, Fields, Keeps>, Webhook<Bindings> {}

/** What a receiver and a branch have in common: handlers, and what operators ask. */
export interface Handling<
  Bindings extends object = object,
  Fields extends FieldCatalogue = BuiltInFields,
  Keeps extends boolean = boolean,
>
  extends Drainable, Operated, AsyncDisposable {
  /**
   * Registers a handler for a topic, several topics, `'*'` (every event), `'unknown'`, `'gap'` or `'malformed'`. The handlers
   * of a message run one after another in the order of registration. A handler that fails does not stop the others.
   * Throws `handler_invalid` for a topic that does not exist.
   *
   * @example
   * ```ts
   * import { createReceiver } from 'fleethook'
   *
   * createReceiver({ secret: 'a-long-random-value' })
   *   .on('data', { fields: ['BatteryLevel'] }, (event) => console.log(event.vin, event.data.BatteryLevel))
   *   .on(['alerts', 'errors'], (event) => console.log(event.topic))
   * ```
   */
  // `& string` makes the compiler list the topics when one is misspelled, and not only the name `Subject`.
  on<S extends Subject & string>(
    subjects: S | readonly S[],
    handler: Handler<NoInfer<S>, Bindings, Fields, VehicleOf<NoInfer<S>, Keeps, Fields>>,
  ): this
  /** The same for some of the messages. */
  on<S extends Subject & string>(
    subjects: S | readonly S[],
    filter: HandlerFilter<Fields>,
    handler: Handler<NoInfer<S>, Bindings, Fields, VehicleOf<NoInfer<S>, Keeps, Fields>>,
  ): this
  /** Gathers what {@link when} would pass on one by one. */
  batch<Happened extends Occurrence>(
    edge: Edge<Happened>,
    options: BatchOptions<Fields>,
    handler: EdgeBatchHandler<Happened, Bindings, Fields>,
  ): this
  /**
   * Registers a handler that gets up to `size` messages at once, for instance to write hundreds of rows in one statement. It
   * runs when `size` messages are gathered, or `withinMs` milliseconds after the first. A message is gathered when its other
   * handlers are done. The vehicle's next messages follow while the batch is open, as long as they are for the same batch.
   * The messages of a batch are settled together.
   *
   * When it throws, it runs again at once with each message alone. A message that fails is retried as with `on`, and delays only its own
   * vehicle. `timeoutMs` and `context.signal` are for one run.
   *
   * Throws `handler_invalid` for a topic that does not exist, or a wrong `size` or `withinMs`.
   *
   * @example
   * ```ts
   * import { createReceiver } from 'fleethook'
   *
   * createReceiver({ secret: 'a-long-random-value' })
   *   .batch('data', { size: 500, withinMs: 1_000, fields: ['BatteryLevel'] }, (events) =>
   *     console.log(events.map((event) => event.data.BatteryLevel)),
   *   )
   * ```
   */
  batch<S extends Subject & string>(
    subjects: S | readonly S[],
    options: BatchOptions<Fields>,
    handler: BatchHandler<NoInfer<S>, Bindings, Fields, VehicleOf<NoInfer<S>, Keeps, Fields>>,
  ): this
  /**
   * Registers a handler for something that happens to a vehicle, such as `becomes('Gear', 'P')` of `fleethook/when`. Needs the part
   * `vehicles`. It runs after the handlers of the message's topic, and is a handler of the message like these: it has its own retries,
   * and its failure makes the message a dead letter. With a durable inbox, what happened is reported at least once, in order per vehicle,
   * also through crashes. `id` is the same each time.
   *
   * Throws `handler_invalid` when the part is missing, when the edge reads a field that it does not keep, or when another edge
   * has the same name.
   *
   * @example
   * ```ts
   * import { createReceiver, vehicles } from 'fleethook'
   * import { becomes } from 'fleethook/when'
   *
   * createReceiver({ secret: 'a-long-random-value', parts: [vehicles({ fields: ['Gear'] })] })
   *   .when(becomes('Gear', 'P'), ({ vin, change, id }) => console.log(id, vin, 'parked at', change.at))
   * ```
   */
  when<Happened extends Occurrence>(edge: Edge<Happened>, handler: EdgeHandler<Happened, Bindings, Fields>): this
  /** The same for some of the vehicles. */
  when<Happened extends Occurrence>(
    edge: Edge<Happened>,
    filter: Pick<HandlerFilter<Fields>, 'vins'>,
    handler: EdgeHandler<Happened, Bindings, Fields>,
  ): this
}

/** What parts add to a receiver: the part `vehicles` adds the newest state of each vehicle. */
export type AddedBy<Parts extends readonly unknown[], Fields extends FieldCatalogue> = number extends Parts['length']
  ? { readonly vehicles?: Vehicles<Fields> }
  : [Extract<Parts[number], VehiclesPart>] extends [never]
    ? unknown
    : { readonly vehicles: Vehicles<Fields, FactsBy<FactsOf<Parts>>> }

/** The facts of the part `vehicles`. */
type FactsOf<Parts extends readonly unknown[]> = Extract<Parts[number], VehiclesPart>['facts']

/** Whether the parts of a receiver have the part `vehicles`. `boolean`: the compiler does not know. */
export type KeepsVehicles<Parts extends readonly unknown[]> = number extends Parts['length']
  ? boolean
  : [Extract<Parts[number], VehiclesPart>] extends [never]
    ? false
    : true
