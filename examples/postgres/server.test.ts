import assert from 'node:assert/strict'
import { execSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { test } from 'node:test'
import { PGlite } from '@electric-sql/pglite'
import { createReceiver, type FieldValues, type Format } from 'fleethook'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'
import { addHandlers, table } from './handlers.ts'

const secret = 'a-secret-for-this-test'
const formats: Format[] = ['service', 'vehicle_maker', 'event_collector']

/** Each field has its own message, one of them comes late, one without a value, and two come twice. */
const said: [minute: number, data: FieldValues][] = [
  [10, { BatteryLevel: 81.5 }],
  [10, { Gear: 'P' }],
  [2, { BatteryLevel: 90 }],
  [11, { BatteryLevel: null }],
  [10, { Gear: 'P' }],
  [10, { BatteryLevel: 81.5 }],
]

test('writes one row for each field, whatever the format, with fields that come late, in pieces and twice, over a restart', async () => {
  // A Postgres inside of this process.
  const db = await PGlite.create()
  await db.exec(execSync('npx fleethook postgres schema', { cwd: import.meta.dirname, encoding: 'utf8' }))
  await db.exec(table)
  for (const part of [said.slice(0, 3), said.slice(3)]) {
    // It has no disk, so it promises nothing after a crash.
    const inbox = postgresInbox({ db, allowWeak: true })
    const receiver = addHandlers(
      createReceiver({ secret, inbox }),
      inbox.exactlyOnce((work) => db.transaction(work)),
    )
    for (const format of formats) {
      for (const [minute, data] of part) {
        const createdAt = new Date(Date.UTC(2026, 0, 1, 8, minute)).toISOString()
        const answer = await receiver.fetch(
          new Request('http://localhost/', {
            method: 'POST',
            headers: { authorization: format === 'event_collector' ? `Splunk ${secret}` : secret },
            body: JSON.stringify(encode(message.data(data, { vin: `VIN-${format}`, createdAt }), format)),
          }),
        )
        assert.equal(answer.status, 200)
      }
    }
    const until = Date.now() + 10_000
    const isWaiting = async () => (await db.query('SELECT FROM fleethook.waiting')).rows.length > 0
    while ((await isWaiting()) && Date.now() < until) await new Promise((resolve) => setTimeout(resolve, 20))
    await receiver.drain({ deadlineMs: 5_000 })
  }
  for (const format of formats) {
    const { rows } = await db.query('SELECT field, value FROM readings WHERE vin = $1 ORDER BY at, field', [
      `VIN-${format}`,
    ])
    assert.deepEqual(rows, [
      { field: 'BatteryLevel', value: 90 },
      { field: 'BatteryLevel', value: 81.5 },
      { field: 'Gear', value: 'P' },
      { field: 'BatteryLevel', value: null },
    ])
  }
  await db.close()
})

test('a receiver starts without its database, and keeps what arrives in its file', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'fleethook-'))
  const server = spawn(process.execPath, ['server.ts'], {
    cwd: import.meta.dirname,
    env: {
      ...process.env,
      PORT: '0',
      WEBHOOK_SECRET: secret,
      DATABASE_URL: 'postgres://127.0.0.1:9/none',
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
