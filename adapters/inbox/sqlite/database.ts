import { closeSync, fsyncSync, mkdirSync, openSync } from 'node:fs'
import { dirname } from 'node:path'
import type { DatabaseSync } from 'node:sqlite'
import { FleethookError } from '../../../src/base/errors.ts'
import { failureOf } from './failure.ts'
import { migrate } from './schema.ts'
import { loadSqlite } from './sqlite-module.ts'

/** Twice what SQLite takes by itself: fewer pages to write for the messages of one commit. Files keep what they were made with. */
export const pageBytes = 8192

/** An open file. */
export interface Opening {
  readonly db: DatabaseSync
  /** The version of SQLite, for the log. */
  readonly version: string
  /** The version of the schema that the file had; 0 for a new one. */
  readonly from: number
}

/**
 * What a connection is told, in this order, and what it must answer when it is asked. The lock is exclusive before the journal is
 * a WAL, so that no shared memory is used at all; a sync of macOS reaches the disk only with `fullfsync`.
 */
const pragmas = (walPages: number): readonly (readonly [name: string, value: string, read: string | number])[] => [
  ['busy_timeout', '0', 0],
  ['locking_mode', 'EXCLUSIVE', 'exclusive'],
  ['mmap_size', '0', 0],
  ['page_size', String(pageBytes), pageBytes],
  ['auto_vacuum', 'INCREMENTAL', 2],
  ['journal_mode', 'WAL', 'wal'],
  ['synchronous', 'FULL', 2],
  ['fullfsync', 'ON', 1],
  ['checkpoint_fullfsync', 'ON', 1],
  ['wal_autocheckpoint', String(walPages), walPages],
  ['journal_size_limit', '33554432', 33_554_432],
  ['cache_size', '-8000', -8000],
  ['temp_store', 'MEMORY', 2],
  ['cell_size_check', 'ON', 1],
  ['trusted_schema', 'OFF', 0],
]

/** Opens a file for this process alone, and makes it when there is none. Throws a `FleethookError`. */
export function openDatabase(path: string, walPages: number): Opening {
  let db: DatabaseSync | undefined
  try {
    create(path)
    db = new (loadSqlite().DatabaseSync)(path)
    for (const [name, value] of pragmas(walPages)) db.exec(`PRAGMA ${name} = ${value}`)
    const from = migrate(db, path)
    for (const [name, , expected] of pragmas(walPages)) if (name !== 'page_size') expect(db, path, name, expected)
    return { db, from, version: String(db.prepare('SELECT sqlite_version() AS version').get()?.['version']) }
  } catch (error) {
    closeQuietly(db)
    throw failureOf(error, path)
  }
}

function expect(db: DatabaseSync, path: string, name: string, expected: string | number): void {
  const found = Object.values(db.prepare(`PRAGMA ${name}`).get() ?? {})[0]
  if (found === expected) return
  throw new FleethookError(
    'inbox_unsupported',
    `The inbox ${path} cannot keep its promise here: ${name} is ${String(found)} and must be ${expected}.`,
    { hint: 'Put the file on a local disk with an ordinary file system.' },
  )
}

/**
 * Messages say where vehicles are: nobody else may read them. Never opens a file that is there: closing it again would
 * release the lock that this process may have on it.
 */
function create(path: string): void {
  const folder = dirname(path)
  mkdirSync(folder, { recursive: true })
  try {
    closeSync(openSync(path, 'wx', 0o600))
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EEXIST') return
    throw error
  }
  syncFolder(folder)
}

/** A new name in a folder outlives a power cut only when the folder was synced. Windows has no such thing. */
export function syncFolder(folder: string): void {
  try {
    const handle = openSync(folder, 'r')
    try {
      fsyncSync(handle)
    } finally {
      closeSync(handle)
    }
  } catch {
    // SQLite does as little where it cannot be done.
  }
}

/** Closes a file of which nothing good is expected. */
export function closeQuietly(db: DatabaseSync | undefined): void {
  try {
    db?.close()
  } catch {
    // Nothing more is asked of it.
  }
}
