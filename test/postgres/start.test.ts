/* What the inbox says about servers that cannot keep its promise, and about bad input. */
import { execFileSync, spawnSync } from 'node:child_process'
import { createReceiver, type GapEvent } from 'fleethook'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { describe, expect, test } from 'vitest'
import { hasPostgres } from '../once/servers.ts'
import { quiet } from './quiet.ts'
import { post, receiverOn, sceneOfFile } from './scene.ts'

describe.skipIf(!hasPostgres)('postgresInbox at its start', () => {
  const scene = sceneOfFile(async () => {}, ['fsync=off'])

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

  test('refuses a database that is read-only', async () => {
    expect(await opened('weak', true, 'SET default_transaction_read_only = on')).toMatchObject({
      code: 'inbox_unavailable',
      message: 'This Postgres is read-only: a replica cannot keep messages.',
    })
  })

  test('refuses tables of a version that it does not know', async () => {
    await scene.prepare('newer')
    await scene.pool.query('UPDATE newer.meta SET version = 99')
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

  test('keeps a message whose VIN has a NUL, in order', async () => {
    await scene.prepare('nul')
    const { receiver } = receiverOn({ db: scene.newPool(), schema: 'nul', allowWeak: true })
    const numbers: number[] = []
    receiver.on('*', ({ raw }) => void numbers.push(Number(/\d+(?=\}\})/.exec(JSON.stringify(raw))?.[0])))
    await receiver.open()
    for (let n = 0; n < 3; n += 1) {
      const body = { vin: 'A\0B', createdAt: '2026-01-01T00:00:00Z', data: { Odometer: n } }
      expect((await receiver.accept({ authorization: undefined, body })).status).toBe(200)
    }
    await expect.poll(() => numbers).toEqual([0, 1, 2])
    await receiver.drain()
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

  test('goes on by itself after a crash of the server, and reports what it refused', { timeout: 60_000 }, async () => {
    await scene.prepare('crash')
    const gaps: GapEvent[] = []
    const numbers: number[] = []
    const inbox = postgresInbox({
      db: scene.newPool(),
      schema: 'crash',
      allowWeak: true,
      leaseMs: 3_000,
      confirmMs: 2_000,
    })
    const receiver = createReceiver({ secret: false, inbox, log: quiet })
      .on('data', (event) => void numbers.push(Number(event.data.Odometer)))
      .on('gap', (gap) => void gaps.push(gap))
    await receiver.open()
    // A slow machine needs more than `confirmMs` for some.
    await expect.poll(() => post(receiver, 1, 0)).toBe(200)
    const crashed = scene.server.crash()
    const refused = await post(receiver, 1, 1)
    await crashed
    await expect.poll(() => post(receiver, 1, 2), { timeout: 20_000 }).toBe(200)
    await expect.poll(() => numbers.filter((n) => n === 2).length, { timeout: 20_000 }).toBeGreaterThan(0)
    if (refused !== 200) await expect.poll(() => gaps.map(({ reason }) => reason)).toContain('inbox_unavailable')
    expect(numbers[0]).toBe(0)
    await receiver.drain()
  })
})
