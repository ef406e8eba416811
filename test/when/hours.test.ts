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
import {
  all,
  any,
  below,
  type Condition,
  type Edge,
  ends,
  episode,
  hours,
  is,
  isAsleep,
  isOnline,
  not,
  type PeriodOptions,
  span,
  starts,
} from 'fleethook/when'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { periodsOf } from '../../src/when/hours.ts'
import { inForm } from '../form.ts'
import { newFolder } from '../folder.ts'
import { silent as silentLog, unwatched } from '../vehicles/scene.ts'

const vin = '0FLEETV14T0000004'
const zone = 'Europe/Amsterdam'
const minute = 60_000

/** What a condition needs of a vehicle, when only the time decides. */
const at = (ms: number) => ({ moment: new Date(ms) }) as Parameters<Condition['test']>[0]

describe('hours', () => {
  /** Minute by minute, as a clock on the wall shows it. */
  const naive = (from: string, until: string, timeZone: string): ((ms: number) => boolean) => {
    const format = new Intl.DateTimeFormat('en-GB', { timeZone, hour: '2-digit', minute: '2-digit', hourCycle: 'h23' })
    return (ms) => {
      const shown = format.format(ms)
      return from < until ? shown >= from && shown < until : shown >= from || shown < until
    }
  }
  const zones = [
    ...[
      zone,
      'UTC',
      'America/New_York',
      'America/St_Johns',
      'Asia/Kathmandu',
      'Australia/Lord_Howe',
      'Africa/Casablanca',
    ],
    ...['Pacific/Apia', 'Asia/Tehran', 'America/Santiago', 'Pacific/Chatham', 'Africa/Cairo', 'America/Havana'],
  ]
  const changes = [
    ...['2026-03-29T01:00Z', '2026-10-25T01:00Z', '2026-03-08T07:00Z', '2026-11-01T06:00Z', '2011-12-30T10:00Z'],
    ...['2026-04-04T15:00Z', '2026-10-03T15:30Z', '2026-04-05T03:00Z', '2026-09-06T04:00Z', '2026-03-22T02:00Z'],
  ]
  const aTime = fc
    .tuple(fc.integer({ min: 0, max: 23 }), fc.constantFrom(0, 1, 15, 29, 30, 31, 59))
    .map(([hour, after]) => `${String(hour).padStart(2, '0')}:${String(after).padStart(2, '0')}`)

  test('is what a clock on the wall shows, and changes when that does, over both changes of the clock', () => {
    const aMoment = fc
      .tuple(fc.constantFrom(...changes), fc.integer({ min: -36 * 60, max: 36 * 60 }))
      .map(([change, minutes]) => Date.parse(change) + minutes * minute)
    fc.assert(
      fc.property(fc.constantFrom(...zones), aTime, aTime, aMoment, (timeZone, from, until, ms) => {
        fc.pre(from !== until)
        const condition = hours(from, until, { zone: timeZone })
        const model = naive(from, until, timeZone)
        expect(condition.test(at(ms))).toBe(model(ms))
        let next = ms + minute
        while (model(next) === model(ms)) next += minute
        expect(new Date(Number(condition.changesAt?.(at(ms))))).toEqual(new Date(next))
      }),
      { numRuns: inForm({ short: 60, full: 600, long: 5_000 }) },
    )
  })

  test('an hour that is there twice counts twice, and one that does not exist is passed over', () => {
    const early = hours('02:00', '03:00', { zone })
    const span = (day: string): readonly string[] => {
      const times: string[] = []
      for (let ms = Date.parse(`${day}T00:00:00+02:00`); times.length < 2;) {
        ms = Number(early.changesAt?.(at(ms)))
        times.push(new Date(ms).toISOString())
      }
      return times
    }
    expect(span('2026-10-25')).toEqual(['2026-10-25T00:00:00.000Z', '2026-10-25T02:00:00.000Z'])
    // On this day, the clock goes from 02:00 to 03:00.
    expect(span('2026-03-29')).toEqual(['2026-03-30T00:00:00.000Z', '2026-03-30T01:00:00.000Z'])
  })

  test('`24:00` is the end of the day', () => {
    const evening = hours('18:00', '24:00', { zone: 'UTC' })
    expect(evening.test(at(Date.UTC(2026, 0, 1, 23, 59)))).toBe(true)
    expect(evening.test(at(Date.UTC(2026, 0, 2)))).toBe(false)
    expect(new Date(Number(evening.changesAt?.(at(Date.UTC(2026, 0, 1, 20)))))).toEqual(new Date(Date.UTC(2026, 0, 2)))
  })

  test.each([
    [['25:00', '06:00', { zone }], 'was given "25:00" as `from`'],
    [['22:00', '6:00', { zone }], 'was given "6:00" as `until`'],
    [['24:00', '06:00', { zone }], 'was given "24:00" as `from`'],
    [['22:00', '24:01', { zone }], 'was given "24:01" as `until`'],
    [['22:00', '22:00', { zone }], 'from 22:00 to 22:00'],
    [['00:00', '24:00', { zone }], 'the whole day'],
    [['22:00', '06:00', { zone: 'Europe/Amsterdm' }], 'The zone "Europe/Amsterdm" does not exist'],
    [['22:00', '06:00', {}], 'zone'],
    [['22:00', '06:00', undefined], 'takes an object of options'],
    [[22, 6, { zone }], 'was given 22 as `from`'],
  ])('%j is refused', (given, problem) => {
    expect(() => hours(...(given as unknown as Parameters<typeof hours>))).toThrow(problem)
  })
})

function scene(
  edges: Readonly<Record<string, Edge>>,
  inbox: ReceiverOptions['inbox'] = memoryInbox(),
  clock = unwatched(fakeClock(Date.parse('2026-11-21T19:00:00Z'))), // 20:00 in Amsterdam
) {
  const told: string[] = []
  const parts = [vehicles({ fields: ['Gear', 'BatteryLevel'] })]
  const receiver = createReceiver({ secret: false, log: silentLog, clock, inbox, parts })
  for (const [name, edge] of Object.entries(edges))
    receiver.when(edge, ({ change }) => {
      const shown = new Intl.DateTimeFormat('sv-SE', { timeZone: zone, dateStyle: 'short', timeStyle: 'short' })
      told.push(`${name} ${shown.format(change.at).slice(8)}${change.acrossGap ? '~' : ''}`)
    })
  const car = vehicle(receiver, vin, { clock })
  return {
    told,
    receiver,
    clock,
    car,
    async send(data: FieldValues, agoMs = 0) {
      await car.data(data, { createdAt: new Date(clock.now() - agoMs).toISOString() })
    },
    async pass(count: number) {
      for (let left = count; left > 0; left -= 1) await clock.advance(60 * minute)
    },
  }
}

const night = hours('22:00', '06:00', { zone })

describe('a rule with hours', () => {
  test('begins and ends by itself each night, while the vehicle sends nothing', async () => {
    const parked = all(is('Gear', 'P'), night)
    const { send, pass, told } = scene({ begins: starts(parked), ends: ends(parked), night: starts(night) })
    await send({ Gear: 'P' })
    await pass(36)
    expect(told).toEqual([
      ...['begins 21 22:00', 'night 21 22:00', 'ends 22 06:00'],
      ...['begins 22 22:00', 'night 22 22:00', 'ends 23 06:00'],
    ])
  })

  test('sets no timer while another of its conditions is false', async () => {
    const { send, receiver, pass, told } = scene({ begins: starts(all(is('Gear', 'D'), night)) })
    await send({ Gear: 'P' })
    await pass(4)
    expect((await receiver.vehicles?.get(vin))?.timers).toEqual([])
    await send({ Gear: 'D' })
    expect(told).toEqual(['begins 22 00:00'])
  })

  test('counts its time within the hours, and again the next night', async () => {
    const { send, pass, told } = scene({ long: starts(all(is('Gear', 'P'), night)).after({ minutes: 30 }) })
    await send({ Gear: 'P' })
    await pass(36)
    expect(told).toEqual(['long 21 22:30', 'long 22 22:30'])
  })

  test('is over at the end of the hours, however long the next ones are', async () => {
    const { send, pass, told } = scene({ long: starts(all(is('Gear', 'P'), night)).after({ hours: 9 }) })
    await send({ Gear: 'P' })
    await pass(40)
    expect(told).toEqual([])
  })

  test('is not told again by a message that comes late', async () => {
    const { send, pass, told } = scene({ low: starts(all(below('BatteryLevel', 20), night)) })
    await send({ BatteryLevel: 15 })
    await pass(4)
    await send({ BatteryLevel: 14 }, 150 * minute)
    await pass(2)
    expect(told).toEqual(['low 21 22:00'])
  })

  test('tells a drive at night that is uploaded in the morning', async () => {
    const { send, pass, told } = scene({ drives: starts(all(is('Gear', 'D'), night)) })
    await send({ Gear: 'P' })
    await pass(12)
    await send({ Gear: 'D' }, 9 * 60 * minute)
    expect(told).toEqual(['drives 21 23:00'])
  })

  test('holds for vehicles that were there before it, from now on', async () => {
    const inbox = sqliteInbox({ path: `${newFolder('hours')}/inbox.db` })
    const before = scene({}, inbox)
    await before.send({ Gear: 'P' })
    await before.receiver.drain()
    const clock = unwatched(fakeClock(Date.parse('2026-11-25T20:59:00Z')))
    const rules = { begins: starts(all(is('Gear', 'P'), night)), odd: starts(any(is('Gear', 'D'), night)) }
    const after = scene(rules, inbox, clock)
    await after.receiver.open()
    await clock.advance(2 * minute)
    await after.receiver.drain()
    expect(after.told).toEqual(['begins 25 22:00~', 'odd 25 22:00~'])
  })

  test('can be the first or the second of two, and cools down', async () => {
    const parked = starts(all(is('Gear', 'P'), night))
    const { send, pass, told } = scene({
      missed: parked.unless(ends(is('Gear', 'P')), { within: { hours: 1 } }),
      followed: starts(below('BatteryLevel', 20)).followedBy(starts(night), { within: { hours: 5 } }),
      cooled: parked.cooldown({ hours: 30 }),
    })
    await send({ Gear: 'P', BatteryLevel: 30 })
    await send({ BatteryLevel: 15 })
    await pass(28)
    expect(told).toEqual(['followed 21 22:00', 'cooled 21 22:00', 'missed 21 23:00', 'missed 22 23:00'])
  })

  test('limits an edge by where', async () => {
    const { send, pass, told } = scene({ low: starts(below('BatteryLevel', 20)).where(not(night)) })
    await send({ BatteryLevel: 30 })
    await send({ BatteryLevel: 15 })
    await pass(4)
    await send({ BatteryLevel: 30 })
    await send({ BatteryLevel: 15 })
    expect(told).toEqual(['low 21 20:00'])
  })

  test('parts episodes', async () => {
    const driven = episode('driven at night', {
      during: all(is('Gear', 'D'), night),
      waits: { seconds: 2 },
      measures: {},
    })
    const { send, pass, told } = scene({ driven })
    await send({ Gear: 'P' })
    await send({ Gear: 'D' })
    await pass(12)
    expect(told).toEqual(['driven 22 06:00'])
    const sent = (data: FieldValues, hour: number): readonly FleetEvent[] => {
      const receivedAt = new Date(Date.UTC(2026, 10, 21, hour))
      const sentNow = message.data(data, { vin, createdAt: receivedAt.toISOString() })
      return normalize([encode(sentNow, 'service')], { receivedAt })
    }
    const found = driven.in([...sent({ Gear: 'P' }, 17), ...sent({ Gear: 'D' }, 18)])
    expect(found.map(({ startedAt, endedAt }) => [startedAt.toISOString(), endedAt.toISOString()])).toEqual([
      ['2026-11-21T21:00:00.000Z', '2026-11-22T05:00:00.000Z'],
    ])
  })
})

describe('splitsAt', () => {
  const trip = (splitsAt: PeriodOptions) =>
    episode('trip', {
      during: is('Gear', 'D'),
      joins: { minutes: 5 },
      waits: { seconds: 2 },
      splitsAt,
      measures: { level: span('BatteryLevel') },
    })

  function partsOf(edge: ReturnType<typeof trip>, beganAt: string) {
    const clock = unwatched(fakeClock(Date.parse(beganAt)))
    const rows = new Map<string, string>()
    const parts = [vehicles({ fields: ['Gear', 'BatteryLevel'] })]
    const receiver = createReceiver({ secret: false, log: silentLog, clock, parts }).when(edge, ({ change }) => {
      const text = [change.startedAt, change.endedAt].map((date) => date.toISOString().slice(5, 16)).join(' to ')
      rows.set(change.id, `${text}, ${change.level.from} to ${change.level.to}${change.revoked ? ' revoked' : ''}`)
    })
    return { rows, clock, car: vehicle(receiver, vin, { clock }) }
  }

  test('a trip over midnight is one of each day, in the zone, and nothing is lost between them', async () => {
    const { rows, clock, car } = partsOf(trip({ every: 'day', zone }), '2026-11-21T22:30:00Z')
    await car.data({ BatteryLevel: 60 })
    await car.data({ Gear: 'D' })
    for (let level = 59; level > 53; level -= 1) {
      await clock.advance(10 * minute)
      await car.data({ BatteryLevel: level })
    }
    await car.data({ Gear: 'P' })
    await clock.advance(60 * minute)
    expect([...rows.values()]).toEqual(['11-21T22:30 to 11-21T23:00, 60 to 57', '11-21T23:00 to 11-21T23:30, 57 to 54'])
  })

  test('a trip over the end of the month is split there, and at no other midnight', async () => {
    const { rows, clock, car } = partsOf(trip({ every: 'month', zone }), '2026-11-29T12:00:00Z')
    await car.data({ Gear: 'D' })
    for (let left = 48; left > 0; left -= 1) await clock.advance(60 * minute)
    await car.data({ Gear: 'P' })
    await clock.advance(60 * minute)
    const spans = [...rows.values()].map((row) => row.split(',')[0])
    expect(spans).toEqual(['11-29T12:00 to 11-30T23:00', '11-30T23:00 to 12-01T12:00'])
  })

  test('what comes late is in the part of its time, and a list of events has the same parts', async () => {
    const edge = trip({ every: 'day', zone })
    const { rows, clock, car } = partsOf(edge, '2026-11-21T22:30:00Z')
    await car.data({ Gear: 'D' })
    await clock.advance(60 * minute)
    await car.data({ Gear: 'P' })
    await clock.advance(10 * minute)
    const createdAt = (at: string): { readonly createdAt: string } => ({ createdAt: at })
    // It stood for a quarter of an hour around midnight.
    await car.data({ Gear: 'P' }, createdAt('2026-11-21T22:50:00Z'))
    await car.data({ Gear: 'D' }, createdAt('2026-11-21T23:05:00Z'))
    await clock.advance(60 * minute)
    const spans = [...rows.values()].map((row) => row.replace(/, .* to \w+/, ''))
    expect(spans.filter((row) => !row.includes('revoked'))).toEqual([
      '11-21T22:30 to 11-21T22:50',
      '11-21T23:05 to 11-21T23:30',
    ])
  })

  test('a zone without a midnight on the day when the clock is put forward has its days, and what is no period is refused', () => {
    const next = periodsOf('splitsAt', { every: 'day', zone: 'America/Santiago' })
    expect(new Date(next(Date.parse('2026-09-05T12:00:00Z'))).toISOString()).toBe('2026-09-06T04:00:00.000Z')
    expect(() => trip({ every: 'week', zone } as never)).toThrow('every')
    expect(() => trip({ every: 'day', zone: 'Mars' })).toThrow('The zone "Mars" does not exist')
  })
})

describe('isOnline', () => {
  test('is asked by each message that says so, and is neither until the first one', async () => {
    const { car, clock, told, pass, send } = scene({
      on: starts(isOnline()),
      off: starts(not(isOnline())).after({ hours: 1 }),
      lost: starts(all(is('Gear', 'D'), not(isOnline()))),
      asleep: starts(isAsleep()),
    })
    await send({ Gear: 'D' })
    await car.state('online')
    await pass(1)
    await car.state('offline')
    await pass(2)
    await car.state('online')
    await car.state('asleep')
    expect(told).toEqual(['lost 21 21:00', 'off 21 22:00', 'on 21 23:00', 'lost 21 23:00', 'asleep 21 23:00'])
    expect(clock.now()).toBeGreaterThan(0)
  })
  test('is nothing for an episode, which keeps values of fields', () => {
    expect(() => episode('online', { during: any(is('Gear', 'D'), isOnline()), measures: {} })).toThrow(
      'The episode `online` asks',
    )
  })
})
