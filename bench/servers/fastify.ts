// The same as `express.ts`, on Fastify.
import { timingSafeEqual } from 'node:crypto'
import fastify from 'fastify'
import { answerBody, answerType, secret } from './answer.ts'
import { measured } from './measured.ts'

interface Message {
  readonly vin: string
  readonly createdAt: string
  readonly data: Readonly<Record<string, unknown>>
}

const schema = {
  body: {
    type: 'object',
    required: ['vin', 'createdAt', 'data'],
    properties: {
      vin: { type: 'string', minLength: 1 },
      createdAt: { type: 'string', format: 'date-time' },
      data: { type: 'object' },
    },
  },
}
const expected = Buffer.from(secret)
let handled = 0
let highestSpeed = 0

function handle({ data }: Message): void {
  handled += 1
  highestSpeed = Math.max(highestSpeed, Number(data['VehicleSpeed'] ?? 0))
}

const app = fastify({ bodyLimit: 1_048_576 })
app.addHook('onRequest', async (request, reply) => {
  const given = Buffer.from(request.headers.authorization ?? '')
  if (given.length !== expected.length || !timingSafeEqual(given, expected)) await reply.code(403).send()
})
app.post<{ Body: Message }>('/', { schema }, (request, reply) => {
  void reply.type(answerType).send(answerBody)
  setImmediate(handle, request.body)
})
const url = await app.listen({ port: 0, host: '127.0.0.1' })
measured(Number(new URL(url).port), () => handled)
