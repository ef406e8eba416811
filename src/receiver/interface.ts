import type { DeadMessage } from '../inbox/dead-letters.ts'
import type { DrainResult } from '../hosting/drainable.ts'
import type { Env, Hono } from 'hono'
import type { BatchHandler, BatchOptions, Handler, HandlerFilter, Subject } from '../dispatch/handler.ts'
import type { FleetEvent } from '../events/event.ts'
import type { BuiltInFields, FieldCatalogue } from '../events/fields.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { DeadLetters, ReplaySelection } from '../inbox/dead-letters.ts'
import type { Answer } from '../http/answers.ts'
import type { ExecutionContext } from '../hosting/execution-context.ts'
import type { Drainable } from '../hosting/drainable.ts'
import type { Source } from './source.ts'
import type { Stats } from './stats.ts'

/** A message that the host has read itself. */
export interface GivenMessage {
  /** The value of the request's `Authorization` header. */
  readonly authorization: string | null | undefined
  /** Text, bytes, or what a body parser made of them. */
  readonly body: unknown
  /** The value of the request's `Content-Encoding` header, when `body` is still encoded. */
  readonly contentEncoding?: string | null | undefined
  /** The path below the mount; the collector's own paths have stricter rules. Default `/`. */
  readonly path?: string
  /** What handlers find as `context.env`. */
  readonly env?: unknown
  /** The runtime's `waitUntil`, where it ends a request's work with its answer. */
  readonly context?: ExecutionContext
}

/** What went wrong, for `receiver.onError`. */
export interface ErrorDetails {
  readonly kind: 'handler' | 'inbox' | 'dead-letter-handler'
  readonly event?: FleetEvent | MalformedBody
  readonly delivery?: { readonly id: string; readonly attempt: number }
  /** How many messages the handler of a batch failed with; `event` and `delivery` are those of the first. */
  readonly messages?: number
}

/** The receiver of one webhook. */
export interface Receiver<E extends Env = Env, Fields extends FieldCatalogue = BuiltInFields> extends Drainable {
  /**
   * Registers a handler for a topic, several, `'*'` (every event), `'unknown'`, `'gap'` or `'malformed'`. Handlers of a
   * message run one after another in the order of registration; one that fails does not keep the others from running.
   * Throws `handler_invalid` for a topic that does not exist.
   *
   * @example
   * ```ts
   * import { createReceiver } from 'fleethook'
   *
   * createReceiver({ secret: 'a-long-random-value' })
   *   .on('data', (event) => console.log(event.vin, event.data.BatteryLevel), { fields: ['BatteryLevel'] })
   *   .on(['alerts', 'errors'], (event) => console.log(event.topic))
   * ```
   */
  on<S extends Subject>(
    subjects: S | readonly S[],
    handler: Handler<NoInfer<S>, E, Fields>,
    filter?: HandlerFilter<Fields>,
  ): Receiver<E, Fields>
  /**
   * Registers a handler that is given up to `size` messages at once: for writers that want hundreds at a time. It is run when
   * so many are gathered, or `withinMs` milliseconds after the first. A message is gathered when its other handlers are done; its
   * vehicle goes on meanwhile, as long as what follows is for the same batch. They are settled together.
   *
   * When it throws, it is run again with halves of them, at once, until a message is left that it fails for alone: that one is
   * tried again as with `on`, and holds only its own vehicle. `timeoutMs` and `context.signal` are of one run.
   *
   * Throws `handler_invalid` for a topic that does not exist, or a wrong `size` or `withinMs`.
   *
   * @example
   * ```ts
   * import { createReceiver } from 'fleethook'
   *
   * createReceiver({ secret: 'a-long-random-value' })
   *   .batch('data', { size: 500, withinMs: 1_000 }, (events) => console.log(events.map((event) => event.data.BatteryLevel)))
   * ```
   */
  batch<S extends Subject>(
    subjects: S | readonly S[],
    options: BatchOptions<Fields>,
    handler: BatchHandler<NoInfer<S>, E, Fields>,
  ): Receiver<E, Fields>
  /** Is told of every failed run of a handler and of every failure of the inbox. What it throws is logged. */
  onError(handler: (error: unknown, details: ErrorDetails) => unknown): Receiver<E, Fields>
  /** A Hono app to mount: `app.route('/telemetry', receiver.routes())`. Always the same one. */
  routes(): Hono<E>
  /** Takes a request at `/` and on the collector's paths. Bound: `export default { fetch: receiver.fetch }`. */
  readonly fetch: (request: Request, env?: E['Bindings'], context?: ExecutionContext) => Response | Promise<Response>
  /** Takes a message whose body the host has read, and resolves to the answer to send. Never rejects. */
  readonly accept: (message: GivenMessage) => Promise<Answer>
  /**
   * Has what a source brings handled as if it had been posted to the webhook: the same inbox, order, retries and dead letters,
   * without a webhook that the service could reach. A source is a stream of `fleethook/client`, or what it refilled. Where a post
   * would be refused because the inbox is full, the source waits. A stream that was interrupted, and that the service cannot
   * continue from the last item, is told as a `gap`.
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
    surroundings?: { readonly env?: unknown; readonly context?: ExecutionContext },
  ) => Promise<void>
  /**
   * Opens the inbox and goes on with what an earlier process left. `serve` does it before it listens, and else the first
   * request does. Resolves at once when it is open; rejects when it cannot be opened.
   */
  readonly open: () => Promise<void>
  /**
   * Stops taking messages (503) and resolves when the handlers of all that were taken are done, or at the deadline
   * (default 25,000 ms): then signals are aborted and what is left is counted. Never ends the process. Calling it again
   * returns the same promise.
   */
  readonly drain: (options?: { readonly deadlineMs?: number }) => Promise<DrainResult>
  /** Counts since construction, and what is going on right now. */
  stats(): Stats
  readonly deadLetters: DeadLetters
  /**
   * Puts messages back that were handled and that the inbox still holds (its retention), in the order in which they came: all
   * handlers run anew, with `context.delivery.replayed`. A hundred at a time, the next when those are done, so that live
   * messages get in between. Resolves to how many when the last are put back; to 0 with an inbox that holds none, as the one in
   * memory. Rejects with `inbox_full` when there is no room for the next.
   *
   * @example
   * ```ts
   * import { createReceiver } from 'fleethook'
   *
   * const receiver = createReceiver({ secret: 'a-long-random-value' })
   * await receiver.replay({ from: new Date('2026-11-20T06:00Z'), to: new Date('2026-11-20T09:00Z'), topic: 'data' })
   * ```
   */
  replay(
    which: ReplaySelection,
    from?: { readonly env?: unknown; readonly context?: ExecutionContext },
  ): Promise<number>
}
