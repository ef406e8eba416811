// A receiver on a server. `SERVE` has the options of `serve`, and `SETTINGS` says what its handler does.
import { env } from 'node:process'
import { serve } from '../../../adapters/node.ts'
import { createReceiver } from '../../../src/index.ts'

const { handlerMs = 0, ack = 'received' } = JSON.parse(env['SETTINGS'] ?? '{}')
let handled = 0
const receiver = createReceiver({ secret: 'a-secret-of-the-tests', ack }).on('*', async (event) => {
  if (event.vin?.startsWith('HANG')) await new Promise(() => {})
  if (handlerMs > 0) await new Promise((resolve) => setTimeout(resolve, handlerMs))
  handled += 1
})
const server = await serve(receiver, JSON.parse(env['SERVE'] ?? '{}'))
const result = await server.closed
// Printed here and not at the end of the process, so that it shows what the server did not wait for.
console.log(`handled ${handled} of ${receiver.stats().received}`)
console.log(`closed ${JSON.stringify(result)}`)
