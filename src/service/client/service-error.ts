import { readRetryAfter } from '../../base/retry-after.ts'
import { type ReadLimits, readWithin } from '../../base/read-within.ts'
import { isJsonObject } from '../../wire/record.ts'
import { type Connection, nameOf, type ServiceRequest } from './connection.ts'

/**
 * The codes of a {@link ServiceError}. Most are the service's own, as it sent them. The client itself makes these:
 *
 * - `invalid_webhook_url` and `invalid_request`, before it sends anything; the service uses the same codes for the same
 *   mistakes
 * - `unreachable`: no answer came
 * - `timeout`: no answer came in time
 * - `answer_unreadable`: the answer has a shape that the specification does not give, or more than 32 MiB
 * - `refused`: the service answered with an error that has no code
 *
 * The codes are stable. A service can send others too.
 */
export type ServiceErrorCode =
  /** Give a URL that the internet can reach. For development, use the sandbox with `--allow-local`. */
  | 'invalid_webhook_url'
  /** Set a webhook with `webhook.set`. */
  | 'webhook_not_found'
  /** Your business may not do this. The hint says why, and what to do. */
  | 'insufficient_scope'
  /** The service has suspended or removed your business, and nothing works until it is active again. Ask the service. */
  | 'business_not_active'
  /** The key of a business may not ask this, such as `/api/metadata`. Use the calls of the client. */
  | 'business_route_not_allowed'
  /** Your key lacks a permission, `data:read` or `streaming:write`. Create a key that has it. */
  | 'business_permission_missing'
  /** The service cannot check keys right now. Wait for `retryAfterMs`; the client does so by itself. */
  | 'business_auth_unavailable'
  /** No customer shares it. `products()` lists what is shared. A stream ends with this error. */
  | 'business_product_not_consented'
  /** The customer must sign in again at the maker: ask them to connect once more. */
  | 'customer_reconnect_required'
  /** The customer granted less than your business asks for: ask them to connect again and to allow everything. */
  | 'customer_scope_missing'
  /** The text says which setting, VIN or command is wrong. */
  | 'invalid_request'
  /** Check the name of the command and its parameters. The maker documents both. */
  | 'invalid_command'
  /** Pass the business's bearer token as `apiKey`, without the word "Bearer". */
  | 'invalid_token'
  /** Pass the business's bearer token as `apiKey`, without the word "Bearer". */
  | 'unauthorized'
  /** `status` and `requestId` help the service's support. */
  | 'not_found'
  /** `products()` lists what is shared. */
  | 'vehicle_not_found'
  /** `products()` lists what is shared. */
  | 'energy_site_not_found'
  /** The vehicle does not stream. Call `config(vin).replace` or `patch` first. */
  | 'config_not_found'
  /** It is asleep or offline, or a command did not reach it. Call `wakeUp(vin)` or wait. */
  | 'vehicle_unavailable'
  /** Wait for `retryAfterMs`. */
  | 'too_many_requests'
  /** Check `baseUrl` and the network. */
  | 'unreachable'
  /** Check `baseUrl` and the network. */
  | 'timeout'
  /** The answer has another shape than the specification shows. Check `baseUrl`, or update fleethook. */
  | 'answer_unreadable'
  /** `status` and `requestId` help the service's support. */
  | 'refused'
  | (string & {})

/** What a {@link ServiceError} has besides its code and message. A member that is not known is `undefined`. */
export interface ServiceErrorDetails {
  readonly hint?: string | undefined
  readonly status?: number | undefined
  readonly requestId?: string | undefined
  readonly retryAfterMs?: number | undefined
  readonly cause?: unknown
}

/**
 * Every failure between the client and the service.
 *
 * `code` is for programs. `message` says what happened, and `hint` says what to do about it. No part of the error ever holds the
 * API key, the webhook's `auth`, a header or a body.
 *
 * @example
 * ```ts
 * import { createClient, ServiceError } from 'fleethook/client'
 *
 * const client = createClient({ baseUrl: 'https://api.example.com', apiKey: 'the-key-of-the-business' })
 * try {
 *   await client.webhook.get()
 * } catch (error) {
 *   if (!(error instanceof ServiceError) || error.code !== 'webhook_not_found') throw error
 *   console.log(error.message, error.hint)
 * }
 * ```
 *
 * Specification: "Errors".
 */
export class ServiceError extends Error {
  override readonly name = 'ServiceError'
  /** For programs. Stable. Each kind of error has one code, however the service spelled it. */
  readonly code: ServiceErrorCode
  /** What to do, for people. It is not part of `message`: the code that prints the error prints both. */
  readonly hint: string | undefined
  /** The status of the answer. `undefined` when there was no answer. */
  readonly status: number | undefined
  /** The service's id of this request, for its support. */
  readonly requestId: string | undefined
  /** How long the service asks you to wait before the next request, in milliseconds: its `Retry-After`. */
  readonly retryAfterMs: number | undefined

  constructor(code: ServiceErrorCode, message: string, details: ServiceErrorDetails = {}) {
    super(message, 'cause' in details ? { cause: details.cause } : {})
    this.code = code
    this.hint = details.hint
    this.status = details.status
    this.requestId = details.requestId
    this.retryAfterMs = details.retryAfterMs
  }
}

/** So much of an error is read. */
const errorLimits: ReadLimits = { mostBytes: 65_536, mostMs: 10_000 }

/** `undefined`: it broke off, is no JSON, or is too large to be one of the service. */
async function parsedError(answer: Response): Promise<unknown> {
  try {
    return JSON.parse(new TextDecoder().decode(await readWithin(answer, errorLimits)))
  } catch {
    return undefined
  }
}

/** The most characters of the service's own text that an error repeats. */
const textLength = 300

export async function refusalOf(
  answer: Response,
  request: ServiceRequest,
  { apiKey, clock }: Connection,
): Promise<ServiceError> {
  // A proxy's HTML page says no more than the status does.
  const read = readError(await parsedError(answer))
  const withoutSecrets = (text: string): string => without(text, [apiKey, request.secret])
  // A code that repeats a secret is dropped as a whole, because the rest of it would help nobody.
  const original = read.code !== undefined && withoutSecrets(read.code) === read.code ? read.code : undefined
  const code = original !== undefined && makerTexts.test(original) ? 'vehicle_unavailable' : original
  const text = read.text === undefined ? '' : `: ${withoutSecrets(read.text).slice(0, textLength)}`
  // A browser hides a redirection and reports the status 0.
  const status = answer.status === 0 ? 302 : answer.status
  const { headers } = answer
  const requestId = headers.get('x-request-id') ?? headers.get('x-txid') ?? undefined
  return new ServiceError(
    code ?? 'refused',
    `${nameOf(request)} was answered with ${status}${code === undefined ? '' : ` ${code}`}${text}${/[.!?]$/.test(text) ? '' : '.'}`,
    {
      status,
      hint: hintFor(status, code ?? '', request),
      requestId: requestId === undefined ? undefined : withoutSecrets(requestId),
      retryAfterMs: readRetryAfter(headers.get('retry-after'), clock.now()),
    },
  )
}

function readError(body: unknown): { readonly code: string | undefined; readonly text: string | undefined } {
  if (!isJsonObject(body)) return { code: undefined, text: undefined }
  const { error } = body
  const inner = isJsonObject(error) ? error : body
  const code = codeIn(error) ?? codeIn(inner['code'])
  const text = inner['error_description'] ?? inner['message'] ?? (code === undefined ? error : undefined)
  return { code, text: typeof text === 'string' && text !== '' ? text : undefined }
}

function codeIn(value: unknown): string | undefined {
  return typeof value === 'string' && (/^\w{1,64}$/.test(value) || makerTexts.test(value)) ? value : undefined
}

/** The maker's text for a vehicle that does not answer. The service passes it on in the place of a code. */
const makerTexts = /^vehicle (unavailable|is (offline|asleep))\b.{0,100}$/i

/** The service may quote a secret that was sent to it, plain or as JSON writes it. */
function without(text: string, secrets: readonly (string | undefined)[]): string {
  const spellings = secrets.flatMap((secret) => (secret ? [JSON.stringify(secret).slice(1, -1), secret] : []))
  return spellings.reduce((left, secret) => left.replaceAll(secret, '…'), text)
}

/** What to do about an error of the service. `undefined` when its own text has to suffice. */
function hintFor(status: number, code: string, request: ServiceRequest): string | undefined {
  if (code === 'insufficient_scope') return scopeHint(request)
  const hint = hints[code] ?? hints[codeOfStatus[status] ?? '']
  if (hint !== undefined) return hint
  if (status >= 500) return 'The service failed: try again later.'
  if (status >= 300 && status < 400) {
    return 'Is `baseUrl` the address of the service, with https:? The client never follows a redirection, to protect your key.'
  }
  return undefined
}

/** What a status means when the answer has no code that we know. */
const codeOfStatus: Readonly<Record<number, string>> = { 401: 'invalid_token', 429: 'too_many_requests' }

const keyHint =
  'Give the business’s bearer token as `apiKey`: it begins with sk_. Is the environment variable set, and is the key for this service?'

const hints: Readonly<Record<string, string>> = {
  invalid_token: keyHint,
  unauthorized: keyHint,
  invalid_command:
    'Does the command exist under this name, and does its body have every parameter? The maker documents both.',
  business_not_active:
    'The service has suspended or removed your business. Ask the service; until then it answers nothing and posts nothing.',
  business_route_not_allowed:
    'The key of a business may not ask this. `products()` lists what is shared, and each product has calls of its own.',
  business_permission_missing:
    'Your key lacks a permission: `data:read` to read and stream, `streaming:write` to change configs. Create a key that has it.',
  business_auth_unavailable: 'The service cannot check keys right now: wait for `retryAfterMs`, and try again.',
  customer_reconnect_required:
    'The connection of this customer is gone. Ask the customer to sign in and connect again; `products()` says who it is.',
  customer_scope_missing:
    'This customer granted less than your business asks for. Ask the customer to connect again and to allow everything.',
  business_product_not_consented:
    'No customer shares this product with your business, or no longer does. `products()` lists what is shared.',
  too_many_requests: 'Wait for `retryAfterMs`, and send fewer requests.',
  invalid_webhook_url:
    'Give a URL that the internet can reach. During development, stream by SSE, or use the sandbox with --allow-local.',
  webhook_not_found: 'Set one with `webhook.set`.',
  config_not_found: 'The vehicle does not stream: call `config(vin).replace` or `patch` first.',
  vehicle_not_found: 'Is it shared with your business? `products()` lists what is shared.',
  energy_site_not_found: 'Is it shared with your business? `products()` lists what is shared.',
  vehicle_unavailable: 'The vehicle is asleep or offline: call `wakeUp(vin)`, or wait until its state is online.',
}

/** The request itself shows which rule refused it (specification: "Requests refused with 403 `insufficient_scope`"). */
function scopeHint({ method, path }: ServiceRequest): string {
  if (path.endsWith('/fleet_telemetry_config') && method !== 'GET') {
    return 'To change what a vehicle streams, for everyone who streams from it, call `config(vin).patch`, `replace` or `stop`.'
  }
  if (/\/vehicles\/[^/]+\/(drivers|invitations)\b/.test(path)) {
    return 'Drivers and invitations belong to the customer’s own account: only the customer can change them.'
  }
  if (!/^\/api\/1\/(vehicles|energy_sites)\/[^/]+/.test(path)) {
    return 'Name a shared product by its VIN or energy site id. `products()` lists them.'
  }
  if (path.startsWith('/api/1/energy_sites/')) {
    return 'Your business has no command access to energy sites. You choose it at setup, and every customer who connects grants it.'
  }
  return (
    'Your business has no command access to vehicles or to charging only, or this customer granted charging only. ' +
    'You choose the access at setup, and every customer who connects grants it.'
  )
}
