// What a row of an episode needs beside its numbers: why they may be wrong, and whether there is one.
import { join } from 'node:path'
import { createReceiver, type FieldValues, type FleetEvent, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { normalize } from 'fleethook/normalize'
import { message } from 'fleethook/testing'
import { episode, is, rulesFor, span } from 'fleethook/when'
import { expect, test } from 'vitest'
import { newFolder } from '../folder.ts'

const log = { debug() {}, info() {}, warn() {}, error() {} }
const trip = episode('trip', {
  during: is('Gear', 'D'),
  measures: { odometer: span('Odometer'), energy: span('EnergyRemaining') },
})
const hourMs = 3_600_000

function started() {
  return createReceiver({
    secret: false,
    log,
    inbox: sqliteInbox({ path: join(newFolder('rows'), 'inbox.db') }),
    parts: [vehicles({ fields: ['Gear', 'Odometer', 'EnergyRemaining'] })],
  })
}

const said = (vin: string, hoursAgo: number, data: object): object => ({
  ...message.data({}, { vin, createdAt: new Date(Date.now() - hoursAgo * hourMs).toISOString() }),
  data,
})

test('`within` finds the episodes of all vehicles that began in a time, from the messages that the inbox keeps', async () => {
  const receiver = started().when(trip, () => {})
  for (const vin of ['A', 'B'])
    for (const [hoursAgo, data] of [
      [9, { Gear: 'P', Odometer: 990 }],
      [8, { Gear: 'D', Odometer: 990 }],
      [7.5, { Gear: 'P', Odometer: 1_000 }],
      [5, { Gear: 'D' }],
      [4.5, { Gear: 'P', Odometer: 1_010 }],
    ] as const)
      await receiver.accept({ headers: {}, body: said(vin, hoursAgo, data) })
  await expect.poll(() => receiver.stats().handled).toBe(10)
  const found = await Array.fromAsync(
    trip.within(receiver, { from: new Date(Date.now() - 6 * hourMs), to: new Date(Date.now() - 2 * hourMs) }),
  )
  // What was before the time is known: the state in which it begins, and the odometer.
  expect(found).toMatchObject(['A', 'B'].map((vin) => ({ vin, odometer: { from: 1_000, to: 1_010 } })))
  await receiver.drain()
})

test('limits of fields of your own count in episodes: when they are told, in `within`, and in `in` with a vehicle', async () => {
  const fields = { FuelUsed: { number: { counter: true, least: 0, atOnce: 1, perMinute: 1 } } } as const
  const drive = episode('drive', { during: is('Gear', 'D'), measures: { fuel: rulesFor(fields).span('FuelUsed') } })
  const told: unknown[] = []
  const receiver = createReceiver({
    ...{ secret: false, log, fields, inbox: sqliteInbox({ path: join(newFolder('own'), 'inbox.db') }) },
    parts: [vehicles({ fields: ['Gear', 'FuelUsed'] })],
  }).when(drive, ({ change }) => void told.push(change.fuel))
  const events: FleetEvent[] = []
  for (const [hoursAgo, data] of [
    [3, { Gear: 'P', FuelUsed: 700 }],
    [2, { Gear: 'D' }],
    [1.9, { FuelUsed: 702 }],
    // Odd, and nothing comes after it.
    [1.5, { FuelUsed: 70_020 }],
    [1, { Gear: 'P' }],
  ] as const) {
    const body = said('A', hoursAgo, data)
    events.push(...normalize(body))
    await receiver.accept({ headers: {}, body })
  }
  const whole = { from: 700, to: 702 }
  await expect.poll(() => told).toMatchObject([whole])
  const time = { from: new Date(Date.now() - 9 * hourMs), to: new Date() }
  expect(await Array.fromAsync(drive.within(receiver, time))).toMatchObject([{ fuel: whole, missing: ['fuel'] }])
  expect(drive.in(events, await receiver.vehicles.get('A'))).toMatchObject([{ fuel: whole }])
  expect(drive.in(events)).toMatchObject([{ fuel: { to: 70_020 } }])
  await receiver.drain()
})

test('`doubts` says why a number may be wrong, of those measures that are asked for, and of fields that the vehicle reports', async () => {
  const told: (readonly string[])[] = []
  const receiver = started().when(trip, ({ change, vehicle }) => {
    told.push(trip.doubts(change, vehicle), trip.doubts(change, vehicle, ['energy']), trip.doubts(change, undefined))
  })
  const says = async (hoursAgo: number, data: FieldValues): Promise<void> => {
    await receiver.accept({ headers: {}, body: said('A', hoursAgo, data) })
  }
  await says(9, { Gear: 'P' })
  await says(8, { Gear: 'D', Odometer: 990 })
  await says(7.5, { Gear: 'P' })
  await says(7, { Gear: 'P' })
  const isUncertain = 'odometer is not certain'
  await expect.poll(() => told).toEqual([[isUncertain], [], [isUncertain, 'energy is not certain']])
  await receiver.drain()
})
