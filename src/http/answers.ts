import { stoppingReason } from '../hosting/drainable.ts'

/** The answer to a request: the same over a route, `fetch` and `accept`. */
export interface Answer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  /** JSON. Only the probes `/healthz` and `/readyz` answer with plain text. */
  readonly body: string
}

/** The stable codes of refusals: the `error` of an answer. `docs/http.md` lists them with their statuses. */
export type RefusalError =
  /** The path and the `Host` header form no URL. Look at the sender, or at a proxy. */
  | 'request_unreadable'
  /** No `Authorization`. Set `auth` of the webhook. Does the proxy pass the header on? */
  | 'authorization_missing'
  /** Only one of header and secret begins with a scheme word: make both identical. On the collector's paths, write `Splunk <secret>`. */
  | 'authorization_scheme'
  /** Set `auth` of the webhook and `secret` of the receiver to the same value, without quotes. The hint says when two headers arrived. */
  | 'secret_wrong'
  /** Your `secret` function threw or returned nothing. See [the log](troubleshooting.md#the-log-says). */
  | 'secret_unavailable'
  /** Behind a body parser, let the parser take every content type, or mount the receiver before it. */
  | 'body_empty'
  /** Other code read the body first. Mount the receiver before any body parser, or pass the parsed body to `receiver.accept()`. */
  | 'body_consumed'
  /** The connection ended first. Look for a timeout on the way. */
  | 'body_interrupted'
  /** Send one JSON object, several one after another, or an array of them. `invalid-event-number` says which one was broken. */
  | 'body_not_json'
  /** The body says gzip and is not. If a host read it as text, pass its bytes instead. */
  | 'body_gzip_broken'
  /** Send the `time` of a collector event as a number, also as text: seconds, milliseconds, microseconds or nanoseconds since the epoch. */
  | 'time_invalid'
  /** Every object on a collector path needs the key `event`. */
  | 'event_missing'
  /** `event` must not be an empty string. */
  | 'event_blank'
  /** Raise `limits.bodyBytes`, `limits.pendingBytes` or the inbox's `maxBytes`, or send smaller batches. */
  | 'body_too_large'
  /** Send the body as it is, or with `Content-Encoding: gzip`. */
  | 'encoding_unsupported'
  /** Send messages with POST. The header `Allow` lists the methods. */
  | 'method_not_allowed'
  /** Compare the path of the webhook URL with [where you mounted](mounting.md#when-it-does-not-work) the receiver. */
  | 'path_unknown'
  /** The hint says why. Make handlers faster, raise `concurrency` or `limits`, or free space. */
  | 'inbox_full'
  /** The inbox could not store the message. See [Errors by code](troubleshooting.md#errors-by-code). */
  | 'inbox_unavailable'
  /**
   * With [`ack: 'handled'`](reliability.md#when-the-2xx-is-sent) in memory: a handler failed in its last attempt, so the message is lost. A
   * [durable inbox](inbox.md) would keep a dead letter.
   */
  | 'not_handled'
  /** With `ack: 'handled'` on Workers: make handlers faster than 25 seconds, or set `retry: { attempts: 2 }`. */
  | 'not_handled_in_time'
  /** It is stopping. Raise `delayBeforeCloseMs`, so that the load balancer uses another one. */
  | 'draining'

/** Why a request is refused. */
export interface Refusal {
  readonly error: RefusalError
  /** What to do in this case. Default: the hint of the `error`. */
  readonly hint?: string | undefined
  /** The 0-based number of the broken message. The messages before it were accepted. */
  readonly eventNumber?: number
}

interface Wording {
  readonly status: number
  /** The collector protocol's number. Relays act on it. */
  readonly code: keyof typeof texts
  readonly hint?: string
  readonly headers?: Readonly<Record<string, string>>
}

/** The collector protocol's words for its numbers, and our own for 404 and 405. */
const texts = {
  2: 'Token is required',
  3: 'Invalid authorization',
  4: 'Invalid token',
  5: 'No data',
  6: 'Invalid data format',
  8: 'Internal server error',
  9: 'Server is busy',
  12: 'Event field is required',
  13: 'Event field cannot be blank',
  23: 'Server is shutting down',
  404: 'Not found',
  405: 'Method not allowed',
} as const

const json: Readonly<Record<string, string>> = { 'content-type': 'application/json' }
const retrySoon: Readonly<Record<string, string>> = { 'retry-after': '1' }
const askForToken: Readonly<Record<string, string>> = { 'www-authenticate': 'Splunk' }
const sendJson = 'Send one JSON object, several one after another, or an array of them.'

/** Every refusal, with the collector protocol's `status` and `code`. A hint says how to accept the next message. */
const refusals: Readonly<Record<RefusalError, Wording>> = {
  request_unreadable: {
    status: 400,
    code: 6,
    hint: 'The path and the Host header of the request do not form a URL.',
  },
  authorization_missing: {
    status: 401,
    code: 2,
    hint: 'The request has no Authorization header. Set `auth` of the webhook to the secret of this receiver.',
    headers: askForToken,
  },
  authorization_scheme: { status: 401, code: 3, headers: askForToken },
  secret_wrong: {
    status: 403,
    code: 4,
    hint: 'The Authorization header does not have a secret of this receiver. Set `auth` of the webhook and `secret` of the receiver to the same value.',
  },
  secret_unavailable: {
    status: 503,
    code: 9,
    hint: 'The receiver has no secret to compare with. Its log has the reason.',
    headers: retrySoon,
  },
  body_empty: { status: 400, code: 5, hint: sendJson },
  body_consumed: {
    status: 400,
    code: 6,
    hint: 'Other code read the body before the receiver. Mount the receiver before any body parser, or pass the parsed body to receiver.accept().',
  },
  body_interrupted: { status: 400, code: 6, hint: 'The body ended before it was complete.' },
  body_not_json: { status: 400, code: 6, hint: sendJson },
  body_gzip_broken: { status: 400, code: 6, hint: 'Content-Encoding is gzip, but the body is not complete gzip.' },
  time_invalid: {
    status: 400,
    code: 6,
    hint: '`time` must be a number, also as text: seconds, milliseconds, microseconds or nanoseconds since the epoch.',
  },
  event_missing: { status: 400, code: 12, hint: 'Every object on this path needs the key `event`.' },
  event_blank: { status: 400, code: 13, hint: '`event` must not be an empty string.' },
  body_too_large: { status: 413, code: 6 },
  encoding_unsupported: {
    status: 415,
    code: 6,
    hint: 'Send the body without an encoding, or with Content-Encoding: gzip.',
  },
  method_not_allowed: { status: 405, code: 405, hint: 'Send messages with POST.' },
  path_unknown: {
    status: 404,
    code: 404,
    hint: 'Compare the path in the url of the webhook with the path at which the receiver is mounted. When the host passes whole paths, set the option `basePath`.',
  },
  inbox_full: {
    status: 503,
    code: 9,
    hint: 'Messages arrive faster than the handlers finish. Raise `concurrency` or `limits`, or make the handlers faster.',
    headers: retrySoon,
  },
  inbox_unavailable: {
    status: 503,
    code: 9,
    hint: 'The inbox could not store the message. The log of the receiver has the reason.',
    headers: retrySoon,
  },
  // Without Retry-After: its handlers have failed as often as `retry` allows.
  not_handled: {
    status: 500,
    code: 8,
    hint: 'A handler failed in its last attempt, and the inbox in memory cannot keep the message for a repair. The log of the receiver has the reason. A durable inbox would keep it as a dead letter.',
  },
  not_handled_in_time: {
    status: 503,
    code: 9,
    hint: 'The handlers were not done when the runtime was about to end the request. The log of the receiver says whether they failed. Make them faster, or use an inbox that outlives the request.',
    headers: retrySoon,
  },
  draining: {
    status: 503,
    code: 23,
    hint: 'This process is stopping. Send to another one.',
    headers: { 'retry-after': '5' },
  },
}

export const refusalErrors: readonly RefusalError[] = /* @__PURE__ */ (() => Object.keys(refusals) as RefusalError[])()

/** Relays of the collector protocol need exactly this answer. The service accepts any 2xx. */
export const success: Answer = { status: 200, headers: json, body: '{"text":"Success","code":0}' }

export const healthy: Answer = { status: 200, headers: json, body: '{"text":"HEC is healthy","code":17}' }

/** The answer on the health paths when the inbox is full, for load balancers. */
export const unhealthy: Answer = {
  status: 503,
  headers: { ...json, ...retrySoon },
  body: '{"text":"HEC is unhealthy, queues are full","code":18}',
}

export const alive: Answer = plain(200, 'alive')

/** Why a receiver takes no messages, in words that are fit for strangers. */
export const notReady: Readonly<Record<'draining' | 'inbox_full' | 'inbox_unavailable', string>> = {
  draining: stoppingReason,
  inbox_full: 'the inbox is full',
  inbox_unavailable: 'the inbox cannot store messages',
}

/** Whether a receiver takes messages now. */
export interface Readiness {
  readonly ready: boolean
  /** Why it is not ready, in plain words. */
  readonly reason?: string
}

/** `why`: the code with which the receiver would refuse a message now. */
export function readinessOf(why: keyof typeof notReady | undefined): Readiness {
  return why === undefined ? { ready: true } : { ready: false, reason: notReady[why] }
}

export function readyOrNot(reason: string | undefined): Answer {
  return reason === undefined ? plain(200, 'ready') : plain(503, `not ready: ${reason}`)
}

/** A line of plain text, for people and for the probes of a platform. */
function plain(status: number, line: string): Answer {
  return { status, headers: { 'content-type': 'text/plain' }, body: `${line}\n` }
}

export const statusOf = ({ error }: Refusal): number => refusals[error].status

export const hintOf = ({ error, hint }: Refusal): string | undefined => hint ?? refusals[error].hint

/** Makes the answer of a refusal. `allow` is the Allow header of a 405. */
export function refuse(refusal: Refusal, allow?: string): Answer {
  const { status, code, headers: own } = refusals[refusal.error]
  const headers = { ...json, ...own }
  return {
    status,
    headers: allow === undefined ? headers : { ...headers, allow },
    body: JSON.stringify({
      text: texts[code],
      code,
      error: refusal.error,
      hint: hintOf(refusal),
      'invalid-event-number': refusal.eventNumber,
    }),
  }
}

/** The answer as a `Response`, without its body for a HEAD request. */
export function responseOf({ status, headers, body }: Answer, isHead: boolean = false): Response {
  // Deno has a faster way for an answer without a status.
  return new Response(isHead ? null : body, status === 200 ? { headers } : { status, headers })
}
