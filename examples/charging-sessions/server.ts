import { DatabaseSync } from 'node:sqlite'
import { createReceiver, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { serve } from 'fleethook/node'
import { any, ends, is, starts } from 'fleethook/when'

const { DATABASE = 'sessions.db', FLEETHOOK_INBOX = 'data/inbox.db', PORT = '3000', WEBHOOK_SECRET } = process.env
const db = new DatabaseSync(DATABASE)
db.exec(`
  PRAGMA journal_mode = WAL;
  CREATE TABLE IF NOT EXISTS sessions (
    id TEXT PRIMARY KEY, vin TEXT NOT NULL, started_ms INTEGER NOT NULL, ended_ms INTEGER, end_id TEXT UNIQUE,
    percent_from REAL, percent_to REAL, ac_kwh REAL NOT NULL DEFAULT 0, dc_kwh REAL NOT NULL DEFAULT 0,
    incomplete INTEGER NOT NULL DEFAULT 0
  );
  CREATE INDEX IF NOT EXISTS sessions_by_vehicle ON sessions (vin, started_ms);
`)

// After a crash the same edge can come again, with the same id. So each statement changes nothing the second time.
const start = db.prepare(
  'INSERT OR IGNORE INTO sessions (id, vin, started_ms, percent_from, incomplete) VALUES (?, ?, ?, ?, ?)',
)
const open =
  'SELECT id FROM sessions WHERE vin = ? AND end_id IS NULL AND started_ms <= ? ORDER BY started_ms DESC LIMIT 1'
const end = db.prepare(`
  UPDATE OR IGNORE sessions SET ended_ms = ?, end_id = ?, percent_to = ?, incomplete = incomplete OR ? WHERE id = (${open})`)
// The vehicle counts the energy of a session from 0.
const count = db.prepare(`
  UPDATE sessions SET ac_kwh = max(ac_kwh, ?), dc_kwh = max(dc_kwh, ?) WHERE id = (${open})`)

const charges = any(is('DetailedChargeState', 'Starting'), is('DetailedChargeState', 'Charging'))
const counters = ['ACChargingEnergyIn', 'DCChargingEnergyIn'] as const

const receiver = createReceiver({
  secret: WEBHOOK_SECRET,
  inbox: sqliteInbox({ path: FLEETHOOK_INBOX }),
  parts: [vehicles({ fields: ['DetailedChargeState', 'BatteryLevel', ...counters] })],
})
  .on('data', { changed: counters }, ({ vin }, { changes }) => {
    for (const { field, to, at } of changes) {
      const kwh = typeof to === 'number' ? to : 0
      if (field === 'ACChargingEnergyIn') count.run(kwh, 0, vin, at.getTime())
      if (field === 'DCChargingEnergyIn') count.run(0, kwh, vin, at.getTime())
    }
  })
  .when(starts(charges, { first: true }), ({ id, vin, change, vehicle }) => {
    start.run(id, vin, change.at.getTime(), vehicle.value('BatteryLevel') ?? null, Number(change.acrossGap))
  })
  .when(ends(charges), ({ id, vin, change, vehicle }) => {
    const at = change.at.getTime()
    end.run(at, id, vehicle.value('BatteryLevel') ?? null, Number(change.acrossGap), vin, at)
  })

const server = await serve(receiver, { port: Number(PORT) })
await server.closed
db.close()
