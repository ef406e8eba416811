import { Hono } from 'hono'
import type { Timer } from '../../base/clock.ts'
import { comparable } from '../../http/compare.ts'
import { refuse, refuseMethod, refusePath, refuseVehicle } from './answers.ts'
import { businessRoutes, configRoutes } from './business-routes.ts'
import { controlRoutes } from './control-routes.ts'
import { createEnergySites } from './energy-routes.ts'
import { readOptions, type SandboxOptions } from './options.ts'
import { sseRoutes } from './sse.ts'
import { answerVehicle, vehicleImage } from './vehicle-routes.ts'
import { createWorld, type World } from './world.ts'

/** A running stand-in for the service. See {@link createSandbox}. */
export interface Sandbox {
  /** The service's whole interface, and the controls below `/sandbox`. */
  readonly app: Hono
  /** `app.fetch`, bound. */
  fetch(request: Request): Response | Promise<Response>
  /** Lets this number of milliseconds pass for the vehicles. Resolves when their messages of that time are posted. */
  advance(ms: number): Promise<void>
  /** Stops the vehicles and ends all streams. Resolves when no message is on its way to the webhook. */
  close(): Promise<void>
}

/** The vehicles catch up with the clock at this interval. It is also how a vehicle bundles its values. */
const tickMs = 500

/**
 * Creates a stand-in for the service, to develop and test without a car: all endpoints, states, refusals and streams of the
 * specification, and simulated vehicles that post to the webhook that is set. It is a Hono app and needs no server.
 *
 * Throws a `FleethookError` with the code `option_invalid` when an option is missing or wrong.
 *
 * @example
 * ```ts
 * import { createClient } from 'fleethook/client'
 * import { createSandbox } from 'fleethook/sandbox'
 *
 * const sandbox = createSandbox({ apiKey: 'a-key-of-the-test', speed: 0 })
 * const fetch = async (url: string, init: RequestInit) => sandbox.fetch(new Request(url, init))
 * const client = createClient({ baseUrl: 'https://sandbox.example.com', apiKey: 'a-key-of-the-test', fetch })
 * const [vehicle] = await client.products()
 * await client.config(vehicle?.product_id ?? '').patch({ fields: { BatteryLevel: { interval_seconds: 60 } } })
 * await sandbox.advance(60_000)
 * await sandbox.close()
 * ```
 *
 * Specification: all of it. docs/interface.md says how we read what it does not show.
 */
export function createSandbox(options: SandboxOptions): Sandbox {
  const settings = readOptions(options)
  const world = createWorld(settings)
  const app = routes(world)
  let timer: Timer | undefined
  const tick = (): void => {
    timer = settings.clock.after(tickMs, () => {
      world.run()
      tick()
    })
  }
  if (settings.speed > 0) tick()
  return {
    app,
    fetch: (request) => app.fetch(request),
    advance: world.advance,
    async close() {
      timer?.cancel()
      world.sse.end()
      await world.deliveries.settled()
    },
  }
}

function routes(world: World): Hono {
  const keys = world.settings.apiKeys.map((key) => comparable(key))
  const energySite = createEnergySites(world)
  let requests = 0

  return new Hono()
    .onError(() => refuse('internal_error', 'The sandbox failed. Can it write its state?'))
    .notFound(refusePath)
    .use(async (c, next) => {
      requests += 1
      const id = `sandbox-${requests}`
      const [, key] = /^Bearer +(\S+) *$/i.exec(c.req.header('authorization') ?? '') ?? []
      // All keys are compared, so that the time does not show which one matched.
      const known = keys.map((one) => one.equals(key ?? '')).includes(true)
      if (key === undefined || !known) {
        c.res = refuse('unauthorized', 'The header Authorization must have the bearer token of this business.')
      } else await next()
      c.res.headers.set('x-request-id', id)
    })
    .route('/api/business', businessRoutes(world))
    .route('/api/config', configRoutes(world))
    .route(
      '/sse',
      sseRoutes(world.sse, (vin) => world.vehicle(vin) !== undefined),
    )
    .route('/sandbox', controlRoutes(world))
    .get('/api/image/:vin', ({ req }) =>
      world.vehicle(req.param('vin')) === undefined ? refuseVehicle(req.param('vin')) : vehicleImage(),
    )
    .all('/api/1/*', ({ req }) => {
      const named = namedBy(req.path)
      if (named.kind === 'nothing') {
        return refuse('insufficient_scope', 'The path must name a product, by VIN or energy site id.')
      }
      if (named.kind === 'site') return energySite(named.id, named.rest, req.raw)
      if (changesAccount(req.method, named.rest)) {
        return refuse('insufficient_scope', 'This would change the customer’s own account.')
      }
      return answerVehicle(world, named.id, named.rest, req.raw)
    })
    .all('/api/business/webhook', () => refuseMethod('PUT, GET, DELETE'))
    .all('/api/business/config/default', () => refuseMethod('PUT, GET'))
    .all('/api/business/products', () => refuseMethod('GET'))
    .all('/api/config/:vin', () => refuseMethod('GET, PATCH, POST, DELETE'))
    .all('/api/image/:vin', () => refuseMethod('GET'))
    .all('/sse/:vin/:field?', () => refuseMethod('GET'))
}

/** What the path of a maker's endpoint names. */
type Named =
  | { readonly kind: 'vehicle' | 'site'; readonly id: string; readonly rest: string }
  /** Neither a VIN nor an energy site id. */
  | { readonly kind: 'nothing' }

/** Reads a path below `/api/1`. */
function namedBy(path: string): Named {
  const [, kind, id = '', rest = ''] = /^\/api\/1\/([^/]+)\/([^/]+)(?:\/(.*))?$/.exec(path) ?? []
  if (kind === 'vehicles' && /^[0-9A-HJ-NPR-Z]{17}$/.test(id)) return { kind: 'vehicle', id, rest }
  if (kind === 'energy_sites' && /^\d{1,20}$/.test(id)) return { kind: 'site', id, rest }
  return { kind: 'nothing' }
}

/** Whether a request would change the customer's own account (specification: "Requests refused with 403"). */
function changesAccount(method: string, rest: string): boolean {
  if (/^(drivers|invitations)(\/|$)/.test(rest)) return method !== 'GET'
  return rest === 'fleet_telemetry_config' && method !== 'GET'
}
