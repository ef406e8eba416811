/* A standby that takes over, and replicas that cannot be written to. */
import { createReceiver, type GapEvent } from 'fleethook'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest'
import { Database, databaseError } from '../../adapters/inbox/postgres/client.ts'
import { Position } from '../../adapters/inbox/postgres/snapshots.ts'
import { systemClock } from '../../src/base/clock.ts'
import { inForm } from '../form.ts'
import { hasBaseBackup, type PostgresServer } from '../once/servers.ts'
import { clean, createLedger, load } from './ledger.ts'
import { type Proxy, startProxy } from './proxy.ts'
import { quiet } from './quiet.ts'
import { bodyOf, post, receiverOn, type Scene, setSetting, startScene } from './scene.ts'

describe.skipIf(!hasBaseBackup)('a synchronous standby', () => {
  let scene: Scene
  let standby: PostgresServer
  let proxy: Proxy
  const open: AsyncDisposable[] = []

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
  afterEach(async () => {
    for (const each of open.splice(0)) await each[Symbol.asyncDispose]()
  })
  afterAll(async () => {
    await proxy?.[Symbol.asyncDispose]()
    await scene?.[Symbol.asyncDispose]()
    await standby?.[Symbol.asyncDispose]()
  })

  test('a receiver that finds a replica says so, and begins when the primary is there', async () => {
    proxy.aim(standby.port)
    const gaps: GapEvent[] = []
    const numbers: number[] = []
    const inbox = postgresInbox({ db: scene.newPool(3, proxy.port), schema: 'replica', confirmMs: 1_000 })
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
    const reading = new Position().read(new Database(scene.newPool(1, standby.port), 'replica', systemClock), [0], null)
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
    await expect.poll(() => numbers, { timeout: 30_000 }).toEqual([1, 3])
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
      await expect.poll(rows, { timeout: 30_000 }).toBe(1)
      await expect
        .poll(
          async () => (await scene.pool.query(`SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)).rowCount,
          { timeout: 30_000 },
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
  test(
    'takes over: nothing is lost or written twice, and vehicles keep their order',
    { timeout: 180_000 },
    async () => {
      const pool = scene.newPool(3, proxy.port)
      const ledger = await createLedger({ pool, schema: 'taken', port: proxy.port, leaseMs: 1_500 })
      open.push(ledger)
      const { receiver } = receiverOn({ db: scene.newPool(3, proxy.port), schema: 'taken', role: 'receive' })
      await receiver.open()
      await ledger.begin('single')
      await ledger.begin('single')
      const running = load(40, (vehicle, n) => post(receiver, vehicle, n))
      await ledger.grows(inForm({ short: 200, full: 1_000 }))
      await scene.server.kill()
      const promoted = scene.newPool(1, standby.port)
      await promoted.query('SELECT pg_promote()')
      proxy.aim(standby.port)
      await ledger.grows(200)
      const acked = await running.stop()
      await ledger.isDone()
      expect(await ledger.account(acked)).toEqual(clean)
      await receiver.drain()
    },
  )
})
