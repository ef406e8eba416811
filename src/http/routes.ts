import type { Context, Env, HonoRequest } from 'hono'
import { Hono } from 'hono/tiny'
import { getPath } from 'hono/utils/url'
import {
  alive,
  type Answer,
  healthy,
  readinessOf,
  readyOrNot,
  type Refusal,
  refuse,
  responseOf,
  success,
  unhealthy,
} from './answers.ts'
import { type Body, readGiven, readRequest } from './body.ts'
import { type Door, collectorPath, type PathTarget, targetOf } from './paths.ts'
import { type ExecutionContext, lastingEnv } from '../hosting/execution-context.ts'

/** A request before its secret is checked and before a byte of its body is read. Every way into the receiver makes one. */
export interface Incoming extends AuthorizedRequest {
  /** The value of the Authorization header. Several are joined by `, `. */
  readonly authorization: string | null | undefined
}

/** A request whose secret is right. */
export interface AuthorizedRequest {
  readonly env: unknown
  readonly context: ExecutionContext | undefined
  /** The names and values of the headers. Left out when the host read the body. */
  headers?(): Iterable<readonly [name: string, value: string]>
  read(limitBytes: number): Promise<Body | Refusal>
}

/** A request that came over HTTP, whatever server read it. */
export interface HttpRequest extends Incoming {
  readonly method: string
}

/** The receiver, as the routes see it. */
interface Face {
  receive(incoming: Incoming, door: Door): Promise<Answer>
  /** Why the receiver would refuse every message now; `undefined` when it would not. */
  busy(): 'draining' | 'inbox_full' | 'inbox_unavailable' | undefined
  /** Called for each request that was refused because of its method or its path. */
  refused(refusal: Refusal): void
}

/** The ways in over HTTP. */
interface Routes<E extends Env> {
  /** The app to mount in a host. */
  readonly app: Hono<E>
  /** The same without a host. It looks up the path itself, because routing by Hono costs more than checking the secret. */
  readonly fetch: (
    request: Request,
    env: unknown,
    context: ExecutionContext | undefined,
  ) => Response | Promise<Response>
  /** The answer to a request at a target. The app, `fetch`, and servers that make no `Request` all call it. */
  readonly answer: (target: PathTarget | undefined, request: HttpRequest) => Answer | Promise<Answer>
}

/** The paths and methods of a receiver. */
export function createRoutes<E extends Env>(face: Face): Routes<E> {
  function answer(target: PathTarget | undefined, request: HttpRequest): Answer | Promise<Answer> {
    const { method } = request
    if (target === 'root' || target === 'collector') {
      if (method === 'POST') return face.receive(request, target)
      return method === 'OPTIONS' ? allowed('POST, OPTIONS') : refused({ error: 'method_not_allowed' }, 'POST, OPTIONS')
    }
    if (target === undefined) return refused({ error: 'path_unknown' })
    if (method === 'OPTIONS') return allowed('GET, HEAD, OPTIONS')
    if (method !== 'GET' && method !== 'HEAD') return refused({ error: 'method_not_allowed' }, 'GET, HEAD, OPTIONS')
    if (target === 'healthz') return alive
    if (target === 'readyz') return readyOrNot(readinessOf(face.busy()).reason)
    const busy = face.busy()
    if (busy === undefined) return healthy
    return busy === 'draining' ? refuse({ error: 'draining' }) : unhealthy
  }

  function refused(refusal: Refusal, allow?: string): Answer {
    face.refused(refusal)
    return refuse(refusal, allow)
  }

  function respond(target: PathTarget | undefined, request: FetchRequest): Response | Promise<Response> {
    const answered = answer(target, request)
    // The answer to a HEAD request is never a promise.
    return answered instanceof Promise
      ? answered.then((given) => responseOf(given))
      : responseOf(answered, request.method === 'HEAD')
  }

  const app = new Hono<E>()
  const mounted = (c: Context<E>, target: PathTarget | undefined): Response | Promise<Response> =>
    respond(target, new FetchRequest(c.req.raw, c.env, contextOf(c), c.req))
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
    answer,
    fetch: (request, env, context) => respond(targetOf(getPath(request)), new FetchRequest(request, env, context)),
  }
}

/** The answer to OPTIONS. */
function allowed(allow: string): Answer {
  return { ...success, headers: { ...success.headers, allow } }
}

/** Reads a `Request`. */
class FetchRequest implements HttpRequest {
  readonly method: string
  readonly authorization: string | null
  readonly env: unknown
  readonly context: ExecutionContext | undefined
  readonly #request: Request
  readonly #hono: HonoRequest | undefined

  /** `hono` is Hono's request, which knows what the host's own middleware has read. */
  constructor(request: Request, env: unknown, context: ExecutionContext | undefined, hono?: HonoRequest) {
    this.method = request.method
    this.authorization = request.headers.get('authorization')
    this.env = lastingEnv(env)
    this.context = context
    this.#request = request
    this.#hono = hono
  }

  headers(): Iterable<readonly [name: string, value: string]> {
    return this.#request.headers
  }

  read(limitBytes: number): Promise<Body | Refusal> {
    const request = this.#request
    const hono = this.#hono
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
