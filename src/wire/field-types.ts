import { FleethookError } from '../base/errors.ts'
import { builtInFields, type EnumType, type FieldCatalogue, type FieldType } from '../events/fields.ts'
import type { Doors, FieldValue, Json, Location, Tires, TimeOfDay } from '../events/values.ts'
import {
  asJson,
  asJsonObject,
  emptyObject,
  isDeeperThan,
  isJsonObject,
  isPresent,
  isTextList,
  type JsonObject,
  WireObject,
} from './record.ts'
import { readClockText, readDecimal } from './scalars.ts'

const closedDoors: Doors = {
  driverFront: false,
  driverRear: false,
  passengerFront: false,
  passengerRear: false,
  trunkFront: false,
  trunkRear: false,
}

export const tiresWithoutWarning: Tires = {
  frontLeft: false,
  frontRight: false,
  rearLeft: false,
  rearRight: false,
  semiMiddleAxleLeft2: false,
  semiMiddleAxleRight2: false,
  semiRearAxleLeft: false,
  semiRearAxleRight: false,
  semiRearAxleLeft2: false,
  semiRearAxleRight2: false,
}

export const pascal = (name: string): string => name.charAt(0).toUpperCase() + name.slice(1)
export const snake = (name: string): string => name.replaceAll(/[A-Z]|\d/g, (part) => `_${part.toLowerCase()}`)

/** Maps every spelling of a name (`driverFront`, `DriverFront`, `driver_front`) to the name. */
function spellings<Flags extends object>(flags: Flags): ReadonlyMap<string, Extract<keyof Flags, string>> {
  const names = new Map<string, Extract<keyof Flags, string>>()
  for (const name in flags) for (const spelling of [name, pascal(name), snake(name)]) names.set(spelling, name)
  return names
}

const doorNames = /* @__PURE__ */ spellings(closedDoors)
const tireNames = /* @__PURE__ */ spellings(tiresWithoutWarning)

function fill<Name extends string>(
  flags: Record<Name, boolean>,
  names: ReadonlyMap<string, Name>,
  sent: JsonObject,
): boolean {
  for (const key in sent) {
    const name = names.get(key)
    const flag = sent[key]
    if (name === undefined || typeof flag !== 'boolean') return false
    flags[name] = flag
  }
  return true
}

/** Reads `"DriverFront|TrunkRear"`, `""`, or an object of flags in any spelling of the names. */
function readDoors(value: unknown): Doors | undefined {
  const doors = { ...closedDoors }
  if (isJsonObject(value)) return fill(doors, doorNames, value) ? doors : undefined
  if (typeof value !== 'string') return undefined
  if (value === '') return doors
  for (const part of value.split('|')) {
    const name = doorNames.get(part.trim())
    if (name === undefined) return undefined
    doors[name] = true
  }
  return doors
}

function readTires(value: unknown): Tires | undefined {
  const tires = { ...tiresWithoutWarning }
  return isJsonObject(value) && fill(tires, tireNames, value) ? tires : undefined
}

const locationText = /^\(?\s*(\d+(?:\.\d*)?)\s*([NS])\s*,\s*(\d+(?:\.\d*)?)\s*([EW])\s*\)?$/

function locationOf(latitude: unknown, longitude: unknown): Location | undefined {
  if (typeof latitude !== 'number' || typeof longitude !== 'number') return undefined
  if (!Number.isFinite(latitude) || !Number.isFinite(longitude)) return undefined
  return { latitude: latitude + 0, longitude: longitude + 0 }
}

/** Reads two finite numbers, or `(37.41 N, 122.14 W)`. Only in the maker's wrapper may one be left out: it is zero. */
function readLocation(value: unknown, wrapped: boolean): Location | undefined {
  if (isJsonObject(value)) {
    const { latitude, longitude } = value
    if (wrapped && latitude === undefined) return locationOf(0, longitude)
    if (wrapped && longitude === undefined) return locationOf(latitude, 0)
    return locationOf(latitude, longitude)
  }
  if (typeof value !== 'string') return undefined
  const [, degreesNorth = '', north, degreesEast = '', east] = locationText.exec(value.trim()) ?? []
  const latitude = readDecimal(degreesNorth)
  const longitude = readDecimal(degreesEast)
  return locationOf(north === 'S' ? -latitude : latitude, east === 'W' ? -longitude : longitude)
}

function timeOf(hour: unknown, minute: unknown, second: unknown): TimeOfDay | undefined {
  if (typeof hour !== 'number' || typeof minute !== 'number' || typeof second !== 'number') return undefined
  if (!Number.isInteger(hour) || !Number.isInteger(minute) || !Number.isInteger(second)) return undefined
  if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60) return undefined
  return { hour: hour + 0, minute: minute + 0, second: second + 0 }
}

const clockText = /^(\d{1,2}):(\d\d)(?::(\d\d))?$/

/** Reads an object of hour, minute and second, in which zeros may be missing, or `HH:MM[:SS]`. */
function readTimeOfDay(value: unknown): TimeOfDay | undefined {
  if (isJsonObject(value)) {
    for (const key in value) if (key !== 'hour' && key !== 'minute' && key !== 'second') return undefined
    const { hour = 0, minute = 0, second = 0 } = value
    return timeOf(hour, minute, second)
  }
  if (typeof value !== 'string') return undefined
  const [, hour = '', minute = '', second = '0'] = clockText.exec(value.trim()) ?? []
  return timeOf(readDecimal(hour), readDecimal(minute), readDecimal(second))
}

function size(value: JsonObject): number {
  let keys = 0
  for (const _ in value) keys++
  return keys
}

/** Reads a structure by the maker's wrapper, or because it has every part and nothing else. Else `undefined`. */
export function readStructure(
  value: JsonObject,
  wrapper: string | undefined,
): Location | Doors | Tires | TimeOfDay | undefined {
  switch (wrapper) {
    case 'locationValue':
    case 'location_value':
      return readLocation(value, true)
    case 'doorValue':
    case 'door_value':
      return readDoors(value)
    case 'tireLocationValue':
    case 'tire_location_value':
      return readTires(value)
    case 'timeValue':
    case 'time_value':
      return readTimeOfDay(value)
    default:
      return readShape(value)
  }
}

function readShape(value: JsonObject): Location | Doors | Tires | TimeOfDay | undefined {
  switch (size(value)) {
    case 2:
      return readLocation(value, false)
    case 3:
      return readTimeOfDay(value)
    case 6:
      return readDoors(value)
    case 10:
      return readTires(value)
    default:
      return undefined
  }
}

/** Reads a value, out of its wrapper and not null, as the type of its field. `undefined` when it does not read as that type. */
type ValueReader = (value: unknown, wrapper: string | undefined) => FieldValue | undefined

const QUOTE = 34

/** Removes the second pair of quotes that one firmware writes around text: `"\"D\""`. */
function unquoted(text: string): string {
  const last = text.length - 1
  return last > 0 && text.charCodeAt(0) === QUOTE && text.charCodeAt(last) === QUOTE ? text.slice(1, last) : text
}

/** Whether a value is `{}`, which stands for false, zero or closed where an emitter leaves these values out. */
export function isEmpty(value: unknown): boolean {
  if (!isJsonObject(value)) return false
  for (const _ in value) return false
  return true
}

function readString(value: unknown): string | undefined {
  return typeof value === 'string' ? unquoted(value) : undefined
}

function readNumber(value: unknown, wrapper: string | undefined): number | undefined {
  if (typeof value === 'number') return Number.isFinite(value) ? value + 0 : undefined
  if (typeof value === 'string') {
    let number = readDecimal(value)
    if (Number.isNaN(number)) number = readDecimal(unquoted(value))
    return Number.isNaN(number) ? undefined : number
  }
  return wrapper === undefined && isEmpty(value) ? 0 : undefined
}

function readBoolean(value: unknown, wrapper: string | undefined): boolean | undefined {
  if (typeof value === 'boolean') return value
  if (typeof value === 'string') {
    const text = unquoted(value).toLowerCase()
    return text === 'true' ? true : text === 'false' ? false : undefined
  }
  return wrapper === undefined && isEmpty(value) ? false : undefined
}

function readTimestamp(value: unknown): number | undefined {
  if (typeof value !== 'string') return readNumber(value, 'timestamp')
  const seconds = readNumber(value, undefined) ?? readClockText(unquoted(value)) / 1000
  return Number.isNaN(seconds) ? undefined : seconds
}

function enumReader({ enum: constants, prefix = '' }: EnumType): ValueReader {
  const known = new Map<string, string>()
  for (const constant of constants) known.set(prefix + constant, constant)
  for (const constant of constants) known.set(constant, constant)
  return (value) => (typeof value === 'string' ? known.get(unquoted(value)) : undefined)
}

/** Reads the value of a field that is not in the catalogue, or whose type is not known there. */
export const readAny: ValueReader = (value, wrapper) => {
  if (typeof value === 'string' || typeof value === 'boolean') return value
  // JSON can carry infinity as 1e999, but cannot write it again. As text, in the maker's spelling, the event can be stored.
  if (typeof value === 'number') return Number.isFinite(value) ? value + 0 : String(value)
  if (isDeeperThan(value)) return undefined
  if (Array.isArray(value)) return value
  if (!isJsonObject(value) || (wrapper === undefined && isEmpty(value))) return undefined
  return readStructure(value, wrapper) ?? asJson(value)
}

/** Removes the second pair of quotes from text, and leaves any other value as it is. */
function bare(value: unknown): unknown {
  return typeof value === 'string' ? unquoted(value) : value
}

const readers: ReadonlyMap<unknown, ValueReader> = /* @__PURE__ */ new Map<Exclude<FieldType, EnumType>, ValueReader>([
  ['string', readString],
  ['number', readNumber],
  ['boolean', readBoolean],
  ['timestamp', readTimestamp],
  [
    'location',
    (value, wrapper) => readLocation(bare(value), wrapper === 'locationValue' || wrapper === 'location_value'),
  ],
  ['doors', (value) => readDoors(bare(value))],
  ['tires', readTires],
  ['time', (value) => readTimeOfDay(bare(value))],
  ['any', readAny],
])

function readerOf(name: string, type: unknown): ValueReader {
  // The part `vehicles` reads and checks the limits.
  const limited = isJsonObject(type) && ['number', 'location'].find((kind) => isJsonObject(type[kind]))
  const reader = readers.get(limited || type)
  if (reader !== undefined) return reader
  if (isJsonObject(type) && isTextList(type['enum'])) {
    const { prefix } = type
    return enumReader(typeof prefix === 'string' ? { enum: type['enum'], prefix } : { enum: type['enum'] })
  }
  throw new FleethookError(
    'option_invalid',
    `fields.${name} is ${JSON.stringify(type) ?? String(type)}, which is not the type of a field.`,
    { hint: `Use one of ${[...readers.keys()].join(', ')}, { enum: ['On', 'Off'] }, or { number: { least: 0 } }.` },
  )
}

export interface Field {
  /** The catalogue's copy of the name. As a key it is faster than the equal text from the message. */
  readonly name: string
  readonly read: ValueReader
}

function readersOf(fields: FieldCatalogue): [string, Field][] {
  const known = new Map<FieldType, ValueReader>()
  return Object.entries(fields).map(([name, type]) => {
    const read = known.get(type) ?? readerOf(name, type)
    known.set(type, read)
    return [name, { name, read }]
  })
}

let builtIn: ReadonlyMap<string, Field> | undefined

/** The fields of the built-in catalogue, extended by `fields`. Throws `option_invalid` for an unknown type. */
export function fieldReaders(fields?: FieldCatalogue): ReadonlyMap<string, Field> {
  builtIn ??= new Map(readersOf(builtInFields))
  return fields === undefined ? builtIn : new Map([...builtIn, ...readersOf(fields)])
}

const INVALID = 'invalid'

function isWrapper(key: string): boolean {
  // The letter first: it alone rules out most keys.
  const letter = key.charCodeAt(key.length - 5)
  return letter === 86 ? key.endsWith('Value') : letter === 118 && key.endsWith('_value') // V, v
}

/** The only key that ends in `Value` (`_value`). `'invalid'`: no value now. `undefined`: the object is no wrapper. */
export function wrapperOf(sent: JsonObject): string | undefined {
  let wrapper: string | undefined
  let invalid = false
  for (const key in sent) {
    if (key === INVALID) invalid = sent[key] === true
    else if (wrapper === undefined && isWrapper(key)) wrapper = key
    else return undefined
  }
  return invalid ? INVALID : wrapper
}

interface FieldReading {
  readonly data: WireObject<FieldValue>
  undecoded: WireObject<Json>
}

export interface FieldRules {
  /** The fields of the catalogue. `undefined`: values are only taken out of their wrappers. */
  readonly readers: ReadonlyMap<string, Field> | undefined
  readonly onDrift: ((field: string, seen: string) => void) | undefined
}

function kindOf(value: unknown): string {
  if (Array.isArray(value)) return 'array'
  if (typeof value !== 'object' || value === null) return typeof value
  for (const _ in value) return 'object'
  return 'empty'
}

/** Never looked up: a lookup hashes the name, and Deno's engine gives thousands of long numbers the same hash. */
const longNumber = /^\d{6,}$/

function readField(reading: FieldReading, name: string, sent: unknown, rules: FieldRules): void {
  let wrapper: string | undefined
  let value = sent
  if (typeof sent === 'object' && sent !== null && !Array.isArray(sent)) {
    const object = asJsonObject(sent)
    wrapper = wrapperOf(object)
    if (wrapper !== undefined) value = wrapper === INVALID ? null : object[wrapper]
  }
  const field = name.charCodeAt(0) <= 57 && longNumber.test(name) ? undefined : rules.readers?.get(name)
  let decoded: FieldValue | undefined
  if (value === null) decoded = null
  else if (rules.readers === undefined) decoded = isDeeperThan(value) ? undefined : asJson(value)
  else decoded = field === undefined ? readAny(value, wrapper) : field.read(value, wrapper)
  if (decoded !== undefined) {
    const known = field === undefined ? name : field.name
    reading.data[known] = decoded
    // When a list has a field twice, the later value counts.
    if (reading.undecoded !== emptyObject) delete reading.undecoded[known]
    return
  }
  reading.data[name] = null
  if (reading.undecoded === emptyObject) reading.undecoded = new WireObject<Json>()
  // JSON can carry an infinite number as 1e999, but cannot write it again. So it becomes text, in the maker's spelling.
  reading.undecoded[name] = typeof value === 'number' && !Number.isFinite(value) ? String(value) : asJson(value)
  rules.onDrift?.(name, wrapper ?? kindOf(value))
}

/** The most fields of a message. The catalogue has 251. */
const maxFields = 2_000

/** Reads the service's map of field name to value; `undefined` when it has more than {@link maxFields}, or is an item of the maker's list. */
export function readFieldMap(sent: JsonObject, rules: FieldRules): FieldReading | undefined {
  if (typeof sent['key'] === 'string' && 'value' in sent) return undefined
  const reading: FieldReading = { data: new WireObject<FieldValue>(), undecoded: emptyObject }
  let fields = 0
  for (const name in sent) {
    if (++fields > maxFields) return undefined
    const value = sent[name]
    if (value !== undefined) readField(reading, name, value, rules)
  }
  return reading
}

/**
 * The name of the field of an item. `undefined`: the item is no `{ key, value }`, and must not become a field without a value. An emitter
 * that leaves out zeros leaves out the key of field zero, `Unknown`, and one writes the key of a field that it does not know as a number.
 */
function nameOf(item: JsonObject): string | undefined {
  const { key, value } = item
  const isNamed = isPresent(key)
  if (!isNamed || value === undefined) {
    const others = Object.keys(item).filter((name) => name !== 'key' && name !== 'value')
    if (others.length > 0 || (!isNamed && value === undefined)) return undefined
  }
  if (!isNamed) return 'Unknown'
  return typeof key === 'number' ? String(key) : typeof key === 'string' ? key : undefined
}

/** Reads the maker's list of `{ key, value }`; `undefined` when it is not such a list, or has more than {@link maxFields}. */
export function readFieldList(sent: readonly unknown[], rules: FieldRules): FieldReading | undefined {
  if (sent.length > maxFields) return undefined
  const reading: FieldReading = { data: new WireObject<FieldValue>(), undecoded: emptyObject }
  for (const item of sent) {
    if (!isJsonObject(item)) return undefined
    const name = nameOf(item)
    if (name === undefined) return undefined
    readField(reading, name, item['value'] ?? null, rules)
  }
  return reading
}
