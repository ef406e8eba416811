import { checkOptions, numberBetween, wholeNumber } from '../base/options.ts'
import type { FieldCatalogue } from '../events/fields.ts'
import type { FieldValue, Location } from '../events/values.ts'
import { isPlace, metersBetween } from './areas.ts'
import { checkField, checkNumber, positionField } from './conditions.ts'

/** What an episode measures: the result of `span`, `growth`, `range` or `path`. */
export interface Measure<Result = unknown> extends GrowthOptions, Pick<PathOptions, 'everyMeters' | 'mostPoints'> {
  readonly kind: 'span' | 'growth' | 'range' | 'path'
  readonly field: string
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

/** Options of `growth`. */
export interface GrowthOptions {
  /**
   * What the counter begins with: when no value before the start is known, and after the episode's `splits` was true. Then its next value counts
   * from here, also when it is larger than the one before. Default: it counts from the first value that is known, and goes on over `splits`.
   */
  readonly startsAt?: number | undefined
}

/** Options of `path`. */
export interface PathOptions<Field extends string = string> {
  /** A position counts when it is this far from the last one that counted, in meters. From 1 to 100,000. Default 25. */
  readonly everyMeters?: number
  /** The most points, from 2 to 1,000. When there are more, their distance is doubled. Default 250. */
  readonly mostPoints?: number
  /** The field of the position. Default `'Location'`. */
  readonly field?: Field
}

export function spanMeasure(field: string): Measure {
  checkField('span', field)
  return { kind: 'span', field }
}

export function growthMeasure(catalogue: FieldCatalogue, field: string, options: GrowthOptions = {}): Measure {
  checkNumber('growth', catalogue, field)
  checkOptions<GrowthOptions>('growth', options, { startsAt: numberBetween(-1e15, 1e15) })
  return { kind: 'growth', field, startsAt: options.startsAt }
}

export function rangeMeasure(catalogue: FieldCatalogue, field: string): Measure {
  checkNumber('range', catalogue, field)
  return { kind: 'range', field }
}

export function pathMeasure(options: PathOptions = {}): Measure {
  checkOptions<PathOptions>('path', options, {
    everyMeters: numberBetween(1, 100_000),
    mostPoints: wholeNumber(2, mostOfPath),
    field: { must: 'must be the name of a field', accepts: (value) => typeof value === 'string' && value !== '' },
  })
  const { everyMeters = 25, mostPoints = 250, field = positionField } = options
  return { kind: 'path', field, everyMeters, mostPoints }
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
  /** Of `growth`: the sum, and that without values that came too long after the end. */
  sum?: number
  held?: number
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

/** Notes a value after the start. `isAnew`: the counter started again before it. */
export function note(
  measure: Measure,
  notes: Notes,
  seen: Seen,
  episode: Bounded,
  patience: Patience,
  isAnew: boolean,
): void {
  const [at, value] = seen
  const { end } = episode
  const { kind, startsAt } = measure
  if (!fits(measure, value) || (kind === 'range' && end !== undefined && at !== end)) return
  const isOfIt = end === undefined || isOfEnd(notes, seen, end, episode, patience)
  if (isOfIt) notes.from ??= seen
  else notes.held ??= notes.sum ?? 0
  if (end === undefined) notes.before = seen
  else notes.latest = seen
  if (end !== undefined && isOfIt) notes.after ??= seen
  if (isAnew && startsAt !== undefined) notes.last = startsAt
  if (end === undefined || kind !== 'path') advance(measure, notes, seen)
}

/** An interruption is over, and the episode goes on. */
export function resumed(measure: Measure, notes: Notes): void {
  const { latest } = notes
  delete notes.after
  delete notes.held
  delete notes.latest
  if (latest === undefined) return
  notes.from ??= latest
  notes.before = latest
  if (measure.kind === 'path') advance(measure, notes, latest)
}

/** A value came too late for its place. Where the order of values does not matter, it counts. Otherwise it may be the one that is needed. */
export function noteLate(
  measure: Measure,
  notes: Notes,
  seen: Seen,
  { start, end = Infinity }: Bounded,
  { waits }: Patience,
): void {
  const [at, value] = seen
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
  { from, before, latest }: Notes,
  [at, value]: Seen,
  end: number,
  { cut }: Bounded,
  { waits, corrects }: Patience,
): boolean {
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

function extend(
  notes: Notes,
  at: number,
  place: Location,
  { everyMeters = 0, mostPoints = mostOfPath }: Measure,
): void {
  const step = notes.counted && metersBetween(notes.counted, place)
  if (step !== undefined && step < everyMeters) return
  notes.meters = (notes.meters ?? 0) + (step ?? 0)
  notes.counted = { latitude: place.latitude, longitude: place.longitude }
  const { points = [] } = notes
  const last = points.at(-1)
  if (last !== undefined && metersBetween(pointOf(last), place) < (notes.spacing ?? everyMeters)) return
  points.push([Math.round(at / 1_000), Math.round(place.latitude * degrees), Math.round(place.longitude * degrees)])
  notes.points = points
  while (notes.points.length > mostPoints)
    notes.points = thinned(notes.points, (notes.spacing = 2 * (notes.spacing ?? everyMeters)))
}

/** A point as it is kept: in seconds and in 1/100,000 degrees. */
type Point = readonly [second: number, north: number, east: number]
const degrees = 100_000
const pointOf = ([second, north, east]: Point): PathPoint => ({
  at: new Date(second * 1_000),
  latitude: north / degrees,
  longitude: east / degrees,
})

/** Without points that are nearer than this to the one before. The first and the last one stay. */
function thinned(points: readonly Point[], spacing: number): Point[] {
  let last: Point | undefined
  return points.filter((point, index) => {
    if (last && index < points.length - 1 && metersBetween(pointOf(last), pointOf(point)) < spacing) return false
    last = point
    return true
  })
}

/** Whether nothing of the end is awaited. An episode is told without the position after it. */
export const isComplete = ({ kind }: Measure, { after }: Notes, isToTell: boolean): boolean =>
  after !== undefined || kind === 'range' || (isToTell && kind === 'path')

/** The value of a measure, and whether its name is `missing`. */
export function resultOf(
  { kind, startsAt }: Measure,
  notes: Notes,
  { start, end }: Bounded,
  { waits }: Patience,
): { readonly value: unknown; readonly isMissing: boolean; readonly mark?: unknown } {
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
    const value = isNothing ? null : Math.round((notes.held ?? notes.sum ?? 0) * 1e6) / 1e6
    return { value, isMissing: isNothing || isStale || isPartial || (isLate && startsAt === undefined) }
  }
  const isMissing = isOne || isLate || isStale || isPartial
  if (kind === 'span') {
    // One value is that of one end: both would say that nothing changed.
    const [first, last] = isOne && after !== undefined ? [undefined, to] : [from, isOne ? undefined : to]
    const value: Span = { from: first?.[1] ?? null, to: last?.[1] ?? null, fromAt: dateOf(first), toAt: dateOf(last) }
    return { value, isMissing, mark: [first, last] }
  }
  const value = pathOf(notes)
  const { points, meters } = value
  return { value, isMissing, mark: [meters, points.length, points[0], points.at(-1)] }
}

const dateOf = (seen: Seen | undefined): Date | null => (seen === undefined ? null : new Date(seen[0]))

/** A parked vehicle's position jumps by some meters. */
const jitterMeters = 10

function pathOf(notes: Notes): Path {
  const { from, before, after } = notes
  const points = (notes.points ?? []).map(pointOf)
  let { meters = 0, counted: last } = notes
  const add = (seen: Seen | undefined, least: number): void => {
    if (seen === undefined || !isPlace(seen[1])) return
    const { latitude, longitude } = seen[1]
    const more = last && metersBetween(last, seen[1])
    if (more !== undefined && more <= least) return
    meters += more ?? 0
    last = seen[1]
    points.push({ at: new Date(Math.round(seen[0] / 1_000) * 1_000), latitude, longitude })
  }
  add(before, 0)
  add(after, jitterMeters)
  const known = new Set([from, before, after].flatMap((seen) => seen?.[0] ?? []))
  return { points, meters: known.size < 2 ? null : Math.round(meters * 10) / 10 }
}
