import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { Logger, makeWorkerUtils } from 'graphile-worker'
import type pg from 'pg'
import { PgBoss } from 'pg-boss'
import { postgresInbox } from '../../adapters/inbox/postgres.ts'
import { createReceiver } from '../../src/index.ts'
import { quiet } from '../../test/postgres/quiet.ts'
import type { BenchDatabase } from './database.ts'
import type { Body } from './worker.ts'

const vehicles = 1_000

/** One message of each vehicle. Those with a higher number come after them. */
const bodies = (n: number): readonly Body[] =>
  Array.from({ length: vehicles }, (_, vehicle) => ({
    vin: `0FLEETV14T${String(vehicle).padStart(7, '0')}`,
    createdAt: '2026-01-01T00:00:00Z',
    data: { Odometer: n },
  }))

export type PeerName = 'fleethook' | 'pg-boss' | 'graphile-worker' | 'graphile-worker, localQueue'

interface Peer {
  /** Messages of each vehicle. */
  readonly each: number
  fill(pool: pg.Pool, each: number): Promise<void>
  /** The tables in which messages wait. */
  readonly tables: string
  /** A query without a row when nothing waits. */
  readonly left: string
}

const graphile: Omit<Peer, 'each'> = {
  async fill(pgPool, each) {
    const utils = await makeWorkerUtils({ pgPool, logger: new Logger(() => () => {}) })
    await utils.migrate()
    for (let n = 0; n < each; n += 1)
      await utils.addJobs(
        bodies(n).map((payload) => ({ identifier: 'telemetry', payload, queueName: payload.vin, maxAttempts: 1 })),
      )
    await utils.release()
  },
  tables: 'graphile_worker._private_jobs, graphile_worker._private_job_queues',
  left: 'SELECT FROM graphile_worker._private_jobs LIMIT 1',
}

const peers: Readonly<Record<PeerName, Peer>> = {
  fleethook: {
    each: 100,
    async fill(pool, each) {
      const inbox = postgresInbox({ db: pool, role: 'receive' })
      const receiver = createReceiver({ secret: false, log: quiet, inbox })
      await receiver.open()
      for (let n = 0; n < each; n += 1)
        await Promise.all(bodies(n).map((body) => receiver.accept({ authorization: undefined, body })))
      await receiver.drain()
    },
    tables: 'fleethook.waiting, fleethook.message',
    left: 'SELECT FROM fleethook.waiting LIMIT 1',
  },
  'pg-boss': {
    each: 100,
    async fill(pool, each) {
      const boss = new PgBoss({ db: { executeSql: (text, values) => pool.query(text, values) } })
      await boss.start()
      await boss.createQueue('telemetry', { policy: 'key_strict_fifo' })
      for (let n = 0; n < each; n += 1)
        await boss.insert(
          'telemetry',
          bodies(n).map((data) => ({ data, singletonKey: data.vin })),
        )
      await boss.stop({ close: false })
    },
    tables: 'pgboss.job',
    left: `SELECT FROM pgboss.job WHERE name = 'telemetry' AND state < 'completed' LIMIT 1`,
  },
  // It is too slow for more.
  'graphile-worker': { each: 2, ...graphile },
  'graphile-worker, localQueue': { each: 100, ...graphile },
}

export const peerNames: readonly PeerName[] = ['fleethook', 'pg-boss', 'graphile-worker', 'graphile-worker, localQueue']

/** Two processes handle a backlog, in order per vehicle. Resolves to messages per second, from the first one until the last one is settled. */
export async function backlog(name: PeerName, { pool, port }: BenchDatabase): Promise<number> {
  const { each, fill, tables, left } = peers[name]
  await fill(pool, each)
  await pool.query(`VACUUM ANALYZE ${tables}`)
  const path = fileURLToPath(new URL('worker.ts', import.meta.url))
  const handled = new Map<ChildProcess, number>()
  const workers = Array.from({ length: 2 }, () => fork(path, [name, String(port)]))
  for (const worker of workers) worker.on('message', (count) => handled.set(worker, Number(count)))
  await Promise.all(workers.map((worker) => once(worker, 'message')))
  const total = (): number => [...handled.values()].reduce((sum, count) => sum + count, 0)
  for (const worker of workers) worker.send('begin')
  // Without the start of the processes.
  while (total() === 0) await new Promise((resolve) => setTimeout(resolve, 1))
  const startedMs = performance.now()
  const before = total()
  while (total() < vehicles * each) {
    await new Promise((resolve) => setTimeout(resolve, 2))
    if (workers.some(({ exitCode }) => exitCode !== null)) throw new Error(`A process of ${name} has ended.`)
  }
  while ((await pool.query(left)).rowCount !== 0) await new Promise((resolve) => setTimeout(resolve, 2))
  const seconds = (performance.now() - startedMs) / 1_000
  for (const worker of workers) {
    worker.disconnect()
    await once(worker, 'exit')
  }
  await pool.query(`TRUNCATE ${tables}`)
  return (vehicles * each - before) / seconds
}
