import type { Law } from '../events/laws.ts'
import type { FieldValue } from '../events/values.ts'
import { isPlace, metersBetween } from './places.ts'

/** A value and when the vehicle reported it, in milliseconds since the epoch. */
export type Reading = readonly [at: number, value: FieldValue]

/** Whether a value can be true at all. 0,0 is no place. */
export function canBe(law: Law, value: FieldValue): boolean {
  if (law.kind === 'place') return isPlace(value) && (value.latitude !== 0 || value.longitude !== 0)
  if (typeof value !== 'number') return true
  return value >= (law.least ?? -Infinity) && value <= (law.most ?? Infinity)
}

/** Whether physics allows a value after another one. */
export function canFollow(law: Law, [beforeMs, before]: Reading, [nextMs, next]: Reading): boolean {
  const most = law.atOnce + (law.perMinute * Math.abs(nextMs - beforeMs)) / 60_000
  if (isPlace(before) && isPlace(next)) return metersBetween(before, next) <= most
  if (typeof before !== 'number' || typeof next !== 'number') return true
  return Math.abs(next - before) <= most && (law.kind !== 'counter' || next >= before)
}
