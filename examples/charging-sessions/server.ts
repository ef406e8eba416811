import { DatabaseSync } from 'node:sqlite'
import { createReceiver, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { serve } from 'fleethook/node'
import { any, episode, growth, is, span } from 'fleethook/when'

const { DATABASE = 'sessions.db', FLEETHOOK_INBOX = 'data/inbox.db', PORT = '3000', WEBHOOK_SECRET } = process.env
const db = new DatabaseSync(DATABASE)
db.exec(`PRAGMA journal_mode = WAL;
  CREATE TABLE IF NOT EXISTS sessions (id TEXT PRIMARY KEY, vin, started, minutes, kwh, percent_from, percent_to, incomplete);
  CREATE VIEW IF NOT EXISTS finished AS SELECT vin, datetime(started) AS started, minutes, kwh, percent_from, percent_to, incomplete FROM sessions`)
const remove = db.prepare('DELETE FROM sessions WHERE id IN (?, ?)')
const insert = db.prepare('INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?)')

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

// A correction has the id of what it corrects, so it is the same row. What is not known is null, and never 0.
function save(vin: string, c: ReturnType<typeof charge.open>): void {
  remove.run(vin, c?.id ?? '')
  if (c === undefined || c.revoked || c.lasts) return
  const { ac, dc, percent, missing } = c
  // With AC both count: what the socket gave, and what reached the battery. With DC only the second does. So never add them.
  const kwh = ac === null || dc === null ? ac || dc || null : Math.max(ac, dc)
  const needed = ['percent', ...(ac ? ['ac'] : dc ? ['dc'] : ['ac', 'dc'])]
  const isIncomplete = c.acrossGap || c.cut || needed.some((name) => missing.includes(name))
  insert.run(
    c.revision ? c.id : vin,
    vin,
    c.startedAt.toISOString(),
    c.durationMs / 60_000,
    kwh,
    percent.from,
    percent.to,
    Number(isIncomplete),
  )
}

const receiver = createReceiver({
  secret: WEBHOOK_SECRET,
  inbox: sqliteInbox({ path: FLEETHOOK_INBOX }),
  parts: [vehicles({ fields: ['DetailedChargeState', 'BatteryLevel', 'ACChargingEnergyIn', 'DCChargingEnergyIn'] })],
})
  .when(charge, ({ vin, change }) => save(vin, change))
  // Until it is told, some minutes after its end, the row with the VIN as its id has what is known.
  .on('data', ({ vin }, { vehicle }) => {
    const c = charge.open(vehicle)
    if (!c?.revision) save(vin, c)
  })

const server = await serve(receiver, { port: Number(PORT) })
await server.closed
db.close()
