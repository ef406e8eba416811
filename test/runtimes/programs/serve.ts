// Runs the app on Node, Bun or Deno: `serve.ts <node|bun|deno>`, settings in the environment.
import { argv, env } from 'node:process'
import type { Context } from 'hono'
import { createApp, type Seen } from './app.ts'

interface Host {
  readonly serve: typeof import('../../../adapters/node.ts').serve
  readonly getConnInfo: (c: Context) => { readonly remote: { readonly address?: string | undefined } }
}

const { serve, getConnInfo } = await load(argv[2])
const app = createApp(JSON.parse(env['SETTINGS'] ?? '{}')).get('/remote', (c) => c.json(getConnInfo(c).remote.address))
const server = await serve(app, { port: 0, ...JSON.parse(env['SERVE'] ?? '{}') })
console.log(`closed ${JSON.stringify(await server.closed)}`)
const { stats }: Seen = await (await app.request('/seen')).json()
console.log(`stats ${JSON.stringify(stats)}`)

async function load(runtime: string | undefined): Promise<Host> {
  if (runtime === 'bun') return { ...(await import('../../../adapters/bun.ts')), ...(await import('hono/bun')) }
  if (runtime === 'deno') return { ...(await import('../../../adapters/deno.ts')), ...(await import('hono/deno')) }
  return { ...(await import('../../../adapters/node.ts')), ...(await import('@hono/node-server/conninfo')) }
}
