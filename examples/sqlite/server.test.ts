import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { test } from 'node:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import type { Format } from 'fleethook'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'

const inbox = join(mkdtempSync(join(tmpdir(), 'receiver-')), 'inbox.db')
const secret = 'a-secret-for-this-test'
const folder = mkdtempSync(join(tmpdir(), 'fleethook-'))
const database = join(folder, 'telemetry.db')
const formats: Format[] = ['service', 'vehicle_maker', 'event_collector']

test('writes each field of a message once, whatever the format and however often it came', async () => {
  const server = spawn(process.execPath, ['server.ts'], {
    cwd: import.meta.dirname,
    env: { ...process.env, PORT: '0', WEBHOOK_SECRET: secret, FLEETHOOK_INBOX: inbox, DATABASE: database },
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
        body: JSON.stringify(encode(message.data({ BatteryLevel: 81.5 }), format)),
      })
      assert.equal(answer.status, 200)
    }
    server.kill('SIGTERM')
  }

  const db = new DatabaseSync(database)
  const rows = db.prepare('SELECT vin, field, value FROM readings').all()
  db.close()
  rmSync(folder, { recursive: true })
  assert.deepEqual(
    rows.map(({ field, value }) => [field, value]),
    [['BatteryLevel', '81.5']],
  )
})
