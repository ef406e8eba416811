/**
 * The receiver as a Worker.
 *
 * @module
 */
import { FleethookError } from '../src/base/errors.ts'
import { hostedBy } from '../src/receiver/hosted.ts'
import type { ExecutionContext } from '../src/hosting/execution-context.ts'
import { isRouted, receiversIn } from '../src/hosting/drainable.ts'

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
 * The Worker's bindings reach `secret` functions and handlers as `env`. `waitUntil` keeps work alive after the answer for 25
 * seconds; the platform would end it at 30. Messages that are not handled in time are counted in `receiver.stats().lost` and
 * reported to the log. With `ack: 'handled'` the answer itself waits for the handlers.
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
 * const receiver = createReceiver({ secret: (env: Bindings) => env.WEBHOOK_SECRET })
 *   .on('data', (event) => console.log(event.vin))
 *
 * export default worker(receiver)
 * ```
 */
export function worker<Bindings = unknown>(served: WorkerServed<Bindings>): Worker<Bindings> {
  const receivers = isRouted(served) ? receiversIn(served) : [served]
  refuseForgetting(receivers)
  const told = receivers.flatMap((receiver) => hostedBy(receiver)?.intake.parts.settings.inbox.useEnv ?? [])
  return {
    fetch(request, env, context) {
      for (const useEnv of told) useEnv(env)
      return served.fetch(request, env, context)
    },
  }
}

/** Throws `option_invalid`: a Worker, with states of vehicles in its memory, can end without a crash to report. */
function refuseForgetting(receivers: readonly object[]): void {
  for (const receiver of receivers) {
    const { intake } = hostedBy(receiver) ?? {}
    if (intake?.parts.vehicles === undefined || intake.durability !== 'memory') continue
    throw new FleethookError(
      'option_invalid',
      'The part `vehicles` keeps the states of vehicles in memory here, and a Worker loses its memory at any time.',
      { hint: 'Use durableObjectInbox(…), or run the receiver on Node, Bun or Deno with sqliteInbox(…).' },
    )
  }
}
