/**
 * What an operator may ask of a receiver that runs elsewhere, over HTTP: dead letters, and replays.
 *
 * @module
 */
import { type Env, Hono } from 'hono'
import { FleethookError } from './base/errors.ts'
import { createSecretCheck, type Secret } from './http/secret.ts'
import { refuse } from './http/answers.ts'
import { consoleLog } from './base/log.ts'
import { createOperatorApp } from './operator/app.ts'
import type { OperatorApi } from './inbox/dead-letters.ts'

export type { Letter, LetterSummary } from './operator/letter.ts'
export type { OperatorApi } from './inbox/dead-letters.ts'

/** Options of {@link operatorRoutes}. */
export interface OperatorOptions<E extends Env = Env> {
  /**
   * Guards the routes, as the value of `Authorization`: another one than the webhook's, for it shows payloads and gives power over
   * them. A string, a list while one replaces another, or a function of the runtime's `env`. There is no `false`.
   */
  readonly secret: Exclude<Secret<NonNullable<E['Bindings']>>, false> | undefined
}

/**
 * A Hono app with what `fleethook dead` and `fleethook replay` ask of a receiver at `--url`. Mount it where operators reach it
 * and the public does not. A receiver with an SQLite inbox needs none: the commands find it by the inbox's file.
 *
 * | request | what |
 * | --- | --- |
 * | `GET /dead?limit&after&vin&topic&from&to` | `{ letters, next }`, without payloads; times are ISO 8601 |
 * | `GET /dead/:id` | one, with its event |
 * | `POST /dead/:id/replay`, `/dead/:id/discard` | `{ messages: 0 or 1 }` |
 * | `POST /dead/replay`, `/dead/discard` with `{ vin?, topic?, from?, to?, dryRun? }` | `{ messages }` |
 * | `POST /replay` with `{ from, to, vin?, topic?, dryRun? }` | puts handled messages back that are still held: `{ messages }` |
 *
 * Throws `secret_missing` or `option_invalid` for a secret that could never work.
 *
 * @example
 * ```ts
 * import { Hono } from 'hono'
 * import { createReceiver } from 'fleethook'
 * import { operatorRoutes } from 'fleethook/operator'
 *
 * const receiver = createReceiver({ secret: process.env.WEBHOOK_SECRET }).on('data', (event) => console.log(event.vin))
 * const app = new Hono()
 * app.route('/telemetry', receiver.routes())
 * app.route('/operator', operatorRoutes(receiver, { secret: process.env.FLEETHOOK_OPERATOR_SECRET }))
 * ```
 */
export function operatorRoutes<E extends Env = Env>(operator: OperatorApi, { secret }: OperatorOptions<E>): Hono<E> {
  if (secret === undefined) {
    throw new FleethookError('secret_missing', 'Option `secret` of operatorRoutes is missing.', {
      hint: 'Give one of its own, not the webhook’s.',
    })
  }
  const given: unknown = secret
  if (given === false) {
    throw new FleethookError(
      'option_invalid',
      'Option `secret` of operatorRoutes is false, and these routes show payloads.',
      {
        hint: 'Give one of its own, not the webhook’s.',
      },
    )
  }
  // Where a runtime has no bindings, a function that asks for them is given whatever there is.
  const guard = createSecretCheck(secret, consoleLog)
  const app = new Hono<E>()
  app.use(async (c, next) => {
    const refusal = await guard(c.req.header('authorization'), 'root', c.env as NonNullable<E['Bindings']>)
    if (refusal === undefined) return next()
    const { status, headers, body } = refuse(refusal)
    return new Response(body, { status, headers })
  })
  app.route('/', createOperatorApp(operator))
  return app
}
