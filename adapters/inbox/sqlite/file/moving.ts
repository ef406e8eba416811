import type { DatabaseSync } from 'node:sqlite'
import { FleethookError } from '../../../../src/base/errors.ts'
import { idWithSeq } from '../../../../src/inbox/delivery-id.ts'
import { failureOf, openDatabase } from './database.ts'
import type { SignOfLife } from './interface.ts'
import { Readers } from './readers.ts'
import { columnsOf, inTransaction, type SqlRow, suffixOf, valueOf } from './schema.ts'
import { closedWithSuspects, downtimeOf } from './signs.ts'

/** What moved from one file to another. */
export interface Moved {
  /** Messages that wait, for the receiver or a branch. */
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
      const readers = readersOf(db, sign)
      return inTransaction(db, () => moveAll(db, readers, sign))
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

function moveAll(db: DatabaseSync, readers: readonly MovedReader[], sign: SignOfLife): Moved {
  const state = db.prepare('SELECT * FROM source.state').get() ?? {}
  // A process that crashed may have handed out what waits.
  if (state['closed'] !== 1) db.exec(`UPDATE main.state SET closed = ${closedWithSuspects} WHERE closed = 1`)
  db.exec('CREATE TEMP TABLE moved (place INTEGER PRIMARY KEY, here INTEGER NOT NULL)')
  moveMessages(db, readers)
  const messages = waiting(db, readers)
  let deadLetters = 0
  for (const reader of readers) deadLetters += moveReader(db, reader)
  db.exec('DROP TABLE temp.moved')
  return { messages, deadLetters, gaps: moveGaps(db, readers, state, sign) }
}

/** A reader of the source, and its number here. */
interface MovedReader {
  readonly from: number
  readonly to: number
}

/** A branch is the one of the same name here, which is new if there is none. */
function readersOf(db: DatabaseSync, { nowMs }: SignOfLife): readonly MovedReader[] {
  const here = new Readers(db)
  const rows = db.prepare('SELECT number, name FROM source.readers ORDER BY number').all()
  return rows.map(({ number, name }) => ({ from: Number(number), to: here.use(String(name), nowMs).number }))
}

const tablesOf = (readers: readonly MovedReader[], tables: readonly string[]): string =>
  readers
    .flatMap(({ from }) => tables.map((table) => `SELECT place FROM source.${table}${suffixOf(from)}`))
    .join(' UNION ')

/** Moves the messages that somebody still needs. `temp.moved` then has their old and their new places. */
function moveMessages(db: DatabaseSync, readers: readonly MovedReader[]): void {
  const needed = tablesOf(readers, ['pending', 'dead'])
  const next = db.prepare(
    `SELECT * FROM source.messages WHERE place > ? AND place IN (${needed}) ORDER BY place LIMIT ${batchRows}`,
  )
  const idAt = db.prepare('SELECT id FROM main.messages WHERE place = ?')
  const names = columnsOf.messages.split(', ')
  const add = db.prepare(
    `INSERT INTO main.messages (${columnsOf.messages}) VALUES (${names.map(() => '?').join(', ')})`,
  )
  const note = db.prepare('INSERT INTO temp.moved (place, here) VALUES (?, ?)')
  let last = -1
  for (let rows = next.all(-1); rows.length > 0; rows = next.all(Number(rows.at(-1)?.['place']))) {
    for (const row of rows) {
      const from = Number(row['place'])
      // Another message can have the same place. The message then gets the next free place, in the old order.
      let place = Math.max(from, last + 1)
      let taken = idAt.get(place)
      for (; taken !== undefined && taken['id'] !== row['id']; taken = idAt.get(place)) place += 1
      // It is here already, because somebody used a copy of the file.
      if (taken !== undefined) continue
      last = place
      const reader = readers.find((each) => each.from === row['reader'])?.to ?? null
      const id = place === from ? String(row['id']) : idWithSeq(String(row['id']), place)
      const here: SqlRow = { ...row, place, id, reader }
      add.run(...names.map((name) => here[name] ?? null))
      note.run(from, place)
    }
  }
  db.exec(`DELETE FROM source.messages WHERE place IN (${needed})`)
}

const waiting = (db: DatabaseSync, readers: readonly MovedReader[]): number =>
  Number(valueOf(db, `SELECT count(*) FROM temp.moved WHERE place IN (${tablesOf(readers, ['pending'])})`))

/** Moves what one reader still has to do with these messages. Returns the number of its dead letters. */
function moveReader(db: DatabaseSync, { from, to }: MovedReader): number {
  const rowsOf = (table: string, columns: string): void => {
    const [source, here] = [`source.${table}${suffixOf(from)}`, `main.${table}${suffixOf(to)}`]
    const values = columns
      .split(', ')
      .map((name) => (name === 'place' ? 'v.here' : name === 'id' ? 'm.id' : `t.${name}`))
    db.exec(`
      INSERT INTO ${here} (${columns}) SELECT ${values.join(', ')}
        FROM ${source} t JOIN temp.moved v ON v.place = t.place JOIN main.messages m ON m.place = v.here;
      DELETE FROM ${source}`)
  }
  const deadLetters = valueOf(db, `SELECT count(*) FROM source.dead${suffixOf(from)} JOIN temp.moved USING (place)`)
  db.exec(
    `DELETE FROM source.failing${suffixOf(from)} WHERE place NOT IN (SELECT place FROM source.pending${suffixOf(from)})`,
  )
  rowsOf('failing', 'place, failure')
  rowsOf('pending', columnsOf.pending)
  rowsOf('dead', columnsOf.dead)
  return Number(deadLetters)
}

/** Moves the gaps that the source has not reported, and the gap of its crash. Marks the source as closed. */
function moveGaps(db: DatabaseSync, readers: readonly MovedReader[], state: SqlRow, sign: SignOfLife): number {
  const count = Number(valueOf(db, 'SELECT count(*) FROM source.holes'))
  const values = columnsOf.holes.replace(/reader$/, '?')
  for (const { from, to } of readers)
    db.prepare(`INSERT INTO main.holes (${columnsOf.holes}) SELECT ${values} FROM source.holes WHERE reader = ?`).run(
      to,
      from,
    )
  db.exec('DELETE FROM source.holes')
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
