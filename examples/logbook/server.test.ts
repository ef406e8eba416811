import assert from 'node:assert/strict'
import { execSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { test } from 'node:test'
import { PGlite } from '@electric-sql/pglite'
import { createReceiver, type FieldValues, type Format, vehicles } from 'fleethook'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'
import { tellBookings } from './bookings.ts'
import { customer, fields } from './episodes.ts'
import { addHandlers } from './handlers.ts'

const secret = 'a-secret-for-this-test'
const formats: Format[] = ['service', 'vehicle_maker', 'event_collector']
const startMs = Date.now() - 4 * 3_600_000
const home = { latitude: 30.25, longitude: -97.75 }
const office = { latitude: 30.35, longitude: -97.75 }

/** By seconds. Each field has its own message, and the last values come after the end. */
const drives: [second: number, data: FieldValues][] = [
  [-60, { Gear: 'P', DetailedChargeState: 'Disconnected' }],
  [-59, { Odometer: 1000 }],
  [-58, { EnergyRemaining: 50 }],
  [-57, { Location: home }],
  [-56, { LocatedAtHome: true, BatteryLevel: 70 }],
  [0, { Gear: 'D' }],
  [300, { Odometer: 1006 }],
  [400, { Gear: 'P' }], // a stop at a gate
  [460, { Gear: 'D' }],
  [590, { Location: office }],
  [600, { Gear: 'P' }],
  [610, { LocatedAtHome: false }],
  [630, { Odometer: 1013 }],
  [645, { EnergyRemaining: 46.5 }],
  [900, { Gear: 'P' }],
]
const charges: [second: number, data: FieldValues][] = [
  // It wakes up, and says all.
  [3_500, { DetailedChargeState: 'Disconnected', BatteryLevel: 70, Location: office, LocatedAtHome: false }],
  [3_600, { DetailedChargeState: 'Charging' }],
  [3_601, { ACChargingEnergyIn: 0, DCChargingEnergyIn: 0 }],
  [5_000, { DetailedChargeState: 'Stopped' }], // a cloud
  [5_300, { DetailedChargeState: 'Charging' }],
  [7_200, { DetailedChargeState: 'Complete' }],
  [7_210, { DCChargingEnergyIn: 9.8 }],
  [7_220, { ACChargingEnergyIn: 10.4 }],
  [7_230, { BatteryLevel: 85 }],
  [7_240, { Location: office }],
  [7_300, { DetailedChargeState: 'Disconnected' }],
]

test('writes each trip and charge once, whatever the format, with fields that come late, in pieces and twice, over a restart', async () => {
  // A Postgres inside of this process.
  const db = await PGlite.create()
  await db.exec(execSync('npx fleethook postgres schema', { cwd: import.meta.dirname, encoding: 'utf8' }))
  for (const file of ['schema.sql', 'questions.sql'])
    await db.exec(readFileSync(new URL(file, import.meta.url), 'utf8'))
  await db.query("INSERT INTO areas VALUES ('office', 'business', 30.35, -97.75, 500, 0.25)")
  // One has the vehicles on the way, and another one while they charge.
  for (const [name, from, to] of [['c-12', -3_600, 900] as const, ['c-13', 900, 9_000] as const])
    for (const format of formats)
      await db.query('INSERT INTO bookings (vin, customer, starts, ends) VALUES ($1, $2, $3, $4)', [
        `VIN-${format}`,
        name,
        new Date(startMs + from * 1_000),
        new Date(startMs + to * 1_000),
      ])
  const pool = {
    connect: async () => ({ query: (sql: string, values?: unknown[]) => db.query(sql, values), release() {} }),
  }
  await db.query("UPDATE settings SET unit = 'km', zone = 'Asia/Tokyo'")
  const answers = async (columns: string) => (await db.query(`SELECT DISTINCT ${columns}`)).rows
  for (const part of [drives, charges]) {
    // It has no disk, so it promises nothing after a crash.
    const inbox = postgresInbox({ db, allowWeak: true })
    const receiver = createReceiver({ secret, inbox, parts: [vehicles({ fields, facts: [customer] })] })
    addHandlers(
      receiver,
      inbox.exactlyOnce((work) => db.transaction(work)),
    )
    // The restart is a gap. What comes after its report is certain.
    const gap = new Promise((resolve) => receiver.on('gap', resolve))
    await receiver.open()
    if (part === charges) await gap
    await tellBookings(receiver.vehicles, pool)
    for (const format of formats) {
      for (const [second, data] of [...part, ...part.slice(-3)]) {
        const createdAt = new Date(startMs + second * 1_000).toISOString()
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
    const table = part === drives ? 'trips' : 'charges'
    const isWaiting = async () =>
      (await db.query('SELECT FROM fleethook.waiting')).rows.length > 0 ||
      (await db.query(`SELECT FROM ${table} WHERE NOT lasts`)).rows.length < formats.length
    const until = Date.now() + 30_000
    while ((await isWaiting()) && Date.now() < until) await new Promise((resolve) => setTimeout(resolve, 20))
    await receiver.drain({ deadlineMs: 5_000 })
  }
  assert.deepEqual(await answers('count(*)::int FROM trips'), [{ count: 3 }])
  assert.deepEqual(
    await answers('customer, minutes, distance, unit, odometer_to, kwh, to_area, purpose FROM logbook'),
    [
      {
        customer: 'c-12',
        minutes: '10.0',
        distance: '20.921',
        unit: 'km',
        odometer_to: '1630.3',
        kwh: '3.50',
        to_area: 'office',
        purpose: 'business',
      },
    ],
  )
  assert.deepEqual(await answers('customer, minutes, kwh, percent_from, percent_to, place, cost FROM charging_costs'), [
    {
      customer: 'c-13',
      minutes: '60.0',
      kwh: '10.40',
      percent_from: 70,
      percent_to: 85,
      place: 'away',
      cost: '2.60',
    },
  ])
  assert.deepEqual(await answers('distance, kwh_driven, kwh_charged, cost FROM months'), [
    { distance: '20.921', kwh_driven: '3.50', kwh_charged: '10.40', cost: '2.60' },
  ])
  assert.deepEqual(await answers('customer, distance, cost FROM customers ORDER BY 1'), [
    { customer: 'c-12', distance: '20.921', cost: null },
    { customer: 'c-13', distance: null, cost: '2.60' },
  ])
  assert.deepEqual(await answers('place, charges::int, cost FROM charging'), [
    { place: 'away', charges: 1, cost: '2.60' },
  ])
  assert.deepEqual(await answers('percent, place FROM vehicles'), [{ percent: 85, place: office }])
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
