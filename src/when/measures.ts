import type { FieldValue, Location } from '../events/values.ts'
import { isPlace, metersBetween } from './areas.ts'

/** What an episode measures: the result of `span`, `growth`, `range` or `path`. */
export interface Measure<Result = unknown> {
  readonly kind: 'span' | 'growth' | 'range' | 'path'
  readonly field: string
  readonly startsAt?: number | undefined
  readonly everyMeters?: number
  readonly mostPoints?: number
  /** Only for the compiler: the type of the result. */
  readonly result?: Result
}

/** The result of `span`: a field's value at both ends of an episode, and when the vehicle reported it, by its clock. */
export interface Span<Value = FieldValue> {
  /** The last value at or before the start that is certain, however old. Otherwise the first one after it. `null`: there was none before the end. */
  readonly from: Value | null
  /** The first value at or after the end. Otherwise the last one since the start. `null`: there was none, or only that of `from`. */
  readonly to: Value | null
  readonly fromAt: Date | null
  readonly toAt: Date | null
}

/** The result of `range`: the smallest and the largest number from the start to the end, without interruptions. `null`: none was reported. */
export interface Range {
  readonly least: number | null
  readonly most: number | null
}

/** The result of `path`: where the vehicle went. */
export interface Path {
  /** In order: the position of the start, if it is known, and of the end. */
  readonly points: readonly PathPoint[]
  /** The length of the way in meters. `null`: fewer than two positions are known. */
  readonly meters: number | null
}

/** A position of a {@link Path}. `at` is the vehicle's clock, to the second. */
export interface PathPoint extends Location {
  readonly at: Date
}

/** The most points of a path. */
export const mostOfPath = 1_000

/** A value and when it was reported, in milliseconds since the epoch. `isOld`: the value from before `splits`, reported again. */
export type Seen = readonly [at: number, value: FieldValue, isOld?: boolean]

/** What is noted for one measure of one episode. It is stored as JSON. */
export interface Notes {
  from?: Seen
  /** The newest one since the start, before the end. */
  before?: Seen
  /** The first one at or after the end. */
  after?: Seen
  /** The newest one after the end: if the episode goes on, it is one of those before. */
  latest?: Seen
  /** The measure is newer than the episode, or a value came too late for its place. */
  isPartial?: true
  /** Of `growth`: the sum, and the last value in it. */
  sum?: number
  last?: number
  /** Of `range`. */
  least?: number
  most?: number
  /** Of `path`: its points, the least distance between them, and the length up to the last position that counted. */
  points?: Point[]
  spacing?: number
  meters?: number
  counted?: Location
}

/** An episode as its measures see it. Without an `end`, it lasts. Times are in milliseconds. */
interface Bounded {
  readonly start: number
  readonly end?: number | undefined
  readonly cut?: true | undefined
}

/** How long values of the end may take, and how long the first one of a parked vehicle. In milliseconds. */
interface Patience {
  readonly waits: number
  readonly corrects: number
}

/** Whether a measure can use a value. */
const fits = ({ kind }: Measure, value: FieldValue): boolean =>
  kind === 'span' || (kind === 'path' ? isPlace(value) : typeof value === 'number')

/** The notes of an episode that starts. `known` is the last value, if it is certain. */
export function begun(measure: Measure, known: Seen | undefined, start: number): Notes {
  if (known === undefined || !fits(measure, known[1])) return {}
  const [at, value] = known
  const notes: Notes = measure.kind === 'range' ? {} : { from: known }
  if (measure.kind === 'growth') notes.last = Number(value)
  else if (measure.kind === 'path' || at === start) advance(measure, notes, [start, value])
  return notes
}

/** Notes a value after the start, or a counter with it. */
export function note(measure: Measure, notes: Notes, seen: Seen, episode: Bounded, patience: Patience): void {
  const { start, end } = episode
  const { kind } = measure
  if (!fits(measure, seen[1]) || (kind === 'range' && end !== undefined && seen[0] !== end)) return
  if (kind === 'growth' && seen[0] === start) {
    notes.from = seen
    return advance(measure, notes, seen)
  }
  const isOfIt = end === undefined || isOfEnd(notes, seen, end, episode, patience)
  notes[end === undefined ? 'before' : 'latest'] = seen
  if (!isOfIt) return
  notes.from ??= seen
  if (end !== undefined) notes.after ??= seen
  if (end === undefined || kind !== 'path') advance(measure, notes, seen)
}

/** An interruption is over, and the episode goes on. */
export function resumed(measure: Measure, notes: Notes): void {
  const { latest } = notes
  delete notes.after
  delete notes.latest
  if (latest === undefined) return
  notes.from ??= latest
  notes.before = latest
  advance(measure, notes, latest)
}

/** A value came too late for its place. Where the order of values does not matter, it counts. Otherwise it may be the one that is needed. */
export function noteLate(measure: Measure, notes: Notes, seen: Seen, episode: Bounded, { waits }: Patience): void {
  const [at, value] = seen
  const { start, end = Infinity } = episode
  const { from = [Infinity], before = [-Infinity] } = notes
  if (!fits(measure, value) || at > end + waits) return
  if (measure.kind === 'range') {
    if (at >= start && at <= end) advance(measure, notes, seen)
  } else if (from[0] > start || (at > from[0] && (measure.kind !== 'span' || at > before[0]))) notes.isPartial = true
}

/**
 * Whether a value belongs to the end: for a while any, and then the first one, because a parked vehicle has not moved since. But a number
 * that goes the other way has changed since: the vehicle was charged, or lost charge. Then no later one is that of the end either.
 */
function isOfEnd(
  notes: Notes,
  [at, value]: Seen,
  end: number,
  { cut }: Bounded,
  { waits, corrects }: Patience,
): boolean {
  const { from, before, latest } = notes
  if (cut === true) return false
  if (at <= end + waits) return true
  if (latest !== undefined || at > end + corrects) return false
  if (before === undefined || typeof value !== 'number') return true
  return (Number(before[1]) - Number(from?.[1])) * (value - Number(before[1])) >= 0
}

function advance(measure: Measure, notes: Notes, [at, value]: Seen): void {
  const { kind, startsAt } = measure
  if (kind === 'path' && isPlace(value)) extend(notes, at, value, measure)
  if (typeof value !== 'number') return
  if (kind === 'range') {
    notes.least = Math.min(notes.least ?? value, value)
    notes.most = Math.max(notes.most ?? value, value)
  } else if (kind === 'growth') {
    const last = notes.last ?? (notes.isPartial === true ? value : (startsAt ?? value))
    // A fall to less than half is a reset.
    notes.sum = (notes.sum ?? 0) + value - (value < last / 2 ? 0 : last)
    notes.last = value
  }
}

function extend(notes: Notes, at: number, place: Location, { everyMeters = 0, mostPoints }: Measure): void {
  const { latitude, longitude } = place
  const step = notes.counted && metersBetween(notes.counted, place)
  if (step !== undefined && step < everyMeters) return
  notes.meters = (notes.meters ?? 0) + (step ?? 0)
  notes.counted = { latitude, longitude }
  const points = (notes.points ??= [])
  const spacing = (notes.spacing ??= everyMeters)
  const last = points.at(-1)
  if (last !== undefined && metersBetween(pointOf(last), place) < spacing) return
  points.push([Math.round(at / 1_000), Math.round(latitude * degrees), Math.round(longitude * degrees)])
  if (points.length <= (mostPoints ?? mostOfPath)) return
  notes.points = points.filter((_, nth) => nth % 2 === 0)
  notes.spacing = 2 * spacing
}

/** A point as it is kept: in seconds and in 1/100,000 degrees. */
type Point = readonly [second: number, north: number, east: number]
const degrees = 100_000
const pointOf = ([second, north, east]: Point): PathPoint => ({
  at: new Date(second * 1_000),
  latitude: north / degrees,
  longitude: east / degrees,
})

interface Result {
  readonly value: unknown
  readonly isMissing: boolean
}

/** The value of a measure, and whether its name is `missing`. */
export function resultOf(measure: Measure, notes: Notes, { start, end }: Bounded, { waits }: Patience): Result {
  const { kind, startsAt } = measure
  const { from, before, after, isPartial = false, least = null, most = null } = notes
  if (kind === 'range') return { value: { least, most }, isMissing: least === null || isPartial }
  const to = after ?? before
  const isOne = to === undefined || to[0] === from?.[0]
  // An older value of the end may not be that of the end.
  const isStale = end !== undefined && after === undefined && (to?.[0] ?? 0) < end - waits
  const isLate = (from?.[0] ?? Infinity) > start + waits
  if (kind === 'growth') {
    const isNothing = startsAt === undefined || isPartial ? isOne : to === undefined
    // Sums of decimal fractions have tails.
    const value = isNothing ? null : Math.round((notes.sum ?? 0) * 1e6) / 1e6
    return { value, isMissing: isNothing || isStale || isPartial || (isLate && startsAt === undefined) }
  }
  const isMissing = isOne || isLate || isStale || isPartial
  if (kind === 'path') return { value: pathOf(notes), isMissing }
  // One value is that of one end: both would say that nothing changed.
  const [first, last] = isOne && after !== undefined ? [undefined, to] : [from, isOne ? undefined : to]
  const value: Span = { from: first?.[1] ?? null, to: last?.[1] ?? null, fromAt: dateOf(first), toAt: dateOf(last) }
  return { value, isMissing }
}

const dateOf = (seen: Seen | undefined): Date | null => (seen === undefined ? null : new Date(seen[0]))

/** A parked vehicle's position jumps by some meters. */
const jitterMeters = 10

function pathOf(notes: Notes): Path {
  const { from, before, after } = notes
  const points = (notes.points ?? []).map(pointOf)
  let { meters = 0, counted: last } = notes
  for (const [seen, least] of [
    [before, 0],
    [after, jitterMeters],
  ] as const) {
    // prettier-ignore
    if (seen === undefined || !isPlace(seen[1])) continue
    const { latitude, longitude } = seen[1]
    const more = last && metersBetween(last, seen[1])
    if (more !== undefined && more <= least) continue
    meters += more ?? 0
    last = seen[1]
    points.push({ at: new Date(Math.round(seen[0] / 1_000) * 1_000), latitude, longitude })
  }
  const known = new Set([from, before, after].flatMap((seen) => seen?.[0] ?? []))
  return { points, meters: known.size < 2 ? null : Math.round(meters * 10) / 10 }
}
