import { DatabaseSync } from 'node:sqlite'
import { createReceiver, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { serve } from 'fleethook/node'
import { any, episode, growth, is, span } from 'fleethook/when'

const { DATABASE = 'sessions.db', FLEETHOOK_INBOX = 'data/inbox.db', PORT = '3000', WEBHOOK_SECRET } = process.env
const db = new DatabaseSync(DATABASE)
const columns = 'vin, started, minutes, kwh, percent_from, percent_to, incomplete'
db.exec(`PRAGMA journal_mode = WAL;
  CREATE TABLE IF NOT EXISTS sessions (id TEXT PRIMARY KEY, ${columns});
  CREATE VIEW IF NOT EXISTS finished AS SELECT ${columns} FROM sessions`)
const insert = db.prepare(
  "INSERT OR REPLACE INTO sessions VALUES (?, ?, datetime(? / 1000, 'unixepoch'), ? / 60000.0, ?, ?, ?, ?)",
)

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

/** A correction has the id of what it corrects, so it is the same row. Until it is told, minutes after the end, its id is the VIN. */
function save(vehicle: Parameters<typeof charge.open>[0], told?: ReturnType<typeof charge.open>): void {
  db.prepare('DELETE FROM sessions WHERE id IN (?, ?)').run(vehicle.vin, told?.id ?? '')
  for (const c of [told, charge.open(vehicle)]) {
    if (c === undefined || c.revoked || c.lasts) continue
    const { ac, dc, percent, missing } = c
    // With AC both count: what the socket gave, and what reached the battery. With DC only the second does. So never add them.
    const kwh = ac === null || dc === null ? ac || dc || null : Math.max(ac, dc)
    const other = ac ? 'dc' : dc ? 'ac' : ''
    const isDoubtful = c.acrossGap || c.cut || missing.some((name) => name !== other)
    const id = c.revision === 0 ? c.vin : c.id
    insert.run(id, c.vin, +c.startedAt, c.durationMs, kwh, percent.from, percent.to, +isDoubtful)
  }
}

const fields = ['DetailedChargeState', 'BatteryLevel', 'ACChargingEnergyIn', 'DCChargingEnergyIn'] as const
const inbox = sqliteInbox({ path: FLEETHOOK_INBOX })
const receiver = createReceiver({ secret: WEBHOOK_SECRET, inbox, parts: [vehicles({ fields })] })
  .when(charge, ({ vehicle, change }) => save(vehicle, change))
  .on('data', (_, { vehicle }) => save(vehicle))
await serve(receiver, { port: Number(PORT) })
