import { DatabaseSync } from 'node:sqlite'
import { createReceiver, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { serve } from 'fleethook/node'
import { any, episode, is, span } from 'fleethook/when'

const { DATABASE = 'trips.db', FLEETHOOK_INBOX = 'data/inbox.db', PORT = '3000', WEBHOOK_SECRET } = process.env
const db = new DatabaseSync(DATABASE)
db.exec(`PRAGMA journal_mode = WAL;
  CREATE TABLE IF NOT EXISTS trips (id TEXT PRIMARY KEY, vin, started, minutes, miles, kwh, incomplete);
  CREATE VIEW IF NOT EXISTS finished AS SELECT vin, datetime(started) AS started, minutes, miles, kwh, incomplete FROM trips`)
const remove = db.prepare('DELETE FROM trips WHERE id IN (?, ?)')
const insert = db.prepare('INSERT INTO trips VALUES (?, ?, ?, ?, ?, ?, ?)')

const trip = episode('trip', {
  during: any(is('Gear', 'D'), is('Gear', 'R'), is('Gear', 'N')),
  joins: { minutes: 3 }, // a stop at a gate
  silence: { hours: 1 }, // its end was lost
  measures: { odometer: span('Odometer'), energy: span('EnergyRemaining') },
})

// A correction has the id of what it corrects, so it is the same row. What is not known is null, and never 0.
function save(vin: string, t: ReturnType<typeof trip.open>): void {
  remove.run(vin, t?.id ?? '')
  if (t === undefined || t.revoked || t.lasts) return
  const [miles, kwh] = [difference(t.odometer.to, t.odometer.from), difference(t.energy.from, t.energy.to)]
  const isIncomplete = t.acrossGap || t.cut || t.missing.length > 0
  insert.run(
    t.revision ? t.id : vin,
    vin,
    t.startedAt.toISOString(),
    t.durationMs / 60_000,
    miles,
    kwh,
    Number(isIncomplete),
  )
}
const difference = (a: number | null, b: number | null) =>
  a === null || b === null ? null : Number((a - b).toFixed(3))

const receiver = createReceiver({
  secret: WEBHOOK_SECRET,
  inbox: sqliteInbox({ path: FLEETHOOK_INBOX }),
  parts: [vehicles({ fields: ['Gear', 'Odometer', 'EnergyRemaining'] })],
})
  .when(trip, ({ vin, change }) => save(vin, change))
  // Until it is told, some minutes after its end, the row with the VIN as its id has what is known.
  .on('data', ({ vin }, { vehicle }) => {
    const t = trip.open(vehicle)
    if (!t?.revision) save(vin, t)
  })

const server = await serve(receiver, { port: Number(PORT) })
await server.closed
db.close()
