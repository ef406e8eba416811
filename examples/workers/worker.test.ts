import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Format } from 'fleethook'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'
import { unstable_startWorker } from 'wrangler'

const secret = 'a-secret-for-this-test'
const formats: Format[] = ['service', 'vehicle_maker', 'event_collector']

test('takes a message in each format', async () => {
  const worker = await unstable_startWorker({
    config: `${import.meta.dirname}/wrangler.jsonc`,
    bindings: { WEBHOOK_SECRET: { type: 'plain_text', value: secret } },
    dev: { server: { port: 0 }, inspector: false },
  })
  try {
    for (const format of formats) {
      const answer = await worker.fetch('http://example.com/', {
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
