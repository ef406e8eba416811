import { FleethookError } from '../../../src/base/errors.ts'
import { viewStatements } from './backlog.ts'
import { type Database, stateOf } from './client.ts'
import { aboutServer, type Promised, promisedBy, weakError } from './promises.ts'
import { serverMs } from './server-clock.ts'
import { mostBranches } from './tables.ts'

export { storable } from '../../../src/base/errors.ts'

/** The version of the tables. CONTRIBUTING says how to change them: `test/postgres/schemas` has each version as it is. */
export const schemaVersion = 5

/** The oldest version whose code works with these tables, at most the one before: processes are replaced one by one. */
export const oldestVersion = 4

/** The number of partitions that vehicles are spread over. It is part of what is stored, so it never changes. */
export const partitions = 64

/** The partition of a lane: FNV-1a over its UTF-16 code units. It is part of what is stored, so it never changes. */
export function partitionOf(lane: string): number {
  let hash = 0x811c_9dc5
  for (let at = 0; at < lane.length; at += 1) hash = Math.imul(hash ^ lane.charCodeAt(at), 0x0100_0193)
  return (hash >>> 0) % partitions
}

/**
 * The statements that create the tables, or bring tables of any older version up to date, in one transaction. Running them again changes nothing,
 * and then locks no table. They wait for a lock for a bounded time, so that receivers do not queue up behind them.
 */
export function schemaStatements(schema: string): readonly string[] {
  return [
    // Others may create in what an administrator has in the search_path.
    'SET LOCAL search_path = pg_catalog, pg_temp',
    `SET LOCAL lock_timeout = '${lockSeconds}s'`,
    // IF NOT EXISTS alone fails when two processes do it at once.
    `SELECT pg_advisory_xact_lock(hashtext('fleethook ${schema}'))`,
    `CREATE SCHEMA IF NOT EXISTS ${schema}`,
    `CREATE TABLE IF NOT EXISTS ${schema}.meta (
  version int NOT NULL, known_ms bigint, doubted_ms bigint, seen_ms bigint, oldest int)`,
    `CREATE TABLE IF NOT EXISTS ${schema}.message (
  id uuid PRIMARY KEY, lane text NOT NULL, received_at bigint NOT NULL, door text NOT NULL, kind text NOT NULL, bytes int NOT NULL,
  text text NOT NULL, branch smallint)`,
    `CREATE TABLE IF NOT EXISTS ${schema}.waiting (
  part smallint NOT NULL, seq bigint GENERATED ALWAYS AS IDENTITY, id uuid NOT NULL,
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(), attempts int NOT NULL DEFAULT 0, not_before bigint NOT NULL DEFAULT 0,
  deliveries int NOT NULL DEFAULT 0, replayed boolean NOT NULL DEFAULT false, changed text, done text[] NOT NULL DEFAULT '{}', replay text,
  failing_since bigint, failed_by text, error text,
  PRIMARY KEY (part, seq)
) WITH (${storageOf.waiting})`,
    `CREATE INDEX IF NOT EXISTS waiting_xid ON ${schema}.waiting (xid)`,
    `CREATE TABLE IF NOT EXISTS ${schema}.dead (
  id uuid PRIMARY KEY, error text NOT NULL, attempts int NOT NULL, died_at bigint NOT NULL, changed text,
  done text[] NOT NULL DEFAULT '{}', replay text)`,
    `CREATE TABLE IF NOT EXISTS ${schema}.part (
  part smallint PRIMARY KEY, owner uuid, epoch bigint NOT NULL DEFAULT 0, clean boolean NOT NULL DEFAULT true) WITH (fillfactor = 50)`,
    // Each set of handlers that a process had, as JSON.
    `CREATE TABLE IF NOT EXISTS ${schema}.handling (
  handlers text PRIMARY KEY, since timestamptz NOT NULL, until timestamptz NOT NULL, ended boolean NOT NULL)`,
    `CREATE TABLE IF NOT EXISTS ${schema}.process (id uuid PRIMARY KEY, until timestamptz NOT NULL, version int)`,
    `CREATE TABLE IF NOT EXISTS ${schema}.receiver (
  id uuid PRIMARY KEY, seen_at bigint NOT NULL, closed boolean NOT NULL, gaps text NOT NULL, accounted boolean NOT NULL DEFAULT false,
  since bigint NOT NULL DEFAULT floor(extract(epoch FROM clock_timestamp()) * 1000), version int)`,
    // A row that is not compressed, and whose next version has room in the same page, is logged only as far as it changed.
    `CREATE TABLE IF NOT EXISTS ${schema}.vehicle (
  vin text COLLATE "C" PRIMARY KEY, part smallint NOT NULL, seq bigint NOT NULL, seen_at bigint, due bigint, text text NOT NULL, rules text
) WITH (${storageOf.vehicle})`,
    `CREATE INDEX IF NOT EXISTS vehicle_due ON ${schema}.vehicle (part) WHERE due IS NOT NULL`,
    // What all processes must know: the place of each gap of all vehicles (vin ''), and vehicles to forget.
    `CREATE TABLE IF NOT EXISTS ${schema}.notice (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, vin text NOT NULL, seq bigint, at timestamptz NOT NULL DEFAULT now(), kind text)`,
    `CREATE TABLE IF NOT EXISTS ${schema}.moved (file uuid PRIMARY KEY, seq bigint NOT NULL)`,
    // A crash of the server, a failover and a restore empty a table that is not in the log, and may give ids of transactions again.
    `CREATE UNLOGGED TABLE IF NOT EXISTS ${schema}.boot (one boolean PRIMARY KEY DEFAULT true, id uuid NOT NULL DEFAULT gen_random_uuid())`,
    `DO $update$ BEGIN IF EXISTS (SELECT FROM ${schema}.meta WHERE version < ${schemaVersion}) THEN
${updates(schema).join(';\n')};
END IF; END $update$`,
    // Tables of version 3 may lack it.
    `DO $update$ BEGIN IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = '${schema}.meta'::regclass AND attname = 'oldest') THEN
ALTER TABLE ${schema}.meta ADD COLUMN oldest int;
END IF; END $update$`,
    ...viewStatements(schema),
    ...branchStatements(schema),
    `INSERT INTO ${schema}.part (part) SELECT generate_series(0, ${partitions - 1}) ON CONFLICT DO NOTHING`,
    `INSERT INTO ${schema}.meta (version, oldest) SELECT ${schemaVersion}, ${oldestVersion} WHERE NOT EXISTS (SELECT FROM ${schema}.meta)`,
    `UPDATE ${schema}.meta SET oldest = ${oldestVersion} WHERE version = ${schemaVersion} AND (oldest IS NULL OR oldest < ${oldestVersion})`,
  ]
}

/** How rows of tables that change often are stored. */
const storageOf = {
  waiting: 'fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000',
  vehicle: 'fillfactor = 50, toast_tuple_target = 4080',
} as const

/** Each branch has the tables of the receiver once more. They are there before it is: a process that runs creates no tables. */
function branchStatements(schema: string): readonly string[] {
  const like = (table: string, storage = ''): string =>
    `EXECUTE 'CREATE TABLE ${schema}.branch_' || n || '_${table} (LIKE ${schema}.${table} INCLUDING ALL)${storage}'`
  const create = [
    like('waiting', ` WITH (${storageOf.waiting})`),
    like('dead'),
    like('vehicle', ` WITH (${storageOf.vehicle})`),
    like('notice'),
  ]
  return [
    // The branches that read the inbox. A branch that was removed has `gone_at` after `used_at`.
    `CREATE TABLE IF NOT EXISTS ${schema}.branch (
  number smallint PRIMARY KEY, name text NOT NULL UNIQUE, used_at bigint NOT NULL, gone_at bigint)`,
    `DO $branches$ BEGIN FOR n IN 1..${mostBranches} LOOP IF to_regclass('${schema}.branch_' || n || '_notice') IS NULL THEN
${create.join(';\n')};
END IF; END LOOP; END $branches$`,
  ]
}

/** What tables of an older version lack. Each statement also fits tables that have it already. */
const updates = (schema: string): readonly string[] => [
  // 2: states of vehicles, whose tables are created above.
  `ALTER TABLE ${schema}.receiver ADD COLUMN IF NOT EXISTS accounted boolean NOT NULL DEFAULT false,
  ADD COLUMN IF NOT EXISTS since bigint NOT NULL DEFAULT ${serverMs}`,
  // 3: a process renews one row, retention remembers the time that it believed, and dead letters keep the marks of their handlers.
  `ALTER TABLE ${schema}.meta ADD COLUMN IF NOT EXISTS known_ms bigint,
  ADD COLUMN IF NOT EXISTS doubted_ms bigint, ADD COLUMN IF NOT EXISTS seen_ms bigint`,
  `ALTER TABLE ${schema}.waiting ADD COLUMN IF NOT EXISTS replay text, ADD COLUMN IF NOT EXISTS failing_since bigint,
  ADD COLUMN IF NOT EXISTS failed_by text, ADD COLUMN IF NOT EXISTS error text`,
  `ALTER TABLE ${schema}.dead ADD COLUMN IF NOT EXISTS done text[] NOT NULL DEFAULT '{}', ADD COLUMN IF NOT EXISTS replay text`,
  `ALTER TABLE ${schema}.part ADD COLUMN IF NOT EXISTS clean boolean NOT NULL DEFAULT true, DROP COLUMN IF EXISTS until`,
  // 4: what stands for the rules about time in a state.
  `ALTER TABLE ${schema}.vehicle ADD COLUMN IF NOT EXISTS rules text`,
  // 5: branches read the inbox of their receiver, and a gap can be a mere pause.
  `ALTER TABLE ${schema}.message ADD COLUMN IF NOT EXISTS branch smallint`,
  `ALTER TABLE ${schema}.process ADD COLUMN IF NOT EXISTS version int`,
  `ALTER TABLE ${schema}.receiver ADD COLUMN IF NOT EXISTS version int`,
  `ALTER TABLE ${schema}.notice ADD COLUMN IF NOT EXISTS kind text`,
  `UPDATE ${schema}.meta SET version = ${schemaVersion} WHERE version < ${schemaVersion}`,
]

/** How long a change of the tables waits for a lock, in seconds: less than a message may take to be committed. */
const lockSeconds = 5

/** What the tables say of themselves. */
export interface TablesVersion {
  readonly version: number
  /** The oldest version whose code works with them. */
  readonly oldest: number
}

/** `undefined` when there are no tables. */
export async function versionOf(db: Database): Promise<TablesVersion | undefined> {
  try {
    // Tables of older versions do not say which code works with them.
    const [meta] = await db.run(
      `SELECT version, coalesce((to_jsonb(m) ->> 'oldest')::int, version) AS oldest FROM ${db.schema}.meta m`,
    )
    return meta && { version: Number(meta['version']), oldest: Number(meta['oldest']) }
  } catch (error) {
    if (/^(?:42P01|3F000)$/.test(stateOf(error))) return undefined
    throw error
  }
}

/** Whether this code works with the tables: with its own, and with newer ones that say so. */
export const isKnown = ({ version, oldest }: TablesVersion): boolean =>
  version >= schemaVersion && oldest <= schemaVersion

/** A message can hold any character. Rejects with a FleethookError when the database cannot. */
export async function checkEncoding(db: Database): Promise<void> {
  const [row] = await db.run(`SELECT current_setting('server_encoding') AS encoding, current_database()::text AS name`)
  if (row?.['encoding'] === 'UTF8') return
  throw new FleethookError(
    'inbox_unsupported',
    // What to do about `The database … has the encoding …`: `CREATE DATABASE fleet TEMPLATE template0 ENCODING 'UTF8'`.
    `The database ${String(row?.['name'])} has the encoding ${String(row?.['encoding'])}, which cannot keep every message: UTF8 can.`,
    { hint: "Create one for the inbox: CREATE DATABASE fleet TEMPLATE template0 ENCODING 'UTF8'." },
  )
}

/**
 * Rejects with a FleethookError when a role that is not an owner may create functions, operators or types where Postgres looks for the names in
 * the statements of the inbox: they would run as its user. So this statement has the schema of each name.
 */
export async function checkSearchPath(db: Database): Promise<void> {
  const [found] = await db.run(`SELECT n.nspname::pg_catalog.text AS name FROM pg_catalog.pg_namespace n,
  LATERAL pg_catalog.aclexplode(coalesce(n.nspacl, pg_catalog.acldefault('n'::pg_catalog."char", n.nspowner))) a
WHERE n.nspname OPERATOR(pg_catalog.=) ANY (pg_catalog.current_schemas(false))
  AND a.privilege_type OPERATOR(pg_catalog.=) 'CREATE'::pg_catalog.text AND a.grantee OPERATOR(pg_catalog.<>) n.nspowner
  AND a.grantee OPERATOR(pg_catalog.<>) (SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname OPERATOR(pg_catalog.=) current_user)
LIMIT 1`)
  if (found === undefined) return
  const name = String(found['name'])
  throw new FleethookError(
    'inbox_unsupported',
    // What to do: `REVOKE CREATE ON SCHEMA … FROM PUBLIC`, or `ALTER ROLE … SET search_path = pg_catalog` for the user of the inbox.
    `The schema ${name} is in the search_path, and others may create functions there, which would run as the user of the inbox.`,
    {
      hint: `Take that from them: REVOKE CREATE ON SCHEMA "${name}" FROM PUBLIC. Or give the user of the inbox a path without it: ALTER ROLE … SET search_path = pg_catalog.`,
    },
  )
}

/** Checks the server and the tables before the first message. Rejects with a FleethookError. */
export async function checkServer(db: Database, allowWeak: boolean): Promise<Promised> {
  await checkSearchPath(db)
  const [row] = await db.run(
    `SELECT current_setting('server_version_num')::int AS number, current_setting('server_version') AS version,
  ${aboutServer},
  (pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on')::text AS readonly`,
  )
  if (Number(row?.['number']) < 140_000)
    throw new FleethookError(
      'inbox_unsupported',
      `Postgres ${String(row?.['version'])} is too old: postgresInbox needs version 14 or later.`,
    )
  await checkEncoding(db)
  if (row?.['readonly'] === 'true')
    throw new FleethookError('inbox_unavailable', 'This Postgres is read-only: a replica cannot keep messages.', {
      hint: 'Connect to the primary.',
    })
  const promised = promisedBy(row)
  if (promised.weakness !== undefined && !allowWeak) throw weakError(promised.weakness, 'option_invalid')
  const tables = await versionOf(db)
  // Rejects with what Postgres says.
  if (tables === undefined) await db.run(`SELECT version FROM ${db.schema}.meta`)
  if (tables === undefined || !isKnown(tables)) throw otherVersion(db.schema, tables?.version ?? 0)
  return promised
}

/** Says which side is older, because only one of the two can be changed. */
export function otherVersion(schema: string, version: number): FleethookError {
  // What to do about `The tables in the schema … have version …, and this fleethook knows …`: `fleethook postgres schema --apply` of the newer fleethook,
  // then replace the processes one by one.
  const message = `The tables in the schema ${schema} have version ${version}, and this fleethook knows ${schemaVersion}.`
  const hint =
    version < schemaVersion
      ? 'Update the tables first, while older processes run: fleethook postgres schema --apply'
      : 'Use the newest fleethook in every process that uses these tables.'
  return new FleethookError('inbox_unsupported', message, { hint })
}
