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

/** Each field has its own message, one of them comes late, and one twice. */
const said: [minute: number, data: FieldValues][] = [
  [10, { BatteryLevel: 81.5 }],
  [10, { Gear: 'P' }],
  [2, { Odometer: 1000 }],
  [10, { Gear: 'P' }],
]

test('handles fields that come late, in pieces and twice in each format, takes any content type, answers probes, and drains on SIGTERM', async () => {
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
      const isEvent = / (BatteryLevel|Gear|Odometer) /.test(line)
      if (isEvent && lines.filter((each) => / (BatteryLevel|Gear|Odometer) /.test(each)).length === 17)
        server.kill('SIGTERM')
      continue
    }
    url = /listening on (http:\S+)/.exec(line)?.[1]
    if (url === undefined) continue
    for (const format of formats) {
      for (const [minute, data] of said) {
        const createdAt = new Date(Date.UTC(2026, 0, 1, 8, minute)).toISOString()
        const answer: Response = await fetch(url + '/telemetry', {
          method: 'POST',
          headers: { authorization: format === 'event_collector' ? `Splunk ${secret}` : secret },
          body: JSON.stringify(encode(message.data(data, { vin: `VIN-${format}`, createdAt }), format)),
        })
        assert.equal(answer.status, 200)
      }
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
  const printed = (text: string) => lines.filter((line) => line.includes(text)).length
  assert.deepEqual(['Gear P', 'Odometer 1000'].map(printed), [6, 3])
  assert.match(lines.at(-1) ?? '', /received 17, handled \d+, left 0, lost 0/)
})
