import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { test } from 'node:test'
import { createReceiver, type FieldValues } from 'fleethook'
import { deliver, message } from 'fleethook/testing'
import { addHandlers } from './handlers.ts'

const secret = 'a-secret-for-this-test'

/** Each field has its own message, one of them comes late, one without a value, and one twice. */
const said: [minute: number, data: FieldValues][] = [
  [10, { BatteryLevel: 11 }],
  [10, { Gear: 'P' }],
  [2, { BatteryLevel: 24 }],
  [11, { BatteryLevel: null }],
  [10, { BatteryLevel: 11 }],
]

test('the handlers report a low battery for each message that has it, with fields that come late, in pieces and twice, also after a restart', async (context) => {
  const log = context.mock.method(console, 'log', () => {})
  for (const _start of ['first', 'second']) {
    const receiver = addHandlers(createReceiver({ secret }))
    for (const [minute, data] of said) {
      const createdAt = new Date(Date.UTC(2026, 0, 1, 8, minute)).toISOString()
      const { status, settled } = await deliver(receiver, message.data(data, { vin: 'VIN', createdAt }), { secret })
      await settled
      assert.equal(status, 200)
    }
    await receiver.drain()
  }
  assert.deepEqual(
    log.mock.calls.map(({ arguments: [line] }) => line),
    Array.from({ length: 4 }, () => '→ VIN needs a charge: 11 %'),
  )
})

test('a receiver without a cluster says so and ends', () => {
  // An empty variable is the default.
  for (const [given, broker] of [
    ['127.0.0.1:9', '127.0.0.1:9'],
    ['', 'localhost:9092'],
  ]) {
    const { status, stderr } = spawnSync(process.execPath, ['receiver.ts'], {
      cwd: import.meta.dirname,
      env: { ...process.env, PORT: '0', WEBHOOK_SECRET: secret, KAFKA_BROKERS: given },
      encoding: 'utf8',
    })
    assert.equal(status, 1)
    assert.match(stderr, new RegExp(`broker ${broker} could not be reached: ECONNREFUSED`))
  }
})
