import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import type { Format } from 'fleethook'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'
import { createTestHarness } from 'wrangler'

const secret = 'a-secret-for-this-test'
const token = 'a-token-for-this-test'
const formats: Format[] = ['service', 'vehicle_maker', 'event_collector']

/** The bundle that `wrangler deploy` would upload, in the runtime that Workers have. */
const harness = () =>
  createTestHarness({
    root: import.meta.dirname,
    workers: [{ configPath: './wrangler.jsonc', vars: { WEBHOOK_SECRET: secret, READ_TOKEN: token } }],
  })

test('keeps the newest value of each field, whatever the format', async () => {
  const server = harness()
  await server.listen()
  try {
    const { DB } = await server.getWorker().getEnv()
    await DB.prepare(readFileSync(`${import.meta.dirname}/schema.sql`, 'utf8')).run()
    const vin = '0FLEETV14T0000004'
    for (const [index, format] of formats.entries()) {
      const answer = await server.fetch('/telemetry', {
        method: 'POST',
        headers: { authorization: format === 'event_collector' ? `Splunk ${secret}` : secret },
        body: JSON.stringify(
          encode(message.data({ BatteryLevel: 80 - index }, { vin, createdAt: `2026-11-21T10:0${index}:00Z` }), format),
        ),
      })
      assert.equal(answer.status, 200)
    }
    // Late, without a value, and twice: none of them changes anything. But what a vehicle says whose clock is fast is new.
    const said = [
      ['2026-11-21T09:00:00Z', { BatteryLevel: 90 }],
      ['2026-11-21T10:03:00Z', { BatteryLevel: null }],
      ['2026-11-21T10:02:00Z', { BatteryLevel: 78 }],
      [new Date(Date.now() + 300_000).toISOString(), { Gear: 'P' }],
      [new Date(Date.now() - 5_000).toISOString(), { Gear: 'D' }],
    ] as const
    for (const [createdAt, data] of said) {
      const body = JSON.stringify(encode(message.data(data, { vin, createdAt }), 'service'))
      const answer = await server.fetch('/telemetry', { method: 'POST', headers: { authorization: secret }, body })
      assert.equal(answer.status, 200)
    }
    assert.equal((await server.fetch(`/vehicles/${vin}`)).status, 401)
    const answer = await server.fetch(`/vehicles/${vin}`, { headers: { authorization: `Bearer ${token}` } })
    const values: { field: string; value: string }[] = JSON.parse(await answer.text())
    assert.deepEqual(
      values.map(({ field, value }) => [field, value]),
      [
        ['BatteryLevel', '78'],
        ['Gear', '"D"'],
      ],
    )
  } finally {
    await server.close()
  }
})

test('answers 500 to a message that the database does not take', async () => {
  const server = harness()
  await server.listen()
  try {
    const answer = await server.fetch('/telemetry', {
      method: 'POST',
      headers: { authorization: secret },
      body: JSON.stringify(encode(message.data({ BatteryLevel: 80 }), 'service')),
    })
    assert.equal(answer.status, 500)
    assert.match(await answer.text(), /not_handled/)
  } finally {
    await server.close()
  }
})
