import { existsSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import type { DatabaseSync } from 'node:sqlite'
import { msOfSeq } from '../../../../src/inbox/delivery-id.ts'
import { checkpoint, closeQuietly, loadSqlite, openDatabase, replacementPath, syncFolder } from './database.ts'
import type { Damage } from './interface.ts'
import { suffixOf } from './schema.ts'

/** Whether a process ended while it replaced a damaged file. The new one is complete. */
export function isHalfReplaced(path: string): boolean {
  return !existsSync(path) && existsSync(replacementPath(path))
}

/**
 * Moves a damaged file aside with its journal, and creates an empty one with a gap for everything that the old one may hold. The new file is
 * complete before the old one is renamed, so a process that ends in between leaves only renames to do.
 */
export function replaceDamaged(path: string, nowMs: number, walPages: number): Damage {
  const fromMs = createReplacement(path, nowMs, walPages)
  const quarantine = unusedName(path, nowMs)
  if (existsSync(path)) renameSync(path, quarantine)
  finishReplacing(path)
  return { quarantine, fromMs }
}

/** Continues where an earlier process stopped. */
export function finishReplacing(path: string): void {
  const quarantine = newestQuarantine(path)
  // The journal is renamed after its file, so that nobody takes the file for a complete one without it.
  if (quarantine !== undefined && existsSync(`${path}-wal`)) renameSync(`${path}-wal`, `${quarantine}-wal`)
  rmSync(`${path}-shm`, { force: true })
  syncFolder(dirname(path))
  renameSync(replacementPath(path), path)
  syncFolder(dirname(path))
}

/** Creates the new file under its temporary name. Returns the time at which its gap begins. */
function createReplacement(path: string, nowMs: number, walPages: number): number {
  for (const suffix of ['', '-wal', '-shm']) rmSync(replacementPath(path) + suffix, { force: true })
  const { lastId, fromMs } = whatWasKept(path)
  const fresh = openDatabase(replacementPath(path), walPages)
  try {
    fresh.prepare("INSERT INTO holes (reason, from_ms) VALUES ('inbox_damaged', ?)").run(fromMs)
    fresh.prepare('UPDATE state SET alive_at = ?, known_ms = ?, last_id = ?').run(nowMs, nowMs, lastId)
    // On a full disk, closing could leave a journal with the temporary name. This moves everything into the file or throws.
    checkpoint(fresh)
  } finally {
    fresh.close()
  }
  return fromMs
}

function unusedName(path: string, nowMs: number): string {
  const base = `${path}.damaged-${new Date(nowMs).toISOString().replaceAll(/[-:.]/g, '')}`
  let unused = base
  for (let n = 2; existsSync(unused); n += 1) unused = `${base}-${n}`
  return unused
}

function newestQuarantine(path: string): string | undefined {
  const start = `${basename(path)}.damaged-`
  const names = readdirSync(dirname(path)).filter((name) => name.startsWith(start) && !name.endsWith('-wal'))
  const newest = names.toSorted().at(-1)
  return newest === undefined ? undefined : join(dirname(path), newest)
}

interface Kept {
  readonly lastId: string | null
  /** When the oldest of what may be lost was received, in milliseconds since the epoch. */
  readonly fromMs: number
}

/** What a damaged file says about itself. Where it says nothing, everything since its creation may be lost. */
function whatWasKept(path: string): Kept {
  let db: DatabaseSync | undefined
  try {
    db = new (loadSqlite().DatabaseSync)(path)
    db.exec('PRAGMA busy_timeout = 0; PRAGMA locking_mode = EXCLUSIVE')
    const readers = db.prepare('SELECT number FROM readers').all()
    const found = db.prepare(oldestSql(readers.map(({ number }) => suffixOf(Number(number))))).get() ?? {}
    const { place, gap_ms: gapMs, alive_at: aliveMs, last_id: lastId, newest_id: newestId } = found
    const times = [gapMs, aliveMs, place == null ? null : msOfSeq(Number(place))].map((ms) => Number(ms ?? Infinity))
    const ids = [lastId, newestId].filter((id) => typeof id === 'string')
    return { lastId: ids.toSorted().at(-1) ?? null, fromMs: Math.floor(Math.min(...times)) }
  } catch {
    return { lastId: null, fromMs: Math.floor(statSync(path, { throwIfNoEntry: false })?.birthtimeMs ?? 0) }
  } finally {
    closeQuietly(db)
  }
}

/** By the suffixes of the tables of each reader. */
function oldestSql(suffixes: readonly string[]): string {
  const tables = suffixes.flatMap((suffix) => [`pending${suffix}`, `dead${suffix}`])
  return `
  SELECT alive_at, last_id, (SELECT min(from_ms) FROM holes) AS gap_ms,
    (SELECT id FROM messages ORDER BY place DESC LIMIT 1) AS newest_id,
    (SELECT min(place) FROM (${tables.map((table) => `SELECT min(place) AS place FROM ${table}`).join(' UNION ALL ')})) AS place
  FROM state`
}
