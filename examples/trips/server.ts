import { DatabaseSync } from 'node:sqlite'
import { createReceiver, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { serve } from 'fleethook/node'
import { drives, episode, span, upsert } from 'fleethook/when'

const { CHECK_HOURS = '24', DATABASE = 'trips.db', FLEETHOOK_INBOX = 'data/inbox.db', PORT = '3000' } = process.env
const hourMs = 3_600_000

const db = new DatabaseSync(DATABASE)
db.exec(`PRAGMA journal_mode = WAL;
  CREATE TABLE IF NOT EXISTS trips (
    id TEXT PRIMARY KEY, revision, revoked, lasts, vin, started, ended, minutes, miles, unseen, kwh, doubts
  );
  CREATE VIEW IF NOT EXISTS finished AS
    SELECT vin, datetime(started) AS started, minutes, round(miles, 3) AS miles, round(unseen, 3) AS unseen, round(kwh, 3) AS kwh,
      doubts <> '' OR miles IS NULL AS incomplete, doubts
    FROM trips WHERE NOT revoked AND NOT lasts`)

const trip = episode('trip', {
  during: drives(), // by its gear, or by its speed where it has none
  joins: { minutes: 3 }, // a stop at a gate
  silence: { hours: 1 }, // its end was lost
  tellsEach: { seconds: 10 }, // so that its row is there while it lasts
  measures: { miles: span('Odometer'), kwh: span('EnergyRemaining') },
})

function save(t: ReturnType<typeof trip.in>[number], doubts: readonly string[]) {
  const { from, to, unseen } = t.miles
  const used = t.kwh.from !== null && t.kwh.to !== null ? t.kwh.from - t.kwh.to : null
  const { sql, values } = upsert('sqlite', 'trips', {
    id: t.id,
    revision: t.revision,
    revoked: t.revoked,
    lasts: t.lasts,
    vin: t.vin,
    started: t.startedAt,
    ended: t.endedAt,
    minutes: t.durationMs / 60_000,
    miles: from !== null && to !== null ? to - from + unseen : unseen || null, // not known is NULL, and never 0
    unseen, // miles that no message of a trip was there for
    kwh: used !== null && used < 0 ? null : used, // it was charged before its energy was said again
    doubts: doubts.join(', '),
  })
  db.prepare(sql).run(...values)
}

const receiver = createReceiver({
  secret: process.env.WEBHOOK_SECRET,
  inbox: sqliteInbox({ path: FLEETHOOK_INBOX, retention: { settled: { forMs: 48 * hourMs } } }),
  parts: [vehicles({ fields: ['Gear', 'VehicleSpeed', 'Odometer', 'EnergyRemaining'] })],
}).when(trip, ({ change, vehicle }) => save(change, trip.doubts(change, vehicle)))

/** A message that comes hours late can leave a trip without a row. */
async function check() {
  const from = new Date(Date.now() - 26 * hourMs)
  const to = new Date(Date.now() - 2 * hourMs)
  for await (const found of trip.within(receiver, { from, to })) {
    const sql = 'SELECT 1 FROM trips WHERE vin = ? AND NOT revoked AND started < ? AND ended > ?'
    if (db.prepare(sql).get(found.vin, found.endedAt.toISOString(), found.startedAt.toISOString())) continue
    console.warn('a trip was in no row', found.id)
    save(found, ['its messages came late'])
  }
}

await serve(receiver, { port: Number(PORT) })
setInterval(() => check().catch(console.error), Number(CHECK_HOURS) * hourMs).unref()
