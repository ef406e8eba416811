import fc from 'fast-check'

const nested = (depth: number, isArray: boolean): string =>
  isArray ? `${'['.repeat(depth)}${']'.repeat(depth)}` : `${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}`

/** Values of a size, as JSON. Cases name them, so that a counterexample stays short. */
const values: Readonly<Record<string, (size: number) => string>> = {
  arrays: (depth) => nested(Math.min(depth, 20_000), true),
  objects: (depth) => nested(Math.min(depth, 20_000), false),
  wide: (width) => `[${'0,'.repeat(width)}0]`,
  members: (width) => `{${Array.from({ length: width }, (_, n) => `"${n}":null`).join()}}`,
  text: (length) => JSON.stringify('x'.repeat(length)),
  controls: (length) => JSON.stringify('\0'.repeat(length)),
  surrogates: (length) => `"${'\\ud800'.repeat(length)}"`,
  digits: (length) => '9'.repeat(length),
}

/** Names of vehicles, as JSON. Some are no VIN. */
export const vins: readonly string[] = [
  'V1',
  'V2',
  '',
  '\\u0000',
  '\\u0000V',
  '\\ud800',
  'V\\udfff',
  '*gap',
  '__proto__',
  'é',
].map((text) => `"${text}"`)

/** The members of `data` of a message: one field, or this many. */
const fieldsOf = (names: string, value: string, size: number): readonly (readonly [string, string])[] => {
  if (names === 'many')
    return Array.from({ length: Math.min(size, 5_000) }, (_, n) => [`f${n}`, value.length < 9 ? value : '1'])
  if (names === 'long') return [['n'.repeat(size), value]]
  return [[names, value]]
}

/** How a message is written, in the formats and topics of the service, of the vehicle maker, and of a collector. */
const formats: Readonly<Record<string, (vin: string, fields: readonly (readonly [string, string])[]) => string>> = {
  service: (vin, fields) =>
    `{"vin":${vin},"createdAt":"2026-01-05T08:00:00Z","data":{${fields.map(([name, value]) => `"${name}":${value}`).join()}}}`,
  vehicle_maker: (vin, fields) =>
    `{"vin":${vin},"createdAt":"2026-01-05T08:00:00Z","data":[${fields.map(([name, value]) => `{"key":"${name}","value":{"stringValue":${value}}}`).join()}]}`,
  event_collector: (vin, fields) =>
    `{"time":1767600000,"source":${vin},"sourcetype":"vehicle:telemetry:data","event":{${fields.map(([name, value]) => `"${name}":${value}`).join()}}}`,
  alerts: (vin, fields) =>
    `{"vin":${vin},"createdAt":"2026-01-05T08:00:00Z","alerts":[${fields.map(([name, value]) => `{"name":"${name}","startedAt":"2026-01-05T08:00:00Z","tags":${value}}`).join()}]}`,
  document: (vin, fields) =>
    `{"vin":${vin},"createdAt":"2026-01-05T08:00:00Z","vehicle_data":{${fields.map(([name, value]) => `"charge_state":{"${name}":${value}}`).join()}}}`,
  connection: (vin, fields) =>
    `{"vin":${vin},"createdAt":"2026-01-05T08:00:00Z","networkInterface":"wifi","status":"CONNECTED","connectionId":${fields[0]?.[1]}}`,
  state: (vin, fields) => `{"vin":${vin},"createdAt":"2026-01-05T08:00:00Z","state":${fields[0]?.[1]}}`,
}

/** A message, by the names of its parts. */
export interface LargeMessage {
  readonly format: string
  readonly vin: string
  readonly names: string
  readonly value: string
  readonly size: number
}

/** Messages that are deep, wide or long, or of vehicles with odd names. */
export const largeMessages: fc.Arbitrary<LargeMessage> = fc.record({
  format: fc.constantFrom(...Object.keys(formats)),
  vin: fc.oneof(fc.constantFrom(...vins), fc.constantFrom('digits', 'text', 'surrogates', 'arrays')),
  names: fc.constantFrom('many', 'long', 'Gear', 'Location', 'SpeedLimitMode', 'RouteLine', '__proto__', '1', 'Other'),
  value: fc.constantFrom(...Object.keys(values)),
  size: fc.constantFrom(0, 1, 33, 101, 1_000, 5_000, 20_000, 100_000),
})

/** A message as it is posted. */
export function textOf({ format, vin, names, value, size }: LargeMessage): string {
  const valueText = values[value]?.(size) ?? ''
  const vinText = values[vin]?.(size) ?? vin
  return formats[format]?.(vinText, fieldsOf(names, valueText, size)) ?? ''
}
