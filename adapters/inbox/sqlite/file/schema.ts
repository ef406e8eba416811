import type { DatabaseSync, SQLOutputValue, StatementSync } from 'node:sqlite'
import zlib from 'node:zlib'
import { FleethookError } from '../../../../src/base/errors.ts'
import type { GapReason } from '../../../../src/events/event.ts'
import type { InboxGap } from '../../../../src/inbox/inbox.ts'
import type { SignOfLife, VehicleRow } from './interface.ts'

/** 'flht': marks a SQLite file as an inbox of fleethook. */
export const applicationId = 0x66_6c_68_74

const time = (column: string): string => `strftime('%Y-%m-%dT%H:%M:%fZ', ${column} / 1000.0, 'unixepoch')`

/** The version of the schema that this fleethook reads and writes. */
export const schemaVersion = 2

/** The tables of one reader: what it still has to do. The messages themselves are shared. The tables of the receiver, reader 0, have no suffix. */
const tablesOf = (suffix: string): string => `
  -- Messages that wait or are being handled. Without the text, many rows fit on a page.
  CREATE TABLE pending${suffix} (
    place INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    lane TEXT NOT NULL,
    kind TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    deliveries INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    not_before INTEGER NOT NULL DEFAULT 0,
    -- 1: a dead letter that is replayed. A larger number names the replay of a handled message.
    replayed INTEGER NOT NULL DEFAULT 0,
    -- What the message changed in the state of its vehicle, for its replay.
    changed TEXT
  ) STRICT;
  -- Messages that were given up, with the reason.
  CREATE TABLE dead${suffix} (
    place INTEGER PRIMARY KEY,
    bytes INTEGER NOT NULL,
    error TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    died_at INTEGER NOT NULL,
    changed TEXT,
    -- The run that failed, as in pending.replayed.
    run INTEGER NOT NULL
  ) STRICT;
  -- The newest state of each vehicle. VIN '': what concerns all of them.
  CREATE TABLE vehicles${suffix} (
    vin TEXT PRIMARY KEY,
    place INTEGER NOT NULL,
    seen_at INTEGER NOT NULL,
    -- The first timer, and what stands for the rules about time that are in the text.
    due INTEGER,
    rules TEXT,
    crc INTEGER NOT NULL,
    text TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX vehicles_seen${suffix} ON vehicles${suffix} (seen_at);
  -- The last failure of a message that waits, as JSON. A message that is over can leave its row behind until the next round of retention.
  CREATE TABLE failing${suffix} (place INTEGER PRIMARY KEY, failure TEXT NOT NULL) STRICT;`

const schema = `
  -- Every message as it was received. Never updated. A message that is neither pending nor dead is settled.
  CREATE TABLE messages (
    place INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    lane TEXT NOT NULL,
    received_at INTEGER NOT NULL,
    door TEXT NOT NULL,
    kind TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    text TEXT NOT NULL,
    -- The reader that made it, when it is for no other. NULL: it is for all.
    reader INTEGER
  ) STRICT;
  -- Who reads the messages: the receiver, which is 0 and has no name, and its branches. A reader that is gone stays until it is dropped.
  CREATE TABLE readers (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    -- When a process last had it.
    used_at INTEGER NOT NULL DEFAULT 0,
    -- Everything settled up to vehicles_seq is in its table of vehicles, and nothing after vehicles_up_to is settled.
    vehicles_seq INTEGER,
    vehicles_up_to INTEGER,
    -- Whether that has to stay so: it keeps states of vehicles.
    vehicles_held INTEGER NOT NULL DEFAULT 0
  ) STRICT;
  INSERT INTO readers (number, name) VALUES (0, '');
  ${tablesOf('')}
  -- Gaps for which no gap event is stored yet.
  CREATE TABLE holes (
    number INTEGER PRIMARY KEY,
    reason TEXT NOT NULL,
    from_ms INTEGER NOT NULL,
    to_ms INTEGER,
    vin TEXT,
    missed INTEGER NOT NULL DEFAULT 0,
    reader INTEGER NOT NULL DEFAULT 0
  ) STRICT;
  -- One row: whether the file was closed, when its process was last alive, and the last id when messages do not show it.
  CREATE TABLE state (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    closed INTEGER NOT NULL,
    alive_at INTEGER NOT NULL,
    last_id TEXT,
    -- How long the machine had been running at alive_at. No change of the clock affects it.
    uptime_ms INTEGER,
    -- The newest time by which old messages were deleted, and for how long the clock has been ahead of it.
    known_ms INTEGER NOT NULL DEFAULT 0,
    doubted_ms INTEGER NOT NULL DEFAULT 0
  ) STRICT;
  INSERT INTO state (one, closed, alive_at) VALUES (1, 1, 0);
  -- Vehicles that are erased, until no byte of them is left.
  CREATE TABLE erasing (vin TEXT PRIMARY KEY, steps INTEGER NOT NULL DEFAULT 0) STRICT, WITHOUT ROWID;

  -- For people who look into the file.
  CREATE VIEW waiting AS
    SELECT p.id, p.lane, p.kind, ${time('m.received_at')} AS received_at, p.bytes, p.deliveries, p.attempts,
      CASE p.not_before WHEN 0 THEN NULL ELSE ${time('p.not_before')} END AS not_before, p.replayed > 0 AS replayed, m.text
    FROM pending p LEFT JOIN messages m USING (place);
  CREATE VIEW dead_letters AS
    SELECT m.id, m.lane, m.kind, ${time('m.received_at')} AS received_at, ${time('d.died_at')} AS died_at, d.attempts,
      d.error, m.text
    FROM dead d JOIN messages m USING (place);
  CREATE VIEW settled AS
    SELECT m.id, m.lane, m.kind, ${time('m.received_at')} AS received_at, m.bytes, m.text
    FROM messages m
    WHERE NOT EXISTS (SELECT 1 FROM pending p WHERE p.place = m.place)
      AND NOT EXISTS (SELECT 1 FROM dead d WHERE d.place = m.place);
`

/** The columns of each table, as rows are copied from one file to another. */
export const columnsOf = {
  messages: 'place, id, lane, received_at, door, kind, bytes, crc, text, reader',
  pending: 'place, id, lane, kind, bytes, deliveries, attempts, not_before, replayed, changed',
  dead: 'place, bytes, error, attempts, died_at, changed, run',
  holes: 'reason, from_ms, to_ms, vin, missed, reader',
} as const

/** Creates the tables of a new file. Throws `inbox_unsupported` for a file that is not an inbox, or that has another schema. */
export function prepareSchema(db: DatabaseSync, path: string): void {
  // This takes the lock, which the process holds until it closes the file.
  inTransaction(db, () => {
    const version = Number(valueOf(db, 'PRAGMA user_version'))
    const isOurs = valueOf(db, 'PRAGMA application_id') === applicationId
    if (isOurs && version === schemaVersion) return
    if (isOurs) {
      throw new FleethookError(
        'inbox_unsupported',
        `The inbox ${path} has version ${version} of the schema, and this fleethook knows version ${schemaVersion}.`,
        { hint: 'Run the fleethook that wrote this file, or give the inbox another path.' },
      )
    }
    if (
      version !== 0 ||
      valueOf(db, 'PRAGMA application_id') !== 0 ||
      valueOf(db, 'SELECT count(*) FROM sqlite_schema') !== 0
    ) {
      throw new FleethookError('inbox_unsupported', `The file ${path} is a database of another program.`, {
        hint: 'Give the inbox its own path.',
      })
    }
    db.exec(`${schema}; PRAGMA application_id = ${applicationId}; PRAGMA user_version = ${schemaVersion}`)
  })
}

/** The first column of the only row. */
export function valueOf(db: DatabaseSync, sql: string): SQLOutputValue | undefined {
  return Object.values(db.prepare(sql).get() ?? {})[0]
}

/** Writes everything that `run` writes, or nothing when it throws. */
export function inTransaction<Result>(db: DatabaseSync, run: () => Result): Result {
  db.exec('BEGIN IMMEDIATE')
  try {
    const result = run()
    // An error of `exec` has no result code on Deno.
    db.prepare('COMMIT').run()
    return result
  } catch (error) {
    rollBack(db)
    throw error
  }
}

export function rollBack(db: DatabaseSync): void {
  try {
    db.exec('ROLLBACK')
  } catch {
    // SQLite already rolled back.
  }
}

/** Whether a file is an inbox with the schema of this fleethook. */
export function isInbox(db: DatabaseSync): boolean {
  const isOurs = valueOf(db, 'PRAGMA application_id') === applicationId
  return isOurs && valueOf(db, 'PRAGMA user_version') === schemaVersion
}

/**
 * The time since the last sign of life. If the clock was set back since, the machine's running time shows how long that
 * was: the gap then has that length and ends now, by the clock as it is now. After a restart of the machine only a lower
 * limit is known, so the gap covers the time by both clocks.
 */
export function downtimeOf(state: SqlRow, { nowMs, uptimeMs }: SignOfLife): { fromMs: number; toMs: number } {
  const aliveAt = Number(state['alive_at'])
  const uptimeThen = state['uptime_ms'] == null ? undefined : Number(state['uptime_ms'])
  const hasRunOn = uptimeMs !== undefined && uptimeThen !== undefined && uptimeMs >= uptimeThen
  const ranMs = hasRunOn ? uptimeMs - uptimeThen : 0
  // Some systems know the running time only to the second.
  const isSetBack = nowMs - ranMs < aliveAt - 2_000
  return {
    fromMs: Math.floor(isSetBack ? nowMs - ranMs : Math.min(aliveAt, nowMs)),
    toMs: isSetBack && hasRunOn ? nowMs : Math.max(aliveAt, nowMs),
  }
}

/**
 * The statements of the running inbox. The tables call the `seq` of a message its `place`, and a gap a hole. No parameter has a number: Node 22.13
 * takes it for a name.
 */
const fileSql = {
  begin: 'BEGIN IMMEDIATE',
  commit: 'COMMIT',
  removeMessage: 'DELETE FROM messages WHERE place = ?',
  state: 'SELECT * FROM state',
  setState: 'UPDATE state SET closed = ?, alive_at = ?, uptime_ms = ?, known_ms = ?, doubted_ms = ?',
  setOpen: 'UPDATE state SET closed = 0',
  newest: 'SELECT id, received_at FROM messages ORDER BY place DESC LIMIT 1',
  newestSeq: 'SELECT max(place) AS place FROM messages',
  listedTo: `
    SELECT min(place) AS place, count(*) AS messages
    FROM (SELECT place FROM messages WHERE place < ? ORDER BY place DESC LIMIT ?)`,
  removeGapsOf: 'DELETE FROM holes WHERE vin = ?',
  erasing: 'SELECT vin FROM erasing',
  addErasing: 'INSERT OR IGNORE INTO erasing (vin) VALUES (?)',
  noteErasing: 'UPDATE erasing SET steps = steps + 1 WHERE vin = ?',
  removeErasing: 'DELETE FROM erasing WHERE vin = ?',
  pageCount: 'PRAGMA page_count',
  freePages: 'PRAGMA freelist_count',
  sweepTo: `
    SELECT max(place) AS place, count(*) AS messages FROM
      (SELECT place FROM messages WHERE place > ? AND place < ? ORDER BY place LIMIT ?)`,
  addMessage:
    'INSERT INTO messages (place, id, lane, received_at, door, kind, bytes, crc, text, reader) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)',
  idAt: 'SELECT id FROM messages WHERE place = ?',
  readers: 'SELECT * FROM readers ORDER BY number',
  addReader:
    'INSERT INTO readers (number, name, used_at) VALUES ((SELECT max(number) + 1 FROM readers), ?, ?) RETURNING *',
  useReader: 'UPDATE readers SET used_at = ? WHERE number = ?',
} as const

type ReaderSql = ReturnType<typeof placesSql> &
  ReturnType<typeof listsSql> &
  ReturnType<typeof gapsSql> &
  ReturnType<typeof vehiclesSql>

/** The statements that concern one reader. */
function readerSql(number: number): ReaderSql {
  const suffix = suffixOf(number)
  return {
    ...placesSql(number, `pending${suffix}`, `dead${suffix}`, `failing${suffix}`),
    ...listsSql(number, `pending${suffix}`, `dead${suffix}`, `failing${suffix}`),
    ...gapsSql(number),
    ...vehiclesSql(number, `vehicles${suffix}`, `vehicles_seen${suffix}`),
  }
}

/** A message that is for this reader. */
const forReader = (number: number): string => `(m.reader IS NULL OR m.reader = ${number})`

/** What waits, and what was given up. */
function placesSql(number: number, pending: string, dead: string, failing: string) {
  const isForIt = forReader(number)
  return {
    addPending: `INSERT INTO ${pending} (place, id, lane, kind, bytes) VALUES (?, ?, ?, ?, ?)`,
    addPendingRange: `
    INSERT INTO ${pending} (place, id, lane, kind, bytes)
    SELECT place, id, lane, kind, bytes FROM messages WHERE place BETWEEN ? AND ?`,
    addDeliveries: `UPDATE ${pending} SET deliveries = deliveries + ? WHERE place = ?`,
    updatePending: `UPDATE ${pending} SET deliveries = ifnull(?, deliveries) + ?, attempts = ?, not_before = ? WHERE place = ?`,
    setFailure: `INSERT OR REPLACE INTO ${failing} (place, failure) VALUES (?, ?)`,
    removeFailure: `DELETE FROM ${failing} WHERE place = ?`,
    removeOldFailures: `DELETE FROM ${failing} WHERE NOT EXISTS (SELECT 1 FROM ${pending} p WHERE p.place = ${failing}.place)`,
    settle: `DELETE FROM ${pending} WHERE place = ?`,
    removePending: `DELETE FROM ${pending} WHERE place = ? RETURNING bytes, replayed, id, kind`,
    addDead: `INSERT OR REPLACE INTO ${dead} (place, bytes, error, attempts, died_at, changed, run) VALUES (?, ?, ?, ?, ?, ?, ?)`,
    removeDead: `DELETE FROM ${dead} WHERE place = ? RETURNING bytes`,
    revive: `
    INSERT INTO ${pending} (place, id, lane, kind, bytes, replayed, changed)
    SELECT m.place, id, lane, kind, m.bytes,
      CASE WHEN d.place IS NULL THEN (random() & 0x1fffffffffffff) | 2 ELSE max(1, d.run) END, d.changed
    FROM messages m LEFT JOIN ${dead} d USING (place)
    WHERE m.place = ? AND ${isForIt} AND NOT EXISTS (SELECT 1 FROM ${pending} p WHERE p.place = m.place) RETURNING bytes`,
    oldest: `SELECT min(place) AS place FROM ${pending}`,
    countDead: `SELECT count(*) AS messages FROM ${dead}`,
    countPending: `
    SELECT count(*) AS messages, sum(bytes) AS bytes, max(place) AS last
    FROM (SELECT place, bytes FROM ${pending} WHERE place > ? ORDER BY place LIMIT ?)`,
    deadBytes: `SELECT ifnull(sum(bytes), 0) AS bytes FROM ${dead}`,
    oldDead: `SELECT place, bytes, died_at FROM ${dead} WHERE died_at < ? OR ? > 0 ORDER BY place LIMIT ?`,
  }
}

/** Lists have no texts. Texts are read one by one, until the page has its bytes. */
function listsSql(number: number, pending: string, dead: string, failing: string) {
  const isForIt = forReader(number)
  return {
    waiting: `SELECT p.place, id, lane, kind, deliveries, attempts, not_before, failure FROM ${pending} p LEFT JOIN ${failing} USING (place) WHERE p.place > ? ORDER BY p.place LIMIT ?`,
    pending: `
    SELECT m.*, p.deliveries, p.replayed, p.changed FROM ${pending} p JOIN messages m USING (place) WHERE p.place = ?`,
    message: `SELECT m.* FROM messages m WHERE m.place = ? AND ${isForIt}`,
    deadLetter: `
    SELECT m.*, d.error, d.attempts, d.died_at, d.changed, d.run FROM ${dead} d JOIN messages m USING (place) WHERE d.place = ?`,
    deadLetters: `
    SELECT m.place, m.lane, m.received_at FROM ${dead} d JOIN messages m USING (place) WHERE d.place > ? ORDER BY d.place LIMIT ?`,
    settled: `
    SELECT m.place, m.lane, m.received_at,
      EXISTS (SELECT 1 FROM ${pending} p WHERE p.place = m.place) OR
      EXISTS (SELECT 1 FROM ${dead} d WHERE d.place = m.place) AS elsewhere
    FROM messages m WHERE m.place > ? AND ${isForIt} ORDER BY m.place LIMIT ?`,
    // There is no index by lane: keeping one would cost as much as the rest of a message (docs/decisions/0011-observing.md).
    listed: `
    SELECT m.place FROM (SELECT place, lane, received_at, reader FROM messages WHERE place < ? ORDER BY place DESC LIMIT ?) m
    WHERE ${isForIt} AND lane = ifnull(?, lane) AND received_at >= ? AND received_at < ? ORDER BY m.place DESC LIMIT ?`,
    listedOne: `
    SELECT m.*, d.error, d.attempts, d.died_at, EXISTS (SELECT 1 FROM ${pending} p WHERE p.place = m.place) AS waits
    FROM messages m LEFT JOIN ${dead} d USING (place) WHERE m.place = ?`,
    // A revived message was settled before.
    unapplied: `
    SELECT m.place FROM messages m WHERE m.place > ? AND m.place <= (SELECT vehicles_up_to FROM readers WHERE number = ${number})
      AND ${isForIt} AND NOT EXISTS (SELECT 1 FROM ${pending} p WHERE p.place = m.place AND p.replayed = 0) ORDER BY m.place LIMIT ?`,
  }
}

/** Gaps that no event reports yet. */
function gapsSql(number: number) {
  return {
    gaps: `SELECT * FROM holes WHERE reader = ${number} ORDER BY from_ms`,
    addGap: `INSERT INTO holes (reason, from_ms, to_ms, vin, missed, reader) VALUES (?, ?, ?, ?, ?, ${number})`,
    removeGap: `DELETE FROM holes WHERE reader = ${number} AND reason = ? AND vin IS ? AND from_ms >= ? AND ifnull(to_ms, 0) <= ?`,
    removeGaps: `DELETE FROM holes WHERE reader = ${number} AND reason <> 'inbox_expired'`,
    removeGapOfStop: `DELETE FROM holes WHERE number = (SELECT max(number) FROM holes WHERE reader = ${number}) AND reason = 'stopped' AND from_ms = ?`,
  }
}

/** The newest states of vehicles, and how far they are written. */
function vehiclesSql(number: number, vehicles: string, seen: string) {
  return {
    held: `SELECT vehicles_seq, vehicles_up_to, vehicles_held FROM readers WHERE number = ${number}`,
    holdVehicles: `UPDATE readers SET vehicles_seq = ?, vehicles_up_to = ?, vehicles_held = 1 WHERE number = ${number}`,
    releaseVehicles: `UPDATE readers SET vehicles_held = 0 WHERE number = ${number} AND vehicles_held = 1`,
    setVehiclesSeq: `UPDATE readers SET vehicles_seq = ? WHERE number = ${number}`,
    setVehiclesUpTo: `UPDATE readers SET vehicles_up_to = ? WHERE number = ${number}`,
    setVehicle: `INSERT OR REPLACE INTO ${vehicles} (vin, place, seen_at, due, rules, crc, text) VALUES (?, ?, ?, ?, ?, ?, ?)`,
    removeVehicle: `DELETE FROM ${vehicles} WHERE vin = ?`,
    removeUnseen: `
    DELETE FROM ${vehicles} WHERE vin IN (SELECT vin FROM ${vehicles} WHERE seen_at < ? AND vin <> '' LIMIT ?)`,
    vehicle: `SELECT * FROM ${vehicles} WHERE vin = ?`,
    nextVehicles: `SELECT * FROM ${vehicles} WHERE vin > ? ORDER BY vin LIMIT 50`,
    dueVehicles: `
    SELECT vin, due FROM ${vehicles} WHERE vin > ? AND due IS NOT NULL ORDER BY vin LIMIT 10000`,
    outdatedVehicles: `
    SELECT * FROM ${vehicles} WHERE vin > ? AND vin <> '' AND rules IS NOT ? ORDER BY vin LIMIT 500`,
    countVehicles: `SELECT count(*) AS vehicles FROM ${vehicles} INDEXED BY ${seen} WHERE vin <> ''`,
  }
}

/** The statements that concern all readers of the file. */
function sharedSql(numbers: readonly number[]) {
  const tables = numbers.flatMap((number) => ['pending', 'dead'].map((table) => table + suffixOf(number)))
  const isIn = (table: string, place: string): string => `EXISTS (SELECT 1 FROM ${table} t WHERE t.place = ${place})`
  const waits = tables.filter((table) => table.startsWith('pending')).map((table) => isIn(table, 'm.place'))
  const died = tables.filter((table) => table.startsWith('dead')).map((table) => isIn(table, 'm.place'))
  return {
    aboutVin: `
      SELECT m.place, m.kind, m.bytes, ${waits.join(' OR ')} AS waits, ${died.join(' OR ')} AS died
      FROM messages m WHERE m.place > ? AND m.place <= ?
        AND (m.lane = ? OR (m.lane GLOB '[*][^*]*' AND instr(lower(m.text), lower(?)) > 0))`,
    // A message that no reader needs.
    removeUnkept: `DELETE FROM messages WHERE place = ? ${tables.map((table) => `AND NOT ${isIn(table, 'messages.place')}`).join(' ')}`,
    sweep: `
      DELETE FROM messages WHERE place > ? AND place <= ?
        ${tables.map((table) => `AND place NOT IN (SELECT place FROM ${table} WHERE place > ? AND place <= ?)`).join(' ')}`,
  }
}

/** The oldest messages that wait for this reader, with which the receiver is done, and that are nobody's dead letters. */
export function expendableSql(number: number, numbers: readonly number[]): string {
  const others = ['pending', ...numbers.map((each) => `dead${suffixOf(each)}`)]
  return `SELECT place, bytes FROM pending${suffixOf(number)} p
    WHERE ${others.map((table) => `NOT EXISTS (SELECT 1 FROM ${table} t WHERE t.place = p.place)`).join(' AND ')}
    ORDER BY place LIMIT ?`
}

export const suffixOf = (number: number): string => (number === 0 ? '' : `_${number}`)

/** Creates the tables of another reader. */
export function createReader(db: DatabaseSync, number: number): void {
  db.exec(tablesOf(suffixOf(number)))
}

export function dropReaderTables(db: DatabaseSync, number: number): void {
  for (const table of ['pending', 'dead', 'failing', 'vehicles']) db.exec(`DROP TABLE ${table}${suffixOf(number)}`)
}

type Prepared<Sql> = Readonly<Record<keyof Sql, StatementSync>>
export type FileStatements = Prepared<typeof fileSql>
export type ReaderStatements = Prepared<ReaderSql>
export type SharedStatements = Prepared<ReturnType<typeof sharedSql>>

function prepared<Sql extends object>(db: DatabaseSync, sql: Sql): Prepared<Sql> {
  const all = Object.entries(sql).map(([name, text]) => [name, db.prepare(String(text))] as const)
  return Object.fromEntries(all) as Prepared<Sql>
}

export const prepareFile = (db: DatabaseSync): FileStatements => prepared(db, fileSql)
export const prepareReader = (db: DatabaseSync, number: number): ReaderStatements => prepared(db, readerSql(number))
export const prepareShared = (db: DatabaseSync, numbers: readonly number[]): SharedStatements =>
  prepared(db, sharedSql(numbers))

export type SqlRow = Readonly<Record<string, SQLOutputValue>>

/** Whether the text is still as it was stored. SQLite itself checks the structure of pages, not their content. */
export function isIntact({ text, crc }: SqlRow): boolean {
  return typeof text === 'string' && zlib.crc32(text) === crc
}

/** The row, if it is intact. Otherwise throws `inbox_damaged`. */
export function intact(row: SqlRow): SqlRow {
  if (isIntact(row)) return row
  const id = String(row['id'])
  throw new FleethookError('inbox_damaged', `The text of the message ${id} in the inbox does not match its checksum.`)
}

/** A state as it is stored. `undefined` when the text is not as it was stored: then the vehicle's state begins again. */
export function vehicleOf(row: SqlRow): VehicleRow | undefined {
  if (!isIntact(row)) return undefined
  const { vin, place, seen_at: seenAt, due, rules, text } = row
  return {
    vin: String(vin),
    seq: Number(place),
    seenMs: Number(seenAt),
    dueMs: due == null ? undefined : Number(due),
    rules: typeof rules === 'string' ? rules : undefined,
    text: String(text),
  }
}

/** An object, so that a reason that is missing here is a type error. */
const gapReasons: Readonly<Record<GapReason, true>> = {
  inbox_full: true,
  inbox_unavailable: true,
  inbox_damaged: true,
  inbox_expired: true,
  body_too_large: true,
  body_unreadable: true,
  stopped: true,
  restarted: true,
  stalled: true,
  deadline: true,
  not_handled: true,
  stream_interrupted: true,
}

const isGapReason = (name: unknown): name is GapReason => typeof name === 'string' && Object.hasOwn(gapReasons, name)

export function gapOf({ reason: name, from_ms: fromMs, to_ms: toMs, vin, missed }: SqlRow): InboxGap {
  return {
    reason: isGapReason(name) ? name : 'restarted',
    fromMs: Number(fromMs),
    toMs: toMs == null ? undefined : Number(toMs),
    vin: typeof vin === 'string' ? vin : undefined,
    missed: Number(missed) || undefined,
  }
}
