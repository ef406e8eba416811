import { createReceiver, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { exitWithError, serve } from 'fleethook/node'
import { fields, watch } from './rules.ts'

const { CHAT_WEBHOOK_URL, FLEETHOOK_INBOX = 'data/inbox.db', PORT = '3000', WEBHOOK_SECRET } = process.env
if (!CHAT_WEBHOOK_URL) exitWithError('CHAT_WEBHOOK_URL is not set. Set it to the incoming webhook of your chat.')
const chat = new URL(CHAT_WEBHOOK_URL)

const receiver = createReceiver({
  secret: WEBHOOK_SECRET,
  // The file also keeps what the rules wait for, so a restart loses no timer.
  inbox: sqliteInbox({ path: FLEETHOOK_INBOX }),
  parts: [vehicles({ fields })],
})

watch(receiver, async (text, id, signal) => {
  const headers = { 'content-type': 'application/json', 'idempotency-key': encodeURIComponent(id) }
  const answer = await fetch(chat, { method: 'POST', headers, body: JSON.stringify({ text }), signal })
  // The receiver runs the handler again.
  if (!answer.ok) throw new Error(`The chat answered ${answer.status}.`)
})

await serve(receiver, { port: Number(PORT) })
