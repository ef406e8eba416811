import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { test } from 'node:test'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'

const secret = 'a-secret-for-this-test'

test('takes a message in each format, and those of a relay', async () => {
  const server = spawn(process.execPath, ['node_modules/next/dist/bin/next', 'start', '--port', '0'], {
    cwd: import.meta.dirname,
    env: { ...process.env, WEBHOOK_SECRET: secret },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const lines = []
  let url
  for await (const line of createInterface(server.stdout)) {
    lines.push(line)
    if (url !== undefined) continue
    url = /(http:\/\/localhost:\d+)/.exec(line)?.[1]
    if (url === undefined) continue
    for (const [path, format] of [
      ['/telemetry', 'service'],
      ['/telemetry', 'vehicle_maker'],
      ['/telemetry', 'event_collector'],
      ['/telemetry/services/collector/event', 'event_collector'],
    ]) {
      const answer = await fetch(url + path, {
        method: 'POST',
        headers: { authorization: format === 'event_collector' ? `Splunk ${secret}` : secret },
        body: JSON.stringify(encode(message.data({ BatteryLevel: 81.5 }), format)),
      })
      assert.equal(answer.status, 200)
    }
    server.kill('SIGTERM')
  }
  assert.equal(lines.filter((line) => line.includes('BatteryLevel 81.5')).length, 4)
})
