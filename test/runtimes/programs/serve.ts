// Runs the app on Node, Bun or Deno: `serve.ts <node|bun|deno>`, settings in the environment.
import { env, argv } from 'node:process'
import { createApp, type Seen } from './app.ts'

const { serve } = await load(argv[2])
const app = createApp(JSON.parse(env['SETTINGS'] ?? '{}'))
const server = await serve(app, {
  port: 0,
  hostname: '127.0.0.1',
  ...JSON.parse(env['SERVE'] ?? '{}'),
})
console.log(`closed ${JSON.stringify(await server.closed)}`)
const { stats }: Seen = await (await app.request('/seen')).json()
console.log(`stats ${JSON.stringify(stats)}`)

function load(runtime: string | undefined): Promise<typeof import('../../../adapters/node.ts')> {
  if (runtime === 'bun') return import('../../../adapters/bun.ts')
  if (runtime === 'deno') return import('../../../adapters/deno.ts')
  return import('../../../adapters/node.ts')
}
