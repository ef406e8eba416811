import { createReceiver, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { exitWithError, serve } from 'fleethook/node'
import { alertStarts, any, changed, is, starts } from 'fleethook/when'

const { CHAT_WEBHOOK_URL, FLEETHOOK_INBOX = 'data/inbox.db', PORT = '3000', WEBHOOK_SECRET } = process.env
if (!CHAT_WEBHOOK_URL) exitWithError('CHAT_WEBHOOK_URL is not set. Set it to the incoming webhook of your chat.')
const chat = new URL(CHAT_WEBHOOK_URL)

const news: Partial<Record<string, string>> = {
  Starting: 'starts charging',
  Complete: 'is fully charged',
  NoPower: 'is plugged in and gets no power',
  Stopped: 'stopped charging',
}

const pluggedInOnly = any(is('DetailedChargeState', 'NoPower'), is('DetailedChargeState', 'Stopped'))

const receiver = createReceiver({
  secret: WEBHOOK_SECRET,
  inbox: sqliteInbox({ path: FLEETHOOK_INBOX }),
  // Vehicles repeat their state, and only a change is news. The inbox keeps the last state, also over restarts.
  parts: [vehicles({ fields: ['DetailedChargeState'] })],
})
  .when(changed('DetailedChargeState', { first: true }), async ({ vin, change }, { signal }) => {
    const text = news[change.to ?? '']
    if (text !== undefined) await post(`${vin} ${text} (${change.at.toISOString()})`, signal)
  })
  .when(starts(pluggedInOnly, { first: true }).after({ minutes: 10 }), async ({ vin, change }, { signal }) => {
    await post(`${vin} is plugged in and not charging since ${change.since.toISOString()}`, signal)
  })
  .when(alertStarts(), async ({ vin, change }, { signal }) => {
    const ofDriver = change.alerts.filter(({ audiences }) => audiences.includes('Customer'))
    if (ofDriver.length > 0) await post(`${vin}: ${ofDriver.map(({ name }) => name).join(', ')}`, signal)
  })

async function post(text: string, signal: AbortSignal): Promise<void> {
  const headers = { 'content-type': 'application/json' }
  const answer = await fetch(chat, { method: 'POST', headers, body: JSON.stringify({ text }), signal })
  // When the chat does not answer, the handler runs again.
  if (!answer.ok) throw new Error(`The chat answered ${answer.status}.`)
}

await serve(receiver, { port: Number(PORT) })
