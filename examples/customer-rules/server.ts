import { mkdirSync } from 'node:fs'
import { dirname } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { createReceiver, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { exitWithError, serve } from 'fleethook/node'
import { above, all, below, type Condition, fact, has, hours, is, starts } from 'fleethook/when'
import { type Rule, rules } from './rules.ts'

const { CHAT_WEBHOOK_URL, FLEETHOOK_INBOX = 'data/inbox.db', PORT = '3000', WEBHOOK_SECRET, ZONE = 'UTC' } = process.env
if (!CHAT_WEBHOOK_URL) exitWithError('CHAT_WEBHOOK_URL is not set. Set it to the incoming webhook of your chat.')
const chat = new URL(CHAT_WEBHOOK_URL)

// The settings of your customers. A rule that does not exist is refused where it is written.
mkdirSync(dirname(FLEETHOOK_INBOX), { recursive: true })
const db = new DatabaseSync(`${FLEETHOOK_INBOX}-settings`)
const names = rules.map(({ name }) => name)
db.exec(`
  PRAGMA journal_mode = WAL;
  CREATE TABLE IF NOT EXISTS settings (vin TEXT, rule TEXT, value REAL NOT NULL, PRIMARY KEY (vin, rule)) STRICT;
  DROP TRIGGER IF EXISTS known_rules;
  CREATE TRIGGER known_rules BEFORE INSERT ON settings WHEN NEW.rule NOT IN ('${names.join("', '")}')
  BEGIN SELECT RAISE(ABORT, 'There is no such rule. The rules are: ${names.join(', ')}'); END;
`)
const settings = db.prepare('SELECT vin, json_group_object(rule, value) AS facts FROM settings GROUP BY vin')

const receiver = createReceiver({
  secret: WEBHOOK_SECRET,
  inbox: sqliteInbox({ path: FLEETHOOK_INBOX }),
  parts: [
    vehicles({
      fields: [...new Set(rules.map(({ signal }) => signal))],
      facts: names.map((name) => fact(name, 'number')),
    }),
  ],
})

for (const rule of rules) {
  const { name, signal, cooldown = { days: 1 } } = rule
  const edge = starts(conditionOf(rule), { first: true })
  receiver.when(
    (rule.for === undefined ? edge : edge.after(rule.for)).cooldown(cooldown).named(name),
    ({ vin, vehicle, id }, context) =>
      post(`${vin}: ${name.replaceAll('_', ' ')} (${signal} is ${String(vehicle.value(signal))})`, id, context.signal),
  )
}

function conditionOf(rule: Rule): Condition {
  const limit = fact(rule.name, 'number')
  const condition =
    rule.operator === 'is'
      ? all(has(limit), is(rule.signal, rule.value))
      : { below, above }[rule.operator](rule.signal, limit)
  return rule.hours === undefined ? condition : all(condition, hours(...rule.hours, { zone: ZONE }))
}

/** A crash can repeat a post. Its `id` is the same then, for a chat that skips what it already has. */
async function post(text: string, id: string, signal: AbortSignal): Promise<void> {
  const headers = { 'content-type': 'application/json', 'idempotency-key': encodeURIComponent(id) }
  const answer = await fetch(chat, { method: 'POST', headers, body: JSON.stringify({ text }), signal })
  // The receiver runs the handler again.
  if (!answer.ok) throw new Error(`The chat answered ${answer.status}.`)
}

/** Only what differs is told, so it costs little when nothing has changed. */
async function readSettings(): Promise<void> {
  const rows = settings.all().map(({ vin, facts }) => ({ vin: String(vin), ...JSON.parse(String(facts)) }))
  await receiver.vehicles.setAll(rows, { facts: names }).catch((error: Error) => console.error(error.message))
}

const server = await serve(receiver, { port: Number(PORT) })
await readSettings()
const timer = setInterval(() => void readSettings(), 5_000)
await server.closed
clearInterval(timer)
db.close()
