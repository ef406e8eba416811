import { cpSync } from 'node:fs'
import { join } from 'node:path'
import { createReceiver, memoryInbox, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { fakeClock, type FakeClock, vehicle, type TestVehicle } from 'fleethook/testing'
import { all, becomes, below, type Edge, type EdgeResult, heardAgain, is, silent, starts } from 'fleethook/when'
import { describe, expect, test } from 'vitest'
import { silent as silentLog, unwatched } from '../vehicles/scene.ts'
import { newFolder } from '../folder.ts'

const vin = '0FLEETV14T0000004'
const fields = ['Gear', 'BatteryLevel', 'DetailedChargeState', 'Locked'] as const
const startMs = Date.UTC(2026, 10, 21, 10)
const folder = newFolder('late')

/** A message that was sent at this minute. */
const at = (minutes: number): { createdAt: string } => ({
  createdAt: new Date(startMs + minutes * 60_000).toISOString(),
})

const minute = (date: Date): number => Math.round((date.getTime() - startMs) / 6_000) / 10

interface Scene {
  readonly clock: FakeClock
  readonly car: TestVehicle
  readonly receiver: ReturnType<typeof receiverOf>
  /** Messages as `data`, and occurrences with the minute and `~` across a gap, in the order of their handlers. */
  readonly told: string[]
}

function receiverOf(clock: FakeClock, inbox = memoryInbox()) {
  return createReceiver({
    secret: false,
    log: silentLog,
    clock: unwatched(clock),
    inbox,
    timeoutMs: 86_400_000,
    parts: [vehicles({ fields })],
  })
}

function scene(edges: Readonly<Record<string, Edge>>, inbox = memoryInbox(), clock = fakeClock(startMs)): Scene {
  const told: string[] = []
  const receiver = receiverOf(clock, inbox).on('data', ({ data }) => void told.push(Object.values(data).join(' ')))
  for (const [name, edge] of Object.entries(edges))
    receiver.when(edge, ({ change }) => void told.push(`${name} ${minute(change.at)}${change.acrossGap ? '~' : ''}`))
  return { clock, car: vehicle(receiver, vin, { clock }), receiver, told }
}

/** Counts the messages that the receiver itself makes for timers. */
function counting(inbox = memoryInbox()): { readonly inbox: typeof inbox; readonly timers: () => number } {
  let timers = 0
  return {
    timers: () => timers,
    inbox: (settings) => {
      const made = inbox(settings)
      const put = made.put.bind(made)
      made.put = (messages) => {
        timers += messages.filter(({ kind }) => kind === 'timer').length
        return put(messages)
      }
      return made
    },
  }
}

const stopped = starts(is('DetailedChargeState', 'Stopped')).after({ minutes: 10 })
const parked = starts(is('Gear', 'P'), { first: true }).after({ minutes: 2 })

describe('a late upload', () => {
  test('is complete before the time of a rule comes that it began', async () => {
    const { car, clock, told } = scene({ stopped })
    await car.data({ DetailedChargeState: 'Charging' })
    await clock.advance(3_600_000)
    for (const [state, sent] of [
      ['Charging', 1],
      ['Stopped', 2],
      ['Charging', 3],
    ] as const) {
      await car.data({ DetailedChargeState: state }, at(sent))
      await clock.advance(100)
    }
    await clock.advance(3_600_000)
    expect(told).toEqual(['Charging', 'Charging', 'Stopped', 'Charging'])
  })

  test('is told some seconds after its last message, when the vehicle goes silent', async () => {
    const { car, clock, told } = scene({ stopped })
    await car.data({ DetailedChargeState: 'Charging' })
    await clock.advance(3_600_000)
    await car.data({ DetailedChargeState: 'Stopped' }, at(2))
    await clock.advance(4_000)
    expect(told).toHaveLength(2)
    await clock.advance(2_000)
    expect(told.at(-1)).toBe('stopped 12')
  })

  test('of a vehicle that is always some seconds late is told as late as its messages are', async () => {
    const { car, clock, told } = scene({ parked })
    const send = async (gear: 'P' | 'D'): Promise<void> => {
      await clock.advance(1_000)
      await car.data({ Gear: gear }, { createdAt: new Date(clock.now() - 4_000).toISOString() })
    }
    await send('D')
    for (let second = 0; second < 121; second += 1) await send('P')
    expect(told.filter((one) => one.startsWith('parked'))).toHaveLength(1)
  })

  test('is none where the clock of the vehicle is an hour slow', async () => {
    const { car, clock, told } = scene({ stopped })
    const slow = async (state: 'Charging' | 'Stopped'): Promise<void> => {
      await car.data({ DetailedChargeState: state }, { createdAt: new Date(clock.now() - 3_600_000).toISOString() })
      await clock.advance(60_000)
    }
    await slow('Charging')
    await slow('Charging')
    await slow('Stopped')
    await slow('Charging')
    await clock.advance(3_600_000)
    expect(told).toHaveLength(4)
    await slow('Stopped')
    await clock.advance(600_000)
    expect(told).toHaveLength(6)
  })

  test('of a vehicle whose clock is known to be slow does not make its next live message late', async () => {
    const { car, clock, told } = scene({ stopped })
    const slow = (state: 'Charging' | 'Stopped', lateMs = 0): Promise<void> =>
      car.data({ DetailedChargeState: state }, { createdAt: new Date(clock.now() - 3_600_000 - lateMs).toISOString() })
    for (let message = 0; message < 3; message += 1) {
      await slow('Charging')
      await clock.advance(60_000)
    }
    // A tunnel: the upload begins with what is 100 seconds old.
    await slow('Stopped', 100_000)
    await clock.advance(60_000)
    await slow('Charging', 30_000)
    await clock.advance(60_000)
    await slow('Stopped')
    await clock.advance(590_000)
    expect(told).toHaveLength(6)
    await clock.advance(20_000)
    expect(told.slice(6)).toEqual([expect.stringMatching(/^stopped/)])
  })

  test('is none where the clock of the vehicle was never set', async () => {
    const { car, clock, told } = scene({ stopped })
    const unset = { createdAt: '1970-01-01T00:00:07.000Z' }
    await car.data({ DetailedChargeState: 'Charging' }, unset)
    await car.data({ DetailedChargeState: 'Stopped' }, unset)
    await clock.advance(590_000)
    expect(told).toHaveLength(2)
    await clock.advance(11_000)
    expect(told.at(-1)).toBe('stopped 10')
  })
})

describe('several that are due at once', () => {
  const rules = {
    parked,
    low: starts(all(is('Gear', 'P'), below('BatteryLevel', 20)), { first: true }).after({ minutes: 1 }),
    lost: silent({ minutes: 5 }),
    heard: heardAgain(silent({ minutes: 5 })),
  }

  test('are all told in the order of their times, also when the next message comes first', async () => {
    const path = join(folder, 'several')
    const first = scene(rules, sqliteInbox({ path: join(path, 'inbox.db') }))
    const { clock } = first
    await first.car.data({ Gear: 'P', BatteryLevel: 10 })
    const copy = `${path}-copy`
    cpSync(path, copy, { recursive: true, filter: (name) => !name.endsWith('.sock') })
    await clock.advance(3_600_000)
    const second = scene(rules, sqliteInbox({ path: join(copy, 'inbox.db') }), clock)
    await second.car.data({ Gear: 'D' })
    expect(second.told.slice(-5)).toEqual(['low 1~', 'parked 2~', 'lost 5~', 'D', 'heard 60~'])
    await Promise.all([first, second].map(({ receiver }) => receiver.drain({ deadlineMs: 1, handlerGraceMs: 1 })))
  })

  test('are all told before the message that ends them, however many rules there are', async () => {
    const many = Array.from({ length: 200 }, (_, n) => starts(is('Gear', 'P')).after({ seconds: 60 + n }))
    const { car, clock, told } = scene(Object.fromEntries(many.map((edge, n) => [`rule${n}`, edge])))
    await car.data({ Gear: 'D' })
    await clock.advance(3_600_000)
    await car.data({ Gear: 'P' }, at(15))
    await car.data({ Gear: 'D' }, at(35))
    await clock.advance(60_000)
    expect(told.slice(0, 2)).toEqual(['D', 'P'])
    expect(told.slice(2, -1).map((one) => one.split(' ')[0])).toEqual(many.map((_, n) => `rule${n}`))
    expect(told.at(-1)).toBe('D')
  })

  test('of one edge are told one after another, each with an id of its own', async () => {
    const every: Edge = {
      ...parked,
      name: 'every minute',
      detect({ event, timer, arrivedMs }): EdgeResult {
        if (event.topic !== 'timer') return timer === undefined ? { timer: { due: arrivedMs + 60_000, since: 0 } } : {}
        const due = timer?.due ?? 0
        return { happened: { at: new Date(due), acrossGap: false }, timer: { due: due + 60_000, since: 0 } }
      },
    }
    const { car, clock, told, receiver } = scene({ every })
    const ids = new Set<string>()
    receiver.when(every, ({ id }) => void ids.add(id))
    await car.data({ Gear: 'D' })
    await car.data({ Gear: 'P' }, at(3.5))
    void clock
    expect(told).toEqual(['D', 'P'])
    await clock.advance(210_000)
    await car.data({ Gear: 'D' })
    expect(told).toEqual(['D', 'P', 'every 1', 'every 2', 'every 3', 'D'])
    expect(ids.size).toBe(3)
  })
})

test('a replay of a message shows again what was due before it, with the vehicle from before it', async () => {
  const clock = fakeClock(startMs)
  const seen: string[] = []
  let fails = true
  const receiver = receiverOf(clock).when(parked, ({ id, change, vehicle: of, event }) => {
    seen.push(`${id} ${minute(change.dueAt)} ${String(of.value('Gear'))} ${event.topic}`)
    if (fails) throw new Error('no')
  })
  const car = vehicle(receiver, vin, { clock })
  await car.data({ Gear: 'D' })
  await clock.advance(3_600_000)
  await car.data({ Gear: 'P' }, at(10))
  const driven = car.data({ Gear: 'D' }, at(20))
  await clock.advance(120_000)
  await driven
  fails = false
  const [dead] = await Array.fromAsync(receiver.deadLetters.list())
  await receiver.deadLetters.replay(dead?.id ?? '')
  await clock.advance(10)
  expect(new Set(seen)).toEqual(new Set([`${vin}:${parked.name}:${dead?.id} 12 P data`]))
  expect(seen.length).toBeGreaterThan(2)
})

describe('a drain in memory', () => {
  test('tells what is due, and what only waited for late messages, and nothing that is not', async () => {
    const { car, clock, told, receiver } = scene({ stopped, parked })
    await car.data({ DetailedChargeState: 'Charging', Gear: 'D' })
    await clock.advance(3_600_000)
    await car.data({ Gear: 'P' }, at(59))
    await car.data({ DetailedChargeState: 'Stopped' }, at(2))
    const drained = receiver.drain()
    await clock.advance(100)
    await drained
    expect(told.slice(3)).toEqual(['stopped 12'])
  })
})

describe('a rule that is new', () => {
  const path = join(folder, 'new')
  const held = {
    parked: starts(is('Gear', 'P'), { first: true }).after({ minutes: 30 }),
    lost: silent({ minutes: 60 }),
    half: becomes('Gear', 'P', { first: true }).where(below('BatteryLevel', 50)).after({ minutes: 40 }),
    open: starts(is('Locked', false)).after({ minutes: 1 }),
  }

  async function life(
    clock: FakeClock,
    edges: Readonly<Record<string, Edge>>,
    run: (scene: Scene) => Promise<unknown>,
  ): Promise<readonly string[]> {
    const one = scene(edges, sqliteInbox({ path: join(path, 'inbox.db') }), clock)
    await one.receiver.open()
    await run(one)
    const drained = one.receiver.drain()
    await clock.advance(10_000)
    await drained
    return one.told
  }

  test('counts from what the stored state knows, for a vehicle that sends nothing more, once, also when it is removed and added again', async () => {
    const clock = fakeClock(startMs)
    await life(clock, {}, ({ car }) => car.data({ Gear: 'P', BatteryLevel: 10, Locked: false }))
    const passing = async (minutes: number, { receiver }: Scene): Promise<void> => {
      for (let passed = 0; passed < minutes; passed += 1) {
        await clock.advance(60_000)
        await expect.poll(() => receiver.stats().pending.messages, { interval: 1 }).toBe(0)
      }
    }
    expect(await life(clock, held, (one) => passing(20, one))).toEqual([])
    expect(await life(clock, held, (one) => passing(30, one))).toEqual(['parked 30~', 'half 40~'])
    expect(await life(clock, {}, async () => {})).toEqual([])
    expect(await life(clock, held, (one) => passing(60, one))).toEqual(['lost 60~'])
    expect(await life(clock, { lost: held.lost }, (one) => passing(5, one))).toEqual([])
    expect(await life(clock, { ...held, later: silent({ minutes: 61 }) }, (one) => passing(5, one))).toEqual([
      'later 61~',
    ])
  })

  test('counts with the next message before it, when that comes first', async () => {
    const clock = fakeClock(startMs)
    const { car, receiver, told } = scene({}, memoryInbox(), clock)
    await car.data({ Gear: 'P' })
    await clock.advance(600_000)
    receiver.when(parked, ({ change }) => void told.push(`parked ${minute(change.at)}`))
    await car.data({ Gear: 'D' })
    expect(told).toEqual(['P', 'parked 2', 'D'])
  })
})

describe('after a gap, an uncertain value counts as the last one, and the occurrence says so:', () => {
  const gap = ({ receiver }: Scene): unknown =>
    receiver.fetch(new Request('http://a.test', { method: 'POST', body: 'not JSON' }))
  const isParked = is('Gear', 'P')

  const edges: readonly (readonly [name: string, edge: Edge])[] = [
    ['where', becomes('Locked', false).where(isParked)],
    ['after, where', becomes('Locked', false).after({ minutes: 5 }).where(isParked)],
    ['where, after', becomes('Locked', false).where(isParked).after({ minutes: 5 })],
    ['starts(all)', starts(all(isParked, is('Locked', false)))],
    ['silent, where', silent({ minutes: 5 }).where(isParked)],
  ]
  test.each<readonly [name: string, edge: Edge]>([
    ...edges,
    ['starts(all), after', starts(all(isParked, is('Locked', false))).after({ minutes: 5 })],
    ['starts, where', starts(is('Locked', false)).where(isParked)],
  ])('%s', async (_, edge) => {
    for (const isBetween of [false, true]) {
      const one = scene({ edge })
      await one.car.data({ Gear: 'P', Locked: true })
      if (!isBetween) await gap(one)
      await one.car.data({ Locked: false })
      if (isBetween) await gap(one)
      await one.clock.advance(400_000)
      const found = one.told.filter((each) => each.startsWith('edge'))
      expect(found).toHaveLength(1)
      if (!isBetween && !edge.name.startsWith('silent')) expect(found[0]).toMatch(/~$/)
    }
  })

  test.each(edges)(
    'when the message that makes it true is lost, %s is told after the next one that says so',
    async (_, edge) => {
      const one = scene({ edge })
      await one.car.data({ Gear: 'D', Locked: true })
      // This was Gear P.
      await gap(one)
      await one.car.data({ Locked: false })
      await one.clock.advance(400_000)
      expect(one.told.filter((each) => each.startsWith('edge'))).toEqual([])
      await one.car.data({ Gear: 'P' })
      await one.clock.advance(400_000)
      const found = one.told.filter((each) => each.startsWith('edge'))
      expect(found[0]).toMatch(/~$/)
      await one.car.data({ Gear: 'P' })
      expect(one.told.filter((each) => each.startsWith('edge')).length).toBe(found.length)
    },
  )
})

test('a message that others wait behind gets no message of a timer: a backlog would grow by one for each of its states', async () => {
  const { inbox, timers } = counting()
  const { car, clock, receiver, told } = scene({ parked }, inbox)
  const held = Promise.withResolvers<void>()
  receiver.on('data', async () => {
    await held.promise
    await clock.advance(1_000)
  })
  const posted = []
  for (let round = 0; round < 20; round += 1) {
    posted.push(car.data({ Gear: 'P' }))
    await clock.advance(180_000)
    posted.push(car.data({ Gear: 'D' }))
    await clock.advance(60_000)
  }
  posted.push(car.data({ Gear: 'P' }))
  held.resolve()
  await Promise.all(posted)
  await car.wait({ minutes: 3 })
  expect(told.filter((line) => line.startsWith('parked'))).toHaveLength(21)
  // Of the first, before others came, and of the last.
  expect(timers()).toBe(2)
})
