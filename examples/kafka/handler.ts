import { createReceiver } from 'fleethook'
import { serve } from 'fleethook/node'
import { addHandlers } from './handlers.ts'
import { inboxFor } from './inbox.ts'

// It reads the partitions that the group gives it. Start as many of these as you need, up to one for each partition.
const receiver = addHandlers(createReceiver({ secret: process.env.WEBHOOK_SECRET, inbox: inboxFor('handle') }))

// For health checks and metrics. It refuses messages.
const server = await serve(receiver, { port: Number(process.env.PORT ?? 3001) })
await server.closed
