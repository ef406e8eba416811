import { Webhook } from 'standardwebhooks'
import { systemClock } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import { checkOptions, milliseconds, required, type Rule, type Rules } from '../base/options.ts'
import type { ReadLimits } from '../base/read-within.ts'
import { readRetryAfter } from '../base/retry-after.ts'
import type { HandlerContext } from '../core/handler.ts'
import { notBefore, retriedAs } from '../core/retry.ts'
import type { FleetEvent } from '../events/event.ts'
import { authorization } from '../wire/encode.ts'
import { RefusedVehicles } from './refused-vehicles.ts'

/** What {@link forward} takes. */
export interface ForwardOptions {
  /** The webhook of the other server. */
  readonly to: string | URL
  /**
   * The secret that the other server expects, sent in `Authorization` as the service sends it: the value itself, or behind the word `Splunk` for a
   * message in the format `event_collector` when it has no scheme. `false` sends none, and has to be written out.
   */
  readonly auth: string | false | undefined
  /** A secret of Standard Webhooks, `whsec_…`: then each request also has `webhook-id`, `webhook-timestamp` and `webhook-signature`. */
  readonly sign?: string | undefined
  /**
   * How long a message is tried again, in milliseconds. Default: as long as it takes, so that an outage over a long weekend loses nothing. Then the
   * limits of the inbox of the branch end it: what no longer fits is refused there, and a gap. Time in which the server answers nobody does not count.
   */
  readonly forMs?: number
  /** The longest that one request may take, in milliseconds. Default 10,000. `timeoutMs` of its branch, 30,000 by default, ends it, too. */
  readonly timeoutMs?: number
}

/** The handler that {@link forward} makes, for `receiver.on` with any topics. */
export type Forwarding = (
  event: Pick<FleetEvent, 'raw' | 'format' | 'vin'>,
  context: Pick<HandlerContext, 'signal' | 'delivery' | 'text'>,
) => Promise<void>

const aSecret = (must: string, accepts: (value: string) => boolean): Rule => ({
  must,
  accepts: (value) => typeof value === 'string' && accepts(value),
  isSecret: true,
})

const auth = aSecret('must be visible ASCII characters, with spaces only in between', (value) =>
  /^[!-~](?:[ -~]*[!-~])?$/.test(value),
)

const rules: Rules<ForwardOptions> = {
  to: required(
    {
      must: 'must be an address with http:// or https:// and without a user',
      accepts: (value) => addressOf(value) !== undefined,
      // Its query can hold a token.
      isSecret: true,
    },
    "For instance 'https://staging.example.com/telemetry'.",
  ),
  auth: required(
    { ...auth, accepts: (value) => value === false || auth.accepts(value) },
    'Give the secret of the other server, or write out `auth: false`.',
  ),
  sign: aSecret('must be a secret of Standard Webhooks: whsec_ and base64', (value) => signerOf(value) !== undefined),
  forMs: milliseconds(0),
  timeoutMs: milliseconds(1),
}

/** So much of an answer is read that its connection can be used again. */
export const answerLimits: ReadLimits = { mostBytes: 65_536, mostMs: 1_000 }

/** What may be better with another try. The answer to a POST is never a 1xx: the connection is of no use. */
const isPassing = (status: number): boolean =>
  [408, 425, 429].includes(status) || (status >= 500 && status < 600) || (status >= 100 && status < 200)

/** An answer of the other server. */
export interface Answer {
  readonly status: number
  readonly retryAfter: string | null
}

/** One request, with what a runtime has for it. Resolves when the answer is read, or too long to be read. Follows no redirection. */
export type Post = (
  to: URL,
  request: { readonly headers: Readonly<Record<string, string>>; readonly body: string; readonly signal: AbortSignal },
) => Promise<Answer>

/** Makes the handler of `forward`, which posts with `send`. */
export function forwardingWith(send: Post, options: ForwardOptions): Forwarding {
  checkOptions('forward', options, rules)
  const { to, auth: secret, sign, forMs = Infinity, timeoutMs = 10_000 } = options
  const address = addressOf(to)
  if (address === undefined) throw new Error('The rule of `to` has checked it.')
  const signer = sign === undefined ? undefined : signerOf(sign)
  /** For chat and automation services, its path is a secret, like the token of a query. */
  const where = address.origin
  const refused = new RefusedVehicles()

  const post: Forwarding = async ({ raw, format, vin = '' }, context) => {
    // With a cast, or in JavaScript.
    if (raw === undefined)
      throw new GiveUp('handler_invalid', '`forward` was given something that is not one message.', {
        hint: 'Use it with `on`, for topics or `*`. It is no handler of a batch, of an edge or of `malformed`.',
      })
    if (typeof raw !== 'object' || raw === null || format === null) return
    const { signal, delivery, text: body } = context
    const { id } = delivery
    const headers: Record<string, string> = { 'content-type': 'application/json', 'fleethook-delivery': id }
    if (typeof secret === 'string') headers['authorization'] = authorization(secret, format)
    if (signer !== undefined) {
      const now = new Date()
      headers['webhook-id'] = id
      headers['webhook-timestamp'] = String(Math.floor(now.getTime() / 1000))
      headers['webhook-signature'] = signer.sign(id, now, body)
    }
    signal.throwIfAborted()
    // Signals of `AbortSignal.timeout` and `any` stay until their time is over, and thousands of them make each collection of garbage long.
    const ends = new AbortController()
    const end = (): void => ends.abort()
    const timer = systemClock.after(timeoutMs, end)
    signal.addEventListener('abort', end)
    try {
      const { status, retryAfter } = await send(address, { headers, body, signal: ends.signal })
      if (status >= 200 && status < 300) return refused.taken(vin)
      const failure = failureOf(where, status, !isPassing(status) && refused.isOfMessage(vin, id, status))
      throw notBefore(failure, readRetryAfter(retryAfter, systemClock.now()) ?? 0)
    } catch (error) {
      signal.throwIfAborted()
      if (error instanceof FleethookError) throw error
      const what = ends.signal.aborted ? `did not answer in ${timeoutMs} ms` : `could not be reached${why(error)}`
      // Without the error of the runtime: on Bun and Deno it has the whole address.
      throw unanswered(`${where} ${what}.`)
    } finally {
      timer.cancel()
      signal.removeEventListener('abort', end)
    }
  }
  Object.defineProperty(post, 'name', { value: `forward to ${address.host}` })
  return retriedAs(post, { attempts: Infinity, minMs: 1_000, maxMs: 60_000, maxAgeMs: forMs })
}

/** Another try would end the same way, so the core makes the message a dead letter at once. */
class GiveUp extends FleethookError {
  readonly fleethook = 'give-up'
}

/** What follows from an answer that is not a 2xx. */
function failureOf(where: string, status: number, isOfMessage: boolean): FleethookError {
  const text = status === 0 || (status >= 300 && status < 400) ? 'redirects' : `answered ${status}`
  if (isOfMessage)
    return new GiveUp('forward_refused', `${where} ${text} to this message again, and takes others.`, {
      hint: 'Look at the other server, then replay the dead letter.',
    })
  const hint = isPassing(status)
    ? undefined
    : 'Has its address or secret changed, or does a proxy answer for it? Messages wait until it takes them.'
  return unanswered(`${where} ${text}.`, hint)
}

const unanswered = (text: string, hint?: string): FleethookError => new FleethookError('forward_failed', text, { hint })

/** The code of the system, such as `ECONNREFUSED`, where the runtime tells it. */
function why(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error
  const code = cause instanceof Error && 'code' in cause ? cause.code : undefined
  return typeof code === 'string' ? `: ${code}` : ''
}

function addressOf(given: unknown): URL | undefined {
  const text = given instanceof URL ? given.href : given
  if (typeof text !== 'string' || !URL.canParse(text)) return undefined
  const url = new URL(text)
  return /^https?:$/.test(url.protocol) && url.username === '' && url.password === '' ? url : undefined
}

function signerOf(secret: string): Webhook | undefined {
  try {
    return new Webhook(secret)
  } catch {
    return undefined
  }
}
