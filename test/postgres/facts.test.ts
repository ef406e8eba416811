/* Facts of vehicles over several processes. */
import { createReceiver, vehicles } from 'fleethook'
import { type PostgresInboxOptions, postgresInbox } from 'fleethook/inbox/postgres'
import { all, below, changed, episode, fact, has, is, span, starts } from 'fleethook/when'
import { describe, expect, test } from 'vitest'
import { hasPostgres } from '../once/servers.ts'
import { quiet } from './quiet.ts'
import { sceneOfFile, vinOf } from './scene.ts'

const customer = fact('customer', 'string')
const lowBattery = fact('lowBattery', 'number')
const booking = fact('booking', 'string')

describe.skipIf(!hasPostgres)('facts on postgresInbox', () => {
  const scene = sceneOfFile()
  const told: string[] = []
  const ids: string[] = []

  function keeping(schema: string, options: Partial<PostgresInboxOptions> = {}) {
    const inbox = postgresInbox({ db: scene.newPool(), schema, leaseMs: 6_000, ...options })
    const parts = [
      vehicles({ fields: ['BatteryLevel', 'Gear', 'Odometer'], facts: [customer, lowBattery, booking] }),
    ] as const
    const note =
      (name: string) =>
      ({ vin, id }: { readonly vin: string; readonly id: string }) => {
        told.push(`${vin} ${name}`)
        ids.push(id)
      }
    return createReceiver({ secret: false, inbox, log: quiet, parts })
      .when(starts(below('BatteryLevel', lowBattery)), note('low'))
      .when(starts(all(has(booking), below('BatteryLevel', 101))), note('booked'))
      .when(changed(customer), note('customer'))
  }

  const count = (name: string): number => told.filter((each) => each.endsWith(` ${name}`)).length

  test('any process sets a fact, also one that only receives, and each edge is told once, with one id', async () => {
    await scene.prepare('facts')
    const [one, other, front] = [keeping('facts'), keeping('facts'), keeping('facts', { role: 'receive' })]
    await Promise.all([one, other, front].map((each) => each.open()))
    const vins = Array.from({ length: 20 }, (_, nth) => vinOf(nth + 1))
    for (const vin of vins) {
      const body = { vin, createdAt: new Date().toISOString(), data: { BatteryLevel: 50 } }
      expect((await front.accept({ authorization: undefined, body })).status).toBe(200)
    }
    for (const [nth, vin] of vins.entries())
      await [one, other, front][nth % 3]?.vehicles.set(vin, { lowBattery: 60, customer: `c-${nth}` })
    await expect.poll(() => count('low')).toBe(20)
    await expect.poll(() => count('customer')).toBe(20)
    // A process that only receives knows what is stored, which is a moment after it was told.
    await expect
      .poll(async () => (await Array.fromAsync(front.vehicles.list())).map((vehicle) => vehicle.fact(customer)))
      .toEqual(vins.map((_, nth) => `c-${nth}`))
    // The table of the business, from a process that only receives: two differ, and one is gone.
    const rows = vins.slice(0, 19).map((vin, nth) => ({ vin, customer: nth < 2 ? 'c-new' : `c-${nth}` }))
    await expect.poll(async () => (await front.vehicles.setAll([], { facts: ['booking'] })).told).toBe(0)
    expect(await front.vehicles.setAll(rows)).toEqual({ told: 3 })
    await expect.poll(() => count('customer')).toBe(23)
    expect(new Set(ids).size).toBe(ids.length)
    await Promise.all([one, other, front].map((each) => each.drain()))
  })

  test('a plan that one process keeps begins and ends in another one', async () => {
    await scene.prepare('plans')
    const vin = vinOf(77)
    const one = keeping('plans')
    await one.open()
    const body = { vin, createdAt: new Date().toISOString(), data: { BatteryLevel: 50 } }
    expect((await one.accept({ authorization: undefined, body })).status).toBe(200)
    // Late enough for the first process to stop before it, also on a busy machine.
    const from = new Date(Date.now() + 10_000)
    await one.vehicles.set(vin, { booking: 'b-7' }, { from, until: new Date(from.getTime() + 1_000) })
    await one.drain()
    expect(count('booked')).toBe(0)
    const other = keeping('plans')
    await other.open()
    await expect.poll(() => count('booked')).toBe(1)
    await expect.poll(async () => (await other.vehicles.get(vin))?.fact(booking)).toBeUndefined()
    await other.drain()
  })

  test('a trip with a handover is told as two, whichever process handles its messages', async () => {
    await scene.prepare('apart')
    const vin = vinOf(78)
    const rows: string[] = []
    const trip = episode('trip', {
      during: is('Gear', 'D'),
      by: [customer],
      measures: { odometer: span('Odometer') },
    })
    const made = ['one', 'other'].map(() =>
      keeping('apart').when(
        trip,
        ({ change }) => void rows.push(`${change.customer} ${change.odometer.from} ${change.odometer.to}`),
      ),
    )
    await Promise.all(made.map((each) => each.open()))
    const [one, other] = made
    const startMs = Date.now() - 600_000
    await one?.vehicles.set(vin, { customer: 'c-1' }, { from: new Date(startMs - 600_000) })
    await other?.vehicles.set(vin, { customer: 'c-2' }, { from: new Date(startMs + 150_000) })
    for (let minute = 0; minute <= 5; minute += 1) {
      const data = { Odometer: 100 + minute, Gear: minute === 5 ? 'P' : 'D' }
      const body = {
        vin,
        createdAt: new Date(startMs + minute * 60_000).toISOString(),
        data: minute === 0 ? { ...data, Gear: 'D' } : data,
      }
      if (minute === 0)
        await one?.accept({
          authorization: undefined,
          body: { ...body, createdAt: new Date(startMs - 60_000).toISOString(), data: { Gear: 'P', Odometer: 100 } },
        })
      expect((await made[minute % 2]?.accept({ authorization: undefined, body }))?.status).toBe(200)
    }
    await expect.poll(() => rows).toEqual(['c-1 100 102', 'c-2 102 105'])
    await Promise.all(made.map((each) => each.drain()))
  })
})
