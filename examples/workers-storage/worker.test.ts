import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import type { Format } from 'fleethook'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'
import { Miniflare } from 'miniflare'

const secret = 'a-secret-for-this-test'
const formats: Format[] = ['service', 'vehicle_maker', 'event_collector']

test('keeps the newest value of each field, whatever the format', async () => {
  // What `wrangler deploy` would upload, in the runtime that Workers have.
  const worker = new Miniflare({
    modules: [{ type: 'ESModule', path: `${import.meta.dirname}/dist/worker.js` }],
    compatibilityDate: '2026-08-04',
    bindings: { WEBHOOK_SECRET: secret },
    d1Databases: ['DB'],
  })
  try {
    const db = await worker.getD1Database('DB')
    await db.prepare(readFileSync(`${import.meta.dirname}/schema.sql`, 'utf8')).run()
    const vin = '5YJ3E1EA7KF000001'
    for (const [index, format] of formats.entries()) {
      const answer = await worker.dispatchFetch('http://localhost/telemetry', {
        method: 'POST',
        headers: { authorization: format === 'event_collector' ? `Splunk ${secret}` : secret },
        body: JSON.stringify(
          encode(message.data({ BatteryLevel: 80 - index }, { vin, createdAt: `2026-11-21T10:0${index}:00Z` }), format),
        ),
      })
      assert.equal(answer.status, 200)
    }
    const answer = await worker.dispatchFetch(`http://localhost/vehicles/${vin}`, {
      headers: { authorization: secret },
    })
    assert.deepEqual(await answer.json(), [{ field: 'BatteryLevel', value: '78', at: '2026-11-21T10:02:00.000Z' }])
  } finally {
    await worker.dispose()
  }
})
