import { Hono } from 'hono'
import type { Format } from '../../events/event.ts'
import type { JsonObject } from '../../wire/record.ts'
import { problemWithWebhookUrl, isLoopback } from '../client/webhook-url.ts'
import { problemWithWebhook } from '../client/webhook.ts'
import { isAmerican } from '../fleet/vehicle.ts'
import { readBody, refuse, refuseBody } from './answers.ts'
import { type KeptFields, type KeptWebhook, readSettings, type ReadSettings } from './options.ts'
import { accessTo } from './vehicle-routes.ts'
import type { SharedVehicle, World } from './world.ts'

/** `/api/business`: the webhook, the default config, the consented products. */
export function businessRoutes(world: World): Hono {
  const startedAt = new Date(world.settings.startAt).toISOString()
  return new Hono()
    .route('/webhook', webhookRoutes(world))
    .get('/config/default', () => {
      const fields = world.defaultFields
      return Response.json(fields === null ? null : { fields })
    })
    .put('/config/default', async ({ req }) => {
      const sent = await readFields(req.raw)
      if (sent instanceof Response) return sent
      world.defaultFields = sent.known
      return Response.json({ fields: sent.known, ignoredFields: sent.ignored })
    })
    .get('/products', () => {
      const vehicles = world.vehicles().map(({ vin, car, customer, grantedAt }) => ({
        product_type: 'vehicle',
        product_id: vin,
        region: isAmerican(car.vehicle) ? 'NA' : 'EU',
        customer,
        granted_at: grantedAt,
      }))
      const sites = world.sites.map(({ id }) => ({
        product_type: 'energy',
        product_id: id,
        region: 'EU',
        customer: { id: 'customer-1', ref: 'our-1' },
        granted_at: startedAt,
      }))
      return Response.json({ response: [...vehicles, ...sites] })
    })
}

function webhookRoutes(world: World): Hono {
  const notSet = (): Response => refuse('webhook_not_found', 'No webhook is set. PUT one first.')

  return new Hono()
    .put('/', async ({ req }) => {
      const body = await readBody(req.raw)
      if (body === undefined) return refuseBody()
      // `null` is the same as left out.
      const given = Object.fromEntries(Object.entries(body).filter(([, value]) => value !== null))
      const problem = problemWithWebhook(given)
      if (problem !== undefined) return refuse('invalid_request', problem)
      const { url, format, auth, verify, enabled } = given
      const unreachable = problemWithUrl(String(url), world.settings.allowLocal)
      if (unreachable !== undefined) return refuse('invalid_webhook_url', unreachable)
      const webhook: KeptWebhook = {
        url: String(url),
        format: format as Format, // oxlint-disable-line no-unsafe-type-assertion -- just checked
        auth: auth === undefined ? undefined : String(auth),
        verify: verify !== false,
        enabled: enabled !== false,
        updatedAt: new Date(world.now()).toISOString(),
      }
      world.webhook = webhook
      return Response.json({ response: webhookBody(webhook) })
    })
    .get('/', () => {
      const { webhook } = world
      return webhook === undefined ? notSet() : Response.json({ response: webhookBody(webhook) })
    })
    .delete('/', () => {
      if (world.webhook === undefined) return notSet()
      world.webhook = undefined
      return Response.json({ response: true })
    })
}

/** `/api/config/{vin}`: what one vehicle streams. */
export function configRoutes(world: World): Hono {
  async function set(
    vin: string,
    request: Request,
    merge: (vehicle: SharedVehicle, sent: KeptFields) => KeptFields,
  ): Promise<Response> {
    const vehicle = accessTo(world, vin)
    if (vehicle instanceof Response) return vehicle
    const sent = await readFields(request)
    if (sent instanceof Response) return sent
    world.run()
    if (vehicle.fault === 'key_not_installed') {
      const skipped = { updated_vehicles: 0, skipped_vehicles: { missing_key: [vin] } }
      return Response.json({ ...skipped, fields: vehicle.fields ?? {}, ignoredFields: sent.ignored })
    }
    const changed = world.setFields(vehicle, merge(vehicle, sent.known))
    return Response.json({ ...countOf(changed), fields: vehicle.fields, ignoredFields: sent.ignored })
  }

  return new Hono()
    .get('/:vin', ({ req }) => {
      const vehicle = accessTo(world, req.param('vin'))
      if (vehicle instanceof Response) return vehicle
      const { fields } = vehicle
      return fields === undefined
        ? refuse('config_not_found', 'The vehicle does not stream. PATCH its config first.')
        : Response.json({ fields })
    })
    .patch('/:vin', ({ req }) => set(req.param('vin'), req.raw, ({ fields }, sent) => ({ ...fields, ...sent })))
    .post('/:vin', ({ req }) => set(req.param('vin'), req.raw, (_, sent) => sent))
    .delete('/:vin', ({ req }) => {
      const vehicle = accessTo(world, req.param('vin'))
      if (vehicle instanceof Response) return vehicle
      world.run()
      return Response.json({ response: true, ...countOf(world.setFields(vehicle, undefined)) })
    })
}

/** The number of vehicles whose config changed: 0 or 1. */
function countOf(changed: boolean): JsonObject {
  return { updated_vehicles: changed ? 1 : 0, skipped_vehicles: {} }
}

/** Reads the config in a request. Refuses a config that is not valid. */
async function readFields(request: Request): Promise<ReadSettings | Response> {
  const body = await readBody(request)
  if (body === undefined) return refuseBody()
  const settings = readSettings(body['fields'])
  return settings.problem === undefined ? settings : refuse('invalid_request', settings.problem)
}

/** The webhook as the service returns it: `auth` only says whether it is set. */
function webhookBody({ url, format, auth, verify, enabled, updatedAt }: KeptWebhook): JsonObject {
  return { url, format, auth: auth !== undefined, verify, enabled, updated_at: updatedAt }
}

function problemWithUrl(url: string, allowLocal: boolean): string | undefined {
  const problem = problemWithWebhookUrl(url)
  if (problem === undefined || !allowLocal || !URL.canParse(url)) return problem
  const { protocol, hostname } = new URL(url)
  return /^https?:$/.test(protocol) && isLoopback(hostname) ? undefined : problem
}
