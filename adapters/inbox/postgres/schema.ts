import { FleethookError } from '../../../src/base/errors.ts'
import { viewStatements } from './backlog.ts'
import type { Database } from './client.ts'

/** The version of the tables. */
const version = 3

/** The number of partitions that vehicles are spread over. It is part of what is stored, so it never changes. */
export const partitions = 64

/** The partition of a lane: FNV-1a over its UTF-16 code units. It is part of what is stored, so it never changes. */
export function partitionOf(lane: string): number {
  let hash = 0x811c_9dc5
  for (let at = 0; at < lane.length; at += 1) hash = Math.imul(hash ^ lane.charCodeAt(at), 0x0100_0193)
  return (hash >>> 0) % partitions
}

/** Text of Postgres cannot hold a NUL. JSON text has none, but a VIN that was read from it can. */
export const storable = (text: string): string => text.replaceAll('\0', '\uFFFD')

/** The statements that create the tables, or bring them up to date, in one transaction. Running them again changes nothing. */
export function schemaStatements(schema: string): readonly string[] {
  return [
    // IF NOT EXISTS alone fails when two processes do it at once.
    `SELECT pg_advisory_xact_lock(hashtext('fleethook ${schema}'))`,
    `CREATE SCHEMA IF NOT EXISTS ${schema}`,
    `CREATE TABLE IF NOT EXISTS ${schema}.meta (version int NOT NULL)`,
    `CREATE TABLE IF NOT EXISTS ${schema}.message (
  id uuid PRIMARY KEY, lane text NOT NULL, received_at bigint NOT NULL, door text NOT NULL, kind text NOT NULL, bytes int NOT NULL,
  text text NOT NULL)`,
    `CREATE TABLE IF NOT EXISTS ${schema}.waiting (
  part smallint NOT NULL, seq bigint GENERATED ALWAYS AS IDENTITY, id uuid NOT NULL,
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(), attempts int NOT NULL DEFAULT 0, not_before bigint NOT NULL DEFAULT 0,
  deliveries int NOT NULL DEFAULT 0, replayed boolean NOT NULL DEFAULT false, changed text, done text[] NOT NULL DEFAULT '{}',
  PRIMARY KEY (part, seq)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000)`,
    `CREATE INDEX IF NOT EXISTS waiting_xid ON ${schema}.waiting (xid)`,
    `CREATE TABLE IF NOT EXISTS ${schema}.dead (
  id uuid PRIMARY KEY, error text NOT NULL, attempts int NOT NULL, died_at bigint NOT NULL, changed text)`,
    `CREATE TABLE IF NOT EXISTS ${schema}.part (
  part smallint PRIMARY KEY, owner uuid, epoch bigint NOT NULL DEFAULT 0, until timestamptz) WITH (fillfactor = 50)`,
    `CREATE TABLE IF NOT EXISTS ${schema}.process (id uuid PRIMARY KEY, until timestamptz NOT NULL)`,
    `CREATE TABLE IF NOT EXISTS ${schema}.receiver (
  id uuid PRIMARY KEY, seen_at bigint NOT NULL, closed boolean NOT NULL, gaps text NOT NULL, accounted boolean NOT NULL DEFAULT false,
  since bigint NOT NULL DEFAULT floor(extract(epoch FROM clock_timestamp()) * 1000))`,
    `CREATE TABLE IF NOT EXISTS ${schema}.vehicle (
  vin text COLLATE "C" PRIMARY KEY, part smallint NOT NULL, seq bigint NOT NULL, seen_at bigint, due bigint, text text NOT NULL
) WITH (fillfactor = 80)`,
    `CREATE INDEX IF NOT EXISTS vehicle_due ON ${schema}.vehicle (part) WHERE due IS NOT NULL`,
    // What all processes must know: the place of each gap of all vehicles (vin ''), and vehicles to forget.
    `CREATE TABLE IF NOT EXISTS ${schema}.notice (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, vin text NOT NULL, seq bigint, at timestamptz NOT NULL DEFAULT now())`,
    `CREATE TABLE IF NOT EXISTS ${schema}.moved (file uuid PRIMARY KEY, seq bigint NOT NULL)`,
    // A crash of the server, a failover and a restore empty a table that is not in the log, and may give ids of transactions again.
    `CREATE UNLOGGED TABLE IF NOT EXISTS ${schema}.boot (one boolean PRIMARY KEY DEFAULT true, id uuid NOT NULL DEFAULT gen_random_uuid())`,
    ...viewStatements(schema),
    `INSERT INTO ${schema}.part (part) SELECT generate_series(0, ${partitions - 1}) ON CONFLICT DO NOTHING`,
    `UPDATE ${schema}.meta SET version = ${version} WHERE version = 2`,
    `INSERT INTO ${schema}.meta SELECT ${version} WHERE NOT EXISTS (SELECT FROM ${schema}.meta)`,
  ]
}

/** What the server promises about what it committed. */
export interface Found {
  /** What a crash of the server can lose. `undefined`: nothing. */
  readonly weakness: string | undefined
  /** Whether a commit waits for a standby. */
  readonly isReplicated: boolean
}

/** Checks the server and the tables before the first message. Rejects with a FleethookError. */
export async function checkServer(db: Database, allowWeak: boolean): Promise<Found> {
  const [row] = await db.run(
    `SELECT current_setting('server_version_num')::int AS number, current_setting('server_version') AS version,
  current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,
  current_setting('synchronous_commit') AS synchronous_commit, current_setting('synchronous_standby_names') AS standbys,
  (pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on')::text AS readonly`,
  )
  if (Number(row?.['number']) < 140_000)
    throw new FleethookError(
      'inbox_unsupported',
      `Postgres ${String(row?.['version'])} is too old: postgresInbox needs version 14 or later.`,
    )
  if (row?.['readonly'] === 'true')
    throw new FleethookError('inbox_unavailable', 'This Postgres is read-only: a replica cannot keep messages.', {
      hint: 'Connect to the primary.',
    })
  const off = ['fsync', 'full_page_writes', 'synchronous_commit'].find((name) => row?.[name] === 'off')
  const weakness = off && `${off} is off`
  if (weakness !== undefined && !allowWeak)
    throw new FleethookError('option_invalid', `In this Postgres ${weakness}: a crash can lose committed messages.`, {
      hint: 'Turn it on for the user of the inbox. allowWeak: true accepts that messages can be lost.',
    })
  const [meta] = await db.run(`SELECT version FROM ${db.schema}.meta`)
  if (Number(meta?.['version']) !== version)
    throw new FleethookError(
      'inbox_unsupported',
      `The tables in the schema ${db.schema} have version ${String(meta?.['version'])}, and this fleethook knows ${version}.`,
      {
        hint: 'Use one version of fleethook in every process. `fleethook postgres schema --apply` updates older tables.',
      },
    )
  const commit = String(row?.['synchronous_commit'])
  const isReplicated = row?.['standbys'] !== '' && commit !== 'local' && commit !== 'off'
  return { weakness, isReplicated }
}
