import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Format } from 'fleethook'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'

const inbox = join(mkdtempSync(join(tmpdir(), 'receiver-')), 'inbox.db')
const secret = 'a-secret-for-this-test'
const formats: Format[] = ['service', 'vehicle_maker', 'event_collector']

Deno.test('reports a low battery once per vehicle, whatever the format, and drains on SIGTERM', async () => {
  const server = spawn(process.execPath, ['run', '--allow-all', 'server.ts'], {
    cwd: import.meta.dirname,
    env: { ...process.env, PORT: '0', WEBHOOK_SECRET: secret, FLEETHOOK_INBOX: inbox },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const lines: string[] = []
  let url: string | undefined
  for await (const line of createInterface(server.stdout)) {
    lines.push(line)
    if (url !== undefined) {
      // The template prints one line for each event that it has handled.
      const isEvent = line.includes('BatteryLevel')
      if (isEvent && lines.filter((each) => each.includes('BatteryLevel')).length === 15) server.kill('SIGTERM')
      continue
    }
    url = /listening on (http:\S+)/.exec(line)?.[1]
    if (url === undefined) continue
    for (const format of formats) {
      // The level jitters around the limit, and the last message comes twice.
      for (const [minute, BatteryLevel] of [81.5, 19.9, 20.1, 19.8, 19.8].entries()) {
        const createdAt = new Date(Date.UTC(2026, 0, 1, 8, Math.min(minute, 3))).toISOString()
        const answer: Response = await fetch(url, {
          method: 'POST',
          headers: { authorization: format === 'event_collector' ? `Splunk ${secret}` : secret },
          body: JSON.stringify(encode(message.data({ BatteryLevel }, { vin: `VIN-${format}`, createdAt }), format)),
        })
        assert.equal(answer.status, 200)
      }
    }
  }
  assert.equal(lines.filter((line) => line.includes('needs a charge')).length, 3)
  assert.match(lines.at(-1) ?? '', /received 15, handled 15, left 0, lost 0/)
})
