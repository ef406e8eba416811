// A process that receives and handles. `SETTINGS` has the port of the server, the schema, and the handlers: each writes a row with its name.
import { postgresInbox } from '../../adapters/inbox/postgres.ts'
import { serve } from '../../adapters/node.ts'
import { createReceiver } from '../../src/index.ts'
import { poolOn } from './transactions.ts'

export interface HandlingSettings {
  readonly port: number
  readonly schema: string
  readonly handlers: readonly string[]
}

const { port, schema, handlers }: HandlingSettings = JSON.parse(process.env['SETTINGS'] ?? '{}')
const inbox = postgresInbox({ db: poolOn(port, 3), schema, leaseMs: 1_500 })
const exactly = inbox.exactlyOnce(poolOn(port, 8))
const receiver = createReceiver({ secret: false, inbox })
for (const name of handlers)
  receiver.on(
    'data',
    exactly(name, (event, _context, tx) =>
      tx.query(`INSERT INTO ${schema}.written VALUES ($1, $2)`, [name, Number(event.data.Odometer)]),
    ),
  )
const server = await serve(receiver, { port: 0, hostname: '127.0.0.1' })
await server.closed
process.exit()
