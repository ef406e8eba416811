import type { FieldValue, Json } from '../events/values.ts'
import { type Field, readAny } from './field-types.ts'
import {
  asJson,
  asJsonObject,
  emptyObject,
  isDeeperThan,
  isJsonObject,
  isPresent,
  type JsonObject,
  wireObject,
  type WireObject,
} from './record.ts'

/** A field with values that did not read as the type in the catalogue. */
export interface Drift {
  /** The name of the field, cut at 100 characters. */
  readonly field: string
  /** The wrapper, cut at 100 characters, or the JSON type of the values. */
  readonly seen: string
  /** The number of such values. */
  readonly count: number
}

export interface DriftReport {
  note(field: string, seen: string): void
  /** All such values so far, including those of fields that found no row left. */
  total(): number
  /** Most frequent first. */
  list(): readonly Drift[]
}

/** The most rows of the report: beyond them no field or type is added, so a sender cannot make it grow without end. */
const maxDriftRows = 1000

/** A longer name is cut: names come over the wire. */
const maxNameLength = 100

/** A copy, because a slice keeps the whole name in memory. */
function bounded(name: string): string {
  return name.length <= maxNameLength ? name : String(JSON.parse(JSON.stringify(name.slice(0, maxNameLength))))
}

export function createDriftReport(): DriftReport {
  const rows = new Map<string, { readonly field: string; readonly seen: string; count: number }>()
  let total = 0
  return {
    note(field, seen) {
      total += 1
      const [shortField, shortSeen] = [bounded(field), bounded(seen)]
      const key = `${shortSeen} ${shortField}`
      const row = rows.get(key)
      if (row !== undefined) row.count += 1
      else if (rows.size < maxDriftRows) rows.set(key, { field: shortField, seen: shortSeen, count: 1 })
    },
    total: () => total,
    list: () => [...rows.values()].toSorted((a, b) => b.count - a.count).map((row) => ({ ...row })),
  }
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
  if (reading.undecoded === emptyObject) reading.undecoded = wireObject<Json>()
  // JSON can carry an infinite number as 1e999, but cannot write it again. So it becomes text, in the maker's spelling.
  reading.undecoded[name] = typeof value === 'number' && !Number.isFinite(value) ? String(value) : asJson(value)
  rules.onDrift?.(name, wrapper ?? kindOf(value))
}

/** The most fields of a message. The catalogue has 251. */
const maxFields = 2_000

/** Reads the service's map of field name to value; `undefined` when it has more than {@link maxFields}, or is an item of the maker's list. */
export function readFieldMap(sent: JsonObject, rules: FieldRules): FieldReading | undefined {
  if (typeof sent['key'] === 'string' && 'value' in sent) return undefined
  const reading: FieldReading = { data: wireObject<FieldValue>(), undecoded: emptyObject }
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
  const reading: FieldReading = { data: wireObject<FieldValue>(), undecoded: emptyObject }
  for (const item of sent) {
    if (!isJsonObject(item)) return undefined
    const name = nameOf(item)
    if (name === undefined) return undefined
    readField(reading, name, item['value'] ?? null, rules)
  }
  return reading
}
