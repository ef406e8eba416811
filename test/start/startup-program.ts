// Starts a receiver as our templates do: `<adapter> <inbox> <port> <what>`, where `what` says who catches the error.
import process from 'node:process'
import { createReceiver, FleethookError } from '../../src/index.ts'
import { sqliteInbox } from '../../adapters/inbox/sqlite.ts'

const [adapter, path = '', port, what] = process.argv.slice(2)
const { serve }: typeof import('../../adapters/node.ts') = await import(`../../adapters/${adapter}.ts`)
const receiver = createReceiver({ secret: 'a-long-random-value', inbox: sqliteInbox({ path, waitMs: 0 }) })
const options = { port: Number(port), hostname: '127.0.0.1', announce: false }

if (what === 'uncaught') await serve(receiver, options)
try {
  await serve(receiver, options)
} catch (error) {
  console.log(error instanceof FleethookError ? error.code : error)
}
if (what === 'another error') throw new TypeError('of the host')
await receiver.drain()
