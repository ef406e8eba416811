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
    const [id, started] = [t.revision === 0 ? t.vin : t.id, t.startedAt.toISOString().slice(0, 19).replace('T', ' ')]
    const values = [difference(t.odometer.to, t.odometer.from), difference(t.energy.from, t.energy.to)]
    const incomplete = Number(t.acrossGap || t.cut || t.missing.length > 0)
    const insert = db.prepare('INSERT OR REPLACE INTO trips VALUES (?, ?, ?, ?, ?, ?, ?)')
    insert.run(id, t.vin, started, t.durationMs / 60_000, ...values, incomplete)
  }
}
// What is not known is null, and never 0.
const difference = (a: number | null, b: number | null) => (a === null || b === null ? null : a - b)

const fields = ['Gear', 'Odometer', 'EnergyRemaining'] as const
const inbox = sqliteInbox({ path: FLEETHOOK_INBOX })
const receiver = createReceiver({ secret: WEBHOOK_SECRET, inbox, parts: [vehicles({ fields })] })
  .when(trip, ({ vehicle, change }) => save(vehicle, change))
  .on('data', (_, { vehicle }) => save(vehicle))
await serve(receiver, { port: Number(PORT) })
