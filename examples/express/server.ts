import { getRequestListener } from '@hono/node-server'
import express from 'express'
import { createReceiver } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'

const receiver = createReceiver({
  secret: process.env.WEBHOOK_SECRET,
  // A 2xx is sent when the message is on the disk: a crash or a power cut loses nothing that was acknowledged.
  inbox: sqliteInbox({ path: process.env.FLEETHOOK_INBOX ?? 'data/inbox.db' }),
})
  .on('data', (event) => console.log(event.vin, event.createdAt, JSON.stringify(event.data)))
  .on(['alerts', 'errors'], (event) => console.log(event.vin, event.topic))

const app = express()

// Before any body parser: the receiver reads bodies itself, also batches, gzip, and those without a Content-Type.
app.use('/telemetry', getRequestListener(receiver.fetch))

// The service sends no Content-Type, or the wrong one: behind a parser, let it take every type.
app.use(express.json({ type: () => true }))

// Behind a parser the receiver is handed what the parser made. Objects one after another never get this far.
app.post('/parsed-telemetry', async (request, response) => {
  const { status, headers, body } = await receiver.accept({
    authorization: request.headers.authorization,
    body: request.body,
  })
  response.status(status).set(headers).send(body)
})

// What an earlier process left is handled first.
await receiver.open()
const server = app.listen(Number(process.env.PORT ?? 3000), () => {
  const address = server.address()
  console.log(`listening on http://localhost:${typeof address === 'object' ? address?.port : address}`)
})

function stop(): void {
  server.close(async () => {
    // Everything that was acknowledged is handled before the process ends.
    const { left, lost } = await receiver.drain()
    const { received, handled } = receiver.stats()
    console.log(`received ${received}, handled ${handled}, left ${left}, lost ${lost}`)
  })
  server.closeIdleConnections()
}
process.once('SIGTERM', stop).once('SIGINT', stop)
