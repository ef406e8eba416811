/* The template, as it is, on a real server: its process is killed while it handles. */
import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { message } from 'fleethook/testing'
import { expect, test, vi } from 'vitest'
import { spawnTarget } from '../conformance/spawn.ts'
import { form } from '../form.ts'
import { hasPgBouncer, hasPostgres, startPgBouncer } from '../once/servers.ts'
import { onSources, secret, templateCommand } from '../templates/running.ts'
import { startScene, vinOf } from './scene.ts'

const root = join(import.meta.dirname, '../..')
const template = join(root, 'examples/postgres')

for (const mode of ['transaction', 'session'] as const)
  test.skipIf(form === 'short' || !hasPostgres || !hasPgBouncer)(
    `the template works behind PgBouncer in ${mode} mode, its migrations and its kill too`,
    async () => {
      await using scene = await startScene()
      await using bouncer = await startPgBouncer(scene.server, mode)
      const env = { DATABASE_URL: `postgres://test@127.0.0.1:${bouncer.port}/postgres` }
      await vi.waitFor(() => scene.newPool(1, bouncer.port).query('SELECT 1'), { timeout: 60_000, interval: 100 })
      migrate(env)
      for (const [round, signal] of [[0, 'SIGKILL'] as const, [1, 'SIGTERM'] as const]) {
        await using server = await spawnTarget(templateCommand('postgres', env))
        const statuses = await Promise.all(Array.from({ length: 50 }, (_, n) => post(server.url, n, 50 * round + n)))
        expect(statuses).toEqual(statuses.map(() => 200))
        if (round === 1)
          await vi.waitFor(async () => expect(await scene.count('fleethook.waiting')).toBe(0), { timeout: 60_000 })
        await server.stop(signal)
      }
      const { rows } = await scene.pool.query('SELECT value FROM readings ORDER BY value::text::int')
      expect(rows.map(({ value }) => value)).toEqual(Array.from({ length: 100 }, (_, n) => n))
    },
  )

/** Creates the tables, as the README says. */
function migrate(env: Readonly<Record<string, string>>): void {
  const run = (...args: readonly string[]): string =>
    execFileSync(process.execPath, [...onSources, ...args], {
      ...{ cwd: template, env: { ...process.env, ...env }, encoding: 'utf8' },
    })
  expect(run(join(root, 'adapters/cli/main.ts'), 'postgres', 'schema', '--apply')).toContain('are ready')
  expect(run('migrate.ts')).toContain('is ready')
}

async function post(url: string, vehicle: number, number: number): Promise<number> {
  const body = JSON.stringify(message.data({ Odometer: number }, { vin: vinOf(vehicle) }))
  const { status } = await fetch(url, { method: 'POST', headers: { authorization: secret }, body })
  return status
}
