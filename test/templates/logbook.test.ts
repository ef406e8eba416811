// The tables and views of the template `logbook`, with the rows that its handlers write.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { PGlite } from '@electric-sql/pglite'
import type { FieldValues, FleetEvent } from 'fleethook'
import { encode, normalize } from 'fleethook/normalize'
import { message } from 'fleethook/testing'
import type { EpisodeEdge, EpisodeOccurrence } from 'fleethook/when'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { trips as tripHistories } from '../when/histories.ts'

const template = join(import.meta.dirname, '../../examples/logbook')
/** A template has its own settings of the compiler. */
type Save = (db: PGlite, found: EpisodeOccurrence, doubts: readonly string[]) => Promise<unknown>
const { charge, trip }: { readonly [name in 'charge' | 'trip']: EpisodeEdge } = await import(
  join(template, 'episodes.ts')
)
const { saveCharge, saveTrip }: { readonly [name in 'saveCharge' | 'saveTrip']: Save } = await import(
  join(template, 'rows.ts')
)

const vin = '0FLEETV14T0000004'
const home = { latitude: 52.1, longitude: 5.1 }

let db: PGlite
beforeAll(async () => {
  db = await PGlite.create()
  for (const file of ['schema.sql', 'questions.sql']) await db.exec(readFileSync(join(template, file), 'utf8'))
})
afterAll(() => db.close())
// Each test sees the tables as they are created.
beforeEach(() => db.exec('BEGIN'))
afterEach(() => db.exec('ROLLBACK'))

const ask = async (sql: string): Promise<readonly unknown[]> => (await db.query(sql)).rows

type Said = readonly (readonly [second: number, data: FieldValues])[]

function eventsOf(startMs: number, said: Said): readonly FleetEvent[] {
  return said.flatMap(([second, data]) => {
    const at = new Date(startMs + second * 1_000)
    const made = { ...message.data({}, { vin, createdAt: at.toISOString() }), data }
    return [...normalize([encode(made, 'service')], { receivedAt: at })]
  })
}

const hour = 3_600
const drive = (odometer: number, start: number): Said => [
  [start - 60, { Gear: 'P', Odometer: odometer }],
  [start, { Gear: 'D' }],
  [start + hour / 2, { Odometer: odometer + 20 }],
  [start + hour / 2 + 1, { Gear: 'P' }],
  [start + hour / 2 + 2, { Odometer: odometer + 20 }],
]

/** A charge at home with 1 kWh in each quarter hour. */
function chargeOf(hours: number, isHome = true): Said {
  const quarters = Array.from({ length: hours * 4 + 1 }, (_, nth) => nth)
  return [
    [-3_600, { DetailedChargeState: 'Disconnected', BatteryLevel: 40, LocatedAtHome: isHome, Location: home }],
    [0, { DetailedChargeState: 'Charging' }],
    ...quarters.map((nth) => [nth * 900, { ACChargingEnergyIn: nth }] as const),
    [hours * hour + 10, { DetailedChargeState: 'Complete' }],
    [hours * hour + 20, { BatteryLevel: 90 }],
  ]
}

async function write(startMs: number, said: Said): Promise<void> {
  const events = eventsOf(startMs, said)
  for (const found of trip.in(events)) await saveTrip(db, found, trip.doubts(found, undefined))
  for (const found of charge.in(events)) await saveCharge(db, found, [])
}

describe('prices', () => {
  const evening = Date.UTC(2026, 2, 2, 20)

  test('one price for the whole day', async () => {
    await write(evening, chargeOf(4))
    expect(await ask('SELECT kwh, cost, place FROM charging_costs')).toEqual([
      { kwh: '16.00', cost: '4.80', place: 'home' },
    ])
  })

  test('a price by day and one by night, in the time zone of the customer', async () => {
    await db.exec(
      `DELETE FROM prices WHERE at_home; INSERT INTO prices VALUES (true, '06:00', 0.40), (true, '22:00', 0.20)`,
    )
    // Of 20:00 to 24:00 UTC, half is by night.
    await write(evening, chargeOf(4))
    expect(await ask('SELECT cost FROM charging_costs')).toEqual([{ cost: '4.80' }])
    // In Amsterdam it is from 21:00 to 1:00: an hour by day, and the rest by night, which goes on after midnight.
    await db.exec(`UPDATE settings SET zone = 'Europe/Amsterdam'`)
    expect(await ask('SELECT cost, day::text FROM charging_costs')).toEqual([{ cost: '4.00', day: '2026-03-02' }])
    await db.exec(`INSERT INTO vehicles (vin, at, zone) VALUES ('${vin}', now(), 'Asia/Tokyo')`)
    expect(await ask('SELECT cost, day::text FROM charging_costs')).toEqual([{ cost: '5.60', day: '2026-03-03' }])
  })

  test('a price for each hour, as far as it is known, and else that of the time of the day', async () => {
    await db.exec(`INSERT INTO dynamic_prices VALUES ('2026-03-02T20:00Z', 0.1), ('2026-03-02T21:00Z', 0.2)`)
    await write(evening, chargeOf(4))
    // 4 kWh for 0.1, 4 for 0.2, and 8 for 0.3.
    expect(await ask('SELECT cost FROM charging_costs')).toEqual([{ cost: '3.60' }])
  })

  test('that of an area wins, and away from home no price of an hour counts', async () => {
    await db.exec(`INSERT INTO dynamic_prices VALUES ('2026-03-02T20:00Z', 0.1)`)
    await write(evening, chargeOf(1, false))
    expect(await ask('SELECT cost, place FROM charging_costs')).toEqual([{ cost: '2.40', place: 'away' }])
    await db.exec(`INSERT INTO areas VALUES ('office', 'business', 52.1, 5.1, 300, 0.25)`)
    expect(await ask('SELECT cost FROM charging_costs')).toEqual([{ cost: '1.00' }])
  })

  test('what a charge costs by quarter hours is what its energy costs, to the cent', async () => {
    await db.exec(
      `DELETE FROM prices WHERE at_home; INSERT INTO prices SELECT true, make_time(n, 0, 0), 0.2 + n * 0.0123 FROM generate_series(0, 23) n`,
    )
    await write(evening, chargeOf(6))
    const prices = [20, 21, 22, 23, 0, 1].map((n) => 4 * (0.2 + n * 0.0123))
    const cost = prices.reduce((sum, price) => sum + price, 0)
    expect(await ask('SELECT cost::float8 FROM charging_costs')).toEqual([{ cost: Math.round(cost * 100) / 100 }])
  })
})

describe('the lines of the logbook', () => {
  test('have kilometers or miles by one setting, in its rows and in the sums', async () => {
    await write(Date.UTC(2026, 2, 2, 8), drive(1_000, 0))
    const select = 'SELECT distance, unit, odometer_from, odometer_to FROM logbook'
    expect(await ask(select)).toEqual([
      { distance: '20.000', unit: 'mi', odometer_from: '1000.0', odometer_to: '1020.0' },
    ])
    await db.exec(`UPDATE settings SET unit = 'km'`)
    expect(await ask(select)).toEqual([
      { distance: '32.187', unit: 'km', odometer_from: '1609.3', odometer_to: '1641.5' },
    ])
    expect(await ask('SELECT distance, unit FROM months')).toEqual([{ distance: '32.187', unit: 'km' }])
  })

  test('have the date of the customer', async () => {
    await db.exec(`UPDATE settings SET zone = 'America/Los_Angeles'`)
    await write(Date.UTC(2026, 2, 1, 3), drive(1_000, 0))
    expect(await ask('SELECT day::text FROM logbook')).toEqual([{ day: '2026-02-28' }])
    expect(await ask('SELECT month::text FROM months')).toEqual([{ month: '2026-02-01' }])
    await expect(db.exec(`UPDATE settings SET zone = 'Middle/Earth'`)).rejects.toThrow('time zone')
  })

  test('keep the purpose and the note that people wrote, over every correction', async () => {
    const events = eventsOf(Date.UTC(2026, 2, 2, 8), drive(1_000, 0))
    const [found] = trip.in(events)
    if (found === undefined) throw new Error('There is no trip.')
    await saveTrip(db, found, [])
    await db.exec(`UPDATE trips SET purpose = 'private', note = 'to the dentist'`)
    await saveTrip(db, { ...found, revision: 7 }, [])
    expect(await ask('SELECT logbook.purpose, logbook.note, revision FROM logbook, trips')).toMatchObject([
      { purpose: 'private', note: 'to the dentist', revision: 7 },
    ])
  })

  test('have miles that no trip saw as a line of their own, between the trips', async () => {
    const start = Date.UTC(2026, 2, 2, 8)
    await write(start, [...drive(1_000, 0), ...drive(1_038, 2 * hour)])
    const at = (second: number): Date => new Date(start + second * 1_000)
    expect(await ask('SELECT started, ended, distance, doubts FROM logbook')).toMatchObject([
      { started: at(0), distance: '20.000' },
      { started: at(hour / 2 + 1), ended: at(2 * hour), distance: '18.000', doubts: 'not recorded' },
      { started: at(2 * hour), distance: '20.000' },
    ])
  })

  test.each(tripHistories)('add up to all that the odometer grew: $name', async ({ says, sum }) => {
    await write(Date.UTC(2026, 2, 2, 8), says as Said) // oxlint-disable-line no-unsafe-type-assertion -- histories have only fields
    const [{ total }] = (await ask('SELECT sum(distance)::float8 AS total FROM logbook')) as [{ total: number }] // oxlint-disable-line no-unsafe-type-assertion -- the sum
    expect(total).toBeCloseTo(sum, 2)
  })
})

test('a trip of a vehicle that reports no energy has no doubt about it', () => {
  const [found] = trip.in(eventsOf(Date.UTC(2026, 2, 2, 8), drive(1_000, 0)))
  if (found === undefined) throw new Error('There is no trip.')
  expect(trip.doubts(found, undefined)).toContain('energy is not certain')
  const reports = (...fields: readonly string[]): never =>
    ({
      at: (field: string) => (fields.includes(field) ? new Date() : undefined),
      invalidSince: () => undefined,
    }) as never // oxlint-disable-line no-unsafe-type-assertion -- the part of a view that decides
  expect(trip.doubts(found, reports('Gear', 'Odometer'))).toEqual([])
  expect(trip.doubts(found, reports('Gear', 'Odometer', 'EnergyRemaining'))).toEqual(['energy is not certain'])
})
