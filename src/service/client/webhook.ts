import * as z from 'zod/mini'
import type { Format } from '../../events/event.ts'
import { type Call, get, send } from './call.ts'
import type { CallOptions } from './connection.ts'
import { ServiceError } from './service-error.ts'
import { problemWithWebhookUrl } from './webhook-url.ts'

/**
 * The webhook of the business, as you set it. A business has at most one.
 *
 * Specification: "Business webhook".
 */
export interface Webhook {
  /** Where the service posts each message. The internet must be able to reach it. */
  readonly url: string
  readonly format: Format
  /**
   * The value of the `Authorization` header of every message: the receiver's `secret`. Without it the service sends no such
   * header, and deletes a value that was set before.
   */
  readonly auth?: string | undefined
  /** Whether the service checks the TLS certificate of `url`. Default `true`. */
  readonly verify?: boolean
  /** `false` pauses delivery and keeps the webhook. Default `true`. */
  readonly enabled?: boolean
}

/** The webhook as the service returns it. Other members are kept as they came. */
export interface StoredWebhook {
  readonly url: string
  readonly format: Format | (string & {})
  /** Whether an authorization header is set. The service never returns its value. */
  readonly auth: boolean
  readonly verify: boolean
  readonly enabled: boolean
  /** ISO 8601 UTC, with milliseconds. */
  readonly updated_at: string
  readonly [key: string]: unknown
}

/**
 * The one webhook of the business: `client.webhook`.
 *
 * Specification: "Business configuration".
 */
export interface WebhookResource {
  /**
   * Sets or replaces the webhook. Rejects with `invalid_request` when a member is wrong, and with `invalid_webhook_url` when the
   * internet cannot reach `url`, both before anything is sent. `allowLocal: true` leaves the check of `url` to the service, for a
   * sandbox that runs with `--allow-local`.
   */
  set(webhook: Webhook, options?: CallOptions & { readonly allowLocal?: boolean }): Promise<StoredWebhook>
  /** Rejects with `webhook_not_found` when no webhook is set. */
  get(options?: CallOptions): Promise<StoredWebhook>
  /**
   * Rejects with `webhook_not_found` when no webhook is set. After a retry it resolves then, because the first attempt may have
   * deleted it.
   */
  delete(options?: CallOptions): Promise<void>
}

const stored: z.ZodMiniType<StoredWebhook> = z.looseObject({
  url: z.string(),
  format: z.string(),
  // Even if a service returns the value, the client does not pass it on.
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

export function createWebhookResource(call: Call): WebhookResource {
  return {
    async set(webhook, { allowLocal = false, signal } = {}) {
      const problem = problemWithWebhook(webhook)
      if (problem !== undefined) throw new ServiceError('invalid_request', `The webhook was not set. ${problem}`)
      const unreachable = allowLocal ? undefined : problemWithWebhookUrl(webhook.url)
      if (unreachable !== undefined) {
        throw new ServiceError(
          'invalid_webhook_url',
          `The service cannot reach the webhook’s \`url\`. ${unreachable}`,
          {
            hint: 'During development, stream by SSE instead, or use a sandbox with --allow-local and set `allowLocal: true`.',
          },
        )
      }
      const secret = webhook.auth
      return send(call, { method: 'PUT', path, body: webhook, secret, idempotent: true, signal }, stored)
    },
    get: (options) => send(call, get(path, options), stored),
    delete: ({ signal } = {}) =>
      call({ method: 'DELETE', path, idempotent: true, doneCode: 'webhook_not_found', signal }, (answer) =>
        // Nobody needs the body. Without it, the connection is free for the next request.
        answer.body?.cancel(),
      ),
  }
}

/** Why the service would refuse a webhook, as a sentence without the value of `auth`, or `undefined`. */
export function problemWithWebhook(webhook: { readonly [Key in keyof Webhook]?: unknown }): string | undefined {
  const { url, format, auth, verify, enabled } = webhook
  if (typeof url !== 'string') return '`url` must be a string.'
  if (typeof format !== 'string' || !formats.includes(format)) return `\`format\` must be one of ${formats.join(', ')}.`
  // An environment variable that is not set must not leave the receiver open to everybody.
  if ('auth' in webhook && auth === undefined) return '`auth` is undefined. To send no header, leave it out.'
  if (auth !== undefined && !(typeof auth === 'string' && /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/.test(auth))) {
    return '`auth` must be visible ASCII without white space at either end, because a header can carry nothing else.'
  }
  if (verify !== undefined && typeof verify !== 'boolean') return '`verify` must be true or false.'
  if (enabled !== undefined && typeof enabled !== 'boolean') return '`enabled` must be true or false.'
  return undefined
}
