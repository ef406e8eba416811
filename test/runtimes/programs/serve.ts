// Runs the app on Node, Bun or Deno: `serve.ts <node|bun|deno>`, settings in the environment.
import { env, argv } from 'node:process'
import { createApp } from './app.ts'

const { serve } = await load(argv[2])
const server = await serve(createApp(JSON.parse(env['SETTINGS'] ?? '{}')), {
  port: 0,
  hostname: '127.0.0.1',
  ...JSON.parse(env['SERVE'] ?? '{}'),
})
console.log(`closed ${JSON.stringify(await server.closed)}`)

function load(runtime: string | undefined): Promise<typeof import('../../../adapters/node.ts')> {
  if (runtime === 'bun') return import('../../../adapters/bun.ts')
  if (runtime === 'deno') return import('../../../adapters/deno.ts')
  return import('../../../adapters/node.ts')
}
