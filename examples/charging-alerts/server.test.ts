import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { test } from 'node:test'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { Format } from 'fleethook'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'

const inbox = join(mkdtempSync(join(tmpdir(), 'receiver-')), 'inbox.db')
const secret = 'a-secret-for-this-test'
const formats: Format[] = ['service', 'vehicle_maker', 'event_collector']

test('tells the chat once that a vehicle is fully charged, whatever the format and though the chat fails at first', async () => {
  const said: string[] = []
  let failures = 1
  const chat = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    if (failures-- > 0) response.statusCode = 503
    else {
      said.push(JSON.parse(body).text)
      // The other two messages wait behind this one. They need no chat.
      setTimeout(() => server.kill('SIGTERM'), 1_000)
    }
    response.end()
  }).listen(0)
  await once(chat, 'listening')
  const address = chat.address()
  const chatUrl = `http://localhost:${typeof address === 'object' ? address?.port : ''}`
  const server = spawn(process.execPath, ['server.ts'], {
    cwd: import.meta.dirname,
    env: { ...process.env, PORT: '0', WEBHOOK_SECRET: secret, FLEETHOOK_INBOX: inbox, CHAT_WEBHOOK_URL: chatUrl },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let url: string | undefined
  for await (const line of createInterface(server.stdout)) {
    if (url !== undefined) continue
    url = /listening on (http:\S+)/.exec(line)?.[1]
    if (url === undefined) continue
    for (const format of formats) {
      const answer: Response = await fetch(url, {
        method: 'POST',
        headers: { authorization: format === 'event_collector' ? `Splunk ${secret}` : secret },
        body: JSON.stringify(encode(message.data({ DetailedChargeState: 'Complete' }), format)),
      })
      assert.equal(answer.status, 200)
    }
  }
  chat.close()
  assert.equal(said.length, 1)
  assert.match(said[0] ?? '', /is fully charged/)
})
