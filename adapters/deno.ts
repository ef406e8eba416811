/**
 * `serve` for Deno, on `Deno.serve`.
 *
 * @module
 */
import process from 'node:process'
import { FleethookError } from '../src/base/errors.ts'
import {
  type Runtime,
  type Served,
  type ServeOptions,
  type Server,
  type Signal,
  serveOn,
  type TlsTexts,
} from './runtime.ts'

export type { Served, ServeOptions, Server, Signal, TlsFiles, TlsOptions, TlsTexts } from './runtime.ts'

interface Deno {
  readonly version: { readonly deno: string }
  readonly env: { get(name: string): string | undefined }
  serve(
    options: {
      readonly port: number
      readonly hostname: string
      readonly reusePort: boolean
      readonly cert?: string
      readonly key?: string
      readonly signal: AbortSignal
      readonly onListen: () => void
    },
    handler: (request: Request, info: { readonly remoteAddr: unknown }) => Response | Promise<Response>,
  ): {
    readonly addr: { readonly port: number }
    /** Closes idle connections, and resolves when the others are done. Requests whose bodies are still coming fail. */
    shutdown(): Promise<void>
  }
  addSignalListener(signal: Signal, listener: () => void): void
  removeSignalListener(signal: Signal, listener: () => void): void
  exit(code: number): never
}

declare const Deno: Deno | undefined

function denoItself(): Deno {
  if (typeof Deno !== 'undefined') return Deno
  throw new FleethookError('option_invalid', '`serve` of fleethook/deno was called, and this is not Deno.', {
    hint: 'Import it from fleethook/node or fleethook/bun; on Workers use fleethook/workers.',
  })
}

const nothingKnown = {}
const exitCodes: Readonly<Record<Signal, number>> = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 }

/** `deno task` passes on the SIGINT that the terminal has sent to the program as well: Ctrl+C, pressed once, comes twice. */
const echoMs = 500

const deno: Runtime<ServeOptions> = {
  name: () => (isDeploy() ? 'Deno Deploy' : `Deno ${denoItself().version.deno}`),
  variables: () => process.env,
  noInheritedSocket: 'Deno.serve cannot listen on an inherited socket; `serve` of fleethook/node can, on Deno too.',

  cannotKeep(ack) {
    if (ack !== 'received' || !isDeploy()) return undefined
    return 'an isolate may end with its answer, before the message was stored or handled'
  },

  async listen({ fetch, wantsConnection }, options, tls) {
    const stopping = new AbortController()
    const traffic = new Traffic()
    // Deno makes the information about a connection only for handlers with two parameters. It costs a tenth of a message.
    const server = serveEverywhere(
      options,
      tls,
      stopping.signal,
      wantsConnection
        ? (request, info) => traffic.count(fetch(request, { remoteAddr: info.remoteAddr }))
        : (request) => traffic.count(fetch(request, nothingKnown)),
    )
    return {
      port: server.addr.port,
      async stop(graceMs) {
        let shutting = false
        const shutDown = (): Promise<void> => {
          shutting = true
          return server.shutdown()
        }
        let deadline: ReturnType<typeof setTimeout> | undefined
        const isOver = new Promise<void>((resolve) => {
          deadline = setTimeout(resolve, graceMs)
        })
        await Promise.race([traffic.whenQuiet(shutDown), isOver])
        // Aborting ends everything, lingering connections too; after `shutdown` it would crash the process.
        if (!shutting) {
          traffic.forget()
          stopping.abort()
        }
        clearTimeout(deadline)
      },
    }
  },

  onSignal(signal, stop) {
    let lastMs = -Infinity
    const heard = (): void => {
      const nowMs = performance.now()
      if (signal === 'SIGINT' && nowMs - lastMs < echoMs) return
      lastMs = nowMs
      stop()
    }
    denoItself().addSignalListener(signal, heard)
    return () => denoItself().removeSignalListener(signal, heard)
  },

  // Deno still catches a signal after its last listener is removed, and sending a signal needs a permission.
  raise: (signal) => denoItself().exit(exitCodes[signal]),
}

/** Deno Deploy sets this variable. A program that may not read it does not run there. */
function isDeploy(): boolean {
  try {
    return denoItself().env.get('DENO_DEPLOYMENT_ID') !== undefined
  } catch {
    return false
  }
}

/** Listens on IPv6 and IPv4 where the machine has both: Deno's own default leaves out IPv6. */
function serveEverywhere(
  { port = 3000, hostname, reusePort = false }: ServeOptions,
  tls: TlsTexts | undefined,
  signal: AbortSignal,
  handler: Parameters<Deno['serve']>[1],
): ReturnType<Deno['serve']> {
  const serveOn = (address: string): ReturnType<Deno['serve']> =>
    denoItself().serve({ ...tls, port, hostname: address, reusePort, signal, onListen: () => {} }, handler)
  if (hostname !== undefined) return serveOn(hostname)
  try {
    return serveOn('::')
  } catch (error) {
    if (error instanceof Error && error.name === 'AddrInUse') throw error
    return serveOn('0.0.0.0')
  }
}

/** Counts requests that are not answered yet: Deno 2.9 fails requests whose bodies are still coming when it shuts down. */
class Traffic {
  #underWay = 0
  #awaited: (() => void) | undefined

  count(answer: Response | Promise<Response>): Response | Promise<Response> {
    if (answer instanceof Response) return answer
    this.#underWay += 1
    answer.then(this.#answered, this.#answered)
    return answer
  }

  /** Calls `run` once, as soon as no request is under way and before another can begin. Resolves when `run` has finished. */
  whenQuiet(run: () => Promise<void>): Promise<void> {
    return new Promise((resolve) => {
      this.#awaited = () => resolve(run())
      this.#check()
    })
  }

  forget(): void {
    this.#awaited = undefined
  }

  readonly #answered = (): void => {
    this.#underWay -= 1
    this.#check()
  }

  #check(): void {
    if (this.#underWay > 0) return
    const now = this.#awaited
    this.#awaited = undefined
    now?.()
  }
}

/**
 * Serves a receiver, or a Hono app that mounts one, on Deno.
 *
 * Resolves once it listens; rejects when it cannot (a port that is taken). On SIGTERM and SIGINT it lets requests that are
 * under way finish, closes the listening socket and the connections, drains, and lets the process end. If something else
 * keeps the process alive, it ends two seconds later, unless `exit` is `false`. A second signal ends it at once. Environment
 * variables reach `secret` functions and handlers as `env`.
 *
 * On Deno Deploy `ack: 'received'` is refused, because nothing is sure to run after an answer there.
 *
 * @example
 * ```ts
 * import { createReceiver } from 'fleethook'
 * import { serve } from 'fleethook/deno'
 *
 * const receiver = createReceiver({ secret: process.env.WEBHOOK_SECRET }).on('data', (event) => console.log(event.vin))
 * const server = await serve(receiver, { port: 3000 })
 * console.log(server.url)
 * ```
 */
export const serve: (served: Served, options?: ServeOptions) => Promise<Server> = serveOn(deno)
