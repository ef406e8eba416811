import { DatabaseSync } from 'node:sqlite'
import { createReceiver, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { serve } from 'fleethook/node'
import { any, energy, episode, is, span, upsert } from 'fleethook/when'

const { CHECK_HOURS = '24', DATABASE = 'sessions.db', FLEETHOOK_INBOX = 'data/inbox.db', PORT = '3000' } = process.env
const hourMs = 3_600_000

const db = new DatabaseSync(DATABASE)
db.exec(`PRAGMA journal_mode = WAL;
  CREATE TABLE IF NOT EXISTS sessions (
    id TEXT PRIMARY KEY, revision, revoked, lasts, vin, started, ended, minutes, kwh, unseen, percent_from, percent_to, doubts
  );
  CREATE VIEW IF NOT EXISTS finished AS
    SELECT vin, datetime(started) AS started, minutes, round(kwh, 3) AS kwh, round(unseen, 3) AS unseen, percent_from, percent_to,
      doubts <> '' OR kwh IS NULL AS incomplete, doubts
    FROM sessions WHERE NOT revoked AND NOT lasts`)

const charge = episode('charge', {
  during: any(is('DetailedChargeState', 'Starting'), is('DetailedChargeState', 'Charging')),
  joins: { minutes: 15 }, // clouds, a moment without power
  splits: is('DetailedChargeState', 'Disconnected'),
  silence: { hours: 6 }, // its end was lost
  tellsEach: { seconds: 10 }, // so that its row is there while it lasts
  measures: { kwh: energy(), percent: span('BatteryLevel') },
})

function save(c: ReturnType<typeof charge.in>[number], doubts: readonly string[]) {
  const { sql, values } = upsert('sqlite', 'sessions', {
    id: c.id,
    revision: c.revision,
    revoked: c.revoked,
    lasts: c.lasts,
    vin: c.vin,
    started: c.startedAt,
    ended: c.endedAt,
    minutes: c.durationMs / 60_000,
    kwh: c.kwh.kwh, // what the socket gave with AC, and what the battery got with DC
    unseen: c.kwh.unseen, // what was charged before, and is in no row
    percent_from: c.percent.from,
    percent_to: c.percent.to,
    doubts: doubts.join(', '),
  })
  db.prepare(sql).run(...values)
}

const receiver = createReceiver({
  secret: process.env.WEBHOOK_SECRET,
  inbox: sqliteInbox({ path: FLEETHOOK_INBOX, retention: { settled: { forMs: 48 * hourMs } } }),
  parts: [vehicles({ fields: ['DetailedChargeState', 'BatteryLevel', 'ACChargingEnergyIn', 'DCChargingEnergyIn'] })],
}).when(charge, ({ change, vehicle }) => save(change, charge.doubts(change, vehicle)))

/** A message that comes hours late can leave a charge without a row. */
async function check() {
  const from = new Date(Date.now() - 26 * hourMs)
  const to = new Date(Date.now() - 2 * hourMs)
  for await (const found of charge.within(receiver, { from, to })) {
    const sql = 'SELECT 1 FROM sessions WHERE vin = ? AND NOT revoked AND started < ? AND ended > ?'
    if (db.prepare(sql).get(found.vin, found.endedAt.toISOString(), found.startedAt.toISOString())) continue
    console.warn('a charge was in no row', found.id)
    save(found, ['its messages came late'])
  }
}

await serve(receiver, { port: Number(PORT) })
setInterval(() => check().catch(console.error), Number(CHECK_HOURS) * hourMs).unref()
