import { DatabaseSync } from 'node:sqlite'
import { createReceiver } from 'fleethook'
import { serve } from 'fleethook/node'

const db = new DatabaseSync(process.env.DATABASE ?? 'telemetry.db')
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

const receiver = createReceiver({ secret: process.env.WEBHOOK_SECRET }).on('data', (event) => {
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

const server = await serve(receiver, { port: Number(process.env.PORT ?? 3000) })
await server.closed
db.close()
