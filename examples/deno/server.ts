import { createReceiver, summarize } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { serve } from 'fleethook/deno'

const receiver = createReceiver({
  secret: Deno.env.get('WEBHOOK_SECRET'),
  // A 2xx is sent when the message is on the disk: a crash or a power cut loses no acknowledged message.
  inbox: sqliteInbox({ path: Deno.env.get('FLEETHOOK_INBOX') ?? 'data/inbox.db' }),
})
  .on('*', (event) => console.log(summarize(event)))
  .on('data', (event) => {
    // Your business code goes here. A handler may be async. When it throws, it runs again later.
    const { BatteryLevel: percent } = event.data
    if (typeof percent === 'number' && percent < 20) console.log(`→ ${event.vin} needs a charge: ${percent} %`)
  })
  .on('alerts', (event) => {
    const active = event.alerts.filter((alert) => alert.endedAt === undefined)
    for (const { name } of active) console.log(`→ ${event.vin} reports ${name}`)
  })

const server = await serve(receiver, { port: Number(Deno.env.get('PORT') ?? 3000) })

// Resolves after SIGTERM or Ctrl+C, when every acknowledged message is handled or safe in the inbox.
const { left, lost } = await server.closed
const { received, handled } = receiver.stats()
console.log(`received ${received}, handled ${handled}, left ${left}, lost ${lost}`)
