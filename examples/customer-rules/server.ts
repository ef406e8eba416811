import { mkdirSync } from 'node:fs'
import { dirname } from 'node:path'
import { createReceiver, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { exitWithError, serve } from 'fleethook/node'
import { above, all, below, type Condition, drives, fact, has, hours, is, not, starts } from 'fleethook/when'
import { type Rule, rules } from './rules.ts'
import { names, openSettings, rowsOf } from './settings.ts'

const { CHAT_WEBHOOK_URL, FLEETHOOK_INBOX = 'data/inbox.db', PORT = '3000', READ_SECONDS = '5' } = process.env
const { WEBHOOK_SECRET, ZONE = 'UTC' } = process.env
if (!CHAT_WEBHOOK_URL) exitWithError('CHAT_WEBHOOK_URL is not set. Set it to the incoming webhook of your chat.')
const chat = new URL(CHAT_WEBHOOK_URL)

const receiver = createReceiver({
  secret: WEBHOOK_SECRET,
  inbox: sqliteInbox({ path: FLEETHOOK_INBOX }),
  parts: [
    vehicles({
      fields: [...new Set([...rules.map(({ signal }) => signal), 'Gear' as const])],
      facts: names.map((name) => fact(name, 'number')),
    }),
  ],
})

for (const rule of rules) {
  const { name, signal, cooldown = { days: 1 } } = rule
  const edge = starts(conditionOf(rule), { first: true })
  receiver.when(
    (rule.for === undefined ? edge : edge.after(rule.for)).cooldown(cooldown).named(name),
    ({ vin, vehicle, id }, context) => {
      const minutes = Math.floor((vehicle.ageMs(signal) ?? 0) / 60_000)
      const said = `${signal} ${minutes < 1 ? 'is' : 'was'} ${vehicle.value(signal)}${minutes < 1 ? '' : ` ${minutes} minutes ago`}`
      return post(`${vin}: ${name.replaceAll('_', ' ')} (${said})`, id, context.signal)
    },
  )
}

/** Without the limit of a customer, it is false. */
function conditionOf(rule: Rule): Condition {
  const limit = fact(rule.name, 'number')
  const compared =
    rule.operator === 'is'
      ? all(has(limit), is(rule.signal, rule.value))
      : { below, above }[rule.operator](rule.signal, limit, rule.fresh && { freshFor: rule.fresh })
  const parked = rule.parked ? [not(drives())] : []
  const timed = rule.hours ? [hours(...rule.hours, { zone: ZONE })] : []
  return all(compared, ...parked, ...timed)
}

/** A crash can repeat a post. Its `id` is the same then, for a chat that skips what it already has. */
async function post(text: string, id: string, signal: AbortSignal): Promise<void> {
  const headers = { 'content-type': 'application/json', 'idempotency-key': encodeURIComponent(id) }
  const answer = await fetch(chat, { method: 'POST', headers, body: JSON.stringify({ text }), signal })
  // The receiver runs the handler again.
  if (!answer.ok) throw new Error(`The chat answered ${answer.status}.`)
}

mkdirSync(dirname(FLEETHOOK_INBOX), { recursive: true })
const db = openSettings(`${FLEETHOOK_INBOX}-settings`)

/** Only what differs is told, so it costs little when nothing has changed. */
async function readSettings(): Promise<void> {
  await receiver.vehicles.setAll(rowsOf(db), { facts: names }).catch((error: Error) => console.error(error.message))
}

await readSettings()
const server = await serve(receiver, { port: Number(PORT) })
const timer = setInterval(() => void readSettings(), Number(READ_SECONDS) * 1_000)
await server.closed
clearInterval(timer)
db.close()
