import { Hono } from 'hono'
import type { Timer } from '../../base/clock.ts'
import { comparable } from '../../http/compare.ts'
import { businessRoutes } from './business-routes.ts'
import { configRoutes, notShared } from './config-routes.ts'
import { controlRoutes } from './control-routes.ts'
import { createEnergySites } from './energy-routes.ts'
import { vehicleImage } from './image.ts'
import { readOptions, type SandboxOptions } from './options.ts'
import { refuse } from './refusal.ts'
import { changesAccount, namedBy } from './scope.ts'
import { sseRoutes } from './sse-routes.ts'
import { answerVehicle, notAllowed } from './vehicle-routes.ts'
import { createWorld, type World } from './world.ts'

/** A stand-in for the service. */
export interface Sandbox {
  /** The service's whole interface, and `/sandbox`. */
  readonly app: Hono
  /** `app.fetch`, as servers take it. */
  fetch(request: Request): Response | Promise<Response>
  /** Lets time pass for the vehicles, in milliseconds. Resolves when everything said meanwhile was posted. */
  advance(ms: number): Promise<void>
  /** Stops the vehicles and ends all streams. Resolves when nothing is on its way to the webhook any more. */
  close(): Promise<void>
}

/** How often the vehicles catch up with the time. They bundle what they say in half a second. */
const tickMs = 500

/**
 * A stand-in that behaves like the service, to develop against without a car: every endpoint, state, refusal and stream of the
 * specification, with simulated vehicles that post to the webhook that is set.
 *
 * Throws a `FleethookError` for an option that is missing or wrong.
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
 * Specification: the whole of it; what it does not show is read as docs/interface.md says.
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
    .onError(() => refuse('internal_error', 'The sandbox failed. Can its state be kept?'))
    .notFound(() => refuse('not_found', 'There is no such path.'))
    .use(async (c, next) => {
      requests += 1
      const id = `sandbox-${requests}`
      const [, key] = /^Bearer +(\S+) *$/i.exec(c.req.header('authorization') ?? '') ?? []
      // Every key is compared, so that the time does not tell which one it was.
      const known = keys.map((one) => one.equals(key ?? '')).includes(true)
      if (key === undefined || !known) {
        c.res = refuse('unauthorized', 'The header Authorization needs a bearer key of this business.')
      } else await next()
      c.res.headers.set('x-request-id', id)
    })
    .route('/api/business', businessRoutes(world))
    .route('/api/config', configRoutes(world))
    .route('/sse', sseRoutes(world))
    .route('/sandbox', controlRoutes(world))
    .get('/api/image/:vin', ({ req }) =>
      world.vehicle(req.param('vin')) === undefined ? notShared(req.param('vin')) : vehicleImage(),
    )
    .all('/api/1/*', ({ req }) => {
      const named = namedBy(req.path)
      if (named.kind === 'nothing') {
        return refuse('insufficient_scope', 'Only products can be asked for, by VIN or energy site id.')
      }
      if (named.kind === 'site') return energySite(named.id, named.rest, req.raw)
      if (changesAccount(req.method, named.rest)) {
        return refuse('insufficient_scope', 'This would change the customer’s own account.')
      }
      return answerVehicle(world, named.id, named.rest, req.raw)
    })
    .all('/api/business/webhook', () => notAllowed('PUT, GET, DELETE'))
    .all('/api/business/config/default', () => notAllowed('PUT, GET'))
    .all('/api/business/products', () => notAllowed('GET'))
    .all('/api/config/:vin', () => notAllowed('GET, PATCH, POST, DELETE'))
    .all('/api/image/:vin', () => notAllowed('GET'))
    .all('/sse/:vin/:field?', () => notAllowed('GET'))
}
