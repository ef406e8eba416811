import type { Context, HonoRequest } from 'hono'
import { Hono } from 'hono/tiny'
import { getPath } from 'hono/utils/url'
import {
  alive,
  type Answer,
  healthy,
  readyOrNot,
  type Refusal,
  refuse,
  responseOf,
  success,
  unhealthy,
} from './answers.ts'
import { type Body, readGiven, readRequest } from './body.ts'
import { type Door, collectorPath, type PathTarget, targetsBelow } from './paths.ts'
import { type ExecutionContext, lastingEnv, type RequestScope } from '../hosting/execution-context.ts'

/** A request before its secret is checked and before a byte of its body is read. Every way into the receiver makes one. */
export interface Incoming extends AuthorizedRequest {
  readonly method: string
  /** The value of the Authorization header. Several are joined by `, `. */
  readonly authorization: string | null | undefined
}

/** A request whose secret is right. */
export interface AuthorizedRequest extends RequestScope {
  /** The names and values of the headers. Left out when the host read the body. */
  readonly headers?: (() => Iterable<readonly [name: string, value: string]>) | undefined
}

/** A request whose secret is right may send a body. */
export interface Admitted {
  readonly limitBytes: number
  /** Has to be called once, with what was read. The answer is a promise only where something has to be waited for. */
  take(body: Body | Refusal): Answer | Promise<Answer>
}

/** The answer, or who may send a body. */
export type Begun = Answer | Admitted

/** A request whose body can be read at any time. */
interface Readable {
  read(limitBytes: number): Promise<Body | Refusal>
}

/** The answer to a request, after its body was read if it may send one. */
export async function answerOf(given: Begun | Promise<Begun>, request: Readable): Promise<Answer> {
  const begun = given instanceof Promise ? await given : given
  if (!('take' in begun)) return begun
  let body: Body | Refusal
  try {
    body = await request.read(begun.limitBytes)
  } catch {
    // The host could not read it either, or gave bytes that are gone.
    body = { error: 'body_interrupted' }
  }
  return begun.take(body)
}

/** What the routes ask of the receiver. */
interface Answering {
  receive(incoming: Incoming, door: Door): Begun | Promise<Begun>
  /** Why the receiver would refuse every message now; `undefined` when it would not. */
  busy(): 'draining' | 'inbox_full' | 'inbox_unavailable' | undefined
  /** The same in words. Somebody asks for it who may send messages elsewhere. */
  readiness(): { readonly reason?: string | undefined }
  /** Called for each request that was refused because of its method or its path. */
  refused(refusal: Refusal, request: AuthorizedRequest): void
}

export interface Routes<Bindings extends object> {
  /** The app to mount in a host. */
  readonly app: Hono<{ Bindings: Bindings }>
  /** The same without a host. It looks up the path itself, because routing by Hono costs more than checking the secret. */
  readonly fetch: (request: Request, env: unknown, context: ExecutionContext | undefined) => Promise<Response>
  /** The targets of whole paths. */
  readonly targets: ReadonlyMap<string, PathTarget>
  /** Begins the answer to a request at a target. The app, `fetch`, and servers that make no `Request` all call it. */
  readonly begin: (target: PathTarget | undefined, request: Incoming) => Begun | Promise<Begun>
}

export function createRoutes<Bindings extends object>(receiver: Answering, basePath: string): Routes<Bindings> {
  function begin(target: PathTarget | undefined, request: Incoming): Begun | Promise<Begun> {
    const { method } = request
    if (target === 'root' || target === 'collector') {
      if (method === 'POST') return receiver.receive(request, target)
      return method === 'OPTIONS'
        ? allowed('POST, OPTIONS')
        : refused({ error: 'method_not_allowed' }, request, 'POST, OPTIONS')
    }
    if (target === undefined) return refused({ error: 'path_unknown' }, request)
    if (method === 'OPTIONS') return allowed('GET, HEAD, OPTIONS')
    if (method !== 'GET' && method !== 'HEAD')
      return refused({ error: 'method_not_allowed' }, request, 'GET, HEAD, OPTIONS')
    if (target === 'healthz') return alive
    const { reason } = receiver.readiness()
    if (target === 'readyz') return readyOrNot(reason)
    const busy = receiver.busy()
    if (busy === undefined) return healthy
    return busy === 'draining' ? refuse({ error: 'draining' }) : unhealthy
  }

  function refused(refusal: Refusal, request: Incoming, allow?: string): Answer {
    receiver.refused(refusal, request)
    return refuse(refusal, allow)
  }

  async function respond(target: PathTarget | undefined, request: FetchRequest): Promise<Response> {
    return responseOf(await answerOf(begin(target, request), request), request.method === 'HEAD')
  }

  const app = new Hono<{ Bindings: Bindings }>()
  const mounted = (c: Context, target: PathTarget | undefined): Promise<Response> =>
    respond(target, new FetchRequest(c.req.raw, c.env, contextOf(c), c.req))
  const root = (c: Context): Promise<Response> => mounted(c, 'root')
  // The second pattern is the root with a trailing slash, in the only spelling that the routers of every Hono since 4.9 read. All other
  // paths belong to the host.
  app.all('/', root).all('/:slash{.{0}}', root)
  const mountedTargets = targetsBelow('')
  app.all(`${collectorPath}/*`, (c) =>
    mounted(c, mountedTargets.get(c.req.path.slice(c.req.path.lastIndexOf(collectorPath)))),
  )
  app.all('/healthz', (c) => mounted(c, 'healthz'))
  app.all('/readyz', (c) => mounted(c, 'readyz'))
  app.notFound((c) => mounted(c, undefined))

  const targets = targetsBelow(basePath)
  return {
    app,
    begin,
    targets,
    fetch: (request, env, context) => respond(targets.get(getPath(request)), new FetchRequest(request, env, context)),
  }
}

/** The headers of a request as the host has them, with names in any case. */
export type GivenHeaders =
  Pick<Headers, 'forEach'> | { readonly [name: string]: string | readonly string[] | undefined }

/** A message that the host read itself. */
export type GivenMessage = {
  /** Text, bytes, or the value that a body parser returned. */
  readonly body: unknown
  /**
   * The path, with or without a query. The collector's own paths have stricter rules. Default: the path in the option `basePath`, or `/`.
   */
  readonly path?: string
  /** Handlers find it as `context.env`. */
  readonly env?: unknown
  /** The runtime's `waitUntil`, where the runtime ends a request's work with its answer. */
  readonly context?: ExecutionContext
} & (
  | {
      /**
       * The request's headers: a `Headers`, or an object with names in any case, as Node and AWS Lambda have it. `Content-Encoding`
       * counts only with bytes: a host that passes text or a parsed value has inflated it.
       */
      readonly headers: GivenHeaders | null | undefined
    }
  | {
      /** The value of the request's `Authorization` header, for a host without `headers`. */
      readonly authorization: string | null | undefined
      /** The value of the request's `Content-Encoding` header, if `body` is still encoded. */
      readonly contentEncoding?: string | null | undefined
    }
)

function allowed(allow: string): Answer {
  return { ...success, headers: { ...success.headers, allow } }
}

class FetchRequest implements Incoming, Readable {
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
      // A body that the host's middleware read through Hono is still there. A body that was read without Hono is gone.
      const given = (body: unknown): Promise<Body | Refusal> => readGiven(body, contentEncoding, limitBytes)
      if ('text' in hono.bodyCache || 'json' in hono.bodyCache) return hono.text().then(given)
      if ('arrayBuffer' in hono.bodyCache) return hono.arrayBuffer().then(given)
    }
    const contentLength = headers.get('transfer-encoding') === null ? headers.get('content-length') : undefined
    return readRequest(request, { contentEncoding, contentLength }, limitBytes)
  }
}

export class GivenRequest implements Incoming, Readable {
  readonly method = 'POST'
  readonly authorization: string | null | undefined
  readonly env: unknown
  readonly context: ExecutionContext | undefined
  readonly headers: (() => Iterable<readonly [name: string, value: string]>) | undefined
  readonly #body: unknown
  readonly #contentEncoding: string | null | undefined

  constructor(message: GivenMessage) {
    this.env = message.env
    this.context = message.context
    this.#body = message.body
    if ('headers' in message) {
      const headers = lowerCased(message.headers ?? {})
      this.authorization = headers.get('authorization')
      this.headers = () => headers
      this.#contentEncoding = headers.get('content-encoding')
    } else {
      this.authorization = message.authorization
      this.headers = undefined
      this.#contentEncoding = message.contentEncoding
    }
  }

  read(limitBytes: number): Promise<Body | Refusal> {
    return readGiven(this.#body, this.#contentEncoding, limitBytes)
  }
}

/** The headers by their names in lower case. Several values of one name are joined, as in a `Headers`. */
function lowerCased(headers: GivenHeaders): Map<string, string> {
  const found = new Map<string, string>()
  const add = (given: string | readonly string[] | undefined, name: string): void => {
    if (given === undefined) return
    const key = name.toLowerCase()
    found.set(key, [found.get(key) ?? [], given].flat().join(', '))
  }
  if (isHeaders(headers)) headers.forEach(add)
  else for (const name of Object.keys(headers)) add(headers[name], name)
  return found
}

const isHeaders = (headers: GivenHeaders): headers is Pick<Headers, 'forEach'> => typeof headers.forEach === 'function'

/** Hono's getter throws when the runtime gave no context. */
function contextOf(c: Context): ExecutionContext | undefined {
  try {
    return c.executionCtx
  } catch {
    return undefined
  }
}
