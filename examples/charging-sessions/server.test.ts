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
const database = join(folder, 'sessions.db')
const formats: Format[] = ['service', 'vehicle_maker', 'event_collector']
const script: FieldValues[] = [
  { DetailedChargeState: 'Disconnected', BatteryLevel: 20 },
  { DetailedChargeState: 'Charging' },
  { ACChargingEnergyIn: 0 },
  { ACChargingEnergyIn: 12.5, BatteryLevel: 60 },
  { DetailedChargeState: 'Complete' },
]

test('writes one row for a charging session, with its time, levels and energy, whatever the format', async () => {
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
    while (rows('SELECT * FROM sessions WHERE end_id IS NOT NULL').length < 3 && Date.now() < until)
      await new Promise((resolve) => setTimeout(resolve, 20))
    server.kill('SIGTERM')
  }
  assert.deepEqual(
    rows(
      'SELECT (ended_ms - started_ms) / 60000 AS minutes, percent_from, percent_to, ac_kwh, incomplete FROM sessions',
    ),
    formats.map(() => ({ minutes: 3, percent_from: 20, percent_to: 60, ac_kwh: 12.5, incomplete: 0 })),
  )
  rmSync(folder, { recursive: true })
})

function rows(query: string): object[] {
  const db = new DatabaseSync(database, { readOnly: true })
  const found = db.prepare(query).all()
  db.close()
  return found.map((row) => ({ ...row }))
}
