// A receiver as a careful developer would write it: the secret compared in constant time before the body is read, a limit, a schema,
// the answer before the work. It reads one format, and has no order per VIN, no retries, no drain and no limit on waiting messages.
import { timingSafeEqual } from 'node:crypto'
import express from 'express'
import * as z from 'zod'
import { answerBody, answerType, secret } from './answer.ts'
import { measured } from './measured.ts'

const expected = Buffer.from(secret)
const message = z.object({
  vin: z.string().min(1),
  createdAt: z.iso.datetime(),
  data: z.record(
    z.string(),
    z.union([z.string(), z.number(), z.boolean(), z.null(), z.record(z.string(), z.unknown())]),
  ),
})
let handled = 0
let highestSpeed = 0

function handle({ data }: z.infer<typeof message>): void {
  handled += 1
  highestSpeed = Math.max(highestSpeed, Number(data['VehicleSpeed'] ?? 0))
}

const app = express()
app.disable('x-powered-by')
app.post(
  '/',
  (request, response, next) => {
    const given = Buffer.from(request.get('authorization') ?? '')
    if (given.length === expected.length && timingSafeEqual(given, expected)) next()
    else response.sendStatus(403)
  },
  express.json({ limit: '1mb' }),
  (request, response) => {
    const { success, data } = message.safeParse(request.body)
    if (!success) {
      response.sendStatus(400)
      return
    }
    response.status(200).type(answerType).send(answerBody)
    setImmediate(handle, data)
  },
)
const server = app.listen(0, '127.0.0.1', () => {
  const address = server.address()
  if (typeof address === 'object' && address !== null) measured(address.port, () => handled)
})
