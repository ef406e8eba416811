/**
 * `serve` for Node, on `@hono/node-server`.
 *
 * @module
 */
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import type { IncomingMessage, RequestListener, Server as HttpServer, ServerOptions, ServerResponse } from 'node:http'
import type { ListenOptions, Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import type { RuntimeRefusal } from '../src/hosting/drainable.ts'
import { milliseconds, required, wholeNumber } from '../src/base/options.ts'
import { refuse } from '../src/http/answers.ts'
import { http } from './node-http.ts'
import { answeredLast, closeUnlessWhole, lastRequests, NodeRequest } from './node-request.ts'
import { launcherVariable, type LauncherMessage } from './serve-options.ts'
import { type Runtime, type Served, type ServedHere, type ServeOptions, type Server, serveOn } from './runtime.ts'

export { exitWithError } from './startup-errors.ts'
export type { Listening, Served, ServeOptions, Server, Signal, TlsFiles, TlsOptions, TlsTexts } from './runtime.ts'

/** Options of {@link serve} on Node: beside the common ones, limits against slow and many clients. */
export interface NodeServeOptions extends ServeOptions {
  /** How long a client may take to send the headers, in milliseconds. Default 10,000. */
  readonly headersTimeoutMs?: number
  /** How long a client may take to send the whole request, in milliseconds. Default 30,000. */
  readonly requestTimeoutMs?: number
  /**
   * How long an idle connection stays open, in milliseconds. Default 65,000: longer than the proxies in front of it keep
   * theirs.
   */
  readonly keepAliveTimeoutMs?: number
  /**
   * The file descriptor of a listening socket that the process inherits. Sockets of systemd (`LISTEN_FDS`) and of
   * `fleethook run` need no option: the first `serve` of the process takes the first one.
   */
  readonly listen?: { readonly fd: number }
  /**
   * The most open connections. Any more are closed as they come. Default 20,000, so that ten thousand idle ones leave room
   * for others. On Linux it is lower when the process may open fewer files. With fewer than 10,000, a line at the start says so.
   */
  readonly maxConnections?: number
}

/** Connections that wait in the kernel while one process stops and the next one starts. The kernel may allow fewer. */
const backlog = 4_096

const node: Runtime<NodeServeOptions> = {
  name: () => `Node ${process.versions.node}`,
  variables: () => process.env,
  listeningWasKept: ({ listen }) => listen !== undefined || hasInherited(),
  rules: {
    headersTimeoutMs: milliseconds(1),
    requestTimeoutMs: milliseconds(1),
    keepAliveTimeoutMs: milliseconds(1),
    listen: { fd: required(wholeNumber(3)) },
    maxConnections: wholeNumber(1),
  },

  async listen({ fetch, receiver, env, refused }, options, tls) {
    let isStopping = false
    const where = listenOptions(options)
    let appListener = receiver === undefined ? await createAppListener(fetch) : undefined
    const timeouts = timeoutsOf(options)
    const listenAsApp = async (incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> => {
      appListener ??= await createAppListener(fetch)
      appListener(incoming, outgoing)
    }
    const listener = (incoming: IncomingMessage, outgoing: ServerResponse): void => {
      if (answeredLast.has(incoming.socket)) return
      if (isStopping) lastRequests.set(incoming.socket, incoming)
      const request = new NodeRequest(incoming, outgoing, env, receiver?.targets)
      if (receiver === undefined || request.target === undefined) void listenAsApp(incoming, outgoing)
      else request.answerBy(receiver)
    }
    const secure = tls && (await import('node:https')).createServer({ ...timeouts, ...tls }, listener)
    const server: HttpServer = secure ?? http.createServer(timeouts, listener)
    server.on('checkContinue', (incoming, outgoing) => {
      continueWhenRead(incoming, outgoing)
      listener(incoming, outgoing)
    })
    server.maxConnections = mostConnections(options)
    countRefusals(server, secure !== undefined, refused)
    answerUnreadable(server)
    const sockets = new Map<Socket, number>()
    server.on('connection', (socket: Socket) => {
      sockets.set(socket, performance.now())
      socket.once('close', () => sockets.delete(socket))
    })
    server.listen(where, backlog)
    await once(server, 'listening')
    return {
      port: portOf(server),
      useCertificate: (texts) => secure?.setSecureContext(texts),
      isIdle: () => sockets.size === 0,
      beginStop() {
        isStopping = true
      },
      hasNext(connection) {
        const incoming = 'incoming' in connection && connection.incoming
        return incoming instanceof http.IncomingMessage && lastRequests.get(incoming.socket) !== incoming
      },
      stop: (graceMs) => stopServer(server, sockets, graceMs),
    }
  },

  opening: () => tellLauncher('opening'),
  opened: () => tellLauncher('listening'),

  onSignal(signal, stop) {
    process.on(signal, stop)
    // Without its `fleethook run`, nobody would stop this process.
    const launched = signal === 'SIGTERM' && process.env[launcherVariable] === String(process.ppid)
    if (launched) {
      process.once('disconnect', stop)
      process.channel?.unref()
    }
    return () => {
      process.off(signal, stop)
      if (launched) process.off('disconnect', stop)
    }
  },
}

/** The default of `maxConnections` leaves room beside this number of idle connections. */
const idleConnections = 10_000
/** The most descriptors that are left for inboxes, for handlers and for files, and their share of the limit. */
const mostSpare = 1_024
const spareShare = 0.25

/** Without a descriptor for it, the kernel resets a connection that nobody counts. So `maxConnections` stays below that limit. */
function mostConnections(options: NodeServeOptions): number {
  const { maxConnections = 20_000, announce = true } = options
  if (process.platform !== 'linux') return maxConnections
  try {
    const files = Number(/^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1] ?? Infinity)
    const spare = Math.min(mostSpare, Math.ceil(files * spareShare))
    const room = Math.max(1, files - spare - readdirSync('/proc/self/fd').length)
    if (room >= maxConnections) return maxConnections
    // What to do about `at most … connections, not …: this process may open … files`: Raise `ulimit -n` (systemd: `LimitNOFILE`), or lower
    // `maxConnections`.
    const line = `at most ${room} connections, not ${maxConnections}: this process may open ${files} files. Raise it with ulimit -n.`
    if (announce && room < (options.maxConnections ?? idleConnections)) console.info(`fleethook: ${line}`)
    return room
  } catch {
    // There is no /proc.
    return maxConnections
  }
}

function timeoutsOf(options: NodeServeOptions): ServerOptions {
  const { headersTimeoutMs = 10_000, requestTimeoutMs = 30_000, keepAliveTimeoutMs = 65_000 } = options
  // Node refuses to start when the headers may take longer than the request.
  const headersTimeout = Math.min(headersTimeoutMs, requestTimeoutMs)
  return {
    headersTimeout,
    requestTimeout: requestTimeoutMs,
    keepAliveTimeout: keepAliveTimeoutMs,
    // The time between two checks for connections over these limits.
    connectionsCheckingInterval: Math.min(1_000, headersTimeout),
  }
}

/** The listener for an app and for other paths. Loaded when needed: that takes a third as long as the receiver. */
async function createAppListener(fetch: ServedHere['fetch']): Promise<RequestListener> {
  const { getRequestListener } = await import('@hono/node-server')
  const listener = getRequestListener(
    async (request, connection) => {
      try {
        return await fetch(request, connection)
      } catch {
        return new Response(null, { status: 500 }) // The host threw past its own error handler.
      } finally {
        const { incoming, outgoing } = connection
        if (incoming instanceof http.IncomingMessage && outgoing instanceof http.ServerResponse)
          await closeUnlessWhole(incoming, outgoing)
      }
    },
    {
      overrideGlobalObjects: true,
      // Health checks of older load balancers send no Host.
      hostname: 'localhost',
      // Answers a request that cannot become a `Request`.
      errorHandler() {
        const { status, headers, body } = refuse({ error: 'request_unreadable' })
        return new Response(body, { status, headers: { ...headers, connection: 'close' } })
      },
    },
  )
  return (incoming, outgoing) => void listener(incoming, outgoing)
}

function portOf(server: HttpServer): number {
  const address = server.address()
  return typeof address === 'object' && address !== null ? address.port : 0
}

/** The socket that the process inherits, or the address of a new one. */
function listenOptions({
  port = 3000,
  hostname,
  listen,
  reusePort,
}: NodeServeOptions): ListenOptions & { readonly fd?: number } {
  const fd = listen?.fd ?? nextInherited()
  if (fd !== undefined) return { fd }
  return { port, ...(hostname === undefined ? {} : { host: hostname }), ...(reusePort ? { reusePort } : {}) }
}

let inheritedTaken = 0

/** Whether systemd or `fleethook run` left a socket that no `serve` of this process has taken. */
function hasInherited(): boolean {
  const { LISTEN_FDS, LISTEN_PID, [launcherVariable]: launcher } = process.env
  const isOurs = LISTEN_PID === undefined ? launcher === String(process.ppid) : LISTEN_PID === String(process.pid)
  return isOurs && inheritedTaken < Number(LISTEN_FDS)
}

/** The next such socket. Each `serve` of a process takes one. The first is descriptor 3. */
function nextInherited(): number | undefined {
  if (!hasInherited()) return undefined
  inheritedTaken += 1
  return 2 + inheritedTaken
}

/** Reports the progress of the start to the `fleethook run` that started this process, if there is one. */
function tellLauncher(step: LauncherMessage['fleethook']): void {
  if (process.env[launcherVariable] !== String(process.ppid)) return
  process.send?.({ fleethook: step } satisfies LauncherMessage)
}

/** Node's own answers to what it cannot read, by the code of the error. */
const unreadable: Readonly<Record<string, string>> = {
  HPE_HEADER_OVERFLOW: '431 Request Header Fields Too Large',
  HPE_CHUNK_EXTENSIONS_OVERFLOW: '413 Payload Too Large',
  ERR_HTTP_REQUEST_TIMEOUT: '408 Request Timeout',
}

/**
 * Answers what Node cannot read as Node does, but behind the answers to the requests before it on the same connection. Node sends its 400 at once,
 * and ends the connection: the sender takes that for the answer to an earlier message, which was stored, and sends it again.
 */
function answerUnreadable(server: HttpServer): void {
  const refusing = new WeakSet<Duplex>()
  server.on('clientError', (error, socket) => {
    // What follows in the connection, and its end, are errors of their own.
    if (refusing.has(socket)) return
    refusing.add(socket)
    const end = socket.end.bind(socket)
    const refuseInOrder = (): void => {
      const current: unknown = Reflect.get(socket, '_httpMessage')
      const isAnswering = current instanceof http.ServerResponse
      if (isAnswering && current.req.complete && socket.writable) {
        // Node ends the connection when the sender has done so, and then no answer leaves.
        socket.end = () => socket
        // Then the next answer has the connection.
        current.once('close', () => setImmediate(refuseInOrder))
        return
      }
      if (!socket.writable || (isAnswering && current.headersSent)) return void socket.destroy(error)
      const code = 'code' in error ? String(error.code) : ''
      end(`HTTP/1.1 ${unreadable[code] ?? '400 Bad Request'}\r\nConnection: close\r\n\r\n`, () => socket.destroy(error))
    }
    refuseInOrder()
  })
}

/** Counts the requests that Node refuses before a handler sees them. */
function countRefusals(server: HttpServer, isSecure: boolean, refused: (error: RuntimeRefusal) => void): void {
  server.on(isSecure ? 'secureConnection' : 'connection', (socket: Socket) => {
    socket.on('error', (error) => {
      const why = reasonOf(error, socket)
      if (why !== undefined) refused(why)
    })
  })
  server.on('checkExpectation', (incoming, outgoing) => {
    refused('expectation_unsupported')
    void closeUnlessWhole(incoming, outgoing).then(() => outgoing.writeHead(417).end())
  })
  // A connection over `maxConnections`.
  server.on('drop', () => refused('connections_exceeded'))
}

/** `undefined` when no request was refused: the connection broke, or the receiver answers the request that is under way. */
function reasonOf(error: Error, socket: Socket): RuntimeRefusal | undefined {
  if (!('code' in error) || Reflect.get(socket, '_httpMessage') || socket.bytesRead === 0) return undefined
  if (error.code === 'HPE_HEADER_OVERFLOW') return 'headers_too_large'
  if (error.code === 'ERR_HTTP_REQUEST_TIMEOUT') return 'request_timeout'
  return String(error.code).startsWith('HPE_') ? 'request_malformed' : undefined
}

/** Sends `100 Continue` only when somebody reads the body, after the secret was checked. Node would send it at once. */
function continueWhenRead(incoming: IncomingMessage, outgoing: ServerResponse): void {
  const { shouldKeepAlive } = outgoing
  outgoing.shouldKeepAlive = false
  const read = incoming._read.bind(incoming)
  incoming._read = (size) => {
    incoming._read = read
    if (!outgoing.headersSent) {
      outgoing.shouldKeepAlive = shouldKeepAlive
      outgoing.writeContinue()
    }
    read(size)
  }
}

/** How long a new connection may stay silent while the server stops, in milliseconds. Its first bytes may be on their way. */
const silentMs = 500

/** A turn of the event loop that took longer than this may have left requests unread, in milliseconds. */
const shortTurnMs = 5

/** Resolves after the event loop has read what had arrived: in the third short turn in a row, or after a second. */
async function nothingUnread(): Promise<void> {
  const startedMs = performance.now()
  let lastMs = startedMs
  for (let short = 0; short < 3 && lastMs - startedMs < 1_000;) {
    await new Promise<void>((resolve) => setImmediate(resolve))
    const nowMs = performance.now()
    short = nowMs - lastMs < shortTurnMs ? short + 1 : 0
    lastMs = nowMs
  }
}

/** `close` alone waits seconds for idle connections, and forever for connections on which nothing was ever sent. */
async function stopServer(server: HttpServer, sockets: ReadonlyMap<Socket, number>, graceMs: number): Promise<void> {
  await nothingUnread()
  const closedMs = performance.now()
  const closed = new Promise<void>((resolve) => server.close(() => resolve()))
  const idle = setInterval(() => {
    // Right after the event loop has read from the sockets, an idle connection is really idle.
    setImmediate(() => {
      server.closeIdleConnections()
      for (const [socket, acceptedMs] of sockets) {
        if (socket.bytesRead === 0 && performance.now() - Math.max(acceptedMs, closedMs) > silentMs) socket.destroy()
      }
    })
  }, 50)
  const lingering = setTimeout(() => {
    // Not `closeAllConnections`: it misses connections that are still in their TLS handshake.
    for (const socket of sockets.keys()) socket.destroy()
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
 * Resolves once it listens; rejects when it cannot (a port that is taken). On SIGTERM and SIGINT it closes listening sockets,
 * idle and then lingering connections, drains, and lets the process end. If something else keeps the process alive, it ends
 * two seconds later, unless `exit` is `false`.
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
