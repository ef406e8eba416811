import { existsSync, readdirSync, statSync } from 'node:fs'
import { basename, dirname, extname, join, resolve } from 'node:path'
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { setImmediate } from 'node:timers/promises'
import { FleethookError } from '../../../../src/base/errors.ts'
import { idWithSeq, msOfSeq } from '../../../../src/inbox/delivery-id.ts'
import type { InboxGap } from '../../../../src/inbox/inbox.ts'
import { pageOf } from '../../../../src/base/pages.ts'
import type { UnopenedInbox } from '../../../../src/observe/stats.ts'
import { waitingOf } from '../../stored-row.ts'
import { closeQuietly, failureOf, loadSqlite, openDatabase } from './database.ts'
import type { AdoptedPart, Adopted, Siblings, SignOfLife } from './interface.ts'
import { columnsOf, downtimeOf, gapOf, inTransaction, isInbox, type SqlRow, valueOf } from './schema.ts'

/** The pages of the journal of a file that is about to be adopted. Nothing is appended to it. */
const walPages = 1_000

/**
 * Takes over all files that match `adopt` and that no receiver has open. Without `adopt`, it only looks what the files beside this one
 * hold.
 */
export async function findSiblings(
  db: DatabaseSync,
  path: string,
  adopt: string | undefined,
  sign: SignOfLife,
): Promise<Siblings> {
  if (adopt === undefined) {
    const others = othersBeside(db, path, siblingPattern(path), sign)
    return {
      adopted: [],
      unopened: others.flatMap((each) => lookInto(each) ?? []).filter(holdsMessages),
      unclean: false,
    }
  }
  const adopted = new Map<string, UnopenedInbox>()
  const begun = new Map<string, Adopting>()
  let unclean = false
  for (;;) {
    const { part, unopened } = adoptPart(db, path, adopt, sign, begun, Infinity)
    if (part === undefined) return { adopted: [...adopted.values()], unopened, unclean }
    const { messages = 0, deadLetters = 0 } = adopted.get(part.path) ?? {}
    adopted.set(part.path, {
      path: part.path,
      messages: messages + part.waiting.length,
      deadLetters: deadLetters + part.deadLetters,
    })
    unclean ||= part.unclean
    // Other work gets its turn.
    await setImmediate()
  }
}

/** The files of branches that the receiver no longer has, where messages wait. Notes the branches that it has. */
export function branchesLeft(
  db: DatabaseSync,
  path: string,
  { files = [], isBranch = false }: SignOfLife,
): readonly UnopenedInbox[] {
  if (isBranch) return []
  const now = files.filter((file) => file !== resolve(path))
  const before = knownBranches(db)
  const gone = before.filter((file) => !now.includes(file)).map((file) => ({ file, found: lookInto(file) }))
  const done = gone.filter(({ file, found }) => !existsSync(file) || (found !== undefined && !holdsMessages(found)))
  const isNew = now.some((file) => !before.includes(file))
  if (isNew || done.length > 0)
    inTransaction(db, () => {
      for (const file of now) db.prepare('INSERT OR IGNORE INTO branches VALUES (?)').run(file)
      for (const { file } of done) db.prepare('DELETE FROM branches WHERE file = ?').run(file)
    })
  return gone.flatMap(({ found }) => found ?? []).filter(holdsMessages)
}

const knownBranches = (db: DatabaseSync): readonly string[] =>
  db
    .prepare('SELECT file FROM branches')
    .all()
    .map(({ file }) => String(file))

const holdsMessages = ({ messages, deadLetters }: UnopenedInbox): boolean => messages + deadLetters > 0

/** `data/inbox-1.db` and `data/inbox.db` have the siblings `data/inbox*.db`. */
function siblingPattern(path: string): string {
  const extension = extname(path)
  const name = basename(path, extension).replace(/(?<=.)[-_.][^-_.]+$/, '')
  return join(dirname(path), `${name}*${extension}`)
}

/** The files that match, without this one and without the companion files of an inbox. */
function filesBeside(path: string, pattern: string): readonly string[] {
  const folder = dirname(resolve(pattern))
  const escaped = basename(pattern).replaceAll(/[\\^$.+?()[\]{}|]/g, String.raw`\$&`)
  const name = new RegExp(`^${escaped.replaceAll('*', '.*')}$`, 's')
  const own = statSync(path, { throwIfNoEntry: false })
  let names: readonly string[]
  try {
    names = readdirSync(folder).toSorted()
  } catch {
    return []
  }
  return names
    .filter(
      (each) => name.test(each) && !/-(wal|shm|journal|reserve|replacement|copy|new)$|\.damaged-|\.sock$/.test(each),
    )
    .map((each) => join(folder, each))
    .filter((each) => {
      const found = statSync(each, { throwIfNoEntry: false })
      return found?.isFile() === true && found.size > 0 && !(found.ino === own?.ino && found.dev === own.dev)
    })
}

/** Those of other receivers. What waits on a branch is not for its receiver, which has handled it. */
function othersBeside(db: DatabaseSync, path: string, pattern: string, { files = [] }: SignOfLife): readonly string[] {
  const own = [...files, ...knownBranches(db)]
  return filesBeside(path, pattern).filter((each) => !own.includes(each))
}

/** The files beside this one that an erasure does not reach: copies that were moved aside, inboxes of others, and those of branches that are gone. */
export function notReached(db: DatabaseSync, path: string, sign: SignOfLife): readonly string[] {
  const folder = dirname(resolve(path))
  const aside = readdirSync(folder)
    .filter((name) =>
      [`${basename(path)}.damaged-`, `${basename(path)}.replaced-`].some((start) => name.startsWith(start)),
    )
    .map((name) => join(folder, name))
  const branches = knownBranches(db).filter((file) => sign.files?.includes(file) !== true && existsSync(file))
  return [...new Set([...aside, ...othersBeside(db, path, siblingPattern(path), sign), ...branches])].toSorted()
}

/** The number of messages in a file. `undefined` when a receiver has it open, or it is not an inbox. */
function lookInto(path: string): UnopenedInbox | undefined {
  return peek(path, (db) => {
    const messages = Number(valueOf(db, 'SELECT count(*) FROM pending'))
    const deadLetters = Number(valueOf(db, 'SELECT count(*) FROM dead'))
    return { path, messages, deadLetters }
  })
}

/** Reads from a file that no receiver has open. `undefined` when a receiver has it open, or it is not an inbox. */
function peek<T>(path: string, read: (db: DatabaseSync) => T): T | undefined {
  let db: DatabaseSync | undefined
  try {
    // SQLite would create it.
    if (!existsSync(path)) return undefined
    db = new (loadSqlite().DatabaseSync)(path)
    db.exec('PRAGMA busy_timeout = 0; PRAGMA locking_mode = EXCLUSIVE')
    return isInbox(db) ? read(db) : undefined
  } catch {
    return undefined
  } finally {
    closeQuietly(db)
  }
}

/** Checks that all can be read, and sets a rollback journal. `undefined`: it holds nothing. Throws `inbox_locked`. */
function prepare(path: string): Adopting | undefined {
  const db = openDatabase(path, walPages)
  try {
    const count = (sql: string): number => Number(valueOf(db, sql))
    const readable = ['pending', 'dead'].map((table) =>
      count(`SELECT count(*) + 0 * ifnull(sum(length(m.text)), 0) FROM ${table} JOIN messages m USING (place)`),
    )
    const unclean = count('SELECT closed FROM state') === 0
    if (!unclean && readable.every((rows) => rows === 0) && count('SELECT count(*) FROM holes') === 0) return undefined
    useRollbackJournal(db)
    return { unclean, progress: nothingYet() }
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

const batchRows = 1_000

/** The other file is `source` from now on, and both have a rollback journal. */
function attach(db: DatabaseSync, path: string): void {
  useRollbackJournal(db)
  try {
    db.prepare('ATTACH ? AS source').run(path)
  } catch (error) {
    useWal(db)
    throw error
  }
  try {
    db.exec('PRAGMA source.synchronous = FULL')
    useRollbackJournal(db, 'source')
  } catch (error) {
    detach(db)
    throw error
  }
}

function detach(db: DatabaseSync): void {
  try {
    db.exec('DETACH source')
  } finally {
    useWal(db)
  }
}

function useWal(db: DatabaseSync): void {
  db.prepare('PRAGMA main.journal_mode = WAL').get()
}

/** How far a file is taken over. */
interface Progress {
  table: 'pending' | 'dead' | undefined
  /** The last place that was read there, and the last place that was written here. */
  after: number
  last: number
}

const nothingYet = (): Progress => ({ table: 'pending', after: -1, last: -1 })

interface MovedRows {
  readonly table: 'pending' | 'dead'
  readonly rows: readonly SqlRow[]
}

/** Moves the next rows of a table with their messages. `undefined`: no row is left. */
function moveBatch(db: DatabaseSync, progress: Progress): MovedRows | undefined {
  const { table } = progress
  if (table === undefined) return undefined
  const names = columnsOf[table].split(', ')
  const seqs = db.prepare(
    `SELECT t.place FROM source.${table} t JOIN source.messages m USING (place) WHERE t.place > ? ORDER BY t.place LIMIT ?`,
  )
  const read = db.prepare(
    `SELECT t.*, m.id, m.lane, m.received_at, m.door, m.kind, m.bytes, m.crc, m.text
     FROM source.${table} t JOIN source.messages m USING (place) WHERE t.place = ?`,
  )
  const atPlace = db.prepare('SELECT id FROM main.messages WHERE place = ?')
  const addMessage = db.prepare('INSERT INTO main.messages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)')
  const addRow = db.prepare(
    `INSERT INTO main.${table} (${columnsOf[table]}) VALUES (${names.map(() => '?').join(', ')})`,
  )
  const removals = [table, 'messages'].map((name) => db.prepare(`DELETE FROM source.${name} WHERE place = ?`))
  const takeFailure = db.prepare('DELETE FROM source.failing WHERE place = ? RETURNING failure')
  const addFailure = db.prepare('INSERT OR REPLACE INTO main.failing (place, failure) VALUES (?, ?)')
  const moved: SqlRow[] = []
  let { last } = progress

  /** Another message of this inbox can have the same `seq`. The message then gets the next free one, in the old order. */
  function add(row: SqlRow, from: number): void {
    let place = Math.max(from, last + 1)
    for (let taken = atPlace.get(place); taken !== undefined; taken = atPlace.get(place)) {
      // The message is already here, because somebody used a copy of the file.
      if (taken['id'] === row['id']) return
      place += 1
    }
    last = place
    const id = place === from ? String(row['id']) : idWithSeq(String(row['id']), place)
    const here: SqlRow = { ...row, place, id }
    addMessage.run(...columnsOf.messages.split(', ').map((name) => here[name] ?? null))
    addRow.run(...names.map((name) => here[name] ?? null))
    const failure = table === 'pending' ? takeFailure.get(from)?.['failure'] : undefined
    if (failure != null) addFailure.run(place, failure)
    moved.push(failure == null ? here : { ...here, failure })
  }

  const found = seqs.all(progress.after, batchRows)
  const rows: readonly SqlRow[] = pageOf(readRows(read, found), batchRows, ({ bytes }) => Number(bytes))
  inTransaction(db, () => {
    for (const row of rows) {
      const from = Number(row['place'])
      add(row, from)
      for (const removal of removals) removal.run(from)
    }
  })
  const isLast = found.length < batchRows && rows.length === found.length
  if (isLast) Object.assign(progress, { ...nothingYet(), table: table === 'pending' ? 'dead' : undefined })
  else Object.assign(progress, { after: Number(rows.at(-1)?.['place']), last })
  return { table, rows: moved }
}

function* readRows(read: StatementSync, found: readonly SqlRow[]): Generator<SqlRow> {
  for (const { place } of found) {
    const row = read.get(Number(place))
    if (row !== undefined) yield row
  }
}

export interface Adopting {
  readonly unclean: boolean
  readonly progress: Progress
}

/**
 * Takes over the next part of a file whose receiver gave no sign of life since `beforeMs`. Call it until none is left. SQLite commits to
 * two files atomically while both have a rollback journal, so a message is in exactly one of them whenever the process ends.
 */
export function adoptPart(
  db: DatabaseSync,
  path: string,
  pattern: string,
  sign: SignOfLife,
  begun: Map<string, Adopting>,
  beforeMs: number,
): Pick<AdoptedPart, 'part' | 'unopened'> {
  const unopened: UnopenedInbox[] = []
  for (const source of othersBeside(db, path, pattern, sign)) {
    try {
      const found = begun.get(source) ?? (isGone(source, beforeMs) ? prepare(source) : undefined)
      if (found === undefined) continue
      begun.set(source, found)
      attach(db, source)
      let part: Adopted
      try {
        part = takeRows(db, source, sign, found)
      } finally {
        detach(db)
      }
      if (part.isLast) begun.delete(source)
      return { part, unopened }
    } catch (error) {
      begun.delete(source)
      if (!isReady(db)) throw error
      const left = lookInto(source) ?? { path: source, messages: 0, deadLetters: 0 }
      if (holdsMessages(left) || failureOf(error, source).code === 'inbox_damaged') unopened.push(left)
    }
  }
  return { part: undefined, unopened }
}

/** Whether the receiver of a file does not run, and did not run a moment ago. */
function isGone(path: string, beforeMs: number): boolean {
  if (beforeMs === Infinity) return true
  const lastMs = peek(path, (db) => {
    const aliveMs = Number(valueOf(db, 'SELECT alive_at FROM state'))
    const newest = Number(valueOf(db, 'SELECT max(place) FROM messages') ?? 0)
    // A message with a time in the future could get the place of one that this receiver is about to write.
    return Math.max(aliveMs, msOfSeq(newest))
  })
  return lastMs !== undefined && lastMs <= beforeMs
}

/** Takes over the next rows of the attached file, and its gaps with the last ones. */
function takeRows(db: DatabaseSync, path: string, sign: SignOfLife, { unclean, progress }: Adopting): Adopted {
  const { table, rows } = moveBatch(db, progress) ?? { table: 'dead', rows: [] }
  const isPending = table === 'pending'
  const isLast = progress.table === undefined
  const gaps = isLast ? inTransaction(db, () => moveGaps(db, sign)) : []
  return {
    path,
    unclean,
    gaps,
    isLast,
    waiting: isPending ? rows.map(waitingOf) : [],
    bytes: isPending ? rows.reduce((sum, row) => sum + Number(row['bytes']), 0) : 0,
    deadLetters: isPending ? 0 : rows.length,
  }
}

/** Takes over the gaps that the source has not reported, and that of its crash. Marks the source as closed. */
function moveGaps(db: DatabaseSync, sign: SignOfLife): readonly InboxGap[] {
  const gaps = db.prepare('SELECT * FROM source.holes').all().map(gapOf)
  db.exec(`
    INSERT INTO main.holes (${columnsOf.holes}) SELECT ${columnsOf.holes} FROM source.holes;
    DELETE FROM source.holes`)
  const state = db.prepare('SELECT * FROM source.state').get()
  if (state?.['closed'] === 0) {
    const { fromMs, toMs } = downtimeOf(state, sign)
    db.prepare("INSERT INTO main.holes (reason, from_ms, to_ms) VALUES ('restarted', ?, ?)").run(fromMs, toMs)
    gaps.push({ reason: 'restarted', fromMs, toMs })
  }
  // The sign of life stays, so that its receiver reports the time in which it did not listen when it starts again.
  db.exec('UPDATE source.state SET closed = 1')
  return gaps
}
