import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { DatabaseSync } from 'node:sqlite'
import { test } from 'node:test'
import { createReceiver, vehicles } from 'fleethook'
import { addHandlers } from './handlers.ts'

const record = (second: number, gear: string): string =>
  JSON.stringify({
    data: [{ key: 'Gear', value: { shiftStateValue: `ShiftState${gear}` } }],
    createdAt: `2026-06-01T08:00:0${second}Z`,
    vin: '0FLEETV14T0000004',
  })

test('a record that comes twice is one row, and parks its vehicle once', async () => {
  const db = new DatabaseSync(':memory:')
  const receiver = createReceiver({ secret: false, ack: 'handled', parts: [vehicles({ fields: ['Gear'] })] })
  addHandlers(receiver, db)
  for (const body of [record(0, 'D'), record(1, 'P'), record(1, 'P')])
    assert.equal((await receiver.accept({ headers: null, body })).status, 200)
  assert.equal(db.prepare('SELECT count(*) AS n FROM readings').get()?.['n'], 2)
  assert.equal(db.prepare('SELECT at FROM parked').get()?.['at'], '2026-06-01T08:00:01.000Z')
})

test('without a cluster it says so and ends', () => {
  const env = { ...process.env, KAFKA_BROKERS: '127.0.0.1:9', DATABASE: ':memory:', FLEETHOOK_INBOX: 'data/test.db' }
  const { status, stderr } = spawnSync(process.execPath, ['server.ts'], {
    cwd: import.meta.dirname,
    env,
    encoding: 'utf8',
  })
  assert.equal(status, 1)
  assert.match(stderr, /Cannot connect to any broker/)
})
