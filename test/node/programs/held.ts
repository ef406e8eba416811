// A receiver beside something that keeps the process alive.
import { env } from 'node:process'
import { serve } from '../../../adapters/node.ts'
import { createReceiver } from '../../../src/index.ts'

setInterval(() => {}, 60_000)
const server = await serve(createReceiver({ secret: 'a-secret-of-the-tests' }), JSON.parse(env['SERVE'] ?? '{}'))
await server.closed
console.log('closed')
