import { createReceiver } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { serve } from 'fleethook/node'

const { CHAT_WEBHOOK_URL, FLEETHOOK_INBOX = 'data/inbox.db', PORT = '3000', WEBHOOK_SECRET } = process.env
if (!CHAT_WEBHOOK_URL) throw new Error('CHAT_WEBHOOK_URL is not set: it is the incoming webhook of your chat.')
const chat = new URL(CHAT_WEBHOOK_URL)

/** Vehicles repeat what they said; only a change is worth a word. */
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
    async (event, { signal }) => {
      const state = event.data.DetailedChargeState
      if (state === undefined || state === null || lastState.get(event.vin) === state) return
      const text = news[state]
      // Told first and remembered then: when the chat does not answer, the handler is run again.
      if (text !== undefined) await tell(`${event.vin} ${text} (${event.createdAt})`, signal)
      lastState.set(event.vin, state)
    },
    { fields: ['DetailedChargeState'] },
  )
  .on('alerts', async (event, { signal }) => {
    const active = event.alerts.filter((alert) => alert.endedAt === undefined && alert.audiences.includes('Customer'))
    if (active.length > 0) await tell(`${event.vin}: ${active.map((alert) => alert.name).join(', ')}`, signal)
  })

async function tell(text: string, signal: AbortSignal): Promise<void> {
  const answer = await fetch(chat, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ text }),
    signal,
  })
  if (!answer.ok) throw new Error(`The chat answered ${answer.status}.`)
}

await serve(receiver, { port: Number(PORT) })
