import { join } from 'node:path'
import { createReceiver, memoryInbox, type ReceiverOptions, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { fakeClock, type FakeClock, vehicle } from 'fleethook/testing'
import { below, drives, episode, span, starts } from 'fleethook/when'
import { expect, test } from 'vitest'
import { logInto } from '../dispatch/scene.ts'
import { newFolder } from '../folder.ts'
import { untidied } from '../when/stepping.ts'

const hourMs = 3_600_000
const startMs = Date.UTC(2026, 10, 21, 10)
const fields = ['BatteryLevel', 'Gear', 'VehicleSpeed', 'Odometer'] as const
const trip = episode('trip', { during: drives(), measures: { odometer: span('Odometer') } })

function scene(clock: FakeClock, inbox: ReceiverOptions['inbox'] = memoryInbox()) {
  const lines: string[] = []
  const receiver = createReceiver({ secret: false, log: logInto(lines), clock, inbox, parts: [vehicles({ fields })] })
    .when(trip, () => {})
    .when(starts(below('BatteryLevel', 20)), () => {})
  const said = (): readonly string[] => lines.filter((line) => line.includes('a field that rules name does not come'))
  const missing = (): readonly unknown[] =>
    receiver
      .stats()
      .fieldsMissing.map(({ field, edges, heard, never }) => `${field} of ${edges.join()}: ${never} of ${heard}`)
  return { receiver, said, missing, car: (vin: string) => vehicle(receiver, vin, { clock }) }
}

test('a field that a rule names and no vehicle sends for a day is logged once, with the rule, and in the figures', async () => {
  const clock = fakeClock()
  const { car, said, missing } = scene(clock)
  for (let hour = 0; hour < 24; hour += 1) {
    await car('A').data({ BatteryLevel: 90 - hour, Gear: null, VehicleSpeed: 0 })
    await clock.advance(hourMs)
  }
  expect([said(), missing()]).toEqual([[], []])
  for (let hour = 0; hour < 60; hour += 1) {
    await car('A').data({ BatteryLevel: 90 - hour, VehicleSpeed: 0 })
    await clock.advance(hourMs)
  }
  expect(missing()).toEqual(['Gear of trip: 1 of 1', 'Odometer of trip: 1 of 1'])
  expect(said()).toHaveLength(2)
  expect(said()[0]).toContain('Gear')
  for (let hour = 0; hour < 30; hour += 1) {
    await car('A').data({ BatteryLevel: hour, VehicleSpeed: 0, Gear: 'P', Odometer: hour })
    await clock.advance(hourMs)
  }
  expect(missing()).toEqual([])
  expect(said()).toHaveLength(2)
})

test('a field that one of two vehicles never sent is missing, and of one that is not heard nobody speaks', async () => {
  const clock = fakeClock()
  const { car, missing } = scene(clock)
  await car('silent').data({ BatteryLevel: 50 })
  for (let hour = 0; hour < 80; hour += 1) {
    await car('A').data({ BatteryLevel: 50, Gear: 'P', VehicleSpeed: 0, Odometer: 5 })
    await car('B').data({ BatteryLevel: 50, VehicleSpeed: 0, Gear: 'P' })
    await clock.advance(hourMs)
  }
  expect(missing()).toEqual(['Odometer of trip: 1 of 2'])
})

test('what is known of earlier processes counts', async () => {
  const path = join(newFolder('missing-fields'), 'inbox.db')
  const inbox = (): ReceiverOptions['inbox'] => untidied(sqliteInbox({ path }))
  const first = scene(fakeClock(startMs), inbox())
  await first.car('A').data({ BatteryLevel: 50 })
  await first.receiver.drain()
  const clock = fakeClock(startMs + 30 * hourMs)
  const next = scene(clock, inbox())
  await next.car('A').data({ BatteryLevel: 50 })
  await clock.advance(hourMs)
  await expect
    .poll(next.missing)
    .toEqual(['Gear of trip: 1 of 1', 'VehicleSpeed of trip: 1 of 1', 'Odometer of trip: 1 of 1'])
  await next.receiver.drain()
})
