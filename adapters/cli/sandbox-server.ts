import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { Agent as HttpAgent, type Server, type ServerResponse } from 'node:http'
import { Agent as HttpsAgent } from 'node:https'
import { serve } from '@hono/node-server'
import { FleethookError } from '../../src/base/errors.ts'
import { escapeControls } from '../../src/events/summarize.ts'
import type { ActivityLine, PostMessage, SandboxOptions } from '../../src/service/sandbox/options.ts'
import { createSandbox } from '../../src/service/sandbox/sandbox.ts'
import { exchange } from './exchange.ts'
import { colorsFor } from './terminal.ts'

interface SandboxServerOptions extends Omit<SandboxOptions, 'post' | 'clock' | 'show'> {
  readonly port: number
  readonly hostname: string
}

/** Serves a sandbox until Ctrl+C. Rejects when it cannot listen. */
export async function run({ port, hostname, ...options }: SandboxServerOptions): Promise<void> {
  const { bold, dim, yellow } = colorsFor(process.stdout)
  const made = options.apiKey === undefined ? `sandbox-${randomBytes(18).toString('base64url')}` : undefined
  const { post, close } = createPost()
  // Before anything is printed, because a program that reads the address may stop the command at once.
  let stopping = false
  const stopped = new Promise<void>((resolve) => {
    const stop = (): void => {
      if (stopping) process.exit(130)
      stopping = true
      resolve()
    }
    process.on('SIGINT', stop)
    process.on('SIGTERM', stop)
  })
  const sandbox = createSandbox({ ...options, apiKey: options.apiKey ?? made, post, show: showLine })
  const server = serve({ fetch: sandbox.fetch, port, hostname }) as Server // oxlint-disable-line no-unsafe-type-assertion -- no createServer is given: it is one of node:http
  tolerateStrayChunks(server)
  try {
    if (!server.listening) await once(server, 'listening')
  } catch (cause) {
    // The vehicles already drive, and would keep the process alive.
    await sandbox.close()
    close()
    throw cannotListen(cause, hostname, port)
  }
  const address = server.address()
  const url = `http://${hostname.includes(':') ? `[${hostname}]` : hostname}:${typeof address === 'object' ? address?.port : port}`

  console.log(`${bold('sandbox listening on')} ${url}\n`)
  console.log(`  SERVICE_URL=${url}`)
  console.log(`  SERVICE_API_KEY=${made ?? dim('(as you set it)')}\n`)
  if (options.allowLocal)
    console.log(`${yellow('--allow-local:')} the webhook may be on this machine. The real service refuses that.\n`)

  await stopped
  await sandbox.close()
  const closed = once(server, 'close')
  server.close()
  server.closeAllConnections()
  await closed
  close()
}

function showLine({ kind, failed, text }: ActivityLine): void {
  const { dim, red, yellow } = colorsFor(process.stdout)
  const line = escapeControls(text)
  if (kind === 'delivery') console.log(failed ? red(line) : line)
  else console.log(failed ? yellow(line) : dim(line))
}

/** A chunk of zero bytes: the end of a chunked body. */
const lastChunk = /(^|\r\n)0\r\n\r\n$/

/** A widely used client sends the last chunk of a GET twice. Node would answer 400 in the middle of the stream. */
function tolerateStrayChunks(server: Server): void {
  const answers = new WeakMap<object, ServerResponse>()
  server.on('request', ({ socket }, answer) => void answers.set(socket, answer))
  server.on('clientError', (error, socket) => {
    const packet: unknown = 'rawPacket' in error ? error.rawPacket : undefined
    const isStray = packet instanceof Uint8Array && lastChunk.test(Buffer.from(packet).toString('latin1'))
    const answer = answers.get(socket)
    if (isStray && answer !== undefined && !answer.destroyed) {
      // Node reads nothing more from this connection, so it ends with the answer.
      if (answer.writableFinished) socket.end()
      else answer.once('finish', () => socket.end())
    } else if (socket.writable) socket.end('HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n')
    else socket.destroy()
  })
}

function cannotListen(cause: unknown, hostname: string, port: number): FleethookError {
  const code = cause instanceof Error && 'code' in cause ? String(cause.code) : String(cause)
  const hint =
    code === 'EADDRINUSE'
      ? 'Another process has this port. Stop it, or choose another port with --port; 0 takes any free port.'
      : undefined
  return new FleethookError('listen_failed', `The sandbox could not listen on ${hostname}:${port}: ${code}.`, {
    cause,
    hint,
  })
}

/** Posts messages over connections that stay open. Checks the TLS certificate, or not, as the webhook says. */
export function createPost(): { readonly post: PostMessage; readonly close: () => void } {
  const limits = { keepAlive: true, maxSockets: 64 }
  const plain = new HttpAgent(limits)
  const checked = new HttpsAgent(limits)
  const unchecked = new HttpsAgent({ ...limits, rejectUnauthorized: false })

  const post: PostMessage = async ({ url, headers, body, verify, signal }) => {
    const secure = new URL(url).protocol === 'https:'
    const agent = secure ? (verify ? checked : unchecked) : plain
    const { status } = await exchange(url, { agent, signal, headers: { ...headers }, body })
    return status
  }

  return {
    post,
    close() {
      for (const agent of [plain, checked, unchecked]) agent.destroy()
    },
  }
}
