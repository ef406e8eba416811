// A process that handles: each edge becomes a row of `edges`, in the transaction of `exactlyOnce`. `SETTINGS` has the port of the server, and more.
import { createReceiver, vehicles } from 'fleethook'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { becomes, is, starts } from 'fleethook/when'
import type pg from 'pg'
import { quiet } from './quiet.ts'
import { poolOn, transactionsOf } from './transactions.ts'

export interface VehiclesProgramSettings {
  readonly port: number
  readonly schema: string
  readonly leaseMs: number
  readonly parkedSeconds: number
}

const { port, schema, leaseMs, parkedSeconds }: VehiclesProgramSettings = JSON.parse(process.env['SETTINGS'] ?? '{}')

const inbox = postgresInbox({ db: poolOn(port, 3), schema, leaseMs, role: 'handle' })
const exactly = inbox.exactlyOnce(transactionsOf(poolOn(port, 8)))
const retry = { attempts: 1_000, minMs: 20, maxMs: 200 }
const parts = [vehicles({ fields: ['Gear', 'Odometer'] })] as const
const receiver = createReceiver({ secret: false, inbox, log: quiet, retry, concurrency: 16, parts })
const insert = (tx: pg.PoolClient, ...row: readonly unknown[]): Promise<unknown> =>
  tx.query(`INSERT INTO ${schema}.edges (vin, edge, n, edge_id) VALUES ($1, $2, $3, $4)`, [...row])

receiver.when(
  becomes('Gear', 'P'),
  exactly('parks', ({ vin, id, vehicle }, _, tx: pg.PoolClient) =>
    insert(tx, vin, 'parks', vehicle.value('Odometer'), id),
  ),
)
receiver.when(
  starts(is('Gear', 'P')).after({ seconds: parkedSeconds }),
  exactly('parked', ({ vin, id, vehicle }, _, tx: pg.PoolClient) =>
    insert(tx, vin, 'parked', vehicle.value('Odometer'), id),
  ),
)

await receiver.open()
process.on('SIGTERM', () => void receiver.drain({ deadlineMs: 5_000 }).then(() => process.exit(0)))
console.log('ready')
