import { DatabaseSync } from 'node:sqlite'
import { createReceiver, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { serve } from 'fleethook/node'
import { any, episode, is, span } from 'fleethook/when'

const { DATABASE = 'trips.db', FLEETHOOK_INBOX = 'data/inbox.db', PORT = '3000', WEBHOOK_SECRET } = process.env
const db = new DatabaseSync(DATABASE)
db.exec(`PRAGMA journal_mode = WAL;
  CREATE TABLE IF NOT EXISTS trips (id TEXT PRIMARY KEY, vin, started, minutes, miles, kwh, incomplete);
  CREATE VIEW IF NOT EXISTS finished AS SELECT vin, started, minutes, round(miles, 3) AS miles, round(kwh, 3) AS kwh, incomplete FROM trips`)
// What is not known is NULL, and so is the difference to it: never 0.
const insert = db.prepare(`INSERT OR REPLACE INTO trips
  VALUES (?, ?, datetime(? / 1000, 'unixepoch'), ? / 60000.0, ? - ?, ? - ?, ?)`)

const trip = episode('trip', {
  during: any(is('Gear', 'D'), is('Gear', 'R'), is('Gear', 'N')),
  joins: { minutes: 3 }, // a stop at a gate
  silence: { hours: 1 }, // its end was lost
  measures: { odometer: span('Odometer'), energy: span('EnergyRemaining') },
})

/** A correction has the id of what it corrects, so it is the same row. Until it is told, minutes after the end, its id is the VIN. */
function save(vehicle: Parameters<typeof trip.open>[0], told?: ReturnType<typeof trip.open>): void {
  db.prepare('DELETE FROM trips WHERE id IN (?, ?)').run(vehicle.vin, told?.id ?? '')
  for (const t of [told, trip.open(vehicle)]) {
    if (t === undefined || t.revoked || t.lasts) continue
    const { odometer: o, energy: e } = t
    const isDoubtful = t.acrossGap || t.cut || t.missing.length > 0
    const id = t.revision === 0 ? t.vin : t.id
    insert.run(id, t.vin, +t.startedAt, t.durationMs, o.to, o.from, e.from, e.to, +isDoubtful)
  }
}

const fields = ['Gear', 'Odometer', 'EnergyRemaining'] as const
const inbox = sqliteInbox({ path: FLEETHOOK_INBOX })
const receiver = createReceiver({ secret: WEBHOOK_SECRET, inbox, parts: [vehicles({ fields })] })
  .when(trip, ({ vehicle, change }) => save(vehicle, change))
  .on('data', (_, { vehicle }) => save(vehicle))
await serve(receiver, { port: Number(PORT) })
