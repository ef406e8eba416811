import { createReceiver, type FieldValues, memoryInbox, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { fakeClock, vehicle } from 'fleethook/testing'
import { above, all, any, becomes, type Edge, ends, is, type Lasted, not, starts } from 'fleethook/when'
import { describe, expect, test } from 'vitest'
import { createFiles } from '../inbox/sqlite-files.ts'
import { silent as silentLog } from '../vehicles/scene.ts'

const vin = '0FLEETV14T0000004'
const startMs = Date.UTC(2026, 10, 21, 10)
const second = (at: Date): number => (at.getTime() - startMs) / 1_000
const files = createFiles()
const fields = ['VehicleSpeed', 'Locked', 'Gear'] as const
const isFast = above('VehicleSpeed', 130, { freshFor: { seconds: 10 } })
const speeding = starts(isFast).after({ seconds: 30 })

/** Everything is in seconds. */
function scene(edges: Readonly<Record<string, Edge>>, inbox = memoryInbox(), clock = fakeClock(startMs)) {
  const told: string[] = []
  const receiver = createReceiver({ secret: false, log: silentLog, clock, inbox, parts: [vehicles({ fields })] })
  for (const [name, edge] of Object.entries(edges))
    receiver.when(edge, ({ change }) => {
      const { since, unheardMs } = change as Partial<Lasted>
      told.push(
        `${name} ${second(change.at)}${since ? ` since ${second(since)} unheard ${Number(unheardMs) / 1_000}` : ''}`,
      )
    })
  const car = vehicle(receiver, vin, { clock })
  const until = async (to: number): Promise<void> => {
    const leftMs = startMs + to * 1_000 - clock.now()
    if (leftMs > 0) await clock.advance(leftMs)
  }
  /** The vehicle sends values at this second, and they arrive at that one. */
  const at = async (seconds: number, data: FieldValues, arrives = seconds): Promise<void> => {
    await until(arrives)
    await car.data(data, { createdAt: new Date(startMs + seconds * 1_000).toISOString() })
  }
  /** It says each second, from the first to the last one, how fast it is. */
  const drives = async (from: number, to: number, VehicleSpeed: number, arrives?: number): Promise<void> => {
    for (let now = from; now <= to; now += 1) await at(now, { VehicleSpeed }, arrives)
  }
  return { told, receiver, clock, until, at, drives }
}

describe('a value with `freshFor` that is not reported again is not known:', () => {
  test('ten seconds fast and then a tunnel are not thirty', async () => {
    const { at, drives, told, until } = scene({
      speeding,
      any: starts(above('VehicleSpeed', 130)).after({ seconds: 30 }),
    })
    await at(0, { VehicleSpeed: 100 })
    await drives(1, 11, 140)
    await until(60)
    expect(told).toEqual(['any 31 since 1 unheard 20'])
    await at(61, { VehicleSpeed: 90 })
    await until(200)
    expect(told).toHaveLength(1)
  })

  test('when it is reported again, the time begins anew', async () => {
    const { at, drives, told, until } = scene({ speeding })
    await at(0, { VehicleSpeed: 100 })
    await drives(1, 11, 140)
    await drives(60, 80, 140)
    await until(89)
    await at(89, { VehicleSpeed: 141 })
    expect(told).toEqual([])
    await until(91)
    expect(told).toEqual(['speeding 90 since 60 unheard 1'])
    // It is told until it is over.
    await drives(120, 160, 140)
    await at(161, { VehicleSpeed: 100 })
    await drives(162, 195, 140)
    expect(told.slice(1)).toEqual(['speeding 192 since 162 unheard 1'])
  })

  test('also when it comes before the time would have been up', async () => {
    const { at, drives, told } = scene({ speeding })
    await at(0, { VehicleSpeed: 100 })
    await at(1, { VehicleSpeed: 140 })
    await drives(26, 60, 140)
    expect(told).toEqual(['speeding 56 since 26 unheard 1'])
  })

  test('by the vehicle’s clock: an upload hours later is as good', async () => {
    const { at, drives, told, until } = scene({ speeding })
    await at(0, { VehicleSpeed: 100 })
    await drives(1, 40, 140, 7_200)
    await drives(90, 115, 140, 7_200)
    await until(7_300)
    expect(told).toEqual(['speeding 31 since 1 unheard 1'])
  })

  test('and over a restart with a file', async () => {
    const path = files.path()
    const first = scene({ speeding }, sqliteInbox({ path }))
    await first.at(0, { VehicleSpeed: 100 })
    await first.drives(1, 11, 140)
    await first.receiver.drain()
    const next = scene({ speeding }, sqliteInbox({ path }), first.clock)
    await next.receiver.open()
    await next.until(50)
    await next.drives(60, 95, 140)
    await expect.poll(() => next.told).toEqual(['speeding 90 since 60 unheard 1'])
    await next.receiver.drain()
  })

  test('it neither starts nor ends, and the last report decides what is a change', async () => {
    const { at, told } = scene({ fast: starts(isFast), slow: ends(isFast), calm: starts(not(isFast)) })
    await at(0, { VehicleSpeed: 100 })
    await at(100, { VehicleSpeed: 140 })
    await at(200, { Locked: true })
    await at(201, { VehicleSpeed: 141 })
    await at(300, { VehicleSpeed: 142 })
    await at(400, { VehicleSpeed: 100 })
    expect(told).toEqual(['fast 100', 'slow 400', 'calm 400'])
  })

  test('in `where`, `all` and `any` too', async () => {
    const { at, told } = scene({
      where: becomes('Locked', false).where(isFast),
      all: starts(all(is('Locked', false), isFast)),
      any: starts(any(is('Locked', false), isFast)),
    })
    await at(0, { VehicleSpeed: 140, Locked: true })
    await at(1, { VehicleSpeed: 100 })
    await at(2, { VehicleSpeed: 140 })
    await at(30, { Locked: false })
    expect(told).toEqual(['any 2'])
    await at(31, { VehicleSpeed: 140 })
    expect(told.slice(1)).toEqual(['all 31'])
    await at(32, { Locked: true })
    await at(33, { Locked: false })
    expect(told.slice(2)).toEqual(['where 33', 'all 33'])
  })

  test('in the name of the condition', () => {
    expect(isFast.name).toBe('above(VehicleSpeed,130,freshFor 10 s)')
    expect(is('Gear', 'D', { freshFor: { minutes: 1 } }).name).toBe('is(Gear,"D",freshFor 60 s)')
    expect(() => above('VehicleSpeed', 1, { freshFor: {} })).toThrow('freshFor')
    expect(() => above('VehicleSpeed', 1, { freshfor: {} } as never)).toThrow('above has no option `freshfor`')
  })
})

describe('an occurrence says how long the vehicle was not heard before it was due:', () => {
  const open = becomes('Locked', false).after({ seconds: 60 })

  test('when it said something meanwhile, when it did not, and when others came late', async () => {
    const { at, told, until } = scene({ open })
    await at(0, { Locked: true })
    await at(1, { Locked: false })
    await at(41, { Gear: 'P' })
    await until(70)
    expect(told).toEqual(['open 61 since 1 unheard 20'])
    await at(71, { Locked: true })
    await at(72, { Locked: false })
    await until(140)
    expect(told.slice(1)).toEqual(['open 132 since 72 unheard 60'])
    await at(141, { Locked: true })
    await at(150, { Locked: false }, 4_000)
    await at(200, { Gear: 'D' }, 4_000)
    await at(300, { Gear: 'P' }, 4_000)
    expect(told.slice(2)).toEqual(['open 210 since 150 unheard 10'])
  })
})

describe('`at` of `starts` is when it became true, whichever value comes last:', () => {
  const both = all(is('Locked', false), is('Gear', 'P'))

  test.each([
    [
      'in order',
      [
        [10, { Gear: 'P' }],
        [20, { Locked: false }],
      ],
    ],
    [
      'the older value comes last',
      [
        [20, { Locked: false }],
        [10, { Gear: 'P' }],
      ],
    ],
  ] as const)('%s', async (_, messages) => {
    const { at, told, until } = scene({
      all: starts(both),
      after: starts(both).after({ seconds: 60 }),
      ends: ends(not(both)),
    })
    await at(0, { Gear: 'D', Locked: true })
    for (const [sent, data] of messages) await at(sent, data, 25)
    await until(100)
    expect(told.map((one) => one.split(' ').slice(0, 4).join(' '))).toEqual(['all 20', 'ends 20', 'after 80 since 20'])
  })

  test('of `any`, when the first of two became true', async () => {
    const { at, told } = scene({
      all: starts(all(is('Gear', 'P'), any(is('Locked', false), above('VehicleSpeed', 0)))),
    })
    await at(0, { Gear: 'D', Locked: true, VehicleSpeed: 0 })
    await at(12, { Locked: false }, 30)
    await at(14, { VehicleSpeed: 3 }, 30)
    await at(10, { Gear: 'P' }, 30)
    expect(told).toEqual(['all 12'])
  })
})
