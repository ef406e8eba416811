import { readFileSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'
import { createReceiver, type EventOf } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { serve } from 'fleethook/node'

const { DATABASE = 'trips.db', FLEETHOOK_INBOX = 'data/inbox.db', PORT = '3000', WEBHOOK_SECRET } = process.env
const db = new DatabaseSync(DATABASE)
db.exec('PRAGMA journal_mode = WAL')
db.exec(readFileSync(new URL('schema.sql', import.meta.url), 'utf8'))

// After a crash a message can come again, and a vehicle can send one twice. Both have the same id, and change nothing.
const insert = db.prepare(
  'INSERT OR IGNORE INTO readings (id, vin, field, value, at_ms, received_ms) VALUES (?, ?, ?, ?, ?, ?)',
)
const insertGap = db.prepare('INSERT OR IGNORE INTO gaps (id, vin, from_ms, to_ms) VALUES (?, ?, ?, ?)')
const newest = db.prepare('SELECT max(at_ms) AS at_ms FROM readings WHERE vin = ?')

/** When the vehicle sent it. A clock that was never set, or runs fast, only says that it was after what came before. */
function timeOf({ vin, at, receivedAt }: EventOf<'data'>): number {
  if (at <= receivedAt && at.getUTCFullYear() >= 2015) return at.getTime()
  return Math.max(Number(newest.get(vin)?.['at_ms'] ?? 0) + 1, receivedAt.getTime() - 10_000)
}

const fields = ['Gear', 'Odometer', 'EnergyRemaining'] as const

const receiver = createReceiver({ secret: WEBHOOK_SECRET, inbox: sqliteInbox({ path: FLEETHOOK_INBOX }) })
  .on('data', { fields }, (event) => {
    const at = timeOf(event)
    db.exec('BEGIN')
    try {
      for (const field of fields) {
        // A vehicle that has no value for a moment sends null.
        const value = event.data[field] ?? null
        if (value !== null) insert.run(event.id, event.vin, field, value, at, event.receivedAt.getTime())
      }
      db.exec('COMMIT')
    } catch (error) {
      db.exec('ROLLBACK')
      throw error // the receiver runs the handler again
    }
  })
  // Messages may be missing between these times. What lasted then is `incomplete`.
  .on('gap', ({ id, vin, from, to }) => void insertGap.run(id, vin ?? null, from.getTime(), to.getTime()))

const server = await serve(receiver, { port: Number(PORT) })
await server.closed
db.close()
