import { FleethookError } from '../base/errors.ts'

/** A row of an episode: its `id`, its `revision`, and columns of your own. */
export interface EpisodeRow {
  readonly id: string
  readonly revision: number
  readonly [column: string]: unknown
}

/** A statement of SQL, and the values of its parameters. */
export interface Statement<Value = SqlValue> {
  readonly sql: string
  readonly values: Value[]
}

/** What a driver takes. A `Date` and a `boolean` only for Postgres. */
export type SqlValue = string | number | bigint | Uint8Array | Date | boolean | null

/**
 * A statement that writes an episode as a row of your table, or changes the row that has its `id`. An older revision, of a dead letter that is replayed
 * days later, changes nothing. Columns that the row does not name keep what people wrote into them. The table needs `id` as its primary key and
 * the column `revision`.
 *
 * For SQLite, times become text in ISO 8601 and booleans 1 or 0. For Postgres, both stay what they are. Objects and lists become JSON.
 *
 * Throws `option_invalid` for a table or a column whose name is not of letters, digits and `_`, and for a row without an `id` or a `revision`.
 *
 * @example
 * ```ts
 * import { DatabaseSync } from 'node:sqlite'
 * import { type Episode, upsert } from 'fleethook/when'
 *
 * const db = new DatabaseSync(':memory:')
 * db.exec('CREATE TABLE trips (id TEXT PRIMARY KEY, revision, revoked, vin, started, note)')
 *
 * export function save({ id, revision, revoked, vin, startedAt }: Episode): void {
 *   const { sql, values } = upsert('sqlite', 'trips', { id, revision, revoked, vin, started: startedAt })
 *   db.prepare(sql).run(...values)
 * }
 * ```
 */
export function upsert(database: 'sqlite', table: string, row: EpisodeRow): Statement<SqliteValue>
export function upsert(database: 'postgres', table: string, row: EpisodeRow): Statement
export function upsert(database: 'sqlite' | 'postgres', table: string, row: EpisodeRow): Statement {
  const columns = Object.keys(row)
  for (const name of [...table.split('.'), ...columns])
    if (!/^[A-Za-z_]\w*$/.test(name)) throw invalid(`the name ${JSON.stringify(name)}`)
  if (row.id === '' || typeof row.id !== 'string' || !Number.isFinite(row.revision))
    throw invalid('a row without an `id` or a `revision`')
  const places = columns.map((_, at) => (database === 'postgres' ? `$${at + 1}` : '?'))
  const changes = columns.filter((name) => name !== 'id').map((name) => `${name} = excluded.${name}`)
  const sql = `INSERT INTO ${table} AS old (${columns.join(', ')}) VALUES (${places.join(', ')})
    ON CONFLICT (id) DO UPDATE SET ${changes.join(', ')} WHERE old.revision < excluded.revision`
  return { sql, values: Object.values(row).map((value) => valueOf(value, database === 'sqlite')) }
}

/** What a driver of SQLite takes. */
export type SqliteValue = Exclude<SqlValue, Date | boolean>

function valueOf(value: unknown, isSqlite: boolean): SqlValue {
  switch (typeof value) {
    case 'string':
    case 'number':
    case 'bigint':
      return value
    case 'boolean':
      return isSqlite ? Number(value) : value
    case 'undefined':
      return null
    default:
      if (value === null || value instanceof Uint8Array) return value
      if (value instanceof Date) return isSqlite ? value.toISOString() : value
      return JSON.stringify(value) ?? null
  }
}

const invalid = (what: string): FleethookError =>
  new FleethookError('option_invalid', `upsert cannot write ${what}.`, {
    hint: "Name the table and its columns with letters, digits and _, as in upsert('sqlite', 'trips', { id: trip.id, revision: trip.revision, … }).",
  })
