import { mkdirSync } from 'node:fs'
import { dirname } from 'node:path'
import { createReceiver, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { exitWithError, serve } from 'fleethook/node'
import { all, below, enters, inside, is, leaves, starts } from 'fleethook/when'
import { areas, customer, openAreas, rowsOf } from './areas.ts'

const {
  CHAT_WEBHOOK_URL,
  FLEETHOOK_INBOX = 'data/inbox.db',
  PORT = '3000',
  READ_SECONDS = '5',
  WEBHOOK_SECRET,
} = process.env
if (!CHAT_WEBHOOK_URL) exitWithError('CHAT_WEBHOOK_URL is not set. Set it to the incoming webhook of your chat.')
const chat = new URL(CHAT_WEBHOOK_URL)

const receiver = createReceiver({
  secret: WEBHOOK_SECRET,
  inbox: sqliteInbox({ path: FLEETHOOK_INBOX }),
  parts: [
    vehicles({
      fields: ['BatteryLevel', 'Gear', 'Location'],
      facts: [customer, ...areas],
      forgetAfterMs: 90 * 86_400_000, // positions are personal data
    }),
  ],
})

// Positions jump by some meters. Without a margin, a vehicle that parks at the edge would come and go all day.
const margin = { marginMeters: 50 }
for (const area of areas) {
  const { name } = area
  receiver
    .when(enters(area, margin), ({ vin, change, vehicle, id }, { signal }) =>
      post(`${vehicle.fact(customer)}: ${vin} arrived at ${name} (${change.at.toISOString()})`, id, signal),
    )
    .when(leaves(area, margin), ({ vin, change, vehicle, id }, { signal }) =>
      post(`${vehicle.fact(customer)}: ${vin} left ${name} (${change.at.toISOString()})`, id, signal),
    )
    .when(
      // The first values of a vehicle count: it may be parked there already.
      starts(all(inside(area, margin), is('Gear', 'P'), below('BatteryLevel', 20)), { first: true }).cooldown({
        days: 1,
      }),
      ({ vin, vehicle, id }, { signal }) =>
        post(
          `${vehicle.fact(customer)}: ${vin} is parked at ${name} with ${vehicle.value('BatteryLevel')} %`,
          id,
          signal,
        ),
    )
}

/** A crash can repeat a post. Its `id` is the same then, for a chat that skips what it already has. */
async function post(text: string, id: string, signal: AbortSignal): Promise<void> {
  const headers = { 'content-type': 'application/json', 'idempotency-key': encodeURIComponent(id) }
  const answer = await fetch(chat, { method: 'POST', headers, body: JSON.stringify({ text }), signal })
  // The receiver runs the handler again.
  if (!answer.ok) throw new Error(`The chat answered ${answer.status}.`)
}

mkdirSync(dirname(FLEETHOOK_INBOX), { recursive: true })
const db = openAreas(`${FLEETHOOK_INBOX}-areas`)
const facts = [customer, ...areas].map(({ name }) => name)

/** Only what differs is told, so it costs little when nothing has changed. */
async function readAreas(): Promise<void> {
  await receiver.vehicles.setAll(rowsOf(db), { facts }).catch((error: Error) => console.error(error.message))
}

await readAreas()
const server = await serve(receiver, { port: Number(PORT) })
const timer = setInterval(() => void readAreas(), Number(READ_SECONDS) * 1_000)
await server.closed
clearInterval(timer)
db.close()
