/* What a backup holds: the page about backups says what this shows. */
import { execFileSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { createReceiver } from 'fleethook'
import { postgresInbox } from 'fleethook/inbox/postgres'
import type pg from 'pg'
import { describe, expect, test } from 'vitest'
import { hasPostgres } from '../once/servers.ts'
import { quiet } from './quiet.ts'
import { post, receiverOn, sceneOfFile } from './scene.ts'
import { transactionsOf } from './transactions.ts'

describe.skipIf(!hasPostgres || !existsSync('/usr/bin/pg_dump'))('a backup', () => {
  const scene = sceneOfFile()

  const poolOf = (database: string): pg.Pool => scene.newPool(3, scene.server.port, database)
  const run = (program: string, database: string, input?: string, ...more: readonly string[]): string =>
    execFileSync(program, ['-h', '127.0.0.1', '-p', String(scene.server.port), '-U', 'test', '-d', database, ...more], {
      encoding: 'utf8',
      ...(input === undefined ? {} : { input }),
    })
  /** Handles what waits in a database, and resolves to what its table of readings has. */
  async function handled(database: string, schema: string, count: number): Promise<readonly number[]> {
    const pool = poolOf(database)
    const inbox = postgresInbox({ db: poolOf(database), schema, role: 'handle', leaseMs: 3_000 })
    const exactly = inbox.exactlyOnce<pg.PoolClient>(transactionsOf(pool))
    const receiver = createReceiver({ secret: false, inbox, log: quiet }).on(
      'data',
      exactly('readings', (event, _, tx) => tx.query('INSERT INTO readings VALUES ($1)', [event.data.Odometer])),
    )
    await receiver.open()
    await expect.poll(() => receiver.stats().handled).toBe(count)
    await receiver.drain()
    const { rows } = await pool.query<{ n: number }>('SELECT n FROM readings ORDER BY n')
    return rows.map(({ n }) => n)
  }
  async function receive(schema: string, from: number, to: number): Promise<void> {
    const { receiver } = receiverOn({ db: scene.newPool(), schema, role: 'receive' })
    await receiver.open()
    for (let n = from; n < to; n += 1) expect(await post(receiver, 1, n)).toBe(200)
    await receiver.drain()
  }

  test('of the whole database goes on elsewhere where it was: nothing is lost, and nothing is written twice', async () => {
    await scene.prepare('whole')
    await scene.pool.query('CREATE TABLE readings (n int NOT NULL)')
    await receive('whole', 0, 5)
    expect(await handled('postgres', 'whole', 5)).toEqual([0, 1, 2, 3, 4])
    await receive('whole', 5, 8)
    await scene.pool.query('CREATE DATABASE copy')
    run('psql', 'copy', run('pg_dump', 'postgres'), '-q', '-v', 'ON_ERROR_STOP=1')
    expect(await handled('copy', 'whole', 3)).toEqual([0, 1, 2, 3, 4, 5, 6, 7])
    await scene.pool.query('DROP TABLE readings')
  })

  test('of the schema alone, put back over newer tables, handles again what was handled since', async () => {
    await scene.prepare('alone')
    await scene.pool.query('CREATE TABLE readings (n int NOT NULL)')
    await receive('alone', 0, 3)
    const dump = run('pg_dump', 'postgres', undefined, '-n', 'alone')
    expect(await handled('postgres', 'alone', 3)).toEqual([0, 1, 2])
    await scene.pool.query('DROP SCHEMA alone CASCADE')
    run('psql', 'postgres', dump, '-q', '-v', 'ON_ERROR_STOP=1')
    expect(await handled('postgres', 'alone', 3)).toEqual([0, 0, 1, 1, 2, 2])
  })
})
