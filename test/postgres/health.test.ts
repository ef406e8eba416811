/* What stats, metrics and `fleethook doctor` say about the server. */
import { spawnSync } from 'node:child_process'
import { resolve } from 'node:path'
import { metricsText } from 'fleethook/metrics'
import { describe, expect, test } from 'vitest'
import { hasPostgres } from '../once/servers.ts'
import { receiverOn, sceneOfFile } from './scene.ts'

describe.skipIf(!hasPostgres)('the health of the tables', () => {
  // It would remove the dead rows.
  const settings = ['autovacuum=off']
  const scene = sceneOfFile(async ({ prepare, pool }) => {
    await prepare('fleethook')
    // Statistics are written at once when a connection ends.
    const deleting = await pool.connect()
    await deleting.query('INSERT INTO fleethook.process SELECT gen_random_uuid(), now() FROM generate_series(1, 500)')
    await deleting.query('DELETE FROM fleethook.process')
    deleting.release(true)
  }, settings)

  const doctor = (database: string, ...more: readonly string[]): Readonly<Record<string, string>> => {
    const args = ['--no-warnings', resolve('adapters/cli/main.ts'), 'doctor', '--only', 'postgres', '--json', ...more]
    const { stdout, stderr } = spawnSync(process.execPath, args, {
      encoding: 'utf8',
      env: { ...process.env, DATABASE_URL: database },
    })
    expect(stderr).toBe('')
    const { findings }: { readonly findings: readonly { id: string; status: string; found: string }[] } =
      JSON.parse(stdout)
    return Object.fromEntries(findings.map(({ id, status, found }) => [id, `${status}: ${found}`]))
  }
  const url = (options = ''): string =>
    `postgres://test@127.0.0.1:${scene.server.port}/postgres${options === '' ? '' : `?options=${encodeURIComponent(options)}`}`

  test('stats and metrics have the dead rows and the age of the oldest snapshot', async () => {
    await expect
      .poll(
        async () =>
          (await scene.pool.query(`SELECT FROM pg_stat_user_tables WHERE relname = 'process' AND n_dead_tup > 0`))
            .rowCount,
      )
      .toBe(1)
    const holder = await scene.pool.connect()
    await holder.query('BEGIN ISOLATION LEVEL REPEATABLE READ')
    await holder.query('SELECT 1 FROM fleethook.meta')
    await holder.query('SELECT pg_sleep(0.05)')
    const { receiver } = receiverOn({ db: scene.newPool(), schema: 'fleethook' })
    await receiver.open()
    await expect.poll(() => receiver.stats().inbox.deadRows ?? 0).toBeGreaterThan(0)
    expect(receiver.stats().inbox.oldestSnapshotMs).toBeGreaterThanOrEqual(50)
    const text = metricsText(receiver)
    expect(text).toMatch(/^fleethook_inbox_dead_rows [1-9]/m)
    expect(text).toMatch(/^fleethook_inbox_snapshot_age_seconds 0*[.1-9]/m)
    await receiver.drain()
    await holder.query('COMMIT')
    holder.release()
  })

  test('doctor names what is wrong', async () => {
    expect(doctor(url())).toMatchObject({
      'postgres.tables': 'ok: the tables in the schema fleethook are ready',
      'postgres.commit': 'ok: a commit is on the disk',
      'postgres.snapshot': expect.stringMatching(/^ok: no snapshot is old; \d+ dead rows$/),
    })
    expect(doctor(url('-c synchronous_commit=off'))['postgres.commit']).toBe(
      'fail: In this Postgres synchronous_commit is off: a crash can lose committed messages.',
    )
    expect(doctor(url('-c default_transaction_read_only=on'))).toEqual({
      'postgres.server': 'fail: This Postgres is read-only: a replica cannot keep messages.',
    })
    expect(doctor(url(), '--schema', 'nowhere')).toEqual({
      'postgres.tables': 'warn: The tables of the inbox are missing.',
    })
    await scene.prepare('newer')
    await scene.pool.query('UPDATE newer.meta SET version = 99')
    expect(doctor(url(), '--schema', 'newer')).toMatchObject({
      'postgres.tables': 'ok: the tables in the schema newer are ready',
    })
    await scene.pool.query('UPDATE newer.meta SET oldest = 99')
    expect(doctor(url(), '--schema', 'newer')['postgres.server']).toMatch(
      /have version 99, and this fleethook knows \d+\.$/,
    )
    expect(doctor('mysql://127.0.0.1/x')).toEqual({
      'postgres.server': 'skip: DATABASE_URL is not set to the address of a Postgres',
    })
  })
})
