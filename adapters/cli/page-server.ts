import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import type { Server } from 'node:http'
import { serve } from '@hono/node-server'
import { Hono } from 'hono'
import { createShell } from '../../src/inspector/shell.ts'
import { guardRoutes } from '../../src/operator/guard.ts'

interface PageServer {
  /** Opens the page, with the secret of this server in the fragment, which a browser sends to nobody. */
  readonly url: string
  close(): Promise<void>
}

/** Serves the inspector's page on 127.0.0.1, with `data` behind a new secret. Rejects when the port is taken. */
export async function servePage(
  data: (request: Request) => Response | Promise<Response>,
  port: number = 0,
): Promise<PageServer> {
  const secret = randomBytes(18).toString('base64url')
  let hosts: readonly string[] = []
  const app = new Hono()
  // A site in the browser can send requests here, even under its own name if that name resolves to this machine.
  app.use(async (c, next) => {
    const isOwn = hosts.includes(c.req.header('host') ?? '')
    if (isOwn && c.req.header('sec-fetch-site') !== 'cross-site') return next()
    return c.json({ error: 'origin_refused', text: 'This page is only for its own address.' }, 403)
  })
  app.route('/', createShell())
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
    url: `http://127.0.0.1:${taken}/#secret=${secret}`,
    async close() {
      const closed = once(server, 'close')
      server.close()
      server.closeAllConnections()
      await closed
    },
  }
}
