/* What is said about databases that cannot be used, and tables of older versions. */
import { spawnSync } from 'node:child_process'
import { createReceiver } from 'fleethook'
import { postgresInbox } from 'fleethook/inbox/postgres'
import pg from 'pg'
import { describe, expect, test } from 'vitest'
import { databaseError } from '../../adapters/inbox/postgres/client.ts'
import { schemaVersion } from '../../adapters/inbox/postgres/schema.ts'
import { withHint } from '../../src/base/errors.ts'
import { hasPostgres } from '../once/servers.ts'
import { quiet } from './quiet.ts'
import { post, receiverOn, sceneOfFile, setSetting } from './scene.ts'

describe.skipIf(!hasPostgres)('a database of postgresInbox', () => {
  const scene = sceneOfFile()

  const urlOf = (database: string): string => `postgres://test@127.0.0.1:${scene.server.port}/${database}`
  const apply = (schema: string, database = 'postgres', env: NodeJS.ProcessEnv = {}): string => {
    const given = database === '' ? [] : ['--database', urlOf(database)]
    const args = [
      '--no-warnings',
      'adapters/cli/main.ts',
      'postgres',
      'schema',
      '--schema',
      schema,
      '--apply',
      ...given,
    ]
    const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8', env: { ...process.env, ...env } })
    return (stdout + stderr).replaceAll(/\s+/g, ' ').trim()
  }
  const failure = (opened: Promise<void>): Promise<string> =>
    opened.then(
      () => 'It opened.',
      (error: { readonly message: string; readonly hint?: string }) => withHint(error),
    )
  const openedOn = async (pool: pg.Pool, schema = 'fleethook'): Promise<string> => {
    pool.on('error', () => {})
    const { receiver } = receiverOn({ db: pool, schema })
    const said = await failure(receiver.open())
    await receiver.drain()
    await pool.end()
    return said
  }

  test.each([1, 2])('tables of version %i are brought up to date, and their messages are handled', async (version) => {
    const schema = `version${version}`
    await scene.pool.query(olderTables(schema, version))
    // An owner that ended without a goodbye.
    await scene.pool.query(
      `UPDATE ${schema}.part SET owner = gen_random_uuid(), until = clock_timestamp() WHERE part < 40`,
    )
    const receiver = receiverOn({ db: scene.newPool(), schema }).receiver
    expect(await failure(receiver.open())).toBe(
      `The tables in the schema ${schema} have version ${version}, and this fleethook knows ${schemaVersion}. ` +
        'Update the tables first, while older processes run: fleethook postgres schema --apply',
    )
    await receiver.drain()
    expect(apply(schema)).toBe(
      `The tables in the schema ${schema} now have version ${schemaVersion}; they had version ${version}.`,
    )
    expect(apply(schema)).toBe(`The tables in the schema ${schema} are ready.`)
    const next = receiverOn({ db: scene.newPool(), schema }).receiver.on('data', () => {})
    await next.open()
    await expect.poll(() => next.stats().handled).toBe(1)
    expect(await post(next, 1, 1)).toBe(200)
    await expect.poll(() => next.stats().handled).toBe(2)
    await next.drain()
  })

  test('tables of a newer version stay as they are', async () => {
    await scene.prepare('newest')
    await scene.pool.query('UPDATE newest.meta SET version = 99, oldest = 98')
    expect(apply('newest')).toContain(
      `The tables in the schema newest have version 99, and this fleethook knows ${schemaVersion}. Use the newest fleethook in every process`,
    )
  })

  test.each(['LATIN1', 'SQL_ASCII'])(
    'in the encoding %s is refused, because it cannot keep every message',
    async (encoding) => {
      const name = encoding.toLowerCase()
      await scene.pool.query(`CREATE DATABASE ${name} TEMPLATE template0 ENCODING '${encoding}'`)
      const said = `The database ${name} has the encoding ${encoding}, which cannot keep every message: UTF8 can. Create one for the inbox`
      expect(apply('fleethook', name)).toContain(said)
      expect(await openedOn(new pg.Pool({ connectionString: urlOf(name) }))).toContain(said)
    },
  )

  test('a lock of another session ends the command within seconds, and it names the session', async () => {
    const holder = await scene.pool.connect()
    await holder.query(`SET application_name = 'old deploy'`)
    await holder.query(`SELECT pg_advisory_lock(hashtext('fleethook locked'))`)
    const { rows } = await holder.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
    expect(apply('locked')).toContain(
      `Another session holds a lock on the tables of the inbox: process ${rows[0]?.pid} (old deploy, idle).`,
    )
    await holder.query(`SELECT pg_advisory_unlock_all()`)
    holder.release()
    expect(apply('locked')).toContain('are ready')
  })

  test('a pool without an address, and an address where nothing listens, are named', async () => {
    const { PGHOST: _, ...env } = process.env
    expect(apply('fleethook', '', { ...env, DATABASE_URL: '' })).toContain(
      'No database is given: DATABASE_URL is empty.',
    )
    const closed = `postgres://me:secret@127.0.0.1:1/fleet`
    const said = await openedOn(new pg.Pool({ connectionString: closed }))
    expect(said).toMatch(
      /^Postgres cannot be used: ECONNREFUSED. Nothing listens at 127\.0\.0\.1:1\. Is Postgres running there\?/,
    )
    const unset = new pg.Pool({ connectionString: undefined, port: 1 })
    expect(await openedOn(unset)).toMatch(/ECONNREFUSED\. Nothing listens at .*:1\. Is DATABASE_URL empty\?/)
    const nowhere = new pg.Pool({ connectionString: 'postgres://me:secret@nowhere.invalid/fleet' })
    expect(await openedOn(nowhere)).toMatch(/(?:ENOTFOUND|EAI_AGAIN)\. .*: nowhere\.invalid/)
    const unreadable = new pg.Pool({ connectionString: 'postgres://me:pass#word@127.0.0.1:5432/fleet' })
    expect(await openedOn(unreadable)).toMatch(/ERR_INVALID_URL\. The address is not a URL\. .* as %23/)
  })

  test('a wrong user, a wrong database and a full server have their own advice', async () => {
    const said = (state: string): string => withHint(databaseError(Object.assign(new Error('no'), { code: state })))
    expect(await openedOn(new pg.Pool({ connectionString: urlOf('postgres').replace('test@', 'nobody@') }))).toMatch(
      /^Postgres does not let this user in\. Check the user, the password and the database/,
    )
    expect(await openedOn(new pg.Pool({ connectionString: urlOf('nothing') }))).toMatch(
      /^The database does not exist\./,
    )
    expect(said('28P01')).toMatch(/^Postgres refused the password\./)
    expect(said('53300')).toMatch(/^Postgres has no connection left/)
    expect(said('57P03')).toMatch(/^Postgres is starting/)
    expect(said('SELF_SIGNED_CERT_IN_CHAIN')).toMatch(/do not agree about TLS \(SELF_SIGNED_CERT_IN_CHAIN\)/)
    for (const state of ['28P01', '28000', '3D000', '53300']) expect(said(state)).not.toContain('Is it running')
  })

  test.each([
    ['for all', 'ALTER SYSTEM SET synchronous_commit = off', 'ALTER SYSTEM RESET synchronous_commit'],
    ['for its user', 'ALTER ROLE test SET synchronous_commit = off', 'ALTER ROLE test RESET synchronous_commit'],
  ])('that begins to lose what it commits, %s, gets no more messages', async (_, turnOff, turnOn) => {
    const schema = `weak${turnOff.length}`
    await scene.prepare(schema)
    const lines: string[] = []
    const log = {
      ...quiet,
      error: (line: string) => void lines.push(line),
      warn: (line: string) => void lines.push(line),
    }
    const db = scene.newPool()
    const receiver = createReceiver({ secret: false, log, inbox: postgresInbox({ db, schema, leaseMs: 3_000 }) })
    const strict = createReceiver({
      secret: false,
      log: quiet,
      inbox: postgresInbox({ db: scene.newPool(), schema, allowWeak: true }),
    })
    await Promise.all([receiver.open(), strict.open()])
    expect(await post(receiver, 1, 1)).toBe(200)
    const change = async (sql: string): Promise<void> => {
      await scene.pool.query(sql)
      await setSetting(scene.pool, 'log_min_messages', 'warning')
      // A setting of a user is for new connections.
      await scene.pool.query(
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'`,
      )
    }
    await change(turnOff)
    await expect.poll(() => post(receiver, 1, 2)).toBe(503)
    await expect.poll(() => receiver.readiness()).toMatchObject({ ready: false })
    await expect.poll(() => lines).toContain('Postgres can lose what it commits, and new messages are refused')
    await expect.poll(() => post(strict, 1, 3)).toBe(200)
    await change(turnOn)
    await expect.poll(() => receiver.readiness()).toMatchObject({ ready: true })
    await expect.poll(() => post(receiver, 1, 4)).toBe(200)
    await expect.poll(() => lines).toContain('Postgres keeps what it commits again')
    await Promise.all([receiver.drain(), strict.drain()])
  })
})

/** What fleethook created before, with one message that waits. */
function olderTables(schema: string, version: number): string {
  const accounted = version < 2 ? '' : `, accounted boolean NOT NULL DEFAULT false, since bigint NOT NULL DEFAULT 0`
  return `CREATE SCHEMA ${schema};
CREATE TABLE ${schema}.meta (version int NOT NULL);
CREATE TABLE ${schema}.message (id uuid PRIMARY KEY, lane text NOT NULL, received_at bigint NOT NULL, door text NOT NULL, kind text NOT NULL,
  bytes int NOT NULL, text text NOT NULL);
CREATE TABLE ${schema}.waiting (part smallint NOT NULL, seq bigint GENERATED ALWAYS AS IDENTITY, id uuid NOT NULL,
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(), attempts int NOT NULL DEFAULT 0, not_before bigint NOT NULL DEFAULT 0,
  deliveries int NOT NULL DEFAULT 0, replayed boolean NOT NULL DEFAULT false, changed text, done text[] NOT NULL DEFAULT '{}', PRIMARY KEY (part, seq));
CREATE TABLE ${schema}.dead (id uuid PRIMARY KEY, error text NOT NULL, attempts int NOT NULL, died_at bigint NOT NULL, changed text);
CREATE TABLE ${schema}.part (part smallint PRIMARY KEY, owner uuid, epoch bigint NOT NULL DEFAULT 0, until timestamptz);
CREATE TABLE ${schema}.process (id uuid PRIMARY KEY, until timestamptz NOT NULL);
CREATE TABLE ${schema}.receiver (id uuid PRIMARY KEY, seen_at bigint NOT NULL, closed boolean NOT NULL, gaps text NOT NULL${accounted});
INSERT INTO ${schema}.part (part) SELECT generate_series(0, 63);
INSERT INTO ${schema}.meta VALUES (${version});
INSERT INTO ${schema}.message VALUES ('018dd9c4-3fd0-7000-8000-000000000000', 'V', 1, 'root', 'wire', 2, '{"vin":"V","data":{"Odometer":1}}');
INSERT INTO ${schema}.waiting (part, id) VALUES (7, '018dd9c4-3fd0-7000-8000-000000000000');`
}
