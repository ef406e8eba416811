/* A role that may create functions, operators and types where the inbox finds its own runs no code as the user of the inbox. */
import { createReceiver, Retry, vehicles } from 'fleethook'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { createOnce } from 'fleethook/once'
import type pg from 'pg'
import { expect, test } from 'vitest'
import { command } from '../cli/command.ts'
import { logInto } from '../dispatch/scene.ts'
import { post, sceneOfFile, tablesOf, vinOf } from './scene.ts'
import { transactionsOf } from './transactions.ts'

const scene = sceneOfFile(({ pool }) => pool.query(trapSql))

/**
 * A copy in `public` of each function, aggregate and operator of Postgres, which fails when it is called, and of the types of the inbox. Only the
 * schema tells it from the original.
 */
const trapSql = `
CREATE ROLE inbox LOGIN;
DO $do$
DECLARE f record;
BEGIN
  FOR f IN SELECT p.oid, p.proname, pg_get_function_identity_arguments(p.oid) AS args, p.prokind, p.proretset,
      format_type(p.prorettype, NULL) AS result, p.proargtypes
    FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind IN ('f', 'a') AND p.provariadic = 0
      AND p.prorettype NOT IN (SELECT oid FROM pg_type WHERE typname IN ('internal', 'cstring', 'trigger', 'event_trigger', 'language_handler',
        'fdw_handler', 'index_am_handler', 'tsm_handler', 'table_am_handler'))
      AND p.proname NOT LIKE 'pg_stat%' AND NOT EXISTS (SELECT FROM unnest(p.proargtypes) t WHERE t IN (SELECT oid FROM pg_type WHERE typname IN ('internal', 'cstring')))
  LOOP
    BEGIN
      IF f.prokind = 'f' THEN
        EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS %s%s LANGUAGE plpgsql AS %L', f.proname, f.args,
          CASE WHEN f.proretset THEN 'SETOF ' ELSE '' END, f.result, 'BEGIN RAISE EXCEPTION ''trapped ' || f.proname || '''; END');
      ELSE
        EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS %s LANGUAGE plpgsql AS %L', f.proname, replace(f.args, 'ORDER BY', ','), f.result,
          'BEGIN RAISE EXCEPTION ''trapped ' || f.proname || '''; END');
      END IF;
    EXCEPTION WHEN others THEN NULL;
    END;
  END LOOP;
  FOR f IN SELECT o.oprname, format_type(o.oprleft, NULL) AS l, format_type(o.oprright, NULL) AS r, format_type(o.oprresult, NULL) AS result,
      row_number() OVER () AS n FROM pg_operator o WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprleft <> 0
  LOOP
    BEGIN
      EXECUTE format('CREATE FUNCTION public.op_%s(%s, %s) RETURNS %s LANGUAGE plpgsql AS %L', f.n, f.l, f.r, f.result,
        'BEGIN RAISE EXCEPTION ''trapped operator ' || f.oprname || '''; END');
      EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.op_%s)', f.oprname, f.l, f.r, f.n);
    EXCEPTION WHEN others THEN NULL;
    END;
  END LOOP;
END $do$;
CREATE DOMAIN public.text AS pg_catalog.int4 CHECK (false);
CREATE DOMAIN public.uuid AS pg_catalog.int4 CHECK (false);
CREATE DOMAIN public.xid8 AS pg_catalog.int4 CHECK (false);
CREATE DOMAIN public.timestamptz AS pg_catalog.int4 CHECK (false);
CREATE DOMAIN public.pg_snapshot AS pg_catalog.int4 CHECK (false);
GRANT CREATE ON DATABASE postgres TO inbox;
GRANT CREATE ON SCHEMA public TO PUBLIC;
`

const pathWithTraps = '-c search_path=public,pg_catalog'
const pathOfPostgres = '-c search_path=pg_catalog'

/** Connections of the role with this `search_path`. */
const poolOf = (options: string): pg.Pool => scene.newPool(3, scene.server.port, 'postgres', { user: 'inbox', options })

async function expectTraps(pool: pg.Pool): Promise<void> {
  await expect(pool.query('SELECT now()')).rejects.toThrow('trapped now')
  await expect(pool.query('SELECT count(*)')).rejects.toThrow('count is not an aggregate function')
  await expect(pool.query('SELECT 1 + 1')).rejects.toThrow('trapped operator +')
  await expect(pool.query("SELECT '1'::text")).rejects.toThrow()
}

test('a path in which others may create is refused, before any of their code runs', async () => {
  const pool = poolOf(pathWithTraps)
  await expectTraps(pool)
  const receiver = createReceiver({ secret: false, inbox: postgresInbox({ db: pool }) })
  await expect(receiver.open()).rejects.toMatchObject({
    code: 'inbox_unsupported',
    message: expect.stringContaining('The schema public is in the search_path, and others may create functions there'),
    hint: expect.stringContaining('REVOKE CREATE ON SCHEMA "public" FROM PUBLIC'),
  })
  await receiver.drain()
  const database = `postgres://inbox@127.0.0.1:${scene.server.port}/postgres?options=${encodeURIComponent(pathWithTraps)}`
  const { status, stderr } = await command(['postgres', 'schema', '--apply', '--database', database])
  expect(status).toBe(1)
  expect(stderr).toContain('The schema public is in the search_path')
})

test('the tables can be created with any path, and with the path of Postgres the inbox does all that it does', async () => {
  await poolOf(pathWithTraps).query(tablesOf('fleethook'))
  const pool = poolOf(pathOfPostgres)
  // Again, on tables that are there.
  await pool.query(tablesOf('fleethook'))
  const lines: string[] = []
  // Others may create in the path of handlers.
  const handlers = poolOf(pathWithTraps)
  await expectTraps(handlers)
  const inbox = postgresInbox({ db: pool, leaseMs: 1_000, keepForMs: 3_600_000 })
  const exactly = inbox.exactlyOnce(transactionsOf(handlers))
  const receiver = createReceiver({
    secret: false,
    inbox,
    log: logInto(lines),
    retry: { attempts: 2, minMs: 10, maxMs: 10 },
    parts: [vehicles({ fields: ['Odometer'] })],
  })
  const seen: string[] = []
  let isAgain = false
  receiver
    .on(
      'data',
      exactly('count', async ({ vin, data: { Odometer } }, _context, tx) => {
        await tx.query('SELECT 1')
        if (vin === vinOf(1) && Odometer === 1 && !isAgain) {
          isAgain = true
          throw new Retry(5)
        }
        seen.push(vin)
      }),
    )
    .on('data', ({ vin }) => {
      if (vin === vinOf(2)) throw new Error('dies')
    })
    .batch(
      'data',
      { size: 5, withinMs: 10 },
      exactly.batch('batch', (_events, _context, tx) => tx.query('SELECT 1')),
    )
  await receiver.open()
  for (let number = 1; number <= 3; number += 1)
    for (let vehicle = 0; vehicle < 4; vehicle += 1)
      expect(await post(receiver, vehicle, number), lines.join('\n')).toBe(200)
  await expect.poll(() => receiver.stats()).toMatchObject({ handled: 9, deadLettered: 3 })
  const dead = await Array.fromAsync(receiver.deadLetters.list())
  expect(dead).toHaveLength(3)
  expect(await receiver.deadLetters.get(dead[0]?.id ?? '')).toMatchObject({ id: dead[0]?.id })
  expect(await receiver.deadLetters.replay(dead[0]?.id ?? '')).toBe(1)
  expect(await receiver.deadLetters.discard(dead[1]?.id ?? '')).toBe(1)
  const all = { from: new Date(0), to: new Date(Date.now() + 60_000) }
  expect(await receiver.replay({ ...all, dryRun: true })).toBeGreaterThan(0)
  expect(await receiver.replay(all)).toBeGreaterThan(0)
  expect((await Array.fromAsync(receiver.messages.list())).length).toBeGreaterThan(0)
  expect(await Array.fromAsync(receiver.vehicles?.list() ?? [])).toHaveLength(4)
  expect(await receiver.vehicles?.get(vinOf(1))).toBeDefined()
  expect(await receiver.vehicles?.forget(vinOf(3))).toBe(true)
  await receiver.drain()
  expect(lines.filter((line) => /trapped|SQLSTATE|cannot be used/.test(line))).toEqual([])

  // Another process takes over, and reads what waits.
  const second = createReceiver({
    secret: false,
    inbox: postgresInbox({ db: pool, leaseMs: 1_000 }),
    log: logInto(lines),
  })
  second.on('data', () => {})
  await second.open()
  await expect.poll(() => second.stats().pending.messages).toBe(0)
  expect(await post(second, 9, 1)).toBe(200)
  await expect.poll(() => second.stats().handled).toBeGreaterThan(0)
  await second.drain()
  expect(lines.filter((line) => /trapped|SQLSTATE|cannot be used/.test(line))).toEqual([])
})

test('with the same traps, fleethook/once writes its marks', async () => {
  // Of a thousand transactions, none has to wait for the disk.
  const pool = poolOf(`${pathWithTraps} -c synchronous_commit=off`)
  const once = createOnce<pg.PoolClient>({
    database: 'postgres',
    run: async (client, sql, values) => (await client.query(sql, values)).rowCount ?? 0,
    transaction: async (work) => void (await transactionsOf(pool)(work)),
  })
  for (const sql of once.schema) await pool.query(sql)
  const lines: string[] = []
  const receiver = createReceiver({ secret: false, log: logInto(lines), retry: { attempts: 1 } })
  receiver.on(
    'data',
    once('all', (_event, _context, client) => client.query('SELECT 1')),
  )
  // After a thousand marks, old ones are deleted.
  for (let number = 0; number < 1_010; number += 1) await post(receiver, number % 50, number)
  await expect.poll(() => receiver.stats(), { timeout: 60_000 }).toMatchObject({ handled: 1_010, deadLettered: 0 })
  expect(lines).toEqual([])
  await receiver.drain()
})
