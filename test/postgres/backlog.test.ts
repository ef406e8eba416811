/* What waits and what fails is visible in every process, in the database, and to commands. */
import { mkdirSync, symlinkSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { createReceiver, type Receiver } from 'fleethook'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { metricsText } from 'fleethook/metrics'
import { operatorRoutes } from 'fleethook/operator'
import { describe, expect, onTestFinished, test } from 'vitest'
import { command } from '../cli/command.ts'
import { hasPostgres } from '../once/servers.ts'
import { quiet } from './quiet.ts'
import { post, sceneOfFile, vinOf } from './scene.ts'
import { newFolder } from '../folder.ts'

interface Printed {
  readonly status: number | null
  readonly out: string
}

describe.skipIf(!hasPostgres)('what waits in Postgres', () => {
  const scene = sceneOfFile()
  const folder = newFolder('backlog')

  const made = async (schema: string, role: 'receive' | 'handle' | 'both', attempts = 5): Promise<Receiver> => {
    const receiver = createReceiver({
      ...{ secret: false, log: quiet, retry: { attempts, minMs: 10, maxMs: 600_000, maxAgeMs: 3_600_000 } },
      inbox: postgresInbox({ db: scene.newPool(), schema, role, leaseMs: 3_000 }),
    })
    onTestFinished(async () => void (await receiver.drain()))
    return receiver
  }

  /** A command in an empty project whose DATABASE_URL is this server. Receivers of this process go on beside it, and keep their leases. */
  const cli = (...args: readonly string[]): Promise<Printed> => cliIn('.', ...args)

  const cliIn = async (cwd: string, ...args: readonly string[]): Promise<Printed> => {
    const database = `postgres://test@127.0.0.1:${scene.server.port}/postgres`
    const env = { DATABASE_URL: database, FLEETHOOK_INBOX: '' }
    const { status, stdout, stderr } = await command([...args, '--dotenv', join(folder, '.env')], env, cwd)
    return { status, out: stdout + stderr }
  }

  test('without a process that handles, it is in the figures of a receiver, in a view, and a failure of doctor', async () => {
    await scene.prepare('alone')
    const receiver = await made('alone', 'receive')
    await receiver.open()
    for (let n = 0; n < 20; n += 1) expect(await post(receiver, n, n)).toBe(200)
    await expect
      .poll(() => receiver.stats().backlog)
      .toMatchObject({ messages: 20, oldestMs: expect.any(Number), processes: 0, unhandledPartitions: 64 })
    const text = metricsText(receiver)
    expect(text).toMatch(/^fleethook_backlog_messages 20$/m)
    expect(text).toMatch(/^fleethook_handling_processes 0$/m)
    expect(receiver.readiness().ready).toBe(true)
    const { rows } = await scene.pool.query('SELECT * FROM alone.backlog')
    expect(rows).toMatchObject([{ messages: '20', processes: '0', unhandled_partitions: '64', failing: '0' }])
    const { status, out } = await cli('doctor', '--only', 'postgres', '--schema', 'alone')
    expect(out).toMatch(/postgres\.processes +No process runs handlers: 20 messages wait, the oldest for \d+ s\./)
    expect(status).toBe(1)

    const handling = await made('alone', 'handle')
    await handling.open()
    await expect.poll(() => receiver.stats().backlog).toMatchObject({ messages: 0, processes: 1 })
    expect((await cli('doctor', '--only', 'postgres', '--schema', 'alone')).out).toContain('1 process runs handlers')
  })

  test('a failing handler is named with its last error in every process, in a view, and by commands, also after a restart', async () => {
    await scene.prepare('failing')
    const receiver = await made('failing', 'receive')
    await receiver.open()
    const billing = async (): Promise<void> => {
      throw new TypeError('the invoice service is down')
    }
    const first = await made('failing', 'handle', 1_000)
    first.on('data', billing)
    await first.open()
    for (const [vehicle, number] of [
      [1, 1],
      [2, 2],
    ] as const)
      expect(await post(receiver, vehicle, number)).toBe(200)
    const failing = { messages: 2, vehicles: 2, handlers: [{ handler: 'billing', messages: 2, error: 'TypeError' }] }
    await expect.poll(() => receiver.stats().failing).toMatchObject(failing)
    expect(metricsText(receiver)).toMatch(/^fleethook_failing_messages\{fleethook_handler="billing"\} 2$/m)
    const { rows } = await scene.pool.query('SELECT * FROM failing.failing ORDER BY vin')
    expect(rows).toMatchObject([
      { vin: vinOf(1), handler: 'billing', error: 'TypeError: the invoice service is down', since: expect.any(Date) },
      { vin: vinOf(2), handler: 'billing' },
    ])
    const app = operatorRoutes(receiver, { secret: 'operators' })
    const answer = await app.request('/failing', { headers: { authorization: 'operators' } })
    expect(await answer.json()).toMatchObject({ handlers: [{ error: 'TypeError: the invoice service is down' }] })
    expect((await cli('failing', '--schema', 'failing')).out).toMatch(
      /^2 messages of 2 vehicles have failed for \d+\w+: the handler is billing\.\n[^]*TypeError: the invoice service is down/,
    )
    expect((await cli('doctor', '--only', 'postgres', '--schema', 'failing')).out).toContain('the handler is billing.')
    await first.drain()

    // A next process that allows no more attempts gives them up, and says why they failed.
    const second = await made('failing', 'handle', 1)
    second.on('data', billing)
    await second.open()
    await expect
      .poll(async () => (await Array.fromAsync(receiver.deadLetters.list())).map(({ error }) => error))
      .toEqual(
        [1, 2].map(() => expect.stringMatching(/^TypeError: the invoice service is down \(billing; earlier processes/)),
      )
    expect((await cli('failing', '--schema', 'failing')).out).toBe('Nothing fails now.\n')
  })

  test('dead letters are listed, shown and replayed by DATABASE_URL alone, and tail says how to reach a receiver', async () => {
    await scene.prepare('fleethook')
    const receiver = await made('fleethook', 'both', 1)
    receiver.on('data', () => {
      throw new Error('no')
    })
    await receiver.open()
    expect(await post(receiver, 1, 1)).toBe(200)
    await expect.poll(() => receiver.stats().deadLettered).toBe(1)
    const list = await cli('dead', 'list', '--json')
    expect(list.status).toBe(0)
    const { letters }: { letters: readonly { id: string }[] } = JSON.parse(list.out)
    expect(letters).toMatchObject([{ vin: vinOf(1), error: 'Error: no' }])
    expect((await cli('dead', 'show', letters[0]?.id ?? '')).out).toContain('"Odometer": 1')
    expect(await cli('dead', 'show', 'nothing')).toMatchObject({ status: 1 })
    expect((await cli('tail')).out).toContain('FLEETHOOK_OPERATOR_URL')
    expect((await cli('dead', 'list', '--schema', 'nowhere')).out).toContain(
      'no tables of postgresInbox in the schema nowhere',
    )
    const doctor = await cli('doctor', '--only', 'inbox,receiver')
    expect(doctor.out).toContain('DATABASE_URL names a Postgres')
    expect((await cli('dead', 'replay', '--yes')).out).toContain('1 message replayed')
  })

  test('with a file data/inbox.db and DATABASE_URL, the commands say that they ask the file, and --schema names the tables', async () => {
    await scene.prepare('beside')
    const receiver = await made('beside', 'both', 1)
    receiver.on('data', () => {
      throw new Error('no')
    })
    await receiver.open()
    expect(await post(receiver, 1, 1)).toBe(200)
    await expect.poll(() => receiver.stats().deadLettered).toBe(1)
    const project = newFolder('beside')
    symlinkSync(resolve('node_modules'), join(project, 'node_modules'))
    mkdirSync(join(project, 'data'))
    const old = createReceiver({
      secret: false,
      log: quiet,
      inbox: sqliteInbox({ path: join(project, 'data/inbox.db') }),
    })
    await old.open()
    await old.drain()
    const ofFile = await cliIn(project, 'dead', 'list')
    expect(ofFile.out).toContain('There are no dead letters.')
    expect(ofFile.out).toMatch(
      /This is about the file .*data\/inbox\.db\. With --schema fleethook, the command asks the tables in DATABASE_URL\./,
    )
    expect(JSON.parse((await cliIn(project, 'dead', 'list', '--schema', 'beside', '--json')).out)).toMatchObject({
      letters: [{ vin: vinOf(1) }],
    })
    // Who names a file means the file.
    expect((await cliIn(project, 'dead', 'list', '--inbox', 'data/inbox.db')).out).not.toContain('DATABASE_URL')
  })

  test('what is no id or no VIN is unknown to the operator routes, and no error of the database', async () => {
    await scene.prepare('odd')
    const receiver = await made('odd', 'receive')
    await receiver.open()
    const app = operatorRoutes(receiver, { secret: 'operators' })
    const status = async (path: string, method = 'GET', body?: string): Promise<number> =>
      (await app.request(path, { method, headers: { authorization: 'operators' }, body: body ?? null })).status
    for (const id of ['nothing', '%00', '1', "'", '00000000-0000-0000-0000-00000000000g'])
      expect([
        await status(`/dead/${id}`),
        await status(`/messages/${id}`),
        await status(`/messages?after=${id}`),
        await status(`/dead?after=${id}`),
        await status(`/dead/${id}/replay`, 'POST'),
        await status(`/dead/${id}/discard`, 'POST'),
      ]).toEqual([404, 404, 400, 400, 200, 200])
    expect(await status('/dead?vin=%00')).toBe(200)
    expect(await status('/messages?vin=a%00b')).toBe(200)
    expect(await status('/dead/replay', 'POST', '{"vin":"\\u0000"}')).toBe(200)
    const range = '"from":"0000-01-01T00:00Z","to":"9999-12-31T23:59Z"'
    expect(await status('/replay', 'POST', `{${range},"vin":"\\u0000"}`)).toBe(200)
    expect(await status('/replay', 'POST', `{${range},"after":"\\u0000","limit":5}`)).toBe(400)
  })

  test('an older schema gets what is new from schema --apply, and keeps what waits', async () => {
    await scene.prepare('older')
    await scene.pool.query(`DROP VIEW older.backlog; DROP VIEW older.failing;
ALTER TABLE older.waiting DROP COLUMN failing_since, DROP COLUMN failed_by, DROP COLUMN error; UPDATE older.meta SET version = 2;
INSERT INTO older.message VALUES ('01a200b8-31af-7000-8000-2c5a9c3e1f00', 'A', 1, 'root', 'wire', 2, '{}');
INSERT INTO older.waiting (part, id) VALUES (1, '01a200b8-31af-7000-8000-2c5a9c3e1f00')`)
    expect((await cli('doctor', '--only', 'postgres', '--schema', 'older')).out).toContain('have version 2')
    expect((await cli('postgres', 'schema', '--apply', '--schema', 'older')).status).toBe(0)
    expect((await cli('doctor', '--only', 'postgres', '--schema', 'older')).out).toContain('1 message waits')
  })
})
