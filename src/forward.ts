/**
 * Forwards messages to another server, as the service posts them.
 *
 * @module
 */
import { Webhook } from 'standardwebhooks'
import { longestMs } from './base/clock.ts'
import { FleethookError } from './base/errors.ts'
import { checkOptions, milliseconds, required, type Rule, type Rules } from './base/options.ts'
import type { HandlerContext } from './core/handler.ts'
import { notBefore, retriedAs } from './core/retry.ts'
import type { FleetEvent } from './events/event.ts'
import { authorization } from './wire/encode.ts'
import { jsonText } from './wire/json.ts'

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
  /** The longest that one request may take, in milliseconds. Default 10,000. */
  readonly timeoutMs?: number
}

/** The handler that {@link forward} makes, for `receiver.on` with any topics. */
export type Forwarding = (
  event: Pick<FleetEvent, 'raw' | 'format'>,
  context: Pick<HandlerContext, 'signal' | 'delivery'>,
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
const mostAnswerBytes = 65_536
const mostAnswerMs = 1_000

/** What may be better with another try. */
const passing: ReadonlySet<number> = /* @__PURE__ */ new Set([408, 425, 429])

/**
 * A handler that posts each message to another server, in its own format, so that whatever reads the service's webhook reads this: a second
 * fleethook, a script, the queue of another team. It belongs on a branch: elsewhere the next messages of a vehicle wait until the server has this one.
 *
 * Messages come in order per vehicle and at least once, through crashes of this process and of the other server. The header `fleethook-delivery` is
 * the same each time, so the server can drop what it has. An answer of 2xx ends it. After 408, 425, 429, 5xx, no answer in time or a lost connection
 * it is tried again for `forMs`, not before `Retry-After`. Any other answer makes the message a dead letter at once, a redirect too: the secret is
 * for `to` only. Answers are never logged. Gaps are not posted.
 *
 * Throws `option_invalid` for a wrong option.
 *
 * Specification: "Webhook delivery", "Authentication of outgoing webhook messages".
 *
 * @example
 * ```ts
 * import { createReceiver } from 'fleethook'
 * import { branch } from 'fleethook/branch'
 * import { forward } from 'fleethook/forward'
 * import { sqliteInbox } from 'fleethook/inbox/sqlite'
 *
 * const receiver = createReceiver({ secret: process.env.WEBHOOK_SECRET, inbox: sqliteInbox({ path: 'data/inbox.db' }) })
 *
 * branch(receiver, { name: 'staging', inbox: sqliteInbox({ path: 'data/staging.db' }) }).on(
 *   '*',
 *   { vins: ['0FLEETV14T0000004'] },
 *   forward({ to: 'https://staging.example.com/telemetry', auth: process.env.STAGING_AUTH }),
 * )
 * ```
 */
export function forward(options: ForwardOptions): Forwarding {
  checkOptions('forward', options, rules)
  const { to, auth: secret, sign, forMs = 86_400_000, timeoutMs = 10_000 } = options
  const address = addressOf(to)
  if (address === undefined) throw new Error('The rule of `to` has checked it.')
  const signer = sign === undefined ? undefined : signerOf(sign)
  /** Without its query, which can hold a token. */
  const where = `${address.origin}${address.pathname}`

  const post: Forwarding = async ({ raw, format }, { signal, delivery: { id } }) => {
    if (typeof raw !== 'object' || raw === null || format === null) return
    const body = jsonText(raw)
    const headers = new Headers({ 'content-type': 'application/json', 'fleethook-delivery': id })
    if (typeof secret === 'string') headers.set('authorization', authorization(secret, format))
    if (signer !== undefined) {
      const now = new Date()
      headers.set('webhook-id', id)
      headers.set('webhook-timestamp', String(Math.floor(now.getTime() / 1000)))
      headers.set('webhook-signature', signer.sign(id, now, body))
    }
    const ends = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)])
    let answer: Response
    try {
      answer = await fetch(address, { method: 'POST', headers, body, redirect: 'manual', signal: ends })
    } catch (error) {
      signal.throwIfAborted()
      throw unanswered(
        where,
        ends.aborted ? `did not answer in ${timeoutMs} ms` : `could not be reached${why(error)}`,
        error,
      )
    }
    await readSome(answer)
    judge(where, answer, forMs)
  }
  Object.defineProperty(post, 'name', { value: `forward to ${address.host}` })
  return retriedAs(post, { attempts: Infinity, minMs: 1_000, maxMs: 60_000, maxAgeMs: forMs })
}

/** Another try would end the same way, so the core makes the message a dead letter at once. */
class GiveUp extends FleethookError {
  readonly fleethook = 'give-up'
}

/** Throws what follows from an answer that is not a 2xx. */
function judge(where: string, { ok, status, headers }: Response, forMs: number): void {
  if (ok) return
  const text = status === 0 || (status >= 300 && status < 400) ? 'redirects' : `answered ${status}`
  if (status < 500 && !passing.has(status))
    throw new GiveUp('forward_refused', `${where} ${text}.`, {
      hint: 'Look at the other server, then replay the dead letter.',
    })
  // After `forMs` nobody tries it again.
  throw notBefore(unanswered(where, text), Math.min(forMs, retryAfterMs(headers.get('retry-after'))))
}

const unanswered = (where: string, what: string, cause?: unknown): FleethookError =>
  new FleethookError('forward_failed', `${where} ${what}.`, { cause })

/** The code of the system, such as `ECONNREFUSED`, where the runtime tells it. */
function why(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error
  const code = cause instanceof Error && 'code' in cause ? cause.code : undefined
  return typeof code === 'string' ? `: ${code}` : ''
}

/** Seconds, or a date of HTTP. 0: it says nothing that can be read. */
function retryAfterMs(given: string | null): number {
  const ms = /^\s*\d+\s*$/.test(given ?? '') ? Number(given) * 1000 : Date.parse(given ?? '') - Date.now()
  return Number.isNaN(ms) ? 0 : Math.min(longestMs, Math.max(0, ms))
}

/** The rest of a long answer is not read, and its connection is closed. */
async function readSome({ body }: Response): Promise<void> {
  if (body === null) return
  const reader = body.getReader()
  const cancel = (): Promise<void> => reader.cancel().catch(() => {})
  const late = AbortSignal.timeout(mostAnswerMs)
  late.addEventListener('abort', cancel)
  try {
    for (let bytes = 0; bytes <= mostAnswerBytes;) {
      const { done, value } = await reader.read()
      if (done) return
      bytes += value.byteLength
    }
    await cancel()
  } catch {
    // The status has come, and that is the answer.
  } finally {
    late.removeEventListener('abort', cancel)
  }
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
