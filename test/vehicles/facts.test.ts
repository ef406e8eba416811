import { createReceiver, memoryInbox, vehicles } from 'fleethook'
import { branch } from 'fleethook/branch'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { deliver, type FakeClock, fakeClock, message } from 'fleethook/testing'
import { all, below, changed, circle, fact, has, inside, is, not, silent as silentFor, starts } from 'fleethook/when'
import type { Fact } from 'fleethook/when'
import { describe, expect, test } from 'vitest'
import { silent, unwatched } from './scene.ts'
import { newFolder } from '../folder.ts'

/** A clock that can jump over what is due, as if the process had slept. */
function jumping(): FakeClock & { jump(ms: number): void } {
  const clock = unwatched(fakeClock())
  let jumpedMs = 0
  return { ...clock, now: () => clock.now() + jumpedMs, jump: (ms) => void (jumpedMs += ms) }
}

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

interface SceneOptions {
  readonly failing?: { fails: boolean }
  readonly forgetAfterMs?: number
}

function scene(
  inbox: ReturnType<typeof memoryInbox>,
  clock = jumping(),
  { failing = { fails: false }, forgetAfterMs }: SceneOptions = {},
) {
  const told: string[] = []
  const ids: string[] = []
  const topics: string[] = []
  const receiver = createReceiver({
    secret: false,
    clock,
    log: silent,
    inbox,
    retry: { attempts: 1 },
    parts: [
      vehicles({
        fields: ['BatteryLevel', 'Gear', 'Location'],
        facts: [customer, lowBattery, booking, home],
        ...(forgetAfterMs === undefined ? {} : { forgetAfterMs }),
      }),
    ] as const,
  })
  const note =
    (name: string) =>
    ({ change, id }: { readonly change: { readonly at: Date }; readonly id: string }) => {
      told.push(`${name} ${change.at.toISOString().slice(11, 19)}`)
      ids.push(id)
      if (failing.fails) throw new Error('as the test wishes')
    }
  receiver
    .when(starts(below('BatteryLevel', lowBattery)), note('low'))
    .when(starts(inside(home)), note('home'))
    .when(starts(not(inside(home))), note('away'))
    .when(starts(all(driving, not(has(booking)))).after({ minutes: 5 }), note('unbooked'))
    .on('*', ({ topic }) => void topics.push(topic))
    .when(starts(has(booking)), note('booked'))
    .when(silentFor({ hours: 1 }), note('silent'))
    .when(
      changed(customer),
      ({ change, vehicle }) => void told.push(`${change.from} > ${change.to} ${vehicle.fact(customer)}`),
    )
  return {
    receiver,
    clock,
    told,
    ids,
    topics,
    now: async <Value>(of: Fact<string, Value>) => (await receiver.vehicles.get(vin))?.fact(of),
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

const words = (told: readonly string[]): readonly string[] => told.map((each) => each.split(' ')[0] ?? '')

describe.each(Object.entries(inboxes))('%s', (_, create) => {
  const begun = async (options: Parameters<typeof scene>[2] = {}): Promise<Scene> => {
    const made = scene(create(), undefined, options)
    await made.receiver.open()
    return made
  }

  test('a limit that changes around a parked vehicle starts its rule at once', async () => {
    const { send, set, told, receiver } = await begun()
    await send({ BatteryLevel: 30 })
    await set(vin, { lowBattery: 25 })
    expect(told).toEqual([])
    await set(vin, { lowBattery: 40 })
    expect(words(told)).toEqual(['low'])
    await set(vin, { lowBattery: null })
    await set(vin, { lowBattery: 40 })
    expect(words(told)).toEqual(['low', 'low'])
    await receiver.drain()
  })

  test('an area that changes around a parked vehicle starts and ends its rule at once', async () => {
    const { send, set, told, receiver } = await begun()
    await send({ Location: { latitude: 52.37, longitude: 4.89 } })
    await set(vin, { home: circle({ latitude: 52.37, longitude: 4.89, radiusMeters: 500 }) })
    await set(vin, { home: { latitude: 53.37, longitude: 4.89, radiusMeters: 500 } })
    expect(words(told)).toEqual(['home', 'away'])
    await receiver.drain()
  })

  test('a fact for the future begins and ends by itself, each at its own time, and what was there before holds again', async () => {
    const { send, set, told, receiver, at, clock, now } = await begun()
    await send({ Gear: 'D' })
    await set(vin, { booking: 'b-0' })
    await set(vin, { booking: 'b-7' }, { from: at(10), until: at(20) })
    await clock.advance(9 * minute)
    expect(await now(booking)).toBe('b-0')
    await clock.advance(2 * minute)
    expect(await now(booking)).toBe('b-7')
    await clock.advance(10 * minute)
    expect(await now(booking)).toBe('b-0')
    expect(words(told)).toEqual(['booked'])
    await receiver.drain()
  })

  test('what is planned is told before the next message, whatever comes first', async () => {
    const { send, set, told, receiver, at, clock } = await begun()
    await send({ BatteryLevel: 30 })
    await set(vin, { lowBattery: 40 }, { from: at(10) })
    await send({ Gear: 'P' })
    const stored = at(10).toISOString().slice(11, 19)
    clock.jump(15 * minute)
    await send({ BatteryLevel: 90 })
    expect(told).toEqual([`low ${stored}`])
    await receiver.drain()
  })

  test('a customer that changes is told with both', async () => {
    const { set, told, receiver } = await begun()
    await set(vin, { customer: 'c-1' })
    await set(vin, { customer: 'c-2' })
    await set(vin, { customer: 'c-2' })
    expect(told).toEqual(['undefined > c-1 c-1', 'c-1 > c-2 c-2'])
    await receiver.drain()
  })

  test('a fact is by the business’s clock, and no sign of the vehicle: it ends no silence and is not when it was seen', async () => {
    const { send, set, told, receiver, clock } = await begun()
    await set(vin, { customer: 'c-1' })
    expect((await receiver.vehicles.get(vin))?.seenAt).toBeUndefined()
    await send({ Gear: 'P' })
    const seenAt = (await receiver.vehicles.get(vin))?.seenAt
    await clock.advance(50 * minute)
    await set(vin, { customer: 'c-2' })
    expect((await receiver.vehicles.get(vin))?.seenAt).toEqual(seenAt)
    await clock.advance(10 * minute)
    expect(words(told)).toContain('silent')
    await receiver.drain()
  })

  test('edges decide late telemetry by what holds now, and a handler can ask what held then', async () => {
    const { send, set, receiver, clock, told, at } = await begun()
    await send({ BatteryLevel: 80 })
    await set(vin, { lowBattery: 10 })
    const then = at(5)
    await clock.advance(10 * minute)
    await set(vin, { lowBattery: 40 })
    await send({ BatteryLevel: 30 }, 5 * minute)
    expect(words(told)).toEqual(['low'])
    expect((await receiver.vehicles.get(vin))?.fact(lowBattery, then)).toBe(10)
    await receiver.drain()
  })

  test('a fact for the past changes the time line, not what is newer, and edges see nothing of it', async () => {
    const { set, receiver, told, at, now } = await begun()
    await set(vin, { customer: 'c-1' }, { from: at(-60) })
    await set(vin, { customer: 'c-3' }, { from: at(-20) })
    const before = told.length
    await set(vin, { customer: 'c-2' }, { from: at(-40) })
    expect(told).toHaveLength(before)
    const vehicle = await receiver.vehicles.get(vin)
    expect([-50, -30, -10].map((minutes) => vehicle?.fact(customer, at(minutes)))).toEqual(['c-1', 'c-2', 'c-3'])
    expect(await now(customer)).toBe('c-3')
    await receiver.drain()
  })

  test('without a fact, `has` and each comparison are false, and `not` of them is true', async () => {
    const { send, set, told, receiver } = await begun()
    await send({ Location: { latitude: 52.37, longitude: 4.89 }, BatteryLevel: 5 })
    await set(vin, { home: { latitude: 53.37, longitude: 4.89, radiusMeters: 500 } })
    await set(vin, { home: { latitude: 52.37, longitude: 4.89, radiusMeters: 500 } })
    await set(vin, { home: null })
    expect(words(told)).toEqual(['home', 'away'])
    await receiver.drain()
  })

  test('what `after` waits for ends with the limit, and begins again at its `from`', async () => {
    const { send, set, told, receiver, clock, at } = await begun()
    const unbooked = (): readonly string[] => told.filter((each) => each.startsWith('unbooked'))
    await send({ Gear: 'P' })
    await send({ Gear: 'D' })
    await clock.advance(3 * minute)
    await set(vin, { booking: 'b-1' })
    await clock.advance(10 * minute)
    expect(unbooked()).toEqual([])
    const from = at(-2)
    await set(vin, { booking: null }, { from })
    await clock.advance(2 * minute)
    expect(unbooked()).toEqual([])
    await clock.advance(2 * minute)
    expect(unbooked()).toEqual([`unbooked ${new Date(from.getTime() + 5 * minute).toISOString().slice(11, 19)}`])
    await receiver.drain()
  })

  test('what was due before a fact is told before it', async () => {
    const { send, set, told, receiver, clock, at } = await begun()
    await send({ Gear: 'P' })
    await send({ Gear: 'D' })
    await set(vin, { booking: 'b-1' }, { from: at(6) })
    await clock.advance(20 * minute)
    expect(words(told)).toEqual(['unbooked', 'booked'])
    await receiver.drain()
  })

  test('the id of an occurrence has the name of the fact, and not its value', async () => {
    const { send, set, ids, receiver } = await begun()
    await send({ BatteryLevel: 30 })
    await set(vin, { lowBattery: 40 })
    expect(ids[0]).toContain(`${vin}:starts(below(BatteryLevel,fact lowBattery)):`)
    await receiver.drain()
  })

  test('a handler that fails makes the fact’s message a dead letter, the fact holds, and a replay tells the same', async () => {
    const failing = { fails: true }
    const { send, set, ids, receiver, now } = await begun({ failing })
    await send({ BatteryLevel: 30 })
    await set(vin, { lowBattery: 40 })
    expect(await now(lowBattery)).toBe(40)
    expect(ids).toHaveLength(1)
    failing.fails = false
    await receiver.deadLetters.replay({})
    await expect.poll(() => ids.length).toBe(2)
    expect(ids[1]).toBe(ids[0])
    await receiver.drain()
  })

  test('`null` removes a fact, `forget` erases all of them, and `forgetAfterMs` those of a vehicle that nobody names', async () => {
    const { set, receiver, clock, now } = await begun({ forgetAfterMs: 30 * minute })
    await set(vin, { customer: 'c-1' })
    await set(vin, { customer: null })
    expect(await now(customer)).toBeUndefined()
    await set(vin, { customer: 'c-1' })
    expect(await receiver.vehicles.forget(vin)).toBe(true)
    expect(await receiver.vehicles.get(vin)).toBeUndefined()
    await set(vin, { customer: 'c-1' })
    await clock.advance(20 * minute)
    expect(await now(customer)).toBe('c-1')
    await clock.advance(60 * minute)
    expect(await receiver.vehicles.get(vin)).toBeUndefined()
    await receiver.drain()
  })

  test('topic handlers see neither the event nor a change, and a sender who posts its name changes nothing', async () => {
    const { send, set, receiver, now, topics } = await begun()
    await set(vin, { customer: 'c-1' })
    await send({ 'fact:customer': 'thief', customer: 'thief', facts: { customer: 'thief' }, Gear: 'P' })
    const { settled } = await deliver(receiver, {
      ...message.data({}, { vin }),
      topic: 'facts',
      facts: { customer: 'thief' },
    } as never).catch(() => ({ settled: Promise.resolve() }))
    await settled
    expect(await now(customer)).toBe('c-1')
    expect(topics.filter((topic) => topic === 'facts')).toEqual([])
    expect((await receiver.vehicles.get(vin))?.facts.map(({ name, value }) => [name, value])).toEqual([
      ['customer', 'c-1'],
    ])
    await receiver.drain()
  })

  test('`setAll` tells what differs, and removes facts of vehicles that no row has', async () => {
    const { set, receiver, clock, now, told } = await begun()
    await set(vin, { booking: 'b-1' })
    const rows = [
      { vin, customer: 'c-1', lowBattery: 20 },
      { vin: '0FLEETV14T0000002', customer: 'c-2' },
    ]
    expect(await receiver.vehicles.setAll(rows)).toEqual({ told: 2 })
    await clock.advance(0)
    expect(await receiver.vehicles.setAll(rows)).toEqual({ told: 0 })
    expect(await receiver.vehicles.setAll(rows.slice(1), { facts: ['lowBattery'] })).toEqual({ told: 1 })
    await clock.advance(0)
    expect([await now(customer), await now(lowBattery), await now(booking)]).toEqual([undefined, undefined, 'b-1'])
    expect(told.filter((each) => each.includes('>'))).toHaveLength(3)
    await receiver.drain()
  })

  test('what is no fact, no value or no time is refused, and says why', async () => {
    const { receiver, at } = await begun()
    const refused = async (...given: readonly unknown[]): Promise<string> =>
      Reflect.apply(receiver.vehicles.set, undefined, given).then(
        () => '',
        ({ code, message: text, hint }: Error & { code: string; hint: string }) => `${code} ${text} ${hint}`,
      )
    expect(await refused(vin, { custmer: 'c-1' })).toBe(
      'option_invalid The part `vehicles` keeps no fact `custmer`. Did you mean `customer`?',
    )
    expect(await refused(vin, { lowBattery: '20' })).toContain('was set to a text')
    expect(await refused(vin, { lowBattery: Number.NaN })).toContain('It is a number')
    expect(await refused(vin, { home: { latitude: 100, longitude: 4, radiusMeters: 5 } })).toContain('latitude')
    expect(await refused(vin, { booking: 'b' }, { from: at(5), until: at(5) })).toContain('not after `from`')
    expect(await refused(vin, { customer: 'x'.repeat(16_001) })).toContain('16000 characters')
    expect(await refused('', { customer: 'c' })).toContain('no VIN')
    expect(await refused(vin, {})).toContain('no fact')
    await receiver.drain()
  })

  test('a branch has the facts that it declares, and ignores others', async () => {
    const { receiver, set, clock } = scene(create())
    const own = branch(receiver, {
      name: 'own',
      parts: [vehicles({ fields: ['Gear'], facts: [customer] })] as const,
    })
    const other = branch(receiver, {
      name: 'other',
      parts: [vehicles({ fields: ['Gear'] })] as const,
    })
    await receiver.open()
    await clock.advance(1_000)
    await set(vin, { customer: 'c-1', lowBattery: 5 })
    await clock.advance(1_000)
    await expect.poll(async () => (await own.vehicles.get(vin))?.fact(customer)).toBe('c-1')
    expect((await other.vehicles.get(vin))?.facts ?? []).toEqual([])
    await receiver.drain()
  })
})

test('an edge over a fact that the part does not keep is refused when it is registered', () => {
  const receiver = createReceiver({
    secret: false,
    parts: [vehicles({ fields: ['BatteryLevel'], facts: [customer] })] as const,
  })
  expect(() => receiver.when(starts(below('BatteryLevel', lowBattery)), () => {})).toThrow(
    'reads the fact `lowBattery`',
  )
  expect(() => receiver.when(starts(has(fact('customer', 'number'))), () => {})).toThrow('keeps it as string')
})
