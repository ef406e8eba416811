/**
 * What a {@link ServiceError} can be about: a code of the service, as it was sent, or one of the client's own:
 *
 * - `invalid_webhook_url`, `invalid_request`: found before anything was sent, with the code that the service has for it
 * - `unreachable`: no answer came
 * - `timeout`: no answer came in time
 * - `answer_unreadable`: an answer that is not of the shape that the specification gives it
 * - `refused`: an error's answer without a code in it
 */
export type ServiceErrorCode =
  | 'invalid_webhook_url'
  | 'webhook_not_found'
  | 'insufficient_scope'
  | 'invalid_request'
  | 'unauthorized'
  | 'not_found'
  | 'vehicle_not_found'
  | 'energy_site_not_found'
  | 'config_not_found'
  | 'vehicle_unavailable'
  | 'too_many_requests'
  | 'unreachable'
  | 'timeout'
  | 'answer_unreadable'
  | 'refused'
  | (string & {})

/** What is known of an error beside its code and text. */
export interface ServiceErrorDetails {
  readonly hint?: string | undefined
  readonly status?: number | undefined
  readonly requestId?: string | undefined
  readonly retryAfterMs?: number | undefined
  readonly cause?: unknown
}

/**
 * Everything that goes wrong between the client and the service.
 *
 * `code` is the service's own where it sent one, `message` says what happened, `hint` what to do. No part of it ever holds the
 * API key, the `auth` of the webhook, a header or a body.
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
 * }
 * ```
 *
 * Specification: "Errors".
 */
export class ServiceError extends Error {
  override readonly name = 'ServiceError'
  /** Stable, for programs. */
  readonly code: ServiceErrorCode
  /** The status of the answer; `undefined` when there was none. */
  readonly status: number | undefined
  /** What the service calls this request, for its support. */
  readonly requestId: string | undefined
  /** How long the service wants to be left alone, in milliseconds: its `Retry-After`. */
  readonly retryAfterMs: number | undefined
  readonly #hint: string | undefined

  constructor(code: ServiceErrorCode, message: string, details: ServiceErrorDetails = {}) {
    const { hint, status, requestId, retryAfterMs } = details
    super(hint === undefined ? message : `${message} ${hint}`, 'cause' in details ? { cause: details.cause } : {})
    this.code = code
    this.#hint = hint
    this.status = status
    this.requestId = requestId
    this.retryAfterMs = retryAfterMs
  }

  /** What to do about it, for people: `message` ends in it. */
  get hint(): string | undefined {
    return this.#hint
  }
}
