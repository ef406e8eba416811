import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
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

test('writes each field of a message once, whatever the format, over a restart and however often it came', async () => {
  for (const _start of ['first', 'second']) {
    const server = spawn(process.execPath, ['server.ts'], {
      cwd: import.meta.dirname,
      env: { ...process.env, PORT: '0', WEBHOOK_SECRET: secret, FLEETHOOK_INBOX: inbox, DATABASE: database },
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const exited = once(server, 'exit')
    let url: string | undefined
    for await (const line of createInterface(server.stdout)) {
      if (url !== undefined) continue
      url = /listening on (http:\S+)/.exec(line)?.[1]
      if (url === undefined) continue
      for (const format of formats) {
        // A value that came, one that is older than it, and one that the vehicle does not have now.
        for (const [hour, data] of [
          [9, { BatteryLevel: 81.5, Gear: 'P' }],
          [8, { BatteryLevel: 90 }],
          [10, { BatteryLevel: null }],
        ] as const) {
          const createdAt = new Date(Date.UTC(2026, 0, 1, hour)).toISOString()
          const answer: Response = await fetch(url, {
            method: 'POST',
            headers: { authorization: format === 'event_collector' ? `Splunk ${secret}` : secret },
            body: JSON.stringify(encode(message.data(data, { createdAt }), format)),
          })
          assert.equal(answer.status, 200)
        }
      }
      server.kill('SIGTERM')
    }
    await exited
  }
  // What a short drain has left is handled after the next start.
  const server = spawn(process.execPath, ['server.ts'], {
    cwd: import.meta.dirname,
    env: { ...process.env, PORT: '0', WEBHOOK_SECRET: secret, FLEETHOOK_INBOX: inbox, DATABASE: database },
    stdio: 'ignore',
  })
  const db = new DatabaseSync(database, { readOnly: true })
  const select = db.prepare('SELECT field, value FROM readings ORDER BY at, field')
  const until = Date.now() + 10_000
  while (select.all().length < 4 && Date.now() < until) await new Promise((resolve) => setTimeout(resolve, 50))
  const rows = select.all()
  db.close()
  const exited = once(server, 'exit')
  server.kill('SIGTERM')
  await exited
  rmSync(folder, { recursive: true })
  assert.deepEqual(
    rows.map(({ field, value }) => [field, value]),
    [
      ['BatteryLevel', '90'],
      ['BatteryLevel', '81.5'],
      ['Gear', '"P"'],
      ['BatteryLevel', 'null'],
    ],
  )
})
