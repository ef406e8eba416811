import { createReceiver, memoryInbox, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { fakeClock, type FakeClock, vehicle } from 'fleethook/testing'
import { becomes, below, type Edge, is, type Occurrence, silent as silentFor, starts } from 'fleethook/when'
import { describe, expect, test } from 'vitest'
import { newFolder } from '../folder.ts'
import { silent, unwatched } from '../vehicles/scene.ts'

const vin = '0FLEETV14T0000001'
const minute = 60_000
const parks = becomes('Gear', 'P')
const plugs = becomes('DetailedChargeState', 'Charging')

type Inbox = ReturnType<typeof memoryInbox>

async function begin(inbox: Inbox, edge: Edge, clock: FakeClock = unwatched(fakeClock()), told: number[] = []) {
  const beganMs = Date.parse('2026-11-21T10:00:00Z')
  const receiver = createReceiver({
    secret: false,
    clock,
    log: silent,
    inbox,
    parts: [vehicles({ fields: ['Gear', 'BatteryLevel', 'DetailedChargeState'] })] as const,
  }).when(
    edge,
    ({ change }: { readonly change: Occurrence }) =>
      void told.push(Math.round((change.at.getTime() - beganMs) / 6_000) / 10),
  )
  await receiver.open()
  const car = vehicle(receiver, vin, { clock })
  return { receiver, clock, told, car, wait: (minutes: number) => clock.advance(minutes * minute) }
}

const inboxes = {
  'in memory': () => memoryInbox(),
  'in SQLite': () => sqliteInbox({ path: `${newFolder('sequences')}/inbox.db` }),
}

describe.each(Object.entries(inboxes))('%s', (_, create) => {
  test('`cooldown` tells at most once in its time, for each vehicle, and not what happened in between', async () => {
    const { receiver, car, told, wait } = await begin(
      create(),
      starts(below('BatteryLevel', 20)).cooldown({ minutes: 30 }),
    )
    const other = vehicle(receiver, '0FLEETV14T0000002')
    await car.data({ BatteryLevel: 30 })
    for (let nth = 0; nth < 10; nth += 1) {
      await car.data({ BatteryLevel: 19 })
      await car.data({ BatteryLevel: 21 })
      await wait(10)
    }
    expect(told.map(Math.floor)).toEqual([0, 30, 60, 90])
    await other.data({ BatteryLevel: 30 })
    await other.data({ BatteryLevel: 10 })
    expect(told).toHaveLength(5)
    await receiver.drain()
  })

  test('`cooldown` counts what the conditions of `where` let through, in any order', async () => {
    for (const edge of [
      parks.cooldown({ hours: 1 }).where(below('BatteryLevel', 20)),
      parks.where(below('BatteryLevel', 20)).cooldown({ hours: 1 }),
    ]) {
      const { receiver, car, told, wait } = await begin(create(), edge)
      await car.data({ Gear: 'D', BatteryLevel: 50 })
      await car.data({ Gear: 'P' })
      await wait(10)
      await car.data({ Gear: 'D', BatteryLevel: 10 })
      await car.data({ Gear: 'P' })
      expect(told.map(Math.floor)).toEqual([10])
      await receiver.drain()
    }
  })

  test('`unless` happens when the other edge did not, at the end of its time', async () => {
    const { receiver, car, told, wait } = await begin(create(), parks.unless(plugs, { within: { minutes: 15 } }))
    await car.data({ Gear: 'D', DetailedChargeState: 'Disconnected' })
    await car.data({ Gear: 'P' })
    await wait(20)
    expect(told.map(Math.floor)).toEqual([15])
    await car.data({ Gear: 'D' })
    await car.data({ Gear: 'P' })
    await wait(5)
    await car.data({ DetailedChargeState: 'Charging' })
    await wait(60)
    expect(told).toHaveLength(1)
    await receiver.drain()
  })

  test('`followedBy` happens when the other edge does in time, and says when the first one was', async () => {
    const { receiver, car, told, wait } = await begin(create(), parks.followedBy(plugs, { within: { minutes: 15 } }))
    await car.data({ Gear: 'D', DetailedChargeState: 'Disconnected' })
    await car.data({ Gear: 'P' })
    await wait(5)
    await car.data({ DetailedChargeState: 'Charging' })
    expect(told.map(Math.floor)).toEqual([5])
    await car.data({ Gear: 'D', DetailedChargeState: 'Disconnected' })
    await car.data({ Gear: 'P' })
    await wait(16)
    await car.data({ DetailedChargeState: 'Charging' })
    expect(told).toHaveLength(1)
    await receiver.drain()
  })

  test('both can be made of edges that wait for a time themselves', async () => {
    const parked = starts(is('Gear', 'P')).after({ minutes: 10 })
    const { receiver, car, told, wait } = await begin(create(), parked.unless(plugs, { within: { minutes: 20 } }))
    await car.data({ Gear: 'D', DetailedChargeState: 'Disconnected' })
    await car.data({ Gear: 'P' })
    await wait(29)
    expect(told).toEqual([])
    await wait(2)
    expect(told.map(Math.floor)).toEqual([30])
    await receiver.drain()
    const quiet = await begin(create(), parks.followedBy(silentFor({ minutes: 30 }), { within: { hours: 1 } }))
    await quiet.car.data({ Gear: 'D' })
    await quiet.car.data({ Gear: 'P' })
    await quiet.wait(45)
    expect(quiet.told.map(Math.floor)).toEqual([30])
    await quiet.receiver.drain()
  })
})

test('they are known to the next process', async () => {
  const path = `${newFolder('sequences')}/inbox.db`
  const clock = unwatched(fakeClock())
  const told: number[] = []
  const edges = parks.unless(plugs, { within: { minutes: 15 } })
  const first = await begin(sqliteInbox({ path }), edges, clock, told)
  await first.car.data({ Gear: 'D' })
  await first.car.data({ Gear: 'P' })
  await first.receiver.drain()
  await clock.advance(5 * minute)
  const second = await begin(sqliteInbox({ path }), edges, clock, told)
  await clock.advance(20 * minute)
  expect(told.map(Math.floor)).toEqual([15])
  await second.receiver.drain()
})
