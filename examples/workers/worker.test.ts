import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { FieldValues, Format } from 'fleethook'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'
import { createTestHarness } from 'wrangler'

const secret = 'a-secret-for-this-test'
const formats: Format[] = ['service', 'vehicle_maker', 'event_collector']

/** Each field has its own message, one of them comes late, and one twice. */
const said: [minute: number, data: FieldValues][] = [
  [10, { BatteryLevel: 81.5 }],
  [10, { Gear: 'P' }],
  [2, { Odometer: 1000 }],
  [10, { Gear: 'P' }],
]

test('handles each message in each format, fields that come late, in pieces and twice, also after a restart', async () => {
  for (const _start of ['first', 'second']) {
    // The bundle that `wrangler deploy` would upload, in the runtime that Workers have.
    const server = createTestHarness({
      root: import.meta.dirname,
      workers: [{ configPath: './wrangler.jsonc', vars: { WEBHOOK_SECRET: secret } }],
    })
    await server.listen()
    try {
      for (const format of formats) {
        for (const [minute, data] of said) {
          const createdAt = new Date(Date.UTC(2026, 0, 1, 8, minute)).toISOString()
          const answer = await server.fetch('/', {
            method: 'POST',
            headers: { authorization: format === 'event_collector' ? `Splunk ${secret}` : secret },
            body: JSON.stringify(encode(message.data(data, { vin: `VIN-${format}`, createdAt }), format)),
          })
          assert.equal(answer.status, 200)
        }
      }
      const printed = (text: string) => server.getLogs().filter((line) => line.message.includes(text)).length
      const until = Date.now() + 10_000
      while (printed('Gear P') < 6 && Date.now() < until) await new Promise((resolve) => setTimeout(resolve, 20))
      assert.deepEqual(['BatteryLevel 81.5', 'Odometer 1000', 'Gear P'].map(printed), [3, 3, 6])
    } finally {
      await server.close()
    }
  }
})
