import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Format } from 'fleethook'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'
import { Miniflare } from 'miniflare'

const secret = 'a-secret-for-this-test'
const formats: Format[] = ['service', 'vehicle_maker', 'event_collector']

test('takes a message in each format', async () => {
  // What `wrangler deploy` would upload, in the runtime that Workers have.
  const worker = new Miniflare({
    modules: [{ type: 'ESModule', path: `${import.meta.dirname}/dist/worker.js` }],
    compatibilityDate: '2026-08-04',
    bindings: { WEBHOOK_SECRET: secret },
  })
  try {
    for (const format of formats) {
      const answer = await worker.dispatchFetch('http://localhost/', {
        method: 'POST',
        headers: { authorization: format === 'event_collector' ? `Splunk ${secret}` : secret },
        body: JSON.stringify(encode(message.data({ BatteryLevel: 81.5 }), format)),
      })
      assert.equal(answer.status, 200)
    }
  } finally {
    await worker.dispose()
  }
})
