// A process on the runtime that the first argument names: it receives, or it handles. Each message becomes a row of `ledger`, in the transaction
// of `exactlyOnce`, or in one without a mark (a control), or each edge one of `edges`. `SETTINGS` has the port of the server, the schema, and what to do.
import type pg from 'pg'
import { postgresInbox } from '../../adapters/inbox/postgres.ts'
import { sqliteInbox } from '../../adapters/inbox/sqlite.ts'
import { pause, systemClock } from '../../src/base/clock.ts'
import { branch } from '../../src/branch.ts'
import { createReceiver, type Receiver, type ReceiverOptions, vehicles } from '../../src/index.ts'
import { becomes, is, starts } from '../../src/when.ts'
import { quiet } from './quiet.ts'
import { poolOn, transactionsOf } from './transactions.ts'

export interface ProgramSettings {
  readonly port: number
  readonly schema: string
  readonly leaseMs: number
  /** `unmarked`, a control, writes without a mark. `branch`: a branch writes, and the receiver does nothing. */
  readonly mode: 'receive' | 'single' | 'batch' | 'unmarked' | 'edges' | 'branch'
  /** It also receives, at this port. */
  readonly receivesAt?: number
  /** The path of a file for the option `meanwhile`. */
  readonly meanwhile?: string
  /** That file is in a thread. */
  readonly thread?: boolean
}

const {
  port,
  schema,
  leaseMs,
  mode,
  receivesAt,
  meanwhile,
  thread = false,
}: ProgramSettings = JSON.parse(process.env['SETTINGS'] ?? '{}')
const adapter: typeof import('../../adapters/node.ts') = await import(`../../adapters/${process.argv[2]}.ts`)
// A server that stands still does not end connections.
const patience = { connectionTimeoutMillis: 3_000, query_timeout: 10_000 }

const inbox = postgresInbox({
  db: poolOn(port, 3, patience),
  schema,
  leaseMs,
  role: mode === 'receive' ? 'receive' : receivesAt !== undefined ? 'both' : 'handle',
  ...(meanwhile !== undefined && { meanwhile: sqliteInbox({ path: meanwhile, thread }) }),
})
const transaction = transactionsOf(poolOn(port, 8, patience))
const exactly = inbox.exactlyOnce(transaction)
// Retries go on for as long as the server is down.
const retry = { attempts: 1_000, minMs: 20, maxMs: 200 }
const options: ReceiverOptions = { secret: false, inbox, log: quiet, retry, concurrency: 16 }
const receiver: Receiver = mode === 'edges' ? withEdges() : createReceiver(options)
const insert = (tx: pg.PoolClient, vin: string, n: number): Promise<unknown> =>
  tx.query(`INSERT INTO ${schema}.ledger (vin, n) VALUES ($1, $2)`, [vin, n])

if (mode === 'single')
  receiver.on(
    'data',
    exactly('ledger', (event, _, tx) => insert(tx, event.vin, Number(event.data.Odometer))),
  )
else if (mode === 'branch')
  branch(
    receiver.on('data', () => {}),
    { name: 'crm', retry },
  ).on(
    'data',
    exactly('ledger', (event, _, tx) => insert(tx, event.vin, Number(event.data.Odometer))),
  )
else if (mode === 'batch')
  receiver.batch(
    'data',
    { size: 50, withinMs: 20 },
    exactly.batch('ledger', async (events, _, tx) => {
      for (const event of events) await insert(tx, event.vin, Number(event.data.Odometer))
    }),
  )
else if (mode === 'unmarked')
  receiver.on('data', async (event) => {
    await transaction(async (tx) => {
      await insert(tx, event.vin, Number(event.data.Odometer))
    })
    // The time in which the row is written and the inbox does not know it. It is there without this pause too, but a kill seldom meets it.
    await pause(systemClock, 50)
  })

/** Each time that a vehicle parks, and that it is parked for five seconds, with its odometer. */
function withEdges(): Receiver {
  const parts = [vehicles({ fields: ['Gear', 'Odometer'] })] as const
  const made = createReceiver({ ...options, parts })
  const insertEdge = (tx: pg.PoolClient, ...row: readonly unknown[]): Promise<unknown> =>
    tx.query(`INSERT INTO ${schema}.edges (vin, edge, n, edge_id) VALUES ($1, $2, $3, $4)`, [...row])
  made.when(
    becomes('Gear', 'P'),
    exactly('parks', ({ vin, id, vehicle }, _, tx) => insertEdge(tx, vin, 'parks', vehicle.value('Odometer'), id)),
  )
  made.when(
    starts(is('Gear', 'P')).after({ seconds: 5 }),
    exactly('parked', ({ vin, id, vehicle }, _, tx) => insertEdge(tx, vin, 'parked', vehicle.value('Odometer'), id)),
  )
  return made
}

const server = await adapter.serve(receiver, { port: receivesAt ?? 0, hostname: '127.0.0.1' })
await server.closed
process.exit()
