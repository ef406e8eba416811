import * as fc from 'fast-check'
import { builtInFields, type Format } from 'fleethook/normalize'

/** The formats, for tables. */
export const formats: readonly Format[] = ['service', 'vehicle_maker', 'event_collector']

const nastyNames = [
  ...['__proto__', 'constructor', 'toString', 'hasOwnProperty', '', '179', 'invalid', 'fooValue', 'é\ud800'],
]

/** Names as they could be on the wire: from the catalogue, unknown ones, and ones that reach for a prototype. */
export const fieldName: fc.Arbitrary<string> = fc.oneof(
  fc.constantFrom(...Object.keys(builtInFields)),
  fc.constantFrom(...nastyNames),
  fc.string(),
)

const nastyText = fc.constantFrom(
  ...['D', 'ShiftStateD', '"D"', '"\\"D\\""', 'true', 'FALSE', '81.488', '-0', '1e400', '9007199254740993', 'NaN'],
  ...['-Infinity', '', 'DriverFront|TrunkRear', '(37.41 N, 122.14 W)', '(0.0 S, 0.0 W)', 'Wed Dec  4 00:15:00 2024'],
  ...['07:30', '2024-02-24T04:58:44Z'],
)

const nastyObject = fc.constantFrom<object>(
  {},
  { latitude: 1.5, longitude: -2 },
  { latitude: 1.5 },
  { longitude: 0 },
  { hour: 7 },
  { hour: 7, minute: 0, second: 5 },
  { DriverFront: true },
  { driver_front: true, TrunkRear: false },
  { front_left: true, semi_rear_axle_left_2: true },
  { invalid: true },
  { invalid: false },
  { stringValue: 'x' },
  { doorValue: {} },
)

const scalar = fc.oneof(
  nastyText,
  fc.string(),
  fc.double({ noNaN: true, noDefaultInfinity: true }),
  fc.integer(),
  fc.boolean(),
)

/** A value without a wrapper. */
export const plainValue: fc.Arbitrary<unknown> = fc.oneof(
  scalar,
  nastyObject,
  fc.constant(null),
  fc.jsonValue({ maxDepth: 3 }),
)

const wrapperName = fc.constantFrom(
  ...['stringValue', 'intValue', 'longValue', 'floatValue', 'doubleValue', 'booleanValue', 'locationValue'],
  ...['doorValue', 'tireLocationValue', 'timeValue', 'shiftStateValue', 'neverSeenValue', 'door_value'],
)

/** A value as the maker wraps it. */
export const wrappedValue: fc.Arbitrary<unknown> = fc.oneof(
  fc.tuple(wrapperName, plainValue).map(([wrapper, value]) => ({ [wrapper]: value })),
  fc.constantFrom({ invalid: true }, {}, null, undefined, 5, 'bare'),
)

const fraction = fc.constantFrom('', '.9', '.983', '.983607', '.983607402')
const zone = fc.constantFrom('Z', '', '+02:00', '-0330', 'z')

/** Times as emitters write them. */
export const createdAt: fc.Arbitrary<string> = fc
  .tuple(
    fc.date({ min: new Date('1970-01-01T00:00:00Z'), max: new Date('2100-01-01T00:00:00Z'), noInvalidDate: true }),
    fraction,
    zone,
  )
  .map(([date, digits, offset]) => date.toISOString().slice(0, 19) + digits + offset)

const base = {
  vin: fc.stringMatching(/^[A-Z0-9]{1,17}$/),
  createdAt: fc.oneof(
    { weight: 9, arbitrary: createdAt },
    { weight: 1, arbitrary: fc.constantFrom('yesterday', null, 5) },
  ),
}

const extras = fc.record(
  { isResend: fc.boolean(), isCache: fc.boolean(), credits: fc.integer(), __proto__: fc.constant({ polluted: true }) },
  { requiredKeys: [] },
)

function map<T>(value: fc.Arbitrary<T>): fc.Arbitrary<Record<string, T>> {
  return fc.array(fc.tuple(fieldName, value), { maxLength: 6 }).map((entries) => Object.fromEntries(entries))
}

const entry = fc.record(
  {
    name: fc.string(),
    startedAt: fc.oneof(createdAt, fc.constant(null)),
    endedAt: fc.oneof(createdAt, fc.constant(null)),
    createdAt,
    audiences: fc.array(fc.constantFrom('Customer', 'Service', 'ServiceFix')),
    tags: map(fc.oneof(fc.string(), fc.integer())),
    body: fc.string(),
    userText: fc.string(),
  },
  { requiredKeys: [] },
)
const namedEntry = fc
  .tuple(entry, fc.oneof(fc.string(), fc.constantFrom('A', 'B', '7')))
  .map(([rest, name]) => ({ ...rest, name }))
const entries = fc.oneof(
  fc.array(namedEntry, { maxLength: 4 }),
  map(fc.oneof(entry, fc.array(entry, { maxLength: 3 }))),
)

const payload: fc.Arbitrary<object> = fc.oneof(
  fc.record({ data: map(fc.oneof(plainValue, wrappedValue)) }),
  fc.record({
    data: fc.array(fc.record({ key: fc.oneof(fieldName, fc.nat(300)), value: wrappedValue }, { requiredKeys: [] }), {
      maxLength: 6,
    }),
  }),
  fc.record({ state: fc.oneof(fc.constantFrom('online', 'asleep', 'driving'), fc.string()) }),
  fc.record({ vehicle_data: fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 2 })) }),
  fc.record({ alerts: entries }),
  fc.record({ errors: entries }),
  fc.record(
    {
      status: fc.constantFrom('CONNECTED', 'Disconnected', 'connected', 'odd'),
      networkInterface: fc.constantFrom('wifi', 'Cellular', 'x'),
      connectionId: fc.string(),
    },
    { requiredKeys: ['status', 'networkInterface'] },
  ),
)

/** JSON's own rules: what `JSON.stringify` would lose or change is not on the wire. */
function overTheWire(message: object): Record<string, unknown> {
  return JSON.parse(JSON.stringify(message))
}

/** A message in the `service` or the `vehicle_maker` format, of any topic, with proper or odd values. */
export const plainMessage: fc.Arbitrary<Record<string, unknown>> = fc
  .tuple(extras, payload, fc.record(base))
  .map(([more, body, common]) => overTheWire({ ...more, ...body, ...common }))

/** A message in the `event_collector` format, of any topic. */
export const envelopeMessage: fc.Arbitrary<Record<string, unknown>> = fc
  .tuple(
    extras,
    payload,
    base.vin,
    fc.record({ time: fc.double({ min: 0, max: 4e9, noNaN: true }), host: fc.string() }, { requiredKeys: [] }),
  )
  .map(([more, body, source, rest]) => {
    const [topic, inner] = 'data' in body ? ['data', body.data] : [undefined, body]
    return overTheWire({
      ...more,
      ...rest,
      source,
      ...(topic && { sourcetype: `vehicle:telemetry:${topic}` }),
      event: inner,
    })
  })

/** A message of any format and topic. */
export const wireMessage: fc.Arbitrary<Record<string, unknown>> = fc.oneof(plainMessage, envelopeMessage)

/** Any JSON object at all, some of them nearly a message. */
export const anyObject: fc.Arbitrary<Record<string, unknown>> = fc.oneof(
  fc.dictionary(
    fc.oneof(
      fc.string(),
      fc.constantFrom('vin', 'createdAt', 'data', 'state', 'alerts', 'errors', 'networkInterface', 'status'),
      fc.constantFrom('vehicle_data', 'event', 'source', 'sourcetype', 'time', 'host', '__proto__', 'constructor'),
    ),
    fc.oneof(fc.jsonValue({ maxDepth: 3 }), plainValue, fc.constantFrom('x:telemetry:data', 'x:telemetry:alerts')),
  ),
  wireMessage,
)
