import { DatabaseSync } from 'node:sqlite'
import { createReceiver, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { serve } from 'fleethook/node'
import { any, ends, is, starts } from 'fleethook/when'

const { DATABASE = 'trips.db', FLEETHOOK_INBOX = 'data/inbox.db', PORT = '3000', WEBHOOK_SECRET } = process.env
const db = new DatabaseSync(DATABASE)
db.exec(`
  PRAGMA journal_mode = WAL;
  CREATE TABLE IF NOT EXISTS trips (
    id TEXT PRIMARY KEY, vin TEXT NOT NULL, started_ms INTEGER NOT NULL, ended_ms INTEGER, end_id TEXT UNIQUE,
    miles_from REAL, miles_to REAL, kwh_from REAL, kwh_to REAL, incomplete INTEGER NOT NULL DEFAULT 0
  );
  CREATE INDEX IF NOT EXISTS trips_by_vehicle ON trips (vin, started_ms);
  DROP VIEW IF EXISTS finished;
  CREATE VIEW finished AS
    SELECT vin, datetime(started_ms / 1000, 'unixepoch') AS started, (ended_ms - started_ms) / 60000.0 AS minutes,
           miles_to - miles_from AS miles, kwh_from - kwh_to AS kwh, incomplete
    FROM trips WHERE end_id IS NOT NULL;
`)

// After a crash the same edge can come again, with the same id. So each statement changes nothing the second time.
const start = db.prepare(`
  INSERT OR IGNORE INTO trips (id, vin, started_ms, miles_from, miles_to, kwh_from, kwh_to, incomplete)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?)`)
const newest = 'SELECT id FROM trips WHERE vin = ? AND started_ms <= ? ORDER BY started_ms DESC LIMIT 1'
const end = db.prepare(`
  UPDATE OR IGNORE trips SET ended_ms = ?, end_id = ?, kwh_to = ?, incomplete = incomplete OR ?
  WHERE id = (${newest}) AND end_id IS NULL`)
// The last miles can come after the vehicle has parked. They are still those of its newest trip.
const drive = db.prepare(`
  UPDATE trips SET miles_from = coalesce(miles_from, ?), miles_to = max(coalesce(miles_to, 0), ?) WHERE id = (${newest})`)

const drives = any(is('Gear', 'D'), is('Gear', 'R'), is('Gear', 'N'))

const receiver = createReceiver({
  secret: WEBHOOK_SECRET,
  inbox: sqliteInbox({ path: FLEETHOOK_INBOX }),
  parts: [vehicles({ fields: ['Gear', 'Odometer', 'EnergyRemaining'] })],
})
  .on('data', { changed: ['Odometer'] }, ({ vin }, { changes }) => {
    for (const { field, to, at } of changes)
      if (field === 'Odometer' && typeof to === 'number') drive.run(to, to, vin, at.getTime())
  })
  .when(starts(drives, { first: true }), ({ id, vin, change, vehicle }) => {
    const miles = vehicle.value('Odometer') ?? null
    const kwh = vehicle.value('EnergyRemaining') ?? null
    start.run(id, vin, change.at.getTime(), miles, miles, kwh, kwh, Number(change.acrossGap))
  })
  .when(ends(drives), ({ id, vin, change, vehicle }) => {
    const at = change.at.getTime()
    end.run(at, id, vehicle.value('EnergyRemaining') ?? null, Number(change.acrossGap), vin, at)
  })

const server = await serve(receiver, { port: Number(PORT) })
await server.closed
db.close()
