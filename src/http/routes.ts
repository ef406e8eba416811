import type { Context, Env } from 'hono'
import { Hono } from 'hono/tiny'
import type { Door } from '../inbox/inbox.ts'
import { type Answer, healthy, type Refusal, refuse, unhealthy } from './answers.ts'
import { type Body, readRequest } from './body.ts'
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
export const collectorPaths = [
  '/services/collector',
  '/services/collector/event',
  '/services/collector/event/1.0',
] as const
const healthPaths = ['/services/collector/health', '/services/collector/health/1.0'] as const

/** Which door a path leads to, below wherever the receiver is mounted. `undefined`: to none. */
export function doorOf(path: string): Door | undefined {
  const trimmed = path.replace(/\/$/, '')
  if (trimmed === '') return 'root'
  return collectorPaths.some((known) => known === trimmed) ? 'collector' : undefined
}

/** The Hono app of a receiver: what is where, and nothing about what happens there. */
export function createRoutes<E extends Env>(face: Face): Hono<E> {
  const app = new Hono<E>()
  // The second pattern is the first with a trailing slash: no other spelling survives every router of Hono.
  const at = (path: string): string[] => [path, `${path === '/' ? '' : path}/:slash{$}`]
  const take =
    (door: Door) =>
    async (c: Context<E>): Promise<Response> =>
      respond(await face.receive(incoming(c, door)))
  const preflight = (): Response => new Response(null, { status: 200, headers: { allow: 'POST, OPTIONS' } })
  const otherMethod = (allow: string) => (): Response => refusing({ error: 'method_not_allowed' }, allow)
  const refusing = (refusal: Refusal, allow?: string): Response => {
    face.refused(refusal)
    return respond(refuse(refusal, allow))
  }

  const health = (): Response => {
    const busy = face.busy()
    if (busy === undefined) return respond(healthy)
    return respond(busy === 'draining' ? refuse({ error: 'draining' }) : unhealthy)
  }

  for (const path of [...at('/'), ...collectorPaths.flatMap(at)]) {
    app.post(path, take(path === '/' || path === '/:slash{$}' ? 'root' : 'collector'))
    app.options(path, preflight)
    app.all(path, otherMethod('POST, OPTIONS'))
  }
  for (const path of healthPaths.flatMap(at)) {
    app.get(path, health)
    app.options(path, preflight)
    app.all(path, otherMethod('GET, OPTIONS'))
  }
  app.notFound(() => refusing({ error: 'path_unknown' }))
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
    read: (limitBytes) => {
      const request = req.raw
      // What the host's own middleware read through Hono is still there; what was read past Hono is gone.
      const cached = request.bodyUsed && Object.keys(req.bodyCache).length > 0
      const headers = {
        contentEncoding: req.header('content-encoding'),
        contentLength: req.header('content-length'),
      }
      return readRequest(
        cached ? { body: null, bodyUsed: false, text: () => req.text() } : request,
        cached ? { contentEncoding: undefined, contentLength: headers.contentLength ?? '0' } : headers,
        limitBytes,
      )
    },
  }
}

/** Hono's getter throws where the runtime gave no context. */
function contextOf<E extends Env>(c: Context<E>): ExecutionContext | undefined {
  try {
    return c.executionCtx
  } catch {
    return undefined
  }
}
