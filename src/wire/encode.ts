import { FleethookError } from '../base/errors.ts'
import type { Alert, Format, Meta, VehicleError, WireTopic } from '../events/event.ts'
import { builtInFields, type FieldCatalogue, plainType, type UnlimitedType } from '../events/fields.ts'
import { topicOfLabel, wireTopics } from './envelope.ts'
import { isEmpty, pascal, readStructure, snake, wrapperOf } from './field-types.ts'
import { isJsonObject, type JsonObject, WireObject } from './record.ts'
import { readInstant } from './scalars.ts'
import { wrapperText } from './wrappers.generated.ts'

interface EncodableBase {
  readonly vin: string
  readonly createdAt: string
  readonly meta?: Meta
}

/** The part of an event that {@link encode} needs to write a message. A whole event has it, too. */
export type Encodable =
  | (EncodableBase & { readonly topic: 'data'; readonly data: JsonObject; readonly undecoded?: JsonObject })
  | (EncodableBase & { readonly topic: 'state'; readonly state: string })
  | (EncodableBase & { readonly topic: 'vehicle_data'; readonly vehicleData: JsonObject })
  | (EncodableBase & { readonly topic: 'alerts'; readonly alerts: readonly Alert[] })
  | (EncodableBase & { readonly topic: 'errors'; readonly errors: readonly VehicleError[] })
  | (EncodableBase & {
      readonly topic: 'connectivity'
      readonly status: string
      readonly networkInterface: string
      readonly connectionId?: string
    })
  | { readonly topic: 'unknown'; readonly raw: JsonObject }

let wrappers: ReadonlyMap<string, string> | undefined

function makerWrappers(): ReadonlyMap<string, string> {
  wrappers ??= new Map(
    wrapperText.split('\n').flatMap((line) => {
      const [wrapper = '', names = ''] = line.split(':')
      return names.split(' ').map((name): [string, string] => [name, wrapper])
    }),
  )
  return wrappers
}

const renamed = (flags: JsonObject, rename: (name: string) => string): JsonObject =>
  Object.fromEntries(Object.entries(flags).map(([name, flag]) => [rename(name), flag]))
/** The wrapper of a structure. The normalizer makes complete structures, so their shape tells which one it is. */
function structureOf(value: JsonObject): 'locationValue' | 'doorValue' | 'tireLocationValue' | 'timeValue' | undefined {
  const structure = readStructure(value, undefined)
  if (structure === undefined) return undefined
  if ('latitude' in structure) return 'locationValue'
  if ('hour' in structure) return 'timeValue'
  return 'driverFront' in structure ? 'doorValue' : 'tireLocationValue'
}

/** Adds quotes to text in quotes, because the normalizer removes one pair. */
function quoted(text: string, type: UnlimitedType | undefined): string {
  return type === 'string' && text.length > 1 && text.startsWith('"') && text.endsWith('"') ? `"${text}"` : text
}

function encodeText(name: string, text: string, type: UnlimitedType | undefined): JsonObject {
  if (typeof type === 'object' && type.enum.includes(text)) {
    const prefix = type.prefix ?? ''
    const fallback = prefix === '' ? 'stringValue' : `${prefix.charAt(0).toLowerCase()}${prefix.slice(1)}Value`
    return { [makerWrappers().get(name) ?? fallback]: prefix + text }
  }
  return { stringValue: quoted(text, type) }
}

function encodeNumber(name: string, value: number): JsonObject {
  const wrapper = makerWrappers().get(name)
  if (wrapper === 'longValue' && Number.isSafeInteger(value)) return { longValue: String(value) }
  if (wrapper === 'intValue' && (value | 0) === value) return { intValue: value }
  return { doubleValue: value }
}

function encodeWrapped(name: string, value: unknown, type: UnlimitedType | undefined): JsonObject {
  if (typeof value === 'string') return encodeText(name, value, type)
  if (typeof value === 'number') return encodeNumber(name, value)
  if (typeof value === 'boolean') return { booleanValue: value }
  if (Array.isArray(value)) return { arrayValue: value }
  if (!isJsonObject(value)) return { invalid: true }
  const wrapper = structureOf(value)
  if (wrapper === undefined) return { objectValue: value }
  return { [wrapper]: wrapper === 'doorValue' ? renamed(value, pascal) : value }
}

/** Leaves an object as it is, unless the normalizer would read it as something else. Then it gets a wrapper. */
function encodeBare(value: unknown): unknown {
  if (!isJsonObject(value)) return value
  return isEmpty(value) || wrapperOf(value) !== undefined ? { objectValue: value } : value
}

function encodePlain(value: unknown, type: UnlimitedType | undefined): unknown {
  if (typeof value === 'string') return quoted(value, type)
  const structure = isJsonObject(value) ? structureOf(value) : undefined
  if (!isJsonObject(value) || structure === undefined) return encodeBare(value)
  return structure === 'doorValue'
    ? renamed(value, pascal)
    : structure === 'tireLocationValue'
      ? renamed(value, snake)
      : value
}

/** Writes an undecoded value in a wrapper of its JSON type only, so that it is undecoded again. */
function encodeUndecoded(value: unknown, type: UnlimitedType | undefined): unknown {
  if (typeof value === 'string') return { stringValue: value }
  if (typeof value === 'number') return { doubleValue: value }
  if (typeof value === 'boolean') return { booleanValue: value }
  if (isEmpty(value) && (type === undefined || type === 'any')) return value
  return Array.isArray(value) ? { arrayValue: value } : { objectValue: value }
}

function encodeBareUndecoded(value: unknown, type: UnlimitedType | undefined): unknown {
  return isJsonObject(value) ? encodeUndecoded(value, type) : value
}

function typeOf(fields: FieldCatalogue, name: string): UnlimitedType | undefined {
  const type = Object.hasOwn(fields, name) ? fields[name] : undefined
  return type && plainType(type)
}

/** Writes `data` as the service sends it: field name to value. */
function encodeMap(data: JsonObject, undecoded: JsonObject | undefined = {}, fields: FieldCatalogue): JsonObject {
  const map: WireObject<unknown> = new WireObject()
  for (const name of Object.keys(data)) {
    const type = typeOf(fields, name)
    if (Object.hasOwn(undecoded, name)) map[name] = encodeBareUndecoded(undecoded[name], type)
    else if (data[name] !== undefined) map[name] = encodePlain(data[name], type)
  }
  return map
}

/** Writes `data` as the maker sends it: items of `key` and wrapped `value`. */
function encodeList(data: JsonObject, undecoded: JsonObject | undefined = {}, fields: FieldCatalogue): JsonObject[] {
  return Object.keys(data)
    .filter((name) => data[name] !== undefined)
    .map((key) => {
      const type = typeOf(fields, key)
      const isUndecoded = Object.hasOwn(undecoded, key)
      return { key, value: isUndecoded ? encodeUndecoded(undecoded[key], type) : encodeWrapped(key, data[key], type) }
    })
}

interface NamedEntry {
  readonly name: string
  readonly [key: string]: unknown
}

function withoutName(entry: NamedEntry): JsonObject {
  const rest = new WireObject<unknown>()
  for (const key of Object.keys(entry)) if (key !== 'name') rest[key] = entry[key]
  return rest
}

/** Writes alerts or errors keyed by name, as the service does, or as a list when keys would change their order. */
function encodeEntries(entries: readonly NamedEntry[]): unknown {
  const byName: WireObject<JsonObject[]> = new WireObject()
  for (const entry of entries) (byName[entry.name] ??= []).push(withoutName(entry))
  const names = Object.keys(byName)
  const order = names.flatMap((name) => (byName[name] ?? []).map(() => name))
  if (entries.some((entry, index) => entry.name !== order[index])) return entries
  const keyed = new WireObject<unknown>()
  for (const name of names) {
    const list = byName[name] ?? []
    keyed[name] = list.length === 1 ? list[0] : list
  }
  return keyed
}

/** Keys of `meta` that are not written: they are words of the wire, or added by fleethook. */
const reserved: ReadonlySet<string> = /* @__PURE__ */ new Set([
  'vin',
  'createdAt',
  'state',
  'data',
  'errors',
  'alerts',
  'networkInterface',
  'vehicle_data',
  'event',
  'createdAtMissing',
  'secret',
])

function writeMeta(
  message: { [key: string]: unknown },
  { meta = {}, topic }: Exclude<Encodable, { topic: 'unknown' }>,
): void {
  for (const key of Object.keys(meta)) {
    if (reserved.has(key) || (topic === 'connectivity' && (key === 'status' || key === 'connectionId'))) continue
    message[key] = meta[key]
  }
}

function payloadOf(
  event: Exclude<Encodable, { topic: 'unknown' }>,
  format: Format,
  fields: FieldCatalogue,
): JsonObject {
  const list = format === 'vehicle_maker'
  switch (event.topic) {
    case 'data':
      return {
        data: list ? encodeList(event.data, event.undecoded, fields) : encodeMap(event.data, event.undecoded, fields),
      }
    case 'state':
      return { state: event.state }
    case 'vehicle_data':
      return { vehicle_data: event.vehicleData }
    case 'alerts':
      return { alerts: list ? event.alerts : encodeEntries(event.alerts) }
    case 'errors':
      return { errors: list ? event.errors : encodeEntries(event.errors) }
    default: {
      const { status, networkInterface, connectionId } = event
      // Known emitters write these two words in capitals.
      const shown = status === 'connected' || status === 'disconnected' ? status.toUpperCase() : status
      return { status: shown, networkInterface, ...(connectionId !== undefined && { connectionId }) }
    }
  }
}

function labelOf(topic: WireTopic, sourcetype: string | undefined): string {
  return sourcetype !== undefined && topicOfLabel(sourcetype) === topic ? sourcetype : `vehicle:telemetry:${topic}`
}

/** The `time` of an envelope in seconds. From the year 5138 on in nanoseconds, because readers tell units apart by size. */
function envelopeTime(createdAt: string): number {
  const ms = readInstant(createdAt)
  if (Number.isNaN(ms)) {
    throw new FleethookError('encode_unsupported', `createdAt is "${createdAt}", which is not an ISO 8601 time.`, {
      hint: 'Write it like 2024-02-24T04:58:44.983Z.',
    })
  }
  return ms >= 1e14 ? (ms + 0.5) * 1e6 : ms / 1000
}

/**
 * Writes an event as a message of the given format, ready for `JSON.stringify`. It is the inverse of the normalizer:
 * normalizing the message gives the same event, within these limits of the formats:
 *
 * - `event_collector` has milliseconds. A finer `createdAt` loses the rest, and is written in UTC with `Z`. The message
 *   always has a `sourcetype` and a `host`, which are then in the `meta` of the event.
 * - Only `data` differs between `service` and `vehicle_maker`. For the other topics, the event that is read back has the
 *   format `service`.
 * - Keys of `meta` that are words of the wire (`state`, `event`, `time`, …) are left out.
 * - An `unknown` event is written as its `raw` in every format.
 *
 * `fields` is the catalogue for `data`. Default: the built-in one.
 *
 * Throws a `FleethookError` of code `encode_unsupported` for an event that is never sent (`gap`), and for a `createdAt` that
 * is not a time where the format needs one.
 *
 * @example
 * ```ts
 * import { encode } from 'fleethook/normalize'
 *
 * const message = encode(
 *   { topic: 'data', vin: '0FLEETV14T0000004', createdAt: '2024-02-24T04:58:44.983Z', data: { Gear: 'D' } },
 *   'vehicle_maker',
 * )
 * console.log(JSON.stringify(message)) // … "data":[{"key":"Gear","value":{"shiftStateValue":"ShiftStateD"}}] …
 * ```
 *
 * Specification: "Payload of a `data` message".
 */
export function encode(event: Encodable, format: Format, fields: FieldCatalogue = builtInFields): JsonObject {
  if (event.topic === 'unknown') return event.raw
  if (!wireTopics.includes(event.topic)) {
    throw new FleethookError(
      'encode_unsupported',
      `An event of topic ${JSON.stringify(event.topic)} is never sent, so no format has it.`,
    )
  }
  const message = new WireObject<unknown>()
  const dated = event.meta?.createdAtMissing !== true
  writeMeta(message, event)
  if (format !== 'event_collector') {
    Object.assign(message, payloadOf(event, format, fields))
    if (dated) message['createdAt'] = event.createdAt
    message['vin'] = event.vin
    return message
  }
  delete message['time']
  if (dated) message['time'] = envelopeTime(event.createdAt)
  message['host'] ??= 'localhost'
  message['source'] = event.vin
  message['sourcetype'] = labelOf(event.topic, event.meta?.sourcetype)
  const payload = payloadOf(event, format, fields)
  message['event'] = event.topic === 'data' ? payload['data'] : payload
  return message
}

/**
 * The `Authorization` header of a message. In the collector's format, a secret without a scheme word gets the collector's.
 *
 * Specification: "Authentication of outgoing webhook messages".
 */
export function authorization(secret: string, format: Format): string {
  return format === 'event_collector' && !secret.includes(' ') ? `Splunk ${secret}` : secret
}
