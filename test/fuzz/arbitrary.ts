import { gzipSync } from 'node:zlib'
import fc from 'fast-check'

export const methods: fc.Arbitrary<string> = fc.oneof(
  { weight: 6, arbitrary: fc.constant('POST') },
  { weight: 2, arbitrary: fc.constantFrom('GET', 'HEAD', 'PUT', 'PATCH', 'DELETE', 'OPTIONS') },
  { weight: 1, arbitrary: fc.stringMatching(/^[A-Z]{3,12}$/).filter((name) => !/^(CONNECT|TRACE|TRACK)$/.test(name)) },
)

const known = [
  '/',
  '/services/collector',
  '/services/collector/event',
  '/services/collector/event/1.0',
  '/services/collector/health',
]

export const paths: fc.Arbitrary<string> = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom(...known) },
  {
    weight: 2,
    arbitrary: fc
      .tuple(fc.constantFrom(...known), fc.constantFrom('/', '//', '?a=b', '%00', '/%2e%2e', '%', ';x', '/..', '#x'))
      .map((parts) => parts.join('')),
  },
  { weight: 2, arbitrary: fc.webPath() },
  { weight: 1, arbitrary: fc.string({ maxLength: 50 }).map((text) => `/${encodeURI(text.toWellFormed())}`) },
)

/** A value that a header may have. */
const value: fc.Arbitrary<string> = fc.oneof(
  fc.stringMatching(/^[\x21-\x7e]([\x20-\x7e]{0,40}[\x21-\x7e])?$/),
  fc.string({ unit: fc.integer({ min: 0xa1, max: 0xff }).map((code) => String.fromCharCode(code)), maxLength: 40 }),
  fc.integer({ min: 1, max: 5000 }).map((length) => 'x'.repeat(length)),
)

/** Headers, mostly with the secret, so that the code behind it is reached. */
export function headers(secret: string): fc.Arbitrary<Record<string, string>> {
  const authorization = fc.oneof(
    { weight: 4, arbitrary: fc.constantFrom(secret, `Splunk ${secret}`, `Basic ${btoa(`x:${secret}`)}`) },
    { weight: 1, arbitrary: value },
    { weight: 1, arbitrary: value.map((text) => `Splunk ${text}`) },
    { weight: 1, arbitrary: value.map((text) => `Basic ${text}`) },
  )
  return fc.record(
    {
      authorization,
      'content-encoding': fc.oneof(fc.constantFrom('gzip', 'x-gzip', 'identity', 'br', '', 'GZIP'), value),
      'content-length': fc.oneof(fc.constantFrom('0', '-1', '1e9', '0x10', ' ', 'NaN', '99999999999999999999'), value),
      'content-type': fc.oneof(fc.constantFrom('application/json', 'multipart/form-data; boundary=x'), value),
      'transfer-encoding': fc.constantFrom('chunked', 'gzip'),
      expect: value,
      'x-forwarded-for': value,
    },
    { requiredKeys: [] },
  )
}

const names = ['vin', 'createdAt', 'state', 'data', 'alerts', 'errors', 'networkInterface', 'status', 'vehicle_data']
const envelope = ['event', 'source', 'sourcetype', 'time', 'host', 'fields', 'index', 'isResend', 'connectionId']
const fields = [
  'BatteryLevel',
  'Location',
  'DoorState',
  'Gear',
  'TpmsPressureFl',
  'VehicleSpeed',
  'key',
  'value',
  'name',
]
const wrappers = ['stringValue', 'doubleValue', 'locationValue', 'doorValue', 'timeValue', 'invalid', 'shiftStateValue']
const hostile = [
  '__proto__',
  'constructor',
  'prototype',
  'toString',
  'hasOwnProperty',
  'toJSON',
  'then',
  '',
  '0',
  '-1',
  'length',
]

/** JSON values with known names in places where they do not belong. */
function jsonValues(marker: string): fc.Arbitrary<unknown> {
  const key = fc.oneof(
    { weight: 3, arbitrary: fc.constantFrom(...names) },
    { weight: 2, arbitrary: fc.constantFrom(...envelope) },
    { weight: 2, arbitrary: fc.constantFrom(...fields, ...wrappers) },
    { weight: 1, arbitrary: fc.constantFrom(...hostile) },
    { weight: 1, arbitrary: fc.string({ unit: 'binary', maxLength: 8 }) },
  )
  const leaf = fc.oneof(
    fc.constantFrom(null, true, false, 0, -0, 1e308, 5e-324, 2 ** 53, '', ' ', 'NaN', '"D"', 'ShiftStateD', marker),
    fc.constantFrom('(37.41 N, 122.14 W)', '2024-02-24T04:58:44.983607402Z', '2024-02-30T99:00:00', '1708750724.98'),
    fc.constantFrom('maker:telemetry:data', 'maker:telemetry:alerts', '0FLEETV14T0000004', '__proto__'),
    fc.double(),
    fc.integer(),
    fc.string({ unit: 'binary', maxLength: 20 }),
  )
  const { tree } = fc.letrec((tie) => ({
    tree: fc.oneof(
      { depthSize: 'small', withCrossShrink: true },
      leaf,
      fc.array(tie('tree'), { maxLength: 4 }),
      // Not `fc.dictionary`: `__proto__` must become an own key, as from JSON.parse.
      fc.array(fc.tuple(key, tie('tree')), { maxLength: 6 }).map((entries) => Object.fromEntries(entries)),
    ),
  }))
  return tree
}

/** A message or something similar: the keys of a format, each with a value of any shape. */
function messages(marker: string): fc.Arbitrary<unknown> {
  const inner = jsonValues(marker)
  const vin = fc.oneof({ weight: 5, arbitrary: fc.constantFrom('A', 'B', marker) }, { weight: 1, arbitrary: inner })
  const optional = { requiredKeys: [] as const }
  return fc.oneof(
    ...['state', 'data', 'alerts', 'errors', 'networkInterface', 'vehicle_data'].map((topic) =>
      fc.record({ vin, createdAt: inner, status: inner, isResend: inner, [topic]: inner }, { requiredKeys: [topic] }),
    ),
    fc.record({ vin, data: fc.array(fc.record({ key: inner, value: inner }, { requiredKeys: [] }), { maxLength: 4 }) }),
    fc.record(
      { event: inner, source: vin, sourcetype: inner, time: inner, host: inner, fields: inner },
      { requiredKeys: ['event'] },
    ),
    fc.record({ source: vin, time: inner }, { requiredKeys: [...optional.requiredKeys] }),
    inner,
  )
}

/** JSON texts: whole, several, in lists, cut off, or with a foreign piece. */
export function jsonTexts(marker: string): fc.Arbitrary<string> {
  const text = messages(marker).map((message) => JSON.stringify(message) ?? 'null')
  const batch = fc
    .tuple(fc.array(text, { maxLength: 6 }), fc.constantFrom('', ' ', '\n', ',', '\r\n\t', '\ufeff'))
    .map(([texts, between]) => texts.join(between))
  return fc.oneof(
    { weight: 4, arbitrary: text },
    { weight: 3, arbitrary: batch },
    { weight: 2, arbitrary: fc.array(text, { maxLength: 6 }).map((texts) => `[${texts.join()}]`) },
    { weight: 1, arbitrary: fc.tuple(batch, fc.nat(200)).map(([whole, cut]) => whole.slice(0, -cut)) },
    {
      weight: 1,
      arbitrary: fc
        .tuple(
          batch,
          fc.nat(100),
          fc.constantFrom('1e999', '{', '}', '[', ']', '"', '\\', '\\u', ',', ':', '\0', 'NaN'),
        )
        .map(([whole, at, piece]) => whole.slice(0, at) + piece + whole.slice(at)),
    },
  )
}

/** Bytes: of JSON, gzipped or broken, or any. */
export function bodies(marker: string): fc.Arbitrary<Uint8Array<ArrayBuffer>> {
  const text = jsonTexts(marker).map((json) => Uint8Array.from(new TextEncoder().encode(json)))
  const any = fc.uint8Array({ maxLength: 300 }).map((bytes) => Uint8Array.from(bytes))
  const zipped = fc.oneof(text, any).map((bytes) => new Uint8Array(gzipSync(bytes)))
  const flipped = fc
    .tuple(zipped, fc.nat(400), fc.nat(255))
    .map(([bytes, at, byte]) => bytes.with(at % bytes.length, byte))
  return fc.oneof(
    { weight: 4, arbitrary: text },
    { weight: 1, arbitrary: any },
    { weight: 2, arbitrary: zipped },
    { weight: 1, arbitrary: flipped },
    { weight: 1, arbitrary: fc.nat(60_000).map((length) => new Uint8Array(length).fill(32)) },
  )
}
