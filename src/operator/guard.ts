import { type Env, Hono } from 'hono'
import { FleethookError } from '../base/errors.ts'
import { consoleLog } from '../base/log.ts'
import { refuse, responseOf } from '../http/answers.ts'
import { createSecretCheck, type Secret } from '../http/secret.ts'

/** Guards `app` with a required secret. `owner` is the function that has the option, for errors. */
export function guardRoutes<E extends Env>(
  owner: string,
  secret: Secret<NonNullable<E['Bindings']>> | undefined,
  app: Hono,
): Hono<E> {
  const hint = 'Pass a secret of its own, not the webhook’s.'
  if (secret === undefined)
    throw new FleethookError('secret_missing', `Option \`secret\` of ${owner} is missing.`, { hint })
  if (secret === false) {
    throw new FleethookError(
      'option_invalid',
      `Option \`secret\` of ${owner} is false, and these routes show payloads.`,
      { hint },
    )
  }
  // On a runtime without bindings, a `secret` function gets what the runtime passes in their place.
  const guard = createSecretCheck(secret, consoleLog)
  const guarded = new Hono<E>()
  guarded.use(async (c, next) => {
    const refusal = await guard(c.req.header('authorization'), 'root', c.env as NonNullable<E['Bindings']>)
    if (refusal === undefined) return next()
    return responseOf(refuse(refusal))
  })
  guarded.route('/', app)
  return guarded
}
