import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { after, test } from 'node:test'
import type { FieldValues } from 'fleethook'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'
import { openSettings } from './settings.ts'

const secret = 'a-secret-for-this-test'
const folder = mkdtempSync(join(tmpdir(), 'fleethook-'))
const db = openSettings(join(folder, 'inbox.db-settings'))
db.exec('PRAGMA busy_timeout = 5000')
after(() => {
  db.close()
  rmSync(folder, { recursive: true })
})

test('tells the chat by the limit of each customer, at once when a limit changes, also of a parked vehicle', async () => {
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
      READ_SECONDS: '0.2',
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
    const send = async (vin: string, data: FieldValues, ago = 0): Promise<void> => {
      const createdAt = new Date(Date.now() - ago * 60_000).toISOString()
      const body = JSON.stringify(encode(message.data(data, { vin, createdAt }), 'service'))
      const answer: Response = await fetch(url, { method: 'POST', headers: { authorization: secret }, body })
      assert.equal(answer.status, 200)
    }
    const set = db.prepare('INSERT OR REPLACE INTO settings VALUES (?, ?, ?)')
    await send('ONE', { BatteryLevel: 22 })
    await send('TWO', { BatteryLevel: 22 })
    await send('TWO', { DetailedChargeState: 'Complete' }, 30)
    // Its speed is old: it says nothing of now.
    await send('THREE', { VehicleSpeed: 90 }, 5)
    // All are parked, and send nothing more.
    set.run('THREE', 'speeding', 80)
    set.run('ONE', 'low_battery', 25)
    set.run('TWO', 'low_battery', 20)
    await heard(1)
    set.run('TWO', 'charged', 1)
    await heard(2)
    db.exec("UPDATE settings SET value = 30 WHERE vin = 'TWO' AND rule = 'low_battery'")
    await heard(3)
    break
  }
  server.kill('SIGTERM')
  await exited
  chat.close()
  assert.deepEqual(said, [
    'ONE: low battery (BatteryLevel is 22)',
    'TWO: charged (DetailedChargeState was Complete 30 minutes ago)',
    'TWO: low battery (BatteryLevel is 22)',
  ])
})

test('refuses a rule that does not exist, and a limit that cannot be meant, where they are written', () => {
  const set = db.prepare('INSERT OR REPLACE INTO settings VALUES (?, ?, ?)')
  assert.throws(() => set.run('ONE', 'low_batery', 20), /There is no such rule. The rules are: low_battery, /)
  assert.throws(() => set.run('ONE', 'low_battery', 'twenty'), /cannot store TEXT value in REAL column/)
  assert.throws(() => set.run('ONE', 'low_battery', 0.2), /The value of low_battery must be from 1 to 100 percent/)
  assert.throws(() => set.run('ONE', 'tire_rear_left', 35), /The value of tire_rear_left must be from 1 to 5 bar/)
  assert.throws(() => set.run('ONE', 'left_unlocked', 0), /The value of left_unlocked must be 1, which switches it on/)
  assert.throws(() => set.run('', 'low_battery', 20), /a VIN has 1 to 64 characters/)
  set.run('ONE', 'low_battery', 20)
  assert.throws(() => db.exec("UPDATE settings SET rule = 'speeeding'"), /There is no such rule/)
  assert.throws(() => db.exec('UPDATE settings SET value = 101'), /from 1 to 100 percent/)
})
