import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Format } from 'fleethook'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'
import { createTestHarness } from 'wrangler'

const secret = 'a-secret-for-this-test'
const formats: Format[] = ['service', 'vehicle_maker', 'event_collector']

test('takes a message in each format into its object', async () => {
  // The bundle that `wrangler deploy` would upload, in the runtime that Workers have.
  const server = createTestHarness({
    root: import.meta.dirname,
    workers: [{ configPath: './wrangler.jsonc', vars: { WEBHOOK_SECRET: secret } }],
  })
  await server.listen()
  try {
    for (const format of formats) {
      const answer = await server.fetch('/', {
        method: 'POST',
        headers: { authorization: format === 'event_collector' ? `Splunk ${secret}` : secret },
        body: JSON.stringify(encode(message.data({ BatteryLevel: 81.5 }), format)),
      })
      assert.equal(answer.status, 200)
    }
  } finally {
    await server.close()
  }
})
