import { Webhook } from 'standardwebhooks'
import { longestMs, systemClock } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import { checkOptions, milliseconds, required, type Rule, type Rules } from '../base/options.ts'
import type { HandlerContext } from '../core/handler.ts'
import { notBefore, retriedAs } from '../core/retry.ts'
import type { FleetEvent } from '../events/event.ts'
import { authorization } from '../wire/encode.ts'

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
  /** How long a message is tried again, in milliseconds. Default 24 hours. Time in which the server answers nobody does not count. */
  readonly forMs?: number
  /** The longest that one request may take, in milliseconds. Default 10,000. `timeoutMs` of its branch, 30,000 by default, ends it, too. */
  readonly timeoutMs?: number
}

/** The handler that {@link forward} makes, for `receiver.on` with any topics. */
export type Forwarding = (
  event: Pick<FleetEvent, 'raw' | 'format'>,
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

/** The most of an answer that is read, in bytes and milliseconds, so that its connection can be used again. */
export const mostAnswerBytes = 65_536
export const mostAnswerMs = 1_000

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
  const { to, auth: secret, sign, forMs = 86_400_000, timeoutMs = 10_000 } = options
  const address = addressOf(to)
  if (address === undefined) throw new Error('The rule of `to` has checked it.')
  const signer = sign === undefined ? undefined : signerOf(sign)
  /** Without its query, which can hold a token. */
  const where = `${address.origin}${address.pathname}`

  const post: Forwarding = async ({ raw, format }, context) => {
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
      judge(where, await send(address, { headers, body, signal: ends.signal }), forMs)
    } catch (error) {
      signal.throwIfAborted()
      if (error instanceof FleethookError) throw error
      const what = ends.signal.aborted ? `did not answer in ${timeoutMs} ms` : `could not be reached${why(error)}`
      throw unanswered(where, what, error)
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

/** Throws what follows from an answer that is not a 2xx. */
function judge(where: string, { status, retryAfter }: Answer, forMs: number): void {
  if (status >= 200 && status < 300) return
  const text = status === 0 || (status >= 300 && status < 400) ? 'redirects' : `answered ${status}`
  if (!isPassing(status))
    throw new GiveUp('forward_refused', `${where} ${text}.`, {
      hint: 'Look at the other server, then replay the dead letter.',
    })
  // After `forMs` nobody tries it again.
  throw notBefore(unanswered(where, text), Math.min(forMs, retryAfterMs(retryAfter)))
}

const unanswered = (where: string, what: string, cause?: unknown): FleethookError =>
  new FleethookError('forward_failed', `${where} ${what}.`, { cause })

/** The code of the system, such as `ECONNREFUSED`, where the runtime tells it. */
function why(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error
  const code = cause instanceof Error && 'code' in cause ? cause.code : undefined
  return typeof code === 'string' ? `: ${code}` : ''
}

/** Seconds, or a date of HTTP, which begins with a day: `Date.parse` takes 2050.5 for a year. 0: it says nothing that can be read. */
function retryAfterMs(given: string | null): number {
  const text = given?.trim() ?? ''
  const ms = /^\d+$/.test(text) ? Number(text) * 1000 : /^[a-z]/i.test(text) ? Date.parse(text) - Date.now() : 0
  return Number.isNaN(ms) ? 0 : Math.min(longestMs, Math.max(0, ms))
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
