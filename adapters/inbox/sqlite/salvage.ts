import { statSync } from 'node:fs'
import type { DatabaseSync } from 'node:sqlite'
import { setImmediate } from 'node:timers/promises'
import { closeQuietly, openDatabase } from './database.ts'
import { mendFirstPage } from './first-page.ts'
import { mendedPath, putAside, putInPlace } from './quarantine.ts'
import { rescue } from './rescue.ts'
import { intactText, type Row } from './rows.ts'
import { numberOf } from './schema.ts'
import { loadSqlite } from './sqlite-module.ts'

/** What became of a damaged file. */
export interface Damage {
  /** Where it is now, for whoever wants to look at it. */
  readonly quarantine: string
  /** Pending messages and dead letters that could be read, and are in the new file. */
  readonly rescued: number
  /** Those that are known and could not be read. */
  readonly lost: number
  /** Parts of the list of pending messages that could not be read: messages that were kept there are pending again. */
  readonly unreadableParts: number
}

/** Everything an integer of SQLite can be that JavaScript can tell apart. */
const lastPlace = Number.MAX_SAFE_INTEGER

/**
 * Puts a damaged file aside and makes a new one with what can be read of the old: all that was pending or dead. Settled
 * messages stay behind. Where it cannot be known whether a message was settled, it is pending: better twice than never.
 * Goes on where a process ended that was at it. Resolves to nothing when that one had only to rename the new file.
 */
export async function salvage(
  path: string,
  nowMs: number,
  walPages: number,
  isOurs: boolean,
): Promise<Damage | undefined> {
  const { db: fresh } = openDatabase(mendedPath(path), walPages)
  let old: DatabaseSync | undefined
  let damage: Damage | undefined
  try {
    const quarantine = putAside(path, fresh, nowMs)
    if (quarantine !== undefined) {
      old = readable(quarantine)
      if (old === undefined) {
        mendFirstPage(quarantine, walPages)
        old = readable(quarantine)
      }
      damage = { quarantine, ...(await copy(old, fresh, quarantine, isOurs)) }
    }
    // All of it in one file, or an error: a journal that closing leaves behind on a full disk would keep the old name.
    numberOf(fresh, 'PRAGMA wal_checkpoint(TRUNCATE)')
  } finally {
    closeQuietly(old)
    fresh.close()
  }
  putInPlace(path)
  return damage
}

/** The damaged file, when there is a table in it to be read. */
function readable(path: string): DatabaseSync | undefined {
  let db: DatabaseSync | undefined
  try {
    // A file that was cut off is read only by who may write its schema, which `defensive` forbids.
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

async function copy(
  old: DatabaseSync | undefined,
  fresh: DatabaseSync,
  quarantine: string,
  isOurs: boolean,
): Promise<Omit<Damage, 'quarantine'>> {
  let rescued = 0
  let lost = 0
  let fromMs = Number.POSITIVE_INFINITY
  const keep = fresh.prepare(
    'INSERT OR IGNORE INTO messages (place, id, lane, received_at, door, kind, bytes, crc, text) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)',
  )
  const wait = fresh.prepare(
    'INSERT OR IGNORE INTO pending (place, id, lane, kind, bytes, deliveries, attempts, not_before, replayed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)',
  )
  const bury = fresh.prepare(
    'INSERT OR IGNORE INTO dead (place, bytes, error, attempts, died_at) VALUES (?, ?, ?, ?, ?)',
  )
  const isDead = fresh.prepare('SELECT 1 FROM dead WHERE place = ?')
  const alreadyWaits = fresh.prepare('SELECT 1 FROM pending WHERE place = ?')
  const oldMessage = prepared(old, 'SELECT * FROM messages WHERE place = ?')

  function take(message: Row | undefined): boolean {
    if (message === undefined || !intactText(message)) return false
    const { place, id, lane, received_at, door, kind, bytes, crc, text } = message
    keep.run(...values([place, id, lane, received_at, door, kind, bytes, crc, text]))
    return true
  }

  function messageAt(place: number): Row | undefined {
    try {
      return oldMessage?.get(place)
    } catch {
      return undefined
    }
  }

  function lose(place: number): void {
    lost += 1
    fromMs = Math.min(fromMs, place / 2048)
  }

  async function inSteps(rows: readonly Row[], each: (row: Row, place: number) => void): Promise<void> {
    fresh.exec('BEGIN IMMEDIATE')
    for (const row of rows) each(row, Number(row['place']))
    fresh.exec('COMMIT')
    await setImmediate()
  }

  const whole = { first: 0, last: lastPlace }
  const lostDead = await rescue({
    ...whole,
    ...reader(old, 'dead'),
    found: (rows) =>
      inSteps(rows, (row, place) => {
        if (!take(messageAt(place))) return lose(place)
        const { bytes, error, attempts, died_at } = row
        bury.run(...values([place, bytes, error, attempts, died_at]))
        rescued += 1
      }),
  })
  const unreadable = await rescue({
    ...whole,
    ...reader(old, 'pending'),
    found: (rows) =>
      inSteps(rows, (row, place) => {
        if (alreadyWaits.get(place) !== undefined) return
        if (!take(messageAt(place))) return lose(place)
        const { id, lane, kind, bytes, deliveries, attempts, not_before, replayed } = row
        wait.run(...values([place, id, lane, kind, bytes, deliveries, attempts, not_before, replayed]))
        rescued += 1
      }),
  })
  for (const { from, to } of unreadable) {
    fromMs = Math.min(fromMs, from / 2048)
    await rescue({
      first: from,
      last: to,
      ...reader(old, 'messages'),
      found: (rows) =>
        inSteps(rows, (row, place) => {
          if (isDead.get(place) !== undefined || alreadyWaits.get(place) !== undefined || !take(row)) return
          const { id, lane, kind, bytes } = row
          wait.run(...values([place, id, lane, kind, bytes, 1, 0, 0, 0]))
          rescued += 1
        }),
    })
  }
  for (const { from } of lostDead) fromMs = Math.min(fromMs, from / 2048)
  if (fromMs < Number.POSITIVE_INFINITY) {
    const born = statSync(quarantine, { throwIfNoEntry: false })?.birthtimeMs ?? 0
    fresh
      .prepare('INSERT INTO holes (reason, from_ms) VALUES (?, ?)')
      .run('inbox_damaged', Math.floor(Math.max(fromMs, born)))
  }
  carryState(old, fresh, isOurs)
  return { rescued, lost, unreadableParts: unreadable.length }
}

/** Who had the file, and what was still to be told, as far as it can be read. A process that has it itself was not restarted. */
function carryState(old: DatabaseSync | undefined, fresh: DatabaseSync, isOurs: boolean): void {
  const ask = (sql: string): readonly Row[] => {
    try {
      return old?.prepare(sql).all() ?? []
    } catch {
      return []
    }
  }
  const state = ask('SELECT closed, alive_at, last_id FROM state')[0]
  const last = ask('SELECT id, received_at FROM messages ORDER BY place DESC LIMIT 1')[0]
  const ids = [state?.['last_id'], last?.['id']].filter((id) => typeof id === 'string').toSorted()
  const aliveAt = Math.max(Number(state?.['alive_at'] ?? 0), Number(last?.['received_at'] ?? 0))
  const closed = isOurs || aliveAt === 0 ? 1 : Number(state?.['closed'] ?? 0)
  for (const { reason, from_ms } of ask('SELECT reason, from_ms FROM holes')) {
    fresh.prepare('INSERT INTO holes (reason, from_ms) VALUES (?, ?)').run(...values([reason, from_ms]))
  }
  // Last, for it says that the file is whole.
  fresh.prepare('UPDATE state SET closed = ?, alive_at = ?, last_id = ?').run(closed, aliveAt, ids.at(-1) ?? null)
}

function reader(
  old: DatabaseSync | undefined,
  table: string,
): Pick<Parameters<typeof rescue>[0], 'forward' | 'backward'> {
  const direction = (order: string) => {
    const statement = prepared(
      old,
      `SELECT * FROM ${table} WHERE place BETWEEN ? AND ? ORDER BY place ${order} LIMIT ?`,
    )
    return (from: number, to: number, rows: number): readonly Row[] => {
      if (statement === undefined) throw new Error(`The table ${table} cannot be read.`)
      return statement.all(from, to, rows)
    }
  }
  return { forward: direction('ASC'), backward: direction('DESC') }
}

function prepared(old: DatabaseSync | undefined, sql: string): ReturnType<DatabaseSync['prepare']> | undefined {
  try {
    return old?.prepare(sql)
  } catch {
    return undefined
  }
}

/** What SQLite gave can be given to it again. */
function values(row: readonly (Row[string] | undefined)[]): NonNullable<Row[string]>[] {
  return row.map((value) => value ?? 0)
}
