import { checkOptions, numberBetween, wholeNumber } from '../base/options.ts'
import type { FieldCatalogue } from '../events/fields.ts'
import type { FieldValue, Location } from '../events/values.ts'
import type { Condition } from '../vehicles/edge.ts'
import { isPlace, metersBetween } from './areas.ts'
import { checkConditions, checkField, checkNumber, positionField } from './conditions.ts'

/** What an episode measures: the result of `span`, `growth`, `range` or `path`. */
export interface Measure<Result = unknown> {
  readonly kind: 'span' | 'growth' | 'range' | 'path'
  readonly field: string
  /** Of `growth`. */
  readonly startsAt?: number | undefined
  /** Of `growth`. */
  readonly resetBy?: Condition | undefined
  /** Of `path`. */
  readonly everyMeters?: number
  /** Of `path`. */
  readonly mostPoints?: number
  /** Only for the compiler: the type of the result. */
  readonly result?: Result
}

/** The result of `span`: a field's value at both ends of an episode. */
export interface Span<Value = FieldValue> {
  /** The last value at or before the start that is certain, however old. Otherwise the first one after it. `null`: there was none. */
  readonly from: Value | null
  /** The first value at or after the end. Otherwise the last one since the start. `null`: there was none. */
  readonly to: Value | null
  /** When the vehicle reported `from`, by its clock. */
  readonly fromAt: Date | null
  /** When the vehicle reported `to`, by its clock. */
  readonly toAt: Date | null
}

/** The result of `range`: the smallest and the largest number that was reported from the start to the end, without interruptions. */
export interface Range {
  /** `null`: none was reported. */
  readonly least: number | null
  /** `null`: none was reported. */
  readonly most: number | null
}

/** The result of `path`: where the vehicle went. */
export interface Path {
  /** In order: the position of the start, if it is known, and of the end. */
  readonly points: readonly PathPoint[]
  /** The length of the way in meters. `null`: fewer than two positions are known. */
  readonly meters: number | null
}

/** A position of a {@link Path}. */
export interface PathPoint extends Location {
  /** When the vehicle was there, by its clock, to the second. */
  readonly at: Date
}

/** Options of `growth`. */
export interface GrowthOptions {
  /** What the counter begins with, when no value before the start is known. Default: it counts from the first value that is known. */
  readonly startsAt?: number
  /**
   * The counter begins anew once this is true, for instance `is('DetailedChargeState', 'Disconnected')` for the energy of a charge. Then its
   * next value counts as a whole, also when it is larger than the one before. Without it, only a fall to less than half says so.
   */
  readonly resetBy?: Condition
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
  const isAny = { must: 'must be a condition', accepts: (value: unknown) => typeof value === 'object' }
  checkOptions<GrowthOptions>('growth', options, { startsAt: numberBetween(-1e15, 1e15), resetBy: isAny })
  if (options.resetBy !== undefined) checkConditions('growth', [options.resetBy])
  return { kind: 'growth', field, startsAt: options.startsAt, resetBy: options.resetBy }
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

/** A value and when it was reported, in milliseconds since the epoch. */
export type Seen = readonly [at: number, value: FieldValue]

/** What is noted for one measure of one episode. It is stored as JSON. */
export interface Notes {
  /** The value of the start. */
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
  /** Of `path`: the points as differences of seconds and of 1/100,000 degrees, and the least distance between them. */
  points?: number[]
  spacing?: number
  /** The length up to this position. */
  meters?: number
  counted?: readonly [latitude: number, longitude: number]
}

/** An episode as its measures see it. Times are in milliseconds. */
export interface Bounded {
  readonly start: number
  /** `undefined`: it lasts. */
  readonly end?: number | undefined
  readonly cut?: true | undefined
}

/** How long values of the end may take, and how long the first one of a parked vehicle. In milliseconds. */
export interface Patience {
  readonly waits: number
  readonly corrects: number
}

/** Whether a measure can use a value. */
const fits = ({ kind }: Measure, value: FieldValue): boolean =>
  kind === 'span' || (kind === 'path' ? isPlace(value) : typeof value === 'number')

/** The notes of an episode that starts. `known` is the last value, if it is certain. */
export function begun(measure: Measure, known: Seen | undefined, start: number): Notes {
  const notes: Notes = {}
  if (known === undefined || !fits(measure, known[1])) return notes
  if (measure.kind === 'range') {
    if (known[0] === start) advance(measure, notes, known, false)
    return notes
  }
  notes.from = known
  if (measure.kind === 'growth') notes.last = Number(known[1])
  if (measure.kind === 'path') advance(measure, notes, [start, known[1]], false)
  return notes
}

/** Notes a value after the start. `isReset`: the counter began anew. */
export function note(
  measure: Measure,
  notes: Notes,
  seen: Seen,
  episode: Bounded,
  patience: Patience,
  isReset: boolean,
): void {
  const [at, value] = seen
  if (!fits(measure, value)) return
  // The same number soon after the start is still that of the time before.
  const isAnew = isReset && (value !== notes.last || at > episode.start + patience.waits)
  if (episode.end === undefined) {
    notes.from ??= seen
    notes.before = seen
    advance(measure, notes, seen, isAnew)
  } else if (measure.kind === 'range') {
    if (at === episode.end) advance(measure, notes, seen, false)
  } else {
    if (isOfEnd(notes, seen, episode.end, episode, patience)) {
      notes.from ??= seen
      notes.after ??= seen
    } else notes.held ??= notes.sum ?? 0
    if (measure.kind === 'growth') advance(measure, notes, seen, isAnew)
    notes.latest = seen
  }
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
  if (measure.kind === 'path') advance(measure, notes, latest, false)
}

/** Notes a value that came too late for its place. Where the order of values does not matter, it counts. */
export function noteLate(measure: Measure, notes: Notes, seen: Seen, episode: Bounded, patience: Patience): void {
  const [at, value] = seen
  const { start, end = Infinity } = episode
  if (!fits(measure, value)) return
  if (measure.kind === 'range') {
    if (at >= start && at <= end) advance(measure, notes, seen, false)
  } else if (measure.kind !== 'span') {
    if (at > (notes.from?.[0] ?? start) && at <= end + patience.waits) notes.isPartial = true
  } else if (at >= end) {
    const isFirst = notes.after === undefined || at < notes.after[0]
    if (isFirst && isOfEnd({ ...notes, after: undefined }, seen, end, episode, patience)) notes.after = seen
  } else {
    const { from = [Infinity], before = [-Infinity] } = notes
    if (at <= start ? from[0] > start || from[0] < at : at < from[0]) notes.from = seen
    if (at > start && at > before[0]) notes.before = seen
  }
}

/**
 * Whether a value belongs to the end: for a while any, and then the first one, because a parked vehicle has not moved since. But a number
 * that goes the other way has changed since: the vehicle was charged, or lost charge.
 */
function isOfEnd(
  { from, before, after }: Pick<Notes, 'from' | 'before'> & { readonly after?: Seen | undefined },
  [at, value]: Seen,
  end: number,
  { cut }: Bounded,
  { waits, corrects }: Patience,
): boolean {
  if (cut === true) return false
  if (at <= end + waits) return true
  if (after !== undefined || at > end + corrects) return false
  return before === undefined || (Number(before[1]) - Number(from?.[1])) * (Number(value) - Number(before[1])) >= 0 || typeof value !== 'number' // prettier-ignore
}

function advance({ kind, startsAt, ...measure }: Measure, notes: Notes, [at, value]: Seen, isAnew: boolean): void {
  if (kind === 'path' && isPlace(value)) extend(notes, at, value, measure)
  if (typeof value !== 'number') return
  if (kind === 'range') {
    notes.least = Math.min(notes.least ?? value, value)
    notes.most = Math.max(notes.most ?? value, value)
  } else if (kind === 'growth') {
    const last = notes.last ?? startsAt ?? value
    const before = isAnew ? (startsAt ?? 0) : value < last / 2 ? 0 : last
    notes.sum = (notes.sum ?? 0) + value - before
    notes.last = value
  }
}

const degrees = 100_000

function extend(notes: Notes, at: number, place: Location, measure: Pick<Measure, 'everyMeters' | 'mostPoints'>): void {
  const { everyMeters = 0, mostPoints = mostOfPath } = measure
  const meters = notes.counted && metersBetween(placeOf(notes.counted), place)
  if (meters !== undefined && meters < everyMeters) return
  notes.meters = (notes.meters ?? 0) + (meters ?? 0)
  notes.counted = [place.latitude, place.longitude]
  let { spacing = everyMeters } = notes
  let points = pointsOf(notes)
  const last = points.at(-1)
  if (last !== undefined && metersBetween(last, place) < spacing) return
  points.push({ at: new Date(at), latitude: place.latitude, longitude: place.longitude })
  for (; points.length > mostPoints; notes.spacing = spacing) {
    spacing *= 2
    points = thinned(points, spacing)
  }
  notes.points = written(points)
}

/** Without points that are nearer than this to the one before. The first and the last one stay. */
function thinned(points: readonly PathPoint[], spacing: number): PathPoint[] {
  const kept: PathPoint[] = []
  for (const [index, point] of points.entries()) {
    const last = kept.at(-1)
    if (last === undefined || index === points.length - 1 || metersBetween(last, point) >= spacing) kept.push(point)
  }
  return kept
}

const placeOf = ([latitude, longitude]: readonly [number, number]): Location => ({ latitude, longitude })

function pointsOf({ points = [] }: Notes): PathPoint[] {
  const read: PathPoint[] = []
  let [second, north, east] = [0, 0, 0]
  for (let index = 0; index < points.length; index += 3) {
    second += points[index] ?? 0
    north += points[index + 1] ?? 0
    east += points[index + 2] ?? 0
    read.push({ at: new Date(second * 1_000), latitude: north / degrees, longitude: east / degrees })
  }
  return read
}

function written(points: readonly PathPoint[]): number[] {
  let before = [0, 0, 0]
  return points.flatMap(({ at, latitude, longitude }) => {
    const [second = 0, north = 0, east = 0] = before
    const next = [Math.round(at.getTime() / 1_000), Math.round(latitude * degrees), Math.round(longitude * degrees)]
    before = next
    return [(next[0] ?? 0) - second, (next[1] ?? 0) - north, (next[2] ?? 0) - east]
  })
}

/** Whether nothing of the end is awaited. An episode is told without the position after it. */
export const isComplete = ({ kind }: Measure, { after }: Notes, isToTell: boolean): boolean =>
  after !== undefined || kind === 'range' || (isToTell && kind === 'path')

/** The value of a measure, and whether its name is `missing`. */
export function resultOf(
  measure: Measure,
  notes: Notes,
  { start, end }: Bounded,
  { waits }: Patience,
): { readonly value: unknown; readonly isMissing: boolean; readonly mark?: unknown } {
  const { from, before, after } = notes
  const { kind, startsAt } = measure
  if (kind === 'range') {
    const { least = null, most = null } = notes
    return { value: { least, most }, isMissing: least === null || notes.isPartial === true }
  }
  const to = after ?? before
  const isOne = to === undefined || to[0] === from?.[0]
  // An older value of the end may not be that of the end.
  const isStale = end !== undefined && after === undefined && (to?.[0] ?? 0) < end - waits
  const isLate = (from?.[0] ?? Infinity) > start + waits
  const isUnknown = isStale || notes.isPartial === true
  if (kind === 'growth') {
    const isNothing = to === undefined || (isOne && startsAt === undefined)
    const value = isNothing ? null : rounded(notes.held ?? notes.sum ?? 0)
    return { value, isMissing: isNothing || isUnknown || (isLate && startsAt === undefined) }
  }
  const isMissing = isOne || isLate || isUnknown
  if (kind === 'span') return { value: spanOf(from, to), isMissing }
  const value = pathOf(notes)
  const { points, meters } = value
  return { value, isMissing, mark: [meters, points.length, points[0], points.at(-1)] }
}

/** Sums of decimal fractions have tails. */
const rounded = (sum: number): number => Math.round(sum * 1e6) / 1e6

function spanOf(from: Seen | undefined, to: Seen | undefined): Span {
  return {
    from: from?.[1] ?? null,
    to: to?.[1] ?? null,
    fromAt: from === undefined ? null : new Date(from[0]),
    toAt: to === undefined ? null : new Date(to[0]),
  }
}

/** A parked vehicle's position jumps by some meters. */
const jitterMeters = 10

function pathOf(notes: Notes): Path {
  const { before, after, counted } = notes
  const points = pointsOf(notes)
  let meters = notes.meters ?? 0
  let last = counted && placeOf(counted)
  for (const [seen, least] of [
    [before, 0],
    [after, jitterMeters],
  ] as const) {
    // prettier-ignore
    if (seen === undefined || !isPlace(seen[1])) continue
    const { latitude, longitude } = seen[1]
    const more = last === undefined ? Infinity : metersBetween(last, seen[1])
    if (more <= least) continue
    if (last !== undefined) meters += more
    last = { latitude, longitude }
    points.push({ at: new Date(Math.round(seen[0] / 1_000) * 1_000), latitude, longitude })
  }
  const known = new Set([notes.from, before, after].flatMap((seen) => seen?.[0] ?? []))
  return { points, meters: known.size < 2 ? null : Math.round(meters * 10) / 10 }
}
