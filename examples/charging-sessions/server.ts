import { DatabaseSync } from 'node:sqlite'
import { createReceiver, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { serve } from 'fleethook/node'
import { any, episode, growth, is, span } from 'fleethook/when'

const { DATABASE = 'sessions.db', FLEETHOOK_INBOX = 'data/inbox.db', PORT = '3000', WEBHOOK_SECRET } = process.env
const db = new DatabaseSync(DATABASE)
const columns = 'vin, started, minutes, kwh, percent_from, percent_to, incomplete'
db.exec(`PRAGMA journal_mode = WAL;
  CREATE TABLE IF NOT EXISTS sessions (key TEXT PRIMARY KEY, id, revision, revoked, ${columns});
  CREATE VIEW IF NOT EXISTS finished AS
    SELECT ${columns} FROM (SELECT *, max(revision) FROM sessions GROUP BY id) WHERE NOT revoked`)
// A correction has the id of what it corrects, and an older one changes nothing. What is not known is NULL.
// With AC both counters run: what the socket gave, and what reached the battery. With DC only the second does. So never add them.
const save = db.prepare(`INSERT OR REPLACE INTO sessions
  SELECT ?1, c->>'id', c->>'revision' + 0.5 * (?1 <> c->>'id'), c->>'revoked',
    c->>'vin', datetime(c->>'startedAt'), c->>'durationMs' / 60000.0,
    coalesce(max(ac, dc), nullif(ac, 0), nullif(dc, 0)), c->>'$.percent.from', c->>'$.percent.to',
    c->>'acrossGap' OR c->>'cut' OR c->>'missing' NOT IN ('[]', iif(ac > 0, '["dc"]', iif(dc > 0, '["ac"]', '[]')))
  FROM (SELECT c, c->>'ac' AS ac, c->>'dc' AS dc FROM (SELECT ?2 AS c))
  WHERE NOT c->>'lasts' AND NOT EXISTS (SELECT 1 FROM sessions WHERE key = c->>'id' AND revision > c->>'revision')`)
const forget = db.prepare('DELETE FROM sessions WHERE key = ?')

const charge = episode('charge', {
  during: any(is('DetailedChargeState', 'Starting'), is('DetailedChargeState', 'Charging')),
  joins: { minutes: 15 }, // clouds, a moment without power
  splits: is('DetailedChargeState', 'Disconnected'),
  silence: { hours: 6 }, // its end was lost
  measures: {
    percent: span('BatteryLevel'),
    ac: growth('ACChargingEnergyIn', { startsAt: 0 }),
    dc: growth('DCChargingEnergyIn', { startsAt: 0 }),
  },
})

const inbox = sqliteInbox({ path: FLEETHOOK_INBOX })
const fields = ['DetailedChargeState', 'BatteryLevel', 'ACChargingEnergyIn', 'DCChargingEnergyIn'] as const
const receiver = createReceiver({ secret: WEBHOOK_SECRET, inbox, parts: [vehicles({ fields })] })
  .when(charge, ({ change }) => save.run(change.id, JSON.stringify(change)))
  // Until it is told, minutes later, a row of its own has what is known now: half a revision more.
  .on(['data', 'vehicle_data'], ({ vin }, { vehicle }) => {
    forget.run(vin)
    save.run(vin, JSON.stringify(charge.open(vehicle) ?? null))
  })
await serve(receiver, { port: Number(PORT) })
