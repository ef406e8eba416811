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
    text TEXT NOT NULL
  ) STRICT;
  -- Messages that wait or are being handled. Without the text, many rows fit on a page.
  CREATE TABLE pending (
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
  CREATE TABLE dead (
    place INTEGER PRIMARY KEY,
    bytes INTEGER NOT NULL,
    error TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    died_at INTEGER NOT NULL,
    changed TEXT,
    -- The run that failed, as in pending.replayed.
    run INTEGER NOT NULL
  ) STRICT;
  -- Gaps for which no gap event is stored yet.
  CREATE TABLE holes (
    number INTEGER PRIMARY KEY,
    reason TEXT NOT NULL,
    from_ms INTEGER NOT NULL,
    to_ms INTEGER,
    vin TEXT,
    missed INTEGER NOT NULL DEFAULT 0
  ) STRICT;
  -- One row: whether the file was closed, when its process was last alive, and the last id when messages do not show it.
  CREATE TABLE state (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    closed INTEGER NOT NULL,
    alive_at INTEGER NOT NULL,
    last_id TEXT,
    -- How long the machine had been running at alive_at. No change of the clock affects it.
    uptime_ms INTEGER,
    -- Everything settled up to vehicles_seq is in the table of vehicles, and nothing after vehicles_up_to is settled.
    vehicles_seq INTEGER,
    vehicles_up_to INTEGER,
    -- Whether that has to stay so: the receiver keeps states of vehicles.
    vehicles_held INTEGER NOT NULL DEFAULT 0,
    -- The newest time by which old messages were deleted, and for how long the clock has been ahead of it.
    known_ms INTEGER NOT NULL DEFAULT 0,
    doubted_ms INTEGER NOT NULL DEFAULT 0
  ) STRICT;
  INSERT INTO state (one, closed, alive_at) VALUES (1, 1, 0);
  -- The newest state of each vehicle. VIN '': what concerns all of them.
  CREATE TABLE vehicles (
    vin TEXT PRIMARY KEY,
    place INTEGER NOT NULL,
    seen_at INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    text TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX vehicles_seen ON vehicles (seen_at);
  -- The last failure of a message that waits, as JSON. A message that is over can leave its row behind until the next round of retention.
  CREATE TABLE failing (place INTEGER PRIMARY KEY, failure TEXT NOT NULL) STRICT;
  -- The files of branches of this receiver. One that it no longer has stays here while messages wait there.
  CREATE TABLE branches (file TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
  -- Vehicles that are erased, until no byte of them is left.
  CREATE TABLE erasing (vin TEXT PRIMARY KEY, steps INTEGER NOT NULL DEFAULT 0) STRICT, WITHOUT ROWID;
  -- Branches that lack messages from this time on, because their inboxes are not open, or have not taken all.
  CREATE TABLE owed (branch TEXT PRIMARY KEY, from_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID;

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
  messages: 'place, id, lane, received_at, door, kind, bytes, crc, text',
  pending: 'place, id, lane, kind, bytes, deliveries, attempts, not_before, replayed, changed',
  dead: 'place, bytes, error, attempts, died_at, changed, run',
  vehicles: 'vin, place, seen_at, crc, text',
  holes: 'reason, from_ms, to_ms, vin, missed',
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
 * The time since the last sign of life. If the clock was set back meanwhile, the machine's running time shows how long that
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
 * Every statement of the running inbox. The tables call the `seq` of a message its `place`, and a gap a hole. No parameter has a number: Node 22.13
 * takes it for a name.
 */
const statements = {
  begin: 'BEGIN IMMEDIATE',
  commit: 'COMMIT',
  addMessage:
    'INSERT INTO messages (place, id, lane, received_at, door, kind, bytes, crc, text) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)',
  removeMessage: 'DELETE FROM messages WHERE place = ?',
  addPending: 'INSERT INTO pending (place, id, lane, kind, bytes) VALUES (?, ?, ?, ?, ?)',
  addPendingRange: `
    INSERT INTO pending (place, id, lane, kind, bytes)
    SELECT place, id, lane, kind, bytes FROM messages WHERE place BETWEEN ? AND ?`,
  addDeliveries: 'UPDATE pending SET deliveries = deliveries + ? WHERE place = ?',
  updatePending:
    'UPDATE pending SET deliveries = ifnull(?, deliveries) + ?, attempts = ?, not_before = ? WHERE place = ?',
  setFailure: 'INSERT OR REPLACE INTO failing (place, failure) VALUES (?, ?)',
  removeFailure: 'DELETE FROM failing WHERE place = ?',
  removeOldFailures: 'DELETE FROM failing WHERE NOT EXISTS (SELECT 1 FROM pending p WHERE p.place = failing.place)',
  settle: 'DELETE FROM pending WHERE place = ?',
  removePending: 'DELETE FROM pending WHERE place = ? RETURNING bytes, replayed',
  addDead:
    'INSERT OR REPLACE INTO dead (place, bytes, error, attempts, died_at, changed, run) VALUES (?, ?, ?, ?, ?, ?, ?)',
  removeDead: 'DELETE FROM dead WHERE place = ? RETURNING bytes',
  revive: `
    INSERT INTO pending (place, id, lane, kind, bytes, replayed, changed)
    SELECT m.place, id, lane, kind, m.bytes,
      CASE WHEN d.place IS NULL THEN (random() & 0x1fffffffffffff) | 2 ELSE max(1, d.run) END, d.changed
    FROM messages m LEFT JOIN dead d USING (place)
    WHERE m. place = ? AND NOT EXISTS (SELECT 1 FROM pending p WHERE p.place = m.place) RETURNING bytes`,
  state: 'SELECT * FROM state',
  setState: 'UPDATE state SET closed = ?, alive_at = ?, uptime_ms = ?, known_ms = ?, doubted_ms = ?',
  setOpen: 'UPDATE state SET closed = 0',
  gaps: 'SELECT * FROM holes ORDER BY from_ms',
  addGap: 'INSERT INTO holes (reason, from_ms, to_ms, vin, missed) VALUES (?, ?, ?, ?, ?)',
  removeGap: 'DELETE FROM holes WHERE reason = ? AND vin IS ? AND from_ms >= ? AND ifnull(to_ms, 0) <= ?',
  removeGaps: 'DELETE FROM holes',
  owed: 'SELECT branch, from_ms FROM owed',
  addOwed: 'INSERT OR IGNORE INTO owed (branch, from_ms) VALUES (?, ?)',
  removeOwed: 'DELETE FROM owed',
  removeGapOfStop: `DELETE FROM holes WHERE number = (SELECT max(number) FROM holes) AND reason = 'stopped' AND from_ms = ?`,
  oldest: 'SELECT min(place) AS place FROM pending',
  countDead: 'SELECT count(*) AS messages FROM dead',
  newest: 'SELECT id, received_at FROM messages ORDER BY place DESC LIMIT 1',
  newestSeq: 'SELECT max(place) AS place FROM messages',
  countPending: `
    SELECT count(*) AS messages, sum(bytes) AS bytes, max(place) AS last
    FROM (SELECT place, bytes FROM pending WHERE place > ? ORDER BY place LIMIT ?)`,
  waiting:
    'SELECT p.place, id, lane, kind, deliveries, attempts, not_before, failure FROM pending p LEFT JOIN failing USING (place) WHERE p.place > ? ORDER BY p.place LIMIT ?',
  pending: `
    SELECT m.*, p.deliveries, p.replayed, p.changed FROM pending p JOIN messages m USING (place) WHERE p.place = ?`,
  message: `SELECT m.* FROM messages m WHERE m.place = ?`,
  deadLetter: `
    SELECT m.*, d.error, d.attempts, d.died_at, d.changed, d.run FROM dead d JOIN messages m USING (place) WHERE d.place = ?`,
  // Lists have no texts. Those are read one by one, until the page has its bytes.
  deadLetters: `
    SELECT m.place, m.lane, m.received_at FROM dead d JOIN messages m USING (place) WHERE d.place > ? ORDER BY d.place LIMIT ?`,
  settled: `
    SELECT m.place, m.lane, m.received_at,
      EXISTS (SELECT 1 FROM pending p WHERE p.place = m.place) OR
      EXISTS (SELECT 1 FROM dead d WHERE d.place = m.place) AS elsewhere
    FROM messages m WHERE m.place > ? ORDER BY m.place LIMIT ?`,
  // A revived message was settled before.
  unapplied: `
    SELECT m.place FROM messages m WHERE m.place > ? AND m.place <= (SELECT vehicles_up_to FROM state)
      AND NOT EXISTS (SELECT 1 FROM pending p WHERE p.place = m.place AND p.replayed = 0) ORDER BY m.place LIMIT ?`,
  holdVehicles: 'UPDATE state SET vehicles_seq = ?, vehicles_up_to = ?, vehicles_held = 1',
  releaseVehicles: 'UPDATE state SET vehicles_held = 0 WHERE vehicles_held = 1',
  setVehiclesSeq: 'UPDATE state SET vehicles_seq = ?',
  setVehiclesUpTo: 'UPDATE state SET vehicles_up_to = ?',
  setVehicle: 'INSERT OR REPLACE INTO vehicles (vin, place, seen_at, crc, text) VALUES (?, ?, ?, ?, ?)',
  removeVehicle: 'DELETE FROM vehicles WHERE vin = ?',
  removeUnseen: `
    DELETE FROM vehicles WHERE vin IN (SELECT vin FROM vehicles WHERE seen_at < ? AND vin <> '' LIMIT ?)`,
  vehicle: 'SELECT * FROM vehicles WHERE vin = ?',
  nextVehicle: 'SELECT * FROM vehicles WHERE vin > ? ORDER BY vin LIMIT 1',
  // A text begins with the time of its first timer: to parse all texts would take seconds.
  dueVehicles: `
    SELECT vin, CAST(substr(text, 8, 17) AS INTEGER) AS due FROM vehicles
    WHERE vin > ? AND text >= '{"due":' AND text < '{"due"::' ORDER BY vin LIMIT 10000`,
  outdatedVehicles: `
    SELECT * FROM vehicles WHERE vin > ? AND vin <> '' AND instr(substr(text, 1, 40 + length(?)), ?) = 0 ORDER BY vin LIMIT 500`,
  countVehicles: "SELECT count(*) AS vehicles FROM vehicles INDEXED BY vehicles_seen WHERE vin <> ''",
  // There is no index by lane: keeping one would cost as much as the rest of a message (docs/decisions/0011-observing.md).
  listed: `
    SELECT place FROM (SELECT place, lane, received_at FROM messages WHERE place < ? ORDER BY place DESC LIMIT ?)
    WHERE lane = ifnull(?, lane) AND received_at >= ? AND received_at < ? ORDER BY place DESC LIMIT ?`,
  listedOne: `
    SELECT m.*, d.error, d.attempts, d.died_at, EXISTS (SELECT 1 FROM pending p WHERE p.place = m.place) AS waits
    FROM messages m LEFT JOIN dead d USING (place) WHERE m.place = ?`,
  listedTo: `
    SELECT min(place) AS place, count(*) AS messages
    FROM (SELECT place FROM messages WHERE place < ? ORDER BY place DESC LIMIT ?)`,
  aboutVin: `
    SELECT m.place, m.kind, m.bytes, EXISTS (SELECT 1 FROM pending p WHERE p.place = m.place) AS waits,
      EXISTS (SELECT 1 FROM dead d WHERE d.place = m.place) AS died
    FROM messages m WHERE m.place > ? AND m.place <= ?
      AND (m.lane = ? OR (m.lane GLOB '[*][^*]*' AND instr(lower(m.text), lower(?)) > 0))`,
  removeGapsOf: 'DELETE FROM holes WHERE vin = ?',
  erasing: 'SELECT vin FROM erasing',
  addErasing: 'INSERT OR IGNORE INTO erasing (vin) VALUES (?)',
  noteErasing: 'UPDATE erasing SET steps = steps + 1 WHERE vin = ?',
  removeErasing: 'DELETE FROM erasing WHERE vin = ?',
  pageCount: 'PRAGMA page_count',
  freePages: 'PRAGMA freelist_count',
  deadBytes: 'SELECT ifnull(sum(bytes), 0) AS bytes FROM dead',
  oldDead: 'SELECT place, bytes, died_at FROM dead WHERE died_at < ? OR ? > 0 ORDER BY place LIMIT ?',
  sweepTo: `
    SELECT max(place) AS place, count(*) AS messages FROM
      (SELECT place FROM messages WHERE place > ? AND place < ? ORDER BY place LIMIT ?)`,
  sweep: `
    DELETE FROM messages WHERE place > ? AND place <= ?
      AND place NOT IN (SELECT place FROM pending WHERE place > ? AND place <= ?)
      AND place NOT IN (SELECT place FROM dead WHERE place > ? AND place <= ?)`,
} as const

type StatementName = keyof typeof statements

export type Statements = Readonly<Record<StatementName, StatementSync>>

export function prepareStatements(db: DatabaseSync): Statements {
  const prepared = Object.entries(statements).map(([name, sql]) => [name, db.prepare(sql)] as const)
  return Object.fromEntries(prepared) as Statements
}

export type SqlRow = Readonly<Record<string, SQLOutputValue>>

/** Whether the text is still the one that was stored. SQLite itself checks the structure of pages, not their content. */
export function isIntact({ text, crc }: SqlRow): boolean {
  return typeof text === 'string' && zlib.crc32(text) === crc
}

/** The row, if it is intact. Otherwise throws `inbox_damaged`. */
export function intact(row: SqlRow): SqlRow {
  if (isIntact(row)) return row
  const id = String(row['id'])
  throw new FleethookError('inbox_damaged', `The text of the message ${id} in the inbox does not match its checksum.`)
}

/** A state as it is stored. `undefined` when the text is not the one that was stored: then its state begins again. */
export function vehicleOf(row: SqlRow): VehicleRow | undefined {
  if (!isIntact(row)) return undefined
  return {
    vin: String(row['vin']),
    seq: Number(row['place']),
    seenMs: Number(row['seen_at']),
    text: String(row['text']),
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
