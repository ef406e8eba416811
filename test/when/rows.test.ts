// What a row of an episode needs beside its numbers: why they may be wrong, and whether there is one.
import { join } from 'node:path'
import { createReceiver, type FieldValues, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { message } from 'fleethook/testing'
import { episode, is, span } from 'fleethook/when'
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

const said = (vin: string, hoursAgo: number, data: FieldValues): object =>
  message.data(data, { vin, createdAt: new Date(Date.now() - hoursAgo * hourMs).toISOString() })

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
