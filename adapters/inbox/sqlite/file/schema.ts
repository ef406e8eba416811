import type { DatabaseSync, SQLOutputValue } from 'node:sqlite'
import { FleethookError } from '../../../../src/base/errors.ts'

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

export const suffixOf = (number: number): string => (number === 0 ? '' : `_${number}`)

/** Creates the tables of another reader. */
export function createReader(db: DatabaseSync, number: number): void {
  db.exec(tablesOf(suffixOf(number)))
}

export function dropReaderTables(db: DatabaseSync, number: number): void {
  for (const table of ['pending', 'dead', 'failing', 'vehicles']) db.exec(`DROP TABLE ${table}${suffixOf(number)}`)
}

export type SqlRow = Readonly<Record<string, SQLOutputValue>>
