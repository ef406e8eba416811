import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { test } from 'node:test'
import type { Format } from 'fleethook'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'

const inbox = join(mkdtempSync(join(tmpdir(), 'receiver-')), 'inbox.db')
const secret = 'a-secret-for-this-test'
const formats: Format[] = ['service', 'vehicle_maker', 'event_collector']

test('takes a message in each format and with any content type, answers probes, and drains on SIGTERM', async () => {
  const server = spawn(process.execPath, ['server.ts'], {
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
      if (isEvent && lines.filter((each) => each.includes('BatteryLevel')).length === 8) server.kill('SIGTERM')
      continue
    }
    url = /listening on (http:\S+)/.exec(line)?.[1]
    if (url === undefined) continue
    for (const format of formats) {
      const answer: Response = await fetch(url + '/telemetry', {
        method: 'POST',
        headers: { authorization: format === 'event_collector' ? `Splunk ${secret}` : secret },
        body: JSON.stringify(encode(message.data({ BatteryLevel: 81.5 }), format)),
      })
      assert.equal(answer.status, 200)
    }
    for (const type of ['text/html', 'nonsense', ';;', 'application/json; charset=latin1', 'application json']) {
      const answer: Response = await fetch(url + '/telemetry', {
        method: 'POST',
        headers: { authorization: secret, 'content-type': type },
        body: JSON.stringify(encode(message.data({ BatteryLevel: 81.5 }), 'service')),
      })
      assert.equal(answer.status, 200)
    }
    for (const probe of ['healthz', 'readyz', 'services/collector/health']) {
      const answer: Response = await fetch(`${url}/telemetry/${probe}`)
      assert.equal(answer.status, 200)
    }
    const large: Response = await fetch(url + '/telemetry/services/collector/event', {
      method: 'POST',
      headers: { authorization: `Splunk ${secret}` },
      body: ' '.repeat(2_000_000),
    })
    // The receiver refuses it, and reports a gap.
    assert.match(await large.text(), /body_empty/)
  }
  assert.match(lines.at(-1) ?? '', /received 8, handled \d+, left 0, lost 0/)
})
