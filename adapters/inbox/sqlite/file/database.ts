import {
  accessSync,
  closeSync,
  constants as access,
  existsSync,
  fsyncSync,
  lstatSync,
  mkdirSync,
  openSync,
  readlinkSync,
  realpathSync,
  renameSync,
  rmSync,
  type Stats,
  statSync,
  writeFileSync,
} from 'node:fs'
import { constants } from 'node:os'
import { dirname, resolve } from 'node:path'
import process from 'node:process'
import type * as Sqlite from 'node:sqlite'
import { type ErrorCode, FleethookError } from '../../../../src/base/errors.ts'
import { prepareSchema, valueOf } from './schema.ts'

/** Double the default of SQLite: a commit of many messages writes fewer pages. A file keeps the page size of its creation. */
export const pageBytes = 8192

/** The settings, in this order, and what SQLite must report. The lock comes before the WAL: no shared memory then. */
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
  // What is deleted is overwritten, where that writes no further page. `scrub.ts` has the rest of what an erasure needs.
  ['secure_delete', 'FAST', 2],
]

/** Opens a file for this process alone and creates it when it is missing. Throws a `FleethookError`. */
export function openDatabase(path: string, walPages: number): Sqlite.DatabaseSync {
  let db: Sqlite.DatabaseSync | undefined
  try {
    createFile(path)
    db = new (loadSqlite().DatabaseSync)(path)
    for (const [name, value] of pragmas(walPages)) db.exec(`PRAGMA ${name} = ${value}`)
    prepareSchema(db, path)
    for (const [name, , expected] of pragmas(walPages)) {
      const found = valueOf(db, `PRAGMA ${name}`)
      if (found === expected || name === 'page_size') continue
      throw new FleethookError(
        'inbox_unsupported',
        `The inbox ${path} cannot keep its promise here: SQLite reports ${name} = ${String(found)} instead of ${expected}.`,
        { hint: 'Put the file on a local disk with an ordinary file system.' },
      )
    }
    return db
  } catch (error) {
    closeQuietly(db)
    const failure = failureOf(error, path)
    throw failure.code === 'inbox_locked' && isReadable(path) ? lockedByReader(path, error) : failure
  }
}

/** A receiver lets nobody read its file. So a locked file that can be read belongs to another program. */
export function isReadable(path: string): boolean {
  let db: Sqlite.DatabaseSync | undefined
  try {
    db = new (loadSqlite().DatabaseSync)(path, { readOnly: true })
    db.exec('PRAGMA busy_timeout = 0')
    db.prepare('SELECT count(*) FROM sqlite_schema').get()
    return true
  } catch {
    return false
  } finally {
    closeQuietly(db)
  }
}

const lockedByReader = (path: string, cause: unknown): FleethookError =>
  new FleethookError('inbox_locked', `Another program has the inbox ${path} open, such as sqlite3 or a backup.`, {
    hint: 'Close that program, or let it read a copy: a receiver needs the file for itself. To look into a running one: fleethook tail, dead, vehicles.',
    cause,
  })

/** Copies the journal into the file, syncs it there, and starts an empty journal. */
export function checkpoint(db: Sqlite.DatabaseSync): void {
  db.prepare('PRAGMA wal_checkpoint(TRUNCATE)').get()
}

/** Only its owner may read it. Never opens a file that exists: closing it would release this process's lock. */
function createFile(path: string): void {
  const folder = dirname(path)
  mkdirSync(folder, { recursive: true })
  try {
    closeSync(openSync(path, 'wx', 0o600))
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error
    // SQLite would create the target of a link with the default permissions.
    if (!existsSync(path) && lstatSync(path).isSymbolicLink()) createFile(resolve(folder, readlinkSync(path)))
    return
  }
  syncFolder(folder)
}

/** Copies a file that was moved while open, under its old name if that is free. Returns the path of the copy. */
export function copyMoved(db: Sqlite.DatabaseSync, path: string): string {
  const isFree = !existsSync(path)
  const unfinished = `${path}-copy`
  rmSync(unfinished, { force: true })
  createFile(unfinished)
  db.prepare('VACUUM INTO ?').run(unfinished)
  withOpen(unfinished, 'r+', fsyncSync)
  const copy = isFree ? path : `${path}.replaced-${new Date().toISOString().replaceAll(/[-:.]/g, '')}`
  // The remaining journal belongs to the file that is gone.
  if (isFree) rmSync(`${path}-wal`, { force: true })
  renameSync(unfinished, isFree ? replacementPath(path) : copy)
  syncFolder(dirname(path))
  return copy
}

/** The name of a new file until it is complete. */
export const replacementPath = (path: string): string => `${path}-replacement`

/** A new name survives a power cut only after a sync of its folder. Windows cannot sync a folder, and does not need to. */
export function syncFolder(folder: string): void {
  try {
    withOpen(folder, 'r', fsyncSync)
  } catch {
    // SQLite ignores this error too.
  }
}

export function withOpen<T>(path: string, flags: string, use: (handle: number) => T): T {
  const handle = openSync(path, flags, 0o600)
  try {
    return use(handle)
  } finally {
    closeSync(handle)
  }
}

export function closeQuietly(db: Sqlite.DatabaseSync | undefined): void {
  try {
    db?.close()
  } catch {
    // The caller reports the error that made it close the file.
  }
}

export type SqliteModule = typeof Sqlite

/** `node:sqlite` of Node, Bun or Deno. Throws `inbox_unsupported` on a runtime without it. */
export function loadSqlite(): SqliteModule {
  const loaded = withoutItsWarning(() => process.getBuiltinModule?.('node:sqlite'))
  if (loaded !== undefined) return loaded
  throw new FleethookError(
    'inbox_unsupported',
    `The SQLite inbox needs \`node:sqlite\`, and this runtime (${process.version}) does not have it.`,
    { hint: 'Run Node 22.13 or later, Bun 1.4 or later or Deno 2.9 or later, or use memoryInbox().' },
  )
}

/** Node 22 warns that `node:sqlite` is experimental. We test those versions, and a user can do nothing about it. */
function withoutItsWarning<T>(load: () => T): T {
  const { emitWarning } = process
  process.emitWarning = (...given: readonly unknown[]) => {
    if (!String(given[0]).startsWith('SQLite is an experimental feature')) Reflect.apply(emitWarning, process, given)
  }
  try {
    return load()
  } finally {
    process.emitWarning = emitWarning
  }
}

/** Whether the disk is full or a quota is used up. Node has no name for the latter. */
export function isOutOfSpace(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  if ('code' in error && error.code === 'ENOSPC') return true
  return 'errno' in error && error.errno === -constants.errno.EDQUOT
}

/** SQLite calls a used-up quota a failed write, like other faults of a disk. A page beside the file shows which it is. */
function isQuotaUsedUp(path: string): boolean {
  const trial = `${path}-trial`
  try {
    // On Deno, an error of `writeSync` has no `errno`.
    writeFileSync(trial, new Uint8Array(pageBytes))
    return false
  } catch (error) {
    return isOutOfSpace(error)
  } finally {
    rmSync(trial, { force: true })
  }
}

/** SQLITE_IOERR_WRITE, with its extension. */
const writeFailed = 778

/** Result codes of SQLite, https://sqlite.org/rescode.html, without their extensions. */
const codes = {
  busy: 5,
  locked: 6,
  readOnly: 8,
  corrupt: 11,
  full: 13,
  cannotOpen: 14,
  tooBig: 18,
  constraint: 19,
  mismatch: 20,
  notADatabase: 26,
} as const

/**
 * What an error means for the inbox:
 * - `inbox_full`: the disk or its quota is full. SQLite rolled the transaction back, and the connection stays usable.
 * - `inbox_locked`: another process has the file.
 * - `inbox_damaged`: the content of the file cannot be trusted.
 * - `message_refused`: a value does not fit into its row. Other rows can be written.
 * - `inbox_unavailable`: anything else. The connection must not be used again: after a failed sync, the next one can report
 *   success without having written anything.
 */
export function failureOf(error: unknown, path: string): FleethookError {
  if (error instanceof FleethookError) return error
  const { code, text } = resultOf(error)
  const why = `${text}${code === undefined ? '' : ` (SQLite result ${code})`}`
  if (code === writeFailed && isQuotaUsedUp(path)) return diskFull(path, 'its quota is used up', error)
  switch (code === undefined ? code : code & 0xff) {
    case codes.full:
      return diskFull(path, why, error)
    case codes.busy:
    case codes.locked:
      return new FleethookError('inbox_locked', `Another receiver already uses the inbox ${path}.`, {
        hint: 'Stop the other receiver, give each receiver its own path, or raise `waitMs` so that this one waits longer.',
        cause: error,
      })
    case codes.corrupt:
    case codes.notADatabase:
      return new FleethookError('inbox_damaged', `The file of the inbox ${path} is damaged: ${why}.`, { cause: error })
    case codes.tooBig:
    case codes.constraint:
    case codes.mismatch:
      return rowRefused(path, why, error)
    default:
      // What cannot be bound to a statement has no result code.
      if (code === undefined && (error instanceof TypeError || error instanceof RangeError))
        return rowRefused(path, why, error)
      return (
        refusedAccess(path, error) ??
        new FleethookError('inbox_unavailable', `The inbox ${path} cannot be used: ${why}.`, {
          hint: accessHint(code, error),
          cause: error,
        })
      )
  }
}

export function isFailure(error: unknown, code: ErrorCode): boolean {
  return error instanceof FleethookError && error.code === code
}

/** Returns `false` on a full disk. */
export function unlessFull<Result>(path: string, run: () => Result): Result | false {
  try {
    return run()
  } catch (error) {
    const failure = failureOf(error, path)
    if (failure.code !== 'inbox_full') throw failure
    return false
  }
}

const rowRefused = (path: string, why: string, cause: unknown): FleethookError =>
  new FleethookError('message_refused', `The inbox ${path} refuses a row: ${why}.`, { cause })

/** True when the inbox is open, and when its process ends because it could not open it. */
export const goesOn = 'A receiver that runs continues by itself; if it could not start, start it again.'

export function diskFull(path: string, why: string, cause?: unknown): FleethookError {
  return new FleethookError('inbox_full', `The disk of the inbox ${path} is full: ${why}.`, {
    hint: `Free some space on the disk, or raise its quota. ${goesOn}`,
    cause,
  })
}

/** The error for a file or folder that this user may not use, or `undefined`. Opens no file. */
export function refusedAccess(path: string, cause?: unknown): FleethookError | undefined {
  const uid = userOfProcess()
  if (uid === undefined) return undefined
  const file = found(path) === undefined ? resolve(path) : realpathSync(path)
  let folder = dirname(file)
  // The folder may be missing, or this user may not search its parent.
  while (found(folder) === undefined && folder !== dirname(folder)) folder = dirname(folder)
  const refused = [folder, file, `${file}-wal`].find(isRefused)
  const stats = refused === undefined ? undefined : found(refused)
  if (stats === undefined) return undefined
  const rights = stats.isDirectory() ? 'rwx' : 'rw'
  const others = `Run it as user ${stats.uid}, or let user ${uid} read and write there. In a container, check the owner of the volume.`
  return new FleethookError(
    'inbox_unavailable',
    `The inbox ${path} cannot be used: this process runs as user ${uid} and may not read and write ${refused}, which belongs to user ${stats.uid}.`,
    { hint: stats.uid === uid ? `chmod u+${rights} ${refused}` : others, cause },
  )
}

/** Deno needs a permission for it, and Windows has no numbers for users. */
function userOfProcess(): number | undefined {
  try {
    return process.getuid?.()
  } catch {
    return undefined
  }
}

/** Whether nothing has this name. `false` when this user may not know. */
export function isMissing(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false }) === undefined
  } catch {
    return false
  }
}

function found(path: string): Stats | undefined {
  try {
    return statSync(path)
  } catch {
    return undefined
  }
}

function isRefused(path: string): boolean {
  try {
    accessSync(path, access.R_OK | access.W_OK | (found(path)?.isDirectory() === true ? access.X_OK : 0))
    return false
  } catch (error) {
    return error instanceof Error && 'code' in error && /^E(ACCES|PERM)$/.test(String(error.code))
  }
}

function accessHint(code: number | undefined, error: unknown): string | undefined {
  const isSqlite = code !== undefined && [codes.readOnly, codes.cannotOpen].some((one) => one === (code & 0xff))
  // The operating system refused to create the file or its folder.
  const isSystem =
    error instanceof Error &&
    'code' in error &&
    /^E(ACCES|PERM|ROFS|EXIST|NOENT|ISDIR|NOTDIR)$/.test(String(error.code))
  return isSqlite || isSystem ? 'Let the user of this process write the file and its folder.' : undefined
}

function resultOf(error: unknown): { readonly code: number | undefined; readonly text: string } {
  if (!(error instanceof Error)) return { code: undefined, text: `a ${typeof error} was thrown` }
  const { message: text } = error
  if ('errcode' in error && typeof error.errcode === 'number') return { code: error.errcode, text }
  // Deno adds the number to errors of prepared statements only.
  return { code: texts.find(([start]) => text.startsWith(start))?.[1], text }
}

/** How the error texts of SQLite begin. */
const texts: readonly (readonly [start: string, code: number])[] = [
  ['database is locked', codes.busy],
  ['database table is locked', codes.locked],
  ['attempt to write a readonly database', codes.readOnly],
  ['database disk image is malformed', codes.corrupt],
  ['malformed database schema', codes.corrupt],
  ['database or disk is full', codes.full],
  ['unable to open database file', codes.cannotOpen],
  ['file is not a database', codes.notADatabase],
]
