/* A standby that takes over, and replicas that cannot be written to. */
import { createReceiver, type GapEvent } from 'fleethook'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { Database, databaseError } from '../../adapters/inbox/postgres/client.ts'
import { Position } from '../../adapters/inbox/postgres/snapshots.ts'
import { systemClock } from '../../src/base/clock.ts'
import { underLoad } from '../faults/kills/kills.ts'
import { onPostgres } from '../faults/kills/victims.ts'
import { hasBaseBackup, type PostgresServer } from '../once/servers.ts'
import { type Proxy, startProxy } from './proxy.ts'
import { quiet } from './quiet.ts'
import { bodyOf, post, receiverOn, type Scene, setSetting, startScene, vinOf } from './scene.ts'

describe.skipIf(!hasBaseBackup)('a synchronous standby', () => {
  let scene: Scene
  let standby: PostgresServer
  let proxy: Proxy

  beforeAll(async () => {
    scene = await startScene()
    await scene.prepare('replica')
    await scene.prepare('unreplicated')
    await scene.prepare('taken')
    await scene.prepare('behind')
    standby = await scene.server.standby('standby')
    const isIn = (state: string): Promise<void> =>
      vi.waitFor(
        async () => {
          const { rows } = await scene.pool.query<{ sync_state: string }>('SELECT sync_state FROM pg_stat_replication')
          expect(rows).toEqual([{ sync_state: state }])
        },
        { timeout: 60_000, interval: 100 },
      )
    await isIn('async')
    await setSetting(scene.pool, 'synchronous_standby_names', 'standby')
    await isIn('sync')
    proxy = await startProxy(scene.server.port)
  }, 180_000)
  afterAll(async () => {
    await proxy?.[Symbol.asyncDispose]()
    await scene?.[Symbol.asyncDispose]()
    await standby?.[Symbol.asyncDispose]()
  })

  test('a receiver that finds a replica says so, and begins when the primary is there', async () => {
    proxy.aim(standby.port)
    const gaps: GapEvent[] = []
    const numbers: number[] = []
    const inbox = postgresInbox({ db: scene.newPool(3, proxy.port), schema: 'replica', confirmMs: 3_000 })
    const receiver = createReceiver({ secret: false, log: quiet, inbox })
      .on('data', (event) => void numbers.push(Number(event.data.Odometer)))
      .on('gap', (gap) => void gaps.push(gap))
    await expect(receiver.open()).rejects.toMatchObject({
      code: 'inbox_unavailable',
      message: 'This Postgres is read-only: a replica cannot keep messages.',
    })
    const refused = async (n: number, hint: string): Promise<void> => {
      // A connection that just ends may be the first that is asked.
      await expect
        .poll(async () => {
          const { status, body } = await receiver.accept({ authorization: undefined, body: bodyOf(1, n) })
          return { status, ...JSON.parse(body) }
        })
        .toMatchObject({ status: 503, error: 'inbox_unavailable', hint })
    }
    await refused(0, 'This Postgres is read-only: a replica cannot keep messages.')
    const reading = new Position().read(new Database(scene.newPool(1, standby.port), 'replica', systemClock), [0], 0)
    const error: unknown = await reading.catch((thrown: unknown) => databaseError(thrown))
    expect(error).toMatchObject({ hint: 'Connect to the primary.' })
    proxy.aim(scene.server.port)
    await expect.poll(() => post(receiver, 1, 1)).toBe(200)
    await expect.poll(() => numbers).toEqual([1])
    await expect.poll(() => gaps.map(({ reason }) => reason)).toContain('inbox_unavailable')

    gaps.length = 0
    proxy.aim(standby.port)
    await refused(2, 'Postgres is read-only: it is a replica, or it is being switched over.')
    proxy.aim(scene.server.port)
    await expect.poll(() => post(receiver, 1, 3)).toBe(200)
    await expect.poll(() => numbers).toEqual([1, 3])
    await expect.poll(() => gaps.map(({ reason }) => reason)).toContain('inbox_unavailable')
    await receiver.drain()
  })

  test('a commit that no longer waits for the standby is refused', async () => {
    const { receiver } = receiverOn({ db: scene.newPool(), schema: 'unreplicated', role: 'receive' })
    await receiver.open()
    const thaw = standby.freeze()
    try {
      const answer = receiver.accept({ authorization: undefined, body: bodyOf(1, 1) })
      await expect
        .poll(
          async () =>
            (
              await scene.pool.query(
                `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%INTO unreplicated.message%'`,
              )
            ).rowCount,
        )
        .toBe(1)
      const { status, body } = await answer
      expect({ status, ...JSON.parse(body) }).toMatchObject({
        status: 503,
        hint: 'Postgres no longer waits for its synchronous standby.',
      })
    } finally {
      thaw()
    }
    await expect.poll(() => post(receiver, 1, 2)).toBe(200)
    await receiver.drain()
  })

  test('after a crash of the primary, a message is acknowledged when the standby has it', async () => {
    const { receiver } = receiverOn({ db: scene.newPool(), schema: 'behind', role: 'receive', confirmMs: 60_000 })
    await receiver.open()
    const rows = async (): Promise<number | null> =>
      (await scene.pool.query('SELECT FROM behind.message').catch(() => undefined))?.rowCount ?? null
    const thaw = standby.freeze()
    let status: number | undefined
    const answered = post(receiver, 1, 1).then((code) => (status = code))
    try {
      await expect
        .poll(
          async () =>
            (
              await scene.pool.query(
                `SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%INTO behind.message%'`,
              )
            ).rowCount,
        )
        .toBe(1)
      await scene.server.crash()
      // It was committed on the primary, and the receiver tries again.
      await expect.poll(rows).toBe(1)
      await expect
        .poll(
          async () => (await scene.pool.query(`SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)).rowCount,
        )
        .toBeGreaterThan(0)
      expect(status).toBeUndefined()
    } finally {
      thaw()
    }
    expect(await answered).toBe(200)
    await receiver.drain()
  })

  // The last one: the primary ends.
  test('takes over: nothing is lost or written twice, and vehicles keep their order', async () => {
    const pool = scene.newPool(3, proxy.port)
    const written = async (): Promise<number> => (await pool.query('SELECT FROM taken.ledger')).rowCount ?? 0
    await using victim = await onPostgres({
      ...{ pool, schema: 'taken', port: proxy.port, leaseMs: 1_500, modes: ['single', 'single'] },
      async fault() {
        const before = await written()
        await scene.server.kill()
        await scene.newPool(1, standby.port).query('SELECT pg_promote()')
        proxy.aim(standby.port)
        await expect.poll(() => written().catch(() => 0), { timeout: 60_000 }).toBeGreaterThan(before + 200)
      },
    })
    const vins = Array.from({ length: 40 }, (_, n) => vinOf(n))
    const { lost, duplicates, outOfOrder } = await underLoad(victim, { vins, ratePerSecond: 400, rounds: 1 })
    expect({ lost, duplicates, outOfOrder }).toEqual({ lost: [], duplicates: [], outOfOrder: [] })
  })
})
