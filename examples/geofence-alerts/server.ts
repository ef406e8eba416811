import { mkdirSync } from 'node:fs'
import { dirname } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { createReceiver, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { exitWithError, serve } from 'fleethook/node'
import { all, type Area, below, circle, crosses, enters, inside, is, leaves, polygon, starts } from 'fleethook/when'

const { CHAT_WEBHOOK_URL, FLEETHOOK_INBOX = 'data/inbox.db', PORT = '3000', WEBHOOK_SECRET } = process.env
if (!CHAT_WEBHOOK_URL) exitWithError('CHAT_WEBHOOK_URL is not set. Set it to the incoming webhook of your chat.')
const chat = new URL(CHAT_WEBHOOK_URL)

/**
 * Your places. A circle has a center and a radius, a polygon has its corners in order.
 * In these two, `fleethook send` has a vehicle that leaves the first and arrives at the second.
 */
const places: Readonly<Record<string, Area>> = {
  'the depot': circle({ latitude: 45.1316, longitude: 7.643, radiusMeters: 200 }),
  'the market': polygon([
    { latitude: 45.1295, longitude: 7.624 },
    { latitude: 45.1295, longitude: 7.634 },
    { latitude: 45.135, longitude: 7.634 },
    { latitude: 45.135, longitude: 7.624 },
  ]),
}

// A level jitters around 20 %, and a position around the edge of a place. So a place reports a vehicle once, until it has left or has 25 %.
mkdirSync(dirname(FLEETHOOK_INBOX), { recursive: true })
const db = new DatabaseSync(`${FLEETHOOK_INBOX}-told`)
db.exec('PRAGMA journal_mode = WAL; CREATE TABLE IF NOT EXISTS low (vin TEXT, place TEXT, PRIMARY KEY (vin, place))')
const isTold = db.prepare('SELECT 1 FROM low WHERE vin = ? AND place = ?')
const tell = db.prepare('INSERT OR IGNORE INTO low (vin, place) VALUES (?, ?)')
const leave = db.prepare('DELETE FROM low WHERE vin = ? AND place = ?')
const charge = db.prepare('DELETE FROM low WHERE vin = ?')

const receiver = createReceiver({
  secret: WEBHOOK_SECRET,
  inbox: sqliteInbox({ path: FLEETHOOK_INBOX }),
  // Positions are personal data: a vehicle that is silent for 90 days is forgotten.
  parts: [vehicles({ fields: ['BatteryLevel', 'Gear', 'Location'], forgetAfterMs: 90 * 86_400_000 })],
}).when(crosses('BatteryLevel', { above: 25 }), ({ vin }) => void charge.run(vin))

for (const [name, area] of Object.entries(places)) {
  // Positions jump by some meters. Without a margin, a vehicle that parks at the edge would come and go all day.
  const margin = { marginMeters: 50 }
  receiver
    .when(enters(area, margin).named(`enters ${name}`), ({ vin, change, id }, { signal }) =>
      post(`${vin} arrived at ${name} (${change.at.toISOString()})`, id, signal),
    )
    .when(leaves(area, margin).named(`leaves ${name}`), async ({ vin, change, id }, { signal }) => {
      leave.run(vin, name)
      await post(`${vin} left ${name} (${change.at.toISOString()})`, id, signal)
    })
    .when(
      // The first values of a vehicle count: it may be parked there already.
      starts(all(inside(area), is('Gear', 'P'), below('BatteryLevel', 20)), { first: true }).named(`low at ${name}`),
      async ({ vin, vehicle, id }, { signal }) => {
        if (isTold.get(vin, name) !== undefined) return
        await post(`${vin} is parked at ${name} with ${vehicle.value('BatteryLevel')} %`, id, signal)
        tell.run(vin, name)
      },
    )
}

/** A crash can repeat a post. Its `id` is the same then, for a chat that skips what it already has. */
async function post(text: string, id: string, signal: AbortSignal): Promise<void> {
  const headers = { 'content-type': 'application/json', 'idempotency-key': encodeURIComponent(id) }
  const answer = await fetch(chat, { method: 'POST', headers, body: JSON.stringify({ text }), signal })
  // The receiver runs the handler again.
  if (!answer.ok) throw new Error(`The chat answered ${answer.status}.`)
}

const server = await serve(receiver, { port: Number(PORT) })
await server.closed
db.close()
