import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { DatabaseSync } from 'node:sqlite'
import { test } from 'node:test'
import type { FieldValues } from 'fleethook'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'

const secret = 'a-secret-for-this-test'
const folder = mkdtempSync(join(tmpdir(), 'fleethook-'))

test('tells the chat by the limit of each customer, at once when a limit changes, and refuses a rule that does not exist', async () => {
  const said: string[] = []
  const chat = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    said.push(JSON.parse(body).text)
    response.end()
  }).listen(0)
  await once(chat, 'listening')
  const address = chat.address()
  const server = spawn(process.execPath, ['server.ts'], {
    cwd: import.meta.dirname,
    env: {
      ...process.env,
      PORT: '0',
      WEBHOOK_SECRET: secret,
      FLEETHOOK_INBOX: join(folder, 'inbox.db'),
      CHAT_WEBHOOK_URL: `http://localhost:${typeof address === 'object' ? address?.port : ''}`,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const exited = once(server, 'exit')
  const heard = async (count: number): Promise<void> => {
    const until = Date.now() + 20_000
    while (said.length < count && Date.now() < until) await new Promise((resolve) => setTimeout(resolve, 20))
  }
  for await (const line of createInterface(server.stdout)) {
    const url = /listening on (http:\S+)/.exec(line)?.[1]
    if (url === undefined) continue
    const send = async (vin: string, data: FieldValues): Promise<void> => {
      const body = JSON.stringify(encode(message.data(data, { vin }), 'service'))
      const answer: Response = await fetch(url, { method: 'POST', headers: { authorization: secret }, body })
      assert.equal(answer.status, 200)
    }
    const db = new DatabaseSync(join(folder, 'inbox.db-settings'))
    db.exec('PRAGMA busy_timeout = 5000')
    const set = db.prepare('INSERT OR REPLACE INTO settings VALUES (?, ?, ?)')
    assert.throws(() => set.run('ONE', 'low_batery', 20), /There is no such rule. The rules are: low_battery, /)
    assert.throws(() => set.run('ONE', 'low_battery', 'twenty'), /cannot store TEXT value in REAL column/)
    await send('ONE', { BatteryLevel: 22 })
    await send('TWO', { BatteryLevel: 22 })
    await send('TWO', { DetailedChargeState: 'Complete' })
    // Both are parked, and send nothing more.
    set.run('ONE', 'low_battery', 25)
    set.run('TWO', 'low_battery', 20)
    await heard(1)
    set.run('TWO', 'charged', 1)
    await heard(2)
    db.close()
    break
  }
  server.kill('SIGTERM')
  await exited
  chat.close()
  rmSync(folder, { recursive: true })
  assert.deepEqual(said, ['ONE: low battery (BatteryLevel is 22)', 'TWO: charged (DetailedChargeState is Complete)'])
})
