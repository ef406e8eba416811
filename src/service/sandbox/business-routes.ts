import { Hono } from 'hono'
import { problemWithWebhook } from '../client/webhook.ts'
import { problemWithWebhookUrl, isLoopback } from '../client/webhook-url.ts'
import type { Format } from '../../events/event.ts'
import type { JsonObject } from '../../wire/record.ts'
import { readBody } from './body.ts'
import { readFields } from './config-fields.ts'
import { siteIds } from './energy-routes.ts'
import { refuse } from './refusal.ts'
import type { KeptWebhook } from './store.ts'
import type { World } from './world.ts'

/** `/api/business`: the webhook, the default config, the consented products. */
export function businessRoutes(world: World): Hono {
  const notFound = (): Response => refuse('webhook_not_found', 'No webhook is set.')
  const since = new Date(world.settings.startAt).toISOString()

  return new Hono()
    .put('/webhook', async ({ req }) => {
      const body = await readBody(req.raw)
      if (body === undefined) return refuse('invalid_request', 'The body is no JSON object.')
      const given = withoutNulls(body)
      const flaw = problemWithWebhook(given)
      if (flaw !== undefined) return refuse('invalid_request', flaw)
      const { url, format, auth, verify, enabled } = given
      const unreachable = flawOfUrl(String(url), world.settings.allowLocal)
      if (unreachable !== undefined) return refuse('invalid_webhook_url', unreachable)
      const webhook: KeptWebhook = {
        url: String(url),
        format: format as Format, // oxlint-disable-line no-unsafe-type-assertion -- just checked
        auth: auth === undefined ? undefined : String(auth),
        verify: verify !== false,
        enabled: enabled !== false,
        updatedAt: new Date(world.now()).toISOString(),
      }
      world.setWebhook(webhook)
      return Response.json({ response: shown(webhook) })
    })
    .get('/webhook', () => {
      const webhook = world.webhook()
      return webhook === undefined ? notFound() : Response.json({ response: shown(webhook) })
    })
    .delete('/webhook', () => {
      if (world.webhook() === undefined) return notFound()
      world.setWebhook(undefined)
      return Response.json({ response: true })
    })
    .get('/config/default', () => {
      const fields = world.defaultFields()
      return Response.json(fields === null ? null : { fields })
    })
    .put('/config/default', async ({ req }) => {
      const read = await readFields(req.raw)
      if (read instanceof Response) return read
      world.setDefaultFields(read.fields)
      return Response.json(read)
    })
    .get('/products', () => {
      const vehicles = world.vehicles().map(({ vin, kept: { customer, grantedAt } }) => ({
        product_type: 'vehicle',
        product_id: vin,
        customer,
        granted_at: grantedAt,
      }))
      const sites = siteIds(world.settings.energySites).map((id) => ({
        product_type: 'energy',
        product_id: id,
        customer: { id: 'customer-1', ref: null },
        granted_at: since,
      }))
      return Response.json({ response: [...vehicles, ...sites] })
    })
}

/** The webhook as it is returned: of `auth` only whether it is set. */
function shown({ url, format, auth, verify, enabled, updatedAt }: KeptWebhook): JsonObject {
  return { url, format, auth: auth !== undefined, verify, enabled, updated_at: updatedAt }
}

function flawOfUrl(url: string, allowLocal: boolean): string | undefined {
  const flaw = problemWithWebhookUrl(url)
  if (flaw === undefined || !allowLocal || !URL.canParse(url)) return flaw
  const { protocol, hostname } = new URL(url)
  return /^https?:$/.test(protocol) && isLoopback(hostname) ? undefined : flaw
}

/** `null` is the same as left out. */
function withoutNulls(body: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(body).filter(([, value]) => value !== null))
}
