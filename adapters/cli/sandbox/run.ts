import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import type { Server } from 'node:http'
import { serve } from '@hono/node-server'
import { createSandbox } from '../../../src/service/sandbox/sandbox.ts'
import type { SandboxOptions } from '../../../src/service/sandbox/options.ts'
import { colorsFor } from '../colors.ts'
import { createPost } from './post.ts'
import { sqliteStore } from './store.ts'

/** What `fleethook sandbox` was asked to do. */
export interface RunOptions extends Omit<SandboxOptions, 'store' | 'post' | 'clock'> {
  readonly port: number
  readonly hostname: string
  /** The file of the state; without it, it is in memory. */
  readonly data: string | undefined
}

/** Serves a sandbox until Ctrl+C. Rejects when it cannot listen. */
export async function run({ port, hostname, data, ...options }: RunOptions): Promise<void> {
  const { bold, dim, yellow } = colorsFor(process.stdout)
  const made = options.apiKey === undefined ? `sandbox-${randomBytes(18).toString('base64url')}` : undefined
  const store = data === undefined ? undefined : sqliteStore(data)
  const { post, close } = createPost()
  // Before anything is said: whoever reads that it listens may stop it at once.
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
  const sandbox = createSandbox({
    ...options,
    apiKey: options.apiKey ?? made,
    post,
    ...(store === undefined ? {} : { store }),
  })
  const server = serve({ fetch: sandbox.fetch, port, hostname }) as Server // oxlint-disable-line no-unsafe-type-assertion -- no createServer is given: it is one of node:http
  try {
    if (!server.listening) await once(server, 'listening')
  } catch (cause) {
    // The vehicles are on the road already, and would keep the process.
    await sandbox.close()
    close()
    store?.close()
    throw new Error(cannotListen(cause, hostname, port), { cause })
  }
  const address = server.address()
  const url = `http://${hostname.includes(':') ? `[${hostname}]` : hostname}:${typeof address === 'object' ? address?.port : port}`

  console.log(`${bold('sandbox listening on')} ${url}\n`)
  console.log(`  SERVICE_URL=${url}`)
  console.log(`  SERVICE_API_KEY=${made ?? dim('(as you set it)')}\n`)
  if (options.allowLocal)
    console.log(`${yellow('--allow-local:')} the webhook may be on this machine, which the real service refuses.\n`)

  await stopped
  await sandbox.close()
  const closed = once(server, 'close')
  server.close()
  server.closeAllConnections()
  await closed
  close()
  store?.close()
}

function cannotListen(cause: unknown, hostname: string, port: number): string {
  const code = cause instanceof Error && 'code' in cause ? String(cause.code) : String(cause)
  const hint =
    code === 'EADDRINUSE'
      ? ' Another process has this port: stop it, or choose another one with --port; 0 takes any.'
      : ''
  return `The sandbox could not listen on ${hostname}:${port}: ${code}.${hint}`
}
