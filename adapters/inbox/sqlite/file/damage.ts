import { existsSync, fsyncSync, readSync, renameSync, rmSync, statSync, writeFileSync, writeSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { setImmediate } from 'node:timers/promises'
import { msOfSeq } from '../../../../src/inbox/delivery-id.ts'
import {
  checkpoint,
  closeQuietly,
  loadSqlite,
  openDatabase,
  pageBytes,
  replacementPath,
  syncFolder,
  withOpen,
} from './database.ts'
import type { Damage } from './interface.ts'
import { columnsOf, isIntact, type SqlRow } from './schema.ts'

/** Whether a process ended while it replaced a damaged file. */
export function isHalfReplaced(path: string): boolean {
  return !existsSync(path) && existsSync(replacementPath(path))
}

/**
 * Renames a damaged file and creates a new one with every readable pending message and dead letter. Settled messages stay in
 * the damaged file. A message that may or may not be settled becomes pending: handling it twice is better than losing it.
 * Continues where an earlier process stopped. Resolves to `undefined` when only the last rename was left to do.
 */
export async function replaceDamaged(
  path: string,
  nowMs: number,
  walPages: number,
  isOurs: boolean,
): Promise<Damage | undefined> {
  const fresh = openDatabase(replacementPath(path), walPages)
  let old: DatabaseSync | undefined
  let damage: Damage | undefined
  try {
    const quarantine = quarantineOf(path, fresh, nowMs)
    if (quarantine !== undefined) {
      old = openDamaged(quarantine)
      if (old === undefined) {
        replaceFirstPage(quarantine, walPages)
        old = openDamaged(quarantine)
      }
      damage = { quarantine, ...(await copyReadable(old, fresh, quarantine, isOurs)) }
    }
    // On a full disk, closing could leave a journal with the temporary name. This moves everything into the file or throws.
    checkpoint(fresh)
  } finally {
    closeQuietly(old)
    fresh.close()
  }
  renameSync(replacementPath(path), path)
  syncFolder(dirname(path))
  return damage
}

/** The value of `state.closed` in a file that is not complete yet. Its `state.last_id` is the new name of the damaged file. */
const incomplete = 2

/** Notes in `fresh` that it is not complete, then renames the damaged file. `undefined`: that was done before. */
function quarantineOf(path: string, fresh: DatabaseSync, nowMs: number): string | undefined {
  const state = fresh.prepare('SELECT closed, last_id FROM state').get()
  const isRenamed = !existsSync(path)
  if (isRenamed && state?.['closed'] !== incomplete) return undefined
  const name = isRenamed ? String(state?.['last_id']) : unusedName(path, nowMs)
  fresh.exec('DELETE FROM messages; DELETE FROM pending; DELETE FROM dead; DELETE FROM holes; DELETE FROM vehicles')
  fresh.prepare('UPDATE state SET closed = ?, last_id = ?').run(incomplete, name)
  const folder = dirname(path)
  const quarantine = join(folder, name)
  // The journal is renamed last: when its file is gone, nobody can take it for the journal of another file.
  for (const suffix of ['', '-wal']) if (existsSync(path + suffix)) renameSync(path + suffix, quarantine + suffix)
  rmSync(`${path}-shm`, { force: true })
  syncFolder(folder)
  return quarantine
}

function unusedName(path: string, nowMs: number): string {
  const base = `${path}.damaged-${new Date(nowMs).toISOString().replaceAll(/[-:.]/g, '')}`
  let unused = base
  for (let n = 2; existsSync(unused); n += 1) unused = `${base}-${n}`
  return basename(unused)
}

/** Opens a damaged file, or returns `undefined` when SQLite cannot find its tables. */
function openDamaged(path: string): DatabaseSync | undefined {
  let db: DatabaseSync | undefined
  try {
    // SQLite opens a truncated file only with a writable schema, which `defensive` forbids.
    db = new (loadSqlite().DatabaseSync)(path, { defensive: false })
    db.exec('PRAGMA locking_mode = EXCLUSIVE; PRAGMA mmap_size = 0; PRAGMA wal_autocheckpoint = 0')
    db.exec('PRAGMA writable_schema = ON')
    db.prepare('SELECT place FROM messages')
    return db
  } catch {
    closeQuietly(db)
    return undefined
  }
}

/** Where the first page says how many pages the file has (https://sqlite.org/fileformat.html, "The Database Header"). */
const pageCountAt = 28

/** The first page names the tables. It is the same in every inbox, so that of a new file can replace a broken one. */
function replaceFirstPage(path: string, walPages: number): void {
  const pages = Math.floor(statSync(path).size / pageBytes)
  if (pages === 0) return
  const template = `${path}-new`
  openDatabase(template, walPages).close()
  const first = readFirstPage(template)
  rmSync(template)
  first.writeUInt32BE(pages, pageCountAt)
  writeFileSync(`${path}-first-page`, readFirstPage(path), { mode: 0o600 })
  withOpen(path, 'r+', (file) => {
    writeSync(file, first, 0, pageBytes, 0)
    fsyncSync(file)
  })
}

function readFirstPage(path: string): Buffer {
  const page = Buffer.alloc(pageBytes)
  withOpen(path, 'r', (file) => readSync(file, page, 0, pageBytes, 0))
  return page
}

/** Both ends are included. */
interface SeqRange {
  readonly from: number
  readonly to: number
}

const everySeq: SeqRange = { from: 0, to: Number.MAX_SAFE_INTEGER }

async function copyReadable(
  old: DatabaseSync | undefined,
  fresh: DatabaseSync,
  quarantine: string,
  isOurs: boolean,
): Promise<Omit<Damage, 'quarantine'>> {
  let rescued = 0
  let lost = 0
  let gapFromMs = Infinity
  const oldMessage = prepared(old, 'SELECT * FROM messages WHERE place = ?')
  const addMessage = inserter(fresh, 'messages')
  const addPending = inserter(fresh, 'pending')
  const addDead = inserter(fresh, 'dead')
  const isPending = fresh.prepare('SELECT 1 FROM pending WHERE place = ?')
  const isDead = fresh.prepare('SELECT 1 FROM dead WHERE place = ?')

  async function copyRows(pages: Iterable<readonly SqlRow[]>, copy: (row: SqlRow, seq: number) => void): Promise<void> {
    for (const rows of pages) {
      fresh.exec('BEGIN IMMEDIATE')
      for (const row of rows) copy(row, Number(row['place']))
      fresh.exec('COMMIT')
      // Other work gets its turn.
      await setImmediate()
    }
  }

  /** Copies a pending message or a dead letter with `add`, if its text is intact. */
  function rescue(message: SqlRow | undefined, add: () => void): boolean {
    if (message === undefined || !isIntact(message)) return false
    addMessage(message)
    add()
    rescued += 1
    return true
  }

  function rescueWithText(seq: number, add: () => void): void {
    const message = attempt(() => oldMessage?.get(seq))
    if (rescue(message, add)) return
    lost += 1
    gapFromMs = Math.min(gapFromMs, msOfSeq(seq))
  }

  const unreadableDead: SeqRange[] = []
  await copyRows(readableRows(old, 'dead', everySeq, unreadableDead), (row, seq) =>
    rescueWithText(seq, () => addDead(row)),
  )
  const unreadablePending: SeqRange[] = []
  await copyRows(readableRows(old, 'pending', everySeq, unreadablePending), (row, seq) => {
    if (isPending.get(seq) === undefined) rescueWithText(seq, () => addPending(row))
  })
  const parts = joined(unreadablePending)
  for (const part of parts) {
    await copyRows(readableRows(old, 'messages', part, []), (row, seq) => {
      if (isDead.get(seq) !== undefined || isPending.get(seq) !== undefined) return
      rescue(row, () => addPending({ ...row, deliveries: 1 }))
    })
  }
  for (const { from } of [...parts, ...unreadableDead]) gapFromMs = Math.min(gapFromMs, msOfSeq(from))
  if (gapFromMs < Infinity) {
    const createdMs = statSync(quarantine, { throwIfNoEntry: false })?.birthtimeMs ?? 0
    inserter(fresh, 'holes')({ reason: 'inbox_damaged', from_ms: Math.floor(Math.max(gapFromMs, createdMs)) })
  }
  copyVehicles(old, fresh)
  copyState(old, fresh, isOurs)
  return { rescued, lost, unreadableParts: parts.length }
}

/** Copies what is readable of the gaps and the state. If this process was using the file, no process crashed. */
function copyState(old: DatabaseSync | undefined, fresh: DatabaseSync, isOurs: boolean): void {
  const read = (sql: string): readonly SqlRow[] => attempt(() => old?.prepare(sql).all()) ?? []
  const [state] = read('SELECT * FROM state')
  const [newest] = read('SELECT id, received_at FROM messages ORDER BY place DESC LIMIT 1')
  const ids = [state?.['last_id'], newest?.['id']].filter((id) => typeof id === 'string').toSorted()
  const aliveAt = Number(state?.['alive_at'] ?? newest?.['received_at'] ?? 0)
  const closed = isOurs || aliveAt === 0 ? 1 : Number(state?.['closed'] ?? 0)
  read('SELECT * FROM holes').forEach(inserter(fresh, 'holes'))
  // This comes last: from here on the new file counts as complete.
  const setState = fresh.prepare(
    'UPDATE state SET closed = ?, alive_at = ?, last_id = ?, uptime_ms = ?, vehicles_seq = ?, known_ms = ?',
  )
  // Not marked as held, so that the next start knows how old the states are.
  const seq = state?.['vehicles_seq'] ?? null
  setState.run(
    closed,
    aliveAt,
    ids.at(-1) ?? null,
    state?.['uptime_ms'] ?? null,
    seq,
    Number(state?.['known_ms'] ?? aliveAt),
  )
}

/** Copies the states of vehicles that can be read. Messages that they have not seen stay in the damaged file. */
function copyVehicles(old: DatabaseSync | undefined, fresh: DatabaseSync): void {
  const read = prepared(old, 'SELECT * FROM vehicles WHERE vin > ? ORDER BY vin LIMIT ?')
  const add = inserter(fresh, 'vehicles')
  for (let after = ''; ;) {
    const rows: readonly SqlRow[] = attempt(() => read?.all(after, vehiclesAtOnce)) ?? []
    fresh.exec('BEGIN IMMEDIATE')
    for (const row of rows) if (isIntact(row)) add(row)
    fresh.exec('COMMIT')
    if (rows.length < vehiclesAtOnce) return
    after = String(rows.at(-1)?.['vin'])
  }
}

/** A damaged table can show a row twice, and only the first one is added. */
function inserter(db: DatabaseSync, table: keyof typeof columnsOf): (row: SqlRow) => void {
  const names = columnsOf[table].split(', ')
  const values = names.map(() => '?').join(', ')
  const insert = db.prepare(`INSERT OR IGNORE INTO ${table} (${columnsOf[table]}) VALUES (${values})`)
  return (row) => void insert.run(...names.map((name) => row[name] ?? (nullable.has(name) ? null : 0)))
}

const nullable: ReadonlySet<string> = new Set(['changed', 'to_ms', 'vin'])

const mostRows = 256
/** Rows at once while there are large messages among them. */
const leastRows = 4
const largeBytes = 16_384
/** States are read with their texts, which can be large. */
const vehiclesAtOnce = 16
/** After this number of reads that fail on a damaged page, the rows that are left between damaged pages are given up. */
const mostFailures = 4_000

/** Yields readable rows: from both ends up to the first damaged page, then from the middle of the rest, and so on. */
function* readableRows(
  old: DatabaseSync | undefined,
  table: string,
  range: SeqRange,
  unreadable: SeqRange[],
): Generator<readonly SqlRow[], void> {
  const sql = `SELECT * FROM ${table} WHERE place BETWEEN ? AND ? ORDER BY place`
  const upward = prepared(old, `${sql} ASC LIMIT ?`)
  const downward = prepared(old, `${sql} DESC LIMIT ?`)
  if (upward === undefined || downward === undefined) {
    unreadable.push(range)
    return
  }
  const parts = [range]
  let failures = 0
  for (let part = parts.shift(); part !== undefined; part = parts.shift()) {
    const low = yield* rowsFrom(upward, part, true)
    if (low === undefined) continue
    const high = yield* rowsFrom(downward, { from: low, to: part.to }, false)
    if (high === undefined) continue
    failures += 2
    if (failures >= mostFailures || high - low < 2) {
      unreadable.push({ from: low, to: high })
      continue
    }
    const middle = Math.floor((low + high) / 2)
    parts.push({ from: low, to: middle }, { from: middle + 1, to: high })
  }
}

/** Reads from one end of the range. Returns the `seq` at which a damaged page stopped it, or `undefined` after reading all. */
function* rowsFrom(
  statement: StatementSync,
  range: SeqRange,
  isUpward: boolean,
): Generator<readonly SqlRow[], number | undefined> {
  let rest = range
  // A few rows first: they can be large.
  let limit = leastRows
  while (rest.from <= rest.to) {
    let rows: readonly SqlRow[]
    try {
      rows = statement.all(rest.from, rest.to, limit)
    } catch {
      if (limit === 1) return isUpward ? rest.from : rest.to
      limit = Math.max(1, limit >> 4)
      continue
    }
    if (rows.length > 0) yield rows
    const last = Number(rows.at(-1)?.['place'])
    if (rows.length < limit) return undefined
    limit = rows.some(({ bytes }) => Number(bytes) > largeBytes) ? leastRows : Math.min(4 * limit, mostRows)
    rest = isUpward ? { ...rest, from: last + 1 } : { ...rest, to: last - 1 }
  }
  return undefined
}

function joined(ranges: readonly SeqRange[]): readonly SeqRange[] {
  const result: SeqRange[] = []
  for (const range of ranges.toSorted((a, b) => a.from - b.from)) {
    const before = result.at(-1)
    if (before !== undefined && before.to + 1 >= range.from) result.splice(-1, 1, { from: before.from, to: range.to })
    else result.push(range)
  }
  return result
}

function prepared(db: DatabaseSync | undefined, sql: string): StatementSync | undefined {
  return attempt(() => db?.prepare(sql))
}

/** The result, or `undefined` when a damaged page prevents it. */
function attempt<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch {
    return undefined
  }
}
