import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { test } from 'node:test'
import { createReceiver } from 'fleethook'
import { deliver, message } from 'fleethook/testing'
import { addHandlers } from './handlers.ts'

const secret = 'a-secret-for-this-test'

test('the handlers report a low battery', async (context) => {
  const log = context.mock.method(console, 'log', () => {})
  const receiver = addHandlers(createReceiver({ secret }))
  const { status, settled } = await deliver(receiver, message.data({ BatteryLevel: 11 }), { secret })
  await settled
  assert.equal(status, 200)
  assert.match(String(log.mock.calls.at(-1)?.arguments[0]), /needs a charge: 11 %/)
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
