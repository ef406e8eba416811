// A receiver with a SQLite inbox, served on Node, Bun or Deno: `program.ts <node|bun|deno>`, settings in the environment. It writes
// what its handlers get to a journal.
import { appendFileSync } from 'node:fs'
import { argv, env, pid } from 'node:process'
import { sqliteInbox } from '../../../adapters/inbox/sqlite.ts'
import { createReceiver } from '../../../src/index.ts'
import type { JournalLine } from '../process/journal.ts'

const { handlerMs = 200, burnMs = 0 }: { handlerMs?: number; burnMs?: number } = JSON.parse(env['SETTINGS'] ?? '{}')
const adapters = {
  node: () => import('../../../adapters/node.ts'),
  bun: () => import('../../../adapters/bun.ts'),
  deno: () => import('../../../adapters/deno.ts'),
}
const { serve } = await adapters[argv[2] === 'bun' || argv[2] === 'deno' ? argv[2] : 'node']()
const { INBOX: path = '', ADOPT: adopt, JOURNAL: journal } = env

function note(line: JournalLine): void {
  if (journal !== undefined) appendFileSync(journal, `${JSON.stringify(line)}\n`)
}

const receiver = createReceiver({
  secret: 'a-secret-of-the-tests',
  inbox: sqliteInbox({ path, waitMs: 30_000, ...(adopt === undefined ? {} : { adopt }) }),
  concurrency: 64,
})
  .on('data', async ({ vin, data }, { delivery: { id: delivery, attempt, redelivered } }) => {
    for (const end = performance.now() + burnMs; performance.now() < end;);
    await new Promise((resolve) => setTimeout(resolve, handlerMs))
    const atMs = Date.now()
    note({ kind: 'run', pid, vin, number: data.Odometer ?? -1, delivery, attempt, redelivered, atMs })
  })
  .on('gap', ({ reason, from, to, missed }) => {
    note({ kind: 'gap', pid, reason, fromMs: from.getTime(), toMs: to.getTime(), missed })
  })
const server = await serve(receiver, JSON.parse(env['SERVE'] ?? '{}'))
setInterval(() => {
  const { pending, openGaps } = receiver.stats()
  if (pending.messages === 0 && openGaps === 0) console.log('idle')
}, 100).unref()
console.log(`closed ${JSON.stringify(await server.closed)}`)
