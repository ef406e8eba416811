import { createReceiver } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { serve } from 'fleethook/deno'

const receiver = createReceiver({
  secret: Deno.env.get('WEBHOOK_SECRET'),
  // A 2xx is sent when the message is on the disk: a crash or a power cut loses nothing that was acknowledged.
  inbox: sqliteInbox({ path: Deno.env.get('FLEETHOOK_INBOX') ?? 'data/inbox.db' }),
})
  .on('data', (event) => console.log(event.vin, event.createdAt, JSON.stringify(event.data)))
  .on(['alerts', 'errors'], (event) => console.log(event.vin, event.topic))
  .on('unknown', (event, { log }) => log.warn('unmapped message', { reason: event.reason }))
  .on('gap', ({ from, to, reason }, { log }) => log.warn('messages may be missing', { from, to, reason }))

const server = await serve(receiver, { port: Number(Deno.env.get('PORT') ?? 3000) })

// Resolves after SIGTERM or Ctrl+C, when everything that was acknowledged is handled.
const { left, lost } = await server.closed
const { received, handled } = receiver.stats()
console.log(`received ${received}, handled ${handled}, left ${left}, lost ${lost}`)
