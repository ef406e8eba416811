import type { FieldCatalogue } from 'fleethook'
import type { OtherField } from 'fleethook/normalize'
import {
  above,
  all,
  any,
  type AnyVehicleView,
  becomes,
  below,
  between,
  ceases,
  type Change,
  changed,
  circle,
  comesOnline,
  type Condition,
  crosses,
  type Edge,
  ends,
  enters,
  falls,
  inside,
  is,
  leaves,
  not,
  polygon,
  rises,
  rulesFor,
  starts,
  type VehicleEdge,
} from 'fleethook/when'
import fc from 'fast-check'
import { describe, expect, expectTypeOf, test } from 'vitest'
import { inForm } from '../form.ts'
import { happenings, looksAsReceiver } from '../vehicles/fold.ts'
import { eventsOf, type Told } from './messages.ts'

const numRuns = inForm({ short: 300, full: 5_000, long: 100_000 })

describe('conditions', () => {
  const view = (values: Readonly<Record<string, unknown>>, uncertain: readonly string[] = []): AnyVehicleView => ({
    vin: 'VIN',
    value: (field) => values[field] as never,
    at: () => undefined,
    since: () => undefined,
    ageMs: () => undefined,
    isCertain: (field) => values[field] !== undefined && !uncertain.includes(field),
    invalidSince: () => undefined,
    fields: Object.keys(values),
    online: undefined,
    state: undefined,
    isOnlineCertain: false,
    seenAt: undefined,
    moment: new Date(0),
    clockBehindMs: undefined,
    timers: [],
    trace: () => undefined,
    fact: () => undefined,
    facts: [],
  })

  test.each<readonly [Condition, unknown, boolean | undefined]>([
    [is('Gear', 'P'), { Gear: 'P' }, true],
    [is('Gear', 'P'), { Gear: 'D' }, false],
    [is('Gear', 'P'), {}, undefined],
    [is('DestinationName', null), { DestinationName: null }, true],
    [is('Location', { latitude: 1, longitude: 2 }), { Location: { longitude: 2, latitude: 1 } }, true],
    [below('BatteryLevel', 20), { BatteryLevel: 20 }, false],
    [below('BatteryLevel', 20), { BatteryLevel: 19.9 }, true],
    [above('BatteryLevel', 20), { BatteryLevel: 20 }, false],
    [above('BatteryLevel', 20), { BatteryLevel: 20.1 }, true],
    [between('BatteryLevel', 20, 30), { BatteryLevel: 20 }, true],
    [between('BatteryLevel', 20, 30), { BatteryLevel: 30 }, true],
    [between('BatteryLevel', 20, 30), { BatteryLevel: 30.1 }, false],
    [below('MinutesToArrival', 5), { MinutesToArrival: null }, false],
    [inside(circle({ latitude: 1, longitude: 2, radiusMeters: 9 })), { Location: { latitude: 1, longitude: 2 } }, true],
    [
      inside(circle({ latitude: 1, longitude: 2, radiusMeters: 9 })),
      { Location: { latitude: 1, longitude: 3 } },
      false,
    ],
    [
      inside(circle({ latitude: 1, longitude: 2, radiusMeters: 9 })),
      { Location: { latitude: 1, longitude: 300 } },
      undefined,
    ],
    [inside(circle({ latitude: 1, longitude: 2, radiusMeters: 9 })), {}, undefined],
  ])('%# %j of %j', (condition, values, expected) => {
    expect(condition.test(view(values as never))).toBe(expected)
    expect(condition.test(view(values as never, condition.fields))).toBeUndefined()
  })

  type Truths = Readonly<Record<string, boolean>>
  /** A condition of three unknown truths, and a plain way to say when it can be true. */
  interface Formula {
    readonly condition: Condition
    readonly truth: (known: Truths) => boolean
  }
  const names = ['Locked', 'LocatedAtHome', 'LocatedAtWork']
  const leaf = fc.constantFrom(...names).map((name): Formula => {
    const condition = is(name as OtherField, true)
    return { condition, truth: (known) => known[name] === true }
  })
  const { formula } = fc.letrec<{ readonly formula: Formula }>((tie) => ({
    formula: fc.oneof(
      { maxDepth: 4 },
      leaf,
      tie('formula').map(({ condition, truth }) => ({
        condition: not(condition),
        truth: (known: Truths) => !truth(known),
      })),
      fc.tuple(fc.boolean(), fc.array(tie('formula'), { minLength: 1, maxLength: 3 })).map(([isAll, parts]) => {
        const combine = isAll ? all : any
        return {
          condition: combine(...parts.map((part) => part.condition)),
          truth: (known: Truths) =>
            isAll ? parts.every(({ truth }) => truth(known)) : parts.some(({ truth }) => truth(known)),
        }
      }),
    ),
  }))

  test('a condition is true only if it is true whatever the unknown and uncertain values are, and false likewise', () => {
    const known = fc.constantFrom(true, false, undefined)
    fc.assert(
      fc.property(
        formula,
        fc.tuple(known, known, known),
        fc.subarray(names),
        ({ condition, truth }, given, uncertain) => {
          const values = Object.fromEntries(names.map((name, index) => [name, given[index]]))
          const open = names.filter((name) => values[name] === undefined || uncertain.includes(name))
          const possible = worlds(open).map((world) => truth({ ...values, ...world } as Record<string, boolean>))
          const found = condition.test(view(values, uncertain))
          if (found !== undefined) expect(new Set(possible)).toEqual(new Set([found]))
          if (open.length === 0) expect(found).toBe(possible[0])
        },
      ),
      { numRuns },
    )
  })

  const worlds = (open: readonly string[]): readonly Readonly<Record<string, boolean>>[] =>
    open.reduce<readonly Readonly<Record<string, boolean>>[]>(
      (all_, name) => all_.flatMap((world) => [true, false].map((value) => ({ ...world, [name]: value }))),
      [{}],
    )
})

describe('every edge, over random messages', () => {
  const depot = circle({ latitude: 52, longitude: 5, radiusMeters: 200 })
  const gear = fc.constantFrom('P', 'D', 'R', null)
  const level = fc.constantFrom(10, 18, 20, 22, 25, 30, null)
  const position = fc.integer({ min: -6, max: 6 }).map((step) => ({ latitude: 52 + step / 1_500, longitude: 5 }))
  const told: fc.Arbitrary<Told> = fc.oneof(
    {
      weight: 8,
      arbitrary: fc.record({
        data: fc.record({ Gear: gear, BatteryLevel: level, Location: position }, { requiredKeys: [] }),
      }),
    },
    { weight: 1, arbitrary: fc.constantFrom('online', 'asleep', 'driving').map((state) => ({ state })) },
    { weight: 1, arbitrary: fc.constant('gap' as const) },
  )
  const history = fc.array(told, { maxLength: 40 })

  test('becomes, ceases and crosses without hysteresis are what a loop over the values finds', () => {
    fc.assert(
      fc.property(history, (messages) => {
        const events = eventsOf(messages)
        const values = <Value>(field: string): readonly (readonly [index: number, from: Value, to: Value])[] => {
          let last: Value | undefined
          return events.flatMap((event, index) => {
            const value =
              event.topic === 'data' ? (event.data[field as OtherField] as Value | null | undefined) : undefined
            if (value === undefined || value === null) return []
            const from = last
            last = value
            return from === undefined ? [] : [[index, from, value] as const]
          })
        }
        const expected = <Value>(field: string, is_: (from: Value, to: Value) => boolean): readonly number[] =>
          values<Value>(field).flatMap(([index, from, to]) => (is_(from, to) ? [index] : []))
        const found = (edge: Edge): readonly number[] => happenings(edge, events).map(({ index }) => index)
        expect(found(becomes('Gear', 'P'))).toEqual(expected('Gear', (from, to) => from !== 'P' && to === 'P'))
        expect(found(ceases('Gear', 'P'))).toEqual(expected('Gear', (from, to) => from === 'P' && to !== 'P'))
        expect(found(crosses('BatteryLevel', { below: 20 }))).toEqual(
          expected<number>('BatteryLevel', (from, to) => from >= 20 && to < 20),
        )
        expect(found(rises('BatteryLevel'))).toEqual(expected<number>('BatteryLevel', (from, to) => to > from))
      }),
      { numRuns },
    )
  })

  test('two opposite edges take turns: hysteresis, areas, and conditions', () => {
    const pairs: readonly (readonly [Edge, Edge])[] = [
      [enters(depot, { marginMeters: 150, first: true }), leaves(depot, { marginMeters: 150 })],
      [starts(below('BatteryLevel', 20), { first: true }), ends(below('BatteryLevel', 20))],
      [comesOnline({ first: true }), rulesFor({}).becomes('Gear', 'SNA')],
    ]
    fc.assert(
      fc.property(history, fc.nat(1), (messages, which) => {
        const events = eventsOf(messages)
        const [on, off] = pairs[which] ?? pairs[0] ?? []
        if (on === undefined || off === undefined) return
        const turns = [
          ...happenings(on, events).map(({ index }) => [index, 'on'] as const),
          ...happenings(off, events).map(({ index }) => [index, 'off'] as const),
        ]
          .toSorted(([one], [two]) => one - two)
          .map(([, turn]) => turn)
        expect(turns.every((turn, index) => turn === (index % 2 === 0 ? 'on' : 'off'))).toBe(true)
      }),
      { numRuns },
    )
  })

  test('starts and ends are what a loop over the truths by the last values finds', () => {
    const condition = any(all(is('Gear', 'P'), below('BatteryLevel', 20)), inside(depot))
    fc.assert(
      fc.property(history, (messages) => {
        const events = eventsOf(messages)
        const truths = truthsOf(condition, events)
        let last: boolean | undefined
        const started = truths.flatMap((truth, index) => {
          const before = last
          last = truth ?? last
          return before === false && truth === true ? [index] : []
        })
        expect(happenings(starts(condition), events).map(({ index }) => index)).toEqual(started)
      }),
      { numRuns },
    )
  })

  test('what an edge finds is the same when its messages are split into more messages of the same moment', () => {
    const edges = [
      becomes('Gear', 'P'),
      crosses('BatteryLevel', { below: 20, again: 25 }),
      enters(depot),
      starts(all(is('Gear', 'P'), below('BatteryLevel', 20))),
    ]
    fc.assert(
      fc.property(
        fc.array(fc.record({ Gear: gear, BatteryLevel: level, Location: position }, { requiredKeys: [] }), {
          maxLength: 20,
        }),
        fc.nat(3),
        (datas, which) => {
          const edge = edges[which]
          if (edge === undefined) return
          const whole = happenings(edge, eventsOf(datas.map((data) => ({ data })))).length
          const order = (data: object): readonly Told[] =>
            Object.entries(data)
              .toReversed()
              .map(([name, value]) => ({ data: { [name]: value } }))
          const parts = happenings(edge, eventsOf(datas.flatMap(order))).length
          // With two fields in two messages, a condition can be true for a moment between them.
          if (edge.fields.length === 1) expect(parts).toBe(whole)
          else expect(parts).toBeGreaterThanOrEqual(whole)
        },
      ),
      { numRuns },
    )
  })

  test('an edge finds the same when it looks only at messages that touch its fields, near its area', () => {
    const edges: readonly Edge[] = [
      becomes('Gear', 'P'),
      crosses('BatteryLevel', { below: 20, again: 25 }),
      enters(depot, { marginMeters: 100, first: true }),
      leaves(depot, { marginMeters: 100 }),
      starts(all(inside(depot), is('Gear', 'P')), { first: true }),
      starts(all(inside(depot), below('BatteryLevel', 20))),
      ends(all(inside(depot), is('Gear', 'P'))),
      ends(inside(depot)),
      comesOnline(),
    ]
    fc.assert(
      fc.property(history, fc.constantFrom(...edges), (messages, edge) => {
        const events = eventsOf(messages)
        const found = (looks?: typeof looksAsReceiver): readonly number[] =>
          happenings(edge, events, looks).map(({ index }) => index)
        expect(found(looksAsReceiver)).toEqual(found())
      }),
      { numRuns: numRuns * 3 },
    )
  })

  function truthsOf(condition: Condition, events: ReturnType<typeof eventsOf>): readonly (boolean | undefined)[] {
    const probe: Edge = {
      ...starts(condition),
      detect({ after }) {
        const known = {
          value: (field: string) => after.value(field),
          isCertain: (field: string) => after.value(field) !== undefined,
        }
        truths.push(condition.test(known as typeof after))
        return undefined
      },
    }
    const truths: (boolean | undefined)[] = []
    happenings(probe, events)
    return truths
  }
})

describe('rules that can never be right are refused, with what to change', () => {
  const notTyped = (value: unknown): never => value as never

  test.each<readonly [name: string, make: () => unknown, message: string, hint: string]>([
    [
      'a constant of another enum',
      () => becomes('Gear', notTyped('Park')),
      '`becomes` compares `Gear` with "Park", which it can never be.',
      'It is one of Unknown, Invalid, P, R, N, D, SNA.',
    ],
    [
      'a misspelled constant',
      () => is('DetailedChargeState', notTyped('Chargng')),
      'which it can never be.',
      "Did you mean 'Charging'?",
    ],
    [
      'a text for a number',
      () => becomes('BatteryLevel', notTyped('20')),
      'compares `BatteryLevel` with "20"',
      'It is a number.',
    ],
    ['a number for a boolean', () => ceases('Locked', notTyped(1)), 'compares `Locked` with 1', 'It is true or false.'],
    [
      'a place outside the earth',
      () => is('Location', { latitude: 91, longitude: 0 }),
      'compares `Location` with',
      'It is a { latitude, longitude }.',
    ],
    [
      'null where it keeps the last value',
      () => becomes('Gear', null),
      'compares `Gear` with null, and its last value stays',
      '{ invalid: true }',
    ],
    [
      'a limit for a field without numbers',
      () => crosses(notTyped('Gear'), { below: 20 }),
      '`crosses` needs a field of numbers, and `Gear` is one of Unknown',
      '`becomes`',
    ],
    [
      'a delta for a field without numbers',
      () => changed('Gear', notTyped({ delta: 2 })),
      '`changed` needs a field of numbers',
      '`becomes`',
    ],
    [
      'a limit that is not a number',
      () => below('BatteryLevel', Number.NaN),
      '`below` of `BatteryLevel` was given NaN',
      'Pass a number.',
    ],
    [
      'a range without numbers in it',
      () => between('BatteryLevel', 30, 20),
      'is from 30 to 20, which no number is',
      'smaller number first',
    ],
    [
      '`again` on the wrong side, below',
      () => crosses('BatteryLevel', { below: 20, again: 15 }),
      'has { below: 20, again: 15 }, and `again` is on the wrong side',
      'Pass a number above 20',
    ],
    [
      '`again` on the wrong side, above',
      () => crosses('BatteryLevel', { above: 80, again: 85 }),
      'has { above: 80, again: 85 }',
      'Pass a number below 80',
    ],
    ['no limit', () => crosses('BatteryLevel', notTyped({ again: 85 })), '`crosses` needs one limit', '{ below: 20 }'],
    [
      'two limits',
      () => crosses('BatteryLevel', notTyped({ below: 20, above: 80 })),
      '`crosses` needs one limit',
      'register two edges',
    ],
    [
      'an option that does not exist',
      () => becomes('Gear', 'P', notTyped({ again: 3 })),
      'becomes has no option `again`.',
      'first, invalid',
    ],
    ['a delta of 0', () => rises('BatteryLevel', { delta: 0 }), 'Option `delta` of rises must be a number above 0', ''],
    [
      'a margin below 0',
      () => enters(circle({ latitude: 0, longitude: 0, radiusMeters: 1 }), { marginMeters: -1 }),
      'Option `marginMeters` of enters must be',
      '',
    ],
    [
      'an edge as a condition',
      () => all(notTyped(becomes('Gear', 'P'))),
      '`all` was given something other than a condition',
      'An edge, such as becomes, is for receiver.when.',
    ],
    [
      'an edge in where',
      () => becomes('Gear', 'P').where(notTyped(comesOnline())),
      '`where` was given something other',
      'Conditions are is, below',
    ],
    ['no condition', () => any(), '`any` was given no condition', 'at least one'],
    [
      'a place as an area',
      () => leaves(notTyped({ latitude: 1, longitude: 1 })),
      '`leaves` needs an area',
      '`circle` or `polygon`',
    ],
    ['no field', () => falls(notTyped(undefined)), '`falls` needs the name of a field', ''],
    [
      'a constant of your own catalogue',
      () => rulesFor({ Mood: { enum: ['Calm', 'Angry'] } }).is('Mood', notTyped('Angy')),
      'compares `Mood` with "Angy"',
      "Did you mean 'Angry'?",
    ],
  ])('%s', (_, make, message, hint) => {
    expect(make).toThrow(expect.objectContaining({ code: 'option_invalid', message: expect.stringContaining(message) }))
    if (hint !== '') expect(make).toThrow(expect.objectContaining({ hint: expect.stringContaining(hint) }))
  })

  test('anything else that a program without types passes is refused with a FleethookError, or accepted', () => {
    const makers: readonly ((...given: never[]) => unknown)[] = [
      becomes,
      ceases,
      changed,
      crosses,
      rises,
      falls,
      is,
      below,
      above,
      between,
      inside,
      all,
      any,
      not,
      enters,
      leaves,
      starts,
      ends,
      circle,
      polygon,
    ]
    fc.assert(
      fc.property(fc.constantFrom(...makers), fc.array(fc.anything(), { maxLength: 3 }), (make, given) => {
        try {
          make(...(given as never[]))
        } catch (error) {
          expect(error).toMatchObject({ name: 'FleethookError', code: 'option_invalid' })
        }
      }),
      { numRuns },
    )
  })
})

describe('types', () => {
  test('a field takes only the constants that it can have', () => {
    const rules = (): readonly unknown[] => [
      // @ts-expect-error: P, R, N, D, …
      becomes('Gear', 'X'),
      // @ts-expect-error: BatteryLevel
      becomes('BateryLevel', 20),
      // @ts-expect-error: a number
      is('BatteryLevel', '20'),
      // @ts-expect-error: Gear has no numbers
      crosses('Gear', { below: 20 }),
      // @ts-expect-error: Gear has no numbers
      below('Gear', 20),
      // @ts-expect-error: Gear has no numbers
      changed('Gear', { delta: 2 }),
      // @ts-expect-error: one limit
      crosses('BatteryLevel', { below: 20, above: 80 }),
      // @ts-expect-error: an edge is no condition
      all(becomes('Gear', 'P')),
      // @ts-expect-error: a condition is no edge
      ((edge: Edge) => edge)(is('Gear', 'P')),
    ]
    expect(rules).toBeTypeOf('function')
  })

  test('the change has the values of its field', () => {
    type HappenedOf<E> = E extends VehicleEdge<infer Happened> ? Happened : never
    const plugged = becomes('Gear', 'P')
    expectTypeOf<HappenedOf<typeof plugged>['to']>().toEqualTypeOf<
      'Unknown' | 'Invalid' | 'P' | 'R' | 'N' | 'D' | 'SNA' | null
    >()
    expectTypeOf(crosses('BatteryLevel', { below: 20 })).toEqualTypeOf<VehicleEdge<Change<number>>>()
    expectTypeOf(becomes('Gear', 'P').where(below('BatteryLevel', 20)).named('x')).toEqualTypeOf(plugged)
  })

  test('rulesFor has the types of your own fields, and an OtherField can be anything', () => {
    const fields = { Mood: { enum: ['Calm', 'Angry'] } } as const satisfies FieldCatalogue
    const own = rulesFor(fields)
    const rules = (): readonly unknown[] => [
      own.becomes('Mood', 'Calm'),
      own.becomes('Gear', 'P'),
      // @ts-expect-error: Calm, Angry
      own.becomes('Mood', 'Sad'),
      becomes('Mood' as OtherField, 'Sad'),
      crosses('Humidity' as OtherField, { below: 20 }),
    ]
    expect(rules).toThrow('`becomes` compares `Mood` with "Sad"')
  })
})
