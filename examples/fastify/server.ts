import Fastify from 'fastify'
import { createReceiver } from 'fleethook'

const receiver = createReceiver({ secret: process.env.WEBHOOK_SECRET })
  .on('data', (event) => console.log(event.vin, event.createdAt, JSON.stringify(event.data)))
  .on(['alerts', 'errors'], (event) => console.log(event.vin, event.topic))

const app = Fastify()

// In a scope of its own, so that the rest of the app keeps its parsers. Here bodies stay as they came.
await app.register(async (scope) => {
  scope.removeAllContentTypeParsers()
  scope.addContentTypeParser('*', { parseAs: 'buffer', bodyLimit: 1_048_576 }, (_request, body, done) =>
    done(null, body),
  )

  const take = async (
    path: string,
    authorization: string | undefined,
    contentEncoding: string | undefined,
    body: unknown,
  ) => receiver.accept({ path, authorization, contentEncoding, body })

  scope.post<{ Params: { '*': string } }>('/telemetry/*', async (request, reply) => {
    const { authorization, 'content-encoding': encoding } = request.headers
    const { status, headers, body } = await take(`/${request.params['*']}`, authorization, encoding, request.body)
    return reply.code(status).headers(headers).send(body)
  })
  scope.post('/telemetry', async (request, reply) => {
    const { authorization, 'content-encoding': encoding } = request.headers
    const { status, headers, body } = await take('/', authorization, encoding, request.body)
    return reply.code(status).headers(headers).send(body)
  })
})

process.once('SIGTERM', async () => {
  await app.close()
  // Everything that was acknowledged is handled before the process ends.
  const { left, lost } = await receiver.drain()
  const { received, handled } = receiver.stats()
  console.log(`received ${received}, handled ${handled}, left ${left}, lost ${lost}`)
})

console.log(`listening on ${await app.listen({ port: Number(process.env.PORT ?? 3000), host: '127.0.0.1' })}`)
