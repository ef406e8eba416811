import { DatabaseSync } from 'node:sqlite'
import { createReceiver } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { serve } from 'fleethook/node'

const { DATABASE = 'telemetry.db', FLEETHOOK_INBOX = 'data/inbox.db', PORT = '3000', WEBHOOK_SECRET } = process.env
const db = new DatabaseSync(DATABASE)
db.exec(`
  PRAGMA journal_mode = WAL;
  CREATE TABLE IF NOT EXISTS readings (
    id TEXT, vin TEXT, field TEXT, value TEXT, at TEXT,
    PRIMARY KEY (id, field)
  ) WITHOUT ROWID;
  CREATE INDEX IF NOT EXISTS readings_by_vehicle ON readings (vin, field, at);
`)
// The same message sent again has the same id, so writing it twice changes nothing.
const insert = db.prepare('INSERT OR IGNORE INTO readings (id, vin, field, value, at) VALUES (?, ?, ?, ?, ?)')

// A file of its own: what is acknowledged waits there until it is in the database.
const inbox = sqliteInbox({ path: FLEETHOOK_INBOX })
const receiver = createReceiver({ secret: WEBHOOK_SECRET, inbox }).on('data', (event) => {
  db.exec('BEGIN')
  try {
    for (const [field, value] of Object.entries(event.data))
      insert.run(event.id, event.vin, field, JSON.stringify(value), event.createdAt)
    db.exec('COMMIT')
  } catch (error) {
    db.exec('ROLLBACK')
    throw error // the receiver runs the handler again
  }
})

const server = await serve(receiver, { port: Number(PORT) })
await server.closed
db.close()
