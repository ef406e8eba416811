// A receiver whose handler writes each message once, until the process is killed. The first process posts the messages. Another one may replay them.
import { existsSync } from 'node:fs'
import process from 'node:process'
import { DatabaseSync } from 'node:sqlite'
import { sqliteInbox } from '../../../adapters/inbox/sqlite.ts'
import { createReceiver } from '../../../src/index.ts'
import { createOnce } from '../../../src/once.ts'

export interface OnceSettings {
  readonly folder: string
  readonly messages: number
  readonly isControl: boolean
  /** Replays all handled messages, before it waits until nothing is left. */
  readonly replays?: boolean
}

const { folder, messages, isControl, replays }: OnceSettings = JSON.parse(process.env['SETTINGS'] ?? '')
const db = new DatabaseSync(`${folder}/data.db`, { timeout: 5_000 })
db.exec('PRAGMA journal_mode = WAL; CREATE TABLE IF NOT EXISTS readings (vin TEXT, number INTEGER)')
let last: Promise<unknown> = Promise.resolve()
const once = createOnce<DatabaseSync>({
  database: 'sqlite',
  run: async (tx, sql, values) => Number(tx.prepare(sql).run(...values).changes),
  transaction(work) {
    const done = last.then(async () => {
      db.exec('BEGIN IMMEDIATE')
      try {
        await work(db)
        db.exec('COMMIT')
      } finally {
        if (db.isTransaction) db.exec('ROLLBACK')
      }
    })
    last = done.catch(() => {})
    return done
  },
})
for (const sql of once.schema) db.exec(sql)

const write = (vin: string, number: unknown): void => {
  db.prepare('INSERT INTO readings VALUES (?, ?)').run(vin, Number(number))
  console.log('handled')
}
const handler = isControl
  ? async ({ vin, data }: { vin: string; data: { Odometer?: unknown } }): Promise<void> => write(vin, data.Odometer)
  : once('readings', async ({ vin, data }: { vin: string; data: { Odometer?: unknown } }) => write(vin, data.Odometer))
const silent = (): void => {}
const path = `${folder}/inbox.db`
const isFirst = !existsSync(path)
const receiver = createReceiver({
  secret: false,
  inbox: sqliteInbox({ path }),
  log: { debug: silent, info: silent, warn: silent, error: silent },
}).on('data', handler as never)
await receiver.open()
if (isFirst) {
  const body = Array.from({ length: messages }, (_, number) => ({
    ...{ vin: `V${number % 40}`, createdAt: '2026-05-01T00:00:00Z', data: { Odometer: number } },
  }))
  await receiver.accept({ authorization: undefined, body })
}
if (replays === true) await receiver.replay({ from: new Date(0), to: new Date(Date.now() + 60_000) })
while (receiver.stats().pending.messages > 0) await new Promise((resolve) => setTimeout(resolve, 5))
await receiver.drain()
console.log('done')
