import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { DatabaseSync } from 'node:sqlite'
import { test } from 'node:test'
import type { FieldValues, Format } from 'fleethook'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'

const secret = 'a-secret-for-this-test'
const folder = mkdtempSync(join(tmpdir(), 'fleethook-'))
const database = join(folder, 'trips.db')
const formats: Format[] = ['service', 'vehicle_maker', 'event_collector']
const script: FieldValues[] = [
  { Gear: 'P', Odometer: 1000, EnergyRemaining: 50 },
  { Gear: 'D' },
  { Odometer: 1012, EnergyRemaining: 46.5 },
  { Gear: 'R' },
  { Gear: 'P' },
  { Odometer: 1013 },
]

test('writes one row for a trip, with its time, miles and energy, whatever the format', async () => {
  const server = spawn(process.execPath, ['server.ts'], {
    cwd: import.meta.dirname,
    env: {
      ...process.env,
      PORT: '0',
      WEBHOOK_SECRET: secret,
      FLEETHOOK_INBOX: join(folder, 'inbox.db'),
      DATABASE: database,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let url: string | undefined
  for await (const line of createInterface(server.stdout)) {
    if (url !== undefined) continue
    url = /listening on (http:\S+)/.exec(line)?.[1]
    if (url === undefined) continue
    for (const format of formats) {
      for (const [minute, data] of script.entries()) {
        const sent = message.data(data, {
          vin: `VIN-${format}`,
          createdAt: new Date(Date.UTC(2026, 0, 1, 8, minute)).toISOString(),
        })
        const answer: Response = await fetch(url, {
          method: 'POST',
          headers: { authorization: format === 'event_collector' ? `Splunk ${secret}` : secret },
          body: JSON.stringify(encode(sent, format)),
        })
        assert.equal(answer.status, 200)
      }
    }
    const until = Date.now() + 10_000
    while (rows('SELECT * FROM finished WHERE miles = 13').length < 3 && Date.now() < until)
      await new Promise((resolve) => setTimeout(resolve, 20))
    server.kill('SIGTERM')
  }
  assert.deepEqual(
    rows('SELECT minutes, miles, kwh, incomplete FROM finished'),
    formats.map(() => ({ minutes: 3, miles: 13, kwh: 3.5, incomplete: 0 })),
  )
  rmSync(folder, { recursive: true })
})

function rows(query: string): object[] {
  const db = new DatabaseSync(database, { readOnly: true })
  const found = db.prepare(query).all()
  db.close()
  return found.map((row) => ({ ...row }))
}
