/** What goes back over HTTP: the same for a route, for `fetch` and for `accept`. */
export interface Answer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  /** Always JSON. */
  readonly body: string
}

/** The stable error strings of refusals, as they stand under `error` in an answer. */
export type RefusalError =
  | 'request_unreadable'
  | 'authorization_missing'
  | 'authorization_scheme'
  | 'secret_wrong'
  | 'secret_unavailable'
  | 'body_empty'
  | 'body_consumed'
  | 'body_interrupted'
  | 'body_not_json'
  | 'body_gzip_broken'
  | 'time_invalid'
  | 'event_missing'
  | 'event_blank'
  | 'body_too_large'
  | 'encoding_unsupported'
  | 'method_not_allowed'
  | 'path_unknown'
  | 'inbox_full'
  | 'inbox_unavailable'
  | 'draining'

/** A refusal before it is put into words: which of the {@link refusals}, and what is known about this one case. */
export interface Refusal {
  readonly error: RefusalError
  readonly hint?: string | undefined
  /** Which event of the body was at fault, 0-based; those before it were accepted. */
  readonly eventNumber?: number
}

interface Wording {
  readonly status: number
  /** The collector protocol's number; relays act on it. */
  readonly code: number
  /** The collector protocol's words. */
  readonly text: string
  readonly hint?: string
  readonly headers?: Readonly<Record<string, string>>
}

const json: Readonly<Record<string, string>> = { 'content-type': 'application/json' }
const retrySoon: Readonly<Record<string, string>> = { 'retry-after': '1' }

/**
 * Every refusal there is. `error` is ours and stable; `status`, `code` and `text` are the collector protocol's, which
 * relays understand. A refused message is lost, since the service sends once: the hints say how to end that.
 */
const refusals: Readonly<Record<RefusalError, Wording>> = {
  request_unreadable: {
    status: 400,
    code: 6,
    text: 'Invalid data format',
    hint: 'The path and the Host header of the request make no URL.',
  },
  authorization_missing: {
    status: 401,
    code: 2,
    text: 'Token is required',
    hint: 'Send the Authorization header: set `auth` of the webhook to the secret of this receiver.',
    headers: { 'www-authenticate': 'Splunk' },
  },
  authorization_scheme: {
    status: 401,
    code: 3,
    text: 'Invalid authorization',
    headers: { 'www-authenticate': 'Splunk' },
  },
  secret_wrong: {
    status: 403,
    code: 4,
    text: 'Invalid token',
    hint: 'The value of Authorization is not a secret of this receiver: set `auth` of the webhook and `secret` of the receiver to the same value.',
  },
  secret_unavailable: {
    status: 503,
    code: 9,
    text: 'Server is busy',
    hint: 'The receiver has no secret to compare with: see its log.',
    headers: retrySoon,
  },
  body_empty: {
    status: 400,
    code: 5,
    text: 'No data',
    hint: 'Send one JSON object, several one after another, or an array of them.',
  },
  body_consumed: {
    status: 400,
    code: 6,
    text: 'Invalid data format',
    hint: 'Something read the body before the receiver: mount the receiver before any body parser, or hand the parsed body to receiver.accept().',
  },
  body_interrupted: {
    status: 400,
    code: 6,
    text: 'Invalid data format',
    hint: 'The body ended before it was complete.',
  },
  body_not_json: {
    status: 400,
    code: 6,
    text: 'Invalid data format',
    hint: 'Send one JSON object, several one after another, or an array of them.',
  },
  body_gzip_broken: {
    status: 400,
    code: 6,
    text: 'Invalid data format',
    hint: 'Content-Encoding says gzip and the body is not whole gzip.',
  },
  time_invalid: {
    status: 400,
    code: 6,
    text: 'Invalid data format',
    hint: '`time` must be seconds since the epoch, as a number or as decimal text.',
  },
  event_missing: {
    status: 400,
    code: 12,
    text: 'Event field is required',
    hint: 'Every object on this path needs the key `event`.',
  },
  event_blank: {
    status: 400,
    code: 13,
    text: 'Event field cannot be blank',
    hint: '`event` must not be an empty string.',
  },
  body_too_large: { status: 413, code: 6, text: 'Invalid data format' },
  encoding_unsupported: {
    status: 415,
    code: 6,
    text: 'Invalid data format',
    hint: 'Send the body as it is or with Content-Encoding: gzip.',
  },
  method_not_allowed: { status: 405, code: 405, text: 'Method not allowed', hint: 'Messages come by POST.' },
  path_unknown: {
    status: 404,
    code: 404,
    text: 'Not found',
    hint: 'Check the path of the webhook url against where the receiver is mounted. When the host hands over whole paths, mount receiver.routes() under that base path.',
  },
  inbox_full: {
    status: 503,
    code: 9,
    text: 'Server is busy',
    hint: 'Handlers are slower than the messages: raise `concurrency` or `limits`, or make the handlers faster.',
    headers: retrySoon,
  },
  inbox_unavailable: {
    status: 503,
    code: 9,
    text: 'Server is busy',
    hint: 'The inbox could not keep the message: see the log of the receiver.',
    headers: retrySoon,
  },
  draining: {
    status: 503,
    code: 23,
    text: 'Server is shutting down',
    hint: 'This instance is stopping; another one should answer.',
    headers: { 'retry-after': '5' },
  },
}

/** Every `error` that an answer can carry. */
export const refusalErrors: readonly RefusalError[] = /* @__PURE__ */ (() => Object.keys(refusals) as RefusalError[])()

/** Exactly what relays of the collector protocol want; the service wants any 2xx. */
export const success: Answer = { status: 200, headers: json, body: '{"text":"Success","code":0}' }

/** Answers to GET on the collector's health paths. */
export const healthy: Answer = { status: 200, headers: json, body: '{"text":"HEC is healthy","code":17}' }

/** The inbox has no room: a load balancer should look elsewhere. */
export const unhealthy: Answer = {
  status: 503,
  headers: { ...json, ...retrySoon },
  body: '{"text":"HEC is unhealthy, queues are full","code":18}',
}

/** Puts a refusal into words. `allow` is for 405. */
export function refuse(refusal: Refusal, allow?: string): Answer {
  const { status, code, text, hint, headers } = refusals[refusal.error]
  return {
    status,
    headers: { ...json, ...headers, ...(allow === undefined ? {} : { allow }) },
    body: JSON.stringify({
      text,
      code,
      error: refusal.error,
      hint: refusal.hint ?? hint,
      'invalid-event-number': refusal.eventNumber,
    }),
  }
}
