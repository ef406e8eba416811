import { builtInFields } from '../../../src/events/fields.ts'
import { message } from '../../../src/testing/message.ts'
import { encode } from '../../../src/wire/encode.ts'
import type { JsonObject } from '../../../src/wire/record.ts'
import { wrapperText } from '../../../src/wire/wrappers.generated.ts'
import { chunked } from './answer-cases.ts'
import { type Case, type Expected, formats, type Request } from './cases.ts'
import type { Posted } from './post.ts'
import { dataIn, type SentMessage, type Session } from './session.ts'

/** Values as vehicles of today send them, in the formats `service` and `event_collector`. */
export const values: JsonObject = {
  BatteryLevel: 81.5,
  Gear: 'ShiftStateD',
  Locked: true,
  VehicleName: 'Sué 🚗',
  Location: { latitude: 37.412374, longitude: -122.145867 },
}

/** The same in the wrappers of the vehicle maker. */
export const wrapped: JsonObject = {
  BatteryLevel: { doubleValue: 81.5 },
  Gear: { shiftStateValue: 'ShiftStateD' },
  Locked: { booleanValue: true },
  VehicleName: { stringValue: 'Sué 🚗' },
  Location: { locationValue: { latitude: 37.412374, longitude: -122.145867 } },
}

export function* formatCases(session: Session): Generator<Case> {
  for (const format of formats) {
    const sent = session.message()
    const posted = { body: JSON.stringify(dataIn(format, sent, values, wrapped)) }
    const requests = [{ posted, format, messages: [sent] }]
    yield { group: 'formats', name: `data, in the format ${format}`, expected: 'accepted', requests }
  }
  for (const topic of ['state', 'vehicleData', 'alerts', 'errors', 'connectivity'] as const) {
    const requests = formats.map((format): Request => {
      const sent = session.message()
      const { vin, createdAt } = sent
      const body = JSON.stringify(encode({ ...message[topic](), vin, createdAt }, format))
      return { posted: { body }, format, messages: [sent], label: format }
    })
    const name = `${message[topic]().topic}, in the three formats`
    yield { group: 'formats', name, expected: 'accepted', requests, isOptional: true }
  }
}

/** Relays write the time as they like, or leave it out. */
export function* timeCases(session: Session): Generator<Case> {
  const request = (label: string, change: (seconds: number) => unknown): Request => {
    const sent = session.message()
    const event = dataIn('event_collector', sent)
    const body = JSON.stringify({ ...event, time: change(Number(event['time'])) })
    return { posted: { body }, format: 'event_collector', messages: [sent], label }
  }
  const requests = [request('text', String), request('whole seconds', Math.floor), request('none', () => undefined)]
  const name = 'the time of an event as text, in whole seconds, and none'
  yield { group: 'batches', name, expected: 'accepted', requests }
}

const twelve = { hour: 12, minute: 30, second: 5 }
/** A value of each wrapper that is no enum, with a field that has it. */
const plain: readonly (readonly [field: string, value: JsonObject])[] = [
  ['VehicleName', { stringValue: 'a name' }],
  ['ChargeLimitSoc', { intValue: 80 }],
  ['TimeToFullCharge', { longValue: '90071992547409931' }],
  ['PackVoltage', { floatValue: 390.25 }],
  ['BatteryLevel', { doubleValue: 81.488 }],
  ['Locked', { booleanValue: true }],
  ['Soc', { invalid: true }],
  ['Location', { locationValue: { latitude: 37.412374, longitude: -122.145867 } }],
  ['DoorState', { doorValue: { DriverFront: true } }],
  ['SeatBelts', { tireLocationValue: { frontLeft: true } }],
  ['ScheduledDepartureTime', { timeValue: twelve }],
  ['ChargeState', { chargingValue: 'ChargeStateCharging' }],
]

/** Each enum wrapper with its first field, and the first constant of that. */
function enums(): readonly (readonly [field: string, value: JsonObject])[] {
  const known = new Set(plain.flatMap(([, value]) => Object.keys(value)))
  return wrapperText.split('\n').flatMap((line) => {
    const [wrapper = '', names = ''] = line.split(':')
    const [field = ''] = names.split(' ')
    const type: unknown = Object.entries(builtInFields).find(([name]) => name === field)?.[1]
    if (known.has(wrapper)) return []
    const { enum: constants = [], prefix = '' }: { enum?: readonly string[]; prefix?: string } = Object(type)
    return [[field, { [wrapper]: `${prefix}${constants[0] ?? 'Unknown'}` }] as const]
  })
}

/** What emitters write beside the rule. */
const odd: readonly (readonly [label: string, key: string | number, value: unknown])[] = [
  ['a door value without doors', 'DoorState', { doorValue: {} }],
  ['a value without a wrapper', 'Locked', {}],
  ['"NaN"', 'PackVoltage', { doubleValue: 'NaN' }],
  ['"-Infinity"', 'PackVoltage', { doubleValue: '-Infinity' }],
  ['an enum as a number', 'Gear', { shiftStateValue: 9 }],
  ['a field as a number', 4711, { stringValue: 'new' }],
  ['a wrapper that is new', 'Gear', { newStateValue: 'NewStateOn' }],
  ['a place as text', 'Location', { stringValue: '(37.412374 N, 122.145867 W)' }],
  ['text in two pairs of quotes', 'Gear', { stringValue: '"D"' }],
  ['doors as text', 'DoorState', { stringValue: 'DriverFront|TrunkRear' }],
  ['the field __proto__', '__proto__', { stringValue: 'a name like any other' }],
]

export function* valueCases(session: Session): Generator<Case> {
  const request = (label: string, key: unknown, value: unknown): Request => {
    const sent = session.message()
    const { data, ...rest } = dataIn('vehicle_maker', sent)
    const list = Array.isArray(data) ? [...data, { key, value }] : [data]
    return {
      posted: { body: JSON.stringify({ ...rest, data: list }) },
      format: 'vehicle_maker',
      messages: [sent],
      label,
    }
  }
  const all = [...plain, ...enums()]
  const requests = all.map(([field, value]) => request(Object.keys(value)[0] ?? '', field, value))
  yield { group: 'values', name: `each of the ${all.length} wrappers`, expected: 'accepted', requests }
  yield {
    group: 'values',
    name: 'what emitters write beside the rule',
    expected: 'accepted',
    requests: odd.map(([label, key, value]) => request(label, key, value)),
  }
}

export function* bodyCases(session: Session): Generator<Case> {
  const request = (sent: SentMessage, body: NonNullable<Posted['body']>, label?: string): Request => ({
    posted: { body },
    messages: [sent],
    label,
  })
  const edited = (change: JsonObject, label?: string): Request => {
    const sent = session.message()
    return request(sent, JSON.stringify({ ...dataIn('service', sent), ...change }), label)
  }
  const accepted = (name: string, ...requests: readonly Request[]): Case => ({
    group: 'bodies',
    name,
    expected: 'accepted',
    requests,
  })

  const names = Object.keys(builtInFields).slice(0, 50)
  const many = session.message()
  const all = dataIn('service', many, Object.fromEntries(names.map((name) => [name, null])))
  yield accepted('a message of 50 fields', request(many, JSON.stringify(all)))
  const cut = session.message()
  const text = JSON.stringify(dataIn('service', cut, { VehicleName: 'fährt 🚗 走る' }))
  yield accepted('a body in chunks that cut characters', request(cut, chunked(text)))
  yield accepted(
    'bodies of 64 and 512 KiB',
    edited({ note: 'x'.repeat(65_536) }, '64 KiB'),
    edited({ note: 'x'.repeat(524_288) }, '512 KiB'),
  )
  const { posted, ...plain } = edited({})
  yield accepted('the names of headers in capitals', { ...plain, posted: { ...posted, isInCapitals: true } })
  const typed = edited({})
  const headers = { authorization: session.secret, 'content-type': 'application/json; charset=utf-8' }
  yield accepted('a Content-Type with a charset', { ...typed, posted: { ...typed.posted, headers } })
  yield accepted(
    'times with 0, 3, 6 and 9 digits of a second, or without a zone',
    ...['Z', '.123Z', '.123456Z', '.123456789Z', '.123'].map((end) => {
      const sent = session.message()
      const createdAt = `${sent.createdAt.slice(0, 19)}${end}`
      return request(sent, JSON.stringify({ ...dataIn('service', sent), createdAt }), createdAt)
    }),
  )
  yield accepted(
    'no time, a time ahead of the clock, and an old one',
    edited({ createdAt: undefined }, 'no time'),
    edited({ createdAt: null }, 'null'),
    edited({ createdAt: new Date(Date.now() + 300_000).toISOString() }, 'five minutes ahead'),
    edited({ createdAt: '2019-04-06T23:59:42Z' }, 'back by 1,024 weeks'),
  )
  yield accepted(
    'isResend, isCache and keys that are new',
    edited({ isResend: true }, 'isResend'),
    edited({ isCache: true }, 'isCache'),
    edited({ other: [1, { a: null }], constructor: 1 }, 'new keys'),
  )
  yield* withoutMessages()
}

const notUnderstood = ['{"credits":12}', '{"config":{},"vin":"0FLEET"}', '{"hello":1}', '{}']
const unreadable: readonly (readonly [label: string, body: string | undefined])[] = [
  ['no body', undefined],
  ['an empty body', ''],
  ['blanks', ' \r\n\t'],
  ['no JSON', 'hello'],
  ['a form', 'a=1&b=2'],
  ['a number', '1'],
  ['null', 'null'],
  ['a truncated message', '{"data":{"Odometer":1},"vin":"0FLEETV14T0000004","creat'],
]

function* withoutMessages(): Generator<Case> {
  const requests = (bodies: readonly (readonly [string, string | undefined])[]): readonly Request[] =>
    bodies.map(([label, body]) => ({ posted: body === undefined ? {} : { body }, messages: [], label }))
  // A sender that gets no 2xx for a day switches the webhook off.
  const unknown: Expected = 'accepted'
  const known = notUnderstood.map((body) => [body, body] as const)
  yield {
    group: 'bodies',
    name: 'objects that are none of the six topics',
    expected: unknown,
    requests: requests(known),
  }
  yield { group: 'bodies', name: 'what is no message', expected: 'refused', requests: requests(unreadable) }
}
