/**
 * `serve` for Bun, on `Bun.serve`.
 *
 * @module
 */
import process from 'node:process'
import { FleethookError } from '../src/base/errors.ts'
import { wholeNumber } from '../src/base/options.ts'
import { lastAnswer, type Runtime, type Served, type ServeOptions, type Server, serveOn } from './runtime.ts'

export type { Served, ServeOptions, Server, Signal, TlsFiles, TlsOptions, TlsTexts } from './runtime.ts'

/** Options of {@link serve} on Bun: beside the common ones, the limit that Bun has against slow clients. */
export interface BunServeOptions extends ServeOptions {
  /**
   * How long a client may leave a connection idle or a request unfinished, in milliseconds, at most 255,000. Bun rounds it up
   * to seconds and applies it roughly. Answers may take longer. Default 30,000.
   */
  readonly idleTimeoutMs?: number
}

interface Bun {
  readonly version: string
  serve(options: {
    readonly port: number
    readonly hostname?: string
    readonly tls?: { readonly cert: string; readonly key: string }
    readonly idleTimeout: number
    readonly development: false
    readonly reusePort: boolean
    readonly fetch: (request: Request, server: object) => Response | Promise<Response>
  }): {
    readonly port: number
    /** Resolves when no request is under way any more; `true` closes every connection at once. */
    stop(closeActiveConnections: boolean): Promise<void>
  }
}

declare const Bun: Bun | undefined

function bunItself(): Bun {
  if (typeof Bun !== 'undefined') return Bun
  throw new FleethookError('option_invalid', '`serve` of fleethook/bun was called, and this is not Bun.', {
    hint: 'Import it from fleethook/node or fleethook/deno; on Workers use fleethook/workers.',
  })
}

const bun: Runtime<BunServeOptions> = {
  name: () => `Bun ${bunItself().version}`,
  variables: () => process.env,
  rules: { idleTimeoutMs: wholeNumber(0, 255_000) },
  noInheritedSocket: 'Bun cannot serve HTTP on an inherited socket: use reusePort.',

  async listen({ fetch }, options, tls) {
    const { port = 3000, hostname, idleTimeoutMs = 30_000, reusePort = false } = options
    const server = bunItself().serve({
      port,
      ...(hostname === undefined ? {} : { hostname }),
      ...(tls === undefined ? {} : { tls }),
      idleTimeout: Math.ceil(idleTimeoutMs / 1000),
      // Otherwise Bun answers an error in one of the host's routes with its source code.
      development: false,
      // Without `development`, Bun shares a port among processes unless told not to: a second process would take half of the
      // messages.
      reusePort,
      fetch(request, connection) {
        const answer = fetch(request, { server: connection })
        // Bun takes a trailer for the next request, and its 400 would look like the answer to the message behind it.
        return request.headers.has('transfer-encoding') ? lastAnswer(answer) : answer
      },
    })
    return {
      port: server.port,
      async stop(graceMs) {
        const lingering = setTimeout(() => void server.stop(true), graceMs)
        await server.stop(false)
        clearTimeout(lingering)
      },
    }
  },

  onSignal(signal, stop) {
    process.on(signal, stop)
    return () => process.off(signal, stop)
  },
}

/**
 * Serves a receiver, or a Hono app that mounts one, on Bun.
 *
 * Resolves once it listens; rejects when it cannot (a port that is taken). On SIGTERM and SIGINT it closes listening sockets,
 * idle and then lingering connections, drains, and lets the process end. If something else keeps the process alive, it ends
 * two seconds later, unless `exit` is `false`. Environment variables reach `secret` functions and handlers as `env`.
 *
 * @example
 * ```ts
 * import { createReceiver } from 'fleethook'
 * import { serve } from 'fleethook/bun'
 *
 * const receiver = createReceiver({ secret: process.env.WEBHOOK_SECRET }).on('data', (event) => console.log(event.vin))
 * const server = await serve(receiver, { port: 3000 })
 * console.log(server.url)
 * ```
 */
export const serve: (served: Served, options?: BunServeOptions) => Promise<Server> = serveOn(bun)
