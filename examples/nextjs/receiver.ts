import { createReceiver, type Receiver, summarize } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'

declare global {
  var kept: { receiver?: Receiver } | undefined
}

// Next.js loads this module once for the route and once for instrumentation.ts, and an inbox has one receiver.
globalThis.kept ??= {}

export const receiver = (globalThis.kept.receiver ??= createReceiver({
  secret: () => process.env.WEBHOOK_SECRET, // asked when a message comes: at build time there is none
  basePath: '/telemetry',
  // A 2xx is sent when the message is on the disk: a crash or a power cut loses no acknowledged message.
  inbox: sqliteInbox({ path: process.env.FLEETHOOK_INBOX ?? 'data/inbox.db' }),
}).on(['data', 'alerts', 'errors'], (event) => console.log(summarize(event)))) // your business code goes here
