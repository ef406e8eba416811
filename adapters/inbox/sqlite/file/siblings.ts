import { existsSync, readdirSync, statSync } from 'node:fs'
import { basename, dirname, extname, join, resolve } from 'node:path'
import type { DatabaseSync } from 'node:sqlite'
import type { UnopenedInbox } from '../../../../src/observe/stats.ts'
import { closeQuietly, loadSqlite } from './database.ts'
import type { SignOfLife } from './interface.ts'
import { inTransaction, isInbox, suffixOf, valueOf } from './schema.ts'

/** The files beside this file that hold messages, and that no receiver has open. */
export function unopenedBeside(db: DatabaseSync, path: string, sign: SignOfLife): readonly UnopenedInbox[] {
  return othersBeside(db, path, siblingPattern(path), sign)
    .flatMap((each) => lookInto(each) ?? [])
    .filter(holdsMessages)
}

/** The files of branches that the receiver no longer has, where messages wait. Notes the branches that it has. */
export function branchesLeft(db: DatabaseSync, path: string, { files = [] }: SignOfLife): readonly UnopenedInbox[] {
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

/** The files of other receivers. What waits on a branch is not for its receiver, which has handled it. */
function othersBeside(db: DatabaseSync, path: string, pattern: string, { files = [] }: SignOfLife): readonly string[] {
  const own = [...files, ...knownBranches(db)]
  return filesBeside(path, pattern).filter((each) => !own.includes(each))
}

/** The files beside this file that an erasure does not reach: copies that were moved aside, inboxes of others, and files of branches that are gone. */
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
export function lookInto(path: string): UnopenedInbox | undefined {
  let db: DatabaseSync | undefined
  try {
    // SQLite would create it.
    if (!existsSync(path)) return undefined
    const opened = new (loadSqlite().DatabaseSync)(path)
    db = opened
    opened.exec('PRAGMA busy_timeout = 0; PRAGMA locking_mode = EXCLUSIVE')
    if (!isInbox(opened)) return undefined
    const readers = opened.prepare('SELECT number FROM readers').all()
    const places = (table: string): number => {
      const all = readers.map(({ number }) => `SELECT place FROM ${table}${suffixOf(Number(number))}`)
      return Number(valueOf(opened, `SELECT count(*) FROM (${all.join(' UNION ')})`))
    }
    const [messages, deadLetters] = [places('pending'), places('dead')]
    return { path, messages, deadLetters }
  } catch {
    return undefined
  } finally {
    closeQuietly(db)
  }
}
