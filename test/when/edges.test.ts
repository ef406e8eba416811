import {
  above,
  alertEnds,
  alertStarts,
  all,
  any,
  becomes,
  below,
  ceases,
  changed,
  circle,
  comesOnline,
  crosses,
  type Edge,
  ends,
  enters,
  fallsAsleep,
  falls,
  goesOffline,
  inside,
  is,
  leaves,
  not,
  rises,
  starts,
} from 'fleethook/when'
import { describe, expect, test } from 'vitest'
import type { GivenAlert } from 'fleethook/testing'
import { happenings } from '../vehicles/fold.ts'
import { eventsOf, type Told } from './messages.ts'

const place = { latitude: 52, longitude: 5 }
/** A latitude this many meters north of the center of the depot. */
const metersNorth = (meters: number): Told => ({
  data: { Location: { latitude: 52 + meters / 111_195, longitude: 5 } },
})
const depot = circle({ ...place, radiusMeters: 200 })
const charge = (DetailedChargeState: 'Charging' | 'Stopped' | 'Complete' | null): Told => ({
  data: { DetailedChargeState },
})
const battery = (...levels: readonly (number | null)[]): readonly Told[] =>
  levels.map((BatteryLevel) => ({ data: { BatteryLevel } }))

/** The indexes of the messages with which the edge happened. */
const indexes = (edge: Edge, told: readonly Told[]): readonly number[] =>
  happenings(edge, eventsOf(told)).map(({ index }) => index)

describe('edges of one field', () => {
  test.each<readonly [name: string, Edge, readonly Told[], readonly number[]]>([
    [
      'becomes',
      becomes('DetailedChargeState', 'Charging'),
      [charge('Stopped'), charge('Charging'), charge('Charging'), charge('Stopped'), charge('Charging')],
      [1, 4],
    ],
    [
      'becomes: the first value is no change',
      becomes('DetailedChargeState', 'Charging'),
      [charge('Charging'), charge('Charging')],
      [],
    ],
    [
      'becomes, first',
      becomes('DetailedChargeState', 'Charging', { first: true }),
      [charge('Charging'), charge('Charging')],
      [0],
    ],
    [
      'becomes: null keeps the last value',
      becomes('DetailedChargeState', 'Charging'),
      [charge('Stopped'), charge(null), charge('Stopped'), charge(null), charge('Charging')],
      [4],
    ],
    [
      'becomes: the same value after null is no change',
      becomes('DetailedChargeState', 'Charging'),
      [charge('Charging'), charge(null), charge('Charging')],
      [],
    ],
    [
      'becomes, invalid: a value that returns',
      becomes('DetailedChargeState', 'Charging', { invalid: true }),
      [charge('Charging'), charge(null), charge('Charging')],
      [2],
    ],
    [
      'becomes null, invalid',
      becomes('DetailedChargeState', null, { invalid: true }),
      [charge('Charging'), charge(null), charge('Charging')],
      [1],
    ],
    [
      'becomes null where null means none',
      becomes('DestinationName', null),
      [{ data: { DestinationName: 'Home' } }, { data: { DestinationName: null } }],
      [1],
    ],
    [
      'becomes a structure',
      becomes('Location', place),
      [{ data: { Location: { latitude: 52.001, longitude: 5 } } }, { data: { Location: place } }],
      [1],
    ],
    [
      'ceases',
      ceases('DetailedChargeState', 'Charging'),
      [charge('Charging'), charge('Complete'), charge('Stopped')],
      [1],
    ],
    [
      'ceases: null is no change',
      ceases('DetailedChargeState', 'Charging'),
      [charge('Charging'), charge(null), charge('Stopped')],
      [2],
    ],
    [
      'ceases, invalid',
      ceases('DetailedChargeState', 'Charging', { invalid: true }),
      [charge('Charging'), charge(null)],
      [1],
    ],
    [
      'changed',
      changed('DetailedChargeState'),
      [charge('Charging'), charge('Charging'), charge('Stopped'), charge(null), charge('Stopped')],
      [2],
    ],
    [
      'changed, first',
      changed('DetailedChargeState', { first: true }),
      [charge('Charging'), charge('Stopped')],
      [0, 1],
    ],
    [
      'changed, invalid',
      changed('DetailedChargeState', { invalid: true }),
      [charge('Charging'), charge(null), charge('Charging')],
      [1, 2],
    ],
    [
      'changed, delta: small steps add up',
      changed('BatteryLevel', { delta: 5 }),
      battery(50, 52, 54, 56, 55, 51, 50.9),
      [3, 5],
    ],
    ['rises', rises('BatteryLevel'), battery(50, 51, 50, 50, 50.1), [1, 4]],
    [
      'rises, delta: from the lowest',
      rises('BatteryLevel', { delta: 5 }),
      battery(50, 54, 40, 43, 44, 45, 49, 50),
      [5, 7],
    ],
    ['falls', falls('BatteryLevel'), battery(50, 51, 50, 50, 49), [2, 4]],
    ['falls, delta: from the highest', falls('BatteryLevel', { delta: 5 }), battery(50, 46, 48, 45, 44, 40), [3, 5]],
    ['crosses, below', crosses('BatteryLevel', { below: 20 }), battery(21, 20, 19.9, 10, 20, 19), [2, 5]],
    [
      'crosses, below, with hysteresis',
      crosses('BatteryLevel', { below: 20, again: 25 }),
      battery(30, 19, 21, 19, 24.9, 19, 25, 19),
      [1, 7],
    ],
    [
      'crosses, above, with hysteresis',
      crosses('BatteryLevel', { above: 80, again: 75 }),
      battery(79, 81, 76, 81, 75, 80, 80.1),
      [1, 6],
    ],
    [
      'crosses: low at first is no crossing',
      crosses('BatteryLevel', { below: 20, again: 25 }),
      battery(19, 22, 18, 26, 18),
      [4],
    ],
    ['crosses, first', crosses('BatteryLevel', { below: 20, first: true }), battery(19, 18), [0]],
    [
      'crosses, at a limit of 0',
      crosses('OutsideTemp', { below: 0 }),
      [{ data: { OutsideTemp: 1 } }, { data: { OutsideTemp: -1 } }],
      [1],
    ],
  ])('%s', (_, edge, told, expected) => {
    expect(indexes(edge, told)).toEqual(expected)
  })

  test('the change has both values with their times, and for a delta those of the last time', () => {
    const minute = (n: number): Date => new Date(Date.UTC(2026, 10, 21, 10, n))
    const [first] = happenings(changed('BatteryLevel', { delta: 5 }), eventsOf(battery(50, 52, 56)))
    expect(first?.happened).toMatchObject({ from: 50, to: 56, fromAt: minute(0), at: minute(2), acrossGap: false })
    const [second] = happenings(becomes('BatteryLevel', 56), eventsOf(battery(50, 52, 56)))
    expect(second?.happened).toMatchObject({ from: 52, to: 56, fromAt: minute(1), at: minute(2) })
  })

  test('a change over a gap happens and says so', () => {
    const [found] = happenings(
      becomes('DetailedChargeState', 'Charging'),
      eventsOf([charge('Stopped'), 'gap', charge('Charging')]),
    )
    expect(found?.happened.acrossGap).toBe(true)
    expect(
      indexes(becomes('DetailedChargeState', 'Charging'), [charge('Charging'), 'gap', charge('Charging')]),
    ).toEqual([])
  })

  test('a late message makes nothing happen', () => {
    const late: Told = { data: { DetailedChargeState: 'Stopped' }, atMinute: 0 }
    expect(
      indexes(changed('DetailedChargeState'), [charge('Stopped'), charge('Charging'), late, charge('Charging')]),
    ).toEqual([1])
  })
})

describe('edges of areas', () => {
  test.each<readonly [name: string, Edge, readonly Told[], readonly number[]]>([
    ['enters', enters(depot), [300, 100, 150, 201, 199].map(metersNorth), [1, 4]],
    ['enters: inside at first', enters(depot), [100, 150].map(metersNorth), []],
    ['enters, first', enters(depot, { first: true }), [100, 150].map(metersNorth), [0]],
    [
      'enters, with a margin',
      enters(depot, { marginMeters: 50 }),
      [300, 100, 230, 190, 251, 210, 190].map(metersNorth),
      [1, 6],
    ],
    ['leaves', leaves(depot), [100, 201, 300, 100, 201].map(metersNorth), [1, 4]],
    [
      'leaves, with a margin',
      leaves(depot, { marginMeters: 50 }),
      [100, 201, 249, 251, 300, 201, 260, 100, 260].map(metersNorth),
      [3, 8],
    ],
    ['leaves: outside at first', leaves(depot), [300, 400].map(metersNorth), []],
    [
      'a position that is no place, inside',
      enters(depot),
      [metersNorth(300), metersNorth(100), { data: { Location: { latitude: 95, longitude: 5 } } }, metersNorth(150)],
      [1],
    ],
    [
      'a position that is no place',
      enters(depot),
      [metersNorth(300), { data: { Location: { latitude: 95, longitude: 5 } } }, metersNorth(100)],
      [2],
    ],
  ])('%s', (_, edge, told, expected) => {
    expect(indexes(edge, told)).toEqual(expected)
  })

  test('the bounds of an edge have its margin in them', () => {
    const { bounds } = leaves(depot, { marginMeters: 1_000 })
    expect(bounds?.north).toBeGreaterThan(52 + 1_200 / 111_195)
    expect(bounds?.north).toBeLessThan(52 + 1_210 / 111_195)
  })
})

describe('edges of the whole vehicle', () => {
  const states = (...names: readonly string[]): readonly Told[] => names.map((state) => ({ state }))

  test.each<readonly [name: string, Edge, readonly Told[], readonly number[]]>([
    ['comesOnline', comesOnline(), states('asleep', 'online', 'driving', 'offline', 'online'), [1, 4]],
    ['comesOnline: online at first', comesOnline(), states('online', 'online'), []],
    ['comesOnline, first', comesOnline({ first: true }), states('online', 'online'), [0]],
    ['goesOffline', goesOffline(), states('online', 'asleep', 'offline', 'online', 'offline'), [1, 4]],
    ['fallsAsleep', fallsAsleep(), states('online', 'asleep', 'asleep', 'offline', 'asleep'), [1, 4]],
    ['fallsAsleep: asleep at first', fallsAsleep(), states('asleep', 'asleep'), []],
  ])('%s', (_, edge, told, expected) => {
    expect(indexes(edge, told)).toEqual(expected)
  })

  test('what happens over a gap says so', () => {
    const [found] = happenings(comesOnline(), eventsOf([{ state: 'asleep' }, 'gap', { state: 'online' }]))
    expect(found?.happened.acrossGap).toBe(true)
  })

  const started = { name: 'Low', startedAt: '2026-11-21T09:00:00Z' }
  const ended = { ...started, endedAt: '2026-11-21T10:01:30Z' }
  const later = { name: 'Low', startedAt: '2026-11-21T10:02:00.5Z' }
  const other = { name: 'Other', startedAt: '2026-11-21T09:30:00Z' }
  const ahead = { name: 'Low', startedAt: '2026-11-21T10:04:30Z' }
  const aheadLater = { name: 'Low', startedAt: '2026-11-21T10:04:40Z' }
  const old = Array.from({ length: 20 }, (_, n) => ({
    name: `Old${n}`,
    startedAt: '2026-11-15T09:00:00Z',
    endedAt: '2026-11-15T09:10:00Z',
  }))
  const alerts = (...lists: readonly (readonly GivenAlert[])[]): readonly Told[] =>
    lists.map((list) => ({ alerts: list }))

  test.each<readonly [name: string, Edge, readonly Told[], readonly number[]]>([
    ['alertStarts', alertStarts('Low'), alerts([started], [started, other], [ended], [later, ended]), [0, 3]],
    ['alertStarts of any name', alertStarts(), alerts([started], [started, other], [ended], [later]), [0, 1, 3]],
    [
      'alertStarts: a late message lists an alert that has ended',
      alertStarts(),
      alerts([started], [ended], [started]),
      [0],
    ],
    ['alertStarts: another start without an end between', alertStarts(), alerts([started], [later]), [0, 1]],
    [
      'alertStarts, without a start',
      alertStarts(),
      [
        { alerts: [{ name: 'Low' }] },
        { alerts: [{ name: 'Low' }] },
        { alerts: [{ name: 'Low', endedAt: '2026-11-21T10:02:30Z' }] },
        { alerts: [{ name: 'Low' }] },
      ],
      [0, 3],
    ],
    [
      'alertEnds',
      alertEnds('Low'),
      alerts([started], [ended], [ended], [later], [{ ...later, endedAt: '2026-11-21T10:03:00Z' }]),
      [1, 4],
    ],
    ['alertEnds: no message listed it as active', alertEnds(), alerts([ended], [ended]), [0]],
    [
      'alertStarts: it is over in its first message',
      alertStarts(),
      alerts([ended], [ended], [], [ended, other]),
      [0, 3],
    ],
    [
      'alertStarts: it began and ended again since the last message',
      alertStarts(),
      alerts([started], [], [], [{ ...later, endedAt: '2026-11-21T10:02:01Z' }, ended]),
      [0, 3],
    ],
    [
      'alertEnds: it began and ended again since the last message',
      alertEnds(),
      alerts([started], [], [ended], [{ ...later, endedAt: '2026-11-21T10:02:01Z' }, ended]),
      [2, 3],
    ],
    [
      'alertStarts: old ones come beside it',
      alertStarts(),
      alerts([...old, started], [...old, ended], [], [...old, later, ended]),
      [0, 3],
    ],
    [
      'alertEnds: old ones come beside it',
      alertEnds(),
      alerts([...old, started], [], [...old, ended], [...old, later, ended]),
      [2],
    ],
    [
      'alertEnds: an end without a start, twice',
      alertEnds(),
      alerts([], [], [{ name: 'Low', endedAt: ended.endedAt }], [{ name: 'Low', endedAt: ended.endedAt }]),
      [2],
    ],
    [
      'alertStarts: two starts that are ahead of the receipt',
      alertStarts(),
      alerts([ahead], [ahead, aheadLater], [ahead], [aheadLater]),
      [0, 1],
    ],
    [
      'alertStarts: a start that is ahead of the receipt, and the next one',
      alertStarts(),
      alerts(
        [ahead],
        [ahead],
        [{ ...ahead, endedAt: ahead.startedAt }],
        [{ name: 'Low', startedAt: '2026-11-21T10:02:30Z' }],
      ),
      [0, 3],
    ],
  ])('%s', (_, edge, told, expected) => {
    expect(indexes(edge, told)).toEqual(expected)
  })

  test('several of one name in one message are told in the order in which they began', () => {
    const again = [{ ...later, endedAt: '2026-11-21T10:03:00Z' }, ended]
    for (const edge of [alertStarts(), alertEnds()]) {
      const found = happenings(edge, eventsOf(alerts([], [], [], again)))[0]
      expect(found?.happened.alerts.map(({ startedAt }) => startedAt)).toEqual([started.startedAt, later.startedAt])
    }
  })

  test('an occurrence has all alerts that started with one message', () => {
    const [found] = happenings(alertStarts(), eventsOf(alerts([started, other])))
    expect(found?.happened.alerts.map(({ name }) => name)).toEqual(['Low', 'Other'])
  })

  test('what an edge remembers of alerts stays small', () => {
    const many = Array.from({ length: 5_000 }, (_, n) => ({ name: `A${n}`, startedAt: '2026-11-21T09:00:00Z' }))
    const [event] = eventsOf([{ alerts: many }])
    if (event === undefined) throw new Error('no event')
    const found = alertStarts().detect({
      before: undefined as never,
      after: undefined as never,
      event,
      at: event.at,
      arrivedMs: 0,
      changes: [],
      memory: undefined,
      timer: undefined,
    })
    expect(String(found?.memory).length).toBeLessThan(4_000)
  })
})

describe('starts and ends', () => {
  const low = all(is('DetailedChargeState', 'Charging'), inside(depot), below('BatteryLevel', 20))

  test('happens with whichever field comes last', () => {
    const away = [charge('Stopped'), metersNorth(900), ...battery(50)]
    expect(indexes(starts(low), [...away, charge('Charging'), metersNorth(1), ...battery(19)])).toEqual([5])
    expect(indexes(starts(low), [...away, ...battery(19), metersNorth(1), charge('Charging')])).toEqual([5])
    expect(indexes(starts(low), [...away, charge('Charging'), ...battery(19), metersNorth(1)])).toEqual([5])
  })

  test('an unknown value is neither true nor false: it starts nothing and ends nothing', () => {
    expect(indexes(starts(low), [charge('Charging'), metersNorth(1), ...battery(19)])).toEqual([])
    expect(indexes(starts(low, { first: true }), [charge('Charging'), metersNorth(1), ...battery(19)])).toEqual([2])
    expect(indexes(ends(not(low)), [charge('Charging'), metersNorth(1), ...battery(19)])).toEqual([])
  })

  test('one false value makes all of them false, whatever else is unknown', () => {
    expect(indexes(starts(low), [charge('Stopped'), charge('Charging'), metersNorth(1), ...battery(19)])).toEqual([3])
  })

  test('an uncertain value ends nothing, and what happened in the gap is reported after it', () => {
    const charging = is('DetailedChargeState', 'Charging')
    expect(indexes(ends(charging), [charge('Charging'), 'gap', charge('Charging'), charge('Stopped')])).toEqual([3])
    const told = [charge('Stopped'), 'gap', charge('Charging')] as const
    expect(happenings(starts(charging), eventsOf(told))).toMatchObject([{ index: 2, happened: { acrossGap: true } }])
  })

  test('bounds are those of the areas that the condition cannot be true without', () => {
    expect(starts(low).bounds).toEqual(depot.bounds)
    expect(starts(not(inside(depot))).bounds).toBeUndefined()
    expect(starts(any(inside(depot), above('BatteryLevel', 1))).bounds).toBeUndefined()
    const east = circle({ latitude: 52, longitude: 6, radiusMeters: 200 })
    expect(starts(any(inside(depot), inside(east))).bounds).toEqual({ ...depot.bounds, east: east.bounds.east })
  })
})

describe('where', () => {
  const parksLow = becomes('Gear', 'P').where(inside(depot), below('BatteryLevel', 20))
  const gear = (Gear: 'P' | 'D'): Told => ({ data: { Gear } })

  test('the edge happens only when every condition is true after the message', () => {
    expect(indexes(parksLow, [gear('D'), metersNorth(1), ...battery(19), gear('P')])).toEqual([3])
    expect(indexes(parksLow, [gear('D'), metersNorth(1), ...battery(21), gear('P'), ...battery(19)])).toEqual([])
    expect(indexes(parksLow, [gear('D'), metersNorth(1), gear('P'), ...battery(19)])).toEqual([])
    const together: Told = { data: { Gear: 'P', Location: place, BatteryLevel: 19 } }
    expect(indexes(parksLow, [gear('D'), together])).toEqual([1])
  })

  test('an uncertain value that makes a condition false delays, until the vehicle reports what decides', () => {
    const before: readonly Told[] = [gear('D'), metersNorth(1), ...battery(30), 'gap', gear('P')]
    expect(indexes(parksLow, before)).toEqual([])
    expect(indexes(parksLow, [...before, metersNorth(1), ...battery(30), ...battery(19)])).toEqual([])
    expect(indexes(parksLow, [...before, metersNorth(5_000), ...battery(19)])).toEqual([])
    expect(happenings(parksLow, eventsOf([...before, 'gap', gear('D'), ...battery(19), ...battery(18)]))).toEqual([
      {
        index: 7,
        happened: expect.objectContaining({ acrossGap: true, to: 'P', at: expect.any(Date), fromAt: expect.any(Date) }),
      },
    ])
    // Two steps of conditions, and what the edge remembers moves on meanwhile.
    const twice = crosses('BatteryLevel', { below: 20, again: 25 }).where(is('Gear', 'P')).where(is('Locked', true))
    const locked = (Locked: boolean): Told => ({ data: { Locked } })
    const crossed: readonly Told[] = [gear('D'), locked(false), ...battery(30), 'gap', ...battery(19)]
    expect(indexes(twice, [...crossed, gear('P'), ...battery(22), locked(true), ...battery(19)])).toEqual([7])
    expect(indexes(twice, [...crossed, locked(true), ...battery(26), gear('P'), ...battery(19)])).toEqual([7, 8])
  })

  test('each of several that wait for the same value is told when it comes, and none when it says no', () => {
    const inPark = changed('BatteryLevel').where(is('Gear', 'P'))
    const told: readonly Told[] = [gear('D'), ...battery(50), 'gap', ...battery(49, 48, 47)]
    expect(indexes(inPark, told)).toEqual([])
    expect(happenings(inPark, eventsOf([...told, gear('P'), ...battery(46)]))).toMatchObject([
      ...[49, 48, 47].map((to) => ({ index: 6, happened: { to, acrossGap: true } })),
      { index: 7, happened: { to: 46, acrossGap: false } },
    ])
    expect(indexes(inPark, [...told, gear('D'), ...battery(46)])).toEqual([])
    // An edge remembers little. What does not fit is told without waiting, and marked.
    const many = Array.from({ length: 60 }, (_, n) => 90 - n)
    const found = happenings(inPark, eventsOf([gear('D'), ...battery(91), 'gap', ...battery(...many), gear('P')]))
    expect(found.map(({ happened }) => happened.to)).toEqual(many)
    expect(found.filter(({ index }) => index < 63)).toHaveLength(10)
    expect(found.every(({ happened }) => happened.acrossGap)).toBe(true)
  })

  test('what is too long to wait is told at once, and marked', () => {
    const alerts = Array.from({ length: 8 }, (_, n) => ({ name: `Alert ${n}`, more: 'x'.repeat(12_000) }))
    const told: readonly Told[] = [gear('D'), 'gap', { alerts }, gear('P')]
    expect(happenings(alertStarts().where(is('Gear', 'P')), eventsOf(told))).toMatchObject([
      { index: 2, happened: { acrossGap: true } },
    ])
  })

  test('what an edge remembers moves on while the conditions are not true', () => {
    const lowWhileParked = crosses('BatteryLevel', { below: 20, again: 25 }).where(is('Gear', 'P'))
    expect(indexes(lowWhileParked, [gear('D'), ...battery(30, 19, 22), gear('P'), ...battery(19, 26, 19)])).toEqual([7])
  })

  test('it reads the fields of its conditions, and only its own make it happen', () => {
    expect(parksLow.fields).toEqual(['Gear'])
    expect(parksLow.reads).toEqual(['Gear', 'Location', 'BatteryLevel'])
  })
})

describe('names', () => {
  test('a derived name says what the edge is, whatever the order of the options', () => {
    expect(becomes('Gear', 'P').where(inside(depot), below('BatteryLevel', 20)).name).toBe(
      'becomes(Gear,"P").where(inside(circle(52,5,200)),below(BatteryLevel,20))',
    )
    expect(crosses('BatteryLevel', { again: 25, below: 20 }).name).toBe(
      crosses('BatteryLevel', { below: 20, again: 25 }).name,
    )
    expect(changed('BatteryLevel', { delta: 5, first: false }).name).toBe('changed(BatteryLevel,delta 5)')
    expect(comesOnline({ first: true }).name).toBe('comesOnline(first)')
  })

  test('a given name stays, before and after `where`', () => {
    const condition = is('Gear', 'P')
    expect(comesOnline().named('wakes').where(condition).name).toBe('wakes')
    expect(comesOnline().where(condition).named('wakes').name).toBe('wakes')
    expect(() => comesOnline().named('')).toThrow('The name of an edge must be a text of 1 to 100 characters.')
  })

  test('edges that differ have different names', () => {
    const edges = [
      becomes('Gear', 'P'),
      becomes('Gear', 'D'),
      becomes('Gear', 'P', { first: true }),
      ceases('Gear', 'P'),
      changed('Gear'),
      crosses('BatteryLevel', { below: 0 }),
      crosses('BatteryLevel', { above: 0 }),
      crosses('BatteryLevel', { below: 1 }),
      rises('BatteryLevel'),
      falls('BatteryLevel'),
      enters(depot),
      leaves(depot),
      enters(depot, { marginMeters: 5 }),
      comesOnline(),
      goesOffline(),
      fallsAsleep(),
      alertStarts(),
      alertEnds(),
      alertStarts('Low'),
      starts(is('Gear', 'P')),
      ends(is('Gear', 'P')),
      starts(not(is('Gear', 'P'))),
      becomes('Gear', 'P').where(is('Locked', true)),
    ]
    expect(new Set(edges.map(({ name }) => name)).size).toBe(edges.length)
  })
})
