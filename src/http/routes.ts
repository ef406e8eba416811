import type { Context, Env, HonoRequest } from 'hono'
import { Hono } from 'hono/tiny'
import { getPath } from 'hono/utils/url'
import { type Answer, healthy, type Refusal, refuse, success, unhealthy } from './answers.ts'
import { type Body, readGiven, readRequest } from './body.ts'
import type { ExecutionContext } from '../hosting/execution-context.ts'
import { type Door, collectorPath, targetOf } from './paths.ts'
import { lastingEnv } from '../hosting/request-env.ts'

/** A message on its way in, before a byte of its body is read. The same for every way into the receiver. */
export interface Incoming extends Arrival {
  readonly authorization: string | null | undefined
}

/** The same when it is known who sends. */
export interface Arrival {
  readonly door: Door
  readonly env: unknown
  readonly context: ExecutionContext | undefined
  read(limitBytes: number): Promise<Body | Refusal>
}

/** What the HTTP face needs to know of the receiver behind it. */
export interface Face {
  receive(incoming: Incoming): Promise<Answer>
  /** Why no message would be taken right now. */
  busy(): 'draining' | 'inbox_full' | 'inbox_unavailable' | undefined
  /** Is told of what was refused for its method or its path. */
  refused(refusal: Refusal): void
}

/** A request, whoever routed it. */
interface Arrived {
  readonly request: Request
  readonly env: unknown
  readonly context: ExecutionContext | undefined
  /** Hono's view of it, which knows what the host's own middleware has read. */
  readonly hono?: HonoRequest
}

/** The two ways in over HTTP. */
export interface Routes<E extends Env> {
  /** To mount in a host. */
  readonly app: Hono<E>
  /** The same by itself. Where nothing else is mounted there is nothing to route, which costs more than the secret. */
  readonly fetch: (
    request: Request,
    env: unknown,
    context: ExecutionContext | undefined,
  ) => Response | Promise<Response>
}

/** What is where, and nothing about what happens there. */
export function createRoutes<E extends Env>(face: Face): Routes<E> {
  function answer(place: Door | 'health' | undefined, arrived: Arrived): Response | Promise<Response> {
    const { method } = arrived.request
    const respond = ({ status, headers, body }: Answer): Response =>
      new Response(method === 'HEAD' ? null : body, { status, headers })
    const refusing = (refusal: Refusal, allow?: string): Response => {
      face.refused(refusal)
      return respond(refuse(refusal, allow))
    }

    if (place === undefined) return refusing({ error: 'path_unknown' })
    const isHealth = place === 'health'
    if (!isHealth && method === 'POST') return face.receive(incoming(arrived, place)).then(respond)
    const allow = isHealth ? 'GET, HEAD, OPTIONS' : 'POST, OPTIONS'
    if (method === 'OPTIONS') return respond({ ...success, headers: { ...success.headers, allow } })
    if (!isHealth || (method !== 'GET' && method !== 'HEAD')) return refusing({ error: 'method_not_allowed' }, allow)
    const busy = face.busy()
    if (busy === undefined) return respond(healthy)
    return respond(busy === 'draining' ? refuse({ error: 'draining' }) : unhealthy)
  }

  const app = new Hono<E>()
  const mounted = (c: Context<E>, place: Door | 'health' | undefined): Response | Promise<Response> =>
    answer(place, { request: c.req.raw, env: c.env, context: contextOf(c), hono: c.req })
  const root = (c: Context<E>): Response | Promise<Response> => mounted(c, 'root')
  // The second pattern is the first with a trailing slash, in the only spelling that every router of Hono takes. What is
  // beside these belongs to the host.
  app.all('/', root).all('/:slash{$}', root)
  app.all(`${collectorPath}/*`, (c) => mounted(c, targetOf(c.req.path.slice(c.req.path.lastIndexOf(collectorPath)))))
  app.notFound((c) => mounted(c, undefined))

  return {
    app,
    fetch: (request, env, context) => answer(targetOf(getPath(request)), { request, env, context }),
  }
}

function incoming({ request, env, context, hono }: Arrived, door: Door): Incoming {
  return {
    authorization: request.headers.get('authorization'),
    door,
    env: lastingEnv(env),
    context,
    read: (limitBytes) => read(request, hono, limitBytes),
  }
}

function read(request: Request, hono: HonoRequest | undefined, limitBytes: number): Promise<Body | Refusal> {
  const { headers } = request
  const contentEncoding = headers.get('content-encoding')
  if (hono !== undefined && request.bodyUsed) {
    // What the host's own middleware read through Hono is still there; what was read past Hono is gone.
    const given = (body: unknown): Promise<Body | Refusal> => readGiven(body, contentEncoding, limitBytes)
    if ('text' in hono.bodyCache || 'json' in hono.bodyCache) return hono.text().then(given)
    if ('arrayBuffer' in hono.bodyCache) return hono.arrayBuffer().then(given)
  }
  const contentLength = headers.get('transfer-encoding') === null ? headers.get('content-length') : undefined
  return readRequest(request, { contentEncoding, contentLength }, limitBytes)
}

/** Hono's getter throws where the runtime gave no context, and the stack of that error costs more than the message. */
function contextOf<E extends Env>(c: Context<E>): ExecutionContext | undefined {
  const limit: unknown = Reflect.get(Error, 'stackTraceLimit')
  Reflect.set(Error, 'stackTraceLimit', 0)
  try {
    return c.executionCtx
  } catch {
    return undefined
  } finally {
    Reflect.set(Error, 'stackTraceLimit', limit)
  }
}
