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

test('tells the chat about an arrival, a low battery and a departure, though the chat fails at first', async () => {
  const said: string[] = []
  let failures = 1
  const chat = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    if (failures-- > 0) response.statusCode = 503
    else said.push(JSON.parse(body).text)
    if (said.length === 3) server.kill('SIGTERM')
    response.end()
  }).listen(0)
  await once(chat, 'listening')
  const address = chat.address()
  const chatUrl = `http://localhost:${typeof address === 'object' ? address?.port : ''}`
  const server = spawn(process.execPath, ['server.ts'], {
    cwd: import.meta.dirname,
    env: {
      ...process.env,
      PORT: '0',
      WEBHOOK_SECRET: secret,
      FLEETHOOK_INBOX: join(folder, 'inbox.db'),
      CHAT_WEBHOOK_URL: chatUrl,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let url: string | undefined
  for await (const line of createInterface(server.stdout)) {
    if (url !== undefined) continue
    url = /listening on (http:\S+)/.exec(line)?.[1]
    if (url === undefined) continue
    const script: FieldValues[] = [
      { ...metersNorth(900), Gear: 'D', BatteryLevel: 19 },
      metersNorth(100),
      metersNorth(220), // a jump of the position, within the margin
      metersNorth(100),
      { Gear: 'P' },
      { Gear: 'D' },
      metersNorth(300),
    ]
    for (const [minute, data] of script.entries()) {
      const createdAt = new Date(Date.UTC(2026, 0, 1, 8, minute)).toISOString()
      const answer: Response = await fetch(url, {
        method: 'POST',
        headers: { authorization: secret },
        body: JSON.stringify(encode(message.data(data, { vin: 'VIN', createdAt }), 'service')),
      })
      assert.equal(answer.status, 200)
    }
  }
  chat.close()
  rmSync(folder, { recursive: true })
  assert.deepEqual(said, [
    'VIN arrived at the depot (2026-01-01T08:01:00.000Z)',
    'VIN is parked at the depot with 19 %',
    'VIN left the depot (2026-01-01T08:06:00.000Z)',
  ])
})
