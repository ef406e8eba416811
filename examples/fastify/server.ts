import { getRequestListener } from '@hono/node-server'
import Fastify, { type FastifyReply, type FastifyRequest } from 'fastify'
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
const listener = getRequestListener(receiver.fetch)
// The receiver reads requests itself. Fastify would refuse bodies over 1 MiB and unusual content types, in no log and without a gap.
const options = {
  async onRequest({ raw }: FastifyRequest, reply: FastifyReply) {
    reply.hijack()
    await listener(raw, reply.raw)
  },
}
// Below the second path are /telemetry/services/collector/event for relays, /telemetry/healthz and /telemetry/readyz.
for (const path of ['/telemetry', '/telemetry/*']) app.all(path, options, () => {})

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
