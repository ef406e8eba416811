import { createReceiver } from 'fleethook'
import { serve } from 'fleethook/node'
import { inboxFor } from './inbox.ts'

// It writes messages into the topic and runs no handler. A 2xx is sent when at least two brokers have the message.
const receiver = createReceiver({ secret: process.env.WEBHOOK_SECRET, inbox: inboxFor('receive') })

const server = await serve(receiver, { port: Number(process.env.PORT ?? 3000) })
await server.closed
