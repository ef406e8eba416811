import { createReceiver, summarize, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { serve } from 'fleethook/bun'
import { alertStarts, crosses } from 'fleethook/when'

const receiver = createReceiver({
  secret: process.env.WEBHOOK_SECRET,
  // A 2xx is sent when the message is on the disk: a crash or a power cut loses no acknowledged message.
  inbox: sqliteInbox({ path: process.env.FLEETHOOK_INBOX ?? 'data/inbox.db' }),
  // Vehicles repeat what they say. This keeps the newest values, so that only what changes is news.
  parts: [vehicles({ fields: ['BatteryLevel'] })],
})
  .on('*', (event) => console.log(summarize(event)))
  // Your business code goes here. A handler may be async. When it throws, it runs again later.
  .when(crosses('BatteryLevel', { below: 20, again: 25, first: true }), ({ vin, change }) => {
    console.log(`→ ${vin} needs a charge: ${change.to} %`)
  })
  .when(alertStarts(), ({ vin, change }) => {
    for (const { name } of change.alerts) console.log(`→ ${vin} reports ${name}`)
  })

const server = await serve(receiver, { port: Number(process.env.PORT ?? 3000) })

// Resolves after SIGTERM or Ctrl+C, when every acknowledged message is handled or safe in the inbox.
const { left, lost } = await server.closed
const { received, handled } = receiver.stats()
console.log(`received ${received}, handled ${handled}, left ${left}, lost ${lost}`)
