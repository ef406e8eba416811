import type { FieldValue, Location } from '../events/values.ts'
import { isPlace, metersBetween } from '../vehicles/places.ts'

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

/** Notes a value after the start, or what a counter grew up to the start. */
export function note(measure: Measure, notes: Notes, seen: Seen, episode: Bounded, patience: Patience): void {
  const { start, end } = episode
  const { kind } = measure
  if (!fits(measure, seen[1]) || (kind === 'range' && (seen[0] < start || seen[0] > (end ?? seen[0])))) return
  if (kind === 'growth' && seen[0] === start) return advance(measure, notes, seen)
  const isOfIt = end === undefined || isOfEnd(notes, seen, end, episode, patience)
  notes[end === undefined ? 'before' : 'latest'] = seen
  if (!isOfIt) return
  notes.from ??= seen
  if (end !== undefined) notes.after ??= seen
  if (end === undefined || kind !== 'path') advance(measure, notes, seen)
}

/** A value came too late for its place. Where the order of values does not matter, it counts. Otherwise it may be the one that is needed. */
export function noteLate(measure: Measure, notes: Notes, seen: Seen, episode: Bounded, patience: Patience): void {
  const [at, value] = seen
  const { start, end = at } = episode
  const { from = [Infinity], before = from } = notes
  const [newest] = measure.kind === 'span' ? before : from
  if (measure.kind === 'range') note(measure, notes, seen, episode, patience)
  else if (fits(measure, value) && at <= end + patience.waits && (from[0] > start || at > newest))
    notes.isPartial = true
}

/** For a while any value is that of the end, and then the first one: a parked vehicle has not moved. But not a number that goes the other way: it was charged. */
function isOfEnd(notes: Notes, seen: Seen, end: number, { cut }: Bounded, { waits, corrects }: Patience): boolean {
  const { from, before, latest } = notes
  const [at, value] = seen
  if (cut === true || at <= end + waits) return cut !== true
  if (latest !== undefined || at > end + corrects) return false
  if (before === undefined || typeof value !== 'number') return true
  return (Number(before[1]) - Number(from?.[1])) * (value - Number(before[1])) >= 0
}

/** An interruption is over, and the episode goes on. */
export function resumed(measure: Measure, notes: Notes, episode: Bounded, patience: Patience): void {
  const { latest } = notes
  delete notes.after
  delete notes.latest
  if (latest !== undefined) note(measure, notes, latest, episode, patience)
}

function advance(measure: Measure, notes: Notes, seen: Seen): void {
  const { kind, startsAt, everyMeters = 0, mostPoints = mostOfPath } = measure
  const [, value] = seen
  if (kind === 'path') extend(notes, seen, everyMeters, mostPoints)
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

function extend(notes: Notes, [at, value]: Seen, everyMeters: number, mostPoints: number): void {
  if (!isPlace(value)) return
  const { counted, points = [], spacing = everyMeters } = notes
  const step = counted && metersBetween(counted, value)
  if (step !== undefined && step < everyMeters) return
  const { latitude, longitude } = value
  notes.meters = (notes.meters ?? 0) + (step ?? 0)
  notes.counted = { latitude, longitude }
  const last = points.at(-1)
  if (last !== undefined && metersBetween(pointOf(last), value) < spacing) return
  points.push([Math.round(at / 1_000), Math.round(latitude * degrees), Math.round(longitude * degrees)])
  const isFull = points.length > mostPoints
  notes.points = isFull ? points.filter((_, nth) => nth % 2 === 0) : points
  notes.spacing = isFull ? 2 * spacing : spacing
}

/** A point as it is kept: in seconds and in 1/100,000 degrees. */
type Point = readonly [second: number, north: number, east: number]
const degrees = 100_000
const pointOf = ([second, north, east]: Point): PathPoint => ({
  at: new Date(second * 1_000),
  latitude: north / degrees,
  longitude: east / degrees,
})

type Result = readonly [value: unknown, isMissing: boolean]
/** The value of a measure, and whether its name is `missing`. */
export function resultOf(measure: Measure, notes: Notes, { start, end }: Bounded, { waits }: Patience): Result {
  const { kind, startsAt } = measure
  const { from, before, after, isPartial = false, least = null, most = null } = notes
  if (kind === 'range') return [{ least, most }, least === null || isPartial]
  const to = after ?? before
  const isOne = to === undefined || to[0] === from?.[0]
  // An older value of the end may not be that of the end.
  const isStale = end !== undefined && after === undefined && (to?.[0] ?? 0) < end - waits
  const isLate = (from?.[0] ?? Infinity) > start + waits
  if (kind === 'growth') {
    // What it stood at before, or at the start long ago, is not what it grew to.
    const isOfStart = to === undefined || to[2] === true || (isStale && notes.sum === 0)
    const isNothing = startsAt === undefined || isPartial ? isOne : isOfStart
    // Sums of decimal fractions have tails.
    const value = isNothing ? null : Math.round((notes.sum ?? 0) * 1e6) / 1e6
    return [value, isNothing || isStale || isPartial || (isLate && startsAt === undefined)]
  }
  const isMissing = isOne || isLate || isStale || isPartial
  if (kind === 'path') return [pathOf(notes), isMissing]
  // One value is that of one end: both would say that nothing changed.
  const [first, last] = isOne && after !== undefined ? [undefined, to] : [from, isOne ? undefined : to]
  return [{ from: first?.[1] ?? null, to: last?.[1] ?? null, fromAt: dateOf(first), toAt: dateOf(last) }, isMissing]
}

const dateOf = (seen: Seen | undefined): Date | null => (seen === undefined ? null : new Date(seen[0]))
/** A shorter way is none. And the position of a parked vehicle jumps by some meters. */
const [leastMeters, jitterMeters] = [0.1, 10]

/** The way that was noted, with the positions of both ends. */
function pathOf(notes: Notes): Path {
  const { from, before, after } = notes
  const whole: Notes = { ...notes, points: [...(notes.points ?? [])], spacing: 0 }
  if (before !== undefined) extend(whole, before, leastMeters, Infinity)
  if (after !== undefined) extend(whole, after, jitterMeters, Infinity)
  const { points = [], meters = 0 } = whole
  const known = new Set([from, before, after].flatMap((seen) => seen?.[0] ?? []))
  return { points: points.map(pointOf), meters: known.size < 2 ? null : Math.round(meters * 10) / 10 }
}
