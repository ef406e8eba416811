import * as z from 'zod/mini'
import type { Format } from '../../events/event.ts'
import { checked, discard, readJson, unwrapped } from './answer.ts'
import type { Call } from './call.ts'
import type { ServiceRequest } from './request.ts'
import { ServiceError } from './service-error.ts'
import { flawOfWebhookUrl } from './webhook-url.ts'

/** The webhook of the business, as it is set (specification: "Business webhook"). */
export interface Webhook {
  /** Where each message is posted. Must be reachable from the internet. */
  readonly url: string
  readonly format: Format
  /**
   * Sent as the `Authorization` header with every message: the `secret` of the receiver. Left out, none is sent, and one
   * that was set before is gone.
   */
  readonly auth?: string | undefined
  /** Whether the TLS certificate of `url` is checked. Default `true`. */
  readonly verify?: boolean
  /** `false` pauses delivery without deleting the webhook. Default `true`. */
  readonly enabled?: boolean
}

/** The webhook as the service returns it: with everything but the value of `auth`. */
export interface StoredWebhook {
  readonly url: string
  readonly format: Format | (string & {})
  /** Whether an authorization header is set. Its value is never returned. */
  readonly auth: boolean
  readonly verify: boolean
  readonly enabled: boolean
  /** ISO 8601 UTC, with milliseconds. */
  readonly updated_at: string
  readonly [key: string]: unknown
}

/** Whoever asked may give up. */
export interface CallOptions {
  readonly signal?: AbortSignal
}

/** The one webhook of the business. */
export interface WebhookResource {
  /**
   * Sets the webhook, or replaces it. Throws `invalid_webhook_url` before anything is sent when the service could not reach
   * `url`. `allowLocal: true` leaves that judgement to the service: for a sandbox that was started with `--allow-local`.
   */
  set(webhook: Webhook, options?: CallOptions & { readonly allowLocal?: boolean }): Promise<StoredWebhook>
  /** Throws `webhook_not_found` when none is set. */
  get(options?: CallOptions): Promise<StoredWebhook>
  /** Throws `webhook_not_found` when none is set. */
  delete(options?: CallOptions): Promise<void>
}

const stored: z.ZodMiniType<StoredWebhook> = z.looseObject({
  url: z.string(),
  format: z.string(),
  // Whatever a service does here, the value goes no further.
  auth: z.pipe(
    z.unknown(),
    z.transform((auth) => Boolean(auth)),
  ),
  verify: z.boolean(),
  enabled: z.boolean(),
  updated_at: z.string(),
})

const path = '/api/business/webhook'
const formats: readonly string[] = ['service', 'vehicle_maker', 'event_collector']

/** Sets, returns and deletes the webhook. */
export function createWebhookResource(call: Call): WebhookResource {
  const readStored = (request: ServiceRequest) => async (answer: Response) =>
    checked(stored, unwrapped(await readJson(answer, request)), request)

  return {
    async set(webhook, { allowLocal = false, signal } = {}) {
      const flaw = flawOfWebhook(webhook)
      if (flaw !== undefined) throw new ServiceError('invalid_request', `The webhook cannot be set: ${flaw}`)
      const unreachable = allowLocal ? undefined : flawOfWebhookUrl(webhook.url)
      if (unreachable !== undefined) {
        throw new ServiceError(
          'invalid_webhook_url',
          `The service cannot reach the webhook’s \`url\`. ${unreachable}`,
          {
            hint: 'While developing, stream by SSE instead, or use a sandbox with --allow-local and set `allowLocal: true`.',
          },
        )
      }
      const secret = webhook.auth
      const request: ServiceRequest = { method: 'PUT', path, body: webhook, secret, idempotent: true, signal }
      return call(request, readStored(request))
    },
    get({ signal } = {}) {
      const request: ServiceRequest = { method: 'GET', path, idempotent: true, signal }
      return call(request, readStored(request))
    },
    delete: ({ signal } = {}) => call({ method: 'DELETE', path, idempotent: true, signal }, discard),
  }
}

/** What the service would not take, found without saying the value of `auth`. */
export function flawOfWebhook(webhook: { readonly [Key in keyof Webhook]?: unknown }): string | undefined {
  const { url, format, auth, verify, enabled } = webhook
  if (typeof url !== 'string') return '`url` must be a string.'
  if (typeof format !== 'string' || !formats.includes(format)) return `\`format\` must be one of ${formats.join(', ')}.`
  // An environment variable that is not set must not open the receiver to everybody.
  if ('auth' in webhook && auth === undefined) return '`auth` is undefined. Leave it out to have no header sent.'
  if (auth !== undefined && !(typeof auth === 'string' && /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/.test(auth))) {
    return '`auth` must be visible ASCII without blanks at its ends: a header carries nothing else.'
  }
  if (verify !== undefined && typeof verify !== 'boolean') return '`verify` must be true or false.'
  if (enabled !== undefined && typeof enabled !== 'boolean') return '`enabled` must be true or false.'
  return undefined
}
