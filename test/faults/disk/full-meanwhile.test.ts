import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { createReceiver, type EventOf } from 'fleethook'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { expect, test } from 'vitest'
import { hasPostgres } from '../../once/servers.ts'
import { quiet } from '../../postgres/quiet.ts'
import { startScene, vinOf } from '../../postgres/scene.ts'
import { createVolume, noVolumes } from './volume.ts'

test.skipIf(noVolumes !== undefined || !hasPostgres)(
  'a full disk under the file of `meanwhile` refuses what it cannot keep, counts it and tells a gap, and what it took moves on when Postgres is back',
  { timeout: 300_000 },
  async () => {
    using volume = createVolume(32)
    await using scene = await startScene()
    await scene.prepare('fleethook')
    const inbox = postgresInbox({
      db: scene.newPool(3, scene.server.port, 'postgres', { connectionTimeoutMillis: 3_000 }),
      meanwhile: sqliteInbox({ path: join(volume.folder, 'meanwhile.db') }),
    })
    const handled: number[] = []
    const gaps: EventOf<'gap'>[] = []
    const receiver = createReceiver({ secret: false, inbox, log: quiet })
    receiver.on('data', ({ data }) => void handled.push(Number(data.Odometer)))
    receiver.on('gap', (event) => void gaps.push(event))
    await receiver.open()
    const acknowledged: number[] = []
    let number = 0
    async function send(): Promise<number> {
      const Odometer = ++number
      const data = { Odometer, Extra: 'x'.repeat(20_000) }
      const body = { vin: vinOf(1), createdAt: '2026-01-01T00:00:00Z', data }
      const { status } = await receiver.accept({ authorization: undefined, body })
      if (status === 200) acknowledged.push(Odometer)
      return status
    }
    expect(await send()).toBe(200)
    const comesBack = await scene.server.stop()
    try {
      expect(await send()).toBe(200)
      const filler = volume.fill()
      // The file has some room of its own.
      await expect.poll(send, { timeout: 120_000 }).toBe(503)
      await expect.poll(() => receiver.readiness().ready).toBe(false)
      rmSync(filler)
      await expect.poll(send, { timeout: 120_000 }).toBe(200)
      await expect.poll(() => receiver.readiness().ready).toBe(true)
    } finally {
      comesBack()
    }
    const taken = (): readonly number[] => handled.filter((each) => acknowledged.includes(each))
    await expect.poll(taken, { timeout: 120_000 }).toEqual(acknowledged)
    expect(new Set(handled).size, 'none is handled twice').toBe(handled.length)
    const refused = Object.values(receiver.stats().refused).reduce((sum, count) => sum + count, 0)
    expect(refused).toBe(number - acknowledged.length)
    await expect.poll(() => gaps.map(({ reason, vin }) => [reason, vin])).toContainEqual(['inbox_full', vinOf(1)])
    await receiver.drain()
  },
)
