import { builtInFields, type FieldCatalogue } from '../../events/fields.ts'
import type { FieldValue } from '../../events/values.ts'
import { placeOf } from '../../wire/record.ts'
import { isAlwaysTyped, reading } from './signals.ts'
import { courseTo, type StreamedField, type Streaming, type Vehicle } from './vehicle.ts'

/** Values that are due. `texts` are the values that old firmware writes as text where today's firmware writes a constant. */
interface DueValues {
  readonly data: Readonly<Record<string, FieldValue>>
  readonly texts: Readonly<Record<string, string>>
}

/** The interval of a field whose setting is `null`. */
const defaultSeconds = 60

/** A new config. It keeps the last values of the fields that were streamed before. */
export function streamingOf(fields: { readonly [name: string]: StreamedField | null }, before?: Streaming): Streaming {
  const sent = new Map([...(before?.sent ?? [])].filter(([name]) => Object.hasOwn(fields, name)))
  return { fields: new Map(Object.entries(fields)), sent }
}

/** The values that a vehicle sends now, or `undefined` when no field is due. */
export function dueValues(vehicle: Vehicle): DueValues | undefined {
  const due = dueIn(vehicle)
  return Object.keys(due).length > 0 ? spelled(vehicle, due) : undefined
}

/** A field is due when its interval is over and it changed enough, or when its resend interval is over. */
function dueIn(vehicle: Vehicle): Record<string, FieldValue> {
  const { fields, sent } = vehicle.link.streaming
  const data: Record<string, FieldValue> = {}
  for (const [name, given] of fields) {
    const setting = given ?? {}
    const before = sent.get(name)
    const sinceMs = before === undefined ? Infinity : vehicle.now - before.at
    if (sinceMs < (setting.interval_seconds ?? defaultSeconds) * 1_000) continue
    const value = reading(vehicle, name)
    const isResend = sinceMs >= (setting.resend_interval_seconds ?? Infinity) * 1_000
    if (before !== undefined && !isResend && !differs(before.value, value, setting.minimum_delta ?? 0)) continue
    sent.set(name, { value, at: vehicle.now })
    data[name] = value
  }
  return data
}

/** Whether a value changed by at least `delta`: in its own unit, or in meters for a location. */
function differs(before: FieldValue, after: FieldValue, delta: number): boolean {
  if (before === after) return false
  if (typeof before === 'number' && typeof after === 'number') return Math.abs(after - before) >= delta
  const from = placeOf(before)
  const to = placeOf(after)
  if (from !== undefined && to !== undefined) {
    const { meters } = courseTo(from, to)
    return meters > 0 && meters >= delta
  }
  return JSON.stringify(before) !== JSON.stringify(after)
}

/** The values as the vehicle's firmware writes them. */
function spelled({ firmware: { spelling } }: Vehicle, data: Record<string, FieldValue>): DueValues {
  if (spelling === 'typed') return { data, texts: {} }
  const texts: Record<string, string> = {}
  for (const [field, value] of Object.entries(data)) {
    if (isAlwaysTyped(field)) continue
    const type = catalogue[field]
    if (typeof value === 'string' && typeof type === 'object') texts[field] = value
    else data[field] = asText(value)
  }
  return { data, texts }
}

const catalogue: FieldCatalogue = builtInFields

const isTrue = ([, value]: [string, unknown]): boolean => value === true
const capitalized = (name: string): string => name.charAt(0).toUpperCase() + name.slice(1)
const degrees = (value: number, positive: string, negative: string): string =>
  `${Math.abs(value).toFixed(6)} ${value < 0 ? negative : positive}`

/** The text that older firmware writes: `"34.797"`, `"true"`, `"DriverFront|TrunkRear"`. */
function asText(value: FieldValue): FieldValue {
  if (typeof value === 'number' || typeof value === 'boolean') return String(value)
  if (value === null || typeof value !== 'object' || Array.isArray(value)) return value
  if ('latitude' in value && typeof value.latitude === 'number' && typeof value.longitude === 'number') {
    return `(${degrees(value.latitude, 'N', 'S')}, ${degrees(value.longitude, 'E', 'W')})`
  }
  if ('driverFront' in value) {
    return Object.entries(value)
      .filter(isTrue)
      .map(([door]) => capitalized(door))
      .join('|')
  }
  return value
}
