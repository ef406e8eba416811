import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { DatabaseSync } from 'node:sqlite'
import { after, test } from 'node:test'
import type { FieldValues, Format } from 'fleethook'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'

const secret = 'a-secret-for-this-test'
const folder = mkdtempSync(join(tmpdir(), 'fleethook-'))
const database = join(folder, 'result.db')
const formats: Format[] = ['service', 'vehicle_maker', 'event_collector']
const servers: ChildProcess[] = []
after(() => {
  for (const server of servers) server.kill('SIGKILL')
  rmSync(folder, { recursive: true })
})

/** By seconds. Each field has its own message, and the last energy and level come after the end. */
const script: [second: number, data: FieldValues][] = [
  [-60, { DetailedChargeState: 'Disconnected' }],
  [-59, { BatteryLevel: 20 }],
  [0, { DetailedChargeState: 'Charging' }],
  [1, { ACChargingEnergyIn: 0 }],
  [2, { DCChargingEnergyIn: 0 }],
  [1800, { ACChargingEnergyIn: 8.1 }],
  [1801, { DCChargingEnergyIn: 7.7 }],
  [1900, { DetailedChargeState: 'NoPower' }], // a cloud
  [2400, { DetailedChargeState: 'Charging' }],
  [3600, { DetailedChargeState: 'Complete' }],
  [3620, { DCChargingEnergyIn: 15.4 }],
  [3625, { ACChargingEnergyIn: 16.2 }],
  [3645, { BatteryLevel: 60 }],
]
const expected = { minutes: 60, kwh: 16.2, percent_from: 20, percent_to: 60 }

async function start(): Promise<{ server: ChildProcess; url: string }> {
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
  servers.push(server)
  for await (const line of createInterface(server.stdout)) {
    const url = /listening on (http:\S+)/.exec(line)?.[1]
    if (url !== undefined) return { server, url }
  }
  throw new Error('The server ended before it listened.')
}

async function stop(server: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  const exited = once(server, 'exit')
  server.kill(signal)
  await exited
}

async function post(url: string, vin: string, format: Format, [second, data]: [number, FieldValues]): Promise<void> {
  const createdAt = new Date(Date.UTC(2026, 0, 1, 8) + second * 1000).toISOString()
  const answer: Response = await fetch(url, {
    method: 'POST',
    headers: { authorization: format === 'event_collector' ? `Splunk ${secret}` : secret },
    body: JSON.stringify(encode(message.data(data, { vin, createdAt }), format)),
  })
  assert.equal(answer.status, 200)
}

/** Waits until the rows of a vehicle are those, and fails with the difference. */
async function expectRows(vin: string, columns: string, rows: object[]): Promise<void> {
  const db = new DatabaseSync(database, { readOnly: true })
  const select = db.prepare(`SELECT ${columns} FROM finished WHERE vin = ? ORDER BY started`)
  const until = Date.now() + 10_000
  for (;;) {
    const found = select.all(vin).map((row) => ({ ...row }))
    try {
      assert.deepEqual(found, rows)
      return db.close()
    } catch (error) {
      if (Date.now() > until) throw error
    }
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

test('writes one row for a charge, whatever the format, with fields that come late and messages that come twice', async () => {
  const { server, url } = await start()
  for (const format of formats) {
    for (const each of script) {
      await post(url, `VIN-${format}`, format, each)
      await post(url, `VIN-${format}`, format, each)
    }
    await expectRows(`VIN-${format}`, 'minutes, kwh, percent_from, percent_to, incomplete', [
      { ...expected, incomplete: 0 },
    ])
  }
  await stop(server, 'SIGTERM')
})

test('has the same row when messages overtake each other and the server is killed between them', async () => {
  const { server, url } = await start()
  for (const each of script.filter((_, index) => index % 2 === 1)) await post(url, 'KILLED', 'service', each)
  await stop(server, 'SIGKILL')
  const second = await start()
  for (const each of script.filter((_, index) => index % 2 === 0)) await post(second.url, 'KILLED', 'service', each)
  // Messages may be missing from the time in which no server listened, so the row says so.
  await expectRows('KILLED', 'minutes, kwh, percent_from, percent_to, incomplete', [{ ...expected, incomplete: 1 }])
  await stop(second.server, 'SIGTERM')
})

test('has no number for what it does not know', async () => {
  const { server, url } = await start()
  const without = script.filter(([, data]) => 'DetailedChargeState' in data)
  for (const each of without) await post(url, 'SILENT', 'service', each)
  await expectRows('SILENT', 'minutes, kwh, percent_from, percent_to, incomplete', [
    { ...expected, kwh: null, percent_from: null, percent_to: null, incomplete: 1 },
  ])
  await stop(server, 'SIGTERM')
})

test('takes a counter that did not move for that of the charge before, and says when that of the socket has no end', async () => {
  const { server, url } = await start()
  const charges: typeof script = [
    [-60, { DetailedChargeState: 'Disconnected', BatteryLevel: 20 }],
    [0, { DetailedChargeState: 'Charging', ACChargingEnergyIn: 0, DCChargingEnergyIn: 0 }],
    [3600, { DetailedChargeState: 'Complete' }],
    [3640, { ACChargingEnergyIn: 16.2, DCChargingEnergyIn: 15.4, BatteryLevel: 40 }],
    [4000, { DetailedChargeState: 'Disconnected' }],
    [20_000, { DetailedChargeState: 'Charging' }],
    [20_010, { DCChargingEnergyIn: 0.1 }],
    [20_300, { ACChargingEnergyIn: 16.2 }], // a charge without AC: a new connection reports the last value again
    [20_600, { DetailedChargeState: 'Complete' }],
    [20_640, { DCChargingEnergyIn: 10, BatteryLevel: 60 }],
    [21_000, { DetailedChargeState: 'Disconnected' }],
    [40_000, { DetailedChargeState: 'Charging', ACChargingEnergyIn: 0, DCChargingEnergyIn: 0 }],
    [41_800, { ACChargingEnergyIn: 8.1 }], // its last value never comes
    [43_600, { DetailedChargeState: 'Complete' }],
    [43_640, { DCChargingEnergyIn: 15.4, BatteryLevel: 90 }],
  ]
  for (const each of charges) await post(url, 'COUNTERS', 'service', each)
  await expectRows('COUNTERS', 'kwh, incomplete', [
    { kwh: 16.2, incomplete: 0 },
    { kwh: 10, incomplete: 0 },
    { kwh: 8.1, incomplete: 1 },
  ])
  await stop(server, 'SIGTERM')
})
