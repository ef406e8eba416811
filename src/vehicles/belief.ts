import type { Law } from '../events/laws.ts'
import type { FieldValue } from '../events/values.ts'
import { isPlace, metersBetween } from './places.ts'

/** A value and when the vehicle reported it, in milliseconds since the epoch. */
export type Reading = readonly [at: number, value: FieldValue]

/** Whether a value can be true at all. 0,0 is no place. `null` means none, for the fields in which it is a value. */
export function canBe(law: Law, value: FieldValue): boolean {
  if (value === null) return true
  if (law.kind === 'place') return isPlace(value) && (value.latitude !== 0 || value.longitude !== 0)
  return typeof value === 'number' && value >= (law.least ?? -Infinity) && value <= (law.most ?? Infinity)
}

/** Whether physics allows a value after another one. */
export function canFollow(law: Law, [beforeMs, before]: Reading, [nextMs, next]: Reading): boolean {
  if (law.kind === 'counter' && isLess(next, before, law.back)) return false
  if (law.perMinute === Infinity) return true
  const most = law.atOnce + (law.perMinute * Math.abs(nextMs - beforeMs)) / 60_000
  if (isPlace(before) && isPlace(next)) return metersBetween(before, next) <= most
  return typeof before !== 'number' || typeof next !== 'number' || Math.abs(next - before) <= most
}

const isLess = (next: FieldValue, before: FieldValue, back = 0): boolean =>
  typeof before === 'number' && typeof next === 'number' && next < before - back

/** What is believed of a field after one more value, and what still waits for the value that confirms it. */
export interface Belief {
  readonly believed: Reading
  /** A value that could not follow the believed one. */
  readonly held: Reading | undefined
  /** The value before `believed` that counts with it, because one confirms the other. */
  readonly with?: Reading | undefined
  /** A value was left out: the next one did not confirm it. */
  readonly isOneOut: boolean
}

/**
 * Whether one more value is believed. `next` can be true, and is not older than what is believed.
 *
 * | `next`                      | nothing is held | a value is held                                                           |
 * | --------------------------- | --------------- | ------------------------------------------------------------------------- |
 * | can follow the believed one | is believed     | is believed, and the held one is left out, unless it is newer (see below) |
 * | cannot                      | is held         | both are believed if one can follow the other; else the newer one is held |
 *
 * A `next` that came late is older than the held one, and decides about it as if it had come in time: what can follow it is believed, what cannot is
 * held still. A copy of the held one decides nothing.
 */
export function judged(law: Law, believed: Reading, held: Reading | undefined, next: Reading): Belief {
  const isNext = canFollow(law, believed, next)
  if (held === undefined)
    return isNext ? { believed: next, held, isOneOut: false } : { believed, held: next, isOneOut: false }
  const isLate = next[0] < held[0]
  if (isNext && !isLate) return { believed: next, held: undefined, isOneOut: true }
  if (!isNext && isSame(held, next)) return { believed, held, isOneOut: false }
  const [first, last] = isLate ? [next, held] : [held, next]
  if (canFollow(law, first, last)) return { believed: last, held: undefined, with: first, isOneOut: false }
  return isNext ? { believed: next, held, isOneOut: false } : { believed, held: last, isOneOut: true }
}

/** Whether two readings are copies of one message. */
function isSame([oneMs, one]: Reading, [otherMs, other]: Reading): boolean {
  if (oneMs !== otherMs) return false
  return isPlace(one) && isPlace(other)
    ? one.latitude === other.latitude && one.longitude === other.longitude
    : one === other
}
