import Fastify from 'fastify'
import { createReceiver } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'

const receiver = createReceiver({
  secret: process.env.WEBHOOK_SECRET,
  // A 2xx is sent when the message is on the disk: a crash or a power cut loses nothing that was acknowledged.
  inbox: sqliteInbox({ path: process.env.FLEETHOOK_INBOX ?? 'data/inbox.db' }),
})
  .on('data', (event) => console.log(event.vin, event.createdAt, JSON.stringify(event.data)))
  .on(['alerts', 'errors'], (event) => console.log(event.vin, event.topic))

const app = Fastify()

// In a scope of its own, so that the rest of the app keeps its parsers. Here bodies stay as they came.
await app.register(async (scope) => {
  scope.removeAllContentTypeParsers()
  scope.addContentTypeParser('*', { parseAs: 'buffer', bodyLimit: 1_048_576 }, (_request, body, done) =>
    done(null, body),
  )
  // The second path is that of relays: /telemetry/services/collector/event.
  for (const path of ['/telemetry', '/telemetry/*']) {
    scope.post<{ Params: { '*'?: string } }>(path, async (request, reply) => {
      const { status, headers, body } = await receiver.accept({
        authorization: request.headers.authorization,
        contentEncoding: request.headers['content-encoding'],
        path: `/${request.params['*'] ?? ''}`,
        body: request.body,
      })
      return reply.code(status).headers(headers).send(body)
    })
  }
})

async function stop(): Promise<void> {
  await app.close()
  // Everything that was acknowledged is handled before the process ends.
  const { left, lost } = await receiver.drain()
  const { received, handled } = receiver.stats()
  console.log(`received ${received}, handled ${handled}, left ${left}, lost ${lost}`)
}
process.once('SIGTERM', stop).once('SIGINT', stop)

// What an earlier process left is handled first.
await receiver.open()
const { HOST = '127.0.0.1', PORT = '3000' } = process.env
console.log(`listening on ${await app.listen({ host: HOST, port: Number(PORT) })}`)
