import type { FieldCatalogue, FieldType } from '../events/fields.ts'
import { named, type Named } from './named.ts'
import { isJsonObject, type JsonObject } from './record.ts'
import { readStructure } from './structures.ts'
import { wrapperOf } from './wrapper.ts'
import { wrapperText } from './wrappers.generated.ts'

let wrappers: ReadonlyMap<string, string> | undefined

/** In which wrapper the maker sends each field. */
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
const pascal = (name: string): string => name.charAt(0).toUpperCase() + name.slice(1)
const snake = (name: string): string => name.replaceAll(/[A-Z]|\d/g, (part) => `_${part.toLowerCase()}`)

/** Which structure a value is: those that the normaliser yields are complete, so that their shape says it. */
function structureOf(value: JsonObject): 'locationValue' | 'doorValue' | 'tireLocationValue' | 'timeValue' | undefined {
  const structure = readStructure(value, undefined)
  if (structure === undefined) return undefined
  if ('latitude' in structure) return 'locationValue'
  if ('hour' in structure) return 'timeValue'
  return 'driverFront' in structure ? 'doorValue' : 'tireLocationValue'
}

/** Text that the normaliser would take out of its quotes gets another pair. */
function quoted(text: string, type: FieldType | undefined): string {
  return type === 'string' && text.length > 1 && text.startsWith('"') && text.endsWith('"') ? `"${text}"` : text
}

function encodeText(name: string, text: string, type: FieldType | undefined): JsonObject {
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

/** A value in the maker's wrapper. */
function encodeWrapped(name: string, value: unknown, type: FieldType | undefined): JsonObject {
  if (typeof value === 'string') return encodeText(name, value, type)
  if (typeof value === 'number') return encodeNumber(name, value)
  if (typeof value === 'boolean') return { booleanValue: value }
  if (Array.isArray(value)) return { arrayValue: value }
  if (!isJsonObject(value)) return { invalid: true }
  const wrapper = structureOf(value)
  if (wrapper === undefined) return { objectValue: value }
  return { [wrapper]: wrapper === 'doorValue' ? renamed(value, pascal) : value }
}

/** An object as it is, in a wrapper only when it would be read as something else without one. */
function encodeBare(value: unknown): unknown {
  if (!isJsonObject(value)) return value
  return isEmpty(value) || wrapperOf(value) !== undefined ? { objectValue: value } : value
}

function encodePlain(value: unknown, type: FieldType | undefined): unknown {
  if (typeof value === 'string') return quoted(value, type)
  const structure = isJsonObject(value) ? structureOf(value) : undefined
  if (!isJsonObject(value) || structure === undefined) return encodeBare(value)
  return structure === 'doorValue'
    ? renamed(value, pascal)
    : structure === 'tireLocationValue'
      ? renamed(value, snake)
      : value
}

function isEmpty(value: unknown): boolean {
  return isJsonObject(value) && Object.keys(value).length === 0
}

/**
 * What did not decode is written as it was read, in a wrapper that says nothing of its type: one that says more would make
 * it decode. Only `{}` of a field of no certain type came without a wrapper: in one it would have been a value.
 */
function encodeUndecoded(value: unknown, type: FieldType | undefined): unknown {
  if (typeof value === 'string') return { stringValue: value }
  if (typeof value === 'number') return { doubleValue: value }
  if (typeof value === 'boolean') return { booleanValue: value }
  if (isEmpty(value) && (type === undefined || type === 'any')) return value
  return Array.isArray(value) ? { arrayValue: value } : { objectValue: value }
}

function encodeBareUndecoded(value: unknown, type: FieldType | undefined): unknown {
  return isJsonObject(value) ? encodeUndecoded(value, type) : value
}

function typeOf(fields: FieldCatalogue, name: string): FieldType | undefined {
  return Object.hasOwn(fields, name) ? fields[name] : undefined
}

/** `data` as the service sends it: field name to value. */
export function encodeMap(
  data: JsonObject,
  undecoded: JsonObject | undefined = {},
  fields: FieldCatalogue,
): JsonObject {
  const map: Named<unknown> = named()
  for (const name of Object.keys(data)) {
    const type = typeOf(fields, name)
    if (Object.hasOwn(undecoded, name)) map[name] = encodeBareUndecoded(undecoded[name], type)
    else if (data[name] !== undefined) map[name] = encodePlain(data[name], type)
  }
  return map
}

/** `data` as the maker sends it: items of `key` and wrapped `value`. */
export function encodeList(
  data: JsonObject,
  undecoded: JsonObject | undefined = {},
  fields: FieldCatalogue,
): JsonObject[] {
  return Object.keys(data)
    .filter((name) => data[name] !== undefined)
    .map((key) => {
      const type = typeOf(fields, key)
      const isUndecoded = Object.hasOwn(undecoded, key)
      return { key, value: isUndecoded ? encodeUndecoded(undecoded[key], type) : encodeWrapped(key, data[key], type) }
    })
}
