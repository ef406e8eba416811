import type { FieldValue } from '../../events/values.ts'
import { courseTo } from './motion.ts'
import { signalList } from './signals.ts'
import { asText } from './spelling.ts'
import type { Vehicle } from './vehicle.ts'

/** How one field is streamed, in the words of a streaming config. */
export interface StreamedField {
  readonly interval_seconds: number
  readonly minimum_delta?: number
  readonly resend_interval_seconds?: number
}

/** What a vehicle streams, and what it said of it last. */
export interface Streaming {
  readonly fields: ReadonlyMap<string, StreamedField>
  readonly said: Map<string, { readonly value: FieldValue; readonly at: number }>
}

const signals = new Map(signalList.map((signal) => [signal.field, signal]))

/** Begins to stream these fields, by what was said of them before. */
export function streamingOf(fields: { readonly [name: string]: StreamedField }, before?: Streaming): Streaming {
  const said = new Map([...(before?.said ?? [])].filter(([name]) => Object.hasOwn(fields, name)))
  return { fields: new Map(Object.entries(fields)), said }
}

/** Every field that is due now: changed by enough after its interval, or unchanged for as long as its resend interval. */
export function streamed(
  vehicle: Vehicle,
  { fields, said }: Streaming,
): { readonly [field: string]: FieldValue } | undefined {
  const data: Record<string, FieldValue> = {}
  let due = false
  for (const [name, setting] of fields) {
    const before = said.get(name)
    const sinceMs = before === undefined ? Infinity : vehicle.now - before.at
    if (sinceMs < setting.interval_seconds * 1_000) continue
    const signal = signals.get(name)
    // A field that is not simulated has no value: what many fields of a vehicle at rest say too.
    const value = signal?.read(vehicle) ?? null
    const again = sinceMs >= (setting.resend_interval_seconds ?? Infinity) * 1_000
    if (before !== undefined && !again && !differs(before.value, value, setting.minimum_delta ?? 0)) continue
    said.set(name, { value, at: vehicle.now })
    data[name] = vehicle.spelling === 'text' && !signal?.alwaysTyped ? asText(value) : value
    due = true
  }
  return due ? data : undefined
}

/** Whether a value is another one, by at least `delta`: in its own unit, or in metres for a place. */
function differs(before: FieldValue, after: FieldValue, delta: number): boolean {
  if (before === after) return false
  if (typeof before === 'number' && typeof after === 'number') return Math.abs(after - before) >= delta
  const from = placeIn(before)
  const to = placeIn(after)
  if (from !== undefined && to !== undefined) {
    const { meters } = courseTo(from, to)
    return meters > 0 && meters >= delta
  }
  return JSON.stringify(before) !== JSON.stringify(after)
}

function placeIn(value: FieldValue): { readonly latitude: number; readonly longitude: number } | undefined {
  if (typeof value !== 'object' || value === null || !('latitude' in value)) return undefined
  const { latitude, longitude } = value
  return typeof latitude === 'number' && typeof longitude === 'number' ? { latitude, longitude } : undefined
}
