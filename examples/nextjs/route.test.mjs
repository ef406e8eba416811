import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { test } from 'node:test'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'

const secret = 'a-secret-for-this-test'

/** Runs `next start`. `lines` gives what it prints; the first are consumed up to its URL. */
async function start(t) {
  const folder = (t.inboxFolder ??= mkdtempSync(join(tmpdir(), 'inbox-')))
  const server = spawn(process.execPath, ['node_modules/next/dist/bin/next', 'start', '--port', '0'], {
    cwd: import.meta.dirname,
    env: { ...process.env, WEBHOOK_SECRET: secret, FLEETHOOK_INBOX: join(folder, 'inbox.db') },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  t.after(() => {
    server.kill('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
  })
  const lines = createInterface(server.stdout)[Symbol.asyncIterator]()
  for (;;) {
    const { value = '', done } = await lines.next()
    assert.ok(!done, 'next start ended')
    const url = /(http:\/\/localhost:\d+)/.exec(value)?.[1]
    if (url !== undefined) return { server, lines, url }
  }
}

const post = (url, body, scheme = '') =>
  fetch(url, { method: 'POST', headers: { authorization: scheme + secret }, body: JSON.stringify(body) })

test('takes a message in each format, and those of a relay', { timeout: 60_000 }, async (t) => {
  const { lines, url } = await start(t)
  for (const [path, format] of [
    ['/telemetry', 'service'],
    ['/telemetry', 'vehicle_maker'],
    ['/telemetry', 'event_collector'],
    ['/telemetry/services/collector/event', 'event_collector'],
  ]) {
    const body = encode(message.data({ BatteryLevel: 81.5 }), format)
    assert.equal((await post(url + path, body, format === 'event_collector' ? 'Splunk ' : '')).status, 200)
  }
  let handled = 0
  for await (const line of lines) {
    if (line.includes('BatteryLevel 81.5')) handled += 1
    if (handled === 4) break
  }
})

test(
  'handles fields that come late, in pieces and twice, over a restart, with any Content-Type',
  { timeout: 60_000 },
  async (t) => {
    // Each field has its own message, one of them comes late, and one twice.
    for (const [round, type] of ['text/html', ';;'].entries()) {
      const said = [
        [10, { BatteryLevel: 81.5 + round }],
        [10, { ChargeLimitSoc: 80 + round }],
        [2, { Odometer: 1000 + round }],
        [10, { ChargeLimitSoc: 80 + round }],
      ]
      const { server, lines, url } = await start(t)
      for (const [minute, data] of said) {
        const createdAt = new Date(Date.UTC(2026, 0, 1, 8, minute)).toISOString()
        const body = JSON.stringify(encode(message.data(data, { vin: 'VIN', createdAt })))
        const headers = { authorization: secret, 'content-type': type }
        assert.equal((await fetch(`${url}/telemetry`, { method: 'POST', headers, body })).status, 200)
      }
      const wanted = said.map(([, data]) => Object.entries(data).flat().join(' '))
      const printed = []
      for await (const line of lines) {
        // After a kill, the next process may handle the last message again.
        printed.push(...wanted.slice(0, 3).filter((text) => line.includes(text)))
        if (printed.length === 4) break
      }
      assert.deepEqual(printed, wanted)
      const exited = once(server, 'exit')
      server.kill('SIGTERM')
      await exited
    }
  },
)

test('takes a batch of 2 MiB from a relay', { timeout: 60_000 }, async (t) => {
  const { url } = await start(t)
  const one = encode(message.data({ VehicleName: 'x'.repeat(1_000) }), 'event_collector')
  const batch = Array.from({ length: Math.ceil(2_097_152 / JSON.stringify(one).length) }, () => one)
  assert.equal((await post(`${url}/telemetry/services/collector/event`, batch, 'Splunk ')).status, 200)
})

test(
  'a process that is killed loses no acknowledged message: the next one handles the rest before any new message',
  { timeout: 60_000 },
  async (t) => {
    const odometers = new Set(Array.from({ length: 2000 }, (_, n) => n))
    const note = (line) => odometers.delete(Number(/Odometer (\d+)/.exec(line)?.[1]))
    const first = await start(t)
    const answer = await post(
      `${first.url}/telemetry`,
      [...odometers].map((Odometer) => encode(message.data({ Odometer }))),
    )
    assert.equal(answer.status, 200)
    first.server.kill('SIGKILL')
    for await (const line of first.lines) note(line)
    assert.ok(odometers.size > 0, 'it was killed too late')
    const second = await start(t)
    for await (const line of second.lines) {
      note(line)
      if (odometers.size === 0) break
    }
  },
)
