import { Hono } from 'hono'
import { flawOfFields, type FieldSetting } from '../../src/client/field-setting.ts'
import { flawOfWebhookUrl } from '../../src/client/webhook-url.ts'
import { builtInFields } from '../../src/events/catalogue.generated.ts'
import { isJsonObject, type JsonObject } from '../../src/wire/record.ts'

export const apiKey = 'the-key-of-the-business'
const vin = '0FLEETV14T0000004'
const siteId = '12345'

type Fields = Readonly<Record<string, FieldSetting>>
type Failure = readonly [status: 400 | 401 | 403 | 404, code: string]

/** The least that answers as our readings say: what the checks are tried on without a sandbox. */
export function stubService(): Hono {
  let webhook: object | undefined
  let standard: Fields | null = null
  let config: Fields | undefined

  const fail = ([status, code]: Failure): Response =>
    Response.json({ response: null, error: code, error_description: code }, { status })
  const invalid: Failure = [400, 'invalid_request']

  const bodyOf = async (request: { json(): Promise<unknown> }): Promise<JsonObject | undefined> => {
    const body = await request.json().catch(() => undefined)
    return isJsonObject(body) ? body : undefined
  }
  const known = (fields: Fields): Fields =>
    Object.fromEntries(Object.entries(fields).filter(([name]) => Object.hasOwn(builtInFields, name)))
  const accepted = async (
    request: { json(): Promise<unknown> },
    keep: (fields: Fields) => Fields,
  ): Promise<Response> => {
    const fields = (await bodyOf(request))?.['fields']
    if (flawOfFields(fields) !== undefined) return fail(invalid)
    const given = fields as Fields
    return Response.json({
      fields: keep(known(given)),
      ignoredFields: Object.keys(given).filter((name) => !Object.hasOwn(builtInFields, name)),
    })
  }

  return new Hono()
    .use(async (c, next) =>
      c.req.header('authorization') === `Bearer ${apiKey}` ? next() : fail([401, 'unauthorized']),
    )
    .put('/api/business/webhook', async (c) => {
      const body = await bodyOf(c.req)
      if (body === undefined) return fail(invalid)
      const { url, format, auth, verify = true, enabled = true } = body
      const formats: readonly unknown[] = ['service', 'vehicle_maker', 'event_collector']
      if (typeof url !== 'string' || !formats.includes(format)) return fail(invalid)
      if (typeof verify !== 'boolean' || typeof enabled !== 'boolean') return fail(invalid)
      if (flawOfWebhookUrl(url) !== undefined) return fail([400, 'invalid_webhook_url'])
      webhook = { url, format, auth: auth !== undefined, verify, enabled, updated_at: new Date().toISOString() }
      return c.json({ response: webhook })
    })
    .get('/api/business/webhook', (c) => (webhook ? c.json({ response: webhook }) : fail([404, 'webhook_not_found'])))
    .delete('/api/business/webhook', (c) => {
      if (webhook === undefined) return fail([404, 'webhook_not_found'])
      webhook = undefined
      return c.json({ response: true })
    })
    .get('/api/business/config/default', (c) => c.json(standard === null ? null : { fields: standard }))
    .put('/api/business/config/default', (c) => accepted(c.req, (fields) => (standard = fields)))
    .get('/api/business/products', (c) =>
      c.json({
        response: [
          { product_type: 'vehicle', product_id: vin, customer: { id: 'c1', ref: null } },
          { product_type: 'energy', product_id: siteId, customer: { id: 'c1', ref: null } },
        ],
      }),
    )
    .use('/api/config/:vin', async (c, next) =>
      c.req.param('vin') === vin ? next() : fail([404, 'vehicle_not_found']),
    )
    .get('/api/config/:vin', (c) => (config ? c.json({ fields: config }) : fail([404, 'config_not_found'])))
    .patch('/api/config/:vin', (c) => accepted(c.req, (fields) => (config = { ...config, ...fields })))
    .post('/api/config/:vin', (c) => accepted(c.req, (fields) => (config = fields)))
    .delete('/api/config/:vin', (c) => {
      config = undefined
      return c.json({ response: true })
    })
    .get('/sse/:vin/:field?', (c) => {
      if (c.req.param('vin') !== vin) return fail([404, 'vehicle_not_found'])
      if (c.req.query('topics')?.includes('weather')) return fail(invalid)
      return c.body(':\n\n', 200, { 'content-type': 'text/event-stream' })
    })
    .get('/api/image/:vin', (c) => c.body(new Uint8Array(9), 200, { 'content-type': 'image/png' }))
    .all('/api/1/*', (c) => {
      const [, , , kind, id, ...rest] = c.req.path.split('/')
      const below = rest.join('/')
      const isRead = c.req.method === 'GET'
      const ofAccount = /^(drivers|invitations|fleet_telemetry_config)\b/.test(below) && !isRead
      if (id === undefined || id === 'fleet_telemetry_config' || ofAccount) return fail([403, 'insufficient_scope'])
      if (id !== (kind === 'vehicles' ? vin : siteId)) return fail([404, 'vehicle_not_found'])
      return c.json({ response: isRead ? { vin } : { result: true, reason: '' } })
    })
    .notFound(() => fail([404, 'not_found']))
}
