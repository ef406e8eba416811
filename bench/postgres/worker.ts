// A handling process of the backlog: `fork('worker.ts', [peer, port of Postgres])`. It begins when it is told to, and reports how many messages
// it has handled. A message that overtook one of its vehicle is an error.
import { createReceiver } from 'fleethook'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { Logger, run } from 'graphile-worker'
import pg from 'pg'
import { PgBoss } from 'pg-boss'

export interface Body {
  readonly vin: string
  readonly createdAt: string
  readonly data: { readonly Odometer: number }
}

const [, , peer, port] = process.argv
const at = { host: '127.0.0.1', port: Number(port), user: 'test', database: 'postgres' }

let handled = 0
const newest = new Map<string, number>()

function handle(vin: string, n: number): void {
  if (n <= (newest.get(vin) ?? -1)) throw new Error(`${vin}: ${n} came after ${newest.get(vin)}.`)
  newest.set(vin, n)
  handled += 1
}

async function fleethook(): Promise<void> {
  const inbox = postgresInbox({ db: new pg.Pool({ ...at, max: 3 }), role: 'handle' })
  const receiver = createReceiver({ secret: false, inbox })
  receiver.on('data', ({ vin, data }) => handle(vin, Number(data.Odometer)))
  await receiver.open()
  process.once('disconnect', () => void receiver.drain().then(() => process.exit()))
}

/** `work` would look only every half a second when a batch is not full. 250 and one loop were its fastest. */
async function pgBoss(): Promise<void> {
  const boss = new PgBoss({ ...at, max: 10 })
  await boss.start()
  process.once('disconnect', () => process.exit())
  for (;;) {
    const jobs = await boss.fetch<Body>('telemetry', { batchSize: 250 })
    for (const { data } of jobs) handle(data.vin, data.data.Odometer)
    if (jobs.length === 0) await new Promise((resolve) => setTimeout(resolve, 5))
    else
      await boss.complete(
        'telemetry',
        jobs.map(({ id }) => id),
      )
  }
}

/** 500 and 8 at once were its fastest. */
async function graphileWorker(isLocal: boolean): Promise<void> {
  const pgPool = new pg.Pool({ ...at, max: 10 })
  pgPool.on('error', () => {})
  pgPool.on('connect', (client) => client.on('error', () => {}))
  await run({
    pgPool,
    noHandleSignals: true,
    preset: {
      worker: {
        concurrentJobs: 8,
        logger: new Logger(() => () => {}),
        completeJobBatchDelay: 0,
        ...(isLocal ? { localQueue: { size: 500 } } : {}),
      },
    },
    taskList: {
      telemetry(payload) {
        const { vin, data } = payload as Body // oxlint-disable-line no-unsafe-type-assertion -- the benchmark wrote it
        handle(vin, data.Odometer)
      },
    },
  })
  process.once('disconnect', () => process.exit())
}

process.once('message', () => {
  const reports = setInterval(() => process.send?.(handled, () => {}), 5)
  process.once('disconnect', () => clearInterval(reports))
  if (peer === 'fleethook') void fleethook()
  else if (peer === 'pg-boss') void pgBoss()
  else void graphileWorker(peer === 'graphile-worker, localQueue')
})
process.send?.(0)
