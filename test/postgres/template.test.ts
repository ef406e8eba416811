/* The template, as it is, on a real server: its process is killed while it handles. */
import { execFileSync, spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { message } from 'fleethook/testing'
import { expect, test, vi } from 'vitest'
import { form } from '../form.ts'
import { hasPgBouncer, hasPostgres, startPgBouncer } from '../once/servers.ts'
import { startScene, vinOf } from './scene.ts'

const root = join(import.meta.dirname, '../..')
const template = join(root, 'examples/postgres')
const secret = 'a-secret-for-this-test'
const sources = ['--import', join(root, 'test/docs/resolve-sources.ts')]

const survives = 'the template writes each acknowledged reading exactly once, although its process is killed'
test.skipIf(form === 'short' || !hasPostgres)(survives, async () => {
  await using scene = await startScene()
  const env = envFor(scene.server.port)
  migrate(env)
  migrate(env)
  // After the first ones, handlers wait for a lock, so that the kill meets some.
  await scene.pool.query(`
    CREATE FUNCTION held() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF (SELECT count(*) FROM readings) > 60 THEN PERFORM pg_advisory_xact_lock_shared(7); END IF; RETURN NEW; END $$;
    CREATE TRIGGER held BEFORE INSERT ON readings FOR EACH ROW EXECUTE FUNCTION held()`)
  const holder = await scene.pool.connect()
  await holder.query('SELECT pg_advisory_lock(7)')

  const first = await start(env)
  const sent = Array.from({ length: 300 }, (_, n) => [n % 30, n] as const)
  const statuses = await Promise.all(sent.map(([vehicle, n]) => post(first.url, vehicle, n)))
  expect(statuses).toEqual(sent.map(() => 200))
  const held = `pg_stat_activity WHERE wait_event = 'advisory'`
  await vi.waitFor(async () => expect(await scene.count(held)).toBeGreaterThan(0), { timeout: 60_000, interval: 10 })
  await end(first.server, 'SIGKILL')
  expect(await scene.count('fleethook.waiting')).toBeGreaterThan(0)
  await holder.query('SELECT pg_advisory_unlock(7)')
  holder.release()

  const second = await start(env)
  await vi.waitFor(async () => expect(await scene.count('fleethook.waiting')).toBe(0), {
    timeout: 60_000,
    interval: 100,
  })
  await end(second.server, 'SIGTERM')
  const { rows } = await scene.pool.query('SELECT vin, value FROM readings ORDER BY vin, value::text::int')
  expect(rows).toEqual(
    sent
      .toSorted(([one, a], [other, b]) => one - other || a - b)
      .map(([vehicle, n]) => ({ vin: vinOf(vehicle), value: n })),
  )
})

for (const mode of ['transaction', 'session'] as const)
  test.skipIf(form === 'short' || !hasPostgres || !hasPgBouncer)(
    `the template works behind PgBouncer in ${mode} mode, its migrations and its kill too`,
    async () => {
      await using scene = await startScene()
      await using bouncer = await startPgBouncer(scene.server, mode)
      const env = envFor(bouncer.port)
      await vi.waitFor(() => scene.newPool(1, bouncer.port).query('SELECT 1'), { timeout: 60_000, interval: 100 })
      migrate(env)
      for (const [round, signal] of [[0, 'SIGKILL'] as const, [1, 'SIGTERM'] as const]) {
        const { url, server } = await start(env)
        const statuses = await Promise.all(Array.from({ length: 50 }, (_, n) => post(url, n, 50 * round + n)))
        expect(statuses).toEqual(statuses.map(() => 200))
        if (round === 1)
          await vi.waitFor(async () => expect(await scene.count('fleethook.waiting')).toBe(0), { timeout: 60_000 })
        await end(server, signal)
      }
      const { rows } = await scene.pool.query('SELECT value FROM readings ORDER BY value::text::int')
      expect(rows.map(({ value }) => value)).toEqual(Array.from({ length: 100 }, (_, n) => n))
    },
  )

const envFor = (port: number): NodeJS.ProcessEnv => ({
  ...process.env,
  DATABASE_URL: `postgres://test@127.0.0.1:${port}/postgres`,
  WEBHOOK_SECRET: secret,
  PORT: '0',
})

/** Creates the tables, as the README says. */
function migrate(env: NodeJS.ProcessEnv): void {
  const run = (...args: readonly string[]): string =>
    execFileSync(process.execPath, [...sources, ...args], { cwd: template, env, encoding: 'utf8' })
  expect(run(join(root, 'adapters/cli/main.ts'), 'postgres', 'schema', '--apply')).toContain('are ready')
  expect(run('migrate.ts')).toContain('is ready')
}

async function start(env: NodeJS.ProcessEnv): Promise<{ readonly url: string; readonly server: ChildProcess }> {
  const server = spawn(process.execPath, [...sources, 'server.ts'], {
    cwd: template,
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  for await (const line of createInterface(server.stdout)) {
    const url = /listening on (http:\S+)/.exec(line)?.[1]
    if (url === undefined) continue
    server.stdout.resume()
    return { url, server }
  }
  throw new Error('The template ended.')
}

async function end(server: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  const exited = once(server, 'exit')
  server.kill(signal)
  await exited
}

async function post(url: string, vehicle: number, number: number): Promise<number> {
  const body = JSON.stringify(message.data({ Odometer: number }, { vin: vinOf(vehicle) }))
  const { status } = await fetch(url, { method: 'POST', headers: { authorization: secret }, body })
  return status
}
