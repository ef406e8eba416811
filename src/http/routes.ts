import type { Context, Env } from 'hono'
import { Hono } from 'hono/tiny'
import type { Door } from '../inbox/inbox.ts'
import { type Answer, healthy, type Refusal, refuse, success, unhealthy } from './answers.ts'
import { type Body, readGiven, readRequest } from './body.ts'
import type { ExecutionContext } from './execution-context.ts'

/** A message on its way in, before a byte of its body is read. The same for every way into the receiver. */
export interface Incoming {
  readonly authorization: string | null | undefined
  readonly door: Door
  readonly env: unknown
  readonly context: ExecutionContext | undefined
  read(limitBytes: number): Promise<Body | Refusal>
}

/** What the HTTP face needs to know of the receiver behind it. */
export interface Face {
  receive(incoming: Incoming): Promise<Answer>
  /** Why no message would be taken right now. */
  busy(): 'draining' | 'inbox_full' | undefined
  /** Is told of what was refused for its method or its path. */
  refused(refusal: Refusal): void
}

/** The collector protocol's paths: relays hard-wire one of them. */
const collector = '/services/collector'
const places: ReadonlyMap<string, Door | 'health'> = /* @__PURE__ */ new Map([
  ['', 'root'],
  [collector, 'collector'],
  [`${collector}/event`, 'collector'],
  [`${collector}/event/1.0`, 'collector'],
  [`${collector}/health`, 'health'],
  [`${collector}/health/1.0`, 'health'],
])

/** What is at a path below wherever the receiver is mounted, with and without a trailing slash. */
function placeOf(path: string): Door | 'health' | undefined {
  return places.get(path.endsWith('/') ? path.slice(0, -1) : path)
}

/** Which door a path leads to, below wherever the receiver is mounted. `undefined`: to none. */
export function doorOf(path: string): Door | undefined {
  const place = placeOf(path)
  return place === 'health' ? undefined : place
}

/** The Hono app of a receiver: what is where, and nothing about what happens there. */
export function createRoutes<E extends Env>(face: Face): Hono<E> {
  const app = new Hono<E>()

  const refusing = (refusal: Refusal, allow?: string): Response => {
    face.refused(refusal)
    return respond(refuse(refusal, allow))
  }

  function message(c: Context<E>, door: Door): Response | Promise<Response> {
    const { method } = c.req
    if (method === 'POST') return face.receive(incoming(c, door)).then(respond)
    if (method === 'OPTIONS') return respond({ ...success, headers: { ...success.headers, allow: 'POST, OPTIONS' } })
    return refusing({ error: 'method_not_allowed' }, 'POST, OPTIONS')
  }

  function health({ req: { method } }: Context<E>): Response {
    const allow = 'GET, HEAD, OPTIONS'
    if (method === 'OPTIONS') return respond({ ...success, headers: { ...success.headers, allow } })
    if (method !== 'GET' && method !== 'HEAD') return refusing({ error: 'method_not_allowed' }, allow)
    const busy = face.busy()
    if (busy === undefined) return respond(healthy)
    return respond(busy === 'draining' ? refuse({ error: 'draining' }) : unhealthy)
  }

  const unknown = (): Response => refusing({ error: 'path_unknown' })
  const root = (c: Context<E>): Response | Promise<Response> => message(c, 'root')
  // One handler a path: Hono composes several, which costs. The second pattern is the first with a trailing slash, in
  // the only spelling that every router of Hono takes.
  app.all('/', root).all('/:slash{$}', root)
  app.all(`${collector}/*`, (c) => {
    const { path } = c.req
    const place = placeOf(path.slice(path.lastIndexOf(collector)))
    if (place === 'health') return health(c)
    return place === undefined ? unknown() : message(c, place)
  })
  // Only for `fetch`: what is beside the receiver belongs to the host that mounts it.
  app.notFound(unknown)
  return app
}

function respond(answer: Answer): Response {
  return new Response(answer.body, { status: answer.status, headers: answer.headers })
}

function incoming<E extends Env>(c: Context<E>, door: Door): Incoming {
  const { req } = c
  return {
    authorization: req.header('authorization'),
    door,
    env: c.env,
    context: contextOf(c),
    read: (limitBytes) => read(c, limitBytes),
  }
}

async function read<E extends Env>({ req }: Context<E>, limitBytes: number): Promise<Body | Refusal> {
  const contentEncoding = req.header('content-encoding')
  // What the host's own middleware read through Hono is still there; what was read past Hono is gone.
  const read = req.raw.bodyUsed ? req.bodyCache : {}
  if ('text' in read || 'json' in read) return readGiven(await req.text(), contentEncoding, limitBytes)
  if ('arrayBuffer' in read) return readGiven(await req.arrayBuffer(), contentEncoding, limitBytes)
  const contentLength = req.header('transfer-encoding') === undefined ? req.header('content-length') : undefined
  return readRequest(req.raw, { contentEncoding, contentLength }, limitBytes)
}

/** Hono's getter throws where the runtime gave no context. */
function contextOf<E extends Env>(c: Context<E>): ExecutionContext | undefined {
  try {
    return c.executionCtx
  } catch {
    return undefined
  }
}
