import type { Context, Env, HonoRequest } from 'hono'
import { Hono } from 'hono/tiny'
import { getPath } from 'hono/utils/url'
import { alive, type Answer, healthy, readyOrNot, type Refusal, refuse, success, unhealthy } from './answers.ts'
import { type Body, readGiven, readRequest } from './body.ts'
import { type Door, collectorPath, type PathTarget, targetOf } from './paths.ts'
import { type ExecutionContext, lastingEnv } from '../hosting/execution-context.ts'

/** A request before its secret is checked and before a byte of its body is read. Every way into the receiver makes one. */
export interface Incoming extends AuthorizedRequest {
  readonly authorization: string | null | undefined
}

/** A request whose secret is right. */
export interface AuthorizedRequest {
  readonly door: Door
  readonly env: unknown
  readonly context: ExecutionContext | undefined
  read(limitBytes: number): Promise<Body | Refusal>
}

/** The receiver, as the routes see it. */
interface Face {
  receive(incoming: Incoming): Promise<Answer>
  /** Why the receiver would refuse every message now; `undefined` when it would not. */
  busy(): 'draining' | 'inbox_full' | 'inbox_unavailable' | undefined
  /** Whether it takes messages now, in words that anybody may read. */
  readiness(): { readonly reason?: string }
  /** Called for each request that was refused because of its method or its path. */
  refused(refusal: Refusal): void
}

/** A request that was routed by Hono or by path. */
interface RoutedRequest {
  readonly request: Request
  readonly env: unknown
  readonly context: ExecutionContext | undefined
  /** Hono's request, which knows what the host's own middleware has read. */
  readonly hono?: HonoRequest
}

/** The two ways in over HTTP. */
interface Routes<E extends Env> {
  /** The app to mount in a host. */
  readonly app: Hono<E>
  /** The same without a host. It looks up the path itself, because routing by Hono costs more than checking the secret. */
  readonly fetch: (
    request: Request,
    env: unknown,
    context: ExecutionContext | undefined,
  ) => Response | Promise<Response>
}

/** The paths and methods of a receiver. */
export function createRoutes<E extends Env>(face: Face): Routes<E> {
  function answer(target: PathTarget | undefined, request: RoutedRequest): Response | Promise<Response> {
    const { method } = request.request
    const respond = ({ status, headers, body }: Answer): Response =>
      new Response(method === 'HEAD' ? null : body, { status, headers })
    const refusing = (refusal: Refusal, allow?: string): Response => {
      face.refused(refusal)
      return respond(refuse(refusal, allow))
    }

    if (target === undefined) return refusing({ error: 'path_unknown' })
    const isHealth = target !== 'root' && target !== 'collector'
    if (!isHealth && method === 'POST') return face.receive(incoming(request, target)).then(respond)
    const allow = isHealth ? 'GET, HEAD, OPTIONS' : 'POST, OPTIONS'
    if (method === 'OPTIONS') return respond({ ...success, headers: { ...success.headers, allow } })
    if (!isHealth || (method !== 'GET' && method !== 'HEAD')) return refusing({ error: 'method_not_allowed' }, allow)
    if (target === 'healthz') return respond(alive)
    if (target === 'readyz') return respond(readyOrNot(face.readiness().reason))
    const busy = face.busy()
    if (busy === undefined) return respond(healthy)
    return respond(busy === 'draining' ? refuse({ error: 'draining' }) : unhealthy)
  }

  const app = new Hono<E>()
  const mounted = (c: Context<E>, target: PathTarget | undefined): Response | Promise<Response> =>
    answer(target, { request: c.req.raw, env: c.env, context: contextOf(c), hono: c.req })
  const root = (c: Context<E>): Response | Promise<Response> => mounted(c, 'root')
  // The second pattern is the root with a trailing slash, in the only spelling that every router of Hono accepts. All other
  // paths belong to the host.
  app.all('/', root).all('/:slash{$}', root)
  app.all(`${collectorPath}/*`, (c) => mounted(c, targetOf(c.req.path.slice(c.req.path.lastIndexOf(collectorPath)))))
  app.all('/healthz', (c) => mounted(c, 'healthz'))
  app.all('/readyz', (c) => mounted(c, 'readyz'))
  app.notFound((c) => mounted(c, undefined))

  return {
    app,
    fetch: (request, env, context) => answer(targetOf(getPath(request)), { request, env, context }),
  }
}

function incoming({ request, env, context, hono }: RoutedRequest, door: Door): Incoming {
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
    // A body that the host's middleware read through Hono is still there. One that was read without Hono is gone.
    const given = (body: unknown): Promise<Body | Refusal> => readGiven(body, contentEncoding, limitBytes)
    if ('text' in hono.bodyCache || 'json' in hono.bodyCache) return hono.text().then(given)
    if ('arrayBuffer' in hono.bodyCache) return hono.arrayBuffer().then(given)
  }
  const contentLength = headers.get('transfer-encoding') === null ? headers.get('content-length') : undefined
  return readRequest(request, { contentEncoding, contentLength }, limitBytes)
}

/** Hono's getter throws when the runtime gave no context. Making the stack of that error costs more than the message. */
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
