import { readdirSync, statSync } from 'node:fs'
import { basename, dirname, extname, join, resolve } from 'node:path'
import type { DatabaseSync } from 'node:sqlite'
import { setImmediate } from 'node:timers/promises'
import { FleethookError } from '../../../../src/base/errors.ts'
import { idWithSeq } from '../../../../src/inbox/delivery-id.ts'
import type { UnopenedInbox } from '../../../../src/inbox/stats.ts'
import { closeQuietly, failureOf, loadSqlite, openDatabase, valueOf } from './database.ts'
import type { Siblings, SignOfLife } from './interface.ts'
import { downtimeOf, isInbox, type SqlRow } from './schema.ts'

/** What is known of the other files before this one is in use. */
export interface FoundSiblings extends Siblings {
  /** A process that crashed left some of the adopted messages, so its last claims may be missing. */
  readonly unclean: boolean
}

/** The pages of the journal of a file that is about to be adopted. Nothing is appended to it. */
const walPages = 1_000

/**
 * Takes over what stopped receivers left in the files that match `adopt`. Without `adopt`, it only counts what they left.
 *
 * SQLite commits to two files atomically while both have a rollback journal, so a message is in exactly one of them, whenever
 * the process ends. Both files are in WAL mode again when a receiver opens them.
 */
export async function findSiblings(
  db: DatabaseSync,
  path: string,
  adopt: string | undefined,
  sign: SignOfLife,
): Promise<FoundSiblings> {
  const adopted: UnopenedInbox[] = []
  const unopened: UnopenedInbox[] = []
  let unclean = false
  for (const source of filesBeside(path, adopt ?? siblingPattern(path))) {
    if (adopt === undefined) {
      const left = lookInto(source)
      if (left !== undefined && left.messages + left.deadLetters > 0) unopened.push(left)
      continue
    }
    try {
      const found = prepare(source)
      if (found === undefined) continue
      adopted.push(await takeOver(db, source, sign))
      unclean ||= found.unclean
    } catch (error) {
      if (!isReady(db)) throw error
      const left = lookInto(source) ?? { path: source, messages: 0, deadLetters: 0 }
      if (left.messages + left.deadLetters > 0 || failureOf(error, source).code === 'inbox_damaged') unopened.push(left)
    }
  }
  return { adopted, unopened, unclean }
}

/** `data/inbox-1.db` and `data/inbox.db` have the siblings `data/inbox*.db`. */
function siblingPattern(path: string): string {
  const extension = extname(path)
  const name = basename(path, extension).replace(/(?<=.)[-_.][^-_.]+$/, '')
  return join(dirname(path), `${name}*${extension}`)
}

/** The files that match, without this one and without the files that belong to an inbox. */
function filesBeside(path: string, pattern: string): readonly string[] {
  const folder = dirname(resolve(pattern))
  const parts = basename(pattern).split('*').map(escaped)
  const name = new RegExp(`^${parts.join('.*')}$`, 's')
  const own = statSync(path, { throwIfNoEntry: false })
  let names: readonly string[]
  try {
    names = readdirSync(folder).toSorted()
  } catch {
    return []
  }
  return names
    .filter((each) => name.test(each) && !/-(wal|shm|journal|reserve|mended|copy|new)$|\.damaged-|\.sock$/.test(each))
    .map((each) => join(folder, each))
    .filter((each) => {
      const found = statSync(each, { throwIfNoEntry: false })
      return found?.isFile() === true && found.size > 0 && !(found.ino === own?.ino && found.dev === own.dev)
    })
}

function escaped(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|]/g, String.raw`\$&`)
}

/** The number of messages in a file. `undefined` when a receiver has it open, or it is not an inbox. */
function lookInto(path: string): UnopenedInbox | undefined {
  let db: DatabaseSync | undefined
  try {
    db = new (loadSqlite().DatabaseSync)(path)
    db.exec('PRAGMA busy_timeout = 0; PRAGMA locking_mode = EXCLUSIVE')
    if (!isInbox(db)) return undefined
    const messages = Number(valueOf(db, 'SELECT count(*) FROM pending'))
    const deadLetters = Number(valueOf(db, 'SELECT count(*) FROM dead'))
    return { path, messages, deadLetters }
  } catch {
    return undefined
  } finally {
    closeQuietly(db)
  }
}

/**
 * Checks that everything in a file can be read, and gives it a rollback journal. `undefined` when it holds nothing. Throws
 * `inbox_locked` when a receiver has it open.
 */
function prepare(path: string): { readonly unclean: boolean } | undefined {
  const db = openDatabase(path, walPages)
  try {
    const count = (sql: string): number => Number(valueOf(db, sql))
    const readable = ['pending', 'dead'].map((table) =>
      count(`SELECT count(*) + 0 * ifnull(sum(length(m.text)), 0) FROM ${table} JOIN messages m USING (place)`),
    )
    const unclean = count('SELECT closed FROM state') === 0
    if (!unclean && readable.every((rows) => rows === 0) && count('SELECT count(*) FROM holes') === 0) return undefined
    useRollbackJournal(db)
    return { unclean }
  } finally {
    closeQuietly(db)
  }
}

function useRollbackJournal(db: DatabaseSync, schema = 'main'): void {
  const mode = valueOf(db, `PRAGMA ${schema}.journal_mode = DELETE`)
  if (mode !== 'delete') throw new FleethookError('inbox_locked', `SQLite keeps journal mode ${String(mode)}.`)
}

/** Whether the connection works and is in WAL mode. */
function isReady(db: DatabaseSync): boolean {
  try {
    return valueOf(db, 'PRAGMA main.journal_mode') === 'wal'
  } catch {
    return false
  }
}

/** The most messages of one transaction. */
const batchRows = 1_000

async function takeOver(db: DatabaseSync, path: string, sign: SignOfLife): Promise<UnopenedInbox> {
  useRollbackJournal(db)
  try {
    db.prepare('ATTACH ? AS source').run(path)
    try {
      db.exec('PRAGMA source.synchronous = FULL')
      useRollbackJournal(db, 'source')
      const messages = await move(
        db,
        'pending',
        'place, id, lane, kind, bytes, deliveries, attempts, not_before, replayed, changed',
      )
      const deadLetters = await move(db, 'dead', 'place, bytes, error, attempts, died_at, changed')
      together(db, () => moveGaps(db, sign))
      return { path, messages, deadLetters }
    } finally {
      db.exec('DETACH source')
    }
  } finally {
    db.prepare('PRAGMA main.journal_mode = WAL').get()
  }
}

/** Moves the rows of a table with their messages, batch by batch. */
async function move(db: DatabaseSync, table: 'pending' | 'dead', columns: string): Promise<number> {
  const names = columns.split(', ')
  const read = db.prepare(
    `SELECT t.*, m.id, m.lane, m.received_at, m.door, m.kind, m.bytes, m.crc, m.text
     FROM source.${table} t JOIN source.messages m USING (place) WHERE t.place > ? ORDER BY t.place LIMIT ${batchRows}`,
  )
  const atPlace = db.prepare('SELECT id FROM main.messages WHERE place = ?')
  const addMessage = db.prepare('INSERT INTO main.messages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)')
  const addRow = db.prepare(`INSERT INTO main.${table} (${columns}) VALUES (${names.map(() => '?').join(', ')})`)
  const removals = [`DELETE FROM source.${table} WHERE place = ?`, 'DELETE FROM source.messages WHERE place = ?'].map(
    (sql) => db.prepare(sql),
  )
  let count = 0
  let last = -1

  /** Another message of this inbox can have the same `seq`. The message then gets the next free one, in the old order. */
  function add(row: SqlRow, from: number): void {
    let place = Math.max(from, last + 1)
    for (let taken = atPlace.get(place); taken !== undefined; taken = atPlace.get(place)) {
      // A copy of the file was used as well: this inbox already has the message.
      if (taken['id'] === row['id']) return
      place += 1
    }
    last = place
    const id = place === from ? String(row['id']) : idWithSeq(String(row['id']), place)
    const moved: SqlRow = { ...row, place, id }
    const values = ['place', 'id', 'lane', 'received_at', 'door', 'kind', 'bytes', 'crc', 'text']
    addMessage.run(...values.map((name) => moved[name] ?? null))
    addRow.run(...names.map((name) => moved[name] ?? null))
    count += 1
  }

  for (let after: number | undefined = -1; after !== undefined;) {
    const rows: readonly SqlRow[] = read.all(after)
    together(db, () => {
      for (const row of rows) {
        const from = Number(row['place'])
        add(row, from)
        for (const removal of removals) removal.run(from)
      }
    })
    after = rows.length < batchRows ? undefined : Number(rows.at(-1)?.['place'])
    // Other work gets its turn.
    await setImmediate()
  }
  return count
}

/** Takes over the gaps that the source has not reported, and the one of its crash. From now on the source is closed. */
function moveGaps(db: DatabaseSync, sign: SignOfLife): void {
  db.exec(`
    INSERT INTO main.holes (reason, from_ms, to_ms, vin, missed) SELECT reason, from_ms, to_ms, vin, missed FROM source.holes;
    DELETE FROM source.holes`)
  const state = db.prepare('SELECT * FROM source.state').get()
  if (state?.['closed'] === 0) {
    const { fromMs, toMs } = downtimeOf(state, sign)
    db.prepare("INSERT INTO main.holes (reason, from_ms, to_ms) VALUES ('restarted', ?, ?)").run(fromMs, toMs)
  }
  // The sign of life stays: when its receiver starts again, it reports for itself that it did not listen.
  db.exec('UPDATE source.state SET closed = 1')
}

/** One transaction over both files. */
function together(db: DatabaseSync, run: () => void): void {
  db.exec('BEGIN IMMEDIATE')
  try {
    run()
    db.exec('COMMIT')
  } catch (error) {
    try {
      db.exec('ROLLBACK')
    } catch {
      // SQLite already rolled back.
    }
    throw error
  }
}
