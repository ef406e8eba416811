import { createReceiver } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { exitWithError, serve } from 'fleethook/node'

const { CHAT_WEBHOOK_URL, FLEETHOOK_INBOX = 'data/inbox.db', PORT = '3000', WEBHOOK_SECRET } = process.env
if (!CHAT_WEBHOOK_URL) exitWithError('CHAT_WEBHOOK_URL is not set. Set it to the incoming webhook of your chat.')
const chat = new URL(CHAT_WEBHOOK_URL)

/** Vehicles repeat their state. Only a change is news. */
const lastState = new Map<string, string>()
const news: Partial<Record<string, string>> = {
  Starting: 'starts charging',
  Complete: 'is fully charged',
  NoPower: 'is plugged in and gets no power',
  Stopped: 'stopped charging',
}

const receiver = createReceiver({ secret: WEBHOOK_SECRET, inbox: sqliteInbox({ path: FLEETHOOK_INBOX }) })
  .on(
    'data',
    async ({ data: { DetailedChargeState: state }, vin, createdAt }, { signal }) => {
      if (state === undefined || state === null || lastState.get(vin) === state) return
      // Post first, remember later: when the chat does not answer, the handler runs again.
      if (news[state] !== undefined) await post(`${vin} ${news[state]} (${createdAt})`, signal)
      lastState.set(vin, state)
    },
    { fields: ['DetailedChargeState'] },
  ) // prettier-ignore
  .on('alerts', async ({ vin, alerts }, { signal }) => {
    const active = alerts.filter(({ endedAt, audiences }) => endedAt === undefined && audiences.includes('Customer'))
    if (active.length > 0) await post(`${vin}: ${active.map(({ name }) => name).join(', ')}`, signal)
  })

async function post(text: string, signal: AbortSignal): Promise<void> {
  const headers = { 'content-type': 'application/json' }
  const answer = await fetch(chat, { method: 'POST', headers, body: JSON.stringify({ text }), signal })
  if (!answer.ok) throw new Error(`The chat answered ${answer.status}.`)
}

await serve(receiver, { port: Number(PORT) })
