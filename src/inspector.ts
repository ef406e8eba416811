/**
 * A page that shows a running receiver: what arrives, what its handlers do with it, and what goes wrong.
 *
 * @module
 */
import { Hono } from 'hono'
import { checkOption, trueOrFalse } from './base/options.ts'
import type { OperatorApi } from './observe/observer.ts'
import { createShell } from './inspector/shell.ts'
import { createOperatorApp } from './operator/app.ts'
import { guardRoutes } from './operator/guard.ts'
import type { OperatorOptions } from './operator.ts'

/** Options of {@link inspectorRoutes}. */
export interface InspectorOptions<Bindings extends object = object> extends OperatorOptions<Bindings> {
  /**
   * `false` hides raw messages, values and the texts of errors: the page and its data show which message came from which vehicle, when,
   * and what happened to it. Default `true`.
   */
  readonly payloads?: boolean
}

/**
 * A Hono app with the page of the inspector, and below it the data of the page, which includes everything of `operatorRoutes`. Mount it
 * where operators can reach it and the public cannot. For a receiver with an SQLite inbox on this machine, `npx fleethook inspect` shows the
 * same page without a route.
 *
 * The page itself holds no data and needs no secret. Every request for data needs the secret in `Authorization`: the page asks for it and
 * keeps it for the time of the browser's tab.
 *
 * Throws `secret_missing` or `option_invalid` for a secret that can never work.
 *
 * @example
 * ```ts
 * import { Hono } from 'hono'
 * import { createReceiver } from 'fleethook'
 * import { inspectorRoutes } from 'fleethook/inspector'
 *
 * const receiver = createReceiver({ secret: process.env.WEBHOOK_SECRET }).on('data', (event) => console.log(event.vin))
 * const app = new Hono()
 * app.route('/telemetry', receiver.routes())
 * app.route('/inspector', inspectorRoutes(receiver, { secret: process.env.FLEETHOOK_OPERATOR_SECRET }))
 * ```
 */
export function inspectorRoutes<Bindings extends object = object>(
  operator: OperatorApi,
  { secret, payloads = true }: InspectorOptions<Bindings>,
): Hono<{ Bindings: Bindings }> {
  checkOption('inspectorRoutes', 'payloads', payloads, trueOrFalse)
  const app = new Hono<{ Bindings: Bindings }>()
  app.route('/', createShell())
  app.route('/branches/:branch', createShell())
  app.route('/', guardRoutes('inspectorRoutes', secret, createOperatorApp(operator, { payloads })))
  return app
}
