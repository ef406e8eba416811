import type { DatabaseSync } from 'node:sqlite'
import { FleethookError } from '../../../src/base/errors.ts'

/** 'flht': what marks a file of SQLite as an inbox of fleethook. */
export const applicationId = 0x66_6c_68_74

const time = (column: string): string => `strftime('%Y-%m-%dT%H:%M:%fZ', ${column} / 1000.0, 'unixepoch')`

/** What makes each version of the schema from the one before. What was released is never changed, only added to. */
export const migrations: readonly string[] = [
  `
  -- Every message as it came. Never updated. What is neither pending nor dead is settled, and goes when its time is over.
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
  -- Messages that wait or are being handled, without their text: many to a page.
  CREATE TABLE pending (
    place INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    lane TEXT NOT NULL,
    kind TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    deliveries INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    not_before INTEGER NOT NULL DEFAULT 0,
    replayed INTEGER NOT NULL DEFAULT 0
  ) STRICT;
  -- Messages that were given up, and why.
  CREATE TABLE dead (
    place INTEGER PRIMARY KEY,
    bytes INTEGER NOT NULL,
    error TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    died_at INTEGER NOT NULL
  ) STRICT;
  -- Where messages may be missing, until the receiver has been able to keep a gap event.
  CREATE TABLE holes (number INTEGER PRIMARY KEY, reason TEXT NOT NULL, from_ms INTEGER NOT NULL) STRICT;
  -- One row: the last sign of life of whoever had the file, whether it was closed, the last id where no message tells it.
  CREATE TABLE state (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    closed INTEGER NOT NULL,
    alive_at INTEGER NOT NULL,
    last_id TEXT
  ) STRICT;
  INSERT INTO state VALUES (1, 1, 0, NULL);

  -- For people.
  CREATE VIEW waiting AS
    SELECT p.id, p.lane, p.kind, ${time('m.received_at')} AS received_at, p.bytes, p.deliveries, p.attempts,
      CASE p.not_before WHEN 0 THEN NULL ELSE ${time('p.not_before')} END AS not_before, p.replayed, m.text
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
  `,
]

/**
 * Brings a file to the newest schema, in one transaction. Throws `inbox_unsupported` for a file that is not an inbox, or that
 * a newer fleethook has written. Returns the version that it found: 0 for a new file.
 */
export function migrate(db: DatabaseSync, path: string, steps: readonly string[] = migrations): number {
  // The lock is taken here, and held from now on.
  db.exec('BEGIN IMMEDIATE')
  try {
    const from = numberOf(db, 'PRAGMA user_version')
    const owner = numberOf(db, 'PRAGMA application_id')
    const tables = numberOf(db, 'SELECT count(*) FROM sqlite_schema')
    if (owner !== applicationId && (owner !== 0 || from !== 0 || tables !== 0)) throw foreign(path)
    if (from > steps.length) throw newer(path, from, steps.length)
    for (const step of steps.slice(from)) db.exec(step)
    if (from < steps.length) db.exec(`PRAGMA application_id = ${applicationId}; PRAGMA user_version = ${steps.length}`)
    db.exec('COMMIT')
    return from
  } catch (error) {
    try {
      db.exec('ROLLBACK')
    } catch {
      // SQLite has done so already.
    }
    throw error
  }
}

/** The one number that a query gives. */
export function numberOf(db: DatabaseSync, sql: string): number {
  return Number(Object.values(db.prepare(sql).get() ?? {})[0])
}

function foreign(path: string): FleethookError {
  return new FleethookError('inbox_unsupported', `The file ${path} is a database of something else.`, {
    hint: 'Give the inbox a path of its own.',
  })
}

function newer(path: string, found: number, known: number): FleethookError {
  return new FleethookError(
    'inbox_unsupported',
    `The inbox ${path} has version ${found} of the schema, and this fleethook knows versions up to ${known}.`,
    { hint: 'A newer fleethook wrote it: run that one, or one that is newer still.' },
  )
}
