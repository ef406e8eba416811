/* PgBouncer in transaction mode: each statement may run on another connection of the server. */
import { createReceiver } from 'fleethook'
import { handleWaiting, postgresInbox } from 'fleethook/inbox/postgres'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { type DatabaseServer, hasPgBouncer, hasPostgres, startPgBouncer } from '../once/servers.ts'
import { quiet } from './quiet.ts'
import { post, receiverOn, type Scene, startScene } from './scene.ts'

describe.skipIf(!hasPostgres || !hasPgBouncer)('behind PgBouncer in transaction mode', () => {
  let scene: Scene
  let bouncer: DatabaseServer
  beforeAll(async () => {
    scene = await startScene()
    bouncer = await startPgBouncer(scene.server)
    await scene.prepare('waits')
    await vi.waitFor(() => scene.newPool(1, bouncer.port).query('SELECT 1'), { timeout: 30_000, interval: 100 })
  }, 120_000)
  afterAll(async () => {
    await bouncer?.[Symbol.asyncDispose]()
    await scene?.[Symbol.asyncDispose]()
  })

  test('handleWaiting handles what waits, and gives its leases back', async () => {
    const { receiver } = receiverOn({ db: scene.newPool(3, bouncer.port), schema: 'waits', role: 'receive' })
    await receiver.open()
    for (let n = 0; n < 20; n += 1) expect(await post(receiver, n % 5, n)).toBe(200)
    await receiver.drain()
    const handled: number[] = []
    const inbox = postgresInbox({ db: scene.newPool(3, bouncer.port), schema: 'waits', role: 'handle' })
    const worker = createReceiver({ secret: false, log: quiet, inbox }).on(
      'data',
      ({ data }) => void handled.push(Number(data.Odometer)),
    )
    await handleWaiting(worker, { forMs: 30_000 })
    expect(handled.toSorted((one, other) => one - other)).toEqual(Array.from({ length: 20 }, (_, n) => n))
    const owned = await scene.pool.query('SELECT FROM waits.part WHERE owner IS NOT NULL')
    expect(owned.rowCount).toBe(0)
  })
})
