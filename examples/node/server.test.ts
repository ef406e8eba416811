import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { createInterface } from 'node:readline'
import type { FieldValues, Format } from 'fleethook'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'

const inbox = join(mkdtempSync(join(tmpdir(), 'receiver-')), 'inbox.db')
const secret = 'a-secret-for-this-test'
const formats: Format[] = ['service', 'vehicle_maker', 'event_collector']

/** By minutes. Each field has its own message, the level jitters around the limit, one message comes late, and two come twice. */
const said: [minute: number, data: FieldValues][] = [
  [0, { BatteryLevel: 81.5 }],
  [1, { BatteryLevel: 19.9 }],
  [1, { Gear: 'P' }],
  [1, { Gear: 'P' }],
  [2, { BatteryLevel: 20.1 }],
  [0.5, { BatteryLevel: 50 }],
  [3, { BatteryLevel: 19.8 }],
  [3, { BatteryLevel: 19.8 }],
]

test('reports a low battery once per vehicle, whatever the format, with fields that come late, in pieces and twice, over a restart, and drains on SIGTERM', async () => {
  const lines: string[] = []
  for (const part of [said.slice(0, 4), said.slice(4)]) {
    const server = spawn(process.execPath, ['server.ts'], {
      cwd: import.meta.dirname,
      env: { ...process.env, PORT: '0', WEBHOOK_SECRET: secret, FLEETHOOK_INBOX: inbox },
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    let url: string | undefined
    let handled = 0
    for await (const line of createInterface(server.stdout)) {
      lines.push(line)
      if (url !== undefined) {
        // The template prints one line for each event that it has handled.
        const isEvent = / (BatteryLevel|Gear) /.test(line)
        if (isEvent && (handled += 1) === part.length * formats.length) server.kill('SIGTERM')
        continue
      }
      url = /listening on (http:\S+)/.exec(line)?.[1]
      if (url === undefined) continue
      for (const format of formats) {
        for (const [minute, data] of part) {
          const createdAt = new Date(Date.UTC(2026, 0, 1, 8) + minute * 60_000).toISOString()
          const answer: Response = await fetch(url, {
            method: 'POST',
            headers: { authorization: format === 'event_collector' ? `Splunk ${secret}` : secret },
            body: JSON.stringify(encode(message.data(data, { vin: `VIN-${format}`, createdAt }), format)),
          })
          assert.equal(answer.status, 200)
        }
      }
    }
    assert.match(lines.at(-1) ?? '', /received 12, handled 1[23], left 0, lost 0/)
  }
  assert.equal(lines.filter((line) => line.includes('needs a charge')).length, 3)
})
