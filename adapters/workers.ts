/**
 * The receiver as a Worker.
 *
 * @module
 */
import type { ExecutionContext } from '../src/http/execution-context.ts'

/** A receiver, or a Hono app that mounts one. */
export interface WorkerServed<Bindings> {
  readonly fetch: (request: Request, env?: Bindings, context?: ExecutionContext) => Response | Promise<Response>
}

/** What a Worker's module exports by default. */
export interface Worker<Bindings> {
  readonly fetch: (request: Request, env: Bindings, context: ExecutionContext) => Response | Promise<Response>
}

/**
 * Makes the default export of a Worker.
 *
 * The Worker's bindings reach `secret` functions and handlers as `env`. What goes on after an answer is held by
 * `waitUntil`, for 25 seconds, before the platform ends it at 30: what is not finished then is counted in
 * `receiver.stats().lost` and reported to the log. With `ack: 'handled'` the answer itself waits for the handlers.
 *
 * A receiver is made once, at the top of the module, and serves every request of its isolate.
 *
 * @example
 * ```ts
 * import { createReceiver } from 'fleethook'
 * import { worker } from 'fleethook/workers'
 *
 * interface Bindings { WEBHOOK_SECRET: string }
 *
 * const receiver = createReceiver<{ Bindings: Bindings }>({ secret: (env) => env.WEBHOOK_SECRET })
 *   .on('data', (event) => console.log(event.vin))
 *
 * export default worker(receiver)
 * ```
 */
export function worker<Bindings = unknown>(served: WorkerServed<Bindings>): Worker<Bindings> {
  return { fetch: (request, env, context) => served.fetch(request, env, context) }
}
