import { FleethookError } from '../../../src/base/errors.ts'
import { seqOf } from '../../../src/inbox/delivery-id.ts'
import { pageBytes } from '../../../src/base/pages.ts'
import type { Selection } from '../../../src/inbox/inbox.ts'
import type { ObjectSql, SqlValue } from './platform.ts'

/** A row of `fleethook_messages`, or some of its columns. */
export type Row = Readonly<Record<string, SqlValue>>

export type Rows = (query: string, ...bindings: readonly (string | number | null)[]) => readonly Row[]

/** The selected dead letters of a reader, oldest first, or what waits for it, too, newest first. `source`: see {@link PlaceRows.source}. */
export function listing(rows: Rows, source: string, what: 'dead' | 'all', which: Selection): readonly Row[] {
  const { id, limit, after, lane, fromMs, toMs } = which
  const order = what === 'dead' ? 'ASC' : 'DESC'
  // The state is part of the statement's text, so that SQLite finds the index of dead letters.
  const conditions = [what === 'dead' ? `state = ${dead}` : `state <> ${over}`]
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
       FROM (SELECT place, bytes FROM ${source} WHERE ${conditions.join(' AND ')} ORDER BY place ${order} LIMIT ?)) page
     JOIN ${source} m USING (place) WHERE page.before < ${pageBytes} ORDER BY place ${order}`,
    ...bindings,
    limit,
  )
}

/** What a reader has to do with a message. `over`: nothing, and another reader needs the message. Only the receiver has rows of that. */
export const waiting = 0
export const dead = 1
export const over = 2

/** The columns of what one reader has done with a message: in the row of the message for the receiver, and in a row of its own for a branch. */
const ofReader = `
     state INTEGER NOT NULL DEFAULT ${waiting},
     deliveries INTEGER NOT NULL DEFAULT 0,
     attempts INTEGER NOT NULL DEFAULT 0,
     not_before INTEGER NOT NULL DEFAULT 0,
     replayed INTEGER NOT NULL DEFAULT 0,
     error TEXT,
     died_at INTEGER,
     changed TEXT`

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
     bytes INTEGER NOT NULL,${ofReader}
   );
   CREATE INDEX fleethook_dead ON fleethook_messages (place) WHERE state = ${dead};
   ${vehicleTable('fleethook_vehicles')}`

export function vehicleTable(name: string): string {
  return `CREATE TABLE ${name} (
     vin TEXT PRIMARY KEY,
     place INTEGER NOT NULL,
     seen_at INTEGER NOT NULL,
     -- The first timer, and what stands for the rules about time that are in the text.
     due INTEGER,
     rules TEXT,
     text TEXT NOT NULL
   ) WITHOUT ROWID;`
}

/**
 * For branches. The bit of a reader in `readers` says that it needs the message: one row is written when it is done, instead of one to give it a place
 * and one to take that. Only what failed has a row in `fleethook_places`.
 */
const forReaders = `
   ALTER TABLE fleethook_messages ADD COLUMN readers INTEGER NOT NULL DEFAULT 0;
   CREATE TABLE fleethook_places (
     reader INTEGER NOT NULL,
     place INTEGER NOT NULL,${ofReader},
     PRIMARY KEY (reader, place)
   ) WITHOUT ROWID;
   CREATE TABLE fleethook_readers (
     number INTEGER PRIMARY KEY,
     name TEXT NOT NULL,
     -- Since when no receiver has this branch, and since when its states of vehicles lack messages.
     left_at INTEGER,
     stale_from INTEGER,
     -- Its gaps that no event reports yet.
     gaps TEXT
   );`

/** The version of an object whose messages have branches. Without, the tables are as fleethook without branches knows them. */
const withReaders = '3'
const schemaVersion = '2'

/** Creates the tables of a new object. Throws `inbox_unavailable` when another fleethook made them. */
export function prepareSchema(sql: ObjectSql): void {
  sql.exec('CREATE TABLE IF NOT EXISTS fleethook_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID')
  const version = readMeta(sql, 'version')
  if (version === withReaders) return
  if (version !== undefined && version !== schemaVersion) {
    throw new FleethookError(
      'inbox_unavailable',
      // What to do about `The inbox of this object has version …, and this fleethook knows version …`: Deploy the newer fleethook again.
      `The inbox of this object has version ${version}, and this fleethook knows version ${withReaders}.`,
      { hint: 'Deploy the fleethook that wrote it again.' },
    )
  }
  if (version === undefined) {
    sql.exec(schema)
    writeMeta(sql, 'version', schemaVersion)
  }
  const [known] = sql.exec("SELECT 1 FROM sqlite_master WHERE name = 'fleethook_readers'").toArray()
  if (known === undefined) sql.exec(forReaders)
}

/** From now on, an older fleethook would delete messages that a branch needs, so it must not open the object. */
export function markReaders(sql: ObjectSql): void {
  if (readMeta(sql, 'version') !== withReaders) writeMeta(sql, 'version', withReaders)
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
