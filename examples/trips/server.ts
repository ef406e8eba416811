import { DatabaseSync } from 'node:sqlite'
import { createReceiver, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { serve } from 'fleethook/node'
import { any, episode, is, span } from 'fleethook/when'

const { DATABASE = 'trips.db', FLEETHOOK_INBOX = 'data/inbox.db', PORT = '3000', WEBHOOK_SECRET } = process.env
const db = new DatabaseSync(DATABASE)
db.exec(`PRAGMA journal_mode = WAL;
  CREATE TABLE IF NOT EXISTS trips (key TEXT PRIMARY KEY, id, revision, revoked, vin, started, minutes, miles, kwh, incomplete);
  CREATE VIEW IF NOT EXISTS finished AS
    SELECT vin, started, minutes, miles, kwh, incomplete FROM (SELECT *, max(revision) FROM trips GROUP BY id) WHERE NOT revoked`)
// A correction has the id of what it corrects, and an older one changes nothing. What is not known is NULL, and so is the difference to it.
const save = db.prepare(`INSERT OR REPLACE INTO trips
  SELECT ?1, t->>'id', t->>'revision' + 0.5 * (?1 <> t->>'id'), t->>'revoked',
    t->>'vin', datetime(t->>'startedAt'), t->>'durationMs' / 60000.0,
    round(t->>'$.odometer.to' - t->>'$.odometer.from', 3), round(t->>'$.energy.from' - t->>'$.energy.to', 3),
    t->>'acrossGap' OR t->>'cut' OR t->>'missing' <> '[]'
  FROM (SELECT ?2 AS t)
  WHERE NOT t->>'lasts' AND NOT EXISTS (SELECT 1 FROM trips WHERE key = t->>'id' AND revision > t->>'revision')`)
const forget = db.prepare('DELETE FROM trips WHERE key = ?')

const trip = episode('trip', {
  during: any(is('Gear', 'D'), is('Gear', 'R'), is('Gear', 'N')),
  joins: { minutes: 3 }, // a stop at a gate
  silence: { hours: 1 }, // its end was lost
  measures: { odometer: span('Odometer'), energy: span('EnergyRemaining') },
})

const inbox = sqliteInbox({ path: FLEETHOOK_INBOX })
const fields = ['Gear', 'Odometer', 'EnergyRemaining'] as const
const receiver = createReceiver({ secret: WEBHOOK_SECRET, inbox, parts: [vehicles({ fields })] })
  .when(trip, ({ change }) => save.run(change.id, JSON.stringify(change)))
  // Until it is told, minutes later, a row of its own has what is known now: half a revision more.
  .on(['data', 'vehicle_data'], ({ vin }, { vehicle }) => {
    forget.run(vin)
    save.run(vin, JSON.stringify(trip.open(vehicle) ?? null))
  })
await serve(receiver, { port: Number(PORT) })
