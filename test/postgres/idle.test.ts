/* What it costs when nothing comes, and what the leases still promise. */
import { describe, expect, test } from 'vitest'
import { Database } from '../../adapters/inbox/postgres/client.ts'
import { Leases } from '../../adapters/inbox/postgres/leases.ts'
import { systemClock } from '../../src/base/clock.ts'
import { hasPostgres } from '../once/servers.ts'
import { receiverOn, sceneOfFile } from './scene.ts'

describe.skipIf(!hasPostgres)('processes without traffic', () => {
  const scene = sceneOfFile(undefined, ['autovacuum=off'])

  test('write at most 100 MB a day into the log of Postgres', async () => {
    await scene.prepare('idle')
    const roles = ['receive', 'receive', 'handle', 'handle'] as const
    const receivers = roles.map(
      (role) => receiverOn({ db: scene.newPool(), schema: 'idle', role, leaseMs: 10_000 }).receiver,
    )
    for (const receiver of receivers) receiver.on('data', () => {})
    await Promise.all(receivers.map((receiver) => receiver.open()))
    const shares = async (): Promise<readonly number[]> =>
      (await scene.pool.query<{ n: string }>('SELECT count(*) AS n FROM idle.part GROUP BY owner')).rows.map(({ n }) =>
        Number(n),
      )
    await expect.poll(shares).toEqual([32, 32])
    const look = async (): Promise<{ readonly ms: number; readonly bytes: number }> => {
      const { rows } = await scene.pool.query<{ ms: string; bytes: string }>(
        `SELECT extract(epoch FROM clock_timestamp()) * 1000 AS ms, pg_current_wal_lsn() - '0/0' AS bytes`,
      )
      return { ms: Number(rows[0]?.ms), bytes: Number(rows[0]?.bytes) }
    }
    /** Bytes a day, from ten seconds. */
    const rate = async (): Promise<number> => {
      const from = await look()
      await expect
        .poll(async () => (await look()).ms - from.ms, { timeout: 60_000, interval: 500 })
        .toBeGreaterThan(10_000)
      const to = await look()
      return ((to.bytes - from.bytes) / (to.ms - from.ms)) * 86_400_000
    }
    // The first change of a page after a checkpoint writes all of it, which happens in one of them at the most.
    expect(Math.min(await rate(), await rate())).toBeLessThan(100_000_000)
    await Promise.all(receivers.map((receiver) => receiver.drain()))
  })
})

describe.skipIf(!hasPostgres)('leases', () => {
  const scene = sceneOfFile()

  interface Process {
    readonly leases: Leases
    readonly mine: Set<number>
    readonly unclean: Set<number>
  }

  function processOn(schema: string, leaseMs = 60_000): Process {
    const [mine, unclean] = [new Set<number>(), new Set<number>()]
    const leases = new Leases({
      ...{ db: new Database(scene.pool, schema, systemClock), clock: systemClock, me: crypto.randomUUID(), leaseMs },
      renewed(lost, gained) {
        for (const part of lost) mine.delete(part)
        for (const { part, isClean } of gained) {
          mine.add(part)
          if (!isClean) unclean.add(part)
        }
      },
    })
    return { leases, mine, unclean }
  }
  const end = (schema: string): Promise<unknown> =>
    scene.pool.query(`UPDATE ${schema}.process SET until = clock_timestamp() - interval '1 second'`)

  test('one that gave no sign of life loses its partitions, and learns it with its next renewal', async () => {
    await scene.prepare('taken')
    const [one, other] = [processOn('taken'), processOn('taken')]
    await one.leases.renew()
    expect(one.mine.size).toBe(64)
    await end('taken')
    await other.leases.renew()
    expect(other.mine.size).toBe(64)
    expect(other.unclean.size).toBe(64)
    expect(one.leases.isFresh).toBe(true)
    await one.leases.renew()
    expect(one.mine.size).toBe(0)
  })

  test('a renewal that waits for a takeover does not keep what was taken', async () => {
    await scene.prepare('raced')
    const [one, other] = [processOn('raced'), processOn('raced')]
    await one.leases.renew()
    for (let round = 0; round < 20; round += 1) {
      await end('raced')
      await Promise.all([one.leases.renew(), other.leases.renew()])
      await Promise.all([one.leases.renew(), other.leases.renew()])
      const both = [...one.mine].filter((part) => other.mine.has(part))
      expect(both).toEqual([])
    }
  })

  test('a partition that a statement locks stays, and the others are taken at once', async () => {
    await scene.prepare('held')
    const [one, other] = [processOn('held'), processOn('held')]
    await one.leases.renew()
    await end('held')
    const holder = await scene.pool.connect()
    await holder.query('BEGIN')
    await holder.query('SELECT FROM held.part WHERE part = 7 FOR SHARE')
    await other.leases.renew()
    expect(other.mine.size).toBe(63)
    await holder.query('ROLLBACK')
    holder.release()
    await other.leases.renew()
    expect(other.mine.size).toBe(64)
  })

  test('what was given back is clean unless its owner says otherwise, and an owner without a row is taken over', async () => {
    await scene.prepare('given')
    await scene.pool.query('UPDATE given.part SET owner = gen_random_uuid() WHERE part < 3')
    const one = processOn('given')
    await one.leases.renew()
    expect([...one.unclean].toSorted((a, b) => a - b)).toEqual([0, 1, 2])
    await one.leases.release([1])
    const other = processOn('given')
    await other.leases.renew()
    expect(other.mine.size).toBe(64)
    expect([...other.unclean]).toEqual([1])
  })

  test('most looks write nothing', async () => {
    await scene.prepare('looks')
    const one = processOn('looks')
    await one.leases.renew()
    const written = async (): Promise<string> =>
      (await scene.pool.query<{ xmin: string }>('SELECT xmin::text FROM looks.process')).rows
        .map(({ xmin }) => xmin)
        .join()
    const before = await written()
    for (let look = 0; look < 5; look += 1) await one.leases.renew()
    expect(await written()).toBe(before)
  })
})
