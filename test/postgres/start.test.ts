/* What the inbox says about servers that cannot keep its promise, and about bad input. */
import { execFileSync, spawnSync } from 'node:child_process'
import type pg from 'pg'
import { describe, expect, test } from 'vitest'
import { hasPostgres } from '../once/servers.ts'
import { post, receiverOn, sceneOfFile } from './scene.ts'

describe.skipIf(!hasPostgres)('postgresInbox at its start', () => {
  const scene = sceneOfFile(undefined, ['fsync=off'])

  const opened = async (schema: string, allowWeak: boolean, settings?: string): Promise<unknown> => {
    const db = scene.newPool(1)
    if (settings !== undefined) db.on('connect', (client) => void client.query(settings))
    const { receiver } = receiverOn({ db, schema, allowWeak })
    const error: unknown = await receiver.open().then(
      () => undefined,
      (thrown: unknown) => thrown,
    )
    await receiver.drain()
    return error
  }

  test('names the command when the tables are missing', async () => {
    expect(await opened('nowhere', true)).toMatchObject({
      code: 'inbox_unavailable',
      message: 'The tables of the inbox are missing.',
      hint: 'Create them: fleethook postgres schema --apply',
    })
  })

  test('refuses a server that can lose what it committed, unless allowWeak accepts that', async () => {
    await scene.prepare('weak')
    expect(await opened('weak', false)).toMatchObject({
      code: 'option_invalid',
      message: 'In this Postgres fsync is off: a crash can lose committed messages.',
    })
    expect(await opened('weak', true)).toBeUndefined()
  })

  test('starts on a server that is slow to give it leases, and handles when it has them', async () => {
    await scene.prepare('slow')
    const pool = scene.newPool()
    let isSlow = true
    const query = async (text: string, values?: unknown[]): Promise<pg.QueryResult> => {
      if (isSlow && text.includes('slow.process')) return new Promise(() => {})
      return pool.query(text, values)
    }
    const { receiver } = receiverOn({ db: { query }, schema: 'slow', leaseMs: 1_000, allowWeak: true })
    await receiver.open()
    expect(await post(receiver, 0, 1)).toBe(200)
    isSlow = false
    await expect.poll(() => receiver.stats().handled).toBe(1)
    await receiver.drain()
  })

  test('refuses a database that is read-only', async () => {
    expect(await opened('weak', true, 'SET default_transaction_read_only = on')).toMatchObject({
      code: 'inbox_unavailable',
      message: 'This Postgres is read-only: a replica cannot keep messages.',
    })
  })

  test('refuses tables of a version that it does not know', async () => {
    await scene.prepare('newer')
    await scene.pool.query('UPDATE newer.meta SET version = 99, oldest = 98')
    expect(await opened('newer', true)).toMatchObject({ code: 'inbox_unsupported' })
  })

  test('the command prints the tables, and creates them', async () => {
    const main = ['--no-warnings', 'adapters/cli/main.ts', 'postgres', 'schema', '--schema', 'made']
    expect(execFileSync(process.execPath, main, { encoding: 'utf8' })).toContain(
      'CREATE TABLE IF NOT EXISTS made.waiting',
    )
    const database = `postgres://test@127.0.0.1:${scene.server.port}/postgres`
    for (let time = 0; time < 2; time += 1) {
      const { stdout, stderr } = spawnSync(process.execPath, [...main, '--apply', '--database', database], {
        encoding: 'utf8',
      })
      expect({ stdout, stderr }).toEqual({ stdout: 'The tables in the schema made are ready.\n', stderr: '' })
    }
    expect(await opened('made', true)).toBeUndefined()
  })

  test('handles what was restored from another cluster, whose ids of transactions are higher', async () => {
    await scene.prepare('restored')
    const front = receiverOn({ db: scene.newPool(), schema: 'restored', allowWeak: true, role: 'receive' }).receiver
    await front.open()
    await Promise.all(Array.from({ length: 600 }, (_, n) => post(front, n, n)))
    await front.drain()
    const future = '9000000000000'
    await scene.pool.query(`UPDATE restored.waiting SET xid = '${future}'::xid8`)
    const { receiver } = receiverOn({ db: scene.newPool(), schema: 'restored', allowWeak: true, role: 'handle' })
    receiver.on('data', () => {})
    await receiver.open()
    const left = await scene.pool.query(`SELECT FROM restored.waiting WHERE xid = '${future}'::xid8`)
    expect(left.rowCount).toBe(0)
    await expect.poll(() => receiver.stats().handled).toBe(600)
    await receiver.drain()
  })
})
