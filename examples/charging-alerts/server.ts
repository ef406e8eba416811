import { mkdirSync } from 'node:fs'
import { dirname } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { createReceiver, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { exitWithError, serve } from 'fleethook/node'
import { alertStarts, any, becomes, changed, is, starts } from 'fleethook/when'

const { CHAT_WEBHOOK_URL, FLEETHOOK_INBOX = 'data/inbox.db', PORT = '3000', WEBHOOK_SECRET } = process.env
if (!CHAT_WEBHOOK_URL) exitWithError('CHAT_WEBHOOK_URL is not set. Set it to the incoming webhook of your chat.')
const chat = new URL(CHAT_WEBHOOK_URL)

// Starting is short, and some vehicles do not report it. Both are the same news.
const news: Partial<Record<string, string>> = {
  Starting: 'starts charging',
  Charging: 'starts charging',
  Complete: 'is fully charged',
}

// The state flickers, and clouds interrupt a charge. The same news is told again when the vehicle was unplugged or drove, or hours later.
const quietMs = 6 * 3_600_000
mkdirSync(dirname(FLEETHOOK_INBOX), { recursive: true })
const db = new DatabaseSync(`${FLEETHOOK_INBOX}-told`)
db.exec(`
  PRAGMA journal_mode = WAL;
  CREATE TABLE IF NOT EXISTS told (vin TEXT, news TEXT, at_ms INTEGER, PRIMARY KEY (vin, news)) WITHOUT ROWID;
`)
const wasTold = db.prepare('SELECT 1 FROM told WHERE vin = ? AND news = ? AND at_ms > ?')
const tell = db.prepare('INSERT OR REPLACE INTO told (vin, news, at_ms) VALUES (?, ?, ?)')
const forget = db.prepare('DELETE FROM told WHERE vin = ?')

const pluggedInOnly = any(is('DetailedChargeState', 'NoPower'), is('DetailedChargeState', 'Stopped'))

const receiver = createReceiver({
  secret: WEBHOOK_SECRET,
  inbox: sqliteInbox({ path: FLEETHOOK_INBOX }),
  // Vehicles repeat their state, and only a change is news. The inbox keeps the last state, also over restarts.
  parts: [vehicles({ fields: ['DetailedChargeState', 'Gear'] })],
})
  .when(becomes('DetailedChargeState', 'Disconnected', { first: true }), ({ vin }) => void forget.run(vin))
  .when(starts(any(is('Gear', 'D'), is('Gear', 'R')), { first: true }), ({ vin }) => void forget.run(vin))
  // By default, the first value of a vehicle is no change. Here it is news: the vehicle may be charging already.
  .when(changed('DetailedChargeState', { first: true }), async ({ vin, change }, { signal }) => {
    const text = news[change.to ?? '']
    if (text !== undefined) await postOnce(vin, text, change.at, signal)
  })
  .when(starts(pluggedInOnly, { first: true }).after({ minutes: 10 }), async ({ vin, change }, { signal }) => {
    await postOnce(vin, 'is plugged in and not charging', change.since, signal)
  })
  .when(alertStarts(), async ({ vin, change }, { signal }) => {
    const ofDriver = change.alerts.filter(({ audiences }) => audiences.includes('Customer'))
    if (ofDriver.length > 0) await post(`${vin}: ${ofDriver.map(({ name }) => name).join(', ')}`, signal)
  })

async function postOnce(vin: string, text: string, at: Date, signal: AbortSignal): Promise<void> {
  if (wasTold.get(vin, text, at.getTime() - quietMs) !== undefined) return
  await post(`${vin} ${text} (${at.toISOString()})`, signal)
  tell.run(vin, text, at.getTime())
}

async function post(text: string, signal: AbortSignal): Promise<void> {
  const headers = { 'content-type': 'application/json' }
  const answer = await fetch(chat, { method: 'POST', headers, body: JSON.stringify({ text }), signal })
  // When the chat does not answer, the handler runs again.
  if (!answer.ok) throw new Error(`The chat answered ${answer.status}.`)
}

const server = await serve(receiver, { port: Number(PORT) })
await server.closed
db.close()
