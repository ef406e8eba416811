import { getRequestListener } from '@hono/node-server'
import express, { type ErrorRequestHandler } from 'express'
import { createReceiver, summarize } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { exitWithError } from 'fleethook/node'

const { FLEETHOOK_INBOX = 'data/inbox.db', PORT = '3000', WEBHOOK_SECRET } = process.env
// A 2xx is sent when the message is on the disk: a crash or a power cut loses no acknowledged message.
const receiver = createReceiver({ secret: WEBHOOK_SECRET, inbox: sqliteInbox({ path: FLEETHOOK_INBOX }) }).on(
  ['data', 'alerts', 'errors'],
  (event) => console.log(summarize(event)), // your business code goes here
)
const app = express()
// Before any body parser: the receiver reads bodies itself, also batches, gzip, and those without a Content-Type.
app.use('/telemetry', getRequestListener(receiver.fetch))
// The service sends no Content-Type, or the wrong one, and relays send batches of 2 MiB. So the parser takes every type, and more than its 100 kB.
// The receiver gets the bytes: of an empty body the parser makes an object, and of an id of 17 digits another one.
const came = new WeakMap<object, Buffer>()
app.use(express.json({ type: () => true, limit: '8mb', verify: (request, _, bytes) => void came.set(request, bytes) }))
// Also of what the parser refuses: the receiver checks the secret, answers and reports a gap.
app.use('/parsed-telemetry', ((_error, _request, _response, next) => next()) satisfies ErrorRequestHandler)
app.post('/parsed-telemetry', async (request, response) => {
  const { status, headers, body } = await receiver.accept({ headers: request.headers, body: came.get(request) ?? '' })
  response.status(status).set(headers).send(body)
})
await receiver.open().catch(exitWithError) // Messages that an earlier process left are handled first.
const server = app.listen(Number(PORT), (error) => {
  if (error) exitWithError(error)
  console.log('listening on http://localhost:%d', Object(server.address()).port)
})

function stop(): void {
  server.close(async () => {
    const { left, lost } = await receiver.drain()
    const { received, handled } = receiver.stats()
    console.log(`received ${received}, handled ${handled}, left ${left}, lost ${lost}`)
  })
  server.closeIdleConnections()
}
process.once('SIGTERM', stop).once('SIGINT', stop)
