import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import type { Server } from 'node:http'
import { serve } from '@hono/node-server'
import type { Command } from 'commander'
import { Hono } from 'hono'
import { FleethookError, withHint } from '../../src/base/errors.ts'
import { createShell } from '../../src/inspector/shell.ts'
import { guardRoutes } from '../../src/operator/guard.ts'
import { whole } from './arguments.ts'
import { type ConnectionOptions, operates, Operator } from './operator.ts'

interface Given {
  readonly port: number
}

export function defineInspect(command: Command): void {
  command
    .description(
      'Shows a running receiver on a page in the browser until Ctrl+C: what arrives, what its handlers do with it, and what goes wrong. ' +
        'The page is only for this machine. Its address contains a secret that is new each time.',
    )
    .option('--port <n>', 'the port of the page; 0 takes any free port', whole(0, 65_535), 0)
  operates<[], Given>(
    command,
    async ({ to, operator, print }, { port }) => {
      await operator.ask('GET', '/about')
      const ended = new Promise<void>((resolve) => {
        for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => resolve())
      })
      // The address of the page says which branch it shows, and links to the others.
      const path = to.branch === undefined ? '/' : `/branches/${encodeURIComponent(to.branch)}/`
      const page = await servePage(dataOf({ ...to, branch: undefined }), port, path).catch((cause: unknown) => {
        const why = cause instanceof Error && 'code' in cause ? String(cause.code) : String(cause)
        throw new FleethookError('option_invalid', `Cannot listen on port ${port}: ${why}.`, {
          hint: 'Give --port another one, or leave it out.',
          cause,
        })
      })
      print({ url: page.url }, () => page.url)
      await ended
      await page.close()
      return true
    },
    'receiver',
  )
}

/** Forwards the page's requests to the receiver. Prints a line when it stops, and one when it runs again. */
export function dataOf(to: ConnectionOptions): (request: Request) => Promise<Response> {
  const operator = new Operator(to, 'receiver')
  let isGone = false
  const say = (gone: boolean, line: string): void => {
    if (gone !== isGone) console.error(line)
    isGone = gone
  }
  return async (request) => {
    const { pathname, search } = new URL(request.url)
    const body = request.method === 'GET' ? undefined : await request.text()
    try {
      const { method, signal } = request
      const answer = await operator.pass({ method, path: `${pathname}${search}`, body, signal })
      say(false, 'The receiver runs again.')
      const stopped = (): void => {
        if (!signal.aborted) say(true, stoppedLine)
      }
      return new Response(answer.body && untilBroken(answer.body, stopped), {
        status: answer.status,
        headers: { 'content-type': answer.headers.get('content-type') ?? '' },
      })
    } catch (error) {
      if (!request.signal.aborted) say(true, stoppedLine)
      const text = error instanceof FleethookError ? withHint(error) : 'The receiver closed the connection.'
      // What to do about `receiver_stopped`: Start the receiver again: the page continues by itself.
      return Response.json({ error: 'receiver_stopped', text }, { status: 503 })
    }
  }
}

const stoppedLine = 'The receiver stopped. Waiting until it runs again. Press Ctrl+C to end.'

/** The feed ends when the receiver does. The page's server would print the error of a body with its stack. */
function untilBroken(body: ReadableStream<Uint8Array>, broken: () => void): ReadableStream<Uint8Array> {
  const reader = body.getReader()
  return new ReadableStream({
    async pull(controller) {
      try {
        const { done, value } = await reader.read()
        if (done) controller.close()
        else controller.enqueue(value)
      } catch {
        broken()
        controller.close()
      }
    },
    cancel: (reason) => reader.cancel(reason),
  })
}

interface PageServer {
  /** Opens the page, with the secret of this server in the fragment, which a browser sends to nobody. */
  readonly url: string
  close(): Promise<void>
}

/** Serves the inspector's page on 127.0.0.1, with `data` behind a new secret. Rejects when the port is taken. */
export async function servePage(
  data: (request: Request) => Response | Promise<Response>,
  port: number = 0,
  path: string = '/',
): Promise<PageServer> {
  const secret = randomBytes(18).toString('base64url')
  let hosts: readonly string[] = []
  const app = new Hono()
  // A site in the browser can send requests here, even under its own name if that name resolves to this machine.
  app.use(async (c, next) => {
    const isOwn = hosts.includes(c.req.header('host') ?? '')
    if (isOwn && c.req.header('sec-fetch-site') !== 'cross-site') return next()
    // What to do about `origin_refused`: Use the address that the command printed.
    return c.json({ error: 'origin_refused', text: 'This page is only for its own address.' }, 403)
  })
  app.route('/', createShell())
  app.route('/branches/:branch', createShell())
  app.route(
    '/',
    guardRoutes(
      'servePage',
      secret,
      new Hono().all('*', (c) => data(c.req.raw)),
    ),
  )
  const server = serve({ fetch: app.fetch, port, hostname: '127.0.0.1', overrideGlobalObjects: false }) as Server // oxlint-disable-line no-unsafe-type-assertion -- no createServer is given: it is one of node:http
  if (!server.listening) await once(server, 'listening')
  const address = server.address()
  const taken = typeof address === 'object' && address !== null ? address.port : port
  hosts = [`127.0.0.1:${taken}`, `localhost:${taken}`]
  return {
    url: `http://127.0.0.1:${taken}${path}#secret=${secret}`,
    async close() {
      const closed = once(server, 'close')
      server.close()
      server.closeAllConnections()
      await closed
    },
  }
}
