import Fastify from 'fastify'
import { createReceiver, summarize } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { exitWithError } from 'fleethook/node'

const { FLEETHOOK_INBOX = 'data/inbox.db', HOST = '127.0.0.1', PORT = '3000', WEBHOOK_SECRET } = process.env
// A 2xx is sent when the message is on the disk: a crash or a power cut loses no acknowledged message.
const receiver = createReceiver({
  secret: WEBHOOK_SECRET,
  inbox: sqliteInbox({ path: FLEETHOOK_INBOX }),
  basePath: '/telemetry',
}).on(['data', 'alerts', 'errors'], (event) => console.log(summarize(event))) // your business code goes here

const app = Fastify()
// In a scope of its own, where bodies stay as they came, so that the rest of the app keeps its parsers.
await app.register(async (scope) => {
  scope.removeAllContentTypeParsers()
  scope.addContentTypeParser('*', { parseAs: 'buffer', bodyLimit: 1_048_576 }, (_request, body, done) => done(null, body)) // prettier-ignore
  // Relays post to the second path: /telemetry/services/collector/event.
  for (const path of ['/telemetry', '/telemetry/*']) {
    scope.post(path, async (request, reply) => {
      const message = { headers: request.headers, path: request.url, body: request.body }
      const { status, headers, body } = await receiver.accept(message)
      return reply.code(status).headers(headers).send(body)
    })
  }
})

// Messages that an earlier process left are handled first.
await receiver.open().catch(exitWithError)
console.log(`listening on ${await app.listen({ host: HOST, port: Number(PORT) }).catch(exitWithError)}`)

async function stop(): Promise<void> {
  await app.close()
  const { left, lost } = await receiver.drain()
  const { received, handled } = receiver.stats()
  console.log(`received ${received}, handled ${handled}, left ${left}, lost ${lost}`)
}
process.once('SIGTERM', stop).once('SIGINT', stop)
