import { createReceiver, type FieldValues, type FleetEvent, memoryInbox, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { encode, normalize } from 'fleethook/normalize'
import type { OnceHandler } from 'fleethook/once'
import { message } from 'fleethook/testing'
import { episode, growth, is, path, range, rulesFor, span } from 'fleethook/when'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, expectTypeOf, test } from 'vitest'
import { Snapshot } from '../../src/vehicles/state.ts'
import { at, episodeRows, measures, options, parked, trip, values } from './episodes-rows.ts'
import { episodeScene, fields, vin } from './episodes-scene.ts'
import { untidied } from './stepping.ts'

const folder = mkdtempSync(join(tmpdir(), 'fleethook-episodes-rows-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))
let files = 0

episodeRows('in memory', () => ({ next: () => memoryInbox() }), false)
episodeRows(
  'in SQLite',
  () => {
    const file = join(folder, `${(files += 1)}.db`)
    return { next: () => untidied(sqliteInbox({ path: file })) }
  },
  true,
)

test('a span has the type of its field, also of your own', () => {
  const { span: own } = rulesFor({ Mood: { enum: ['Calm', 'Angry'] } } as const)
  const mixed = episode('mixed', {
    during: options.during,
    measures: { mood: own('Mood'), odometer: span('Odometer'), place: span('Location'), kwh: growth('Odometer') },
  })
  type Found = NonNullable<ReturnType<typeof mixed.open>>
  expectTypeOf<Found['mood']['from']>().toEqualTypeOf<'Calm' | 'Angry' | null>()
  expectTypeOf<Found['odometer']['to']>().toEqualTypeOf<number | null>()
  expectTypeOf<Found['place']['to']>().toEqualTypeOf<{ readonly latitude: number; readonly longitude: number } | null>()
  expectTypeOf<Found['kwh']>().toEqualTypeOf<number | null>()
  expectTypeOf<Found['revision']>().toEqualTypeOf<number>()
})

test('an option that is wrong is refused with what to do', () => {
  const refused = (name: string, given: object): void => {
    // @ts-expect-error Options of another shape.
    expect(() => episode(name, given)).toThrow(expect.objectContaining({ code: 'option_invalid' }))
  }
  refused('', options)
  refused('x'.repeat(101), options)
  refused('trip', { measures })
  refused('trip', { during: options.during })
  refused('trip', { during: options.during, measures: { id: span('Odometer') } })
  refused('trip', { during: options.during, measures: { missing: span('Odometer') } })
  refused('trip', { during: options.during, measures: { odometer: 'Odometer' } })
  refused('trip', { ...options, joins: { seconds: 0.1 } })
  refused('trip', { ...options, waits: 60 })
  refused('trip', { ...options, unknown: 1 })
  expect(() => trip.where()).toThrow('An episode has no `where`')
  const receiver = createReceiver({ secret: false, parts: [vehicles({ fields })] }).when(trip, () => undefined)
  expect(() => receiver.when(episode('trip', { ...options, joins: { minutes: 4 } }), () => undefined)).toThrow(
    expect.objectContaining({ code: 'handler_invalid' }),
  )
})

test('`exactly` can be replaced in a test without a cast', async () => {
  const save = (exactly: OnceHandler<string[]>) =>
    exactly('trips', (happening: { readonly id: string }, _context, rows) => rows.push(happening.id))
  const rows: string[] = []
  const handler = save((_name, handle) => async (what, context) => void (await handle(what, context, rows)))
  await handler({ id: 'one' }, { delivery: { id: '', attempt: 1, redelivered: false, replayed: false } })
  expect(rows).toEqual(['one'])
})

test('`messages.events` are those of the wire, of one vehicle, in the order of arrival', async () => {
  const { receiver, say, until, told } = episodeScene(trip, {
    place: { next: () => untidied(sqliteInbox({ path: join(folder, 'history.db') })) },
  })
  await say(...parked, [0, { Gear: 'D' }], [600, { Gear: 'P' }], ...values)
  await until(3_000)
  const events = await receiver.messages.events({ vin, from: at(-3_600), to: at(3_600) })
  expect(events.map(({ at: sent }) => sent.getTime())).toEqual(
    [-600, -590, -580, 0, 600, 630, 645].map((second) => at(second).getTime()),
  )
  expect(trip.in(events)).toEqual(told)
})

test('in a list of events, a gap counts from its end, however late its event came', () => {
  const event = (second: number, data: FieldValues): FleetEvent[] => [
    ...normalize([encode(message.data(data, { vin, createdAt: at(second).toISOString() }), 'service')], {
      receivedAt: at(second),
    }),
  ]
  const said = [
    ...parked.map(([second, data]) => event(second, 'state' in data ? {} : data)),
    event(0, { Gear: 'D' }),
    event(600, { Gear: 'P' }),
    event(630, { Odometer: 1013, EnergyRemaining: 46.5 }),
    event(850, { Gear: 'P' }),
  ].flat()
  const gapTo = (second: number): FleetEvent => ({
    topic: 'gap',
    from: at(second),
    to: at(second),
    reason: 'stream_interrupted',
    missed: 1,
    createdAt: at(2_000).toISOString(),
    at: at(2_000),
    receivedAt: at(2_000),
    id: 'gap',
    format: null,
    raw: null,
    meta: {},
  })
  expect(trip.in([...said, gapTo(-700)])).toMatchObject([{ acrossGap: false, odometer: { from: 1000, to: 1013 } }])
  expect(trip.in([...said, gapTo(300)])).toMatchObject([{ acrossGap: true, odometer: { from: 1000, to: 1013 } }])
  expect(trip.in([...said, gapTo(900)])).toMatchObject([{ acrossGap: false, odometer: { from: 1000, to: 1013 } }])
})

test('messages of years ago are read as history, and a clock that was never set is not', () => {
  const years = 5 * 365 * 86_400
  const drive = (ago: number): FleetEvent[] =>
    (
      [
        [-600, { Gear: 'P', Odometer: 1000, EnergyRemaining: 50 }],
        [0, { Gear: 'D' }],
        [600, { Gear: 'P' }],
        [610, { Odometer: 1013, EnergyRemaining: 46.5 }],
      ] as const
    ).flatMap(([second, data]) => [
      ...normalize([encode(message.data(data, { vin, createdAt: at(second - ago).toISOString() }), 'service')], {
        receivedAt: at(second / 100),
      }),
    ])
  expect(trip.in(drive(years))).toMatchObject([{ startedAt: at(-years), durationMs: 600_000, missing: [] }])
  expect(trip.in(drive(1_024 * 7 * 86_400))).toMatchObject([{ startedAt: at(0), odometer: { from: 1000, to: 1013 } }])
})

test('a vehicle has at most 16 kB of state with a trip, its path and a charge, and the memory inbox counts what they remember', async () => {
  const driving = episode('trip', {
    ...options,
    measures: { ...measures, speed: range('VehicleSpeed'), route: path() },
  })
  const charging = episode('charge', {
    during: is('DetailedChargeState', 'Charging'),
    joins: { minutes: 15 },
    silence: { hours: 6 },
    measures: { kwh: growth('ACChargingEnergyIn', { startsAt: 0 }) },
  })
  const { say, receiver } = episodeScene(driving)
  receiver.when(charging, () => undefined)
  let most = 0
  await say(
    [-600, { Gear: 'P', Odometer: 1000, EnergyRemaining: 50, DetailedChargeState: 'Disconnected' }],
    [0, { Gear: 'D' }],
  )
  for (let second = 7; second < 4 * 3_600; second += 7) {
    // prettier-ignore
    const data = [{ Odometer: 1000 + second / 60 }, { EnergyRemaining: 50 - second / 500 }, { VehicleSpeed: second % 90 }, { Location: { latitude: 52 + second / 3_000, longitude: 4 + second / 7_000 } }][(second / 7) % 4]
    await say([second, data ?? {}])
    const view = await receiver.vehicles.get(vin)
    if (view instanceof Snapshot) {
      const { state } = view.parts()
      most = Math.max(most, state.text().length)
      expect(state.bytes).toBeGreaterThan(String(state.memory?.['trip']).length)
    }
  }
  expect(most).toBeGreaterThan(8_000)
  expect(most).toBeLessThanOrEqual(16_384)
})
