import { existsSync, readdirSync, statSync } from 'node:fs'
import { basename, dirname, extname, join, resolve } from 'node:path'
import type { DatabaseSync } from 'node:sqlite'
import type { UnopenedInbox } from '../../../../src/observe/stats.ts'
import { closeQuietly, loadSqlite } from './database.ts'
import { isInbox, suffixOf, valueOf } from './schema.ts'

/** The files beside this file that hold messages, and that no receiver has open. */
export function unopenedBeside(path: string): readonly UnopenedInbox[] {
  return filesBeside(path)
    .flatMap((each) => lookInto(each) ?? [])
    .filter(({ messages, deadLetters }) => messages + deadLetters > 0)
}

/** `data/inbox-1.db` and `data/inbox.db` have the siblings `data/inbox*.db`. */
function siblingPattern(path: string): string {
  const extension = extname(path)
  const name = basename(path, extension).replace(/(?<=.)[-_.][^-_.]+$/, '')
  return join(dirname(path), `${name}*${extension}`)
}

/** The siblings of a file, without the companion files of an inbox. */
function filesBeside(path: string): readonly string[] {
  const pattern = siblingPattern(path)
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

/** The files beside this file that an erasure does not reach: copies that were moved aside, and inboxes of others. */
export function notReached(path: string): readonly string[] {
  const folder = dirname(resolve(path))
  const aside = readdirSync(folder)
    .filter((name) =>
      [`${basename(path)}.damaged-`, `${basename(path)}.replaced-`].some((start) => name.startsWith(start)),
    )
    .map((name) => join(folder, name))
  return [...new Set([...aside, ...filesBeside(path)])].toSorted()
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
