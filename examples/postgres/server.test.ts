import assert from 'node:assert/strict'
import { execSync, spawnSync } from 'node:child_process'
import { test } from 'node:test'
import { PGlite } from '@electric-sql/pglite'
import { createReceiver, type Format } from 'fleethook'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'
import { addHandlers, table } from './handlers.ts'

const secret = 'a-secret-for-this-test'
const formats: Format[] = ['service', 'vehicle_maker', 'event_collector']

test('writes one row for each field of a message, whatever the format', async () => {
  // A Postgres inside of this process.
  const db = await PGlite.create()
  await db.exec(execSync('npx fleethook postgres schema', { cwd: import.meta.dirname, encoding: 'utf8' }))
  await db.exec(table)
  // It has no disk, so it promises nothing after a crash.
  const inbox = postgresInbox({ db, allowWeak: true })
  const receiver = addHandlers(
    createReceiver({ secret, inbox }),
    inbox.exactlyOnce((work) => db.transaction(work)),
  )
  for (const [number, format] of formats.entries()) {
    const sent = message.data({ BatteryLevel: 81.5, Locked: true }, { vin: `VIN-${number}` })
    const answer = await receiver.fetch(
      new Request('http://localhost/', {
        method: 'POST',
        headers: { authorization: format === 'event_collector' ? `Splunk ${secret}` : secret },
        body: JSON.stringify(encode(sent, format)),
      }),
    )
    assert.equal(answer.status, 200)
  }
  const count = 'SELECT count(*)::int AS rows FROM readings'
  const until = Date.now() + 10_000
  for (;;) {
    const { rows } = await db.query<{ rows: number }>(count)
    if (rows[0]?.rows === 6 || Date.now() > until) break
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  await receiver.drain({ deadlineMs: 5_000 })
  const { rows } = await db.query('SELECT vin, field, value FROM readings ORDER BY vin, field')
  assert.deepEqual(
    rows,
    formats.flatMap((_, number) => [
      { vin: `VIN-${number}`, field: 'BatteryLevel', value: 81.5 },
      { vin: `VIN-${number}`, field: 'Locked', value: true },
    ]),
  )
  await db.close()
})

test('a receiver without its database says so and ends', () => {
  const { status, stderr } = spawnSync(process.execPath, ['server.ts'], {
    cwd: import.meta.dirname,
    env: { ...process.env, PORT: '0', WEBHOOK_SECRET: secret, DATABASE_URL: 'postgres://127.0.0.1:9/none' },
    encoding: 'utf8',
  })
  assert.equal(status, 1)
  assert.match(stderr, /ECONNREFUSED/)
})
