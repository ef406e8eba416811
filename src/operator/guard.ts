import { type Context, Hono, type MiddlewareHandler } from 'hono'
import { FleethookError } from '../base/errors.ts'
import { consoleLog } from '../base/log.ts'
import { refuse, responseOf } from '../http/answers.ts'
import { createSecretCheck, type Guarded, type Secret } from '../http/secret.ts'

/** Answers with data of a receiver, and refusals of them, are kept by no cache and read by no browser as another type. */
export const keepPrivate: MiddlewareHandler = async (c, next) => {
  await next()
  c.header('cache-control', 'no-store')
  c.header('x-content-type-options', 'nosniff')
}

/** Guards `app` with a required secret. `owner` is the function that has the option, for errors. */
export function guardRoutes<Bindings extends object>(
  owner: string,
  secret: Secret<Bindings> | undefined,
  app: Hono,
): Hono<{ Bindings: Bindings }> {
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
  const guard = guardOf(owner, secret)
  const guarded = new Hono<{ Bindings: Bindings }>()
  guarded.use(keepPrivate, async (c, next) => (await guard(c)) ?? next())
  guarded.route('/', app)
  return guarded
}

/** Answers a request without the secret of `owner`. Resolves to `undefined` where it is right. */
export function guardOf<Bindings extends object>(
  owner: string,
  secret: Secret<Bindings>,
  { takesBearer = false }: { readonly takesBearer?: boolean } = {},
): (c: Context) => Promise<Response | undefined> {
  const fix = `Send the secret of ${owner} in the header Authorization, as it is${takesBearer ? ' or after Bearer' : ''}.`
  const check = createSecretCheck(secret, consoleLog, {
    requests: `requests to ${owner}`,
    request: `request to ${owner}`,
    fix,
    check: takesBearer ? orBehindBearer : undefined,
  })
  return async (c) => {
    // On a runtime without bindings, a `secret` function gets what the runtime passes in their place.
    const checked = await check(c.req.header('authorization'), 'root', c.env as Bindings)
    if (!('error' in checked)) return undefined
    const isAway = checked.error === 'secret_unavailable'
    return responseOf(refuse(isAway ? checked : { ...checked, hint: fix }))
  }
}

/** The header may have the scheme word `Bearer` before the secret. */
const orBehindBearer: Guarded['check'] = (checkTelling, misplaced) => {
  const check = checkTelling(misplaced)
  // Report a misplaced scheme word only once: for the last of two candidates.
  const asItIs = checkTelling(() => {})
  return (authorization, door) => {
    const [, bare] = /^bearer +(.*)$/i.exec(authorization ?? '') ?? []
    const checked = (bare === undefined ? check : asItIs)(authorization, door)
    return 'error' in checked && bare !== undefined ? check(bare, door) : checked
  }
}
