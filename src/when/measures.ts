import type { Law } from '../events/laws.ts'
import type { FieldValue, Location } from '../events/values.ts'
import { canFollow } from '../vehicles/belief.ts'
import { isPlace, metersBetween } from '../vehicles/places.ts'
import { type Entry, type Line, mostIn, totalOf } from './ledger.ts'

/** What an episode measures: the result of `span`, `growth`, `energy` and the others. */
export interface Measure<Result = unknown> {
  readonly kind: 'span' | 'growth' | 'energy' | 'curve' | 'range' | 'average' | 'last' | 'path'
  readonly field: string
  /** The second counter of `energy`, and the fields whose values a `path` has at its points. */
  readonly others?: readonly string[]
  readonly startsAt?: number | undefined
  readonly everyMinutes?: number
  readonly everyMeters?: number
  readonly mostPoints?: number
  /** Only for the compiler: the type of the result. */
  readonly result?: Result
}

/** The result of `span`: a field's value at both ends of an episode, and when the vehicle reported it, by its clock. */
export interface Span<Value = FieldValue> {
  /** The last certain value between the end of the episode before and the start. Otherwise the first one after it. `null`: there was none before the end. */
  readonly from: Value | null
  /** The first value at or after the end. Otherwise the last one since the start. `null`: there was none, or only the value of `from`. */
  readonly to: Value | null
  readonly fromAt: Date | null
  readonly toAt: Date | null
  /** How much a counter grew before `from` that is in no earlier episode; 0 for other fields. The sum of `to - from + unseen` is all that it grew. */
  readonly unseen: number
}

/** The result of `energy`: what a charge took, in kWh. */
export interface Energy {
  /** What the socket gave with AC, and what the battery got with DC. `null`: not known. */
  readonly kwh: number | null
  /** Which of both it is. `null`: nothing moved. */
  readonly by: 'socket' | 'battery' | null
  /** What was charged before that is in no earlier episode. */
  readonly unseen: number
}

/** The result of `curve`: the growth of a counter by quarter hours, or what you ask for. */
export interface Curve {
  /** As asked for. Doubled as often as it takes to have at most 100 parts. */
  readonly everyMinutes: number
  /** In order. Their sum is the growth. */
  readonly parts: readonly CurvePart[]
}

/** The growth in a part of the time that begins then: with 15 minutes at :00, :15, :30 and :45 of the hour. */
export interface CurvePart {
  readonly at: Date
  readonly growth: number
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
  /** The last values of the fields that `with` names: numbers, booleans, and texts of at most 20 characters. */
  readonly with?: Readonly<Record<string, FieldValue>>
}

export const mostOfPath = 1_000
const mostParts = 100
/** An older value may not belong to an end, and a later first value not to a start. */
export const freshMs = 120_000

/** A counter that is not heard for so long while it runs may have begun again. */
const longSilentMs = 600_000

/** What is noted of one field for a measure. */
export interface Gauge {
  /** Notes are kept for the same measure of the same field. */
  readonly key: string
  readonly kind: Exclude<Measure['kind'], 'energy'>
  readonly field: string
  readonly others: readonly string[]
  readonly startsAt: number | undefined
  readonly everyMs: number
  readonly everyMeters: number
  readonly mostPoints: number
}

export function gaugesOf(name: string, measure: Measure): readonly Gauge[] {
  const { kind, field, others = [], startsAt, everyMinutes = 15, everyMeters = 0, mostPoints = mostOfPath } = measure
  const key = [name, ...Object.values(measure)].join(' ').trim()
  const rest = { everyMs: everyMinutes * 60_000, everyMeters, mostPoints }
  if (kind !== 'energy') return [{ key, kind, field, others, startsAt, ...rest }]
  return [field, ...others].map((each): Gauge => ({
    key: `${key} ${each}`,
    kind: 'growth',
    field: each,
    others: [],
    startsAt: 0,
    ...rest,
  }))
}

/** What is noted for one gauge of one episode. It is stored as JSON. */
export interface Notes {
  /** The last certain value at or before the start; for a growth, before it. */
  from?: Entry
  /** One from before the end of the episode before. */
  old?: Entry
  /** The first one after the start. */
  first?: Entry
  /** The newest one since the start, before the end. */
  before?: Entry
  /** The first one at or after the end. */
  after?: Entry
  /** The newest one in an interruption or after the end. If the episode goes on, it becomes `before`. */
  latest?: Entry
  /** The measure is newer than the episode, or a value came too late for its place, or what a counter stood at is not known. */
  isPartial?: true
  /** When the newest value since the start came that is left out. */
  oddAt?: number
  /** Nobody can tell how much a counter grew, or which way a vehicle took. */
  isUnsure?: true
  /** A counter of energy may have begun again while it was not heard. */
  isBroken?: true
  /** For a growth: the place on the line that it counts from, and whether a new number came. */
  base?: number
  isNew?: true
  /** The counter began again after the end, so its later values do not belong to the end. */
  isRenewed?: true
  /** For a range. */
  least?: number
  most?: number
  /** For an average: the sum of values by milliseconds. */
  sum?: number
  /** For an average, and for a counter of energy: how long the episode lasted up to the last value, without interruptions. */
  upTo?: number
  /** For a curve: the first of its parts, and their length in milliseconds. */
  parts?: number[]
  part?: number
  partMs?: number
  /** For a path: its points, the least distance between them, and the length up to the last position that counted. */
  points?: Point[]
  /** The values of its fields at its newest position. */
  others?: FieldValue[]
  spacing?: number
  meters?: number
  counted?: Location
}

/** An episode as its measures see it. Without an `end`, it lasts. Times are in milliseconds. */
export interface Bounded {
  readonly start: number
  readonly end?: number
  readonly cut?: true
  readonly gap?: true
  readonly before?: number | undefined
  readonly staleAt?: number
  /** It goes on from another one. */
  readonly handed?: true
  readonly paused: number
  readonly pauses?: readonly (readonly [from: number, to: number])[]
}

/** What measures need beside the values of their field. */
export interface Around {
  /** How long values of the end may take, and how long the first one of a parked vehicle. In milliseconds. */
  readonly waits: number
  readonly corrects: number
  readonly law: Law | undefined
  /** The last value of another field at a time. */
  readonly valueAt: (field: string, at: number) => FieldValue | undefined
}

const isGrowth = ({ kind }: Gauge): boolean => kind === 'growth' || kind === 'curve'

function fits({ kind }: Gauge, value: FieldValue): boolean {
  if (kind === 'path') return isPlace(value)
  return kind === 'span' || kind === 'last' || typeof value === 'number'
}

/** The notes of an episode that starts. */
export function begun(gauge: Gauge, line: Line, episode: Bounded, around: Around): Notes {
  const { start, before = -Infinity, staleAt = 0 } = episode
  const notes: Notes = {}
  if (gauge.kind === 'range') return notes
  const isBefore = ([at]: Entry): boolean => (isGrowth(gauge) ? at < start : at <= start)
  const known = line.entries.findLast(isBefore) ?? line.before
  const isCertain = known !== undefined && isBefore(known) && (known[0] > staleAt || known[0] === start)
  if (!isCertain || !fits(gauge, known[1])) {
    // What a counter stood at is not known.
    if (isGrowth(gauge) && episode.gap === true && gauge.startsAt !== undefined) notes.isPartial = true
    return notes
  }
  if (isGrowth(gauge)) return { from: known, base: totalOf(known) }
  if (known[0] < before) return { old: known }
  notes.from = known
  if (gauge.kind === 'span' && isUnsureIn(line, before, start)) notes.isUnsure = true
  if (gauge.kind === 'path') extend(gauge, notes, [start, known[1]], around)
  if (gauge.kind === 'average') Object.assign(notes, { sum: 0, upTo: 0 })
  return notes
}

/** Whether nobody knows how much a counter grew between two episodes. */
const isUnsureIn = ({ entries, unsureAt }: Line, after: number, until: number): boolean =>
  [[unsureAt, 0, 0, 'jump'] as const, ...entries].some(
    ([at, , , mark]) => at > after && at <= until && (mark === 'jump' || mark === 'unsure'),
  )

/** Notes a value of the field, in the order of time. */
export function note(gauge: Gauge, notes: Notes, entry: Entry, episode: Bounded, around: Around): void {
  const [at, value] = entry
  const { start, end, cut } = episode
  if (!fits(gauge, value)) return
  if (at < start || (at === start && !isGrowth(gauge))) return noteEarly(gauge, notes, entry, episode)
  const isAfter = end !== undefined && (at > end || (at === end && cut !== true))
  if (isAfter) return noteAfter(gauge, notes, entry, episode, around)
  const isPaused = episode.pauses?.some(([from, to]) => at > from && at < to) === true
  markUnsure(gauge, notes, entry, around)
  if (isPaused && !isGrowth(gauge)) notes.latest = entry
  else advance(gauge, notes, entry, episode, around)
  if (isNewNumber(gauge, entry)) notes.first ??= entry
  if (at >= (notes.before?.[0] ?? 0)) notes.before = entry
  noteOthers(gauge, notes, at, around)
}

/** Notes that values of the field are left out. The last of them may have been the value at the end. */
export function noteOdd(notes: Notes, odd: readonly number[], { start, end = Infinity }: Bounded, waits: number): void {
  const own = odd.filter((at) => at > start && at <= end + waits)
  if (own.length > 0) notes.oddAt = Math.max(...own, notes.oddAt ?? 0)
}

/** A value at the start, or an older value that came after the start. */
function noteEarly(gauge: Gauge, notes: Notes, entry: Entry, episode: Bounded): void {
  const [at, value] = entry
  if (gauge.kind === 'range') {
    if (at === episode.start) measureRange(notes, Number(value))
    return
  }
  if (at <= (notes.from?.[0] ?? notes.old?.[0] ?? -Infinity)) return
  if (at < (episode.before ?? 0) && !isGrowth(gauge)) notes.old = entry
  else notes.from = entry
  if (isGrowth(gauge) && notes.isNew === undefined) notes.base = totalOf(entry)
}

function noteAfter(gauge: Gauge, notes: Notes, entry: Entry, episode: Bounded, around: Around): void {
  const { end = Infinity } = episode
  if (gauge.kind === 'range') {
    if (entry[0] === end) measureRange(notes, Number(entry[1]))
    return
  }
  if (isGrowth(gauge) && entry[3] === 'reset' && notes.isNew === true) notes.isRenewed = true
  const isOf = notes.after === undefined && isOfEnd(gauge, notes, entry, episode, around)
  notes.latest = entry
  if (!isOf) return
  if (isGrowth(gauge)) count(gauge, notes, entry, episode, around)
  markUnsure(gauge, notes, entry, around)
  if (isNewNumber(gauge, entry)) notes.first ??= entry
  notes.after = entry
  noteOthers(gauge, notes, entry[0], around)
}

/** The end of a path is no point of it before it is asked for. */
function noteOthers({ others, kind }: Gauge, notes: Notes, at: number, { valueAt }: Around): void {
  if (kind === 'path' && others.length > 0) notes.others = others.map((field) => shortOf(valueAt(field, at)))
}

/** A counter that says the number from before the plug says nothing new. */
const isNewNumber = (gauge: Gauge, [, , , mark]: Entry): boolean => !isGrowth(gauge) || mark !== 'old'

/** Nobody knows how far an odometer went that was replaced. */
function markUnsure({ kind }: Gauge, notes: Notes, [, , , mark]: Entry, { law }: Around): void {
  if (kind === 'span' && law?.kind === 'counter' && (mark === 'jump' || mark === 'unsure')) notes.isUnsure = true
}

/**
 * Whether a value counts as the value at the end. For a while any value does, and later only the first one: a parked vehicle has not moved. A number that
 * goes the other way does not: the vehicle was probably charged. After an end by silence, the next value of a counter counts: nobody knows when it ended.
 */
function isOfEnd(
  gauge: Gauge,
  notes: Notes,
  entry: Entry,
  episode: Bounded,
  { waits, corrects, law }: Around,
): boolean {
  const { from, first, before, latest } = notes
  const [at, value] = entry
  const { end = Infinity, cut } = episode
  if (notes.isRenewed === true) return false
  if (cut === true) return isGrowth(gauge)
  const isSoon = at <= end + waits
  if (!isSoon && (latest !== undefined || at > end + corrects)) return false
  if (law?.kind === 'counter' || before === undefined || typeof value !== 'number') return true
  const change = value - Number(before[1])
  const isBack = (Number(before[1]) - Number((from ?? first)?.[1])) * change < 0
  return !isBack || (isSoon && Math.abs(change) <= 2)
}

/** An interruption is over, and the episode goes on. */
export function resumed(gauge: Gauge, notes: Notes, episode: Bounded, around: Around): void {
  const { latest, after } = notes
  delete notes.after
  delete notes.isRenewed
  if (latest === undefined) return
  if (isGrowth(gauge) && latest !== after) count(gauge, notes, latest, episode, around)
  if (isNewNumber(gauge, latest)) notes.first ??= latest
  notes.before = latest
}

/** A value came too late for its place. Where the order of values does not matter, it counts. Otherwise it may be the value that was needed. */
export function noteLate(gauge: Gauge, notes: Notes, entry: Entry, episode: Bounded, { waits }: Around): void {
  const [at, value] = entry
  const { start, end = at } = episode
  if (gauge.kind === 'range') {
    if (fits(gauge, value) && at >= start && at <= end) measureRange(notes, Number(value))
    return
  }
  const { from = [Infinity], before = from } = notes
  const [newest] = gauge.kind === 'span' ? before : from
  if (fits(gauge, value) && at <= end + waits && (from[0] > start || at > newest)) notes.isPartial = true
}

function advance(gauge: Gauge, notes: Notes, entry: Entry, episode: Bounded, around: Around): void {
  const { kind } = gauge
  const value = Number(entry[1])
  if (kind === 'range') measureRange(notes, value)
  else if (isGrowth(gauge)) count(gauge, notes, entry, episode, around)
  else if (kind === 'average') weigh(notes, entry[0], episode)
  else if (kind === 'path') {
    if (notes.first === undefined) leaveStart(notes, entry, episode, around)
    // Where it stood while it was interrupted.
    if (notes.latest !== undefined) extend(gauge, notes, notes.latest, around)
    extend(gauge, notes, entry, around)
  }
  delete notes.latest
}

/** It moved before the start, so the way begins where it was seen first. */
function leaveStart(notes: Notes, [at, value, , mark]: Entry, { start, handed }: Bounded, { law }: Around): void {
  const { from } = notes
  if (
    handed === true ||
    from === undefined ||
    law === undefined ||
    mark === 'loose' ||
    canFollow(law, [start, from[1]], [at, value])
  )
    return
  for (const name of ['from', 'points', 'meters', 'counted'] as const) delete notes[name]
}

function measureRange(notes: Notes, value: number): void {
  notes.least = Math.min(notes.least ?? value, value)
  notes.most = Math.max(notes.most ?? value, value)
}

/** How long an episode lasted up to a time, without interruptions. */
function activeMs({ start, end = Infinity, paused, pauses = [] }: Bounded, at: number): number {
  const among = pauses.reduce((sum, [from, to]) => sum + to - from, 0)
  const until = Math.min(at, end)
  const isOver = pauses.reduce((sum, [from, to]) => sum + Math.max(0, Math.min(to, until) - from), 0)
  return until - start - (paused - among) - isOver
}

/** Each value counts until the next one. */
function weigh(notes: Notes, at: number, episode: Bounded): void {
  const last = notes.before ?? notes.from
  const now = activeMs(episode, at)
  if (last !== undefined) notes.sum = (notes.sum ?? 0) + Number(last[1]) * (now - (notes.upTo ?? now))
  notes.upTo = now
}

/** What a counter counts from, and how it grows. */
function count(gauge: Gauge, notes: Notes, entry: Entry, episode: Bounded, { law }: Around): void {
  const [at, value, , mark] = entry
  const total = totalOf(entry)
  if (mark === 'old') return
  const { start } = episode
  const ms = at - start
  const isFirst = notes.isNew === undefined
  notes.isNew = true
  // A counter that was carried over: what it said before belongs to the charge before.
  const isRenewed = mark === 'reset' && ms <= freshMs
  const isTimed = law !== undefined && mark !== 'loose'
  if (isRenewed || notes.base === undefined) {
    const grown = Number(value) - (gauge.startsAt ?? Number(value))
    const isKnown = isRenewed || (notes.isPartial === undefined && (!isTimed || grown <= mostIn(law, ms)))
    notes.base = isKnown ? total - grown : total
    if (isRenewed) delete notes.isUnsure
    else if (!isKnown) notes.isUnsure = true
    delete notes.parts
  } else {
    const isFar = isFirst && isTimed && total - notes.base > mostIn(law, ms)
    // It grew, and began again: its first number may belong to the charge before.
    const isLate = mark === 'reset' && ms <= 5 * freshMs && total - Number(value) > notes.base + 0.01
    if (mark === 'jump' || mark === 'unsure' || isFar || isLate) notes.isUnsure = true
    if (law?.restarts === true && isBroken(notes, entry, episode)) notes.isBroken = true
  }
  if (law?.restarts === true) notes.upTo = activeMs(episode, at)
  if (gauge.kind === 'curve') spread(gauge, notes, entry, episode)
}

/**
 * Whether a counter may have been unplugged and begun again while it was not heard: it began again, or was silent for long and grew less than before. What
 * it gave until then is lost.
 */
function isBroken({ base, before, upTo: ms = 0 }: Notes, entry: Entry, episode: Bounded): boolean {
  if (base === undefined || before === undefined) return false
  const silentMs = activeMs(episode, entry[0]) - ms
  const expected = ms > 0 ? ((totalOf(before) - base) * silentMs) / ms : 0
  const isLess = entry[3] === 'jump' && Number(entry[1]) < Number(before[1])
  if (isLess || entry[3] === 'reset') return expected > leastUnseenKwh
  const grown = totalOf(entry) - totalOf(before)
  // A charger gives less and less, so its first two minutes say little of the next ones.
  const slack = ms < freshMs ? expected / 2 : expected / 5
  return silentMs > longSilentMs && expected - grown > leastUnseenKwh + slack
}

/** Adds what a counter grew since the value before to the parts of a curve, in a straight line. */
function spread(gauge: Gauge, notes: Notes, entry: Entry, { start, end = Infinity }: Bounded): void {
  const [at, total] = [entry[0], totalOf(entry)]
  const parts = (notes.parts ??= [])
  const known = parts.reduce((sum, one) => sum + one, notes.base ?? total)
  const from = Math.max(start, notes.before?.[0] ?? 0)
  const to = Math.max(from + 1, Math.min(at, end))
  const growth = total - known
  notes.partMs ??= gauge.everyMs
  notes.part ??= Math.floor(start / notes.partMs)
  while (Math.floor((to - 1) / notes.partMs) - notes.part >= mostParts) {
    notes.partMs *= 2
    notes.part = Math.floor(start / notes.partMs)
    const isOdd = Math.floor(start / (notes.partMs / 2)) % 2
    const wider: number[] = []
    for (const [nth, one] of parts.entries()) wider[(nth + isOdd) >> 1] = (wider[(nth + isOdd) >> 1] ?? 0) + one
    parts.splice(0, parts.length, ...wider)
  }
  for (let begin = from; begin < to;) {
    const nth = Math.floor(begin / notes.partMs)
    const until = Math.min(to, (nth + 1) * notes.partMs)
    const index = nth - notes.part
    while (parts.length <= index) parts.push(0)
    parts[index] = (parts[index] ?? 0) + (growth * (until - begin)) / (to - from)
    begin = until
  }
  // Nobody knows when in so long a time it grew.
  if (growth > 0 && to - from > 2 * notes.partMs) notes.isUnsure = true
}

function extend(gauge: Gauge, notes: Notes, [at, value, , mark]: Entry, { valueAt }: Pick<Around, 'valueAt'>): void {
  if (!isPlace(value)) return
  const { everyMeters, mostPoints } = gauge
  const { counted, points = [], spacing = everyMeters } = notes
  const step = counted && metersBetween(counted, value)
  if (step !== undefined && step < everyMeters) return
  const { latitude, longitude } = value
  // The way of a jump is not known.
  if (mark === 'jump' && step !== undefined) notes.isUnsure = true
  notes.meters = (notes.meters ?? 0) + (mark === 'jump' ? 0 : (step ?? 0))
  notes.counted = { latitude, longitude }
  const last = points.at(-1)
  if (last !== undefined && metersBetween(placeOf(last), value) < spacing) return
  const others = gauge.others.map((field) => shortOf(valueAt(field, at)))
  points.push([Math.round(at / 1_000), Math.round(latitude * degrees), Math.round(longitude * degrees), ...others])
  const isFull = points.length > mostPoints
  notes.points = isFull ? points.filter((_, nth) => nth % 2 === 0) : points
  notes.spacing = isFull ? 2 * spacing : spacing
}

const shortOf = (value: FieldValue | undefined): FieldValue =>
  typeof value === 'number' || typeof value === 'boolean' || (typeof value === 'string' && value.length <= 20)
    ? value
    : null

/** A point as it is kept: in seconds and in 1/100,000 degrees. */
type Point = readonly [second: number, north: number, east: number, ...others: FieldValue[]]
const degrees = 100_000
const placeOf = ([, north, east]: Point): Location => ({ latitude: north / degrees, longitude: east / degrees })

/** A result, and whether its name is `missing`. */
type Result = readonly [value: unknown, isMissing: boolean]

/** The notes of a gauge at the end, and how far its counter is in earlier episodes. */
export interface Measured {
  readonly gauge: Gauge
  readonly notes: Notes
  readonly law: Law | undefined
  readonly counted: number | undefined
}

/** Whether a charge probably took more between the last value and the end. What a trip drove in that time is in the next value of the odometer. */
function goesOn({ gauge, notes }: Measured, to: Entry | undefined, { start, end = start }: Bounded): boolean {
  const { base } = notes
  if (!isGrowth(gauge) || to === undefined || base === undefined || to[0] <= start) return false
  return ((totalOf(to) - base) * (end - to[0])) / (to[0] - start) > leastUnseenKwh
}

/** Both ends of a measure, and whether one of them may be another one. */
function endsOf(of: Measured, episode: Bounded) {
  const { notes, law } = of
  const { start, end, handed } = episode
  const { old, first, before, after } = notes
  const to = after ?? before ?? (notes.from?.[0] === start ? notes.from : undefined)
  let { from } = notes
  const isAlone = first === undefined || first[0] === to?.[0]
  // It went on before the start: the first value after the start is the value at the start.
  if (
    handed !== true &&
    from !== undefined &&
    first !== undefined &&
    !isAlone &&
    law !== undefined &&
    first[3] !== 'loose'
  ) {
    const isFar =
      law.kind === 'counter'
        ? totalOf(first) - totalOf(from) > mostIn(law, first[0] - start)
        : !canFollow(law, [start, from[1]], [first[0], first[1]])
    if (isFar) from = first
  }
  const isOld = from === undefined && old !== undefined && isAlone
  from ??= isOld ? old : first
  const isOne = to === undefined || to[0] === from?.[0]
  // A last value this old may differ from the value at the end.
  const least = Math.max(Number(end) - freshMs, notes.oddAt ?? 0)
  const isStale = end !== undefined && after === undefined && ((to?.[0] ?? 0) < least || goesOn(of, to, episode))
  const isLate = (from?.[0] ?? Infinity) > start + freshMs
  // The vehicle may have been charged since.
  const isGuess =
    after !== undefined &&
    before === undefined &&
    law?.kind !== 'counter' &&
    !isText(after[1]) &&
    after[0] > (end ?? 0) + freshMs
  const isDoubtful =
    isOne || isLate || isStale || isOld || isGuess || notes.isPartial === true || notes.isUnsure === true
  return { from, to, isOne, isStale, isLate, isDoubtful }
}

const isText = (value: FieldValue): boolean => typeof value !== 'number' && !isPlace(value)
/** Sums of decimal fractions have tails. */
const rounded = (value: number): number => Math.round(value * 1e6) / 1e6
/** A smaller growth that no episode saw is not worth a doubt. */
const leastUnseen = 0.2
const leastUnseenKwh = 0.5

/** How far the counter of a gauge is in episodes, after this one. */
export function countedBy(of: Measured, episode: Bounded): number | undefined {
  const { gauge, notes, law, counted = 0 } = of
  if (law?.kind !== 'counter') return of.counted
  if (isGrowth(gauge)) {
    const to = notes.after ?? notes.before
    const at = to === undefined ? notes.base : totalOf(to)
    return at === undefined ? of.counted : Math.max(counted, at)
  }
  const { from, to } = endsOf(of, episode)
  const last = to ?? from
  return last === undefined ? of.counted : Math.max(counted, totalOf(last))
}

function spanOf(of: Measured, episode: Bounded): Result {
  const { from, to, isOne, isDoubtful } = endsOf(of, episode)
  const { notes, law, counted } = of
  const isCounter = law?.kind === 'counter'
  // One value stands for one end only: at both ends it would say that nothing changed.
  const [first, last] = isOne && notes.after !== undefined ? [undefined, to] : [from, isOne ? undefined : to]
  const seen = first ?? last
  const unseen =
    !isCounter || counted === undefined || seen === undefined ? 0 : rounded(Math.max(0, totalOf(seen) - counted))
  let value = first?.[1] ?? null
  if (isCounter && first !== undefined && last !== undefined) {
    const growth = totalOf(last) - totalOf(first)
    // The numbers of the counter as it is now.
    if (Math.abs(Number(last[1]) - Number(first[1]) - growth) > 1e-6) value = rounded(Number(last[1]) - growth)
  }
  const result = { from: value, to: last?.[1] ?? null, fromAt: dateOf(first), toAt: dateOf(last), unseen }
  return [result, isDoubtful || unseen > leastUnseen]
}

const dateOf = (entry: Entry | undefined): Date | null => (entry === undefined ? null : new Date(entry[0]))

/**
 * Whether a counter that went on grew more up to its first number than its episode explains: it may have been in an episode before, whose end was not
 * heard, or in an episode that nobody saw.
 */
function isFromBefore({ from, first, base, before: newest, after }: Notes, { start, before = 0 }: Bounded): boolean {
  const to = after ?? newest
  if (from === undefined || first === undefined || to === undefined || base !== totalOf(from)) return false
  const isSure = from[0] >= before - freshMs
  // A single number has no pace.
  if (first[0] >= to[0]) return !isSure && totalOf(first) - base > leastUnseen
  const explained = ((totalOf(to) - totalOf(first)) / (to[0] - first[0])) * (first[0] - start)
  return totalOf(first) - base > (isSure ? 2 * explained + leastUnseenKwh : explained + leastUnseen)
}

/** How much a counter grew. */
function growthOf(of: Measured, episode: Bounded) {
  const { gauge, notes, counted = 0 } = of
  const { from, to, isStale, isLate } = endsOf(of, episode)
  const { base, isNew, isPartial, isUnsure, isBroken = false } = notes
  const growth = base === undefined || to === undefined ? 0 : rounded(totalOf(to) - base)
  const isGuess = gauge.startsAt === undefined || isPartial === true || isUnsure === true
  const isOne = notes.from === undefined && from?.[0] === to?.[0] && isGuess && growth === 0
  // The growth is unknown without a number after the start, or when the last number is old and shows no growth.
  const isNothing = isNew === undefined || isOne || growth < 0 || (isStale && growth === 0)
  const value = isNothing ? null : growth
  const isLine = of.law?.kind === 'counter' && of.counted !== undefined
  const unseen = base === undefined || !isLine ? 0 : rounded(Math.max(0, base - counted))
  const isMissing =
    isNothing ||
    isStale ||
    isPartial === true ||
    isUnsure === true ||
    isBroken ||
    isFromBefore(notes, episode) ||
    (isLate && gauge.startsAt === undefined)
  // Two numbers say more than a single number that is counted from 0.
  const isSeen = value !== null && notes.first !== undefined && to !== undefined && totalOf(to) > totalOf(notes.first)
  return { value, unseen, isMissing, isStale, isSeen, isBroken }
}

/** With AC both counters run: what the socket gave, and what reached the battery. With DC only the second does. So the one counts that moved. */
function energyOf([socket, battery]: readonly Measured[], episode: Bounded): Result {
  if (socket === undefined || battery === undefined) return [null, true]
  const [ac, dc] = [growthOf(socket, episode), growthOf(battery, episode)]
  const lag = dc.unseen <= leastUnseenKwh ? 0 : dc.unseen
  const unseen = Math.max(ac.unseen, lag)
  const isUnseen = unseen > leastUnseenKwh
  const [given, taken] = [ac.value ?? 0, dc.value ?? 0]
  if (given <= 0 && taken <= 0) {
    const isNone = ac.value === null || dc.value === null
    return [{ kwh: isNone ? null : 0, by: null, unseen }, isNone || ac.isMissing || dc.isMissing || isUnseen]
  }
  // The socket gives at least what the battery gets. So an idle counter of AC that is first seen in a charge with DC does not fit, nor an odd one.
  const isLess = taken > given * (ac.isSeen ? 1.25 : 1) + leastUnseenKwh * (ac.isSeen ? 2 : 1)
  const isOdd = given > 0 && taken > 0 && (isLess || (!ac.isSeen && taken < 0.75 * given - leastUnseenKwh))
  const isSocket = given > 0 && (!isOdd || given <= taken)
  const by = isSocket ? 'socket' : 'battery'
  // No charger and no heater takes more than half of what the socket gives.
  const isLost = taken > 0 && !dc.isStale && taken < given / 2 - 2 * leastUnseenKwh
  const isMissing =
    isOdd || isLost || isUnseen || ac.isBroken || dc.isBroken || (isSocket ? ac.isMissing : dc.isMissing)
  return [{ kwh: isSocket ? given : taken, by, unseen }, isMissing]
}

function curveOf(of: Measured, episode: Bounded): Result {
  const { gauge, notes } = of
  const { value, isMissing } = growthOf(of, episode)
  const { parts = [], partMs = gauge.everyMs, part = 0 } = notes
  const all =
    value === null ? [] : parts.map((growth, nth) => ({ at: new Date((part + nth) * partMs), growth: rounded(growth) }))
  // The last part takes what rounding leaves.
  const rest = (value ?? 0) - all.reduce((sum, { growth }) => sum + growth, 0)
  const last = all.at(-1)
  if (last !== undefined) last.growth = rounded(last.growth + rest)
  return [{ everyMinutes: partMs / 60_000, parts: all }, isMissing || notes.isUnsure === true]
}

function averageOf({ notes }: Measured, episode: Bounded, now: number): Result {
  const copy = { ...notes }
  weigh(copy, episode.end ?? now, episode)
  const ms = activeMs(episode, episode.end ?? now)
  const { from, first, isPartial } = notes
  if (from === undefined && first === undefined) return [null, true]
  const skipped = from === undefined ? activeMs(episode, first?.[0] ?? episode.start) : 0
  const value = ms - skipped > 0 ? (copy.sum ?? 0) / (ms - skipped) : Number((from ?? first)?.[1])
  return [rounded(value), skipped > freshMs || isPartial === true]
}

function lastOf({ notes }: Measured): Result {
  const { from, old, before, after, isPartial } = notes
  const value = before ?? from ?? old ?? after
  return [value?.[1] ?? null, value === undefined || isPartial === true]
}

/** Ignore shorter ways: the position of a parked vehicle jumps by some meters. */
const [leastMeters, jitterMeters] = [0.1, 10]

/** The way that was noted, with the positions of both ends. */
function pathOf(of: Measured, episode: Bounded): Result {
  const { gauge, notes } = of
  const { from, first, before, after } = notes
  const whole: Notes = { ...notes, points: [...(notes.points ?? [])], spacing: 0 }
  const valueAt = (field: string): FieldValue | undefined => notes.others?.[gauge.others.indexOf(field)]
  const all = { ...gauge, mostPoints: Infinity }
  if (before !== undefined) extend({ ...all, everyMeters: leastMeters }, whole, before, { valueAt })
  if (after !== undefined) extend({ ...all, everyMeters: jitterMeters }, whole, after, { valueAt })
  const { points = [], meters = 0 } = whole
  const known = new Set([from, first, before, after].flatMap((seen) => seen?.[0] ?? []))
  const isPart = known.size < 2
  const result: Path = {
    points: points.map((point) => pointOf(gauge, point)),
    meters: isPart ? null : Math.round(meters * 10) / 10,
  }
  const { isDoubtful } = endsOf(of, episode)
  return [result, isDoubtful || whole.isUnsure === true]
}

function pointOf({ others }: Gauge, point: Point): PathPoint {
  const [second, , , ...values] = point
  const place = { at: new Date(second * 1_000), ...placeOf(point) }
  if (others.length === 0) return place
  return { ...place, with: Object.fromEntries(others.map((field, nth) => [field, values[nth] ?? null])) }
}

/** The value of a measure, and whether its name is `missing`. `now`: the newest time of the vehicle. */
export function resultOf({ kind }: Measure, gauges: readonly Measured[], episode: Bounded, now: number): Result {
  const [first] = gauges
  if (first === undefined) return [null, true]
  const { least = null, most = null, isPartial } = first.notes
  switch (kind) {
    case 'span':
      return spanOf(first, episode)
    case 'growth': {
      const { value, isMissing } = growthOf(first, episode)
      return [value, isMissing]
    }
    case 'energy':
      return energyOf(gauges, episode)
    case 'curve':
      return curveOf(first, episode)
    case 'range':
      return [{ least, most }, least === null || isPartial === true]
    case 'average':
      return averageOf(first, episode, now)
    case 'last':
      return lastOf(first)
    case 'path':
      return pathOf(first, episode)
  }
}

/** Whether a gauge has its value of the end, or needs none. */
export const isComplete = ({ kind }: Gauge, notes: Notes | undefined): boolean =>
  kind === 'range' || kind === 'average' || kind === 'last' || notes?.after !== undefined
