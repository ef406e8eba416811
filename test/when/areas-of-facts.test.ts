// Areas that a fact says: they become others around a vehicle, and its positions jump.
import { createReceiver, memoryInbox, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { deliver, fakeClock, message } from 'fleethook/testing'
import { type Area, circle, ends, enters, episode, fact, has, inside, leaves, not, span, starts } from 'fleethook/when'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { newFolder } from '../folder.ts'
import { inForm } from '../form.ts'
import { silent, unwatched } from '../vehicles/scene.ts'

const vin = '0FLEETV14T0000001'
const home = fact('home', 'area')
const margin = { marginMeters: 50 }
const minute = 60_000

/** A place this far north of the center of each area. */
const north = (meters: number) => ({ latitude: 52 + meters / 111_194.9, longitude: 5 })
const around = (radiusMeters: number) => ({ latitude: 52, longitude: 5, radiusMeters })

async function begin(inbox = memoryInbox(), clock = unwatched(fakeClock())) {
  const told: string[] = []
  const receiver = createReceiver({
    secret: false,
    clock,
    log: silent,
    inbox,
    parts: [vehicles({ fields: ['Location', 'Odometer'], facts: [home] })] as const,
  })
    .when(enters(home, margin), ({ change }) => void told.push(change.first ? 'enters first' : 'enters'))
    .when(enters(home, { ...margin, first: true }).named('or is there'), ({ change }) => {
      if (change.first) told.push('is there')
    })
    .when(leaves(home, margin), () => void told.push('leaves'))
    .when(starts(inside(home, margin)), () => void told.push('in'))
    .when(ends(inside(home, margin)), () => void told.push('out'))
  await receiver.open()
  return {
    receiver,
    clock,
    /** What was told since the last call. */
    told: () => told.splice(0),
    async at(meters: number, agoMs = 0) {
      // In less time it could not have come so far.
      await clock.advance(minute)
      const createdAt = new Date(clock.now() - agoMs).toISOString()
      const { settled } = await deliver(receiver, message.data({ Location: north(meters) }, { vin, createdAt }))
      await settled
    },
    async set(value: Parameters<typeof receiver.vehicles.set>[1]['home'], time: { from?: Date; until?: Date } = {}) {
      await receiver.vehicles.set(vin, { home: value }, time)
      await clock.advance(0)
    },
  }
}

const inboxes = {
  'in memory': () => memoryInbox(),
  'in SQLite': () => sqliteInbox({ path: `${newFolder('areas')}/inbox.db` }),
}

describe.each(Object.entries(inboxes))('%s', (_, create) => {
  test('a vehicle that is parked at the edge of its area, and whose position jumps, neither comes nor goes', async () => {
    const { at, set, told, receiver } = await begin(create())
    await at(500)
    await set(around(200))
    for (const meters of [190, 215, 195, 240, 249, 199, 230]) await at(meters)
    expect(told()).toEqual(['enters', 'in'])
    await at(251)
    for (const meters of [240, 205, 230]) await at(meters)
    expect(told()).toEqual(['leaves', 'out'])
    await at(150)
    expect(told()).toEqual(['enters', 'in'])
    await receiver.drain()
  })

  test('an area that shrinks around a parked vehicle is left at once, also when the vehicle is in the margin of the new one', async () => {
    const { at, set, told, receiver } = await begin(create())
    await set(around(200))
    await at(180)
    expect(told()).toEqual(['is there', 'in'])
    await set(around(150))
    expect(told()).toEqual(['leaves', 'out'])
    await set(around(200))
    expect(told()).toEqual(['enters', 'in'])
    // The jumps after that are within the margin of the area that it is in now.
    await at(220)
    expect(told()).toEqual([])
    await receiver.drain()
  })

  test('an area that is removed is not left, and the next one is entered where the vehicle is', async () => {
    const { at, set, told, receiver } = await begin(create())
    await at(180)
    await set(around(200))
    expect(told()).toEqual(['enters', 'in'])
    await set(null)
    await at(1_000)
    // A condition is false without its fact, so it ends.
    expect(told()).toEqual(['out'])
    await set(around(200))
    expect(told()).toEqual([])
    await at(100)
    expect(told()).toEqual(['enters', 'in'])
    await receiver.drain()
  })

  test('an area that is planned counts from its time on, and for as long as it is planned', async () => {
    const { at, set, told, receiver, clock } = await begin(create())
    const after = (minutes: number) => new Date(clock.now() + minutes * minute)
    await at(180)
    await set(around(200), { from: after(10), until: after(20) })
    await set(around(100))
    expect(told()).toEqual([])
    await clock.advance(11 * minute)
    expect(told()).toEqual(['enters', 'in'])
    await clock.advance(10 * minute)
    expect(told()).toEqual(['leaves', 'out'])
    await receiver.drain()
  })
})

test('what the margin remembers survives a restart', async () => {
  const path = `${newFolder('areas')}/inbox.db`
  const clock = unwatched(fakeClock())
  const first = await begin(sqliteInbox({ path }), clock)
  await first.set(around(200))
  await first.at(190)
  await first.at(230)
  await first.receiver.drain()
  const second = await begin(sqliteInbox({ path }), clock)
  await second.at(240)
  expect(second.told()).toEqual([])
  await second.at(251)
  expect(second.told()).toEqual(['leaves', 'out'])
  await second.receiver.drain()
})

test('a position that was sent before the newest one changes nothing', async () => {
  const { at, set, told, receiver } = await begin()
  await set(around(200))
  await at(190)
  await at(230)
  told()
  await at(500, 90_000)
  await at(240)
  expect(told()).toEqual([])
  await receiver.drain()
})

test('an edge or a condition over a fact of another type, and a margin that is none, are refused', () => {
  const wrong = fact('home', 'string')
  // @ts-expect-error -- of another type
  expect(() => enters(wrong)).toThrow('which is of the type string')
  // @ts-expect-error -- of another type
  expect(() => inside(wrong)).toThrow('which is of the type string')
  expect(() => leaves(home, { marginMeters: -1 })).toThrow('marginMeters')
  expect(() => inside(home, { marginMeters: Number.NaN })).toThrow('marginMeters')
  expect(inside(home, margin).name).toBe('inside(fact home,marginMeters 50)')
  expect(leaves(home, margin).name).toBe('leaves(fact home,marginMeters 50)')
})

test('an episode away from home is one, although the position jumps at the edge, and goes by the area of then', async () => {
  const clock = unwatched(fakeClock())
  const rows = new Map<string, string>()
  const beganMs = clock.now()
  const away = episode('away', { during: not(inside(home, margin)), measures: { miles: span('Odometer') } })
  const receiver = createReceiver({
    secret: false,
    clock,
    log: silent,
    parts: [vehicles({ fields: ['Location', 'Odometer'], facts: [home] })] as const,
  }).when(away, ({ change }) => {
    const at = (date: Date) => (date.getTime() - beganMs) / minute
    if (change.revoked) rows.delete(change.id)
    else rows.set(change.id, `${at(change.startedAt)}-${at(change.endedAt)}`)
  })
  await receiver.open()
  await receiver.vehicles.set(vin, { home: around(200) })
  for (const [nth, meters] of [100, 230, 190, 240, 900, 260, 210, 90, 220, 100].entries()) {
    const sent = message.data(
      { Location: north(meters) },
      { vin, createdAt: new Date(beganMs + nth * minute).toISOString() },
    )
    await (
      await deliver(receiver, sent)
    ).settled
    await clock.advance(minute)
  }
  await clock.advance(5 * minute)
  expect([...rows.values()]).toEqual(['4-7'])
  await receiver.vehicles.set(vin, { home: around(50) }, { from: new Date(beganMs + 2 * minute) })
  await clock.advance(15 * minute)
  const back = message.data({ Location: north(20) }, { vin, createdAt: new Date(beganMs + 30 * minute).toISOString() })
  await (
    await deliver(receiver, back)
  ).settled
  await clock.advance(5 * minute)
  // From 2 on, 190 meters are outside.
  expect([...rows.values()]).toEqual(['2-30'])
  await receiver.drain()
})

/** Inside, or not farther than the margin since it was inside of the same area. */
class Naive {
  is: boolean | undefined
  #area: number | undefined

  next(area: number | undefined, meters: number): void {
    const isIn = area !== undefined && meters <= area
    const isHeld = area !== undefined && area === this.#area && this.is === true && meters <= area + 50
    this.is = isIn || isHeld
    this.#area = area
  }
}

test('of random positions and areas, it tells what a naive reader finds', async () => {
  const step = fc.oneof(
    fc.record({ meters: fc.constantFrom(0, 90, 120, 149, 160, 190, 240, 260, 400) }),
    fc.record({ area: fc.constantFrom(undefined, 100, 150, 200) }),
  )
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), async (steps) => {
      const { at, set, told, receiver } = await begin()
      const naive = new Naive()
      let [area, meters] = [undefined as number | undefined, 1_000]
      await at(meters)
      naive.next(area, meters)
      for (const each of steps) {
        const was = naive.is
        if ('meters' in each) meters = each.meters
        else area = each.area
        await ('meters' in each ? at(meters) : set(area === undefined ? null : around(area)))
        naive.next(area, meters)
        const expected =
          was === naive.is ? [] : naive.is ? ['enters', 'in'] : area === undefined ? ['out'] : ['leaves', 'out']
        expect(told()).toEqual(expected)
      }
      await receiver.drain()
    }),
    { numRuns: inForm({ short: 8, full: 200 }) },
  )
})

test('of a constant area, the condition with a margin tells what the edges tell', async () => {
  const depot: Area = circle(around(200))
  const told: string[] = []
  const receiver = createReceiver({ secret: false, log: silent, parts: [vehicles({ fields: ['Location'] })] })
    .when(enters(depot, margin), () => void told.push('enters'))
    .when(leaves(depot, margin), () => void told.push('leaves'))
    .when(starts(inside(depot, margin)), () => void told.push('in'))
    .when(ends(inside(depot, margin)), () => void told.push('out'))
  for (const [nth, meters] of [500, 190, 215, 249, 199, 251, 240, 150, 800, 249, 100].entries()) {
    const createdAt = new Date(Date.now() - 3_600_000 + nth * minute).toISOString()
    await (
      await deliver(receiver, message.data({ Location: north(meters) }, { vin, createdAt }))
    ).settled
  }
  expect(told).toEqual(['enters', 'in', 'leaves', 'out', 'enters', 'in', 'leaves', 'out', 'enters', 'in'])
  await receiver.drain()
})

test('without the fact, neither edge happens, and a rule with `has` is off', async () => {
  const { at, told, receiver } = await begin()
  receiver.when(starts(not(has(home))), () => {})
  for (const meters of [10, 900, 10]) await at(meters)
  expect(told()).toEqual([])
  await receiver.drain()
})
