// A receiver with a SQLite inbox, served on Node, Bun or Deno: `program.ts <node|bun|deno>`, settings in the environment.
import { argv, env } from 'node:process'
import { sqliteInbox } from '../../../adapters/inbox/sqlite.ts'
import { createReceiver } from '../../../src/index.ts'

const { handlerMs = 200, burnMs = 0 }: { handlerMs?: number; burnMs?: number } = JSON.parse(env['SETTINGS'] ?? '{}')
const adapters = {
  node: () => import('../../../adapters/node.ts'),
  bun: () => import('../../../adapters/bun.ts'),
  deno: () => import('../../../adapters/deno.ts'),
}
const { serve } = await adapters[argv[2] === 'bun' || argv[2] === 'deno' ? argv[2] : 'node']()
const path = env['INBOX']
const receiver = createReceiver({
  secret: 'a-secret-of-the-tests',
  ...(path === undefined ? {} : { inbox: sqliteInbox({ path, waitMs: 30_000 }) }),
  concurrency: 64,
}).on('*', async () => {
  for (const end = performance.now() + burnMs; performance.now() < end;);
  await new Promise((resolve) => setTimeout(resolve, handlerMs))
})
const server = await serve(receiver, JSON.parse(env['SERVE'] ?? '{}'))
console.log(`closed ${JSON.stringify(await server.closed)}`)
