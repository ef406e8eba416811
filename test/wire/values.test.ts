import {
  createNormalizer,
  type DataEvent,
  type FieldValue,
  type OtherField,
  split,
  type WireEvent,
} from 'fleethook/normalize'
import { describe, expect, test } from 'vitest'

const allFalse = (names: string): object => Object.fromEntries(names.split(' ').map((name) => [name, false]))
const closed = allFalse('driverFront driverRear passengerFront passengerRear trunkFront trunkRear')
const quiet = allFalse(
  'frontLeft frontRight rearLeft rearRight semiMiddleAxleLeft2 semiMiddleAxleRight2 semiRearAxleLeft semiRearAxleRight semiRearAxleLeft2 semiRearAxleRight2',
)

function readMessage(message: object, options: Parameters<typeof createNormalizer>[0] = {}): DataEvent {
  const event = createNormalizer(options).normalize(message)
  if (event.topic !== 'data') throw new Error(`read as ${event.topic}`)
  return event
}

/** One value of one field, in each format. */
function inEachFormat(
  field: string,
  value: unknown,
  options: Parameters<typeof createNormalizer>[0] = {},
): DataEvent[] {
  const common = { vin: 'V', createdAt: '2024-02-24T04:58:44.983Z' }
  return [
    readMessage({ ...common, data: { [field]: value } }, options),
    readMessage({ ...common, data: [{ key: field, value }] }, options),
    readMessage({ time: 1, source: 'V', sourcetype: 'v:telemetry:data', event: { [field]: value } }, options),
  ]
}

/** Reads any field by name, because the names in these tests are plain text. */
const valueIn = ({ data }: DataEvent, field: string): FieldValue | undefined => data[field as OtherField]

function reads(field: string, value: unknown, expected: unknown): void {
  for (const event of inEachFormat(field, value)) {
    expect(valueIn(event, field)).toStrictEqual(expected)
    expect(event.undecoded).toEqual({})
  }
}

function doesNotRead(field: string, value: unknown, left: unknown): void {
  for (const event of inEachFormat(field, value)) {
    expect(event.data).toEqual({ [field]: null })
    expect(event.undecoded).toEqual({ [field]: left })
  }
}

describe('a field in the catalogue has the catalogue’s type, in all three formats', () => {
  test.each<[string, unknown, unknown]>([
    // number
    ['VehicleSpeed', '81.488', 81.488],
    ['VehicleSpeed', 81.488, 81.488],
    ['VehicleSpeed', { stringValue: ' -81.488 ' }, -81.488],
    ['VehicleSpeed', { doubleValue: 81.488 }, 81.488],
    ['VehicleSpeed', { floatValue: 0 }, 0],
    ['VehicleSpeed', { intValue: 5 }, 5],
    ['VehicleSpeed', { longValue: '1708750724' }, 1708750724],
    ['VehicleSpeed', { longValue: '9007199254740991' }, 9007199254740991],
    ['VehicleSpeed', '"5"', 5],
    ['VehicleSpeed', '1.5e-3', 0.0015],
    ['VehicleSpeed', '+5.', 5],
    ['VehicleSpeed', '-0', 0],
    ['VehicleSpeed', -0, 0],
    ['VehicleSpeed', {}, 0],
    ['VehicleSpeed', { neverSeenValue: 7 }, 7],
    ['VehicleSpeed', { double_value: 7 }, 7],
    // boolean
    ['Locked', 'true', true],
    ['Locked', 'False', false],
    ['Locked', '"true"', true],
    ['Locked', { booleanValue: true }, true],
    ['Locked', { stringValue: 'false' }, false],
    ['Locked', {}, false],
    // enum
    ['Gear', 'ShiftStateD', 'D'],
    ['Gear', 'D', 'D'],
    ['Gear', '"D"', 'D'],
    ['Gear', { shiftStateValue: 'ShiftStateSNA' }, 'SNA'],
    ['Gear', { stringValue: 'P' }, 'P'],
    ['SettingChargeUnit', { chargeUnitPreferenceValue: 'ChargeUnitPercent' }, 'Percent'],
    ['CruiseFollowDistance', 'FollowDistance3', '3'],
    // string
    ['ChargeState', 'Idle', 'Idle'],
    ['ChargeState', { stringValue: '"Idle"' }, 'Idle'],
    ['ChargeState', '', ''],
    ['ChargeState', '"', '"'],
    // timestamp, in seconds
    ['ScheduledChargingStartTime', { longValue: '1733271300' }, 1733271300],
    ['ScheduledChargingStartTime', 1733271300, 1733271300],
    ['ScheduledChargingStartTime', 'Wed Dec  4 00:15:00 2024', 1733271300],
    ['ScheduledChargingStartTime', { stringValue: 'Wed Dec 4 00:15:00 2024' }, 1733271300],
    // doors
    ['DoorState', 'DriverFront|TrunkRear', { ...closed, driverFront: true, trunkRear: true }],
    ['DoorState', '', closed],
    ['DoorState', {}, closed],
    ['DoorState', { doorValue: {} }, closed],
    ['DoorState', { doorValue: { DriverFront: true } }, { ...closed, driverFront: true }],
    [
      'DoorState',
      { driverFront: true, passenger_rear: true, TrunkFront: false },
      { ...closed, driverFront: true, passengerRear: true },
    ],
    // tires
    ['TpmsHardWarnings', { tireLocationValue: { frontLeft: true } }, { ...quiet, frontLeft: true }],
    [
      'TpmsHardWarnings',
      { front_left: true, semi_middle_axle_left_2: true },
      { ...quiet, frontLeft: true, semiMiddleAxleLeft2: true },
    ],
    ['TpmsHardWarnings', {}, quiet],
    // location
    ['Location', { latitude: 37.41, longitude: -122.14 }, { latitude: 37.41, longitude: -122.14 }],
    ['Location', { locationValue: { latitude: 37.41, longitude: -122.14 } }, { latitude: 37.41, longitude: -122.14 }],
    ['Location', '(37.412374 N, 122.145867 W)', { latitude: 37.412374, longitude: -122.145867 }],
    ['Location', { stringValue: '(0 S, 5.5 E)' }, { latitude: 0, longitude: 5.5 }],
    ['Location', { locationValue: { longitude: 5 } }, { latitude: 0, longitude: 5 }],
    ['Location', { locationValue: { latitude: 5 } }, { latitude: 5, longitude: 0 }],
  ])('%s of %j is %j', reads)

  test('a time of day, from an object or from text', () => {
    const options = { fields: { Alarm: 'time' } } as const
    const reading = (value: unknown) => inEachFormat('Alarm', value, options).map((event) => valueIn(event, 'Alarm'))
    const all = (time: object) => [time, time, time]
    expect(reading({ timeValue: { hour: 7, minute: 30 } })).toEqual(all({ hour: 7, minute: 30, second: 0 }))
    expect(reading({})).toEqual(all({ hour: 0, minute: 0, second: 0 }))
    expect(reading('07:30')).toEqual(all({ hour: 7, minute: 30, second: 0 }))
    expect(reading('7:30:05')).toEqual(all({ hour: 7, minute: 30, second: 5 }))
    expect(reading('24:30')).toEqual([null, null, null])
    expect(reading({ hour: 7, half: true })).toEqual([null, null, null])
  })
})

describe('no value now is null, and nothing is undecoded', () => {
  test.each<[string, unknown, unknown]>([
    ['VehicleSpeed', null, null],
    ['VehicleSpeed', { invalid: true }, null],
    ['VehicleSpeed', { doubleValue: null }, null],
    ['Gear', { invalid: true, shiftStateValue: 'ShiftStateD' }, null],
    ['Gear', { invalid: false, shiftStateValue: 'ShiftStateD' }, 'D'],
    ['NeverSeen', { invalid: true }, null],
  ])('%s of %j is %j', reads)
})

describe('a value of more than 64 levels goes to undecoded, and is null', () => {
  const nested = (levels: number): unknown => JSON.parse('['.repeat(levels) + ']'.repeat(levels))

  test.each([{}, { decode: false }])('%j', (options) => {
    const read = (value: unknown): WireEvent => createNormalizer(options).normalize({ data: { Made: value }, vin: 'V' })
    expect(read(nested(64))).toMatchObject({ data: { Made: nested(64) }, undecoded: {} })
    for (const value of [nested(65), { a: nested(64) }])
      expect(read(value)).toMatchObject({ data: { Made: null }, undecoded: { Made: value } })
    const [deep] = split(`{"vin":"V","data":{"Made":${'{"a":'.repeat(150_000)}1${'}'.repeat(150_000)}}}`).pieces
    const event = createNormalizer(options).normalize(deep?.value ?? {})
    expect(event).toHaveProperty('data', { Made: null })
  })
})

describe('a value that does not read as its type goes to undecoded, and is null', () => {
  test.each<[string, unknown, unknown]>([
    ['VehicleSpeed', 'fast', 'fast'],
    ['VehicleSpeed', '', ''],
    ['VehicleSpeed', '0x10', '0x10'],
    ['VehicleSpeed', '5 mph', '5 mph'],
    ['VehicleSpeed', '1e', '1e'],
    ['VehicleSpeed', '1e+', '1e+'],
    ['VehicleSpeed', '1.2.3', '1.2.3'],
    ['VehicleSpeed', true, true],
    ['VehicleSpeed', { doubleValue: 'NaN' }, 'NaN'],
    ['VehicleSpeed', { doubleValue: 'Infinity' }, 'Infinity'],
    ['VehicleSpeed', { doubleValue: '-Infinity' }, '-Infinity'],
    ['VehicleSpeed', JSON.parse('-1e999'), '-Infinity'],
    ['VehicleSpeed', '1e999', '1e999'],
    ['VehicleSpeed', { longValue: '9007199254740993' }, '9007199254740993'],
    ['VehicleSpeed', { doubleValue: {} }, {}],
    ['VehicleSpeed', [5], [5]],
    ['Locked', 1, 1],
    ['Locked', 'yes', 'yes'],
    ['Gear', 4, 4],
    ['Gear', { shiftStateValue: 4 }, 4],
    ['Gear', 'ShiftStateX', 'ShiftStateX'],
    ['Gear', 'd', 'd'],
    ['Gear', {}, {}],
    ['Gear', 'constructor', 'constructor'],
    ['ChargeState', 5, 5],
    ['ChargeState', {}, {}],
    ['ScheduledChargingStartTime', 'soon', 'soon'],
    ['ScheduledChargingStartTime', 'Wed Foo  4 00:15:00 2024', 'Wed Foo  4 00:15:00 2024'],
    ['ScheduledChargingStartTime', {}, {}],
    ['DoorState', 'DriverFront|Roof', 'DriverFront|Roof'],
    ['DoorState', { doorValue: { Roof: true } }, { Roof: true }],
    ['DoorState', { doorValue: { DriverFront: 'open' } }, { DriverFront: 'open' }],
    ['DoorState', 5, 5],
    ['TpmsHardWarnings', 'frontLeft', 'frontLeft'],
    ['Location', {}, {}],
    ['Location', { locationValue: {} }, {}],
    ['Location', { latitude: 5 }, { latitude: 5 }],
    ['Location', { latitude: '5', longitude: 6 }, { latitude: '5', longitude: 6 }],
    ['Location', { latitude: JSON.parse('1e999'), longitude: 6 }, { latitude: JSON.parse('1e999'), longitude: 6 }],
    ['Location', 'home', 'home'],
    ['NeverSeen', {}, {}],
  ])('%s of %j leaves %j', doesNotRead)
})

describe('fields outside the catalogue, and those about which its sources contradict each other, have the plain value', () => {
  for (const field of ['NeverSeen', 'SpeedLimitMode']) {
    test.each<[unknown, unknown]>([
      ['true', 'true'],
      [true, true],
      [5, 5],
      [{ booleanValue: false }, false],
      [{ longValue: '5' }, '5'],
      [{ doubleValue: 'NaN' }, 'NaN'],
      [{ neverSeenValue: { a: [1] } }, { a: [1] }],
      [{ shiftStateValue: 'ShiftStateD' }, 'ShiftStateD'],
      [{ locationValue: { latitude: 5 } }, { latitude: 5, longitude: 0 }],
      [{ doorValue: {} }, closed],
      [{ tireLocationValue: { frontLeft: true } }, { ...quiet, frontLeft: true }],
      [{ tire_location_value: {} }, quiet],
      [{ timeValue: { hour: 5 } }, { hour: 5, minute: 0, second: 0 }],
      [
        { latitude: 1, longitude: 2 },
        { latitude: 1, longitude: 2 },
      ],
      [{ DriverFront: true }, { DriverFront: true }],
      [
        { a: 1, fooValue: 2 },
        { a: 1, fooValue: 2 },
      ],
      [
        {
          DriverFront: true,
          DriverRear: false,
          PassengerFront: false,
          PassengerRear: false,
          TrunkFront: false,
          TrunkRear: false,
        },
        { ...closed, driverFront: true },
      ],
      [
        [1, 2],
        [1, 2],
      ],
      [JSON.parse('1e999'), 'Infinity'],
    ])(`${field} of %j is %j`, (value, expected) => {
      expect(inEachFormat(field, value).map((event) => valueIn(event, field))).toStrictEqual([
        expected,
        expected,
        expected,
      ])
    })
  }
})

describe('decode: false leaves values as they were sent, out of their wrappers', () => {
  test.each<[string, unknown, unknown]>([
    ['VehicleSpeed', '81.488', '81.488'],
    ['VehicleSpeed', { doubleValue: 'NaN' }, 'NaN'],
    ['VehicleSpeed', { invalid: true }, null],
    ['VehicleSpeed', {}, {}],
    ['DoorState', { doorValue: { DriverFront: true } }, { DriverFront: true }],
    ['Gear', { shiftStateValue: 'ShiftStateD' }, 'ShiftStateD'],
  ])('%s of %j is %j', (field, value, expected) => {
    for (const event of inEachFormat(field, value, { decode: false })) {
      expect(valueIn(event, field)).toStrictEqual(expected)
      expect(event.undecoded).toEqual({})
    }
  })
})

describe('names', () => {
  test('a numeric key is its decimal text; a missing one is field zero', () => {
    const list = [
      { key: 179, value: { booleanValue: true } },
      { value: { intValue: 1 } },
      { key: '300', value: null },
      { key: 'Soc' },
    ]
    expect(readMessage({ data: list, vin: 'V' }).data).toEqual({ '179': true, Unknown: 1, '300': null, Soc: null })
  })

  test('when a field comes twice in a list, the last value counts', () => {
    const item = (value: unknown) => ({ key: 'Soc', value })
    const { data, undecoded } = readMessage({ data: [item('x'), item({ intValue: 5 })], vin: 'V' })
    expect([data, undecoded]).toEqual([{ Soc: 5 }, {}])
    expect(readMessage({ data: [item({ intValue: 5 }), item('x')], vin: 'V' }).undecoded).toEqual({ Soc: 'x' })
  })

  test('absent fields read undefined, whatever their name', () => {
    const { data, undecoded } = readMessage({ data: {}, vin: 'V' })
    for (const name of ['Soc', 'constructor', 'toString', '__proto__', 'hasOwnProperty']) {
      expect(data[name as OtherField]).toBeUndefined()
      expect(undecoded[name]).toBeUndefined()
    }
  })
})

describe('fields of the user’s own', () => {
  test('extend the catalogue and win over it', () => {
    const fields = {
      Mood: { enum: ['Good', 'Bad'], prefix: 'Mood' },
      Soc: 'string',
      SpeedLimitMode: 'boolean',
    } as const
    const { data, undecoded } = readMessage(
      { data: { Mood: 'MoodGood', Soc: 5, SpeedLimitMode: 'true', VehicleSpeed: '5' }, vin: 'V' },
      { fields },
    )
    expect(data).toEqual({ Mood: 'Good', Soc: null, SpeedLimitMode: true, VehicleSpeed: 5 })
    expect(undecoded).toEqual({ Soc: 5 })
    expect(readMessage({ data: { Soc: '5' }, vin: 'V' }).data.Soc).toBe(5)
  })

  test('with a type that does not exist are refused at construction', () => {
    for (const type of ['float', 'constructor', 5, null, { enum: 'x' }, { enum: [5] }]) {
      // @ts-expect-error These are no types.
      expect(() => createNormalizer({ fields: { Mood: type } })).toThrow(
        expect.objectContaining({ code: 'option_invalid', message: expect.stringContaining('fields.Mood') }),
      )
    }
  })
})

test('drift is reported with the field and the wrapper or type that was seen', () => {
  const seen: string[][] = []
  const normalizer = createNormalizer({ onDrift: (field, kind) => seen.push([field, kind]) })
  normalizer.normalize({
    data: { Soc: 'x', Gear: {}, Locked: [1], Odometer: { a: 1 }, VehicleSpeed: '5', X: 'y' },
    vin: 'V',
  })
  normalizer.normalize({ data: [{ key: 'Gear', value: { shiftStateValue: 9 } }], vin: 'V' })
  expect(seen).toEqual([
    ['Soc', 'string'],
    ['Gear', 'empty'],
    ['Locked', 'array'],
    ['Odometer', 'object'],
    ['Gear', 'shiftStateValue'],
  ])
})
