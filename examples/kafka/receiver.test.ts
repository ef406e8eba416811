import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
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

test('a receiver starts without a cluster, and keeps what arrives in its file', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'fleethook-'))
  const server = spawn(process.execPath, ['receiver.ts'], {
    cwd: import.meta.dirname,
    env: {
      ...process.env,
      PORT: '0',
      WEBHOOK_SECRET: secret,
      KAFKA_BROKERS: '127.0.0.1:9',
      FLEETHOOK_MEANWHILE: join(folder, 'meanwhile.db'),
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let url: string | undefined
  for await (const line of createInterface({ input: server.stdout })) {
    url = /listening on (\S+)/.exec(line)?.[1]
    if (url !== undefined) break
  }
  const body = JSON.stringify(message.data({ BatteryLevel: 80 }))
  const answer = await fetch(url ?? '', { method: 'POST', headers: { authorization: secret }, body })
  assert.equal(answer.status, 200)
  server.kill()
  assert.deepEqual(await once(server, 'exit'), [0, null])
  rmSync(folder, { recursive: true })
})
