import { mkdirSync } from 'node:fs'
import { dirname } from 'node:path'
import { createReceiver, memoryInbox, type ReceiverOptions, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { fakeClock, vehicle } from 'fleethook/testing'
import { all, becomes, below, changed, type Edge, heardAgain, is, silent, starts } from 'fleethook/when'
import { describe, expect, test } from 'vitest'
import { createFiles } from '../inbox/sqlite-files.ts'
import { silent as silentLog, unwatched } from '../vehicles/scene.ts'

const vin = '0FLEETV14T0000004'
const fields = ['Gear', 'BatteryLevel'] as const
const parkedLow = all(is('Gear', 'P'), below('BatteryLevel', 20))
const startMs = Date.UTC(2026, 10, 21, 10)
const files = createFiles()

/** Minutes since the start of the test. */
const minute = (at: Date): number => (at.getTime() - startMs) / 60_000

function receiverOf(options: Omit<ReceiverOptions, 'parts' | 'secret'>) {
  return createReceiver({ ...options, secret: false, log: silentLog, parts: [vehicles({ fields })] })
}

function scene(edges: readonly Edge[], options: Omit<ReceiverOptions, 'parts' | 'secret'> = {}) {
  const clock = fakeClock()
  /** The occurrences, each as minutes, with `late` and `~` for a gap. */
  const told: string[] = []
  const ids: string[] = []
  const receiver = receiverOf({ clock, inbox: memoryInbox(), ...options })
  for (const edge of edges)
    receiver.when(edge, ({ change, id }) => {
      const { at, acrossGap, ...others } = change
      const shown = Object.entries(others).flatMap(([name, value]) => {
        if (value instanceof Date) return name === 'dueAt' ? [] : [`${name} ${minute(value)}`]
        if (name === 'late') return value === true ? ['late'] : []
        if (name === 'unheardMs') return []
        return [`${name} ${String(value)}`]
      })
      told.push([`at ${minute(at)}`, ...shown, ...(acrossGap ? ['~'] : [])].join(', '))
      ids.push(id)
    })
  return { car: vehicle(receiver, vin, { clock }), clock, receiver, told, ids }
}

/** A message that the vehicle sent at this minute. */
const at = (minutes: number): { createdAt: string } => ({
  createdAt: new Date(startMs + minutes * 60_000).toISOString(),
})

describe('after', () => {
  const edge = starts(parkedLow).after({ minutes: 30 })

  test('happens when the condition has been true for that time, and only once', async () => {
    const { car, told } = scene([edge])
    await car.data({ Gear: 'D', BatteryLevel: 19 })
    await car.wait({ minutes: 5 })
    await car.data({ Gear: 'P' })
    await car.wait({ minutes: 29 })
    await car.data({ Gear: 'P', BatteryLevel: 18 })
    expect(told).toEqual([])
    await car.wait({ minutes: 1 })
    expect(told).toEqual(['at 35, since 5'])
    await car.wait({ hours: 3 })
    await car.data({ Gear: 'P', BatteryLevel: 17 })
    expect(told).toHaveLength(1)
  })

  test('works for a value, for none, and with conditions before and after it', async () => {
    const none = becomes('Gear', null, { invalid: true })
    const { car, told } = scene([
      becomes('Gear', 'P').where(below('BatteryLevel', 20)).after({ minutes: 10 }).named('parked'),
      becomes('Gear', 'P').after({ minutes: 20 }).where(below('BatteryLevel', 20)),
      none.after({ minutes: 1 }),
    ])
    await car.data({ Gear: 'D', BatteryLevel: 50 })
    await car.data({ Gear: 'P' })
    await car.wait({ minutes: 15 })
    await car.data({ BatteryLevel: 10 })
    await car.wait({ minutes: 5 })
    expect(told).toEqual(['at 20, since 0'])
    await car.data({ Gear: 'D' })
    await car.data({ Gear: 'P' })
    await car.wait({ minutes: 10 })
    expect(told.slice(1)).toEqual(['at 30, since 20'])
    await car.data({ Gear: null })
    await car.wait({ minutes: 30 })
    expect(told.slice(2)).toEqual(['at 31, since 30', 'at 40, since 20'])
  })

  test('happens once with the same id while its handler fails, and a dead letter of it can be replayed', async () => {
    const clock = fakeClock()
    const seen: string[] = []
    let fails = true
    const receiver = receiverOf({ clock, retry: { attempts: 3 } }).when(
      edge,
      ({ id, change: { since, dueAt, late } }) => {
        seen.push(`${id} ${minute(since)} ${minute(dueAt)} ${String(late)}`)
        if (fails) throw new Error('no van')
      },
    )
    const car = vehicle(receiver, vin, { clock })
    await car.data({ Gear: 'D', BatteryLevel: 19 })
    await car.data({ Gear: 'P' })
    await car.wait({ hours: 4 })
    expect(seen).toHaveLength(3)
    fails = false
    const [dead] = await Array.fromAsync(receiver.deadLetters.list())
    expect(dead?.event.topic).toBe('timer')
    await receiver.deadLetters.replay(dead?.id ?? '')
    await clock.advance(10)
    expect(seen).toHaveLength(4)
    expect(new Set(seen).size).toBe(1)
    expect(seen[0]).toContain(`${vin}:${edge.name}:`)
  })

  test('a timer waits for the messages of its vehicle that came before it', async () => {
    const clock = fakeClock()
    const order: string[] = []
    let release = (): void => {}
    const receiver = receiverOf({ clock, timeoutMs: 2_000_000_000 })
      .on('data', async ({ data }) => {
        order.push(`Gear ${String(data.Gear)}`)
        if (data.Gear === 'P') await new Promise<void>((resolve) => (release = resolve))
      })
      .when(edge, () => void order.push('time'))
    const car = vehicle(receiver, vin, { clock })
    await car.data({ Gear: 'D', BatteryLevel: 19 })
    const parks = car.data({ Gear: 'P' })
    await car.wait({ minutes: 29 })
    const moves = car.data({ Gear: 'D' })
    await car.wait({ minutes: 2 })
    release()
    await Promise.all([parks, moves])
    await clock.advance(10)
    expect(order).toEqual(['Gear D', 'Gear P', 'Gear D'])
  })

  test('forget removes the timers of the vehicle', async () => {
    const { car, told, receiver } = scene([edge])
    await car.data({ Gear: 'D', BatteryLevel: 19 })
    await car.data({ Gear: 'P' })
    const [pending] = (await receiver.vehicles.get(vin))?.timers ?? []
    expect(pending).toEqual({ edge: edge.name, since: new Date(startMs), dueAt: new Date(startMs + 30 * 60_000) })
    await receiver.vehicles.forget(vin)
    await car.wait({ hours: 3 })
    expect(told).toEqual([])
    expect(await receiver.vehicles.get(vin)).toBeUndefined()
  })

  test('is only for edges that begin something', () => {
    const other = changed('Gear') as unknown as ReturnType<typeof starts>
    expect(() => other.after({ minutes: 1 })).toThrow('over at once')
  })

  test.each([{}, { minutes: -1 }, { years: 2 }, { days: 367 }])('%o is no time', (duration) => {
    expect(() => starts(parkedLow).after(duration as never)).toThrow(/after/)
  })
})

test('a crash while its handler runs repeats it with the same id', async () => {
  const [path, copy] = [files.path(), files.path()]
  const edge = starts(parkedLow).after({ minutes: 1 })
  const first = scene([edge], { inbox: sqliteInbox({ path }) })
  first.receiver.when(edge, () => new Promise(() => {}))
  await first.car.data({ Gear: 'D', BatteryLevel: 19 })
  await first.car.data({ Gear: 'P' })
  await first.clock.advance(60_000)
  await expect.poll(() => first.told).toEqual(['at 1, since 0'])
  mkdirSync(dirname(copy), { recursive: true })
  files.copy(path, copy)
  const after = scene([edge], { clock: first.clock, inbox: sqliteInbox({ path: copy }) })
  await after.receiver.open()
  await expect.poll(() => after.ids).toEqual(first.ids)
  await after.receiver.drain()
})

describe('silent and heardAgain', () => {
  const lost = silent({ hours: 1 })

  test('by default, a vehicle that is asleep or offline is not silent', async () => {
    const { car, told } = scene([lost, heardAgain(lost)])
    await car.data({ BatteryLevel: 50 })
    await car.state('asleep')
    await car.wait({ hours: 5 })
    expect(told).toEqual([])
    await car.state('online')
    await car.wait({ hours: 2 })
    expect(told).toEqual(['at 360, lastAt 300'])
  })

  test.each(['asleep', 'disconnected'] as const)(
    'live data after %s shows that it is awake, and a late upload does not',
    async (how) => {
      const { car, clock, told } = scene([lost, heardAgain(lost)])
      const goesOff = (about?: { createdAt: string }): Promise<void> =>
        how === 'asleep' ? car.state('asleep', about) : car.connectivity({ status: 'DISCONNECTED' }, about)
      await car.data({ BatteryLevel: 50 })
      await goesOff()
      // Sent before, and at the same moment.
      await clock.advance(600_000)
      await car.data({ BatteryLevel: 49 }, at(-1))
      await car.data({ BatteryLevel: 48 }, at(0.05))
      await car.wait({ hours: 5 })
      expect(told).toEqual([])
      await car.data({ BatteryLevel: 47 })
      // A report that is older says nothing.
      await goesOff(at(-2))
      await car.wait({ hours: 2 })
      expect(told).toEqual(['at 370, lastAt 310'])
      await car.data({ BatteryLevel: 46 })
      expect(told.slice(1)).toEqual(['at 430, lastAt 310, silentMs 7200000'])
      // It goes off again.
      await goesOff()
      await car.wait({ hours: 5 })
      expect(told).toHaveLength(2)
    },
  )

  test('with `evenOffline`, it is', async () => {
    const { car, told } = scene([silent({ hours: 1 }, { evenOffline: true })])
    await car.state('asleep')
    await car.wait({ hours: 5 })
    expect(told).toEqual(['at 60, lastAt 0'])
  })

  test('only messages of the given topics and fields count, and it happens once', async () => {
    const { car, told } = scene([
      silent({ hours: 1 }, { topics: ['data'], fields: ['Gear'] }),
      heardAgain(silent({ hours: 1 }, { topics: ['data'], fields: ['Gear'] })),
    ])
    await car.data({ Gear: 'P' })
    await car.wait({ minutes: 30 })
    await car.data({ BatteryLevel: 50 })
    await car.alerts([])
    await car.wait({ minutes: 30 })
    expect(told).toEqual(['at 60, lastAt 0'])
    await car.data({ BatteryLevel: 50 })
    await car.wait({ hours: 9 })
    expect(told).toHaveLength(1)
    await car.data({ Gear: 'P' })
    expect(told.slice(1)).toEqual(['at 600, lastAt 0, silentMs 36000000'])
  })

  test.each([40 * 86_400_000, 7_200_000, 600_000])(
    'a clock that is %d ms ahead when a message comes, and right a moment later, makes no silence later',
    async (aheadMs) => {
      const real = fakeClock()
      let isAhead = false
      const clock = { ...unwatched(real), now: () => real.now() + (isAhead ? aheadMs : 0), elapsedMs: () => real.now() }
      const told: string[] = []
      const receiver = receiverOf({ clock, inbox: memoryInbox() })
        .when(lost, ({ change }) => void told.push(`silent after ${minute(change.lastAt)}, late: ${change.late}`))
        .when(heardAgain(lost), ({ change }) => void told.push(`heard after ${change.silentMs / 60_000}`))
      const car = vehicle(receiver, vin, { clock: real })
      for (const isWrong of [false, true, false]) {
        isAhead = isWrong
        await car.data({ Gear: 'P' })
        await car.wait({ minutes: 10 })
      }
      await car.wait({ minutes: 49 })
      expect(told).toEqual([])
      await car.wait({ minutes: 2 })
      expect(told).toEqual(['silent after 20, late: false'])
      isAhead = true
      await car.data({ Gear: 'P' })
      isAhead = false
      await car.wait({ minutes: 61 })
      expect(told.slice(1)).toEqual(['heard after 61', 'silent after 81, late: false'])
    },
  )

  test('a vehicle that says nothing more is silent in time, also when the clock of an earlier process was ahead', async () => {
    const path = files.path()
    const real = fakeClock()
    const ahead = { ...unwatched(real), now: () => real.now() + 40 * 86_400_000, elapsedMs: () => real.now() }
    const before = receiverOf({ clock: ahead, inbox: sqliteInbox({ path }) }).when(lost, () => undefined)
    await before.open()
    await vehicle(before, vin).data({ Gear: 'P' }, at(0))
    await before.drain()
    const told: string[] = []
    const after = receiverOf({ clock: unwatched(real), inbox: sqliteInbox({ path }) }).when(
      lost,
      ({ vin: of, change }) => void told.push(`${of} ${minute(change.lastAt)}`),
    )
    await after.open()
    await real.advance(600_000)
    await vehicle(after, 'OTHER', { clock: real }).data({ Gear: 'P' }, at(10))
    await real.advance(3_590_000)
    expect(told).toEqual([])
    await expect
      .poll(() => real.advance(10_000).then(() => told.toSorted()))
      .toEqual([`${vin} 10`, 'OTHER 10'].toSorted())
    await after.drain()
  })

  test('names the wrong argument', () => {
    expect(() => silent({ hours: 1 }, { topics: ['gap' as never] })).toThrow('"gap"')
    expect(() => heardAgain(starts(parkedLow) as never)).toThrow('heardAgain')
  })
})
