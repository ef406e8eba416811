import { Hono, type MiddlewareHandler } from 'hono'
import type { Timer } from '../../base/clock.ts'
import { comparable } from '../../http/secret.ts'
import { refuse, refuseMethod, refusePath, refuseRoute } from './answers.ts'
import { businessRoutes, configRoutes } from './business-routes.ts'
import { controlRoutes } from './control-routes.ts'
import { answerSite } from './energy-sites.ts'
import { readOptions, type SandboxOptions } from './options.ts'
import { accessTo, answerStream, answerVehicle, vehicleImage } from './vehicle-routes.ts'
import { World } from './world.ts'

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

/** The vehicles catch up with the clock at this interval. A vehicle also bundles the values of one interval into a message. */
const tickMs = 500

/**
 * Creates a stand-in for the service, to develop and test without a vehicle: all endpoints, states, refusals and streams of
 * the specification, and simulated vehicles that post to the webhook that is set. It is a Hono app and needs no server.
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
 * Specification: all of it. docs/decisions/0021-interface.md says how we read what it does not show.
 */
export function createSandbox(options: SandboxOptions): Sandbox {
  const settings = readOptions(options)
  const world = new World(settings)
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
    advance: (ms) => world.advance(ms),
    async close() {
      timer?.cancel()
      world.sse.end()
      await world.deliveries.settled()
    },
  }
}

function routes(world: World): Hono {
  return new Hono()
    .onError(() => refuse('internal_error', 'The sandbox failed.'))
    .notFound(refusePath)
    .use(entrance(world))
    .route('/api/business', businessRoutes(world))
    .route('/api/config', configRoutes(world))
    .get('/sse/:product/:field?', ({ req }) => {
      const { product, field } = req.param()
      return answerStream(world, product, field, req.raw)
    })
    .route('/sandbox', controlRoutes(world))
    .get('/api/image/:vin', ({ req }) => {
      const vehicle = accessTo(world, req.param('vin'))
      return vehicle instanceof Response ? vehicle : vehicleImage(vehicle.car.vehicle)
    })
    .get('/api/metadata', refuseRoute)
    .get('/sse', refuseRoute)
    .all('/api/1/*', ({ req }) => answerProduct(world, req.path, req.raw))
    .all('/api/business/webhook', () => refuseMethod('PUT, GET, DELETE'))
    .all('/api/business/config/default', () => refuseMethod('PUT, GET'))
    .all('/api/business/products', () => refuseMethod('GET'))
    .all('/api/config/:vin', () => refuseMethod('GET, PATCH, POST, DELETE'))
    .all('/api/image/:vin', () => refuseMethod('GET'))
    .all('/sse/:product/:field?', () => refuseMethod('GET'))
}

/** Checks the key, the standing of the business and the rate of requests, and notes each request with its answer. */
function entrance(world: World): MiddlewareHandler {
  const { apiKey, clock, rateLimit = Infinity } = world.settings
  const own = comparable(apiKey)
  const isKey = (authorization: string): boolean => {
    const [, key] = /^Bearer +(\S+) *$/i.exec(authorization) ?? []
    return key !== undefined && own.equals(key)
  }
  const rate = new RateLimit(rateLimit)
  let requests = 0
  return async (c, next) => {
    requests += 1
    const id = `sandbox-${requests}`
    const { method, path } = c.req
    const startedAt = clock.now()
    const isControl = /^\/sandbox(\/|$)/.test(path)
    const refused =
      (isControl ? undefined : unavailable(world)) ??
      (isKey(c.req.header('authorization') ?? '') ? undefined : refuseKey()) ??
      (isControl ? undefined : (problemWithStanding(world, method, path) ?? rate.refuse(startedAt)))
    if (refused === undefined) await next()
    else c.res = refused
    c.res.headers.set('x-request-id', id)
    const ms = Math.max(0, Math.round(clock.now() - startedAt))
    world.activity.call(method, path, c.res.status, ms, await codeOf(c.res))
  }
}

/** The requests of each minute, and the most that are answered. */
class RateLimit {
  readonly #most: number
  #minuteEndsAt = 0
  #ofMinute = 0

  constructor(most: number) {
    this.#most = most
  }

  /** Counts one more request. `undefined`: it is answered. */
  refuse(now: number): Response | undefined {
    if (now >= this.#minuteEndsAt) {
      this.#minuteEndsAt = now + 60_000
      this.#ofMinute = 0
    }
    this.#ofMinute += 1
    if (this.#ofMinute <= this.#most) return undefined
    const seconds = String(Math.ceil((this.#minuteEndsAt - now) / 1_000))
    const text = `Too many requests. Wait ${seconds} seconds, as Retry-After says.`
    return refuse('too_many_requests', text, { 'retry-after': seconds })
  }
}

/** The answer to a request below `/api/1`. */
function answerProduct(world: World, path: string, request: Request): Response | Promise<Response> {
  const named = productIn(path)
  if (named === undefined) {
    return refuse('insufficient_scope', 'The path must name a product, by VIN or energy site id.')
  }
  const { id, rest, isSite } = named
  if (isSite) return answerSite(world, id, rest, request)
  if (changesAccount(request.method, rest)) {
    return refuse('insufficient_scope', 'This would change the customer’s own account.')
  }
  return answerVehicle(world, id, rest, request)
}

function refuseKey(): Response {
  return refuse('invalid_token', 'The header Authorization must have `Bearer` and the key of this business.')
}

/** While the service cannot check keys, it answers nobody. */
function unavailable({ standing, settings: { clock } }: World): Response | undefined {
  const leftMs = standing.unavailableUntil - clock.now()
  if (leftMs <= 0) return undefined
  const seconds = String(Math.ceil(leftMs / 1_000))
  const text = `Keys cannot be checked right now. Wait ${seconds} seconds, as Retry-After says.`
  return refuse('business_auth_unavailable', text, { 'retry-after': seconds })
}

function problemWithStanding({ standing }: World, method: string, path: string): Response | undefined {
  if (!standing.active) return refuse('business_not_active', 'This business is suspended. Ask the service.')
  const needed = permissionFor(method, path)
  if (needed === undefined || standing.permissions.includes(needed)) return undefined
  return refuse('business_permission_missing', `This key lacks the permission ${needed}.`)
}

/** What a key needs for a request. Commands need the command access of the business instead. */
function permissionFor(method: string, path: string): string | undefined {
  if (method === 'GET' || method === 'HEAD' || path.endsWith('/charge_history')) return 'data:read'
  return /^\/api\/(business|config)\//.test(path) ? 'streaming:write' : undefined
}

/** The code in the body of a refusal. */
async function codeOf(answer: Response): Promise<string | undefined> {
  if (answer.status < 400 || answer.headers.get('content-type')?.startsWith('application/json') !== true)
    return undefined
  try {
    const code: unknown = Object(await answer.clone().json())['error']
    return typeof code === 'string' ? code : undefined
  } catch {
    return undefined
  }
}

/** The product that a path below `/api/1` names. `undefined`: neither a VIN nor an energy site id. */
function productIn(path: string): { readonly id: string; readonly rest: string; readonly isSite: boolean } | undefined {
  const [, kind, id = '', rest = ''] = /^\/api\/1\/([^/]+)\/([^/]+)(?:\/(.*))?$/.exec(path) ?? []
  const isSite = kind === 'energy_sites' && /^\d{1,20}$/.test(id)
  const isVehicle = kind === 'vehicles' && /^[0-9A-HJ-NPR-Z]{17}$/.test(id)
  return isSite || isVehicle ? { id, rest, isSite } : undefined
}

/** Whether a request would change the customer's own account (specification: "Requests refused with 403"). */
function changesAccount(method: string, rest: string): boolean {
  return method !== 'GET' && /^((drivers|invitations)(\/|$)|fleet_telemetry_config$)/.test(rest)
}
