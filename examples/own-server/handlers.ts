import type { DatabaseSync } from 'node:sqlite'
import type { Receiver } from 'fleethook'
import { becomes } from 'fleethook/when'

/** A record that comes again after a crash has the same ids, and changes nothing: each row is there exactly once. */
const tables = `PRAGMA journal_mode = WAL;
  CREATE TABLE IF NOT EXISTS readings (id TEXT, field TEXT, vin TEXT, value, at TEXT, PRIMARY KEY (id, field));
  CREATE TABLE IF NOT EXISTS parked (id TEXT PRIMARY KEY, vin TEXT, at TEXT);`

export function addHandlers(receiver: Receiver, db: DatabaseSync): Receiver {
  db.exec(tables)
  const reading = db.prepare('INSERT OR IGNORE INTO readings SELECT ?, key, ?, value, ? FROM json_each(?)')
  const parked = db.prepare('INSERT OR IGNORE INTO parked VALUES (?, ?, ?)')
  return receiver
    .on('data', ({ id, vin, at, data }) => void reading.run(id, vin, at.toISOString(), JSON.stringify(data)))
    .when(becomes('Gear', 'P'), ({ id, vin, change }) => void parked.run(id, vin, change.at.toISOString()))
}
