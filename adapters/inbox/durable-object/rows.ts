import { FleethookError } from '../../../src/base/errors.ts'
import { seqOf } from '../../../src/inbox/delivery-id.ts'
import { pageBytes } from '../../../src/base/pages.ts'
import type { Selection } from '../../../src/inbox/inbox.ts'
import type { ObjectSql, SqlValue } from './platform.ts'

/** A row of `fleethook_messages`, or some of its columns. */
export type Row = Readonly<Record<string, SqlValue>>

export type Rows = (query: string, ...bindings: readonly (string | number | null)[]) => readonly Row[]

/** The selected dead letters, oldest first, or rows of all states, newest first. */
export function listing(rows: Rows, what: 'dead' | 'all', which: Selection): readonly Row[] {
  const { id, limit, after, lane, fromMs, toMs } = which
  const order = what === 'dead' ? 'ASC' : 'DESC'
  // The state is part of the statement's text, so that SQLite finds the index of dead letters.
  const conditions = what === 'dead' ? [`state = ${dead}`] : []
  const bindings: (string | number)[] = []
  const where = (condition: string, binding: string | number | undefined): void => {
    if (binding === undefined) return
    conditions.push(condition)
    bindings.push(binding)
  }
  where('place = ?', id === undefined ? undefined : seqOf(id))
  where(what === 'dead' ? 'place > ?' : 'place < ?', after === undefined ? undefined : seqOf(after))
  where('lane = ?', lane)
  where('received_at >= ?', fromMs)
  where('received_at < ?', toMs)
  // Texts are read only for what is in the page.
  return rows(
    `SELECT m.* FROM (SELECT place, sum(bytes) OVER (ORDER BY place ${order} ROWS UNBOUNDED PRECEDING) - bytes AS before
       FROM (SELECT place, bytes FROM fleethook_messages WHERE ${['TRUE', ...conditions].join(' AND ')} ORDER BY place ${order} LIMIT ?)) page
     JOIN fleethook_messages m USING (place) WHERE page.before < ${pageBytes} ORDER BY place ${order}`,
    ...bindings,
    limit,
  )
}

/** The state of a row. */
export const waiting = 0
export const dead = 1

/** The platform bills each written row and index entry, so `place` is the only key, and indexes cover few rows. */
const schema = `
   CREATE TABLE fleethook_messages (
     place INTEGER PRIMARY KEY,
     id TEXT NOT NULL,
     lane TEXT NOT NULL,
     received_at INTEGER NOT NULL,
     door TEXT NOT NULL,
     kind TEXT NOT NULL,
     text TEXT NOT NULL,
     bytes INTEGER NOT NULL,
     state INTEGER NOT NULL DEFAULT ${waiting},
     deliveries INTEGER NOT NULL DEFAULT 0,
     attempts INTEGER NOT NULL DEFAULT 0,
     not_before INTEGER NOT NULL DEFAULT 0,
     replayed INTEGER NOT NULL DEFAULT 0,
     error TEXT,
     died_at INTEGER,
     changed TEXT
   );
   CREATE INDEX fleethook_dead ON fleethook_messages (place) WHERE state = ${dead};
   CREATE TABLE fleethook_vehicles (
     vin TEXT PRIMARY KEY,
     place INTEGER NOT NULL,
     seen_at INTEGER NOT NULL,
     -- The first timer, and what stands for the rules about time that are in the text.
     due INTEGER,
     rules TEXT,
     text TEXT NOT NULL
   ) WITHOUT ROWID;`

const schemaVersion = '2'

/** Creates the tables of a new object. Throws `inbox_unavailable` when another fleethook made them. */
export function prepareSchema(sql: ObjectSql): void {
  sql.exec('CREATE TABLE IF NOT EXISTS fleethook_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID')
  const version = readMeta(sql, 'version')
  if (version === schemaVersion) return
  if (version !== undefined) {
    throw new FleethookError(
      'inbox_unavailable',
      // What to do about `The inbox of this object has version …, and this fleethook knows version …`: Deploy the newer fleethook again.
      `The inbox of this object has version ${version}, and this fleethook knows version ${schemaVersion}.`,
      { hint: 'Deploy the fleethook that wrote it again.' },
    )
  }
  sql.exec(schema)
  writeMeta(sql, 'version', schemaVersion)
}

export function readMeta(sql: ObjectSql, key: string): string | undefined {
  const [row] = sql.exec('SELECT value FROM fleethook_meta WHERE key = ?', key).toArray()
  return row === undefined ? undefined : String(row['value'])
}

export function deleteMeta(sql: ObjectSql, key: string): void {
  sql.exec('DELETE FROM fleethook_meta WHERE key = ?', key)
}

export function writeMeta(sql: ObjectSql, key: string, value: string): void {
  sql.exec(
    'INSERT INTO fleethook_meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = ?2',
    key,
    value,
  )
}
