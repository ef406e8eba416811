import {
  createReceiver,
  type FieldValues,
  type FleetEvent,
  memoryInbox,
  type ReceiverOptions,
  vehicles,
} from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { encode, normalize } from 'fleethook/normalize'
import { fakeClock, message, vehicle } from 'fleethook/testing'
import { all, any, becomes, drives, type Edge, ends, episode, is, moves, not, path, starts } from 'fleethook/when'
import { describe, expect, test } from 'vitest'
import { movedState } from '../../src/vehicles/state.ts'
import { inForm } from '../form.ts'
import { createFiles } from '../inbox/sqlite-files.ts'
import { silent as silentLog } from '../vehicles/scene.ts'
import { numbers } from './episodes-model.ts'

const vin = '0FLEETV14T0000004'
const startMs = Date.UTC(2026, 10, 21, 10)
const minute = (at: Date): number => (at.getTime() - startMs) / 60_000
const files = createFiles()
const fields = ['Gear', 'VehicleSpeed', 'Location', 'Locked'] as const

/** Times are in minutes. */
function scene(
  edges: Readonly<Record<string, Edge>>,
  inbox: ReceiverOptions['inbox'] = memoryInbox(),
  clock = fakeClock(startMs),
) {
  const told: string[] = []
  const receiver = createReceiver({ secret: false, log: silentLog, clock, inbox, parts: [vehicles({ fields })] })
  for (const [name, edge] of Object.entries(edges))
    receiver.when(edge, ({ change }) => void told.push(`${name} ${minute(change.at)}${change.acrossGap ? '~' : ''}`))
  const car = vehicle(receiver, vin, { clock })
  const until = async (to: number): Promise<void> => {
    const leftMs = startMs + to * 60_000 - clock.now()
    if (leftMs > 0) await clock.advance(leftMs)
  }
  const at = async (sent: number, data: FieldValues, arrives = sent): Promise<void> => {
    await until(arrives)
    await car.data(data, { createdAt: new Date(startMs + sent * 60_000).toISOString() })
  }
  /** At this minute the vehicle is so many meters north of the depot. */
  const is_ = (sent: number, meters: number, arrives?: number): Promise<void> =>
    at(sent, { Location: { latitude: 52 + meters / 111_195, longitude: 5 } }, arrives)
  return { told, receiver, clock, car, until, at, place: is_ }
}

describe('drives', () => {
  const edges = { starts: starts(drives()), ends: ends(drives()) }

  test('is decided by the gear once there is one, whatever the speed is', async () => {
    const { at, told } = scene(edges)
    await at(0, { Gear: 'P', VehicleSpeed: 0 })
    await at(1, { VehicleSpeed: 3 })
    await at(2, { Gear: 'R' })
    await at(3, { VehicleSpeed: 0 })
    await at(4, { Gear: null })
    await at(5, { Gear: 'Invalid' })
    await at(6, { Gear: 'D' })
    await at(7, { Gear: 'Unknown' })
    await at(8, { Gear: 'SNA' })
    await at(500, { Gear: 'P' })
    await at(501, { Gear: 'N' })
    expect(told).toEqual(['starts 2', 'ends 8', 'starts 501'])
  })

  test('is decided by the speed where no gear is streamed', async () => {
    const { at, told } = scene({ ...edges, long: starts(drives()).after({ minutes: 10 }) })
    await at(0, { VehicleSpeed: 0 })
    await at(1, { VehicleSpeed: 30 })
    await at(2, { VehicleSpeed: 0 })
    await at(3, { VehicleSpeed: 0.4 })
    await at(9, { VehicleSpeed: null })
    await at(20, { VehicleSpeed: 0 })
    expect(told).toEqual(['starts 1', 'ends 2', 'starts 3', 'long 13', 'ends 20'])
  })

  test('is neither while nothing was reported', async () => {
    const { at, told } = scene({
      starts: starts(drives()),
      stands: starts(not(drives())),
      first: starts(drives(), { first: true }),
    })
    await at(0, { Locked: true })
    await at(1, { Gear: 'D' })
    expect(told).toEqual(['first 1'])
  })
})

describe('moves', () => {
  const moving = moves({ meters: 100, within: { minutes: 5 } })
  const edges = { starts: starts(moving), ends: ends(moving) }

  test('from the first position that is far enough, until it has stayed for the time, also when no message comes', async () => {
    const { place, told, until } = scene(edges)
    await place(0, 0)
    await place(10, 50)
    await place(20, -40)
    await place(60, 200)
    await place(62, 900)
    await place(64, 4_000)
    await until(300)
    expect(told).toEqual(['starts 60', 'ends 69'])
    await place(301, 4_060)
    await until(320)
    await place(321, 4_200)
    await until(400)
    expect(told.slice(2)).toEqual(['starts 321', 'ends 326'])
  })

  test('a jump over the line of the last position that counted is no move of a vehicle that rests', async () => {
    const { place, told, until } = scene(edges)
    await place(0, 0)
    await place(10, 1_000)
    await place(11, 1_095)
    for (let now = 30; now < 60; now += 1) await place(now, now % 2 === 0 ? 1_105 : 1_085)
    await until(80)
    expect(told).toEqual(['starts 10', 'ends 15'])
  })

  test('while nobody knows whether it came or stood, it is neither', async () => {
    const { place, told } = scene({
      ...edges,
      first: starts(moving, { first: true }),
      rests: starts(not(moving), { first: true }),
    })
    await place(0, 0)
    await place(3, 20)
    expect(told).toEqual([])
    await place(7, 30)
    expect(told).toEqual(['rests 5'])
    await place(8, 900)
    expect(told.slice(1)).toEqual(['starts 8', 'first 8'])
  })

  test('with other conditions, and with a time', async () => {
    const { at, place, told, until } = scene({
      open: starts(all(moving, is('Locked', false))),
      over: starts(not(any(moving, is('Locked', false)))),
      long: starts(moving).after({ minutes: 15 }),
      parked: ends(moving).after({ minutes: 30 }),
      where: becomes('Locked', true).where(moving),
    })
    await at(0, { Locked: true, Location: { latitude: 52, longitude: 5 } })
    await place(10, 1_000)
    await at(11, { Locked: false })
    for (let now = 12; now < 40; now += 2) await place(now, now * 1_000)
    await at(42, { Locked: true })
    await at(50, { Locked: false })
    await at(51, { Locked: true })
    await until(200)
    // It was last far away at minute 38, so it rests since 43.
    expect(told).toEqual(['open 11', 'long 25', 'where 42', 'over 43', 'over 51', 'parked 73'])
  })

  test('the time of a rule begins anew when it rested in between', async () => {
    const { place, told, until } = scene({ long: starts(moving).after({ minutes: 15 }) })
    await place(0, 0)
    await place(10, 1_000)
    await place(12, 2_000)
    await place(18, 3_000)
    await until(60)
    expect(told).toEqual([])
    for (let now = 61; now < 80; now += 2) await place(now, now * 1_000)
    expect(told).toEqual(['long 76'])
  })

  test('an upload hours later is as good', async () => {
    const { place, told, until } = scene(edges)
    await place(0, 0)
    for (const [now, meters] of [
      [10, 500],
      [12, 1_500],
      [40, 1_510],
      [50, 3_000],
    ] as const)
      await place(now, meters, 240)
    await until(250)
    expect(told).toEqual(['starts 10', 'ends 17', 'starts 50', 'ends 55'])
  })

  test('is remembered over a restart with a file, and ends when its time is over', async () => {
    const path = files.path()
    const first = scene(edges, sqliteInbox({ path }))
    await first.place(0, 0)
    await first.place(10, 1_000)
    await first.receiver.drain()
    const { clock } = first
    await clock.advance(60_000)
    const next = scene(edges, sqliteInbox({ path }), clock)
    await next.receiver.open()
    for (let n = 0; n < 16; n += 1) {
      await clock.advance(30_000)
      await expect.poll(() => next.receiver.stats().pending.messages, { interval: 1 }).toBe(0)
    }
    expect([first.told, next.told]).toEqual([['starts 10'], ['ends 15~']])
    const states = await Array.fromAsync(next.receiver.vehicles.list())
    expect(states[0]?.trace(moving.name)).toContain('moving')
    await next.receiver.drain()
  })

  test('a rule that is new knows where the vehicle stood', async () => {
    const path = files.path()
    const first = scene({}, sqliteInbox({ path }))
    await first.place(0, 0)
    await first.receiver.drain()
    await first.clock.advance(3_600_000)
    const next = scene(edges, sqliteInbox({ path }), first.clock)
    await next.car.data({ Location: { latitude: 52.1, longitude: 5 } })
    expect(next.told).toEqual(['starts 60~'])
    await next.receiver.drain()
  })

  test('what it remembers moves with the text of a state', () => {
    const memory = { [moving.name]: '{"is":"moving"}' }
    const row = { vin, seq: 7, seenMs: 1, text: JSON.stringify({ fields: {}, memory }) }
    expect(JSON.parse(movedState(row, -1).text())).toMatchObject({ memory })
  })

  test('names the option that is wrong', () => {
    expect(() => moves({ meters: 0, within: { minutes: 1 } })).toThrow('meters')
    expect(() => moves({ meters: 10, within: {} })).toThrow('within')
    expect(() => moves({ meters: 10 } as never)).toThrow('within')
  })
})

describe('an episode', () => {
  const moving = moves({ meters: 100, within: { minutes: 5 } })

  test('during `moves` ends when it has stayed for the time, without a message, and is the same from a list of events', async () => {
    const trip = episode('trip', { during: moving, joins: { minutes: 10 }, measures: { route: path() } })
    const { place, receiver, told, until } = scene({})
    const events: FleetEvent[] = []
    receiver.on('data', (event) => void events.push(event))
    receiver.when(
      trip,
      ({ change: { startedAt, endedAt, pausedMs, cut, route } }) =>
        void told.push(
          `${minute(startedAt)} to ${minute(endedAt)} less ${pausedMs / 60_000}${cut ? ' cut' : ''}: ${Math.round(route.meters ?? 0)}`,
        ),
    )
    await place(0, 0)
    await place(20, 10)
    for (let now = 30; now < 40; now += 2) await place(now, now * 1_000)
    // It rests from minute 43 to 50, which belongs to it, and from 61.
    await place(46, 38_020)
    for (let now = 50; now < 58; now += 2) await place(now, now * 1_000)
    expect(told).toEqual([])
    await until(200)
    expect(told).toEqual(['30 to 61 less 7: 26000'])
    const found = trip
      .in(events)
      .map(({ startedAt, endedAt, pausedMs }) => [minute(startedAt), minute(endedAt), pausedMs / 60_000])
    expect(found).toEqual([[30, 61, 7]])
    const shuffled = events.toReversed().map((event) => Object.assign({}, event))
    expect(trip.in(shuffled).map(({ startedAt, endedAt }) => [minute(startedAt), minute(endedAt)])).toEqual([[30, 61]])
  })

  // Drives go straight on, and a parked vehicle stays within 60 meters: so it is known when it moved.
  test('during `moves` has the drives of random vehicles, whatever order their positions come in', () => {
    const trip = episode('trip', { during: moving, measures: {} })
    for (let seed = 1; seed <= inForm({ short: 60, full: 3_000 } as const); seed += 1) {
      const random = numbers(seed)
      const between = (least: number, most: number): number => least + random() * (most - least)
      const positions: (readonly [second: number, meters: number])[] = []
      const expected: (readonly [from: number, to: number])[] = []
      let [now, meters] = [0, 0]
      for (let stays = 2 + Math.floor(random() * 4); stays > 0; stays -= 1) {
        // It has rested before it drives, and longer than the time in which it still moves.
        for (const until = now + between(700, 9_000); now < until; now += between(20, 400))
          positions.push([Math.round(now), meters + between(0, 60)])
        if (stays === 1) break
        const start = Math.round((now += 30))
        let seconds = 30
        for (let fixes = 3 + Math.floor(random() * 12); fixes > 0; fixes -= 1) {
          meters += seconds * between(10, 30)
          positions.push([Math.round(now), meters])
          if (fixes > 1) now += seconds = between(20, 280)
        }
        expected.push([start, Math.round(now) + 300])
        now += 20
      }
      const events = positions
        .toSorted(() => random() - 0.5)
        .flatMap(([second, far]) => {
          const createdAt = new Date(startMs + second * 1_000).toISOString()
          const data = { Location: { latitude: 52 + far / 111_195, longitude: 5 } }
          const made = encode({ ...message.data({}, { vin, createdAt }), data }, 'service')
          return [...normalize([made], { receivedAt: new Date(startMs + 200_000_000) })]
        })
      const secondOf = (at: Date): number => (at.getTime() - startMs) / 1_000
      const found = trip.in(events).map(({ startedAt, endedAt }) => [secondOf(startedAt), secondOf(endedAt)])
      expect(found, `seed ${seed}`).toEqual(expected)
    }
  })

  test('during `drives` with gears, and with speeds alone', async () => {
    const trip = episode('trip', { during: drives(), measures: {} })
    for (const [on, off] of [
      [{ Gear: 'D' }, { Gear: 'SNA' }],
      [{ VehicleSpeed: 30 }, { VehicleSpeed: 0 }],
    ] as const) {
      const { at, told, until } = scene({ trip })
      await at(0, off)
      await at(10, on)
      await at(20, off)
      await until(600)
      expect(told).toEqual(['trip 20'])
    }
  })
})
