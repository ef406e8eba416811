import type { FieldValue, Json } from '../events/values.ts'
import { named, nothing, type Named } from './named.ts'
import { asJson, asJsonObject, isJsonObject, type JsonObject } from './record.ts'
import { readAny, type Field } from './reader.ts'
import { INVALID, wrapperOf } from './wrapper.ts'

/** The fields of a `data` message. */
export interface FieldReading {
  readonly data: Named<FieldValue>
  undecoded: Named<Json>
}

/** How fields are read. */
export interface FieldRules {
  /** `undefined`: values are only taken out of their wrappers. */
  readonly readers: ReadonlyMap<string, Field> | undefined
  readonly onDrift: ((field: string, seen: string) => void) | undefined
}

function kindOf(value: unknown): string {
  if (Array.isArray(value)) return 'array'
  if (typeof value !== 'object' || value === null) return typeof value
  for (const _ in value) return 'object'
  return 'empty'
}

function keep(reading: FieldReading, name: string, value: FieldValue): void {
  reading.data[name] = value
  // The same field twice in one list: the last word counts.
  if (reading.undecoded !== nothing) delete reading.undecoded[name]
}

function readField(reading: FieldReading, name: string, sent: unknown, rules: FieldRules): void {
  let wrapper: string | undefined
  let value = sent
  if (typeof sent === 'object' && sent !== null && !Array.isArray(sent)) {
    const object = asJsonObject(sent)
    wrapper = wrapperOf(object)
    if (wrapper !== undefined) value = wrapper === INVALID ? null : object[wrapper]
  }
  if (rules.readers === undefined) return keep(reading, name, asJson(value))
  const field = rules.readers.get(name)
  const decoded = value === null ? null : field === undefined ? readAny(value, wrapper) : field.read(value, wrapper)
  if (decoded !== undefined) return keep(reading, field === undefined ? name : field.name, decoded)
  reading.data[name] = null
  if (reading.undecoded === nothing) reading.undecoded = named<Json>()
  // JSON writes an infinite number as 1e999 and cannot write it back: spelled as the maker spells it.
  reading.undecoded[name] = typeof value === 'number' && !Number.isFinite(value) ? String(value) : asJson(value)
  rules.onDrift?.(name, wrapper ?? kindOf(value))
}

/** Reads the service's map of field name to value. */
export function readFieldMap(sent: JsonObject, rules: FieldRules): FieldReading {
  const reading: FieldReading = { data: named<FieldValue>(), undecoded: nothing }
  for (const name in sent) {
    const value = sent[name]
    if (value !== undefined) readField(reading, name, value, rules)
  }
  return reading
}

/** Reads the maker's list of `{ key, value }`; `undefined` when it is no such list. */
export function readFieldList(sent: readonly unknown[], rules: FieldRules): FieldReading | undefined {
  const reading: FieldReading = { data: named<FieldValue>(), undecoded: nothing }
  for (const item of sent) {
    if (!isJsonObject(item)) return undefined
    const { key, value } = item
    // An emitter that does not know a field writes its number; one that leaves out zero leaves out field zero, `Unknown`.
    const name = typeof key === 'number' ? String(key) : (key ?? 'Unknown')
    if (typeof name !== 'string') return undefined
    readField(reading, name, value ?? null, rules)
  }
  return reading
}
