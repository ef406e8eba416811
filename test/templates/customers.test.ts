// The template `logbook`: each mile is in the row of who had the vehicle then, whenever that is told, and all of them add up.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { PGlite } from '@electric-sql/pglite'
import { createReceiver, type Receiver, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { deliver, fakeClock, message } from 'fleethook/testing'
import type { EpisodeEdge, EpisodeOccurrence, Fact } from 'fleethook/when'
import { uniformInt } from 'pure-rand/distribution/uniformInt'
import { xoroshiro128plus } from 'pure-rand/generator/xoroshiro128plus'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { newFolder } from '../folder.ts'
import { inForm } from '../form.ts'
import { silent, unwatched } from '../vehicles/scene.ts'

const template = join(import.meta.dirname, '../../examples/logbook')
type Save = (db: PGlite, found: EpisodeOccurrence, doubts: readonly string[]) => Promise<unknown>
/** A template has its own settings of the compiler. */
const episodes: {
  readonly trip: EpisodeEdge
  readonly charge: EpisodeEdge
  readonly customer: Fact
  readonly fields: readonly ('Gear' | 'Odometer')[]
} = await import(join(template, 'episodes.ts'))
const { saveCharge, saveTrip }: { readonly saveCharge: Save; readonly saveTrip: Save } = await import(
  join(template, 'rows.ts')
)
const { tellBookings }: { readonly tellBookings: (vehicles: object, pool: object) => Promise<void> } = await import(
  join(template, 'bookings.ts')
)
const { check }: { readonly check: (receiver: Receiver, db: PGlite) => Promise<void> } = await import(
  join(template, 'check.ts')
)

const vin = '0FLEETV14T0000004'
const minute = 60_000
let db: PGlite
beforeAll(async () => {
  db = await PGlite.create()
})
afterAll(() => db.close())
const rowsOf = async (sql: string): Promise<readonly Readonly<Record<string, unknown>>[]> =>
  (await db.query<Record<string, unknown>>(sql)).rows

async function begin(path: string) {
  // The nightly check asks the time of the machine.
  const clock = unwatched(fakeClock(Date.now() - 20 * 60 * minute))
  const beganMs = clock.now()
  const date = (minutes: number) => new Date(beganMs + minutes * minute)
  const { trip, charge, customer, fields } = episodes
  const receiver = createReceiver({
    secret: false,
    clock,
    log: silent,
    inbox: sqliteInbox({ path, retention: { settled: { forMs: 48 * 60 * minute } } }),
    parts: [vehicles({ fields, facts: [customer] })],
  })
    .when(trip, async ({ change, vehicle }) => {
      const [known] = await rowsOf(`SELECT customer FROM trips WHERE id = '${change.id}'`)
      if (known !== undefined)
        expect(Reflect.get(change, 'customer'), 'a row moves to another customer').toBe(known['customer'])
      await saveTrip(db, change, trip.doubts(change, vehicle))
    })
    .when(charge, async ({ change }) => void (await saveCharge(db, change, [])))
  await receiver.open()
  const pool = {
    connect: async () => ({ query: (sql: string, values: unknown[] = []) => db.query(sql, values), release() {} }),
  }
  const goTo = async (minutes: number) => {
    const ms = beganMs + minutes * minute - clock.now()
    if (ms > 0) await clock.advance(ms)
  }
  const send = async (data: Readonly<Record<string, unknown>>, at: number) => {
    await goTo(at)
    const sent = { ...message.data({}, { vin, createdAt: date(at).toISOString() }), data }
    await (
      await deliver(receiver, sent)
    ).settled
  }
  return {
    receiver,
    goTo,
    send,
    /** A mile a minute. */
    async drive(from: number, to: number, odometer: number) {
      await send({ Gear: 'P', Odometer: odometer }, from - 1)
      await send({ Gear: 'D' }, from)
      for (let at = from; at <= to; at += 1) await send({ Odometer: odometer + at - from }, at)
      await send({ Gear: 'P' }, to)
      await goTo(to + 10)
    },
    /** Changes the table, and tells the receiver. */
    async book(sql: string, ...times: number[]) {
      const values = times.map(date)
      await db.query(sql, values)
      await tellBookings(receiver.vehicles, pool)
      await clock.advance(0)
    },
    check: () => check(receiver, db),
    /** Miles by customer, and whether they are all that the odometer grew. */
    async miles(grew: number) {
      const rows = await rowsOf(
        'SELECT customer, distance::float8 AS miles FROM customers ORDER BY customer NULLS LAST',
      )
      const sum = rows.reduce((all, { miles }) => all + Number(miles), 0)
      expect(sum).toBeCloseTo(grew, 3)
      const [months] = await rowsOf('SELECT sum(distance)::float8 AS miles FROM months')
      expect(months?.['miles']).toBeCloseTo(grew, 3)
      return rows.map(({ customer, miles }) => `${String(customer)} ${Number(miles)}`)
    },
  }
}

const insert = (customer: string) =>
  `INSERT INTO bookings (vin, customer, starts, ends) VALUES ('${vin}', '${customer}', $1, $2)`

let scene: Awaited<ReturnType<typeof begin>>
async function renew() {
  await scene?.receiver.drain()
  await db.exec('DROP SCHEMA public CASCADE; CREATE SCHEMA public')
  for (const file of ['schema.sql', 'questions.sql']) await db.exec(readFileSync(join(template, file), 'utf8'))
  scene = await begin(`${newFolder('customers')}/inbox.db`)
}
beforeEach(renew)
afterEach(() => scene.receiver.drain())

test('a handover in the middle of a trip parts it, and what nobody booked is nobody’s', async () => {
  const { book, drive, miles } = scene
  await book(insert('c-1'), 0, 25)
  await book(insert('c-2'), 25, 60)
  await drive(10, 40, 1_000)
  await drive(100, 110, 1_030)
  expect(await miles(40)).toEqual(['c-1 15', 'c-2 15', 'null 10'])
})

test('a booking that is written late, then changed and at last deleted corrects the rows of then', async () => {
  const { book, drive, miles, goTo } = scene
  await drive(10, 40, 1_000)
  expect(await miles(30)).toEqual(['null 30'])
  await book(insert('c-1'), 0, 60)
  await goTo(60)
  expect(await miles(30)).toEqual(['c-1 30'])
  await book(`UPDATE bookings SET ends = $1`, 25)
  await goTo(70)
  expect(await miles(30)).toEqual(['c-1 15', 'null 15'])
  await book(`DELETE FROM bookings`)
  await goTo(80)
  expect(await miles(30)).toEqual(['null 30'])
})

test('miles that no trip saw are the customer’s who had all of that time, and otherwise nobody’s', async () => {
  const { book, drive, miles } = scene
  await book(insert('c-1'), 0, 300)
  await book(insert('c-2'), 300, 400)
  await drive(10, 20, 1_000)
  await drive(100, 110, 1_014)
  await drive(320, 330, 1_031)
  expect(await miles(41)).toEqual(['c-1 24', 'c-2 10', 'null 7'])
})

test('a value that comes after the handover belongs to who had the vehicle when it was sent', async () => {
  const { book, send, miles, goTo } = scene
  await book(insert('c-1'), 0, 41)
  await book(insert('c-2'), 41, 90)
  await send({ Gear: 'P', Odometer: 1_000 }, 9)
  await send({ Gear: 'D' }, 10)
  await send({ Odometer: 1_020 }, 30)
  await send({ Gear: 'P' }, 40)
  await goTo(50)
  await send({ Odometer: 1_030 }, 50)
  await goTo(70)
  const rows = await miles(30)
  expect(rows).toEqual(['c-1 30'])
})

test('each night, rows of a booking that came too late for a correction go to its customer', async () => {
  const { book, drive, miles, goTo, check } = scene
  await book(insert('c-1'), 0, 60)
  await drive(10, 40, 1_000)
  await goTo(17 * 60)
  await book(`UPDATE bookings SET ends = $1`, 25)
  await book(insert('c-2'), 25, 60)
  await goTo(18 * 60)
  await check()
  expect(await miles(30)).toEqual(['c-1 15', 'c-2 15'])
  await check()
  expect(await miles(30)).toEqual(['c-1 15', 'c-2 15'])
})

test('a booking of a time that is booked is refused, and says by whom', async () => {
  const { book } = scene
  await book(insert('c-1'), 0, 60)
  await expect(book(insert('c-2'), 59, 90)).rejects.toThrow(`${vin} is booked by c-1 from`)
  await expect(book(insert('c-2'), 90, 60)).rejects.toThrow('a_booking_ends_after_it_starts')
  await book(insert('c-2'), 60, 90)
})

test('random bookings, told before, during and after the trips: each mile is with the customer of that minute', async () => {
  const seeds = inForm({ short: [1], real: [1, 2, 3], full: Array.from({ length: 40 }, (_, nth) => nth) })
  for (const seed of seeds) {
    if (seed !== seeds[0]) await renew()
    const { book, drive, miles, goTo } = scene
    const random = xoroshiro128plus(seed)
    const between = (least: number, most: number) => uniformInt(random, least, most)
    // One after the other, with times between them that nobody has booked.
    const bookings: { readonly from: number; readonly until: number; readonly name: string; readonly told: number }[] =
      []
    for (let at = between(0, 15), nth = 0; at < 120; nth += 1) {
      const until = at + between(5, 30)
      bookings.push({ from: at, until, name: `c-${nth % 3}`, told: between(0, 5) })
      at = until + (between(0, 1) === 0 ? 0 : between(1, 15))
    }
    const tell = async (when: number) => {
      for (const { name, from, until, told } of bookings) if (told === when) await book(insert(name), from, until)
    }
    let [odometer, at] = [1_000, between(3, 8)]
    const driven: [from: number, to: number][] = []
    for (let nth = 0; nth < 3; nth += 1) {
      await tell(nth)
      const to = at + between(8, 25)
      await drive(at, to, odometer)
      driven.push([at, to])
      odometer += to - at
      at = to + between(11, 16)
    }
    for (const when of [3, 4, 5]) await tell(when)
    await goTo(at + 15)
    const expected = new Map<string, number>()
    for (const [from, to] of driven)
      for (let minuteOf = from; minuteOf < to; minuteOf += 1) {
        const name = bookings.find((each) => each.from <= minuteOf && minuteOf < each.until)?.name ?? 'null'
        expected.set(name, (expected.get(name) ?? 0) + 1)
      }
    const rows = [...expected].map(([name, sum]) => `${name} ${sum}`).toSorted()
    expect((await miles(odometer - 1_000)).toSorted(), `seed ${seed}`).toEqual(rows)
  }
})

test('a charge with a handover is two rows, with all of its energy and its cost', async () => {
  const { book, send, goTo } = scene
  await book(insert('c-1'), 0, 41)
  await book(insert('c-2'), 41, 200)
  await send(
    {
      DetailedChargeState: 'Disconnected',
      BatteryLevel: 40,
      LocatedAtHome: true,
      Location: { latitude: 52, longitude: 5 },
    },
    5,
  )
  await send({ DetailedChargeState: 'Charging', ACChargingEnergyIn: 0, DCChargingEnergyIn: 0 }, 10)
  for (let at = 12; at <= 70; at += 2)
    await send({ ACChargingEnergyIn: (at - 10) / 6, DCChargingEnergyIn: ((at - 10) / 6) * 0.95 }, at)
  await send({ DetailedChargeState: 'Complete' }, 70)
  await goTo(120)
  expect(await rowsOf('SELECT customer, kwh::float8, cost::float8 FROM charging_costs ORDER BY started')).toEqual([
    { customer: 'c-1', kwh: 5, cost: 1.5 },
    { customer: 'c-2', kwh: 5, cost: 1.5 },
  ])
})
