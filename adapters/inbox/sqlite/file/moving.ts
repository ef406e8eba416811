import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { FleethookError } from '../../../../src/base/errors.ts'
import { idWithSeq } from '../../../../src/inbox/delivery-id.ts'
import { failureOf, openDatabase } from './database.ts'
import type { SignOfLife } from './interface.ts'
import { columnsOf, downtimeOf, inTransaction, type SqlRow, valueOf } from './schema.ts'
import { closedWithSuspects } from './signs.ts'

/** What moved from one file to another. */
export interface Moved {
  readonly messages: number
  readonly deadLetters: number
  readonly gaps: number
}

/** The pages of a journal to which little is appended. */
const walPages = 1_000
const batchRows = 1_000

/** Moves what waits in the file of a stopped receiver, its dead letters and its gaps to another one. Throws a `FleethookError`. */
export function moveToFile(from: string, to: string, sign: SignOfLife): Moved {
  const db = openDatabase(to, walPages)
  try {
    return moveInto(db, from, sign)
  } catch (error) {
    throw failureOf(error, from)
  } finally {
    db.close()
  }
}

/**
 * Moves everything in one transaction. SQLite commits to two files atomically while both have a rollback journal, so a message is in exactly
 * one of them whenever the process ends.
 */
export function moveInto(db: DatabaseSync, from: string, sign: SignOfLife): Moved {
  // Takes the lock, checks that it is an inbox, and moves its journal into the file.
  openDatabase(from, walPages).close()
  useRollbackJournal(db)
  try {
    db.prepare('ATTACH ? AS source').run(from)
    try {
      useRollbackJournal(db, 'source')
      db.exec('PRAGMA source.synchronous = FULL')
      return inTransaction(db, () => moveAll(db, sign))
    } finally {
      db.exec('DETACH source')
    }
  } finally {
    db.prepare('PRAGMA main.journal_mode = WAL').get()
  }
}

function useRollbackJournal(db: DatabaseSync, schema = 'main'): void {
  const mode = valueOf(db, `PRAGMA ${schema}.journal_mode = DELETE`)
  if (mode !== 'delete') throw new FleethookError('inbox_locked', `SQLite keeps journal mode ${String(mode)}.`)
}

function moveAll(db: DatabaseSync, sign: SignOfLife): Moved {
  const state = db.prepare('SELECT * FROM source.state').get() ?? {}
  // A process that crashed may have handed out what waits.
  if (state['closed'] !== 1) db.exec(`UPDATE main.state SET closed = ${closedWithSuspects} WHERE closed = 1`)
  const messages = moveTable(db, 'pending')
  const deadLetters = moveTable(db, 'dead')
  return { messages, deadLetters, gaps: moveGaps(db, state, sign) }
}

/** Returns the number of rows. */
function moveTable(db: DatabaseSync, table: 'pending' | 'dead'): number {
  const next = db.prepare(
    `SELECT t.*, m.id, m.lane, m.received_at, m.door, m.kind, m.bytes, m.crc, m.text, f.failure
     FROM source.${table} t JOIN source.messages m USING (place) LEFT JOIN source.failing f USING (place)
     WHERE t.place > ? ORDER BY t.place LIMIT ?`,
  )
  const placeOf = db.prepare('SELECT id FROM main.messages WHERE place = ?')
  const addMessage = inserter(db, 'messages')
  const addRow = inserter(db, table)
  const addFailure = db.prepare('INSERT OR REPLACE INTO main.failing (place, failure) VALUES (?, ?)')
  let count = 0
  let last = -1
  for (
    let rows = next.all(-1, batchRows);
    rows.length > 0;
    rows = next.all(Number(rows.at(-1)?.['place']), batchRows)
  ) {
    for (const row of rows) {
      const from = Number(row['place'])
      const place = freePlace(placeOf, row, Math.max(from, last + 1))
      // The message is here already, because somebody used a copy of the file.
      if (place === undefined) continue
      last = place
      const here = { ...row, place, id: place === from ? String(row['id']) : idWithSeq(String(row['id']), place) }
      addMessage(here)
      addRow(here)
      if (table === 'pending' && row['failure'] != null) addFailure.run(place, row['failure'])
      count += 1
    }
  }
  db.exec(`DELETE FROM source.messages WHERE place IN (SELECT place FROM source.${table}); DELETE FROM source.${table}`)
  if (table === 'pending') db.exec('DELETE FROM source.failing')
  return count
}

/** Another message can have the same place. The message then gets the next free one, in the old order. */
function freePlace(placeOf: StatementSync, { id }: SqlRow, from: number): number | undefined {
  let place = from
  for (let taken = placeOf.get(place); taken !== undefined; taken = placeOf.get(place)) {
    if (taken['id'] === id) return undefined
    place += 1
  }
  return place
}

function inserter(db: DatabaseSync, table: keyof typeof columnsOf): (row: SqlRow) => void {
  const names = columnsOf[table].split(', ')
  const insert = db.prepare(
    `INSERT INTO main.${table} (${columnsOf[table]}) VALUES (${names.map(() => '?').join(', ')})`,
  )
  return (row) => void insert.run(...names.map((name) => row[name] ?? null))
}

/** Moves the gaps that the source has not reported, and that of its crash. Marks the source as closed. */
function moveGaps(db: DatabaseSync, state: SqlRow, sign: SignOfLife): number {
  const count = Number(valueOf(db, 'SELECT count(*) FROM source.holes'))
  db.exec(`
    INSERT INTO main.holes (${columnsOf.holes}) SELECT ${columnsOf.holes} FROM source.holes;
    DELETE FROM source.holes`)
  if (state['closed'] !== 0) return count
  const { fromMs, toMs } = downtimeOf(state, sign)
  db.prepare("INSERT INTO main.holes (reason, from_ms, to_ms) VALUES ('restarted', ?, ?)").run(fromMs, toMs)
  // The sign of life stays, so that its receiver reports the time in which it did not listen when it starts again.
  db.exec('UPDATE source.state SET closed = 1')
  return count + 1
}

/** Whether the connection works and is in WAL mode. */
export function isReady(db: DatabaseSync): boolean {
  try {
    return valueOf(db, 'PRAGMA main.journal_mode') === 'wal'
  } catch {
    return false
  }
}
