import { FleethookError } from '../base/errors.ts'
import { builtInFields } from '../events/fields.ts'
import type { EnumType, FieldCatalogue, FieldType } from '../events/fields.ts'
import type { FieldValue } from '../events/values.ts'
import { readDecimal } from './decimal.ts'
import { readClockText } from './instant.ts'
import { asJson, isJsonObject } from './record.ts'
import { readDoors, readLocation, readStructure, readTimeOfDay, readTires } from './structures.ts'

/**
 * Reads the value of a field as its type; `undefined` when it does not read as that. The value is out of its wrapper and
 * is not null.
 */
export type Reader = (value: unknown, wrapper: string | undefined) => FieldValue | undefined

const QUOTE = 34

/** One firmware sends strings in quotes of their own: `"\\"D\\""`. */
function unquoted(text: string): string {
  const last = text.length - 1
  return last > 0 && text.charCodeAt(0) === QUOTE && text.charCodeAt(last) === QUOTE ? text.slice(1, last) : text
}

/** `{}`: an emitter left out the false, zero or closed that it stands for. */
function isEmpty(value: unknown): boolean {
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

function enumReader({ enum: constants, prefix = '' }: EnumType): Reader {
  const known = new Map<string, string>()
  for (const constant of constants) known.set(prefix + constant, constant)
  for (const constant of constants) known.set(constant, constant)
  return (value) => (typeof value === 'string' ? known.get(unquoted(value)) : undefined)
}

/** The plain value: for fields that the catalogue does not know, or on which its sources contradict each other. */
export const readAny: Reader = (value, wrapper) => {
  if (typeof value === 'string' || typeof value === 'boolean') return value
  // JSON writes infinity as 1e999, but only as text can it be passed on as JSON: spelled as the maker spells it.
  if (typeof value === 'number') return Number.isFinite(value) ? value + 0 : String(value)
  if (Array.isArray(value)) return value
  if (!isJsonObject(value) || (wrapper === undefined && isEmpty(value))) return undefined
  return readStructure(value, wrapper) ?? asJson(value)
}

/** Text out of its own quotes, anything else as it is. */
function bare(value: unknown): unknown {
  return typeof value === 'string' ? unquoted(value) : value
}

const readers: ReadonlyMap<unknown, Reader> = /* @__PURE__ */ new Map<Exclude<FieldType, EnumType>, Reader>([
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

function isTextList(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((item) => typeof item === 'string')
}

function readerOf(name: string, type: unknown): Reader {
  const reader = readers.get(type)
  if (reader !== undefined) return reader
  if (isJsonObject(type) && isTextList(type['enum'])) {
    const { prefix } = type
    return enumReader(typeof prefix === 'string' ? { enum: type['enum'], prefix } : { enum: type['enum'] })
  }
  throw new FleethookError(
    'option_invalid',
    `fields.${name} is ${JSON.stringify(type) ?? String(type)}, which is no type of a field.`,
    {
      hint: `Use one of ${[...readers.keys()].join(', ')}, or { enum: ['On', 'Off'] }.`,
    },
  )
}

/** A field of the catalogue. */
export interface Field {
  /** The engine's own copy of the name: as a key it is several times as fast as an equal text out of a message. */
  readonly name: string
  readonly read: Reader
}

function readersOf(fields: FieldCatalogue): [string, Field][] {
  const known = new Map<FieldType, Reader>()
  return Object.entries(fields).map(([name, type]) => {
    const read = known.get(type) ?? readerOf(name, type)
    known.set(type, read)
    return [name, { name, read }]
  })
}

let builtIn: ReadonlyMap<string, Field> | undefined

/** Field by name, for the built-in catalogue extended by this one. Throws when a type in it is none. */
export function fieldReaders(fields?: FieldCatalogue): ReadonlyMap<string, Field> {
  builtIn ??= new Map(readersOf(builtInFields))
  return fields === undefined ? builtIn : new Map([...builtIn, ...readersOf(fields)])
}
