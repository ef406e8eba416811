/**
 * `serve` for Node, on `@hono/node-server`.
 *
 * @module
 */
import { createServer, type Server as HttpServer, type ServerOptions } from 'node:http'
import { createServer as createSecureServer } from 'node:https'
import type { Socket } from 'node:net'
import { getRequestListener, RequestError } from '@hono/node-server'
import { milliseconds, wholeNumber } from '../src/base/options.ts'
import { refuse } from '../src/http/answers.ts'
import { countRefusals } from './node-refusals.ts'
import { type Runtime, type Served, type ServeOptions, type Server, serveOn } from './runtime.ts'

export { exitWithError } from './startup-errors.ts'
export type { Listening, Served, ServeOptions, Server, Signal } from './runtime.ts'

/** Options of {@link serve} on Node: beside the common ones, limits against slow and many clients. */
export interface NodeServeOptions extends ServeOptions {
  /** How long a client may take to send the headers, in milliseconds. Default 10,000. */
  readonly headersTimeoutMs?: number
  /** How long a client may take to send the whole request, in milliseconds. Default 30,000. */
  readonly requestTimeoutMs?: number
  /** How long an idle connection stays open, in milliseconds. Default 65,000: longer than the proxies before it keep theirs. */
  readonly keepAliveTimeoutMs?: number
  /** Connections at once; more are closed as they come. Default 20,000: ten thousand idle ones leave room for others. */
  readonly maxConnections?: number
}

const node: Runtime<NodeServeOptions> = {
  name: () => `Node ${process.versions.node}`,
  variables: () => process.env,
  rules: {
    headersTimeoutMs: milliseconds(1),
    requestTimeoutMs: milliseconds(1),
    keepAliveTimeoutMs: milliseconds(1),
    maxConnections: wholeNumber(1),
  },

  async listen(answerer, options, _wantsConnection, refused) {
    let stopping = false
    const answer = getRequestListener((request, connection) => answerer(request, connection), {
      overrideGlobalObjects: true,
      // Health checks of older load balancers send no Host.
      hostname: 'localhost',
      errorHandler,
    })
    const timeouts = timeoutsOf(options)
    const listener: Parameters<typeof createServer>[1] = (incoming, outgoing) => {
      // A client that is told to close its connection does not meet a closed one with its next message.
      if (stopping) outgoing.shouldKeepAlive = false
      void answer(incoming, outgoing)
    }
    const server: HttpServer = options.tls
      ? createSecureServer({ ...timeouts, ...options.tls }, listener)
      : createServer(timeouts, listener)
    server.maxConnections = options.maxConnections ?? 20_000
    countRefusals(server, refused)
    const sockets = new Set<Socket>()
    server.on('connection', (socket: Socket) => {
      sockets.add(socket)
      socket.once('close', () => sockets.delete(socket))
    })
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject)
      server.listen(options.port ?? 3000, options.hostname, () => {
        server.off('error', reject)
        resolve()
      })
    })
    return {
      port: portOf(server),
      stop(graceMs) {
        stopping = true
        return stopServer(server, sockets, graceMs)
      },
    }
  },

  onSignal(signal, stop) {
    process.on(signal, stop)
    return () => process.off(signal, stop)
  },

  raise(signal) {
    process.kill(process.pid, signal)
  },
}

function timeoutsOf(options: NodeServeOptions): ServerOptions {
  const { headersTimeoutMs = 10_000, requestTimeoutMs = 30_000, keepAliveTimeoutMs = 65_000 } = options
  // Node refuses to start when the headers may take longer than the request.
  const headersTimeout = Math.min(headersTimeoutMs, requestTimeoutMs)
  return {
    headersTimeout,
    requestTimeout: requestTimeoutMs,
    keepAliveTimeout: keepAliveTimeoutMs,
    // How often Node looks for connections that are over these limits.
    connectionsCheckingInterval: Math.min(1_000, headersTimeout),
  }
}

/** For what never becomes a `Request`, and for a host that threw past its own error handler. */
function errorHandler(error: unknown): Response {
  if (!(error instanceof RequestError)) return new Response(null, { status: 500 })
  const { status, headers, body } = refuse({ error: 'request_unreadable' })
  return new Response(body, { status, headers })
}

function portOf(server: HttpServer): number {
  const address = server.address()
  return typeof address === 'object' && address !== null ? address.port : 0
}

/** `close` alone waits for seconds for idle connections, and for ever for those on which nothing was ever sent. */
async function stopServer(server: HttpServer, sockets: ReadonlySet<Socket>, graceMs: number): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()))
  const idle = setInterval(() => {
    server.closeIdleConnections()
    for (const socket of sockets) if (socket.bytesRead === 0) socket.destroy()
  }, 50)
  const lingering = setTimeout(() => {
    // Not `closeAllConnections`: it does not know of those that are still at their TLS handshake.
    for (const socket of sockets) socket.destroy()
  }, graceMs)
  try {
    await closed
  } finally {
    clearInterval(idle)
    clearTimeout(lingering)
  }
}

/**
 * Serves a receiver, or a Hono app that mounts one, on Node.
 *
 * Resolves once it listens; rejects when it cannot (a port that is taken). On SIGTERM and SIGINT it closes listening
 * sockets, idle and then lingering connections, drains, and lets the process end; it never calls `process.exit`.
 *
 * @example
 * ```ts
 * import { createReceiver } from 'fleethook'
 * import { serve } from 'fleethook/node'
 *
 * const receiver = createReceiver({ secret: process.env.WEBHOOK_SECRET }).on('data', (event) => console.log(event.vin))
 * const server = await serve(receiver, { port: 3000 })
 * console.log(server.url)
 * ```
 */
export const serve: (served: Served, options?: NodeServeOptions) => Promise<Server> = serveOn(node)
