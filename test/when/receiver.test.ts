import { createReceiver, type Receiver, vehicles } from 'fleethook'
import { vehicle } from 'fleethook/testing'
import { alertStarts, all, becomes, below, changed, circle, comesOnline, inside, is, starts } from 'fleethook/when'
import { describe, expect, test } from 'vitest'

const vin = '0FLEETV14T0000004'
const place = { latitude: 52.3731, longitude: 4.8926 }
const depot = circle({ ...place, radiusMeters: 200 })

describe('`vehicle` of fleethook/testing', () => {
  test('sets a state with its first message and sends changes with the next, and each call waits for the handlers', async () => {
    const seen: unknown[] = []
    const receiver = createReceiver({ secret: 'x', parts: [vehicles({ fields: 'all' })] })
      .when(
        starts(all(is('DetailedChargeState', 'Charging'), inside(depot), below('BatteryLevel', 20))),
        async (happening) => {
          await new Promise((resolve) => setTimeout(resolve, 1))
          seen.push([happening.vin, happening.vehicle.value('BatteryLevel')])
        },
      )
      .when(comesOnline(), ({ change }) => seen.push(change.at.toISOString()))
      .when(alertStarts('Low'), ({ change }) => seen.push(change.alerts.length))
    const car = vehicle(receiver, vin, { secret: 'x' })
    await car.data({ BatteryLevel: 15, Location: place, DetailedChargeState: 'Stopped' })
    expect(seen).toEqual([])
    await car.data({ DetailedChargeState: 'Charging' })
    expect(seen).toEqual([[vin, 15]])
    await car.state('asleep')
    await car.state('online')
    await car.alerts([{ name: 'Low' }])
    expect(seen.slice(1)).toEqual(['2026-11-21T10:00:03.000Z', 1])
  })

  test('rejects when the receiver does not take the message', async () => {
    const receiver = createReceiver({ secret: 'x', parts: [vehicles({ fields: 'all' })], log: silent })
    await expect(vehicle(receiver, vin, { secret: 'y' }).state('online')).rejects.toMatchObject({
      code: 'message_unreadable',
      message: expect.stringContaining('The receiver answered with status 403'),
    })
  })
})

const silent = { debug() {}, info() {}, warn() {}, error() {} }

test.each<readonly [name: string, register: (receiver: Receiver) => unknown, message: string, hint: string]>([
  [
    'a field that is not kept',
    (receiver) => receiver.when(becomes('Gear', 'P'), () => {}),
    'reads `Gear`, which is not among',
    "Add 'Gear'",
  ],
  [
    'a field of a condition that is not kept',
    (receiver) => receiver.when(changed('Soc').where(is('Gear', 'P')), () => {}),
    'reads `Gear`',
    "Add 'Gear'",
  ],
  [
    'a misspelled field',
    (receiver) => receiver.when(changed('BateryLevel' as never), () => {}),
    'BateryLevel',
    'BatteryLevel',
  ],
  ['a condition', (receiver) => receiver.when(is('Soc', 1) as never, () => {}), 'is not an edge', 'starts(…)'],
  [
    'a name that two edges have',
    (receiver) => receiver.when(changed('Soc').named('x'), () => {}).when(comesOnline().named('x'), () => {}),
    'Two different edges have the name `x`',
    'another name',
  ],
])('%s is refused at registration', (_, register, text, hint) => {
  const receiver = createReceiver({ secret: false, parts: [vehicles({ fields: ['Soc'] })], log: silent })
  expect(() => register(receiver)).toThrow(
    expect.objectContaining({
      code: 'handler_invalid',
      message: expect.stringContaining(text),
      hint: expect.stringContaining(hint),
    }),
  )
})

test('with ten thousand rules over places, a message is checked only against those of its place', async () => {
  let looks = 0
  const receiver: Receiver = createReceiver({ secret: false, parts: [vehicles({ fields: 'all' })], log: silent })
  for (let index = 0; index < 10_000; index++) {
    const area = circle({ latitude: (index % 100) / 10, longitude: Math.floor(index / 100) / 10, radiusMeters: 2_000 })
    const edge = starts(all(inside(area), is('Gear', 'P'), below('BatteryLevel', 20)))
    receiver.when({ ...edge, detect: (step) => ((looks += 1), edge.detect(step)) }, () => {})
  }
  const seen: string[] = []
  const here = circle({ latitude: 5, longitude: 5, radiusMeters: 100 })
  receiver.when(starts(all(inside(here), below('BatteryLevel', 20))), ({ change }) =>
    seen.push(change.at.toISOString()),
  )
  const car = vehicle(receiver, vin)
  await car.data({ Gear: 'P', BatteryLevel: 30, Location: { latitude: 5, longitude: 5 } })
  // The first position is new to all of them.
  expect(looks).toBe(10_000)
  looks = 0
  await car.data({ BatteryLevel: 19 })
  await car.data({ Location: { latitude: 6, longitude: 6 } })
  // A place so far away counts when the next value confirms it.
  await car.data({ Location: { latitude: 6.001, longitude: 6 } })
  await car.data({ Location: { latitude: 5.05, longitude: 5.05 } })
  await car.data({ Location: { latitude: 5.051, longitude: 5.05 } })
  await car.data({ BatteryLevel: 18 })
  expect(seen).toEqual(['2026-11-21T10:00:01.000Z'])
  expect(looks).toBe(4)
})
