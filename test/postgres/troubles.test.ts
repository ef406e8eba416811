/* What keeps the inbox from writing, one after the other: each is named in the answer, becomes a gap, and needs no restart. */
import { execFileSync } from 'node:child_process'
import { chownSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { userInfo } from 'node:os'
import { join } from 'node:path'
import { createReceiver, type GapEvent } from 'fleethook'
import { postgresInbox } from 'fleethook/inbox/postgres'
import type pg from 'pg'
import { afterEach, describe, expect, test } from 'vitest'
import { ofFile } from '../of-file.ts'
import { hasPostgres } from '../once/servers.ts'
import { startProxy } from './proxy.ts'
import { quiet } from './quiet.ts'
import { bodyOf, sceneOfFile, vinOf } from './scene.ts'
import { newFolder } from '../folder.ts'

describe.skipIf(!hasPostgres)('troubles of a running receiver', () => {
  const scene = sceneOfFile()
  const proxy = ofFile(() => startProxy(scene.server.port))
  afterEach(() => proxy.heal())

  interface Trouble {
    readonly begin: () => unknown
    readonly end: () => unknown
    /** What the answer says. */
    readonly reason: string
  }

  /** Posts before, during and after a trouble. */
  async function survives(schema: string, { begin, end, reason }: Trouble): Promise<void> {
    const gaps: GapEvent[] = []
    const numbers: number[] = []
    const db = scene.newPool(3, proxy.port)
    const receiver = createReceiver({
      secret: false,
      log: quiet,
      inbox: postgresInbox({ db, schema, confirmMs: 3_000, leaseMs: 3_000 }),
    })
      .on('data', (event) => void numbers.push(Number(event.data.Odometer)))
      .on('gap', (gap) => void gaps.push(gap))
    await receiver.open()
    const posted = (n: number): ReturnType<typeof receiver.accept> =>
      receiver.accept({ authorization: undefined, body: bodyOf(1, n) })
    expect((await posted(0)).status).toBe(200)
    try {
      await begin()
      // A connection that just ends may be the first that is asked.
      await expect
        .poll(
          async () => {
            const { status, body } = await posted(1)
            return { status, ...JSON.parse(body) }
          },
          { timeout: 60_000 },
        )
        .toMatchObject({ status: 503, error: 'inbox_unavailable', hint: expect.stringContaining(reason) })
    } finally {
      await end()
    }
    await expect.poll(async () => (await posted(2)).status, { timeout: 60_000 }).toBe(200)
    await expect.poll(() => numbers, { timeout: 60_000 }).toContain(2)
    // A message that was refused may be kept all the same.
    expect(numbers[0]).toBe(0)
    await expect
      .poll(() => gaps.filter(({ vin }) => vin === vinOf(1)).map((gap) => gap.reason), { timeout: 60_000 })
      .toContain('inbox_unavailable')
    expect(receiver.stats()).toMatchObject({ deadLettered: 0, lost: 0 })
    await receiver.drain()
  }

  const sql = (text: string) => (): Promise<unknown> => scene.pool.query(text)
  const endConnections = (): Promise<unknown> =>
    scene.pool.query('SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()')

  const troubles: readonly (Trouble & { readonly what: string; readonly schema: string })[] = [
    {
      ...{ what: 'a table is missing', schema: 'missing', reason: 'The tables of the inbox are missing.' },
      begin: sql('ALTER TABLE missing.message RENAME TO elsewhere'),
      end: sql('ALTER TABLE missing.elsewhere RENAME TO message'),
    },
    {
      ...{ what: 'a column is missing', schema: 'older', reason: 'The tables of the inbox are of another version.' },
      begin: sql('ALTER TABLE older.message RENAME COLUMN door TO other'),
      end: sql('ALTER TABLE older.message RENAME COLUMN other TO door'),
    },
    {
      ...{ what: 'the connections end, and no new one comes about', schema: 'cut' },
      ...{ reason: 'Postgres cannot be used: ECONNRESET.', begin: () => proxy.cut(), end: () => proxy.heal() },
    },
    {
      ...{ what: 'the connections never answer again, and new ones work', schema: 'frozen' },
      ...{ reason: 'Postgres did not answer within ', begin: () => proxy.freeze(), end: () => proxy.forget() },
    },
    {
      ...{ what: 'the database becomes read-only, as in a switchover', schema: 'readonly' },
      reason: 'Postgres is read-only: it is a replica, or it is being switched over.',
      async begin() {
        await scene.pool.query('ALTER ROLE test SET default_transaction_read_only = on')
        await endConnections()
      },
      async end() {
        const client: pg.PoolClient = await scene.pool.connect()
        await client.query('SET default_transaction_read_only = off')
        await client.query('ALTER ROLE test RESET default_transaction_read_only')
        client.release(true)
        await endConnections().catch(() => {})
      },
    },
  ]

  test.each(troubles)('$what', async ({ schema, ...trouble }) => {
    await scene.prepare(schema)
    await survives(schema, trouble)
  })

  test('`statement_timeout` is shorter than a lock', async () => {
    await scene.prepare('slow')
    const locker = await scene.pool.connect()
    await survives('slow', {
      begin: async () => {
        await locker.query('BEGIN')
        await locker.query('LOCK TABLE slow.message IN ACCESS EXCLUSIVE MODE')
        await scene.pool.query("ALTER ROLE test SET statement_timeout = '50ms'")
        await scene.pool.query(
          'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND pid <> $1',
          [(await locker.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')).rows[0]?.pid],
        )
      },
      end: async () => {
        await locker.query('ALTER ROLE test RESET statement_timeout')
        await locker.query('COMMIT')
        locker.release()
        await endConnections().catch(() => {})
      },
      reason: 'Postgres canceled a statement of the inbox, probably by `statement_timeout`.',
    })
  })

  // A volume of its own needs root.
  test.skipIf(userInfo().uid !== 0)('the disk is full', async () => {
    const volume = newFolder('full')
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=4m', 'full', volume])
    const { uid, gid } = statSync(scene.server.folder)
    chownSync(volume, uid, gid)
    const filler = join(volume, 'filler')
    try {
      await scene.prepare('full_disk')
      await scene.pool.query(`CREATE TABLESPACE small LOCATION '${volume}'`)
      for (const table of ['message', 'waiting'])
        await scene.pool.query(`ALTER TABLE full_disk.${table} SET TABLESPACE small`)
      await survives('full_disk', {
        begin: async () => {
          try {
            writeFileSync(filler, Buffer.alloc(8_000_000))
          } catch {
            // What fits is there.
          }
          // Until the pages that exist are full too. Rows of a statement that failed leave room behind.
          for (const rows of [100, 10, 1]) {
            const fill = `INSERT INTO full_disk.message SELECT gen_random_uuid(), '', 0, '', '', 0, '' FROM generate_series(1, ${rows})`
            const failed = async (): Promise<unknown> =>
              scene.pool.query(fill).then(failed, (error: unknown) => Reflect.get(Object(error), 'code'))
            expect(await failed()).toBe('53100')
          }
        },
        end: () => rmSync(filler),
        reason: 'The disk of Postgres is full.',
      })
      await scene.pool.query('DROP SCHEMA full_disk CASCADE')
      await scene.pool.query('DROP TABLESPACE small')
    } finally {
      execFileSync('umount', ['--lazy', volume])
    }
  })
})
