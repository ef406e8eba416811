import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { test } from 'node:test'
import type { FieldValues, Format } from 'fleethook'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'

const inbox = join(mkdtempSync(join(tmpdir(), 'receiver-')), 'inbox.db')
const secret = 'a-secret-for-this-test'
const formats: Format[] = ['service', 'vehicle_maker', 'event_collector']

test('takes a message in each format, before and behind the body parser', async () => {
  const server = spawn(process.execPath, ['server.ts'], {
    cwd: import.meta.dirname,
    env: { ...process.env, PORT: '0', WEBHOOK_SECRET: secret, FLEETHOOK_INBOX: inbox },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const lines: string[] = []
  let url: string | undefined
  for await (const line of createInterface(server.stdout)) {
    lines.push(line)
    if (url !== undefined) continue
    url = /listening on (http:\S+)/.exec(line)?.[1]
    if (url === undefined) continue
    for (const path of ['/telemetry', '/parsed-telemetry']) {
      for (const format of formats) {
        const answer: Response = await fetch(url + path, {
          method: 'POST',
          headers: {
            authorization: format === 'event_collector' ? `Splunk ${secret}` : secret,
            'content-type': 'application/json',
          },
          body: JSON.stringify(encode(message.data({ BatteryLevel: 81.5 }), format)),
        })
        assert.equal(answer.status, 200)
      }
    }
    const batch = Array.from({ length: 1_000 }, () => encode(message.data({ BatteryLevel: 81.5 }), 'event_collector'))
    for (const path of ['/telemetry', '/parsed-telemetry']) {
      const answer: Response = await fetch(url + path, {
        method: 'POST',
        headers: { authorization: `Splunk ${secret}`, 'content-type': 'text/plain' },
        body: JSON.stringify(batch),
      })
      assert.equal(answer.status, 200)
    }
    for (const path of ['/telemetry', '/parsed-telemetry']) {
      for (const body of ['', null, ' ', '{"half":']) {
        const headers = { authorization: secret, 'content-type': 'application/json' }
        const answer: Response = await fetch(url + path, { method: 'POST', headers, body })
        const { code } = Object(await answer.json())
        assert.deepEqual([answer.status, code], [400, body?.trim() ? 6 : 5])
      }
    }
    // Each field has its own message, one of them comes late, and one twice.
    const said: [minute: number, data: FieldValues][] = [
      [10, { Odometer: 1000 }],
      [10, { Gear: 'P' }],
      [2, { Odometer: 999 }],
      [10, { Gear: 'P' }],
    ]
    for (const [minute, data] of said) {
      const createdAt = new Date(Date.UTC(2026, 0, 1, 8, minute)).toISOString()
      const answer: Response = await fetch(url + '/telemetry', {
        method: 'POST',
        headers: { authorization: secret },
        body: JSON.stringify(encode(message.data(data, { vin: 'VIN', createdAt }), 'service')),
      })
      assert.equal(answer.status, 200)
    }
    // What the parser refuses gets the receiver's answer, and a sender without the secret learns nothing of it.
    for (const [authorization, body, status] of [
      [secret, '{"broken', 400],
      [secret, ' '.repeat(9_000_000), 400],
      ['wrong', '{"broken', 403],
    ] as const) {
      const answer: Response = await fetch(url + '/parsed-telemetry', {
        method: 'POST',
        headers: { authorization },
        body,
      })
      assert.equal(answer.status, status)
      assert.equal(typeof JSON.parse(await answer.text()).error, 'string')
    }
    const ready: Response = await fetch(url + '/telemetry/readyz')
    assert.equal(ready.status, 200)
    server.kill('SIGTERM')
  }
  assert.match(lines.at(-1) ?? '', /received 2010, handled \d+, left \d+, lost 0/)
})
