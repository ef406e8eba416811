import { createReceiver, memoryInbox, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { deliver, type FakeClock, fakeClock, message } from 'fleethook/testing'
import { all, below, changed, circle, fact, has, inside, is, not, starts } from 'fleethook/when'
import { describe, expect, test } from 'vitest'
import { silent, unwatched } from './scene.ts'
import { newFolder } from '../folder.ts'

const vin = '0FLEETV14T0000001'
const customer = fact('customer', 'string')
const lowBattery = fact('lowBattery', 'number')
const booking = fact('booking', 'string')
const home = fact('home', 'area')
const driving = is('Gear', 'D')
const minute = 60_000

const inboxes = {
  'in memory': () => memoryInbox(),
  'in SQLite': () => sqliteInbox({ path: `${newFolder('facts')}/inbox.db` }),
}

type Scene = ReturnType<typeof scene>

function scene(inbox: ReturnType<typeof memoryInbox>, clock: FakeClock = unwatched(fakeClock())) {
  const told: string[] = []
  const receiver = createReceiver({
    secret: false,
    clock,
    log: silent,
    inbox,
    retry: { attempts: 1 },
    parts: [
      vehicles({ fields: ['BatteryLevel', 'Gear', 'Location'], facts: [customer, lowBattery, booking, home] }),
    ] as const,
  })
  const note =
    (name: string) =>
    ({ change }: { readonly change: { readonly at: Date } }) =>
      void told.push(`${name} ${change.at.toISOString().slice(11, 19)}`)
  receiver
    .when(starts(below('BatteryLevel', lowBattery)), note('low'))
    .when(starts(inside(home)), note('home'))
    .when(starts(not(inside(home))), note('away'))
    .when(starts(all(driving, not(has(booking)))).after({ minutes: 5 }), note('unbooked'))
    .when(starts(has(booking)), note('booked'))
    .when(
      changed(customer),
      ({ change, vehicle }) => void told.push(`${change.from} > ${change.to} ${vehicle.fact(customer)}`),
    )
  return {
    receiver,
    clock,
    told,
    async send(data: Readonly<Record<string, unknown>>, agoMs = 0, of = vin) {
      const createdAt = new Date(clock.now() - agoMs).toISOString()
      const { settled } = await deliver(receiver, { ...message.data({}, { vin: of, createdAt }), data })
      await settled
    },
    async set(...given: Parameters<typeof receiver.vehicles.set>) {
      await receiver.vehicles.set(...given)
      await clock.advance(0)
    },
    at: (minutes: number) => new Date(clock.now() + minutes * minute),
  }
}

describe.each(Object.entries(inboxes))('%s', (_, create) => {
  const begun = async (): Promise<Scene> => {
    const made = scene(create())
    await made.receiver.open()
    return made
  }

  test('a limit that changes around a parked vehicle starts its rule at once', async () => {
    const { send, set, told, receiver } = await begun()
    await send({ BatteryLevel: 30 })
    await set(vin, { lowBattery: 25 })
    expect(told).toEqual([])
    await set(vin, { lowBattery: 40 })
    expect(told.map((each) => each.split(' ')[0])).toEqual(['low'])
    await set(vin, { lowBattery: null })
    await set(vin, { lowBattery: 40 })
    expect(told).toHaveLength(2)
    await receiver.drain()
  })

  test('an area that changes around a parked vehicle starts and ends its rule at once', async () => {
    const { send, set, told, receiver } = await begun()
    await send({ Location: { latitude: 52.37, longitude: 4.89 } })
    await set(vin, { home: circle({ latitude: 52.37, longitude: 4.89, radiusMeters: 500 }) })
    await set(vin, { home: { latitude: 53.37, longitude: 4.89, radiusMeters: 500 } })
    expect(told.map((each) => each.split(' ')[0])).toEqual(['home', 'away'])
    await receiver.drain()
  })

  test('a plan begins and ends by itself, and nothing of it is told early', async () => {
    const { send, set, told, receiver, at, clock } = await begun()
    await send({ Gear: 'D' })
    await set(vin, { booking: 'b-7' }, { from: at(10), until: at(20) })
    await clock.advance(9 * minute)
    expect(told).toEqual([])
    await clock.advance(2 * minute)
    expect(told.map((each) => each.split(' ')[0])).toEqual(['booked'])
    await clock.advance(14 * minute)
    expect((await receiver.vehicles.get(vin))?.fact(booking)).toBeUndefined()
    await clock.advance(5 * minute)
    await receiver.drain()
  })

  test('a customer that changes is told with both', async () => {
    const { set, told, receiver } = await begun()
    await set(vin, { customer: 'c-1' })
    await set(vin, { customer: 'c-2' })
    await set(vin, { customer: 'c-2' })
    expect(told).toEqual(['undefined > c-1 c-1', 'c-1 > c-2 c-2'])
    const vehicle = await receiver.vehicles.get(vin)
    expect(vehicle?.seenAt).toBeUndefined()
    expect(vehicle?.fact(customer)).toBe('c-2')
    await receiver.drain()
  })
})
