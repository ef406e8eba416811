import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { test } from 'node:test'
import type { FieldValues } from 'fleethook'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'

const secret = 'a-secret-for-this-test'
const folder = mkdtempSync(join(tmpdir(), 'fleethook-'))
const metersNorth = (meters: number): FieldValues => ({
  Location: { latitude: 45.1316 + meters / 111_195, longitude: 7.643 },
})

/** Each field has its own message. */
const script: [minute: number, data: FieldValues][] = [
  [0, metersNorth(900)],
  [0.5, { Gear: 'D' }],
  [0.6, { BatteryLevel: 19 }],
  [1, metersNorth(100)],
  [2, metersNorth(220)], // a jump of the position, within the margin
  [3, metersNorth(100)],
  [4, { Gear: 'P' }],
  [5, { BatteryLevel: 20.02 }], // and one of the level
  [6, { BatteryLevel: 19.98 }],
  [7, metersNorth(210)],
  [8, metersNorth(190)],
  [9, { Gear: null }],
  [10, { BatteryLevel: 20.01 }],
  [11, { BatteryLevel: 19.97 }],
  [12, { Gear: 'D' }],
  [13, metersNorth(300)],
]
const expected = [
  'VIN arrived at the depot (2026-01-01T08:01:00.000Z)',
  'VIN is parked at the depot with 19 %',
  'VIN left the depot (2026-01-01T08:13:00.000Z)',
]

test('tells the chat once of an arrival, a low battery and a departure, over a restart, though the chat fails at first and messages come twice', async () => {
  const said: string[] = []
  let failures = 1
  const chat = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    if (failures-- > 0) response.statusCode = 503
    else said.push(JSON.parse(body).text)
    response.end()
  }).listen(0)
  await once(chat, 'listening')
  const address = chat.address()
  const env = {
    ...process.env,
    PORT: '0',
    WEBHOOK_SECRET: secret,
    FLEETHOOK_INBOX: join(folder, 'inbox.db'),
    CHAT_WEBHOOK_URL: `http://localhost:${typeof address === 'object' ? address?.port : ''}`,
  }

  async function send(messages: typeof script, posts: number): Promise<void> {
    const server = spawn(process.execPath, ['server.ts'], {
      cwd: import.meta.dirname,
      env,
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const exited = once(server, 'exit')
    for await (const line of createInterface(server.stdout)) {
      const url = /listening on (http:\S+)/.exec(line)?.[1]
      if (url === undefined) continue
      for (const [minute, data] of messages.flatMap((each) => [each, each])) {
        const createdAt = new Date(Date.UTC(2026, 0, 1, 8) + minute * 60_000).toISOString()
        const answer: Response = await fetch(url, {
          method: 'POST',
          headers: { authorization: secret },
          body: JSON.stringify(encode(message.data(data, { vin: 'VIN', createdAt }), 'service')),
        })
        assert.equal(answer.status, 200)
      }
      break
    }
    const until = Date.now() + 10_000
    while (said.length < posts && Date.now() < until) await new Promise((resolve) => setTimeout(resolve, 20))
    server.kill('SIGTERM')
    await exited
  }

  await send(script.slice(0, 8), 2)
  await send(script.slice(8), 3)
  chat.close()
  rmSync(folder, { recursive: true })
  assert.deepEqual(said, expected)
})
