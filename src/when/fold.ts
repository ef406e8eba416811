import type { FieldValue } from '../events/values.ts'
import type { Facts } from '../vehicles/facts.ts'
import type { Definition } from './definition.ts'
import { type Interval, Intervals, isLong, type Moment, type Timeline } from './intervals.ts'
import { type Entry, isLikely, type Line, lineOf, type Plugs, type Said, type Series, totalOf } from './ledger.ts'
import {
  type Around,
  begun,
  countedBy,
  type Gauge,
  type Measured,
  note,
  noteLate,
  noteOdd,
  type Notes,
  resumed,
} from './measures.ts'
import { gapOf, type Sample } from './samples.ts'
import { TimesOfFacts } from './times-of-facts.ts'

/*
 * From values to episodes, in the order of docs/episodes.md:
 *
 * 1. belief: what is believed of each field that conditions read, in the order of the vehicle's time;
 * 2. intervals: when `during` began and ended, with its interruptions and gaps;
 * 3. ledger: the line of each counter, now that it is known when the vehicle was unplugged;
 * 4. ends: what each measure has at the start, the end and between;
 * 5. what earlier episodes have of each counter, so that the next one can tell what none of them saw.
 */

/** What its handler got of an episode that may still be corrected: last `at` this time of the receiver. It is another one since `wrong`. */
export interface Told {
  readonly first: number
  readonly revision: number
  readonly start: number
  readonly end: number
  readonly at: number
  readonly revoked?: boolean
  /** It was told before its time, while it lasted or was not complete: at this time of the vehicle. */
  readonly early?: number
  /** The facts by which it was told apart, as they are stored. */
  readonly by?: readonly FieldValue[] | undefined
  /** Of all that it got. Empty: of whatever is found. */
  hash: string
  wrong?: number
}

/** An episode with what its measures noted. */
export interface Running extends Interval {
  notes: Record<string, Notes>
  /** How far the counter of each gauge is in earlier episodes. */
  counted: Record<string, number>
  /** What its handler got, and whether it is no more. Not stored. */
  told?: Told | undefined
  revoked?: true
  /** The facts by which it is told apart, as they are stored: found again each time, because what is said late may change them. */
  by?: readonly FieldValue[] | undefined
}

/** What is known of a vehicle up to a time. */
export interface Known {
  readonly fields: readonly string[]
  readonly timeline: Timeline
  readonly series: Readonly<Record<string, Series>>
  /** How far the counter of each gauge is in episodes that are over. */
  readonly counted: Readonly<Record<string, number>>
  /** Since when the values of a field are kept that came with a new definition. */
  readonly since?: Readonly<Record<string, number>> | undefined
  readonly running?: Running | undefined
}

export const nothingKnown = ({ fields }: Definition): Known => ({
  fields,
  timeline: { at: 0, was: null, gapAt: 0, staleAt: 0, listens: 0 },
  series: {},
  counted: {},
})

/** When and until when the vehicle was heard, at the end of what is folded. */
interface Until {
  /** The vehicle's time now, and when it was heard last. */
  readonly now?: number
  readonly heard?: number
  /** More values follow, so a value that waits for its successor is not decided. */
  readonly isPart?: boolean
  /** What the business said of the vehicle. */
  readonly facts?: Facts | undefined
}

/** The episodes in what is known and these samples, and what is known after them. */
export interface Folded {
  /** Episodes that are long enough, or last. */
  readonly found: readonly Running[]
  readonly known: Known
  /** When a condition may be another one although nothing is said, by the vehicle's clock. `Infinity`: never. */
  readonly changesAt: number
}

/** Finds the episodes in samples, which came in any order. `known` is changed: it was read for this. */
export function fold(
  definition: Definition,
  vin: string,
  known: Known,
  samples: readonly Sample[],
  until: Until = {},
): Folded {
  const { said, times, gaps } = inOrder(definition, samples)
  const before = { at: known.timeline.at, end: known.running?.end }
  const isLast = until.isPart !== true
  const seriesOf = (field: string): Series => known.series[field] ?? {}
  const linesOf = (fields: Iterable<string>, plugs?: Plugs): [string, Line][] =>
    [...fields].map((field) => {
      const law = definition.laws.get(field)
      return [field, lineOf(law, seriesOf(field), said.get(field) ?? [], plugs ? { plugs, isLast } : { isLast })]
    })
  // 1. Belief.
  const lines = new Map(linesOf(definition.fields))
  // 2. Intervals.
  const facts = new TimesOfFacts(definition, until.facts)
  const intervals = intervalsIn(definition, { vin, known, facts }, lines, times, gaps)
  if (until.now !== undefined) intervals.pass(until.now, until.heard)
  // 3. The ledger.
  if (definition.splits !== undefined)
    for (const [field, line] of linesOf(definition.counters, plugsOf(intervals))) lines.set(field, line)
  // 4. Ends.
  const all = measured(definition, known, intervals.all, lines, before)
  if (definition.by.length > 0) for (const one of all) one.by = facts.at(one.start)
  // What was said too late for its place cannot part what is folded.
  if (
    known.running !== undefined &&
    facts.nextHandOver(known.running.start) < Math.min(before.at, before.end ?? Infinity)
  )
    known.running.gap = true
  // 5. What is in episodes.
  const counted = count(definition, known.counted, all, lines)
  const running = intervals.running === undefined ? undefined : all.at(-1)
  const series = Object.fromEntries([...lines].map(([field, line]) => [field, line.series]))
  const { fields, since } = known
  if (running !== undefined) for (const name of ['gapAt', 'staleAt', 'pauses'] as const) delete running[name]
  const next: Known = { fields, timeline: intervals.timeline, series, counted, since, running }
  const found = all.filter((one) => isLong(definition, one))
  return { found, known: next, changesAt: intervals.changesAt }
}

interface Sorted {
  readonly said: ReadonlyMap<string, readonly Said[]>
  readonly times: readonly number[]
  readonly gaps: ReadonlyMap<number, readonly number[]>
}

/** The values of each field in the order of their times, and of two with the same time the later arrival. */
function inOrder({ fields }: Definition, samples: readonly Sample[]): Sorted {
  const said = new Map<string, Said[]>(fields.map((field) => [field, []]))
  const gaps = new Map<number, number[]>()
  const times: number[] = []
  for (const [at, field, value, isLoose] of samples.toSorted(([one], [other]) => one - other)) {
    if (times.at(-1) !== at) times.push(at)
    if (field === gapOf) gaps.set(at, [...(gaps.get(at) ?? []), Number(value)])
    if (typeof field === 'number') continue
    const values = said.get(field)
    if (values?.at(-1)?.at === at) values.pop()
    values?.push(isLoose === true ? { at, value, isLoose } : { at, value })
  }
  return { said, times, gaps }
}

/** Belief has decided which values of conditions count, so here they are only put in their moments. */
function intervalsIn(
  definition: Definition,
  { vin, known, facts }: { readonly vin: string; readonly known: Known; readonly facts: TimesOfFacts },
  lines: ReadonlyMap<string, Line>,
  times: readonly number[],
  gaps: Sorted['gaps'],
): Intervals {
  const values = new Map<string, Entry>()
  const entries = new Map<number, [string, Entry][]>()
  const grew = new Set<number>()
  for (const [field, line] of lines) {
    let before = line.before
    const decides = definition.deciding.has(field)
    if (decides && before !== undefined) values.set(field, before)
    for (const entry of line.entries) {
      const [at] = entry
      if (decides) entries.set(at, [...(entries.get(at) ?? []), [field, entry]])
      if (definition.counters.has(field) && before !== undefined && totalOf(entry) - totalOf(before) > leastGrowth)
        grew.add(at)
      before = entry
    }
  }
  const intervals = new Intervals(definition, vin, known.timeline, known.running, values, facts)
  // A value that was held is from before the samples.
  const all = [...new Set([...times, ...entries.keys()])].toSorted((one, other) => one - other)
  for (const at of all) {
    const moment: Moment = { at, entries: entries.get(at) ?? [], grew: grew.has(at), gaps: gaps.get(at) ?? [] }
    intervals.take(moment)
  }
  return intervals
}

/** Up to when all was folded, and when the newest episode was over then. */
interface Before {
  readonly at: number
  readonly end: number | undefined
}

const isCorrected = ({ corrects }: Definition, { at, end = Infinity }: Before): boolean => at <= end + corrects

/** A counter that moved by less may have been rounded. */
const leastGrowth = 0.2

/** What came too late for its place and decides may have interrupted the episode. */
function markLate({ deciding }: Definition, running: Running, lines: ReadonlyMap<string, Line>): void {
  for (const [field, { late, before }] of lines) {
    if (!deciding.has(field)) continue
    const isIn = ({ at }: Said): boolean => at >= running.start && at <= (running.end ?? at) && at !== before?.[0]
    if (late.some(isIn)) running.gap = true
  }
}

const plugsOf = ({ splits, all }: Intervals): Plugs => ({
  splits: splits.map(({ from, to = Infinity }) => [from, to] as const),
  starts: all.map(({ start }) => start),
})

/** What each measure of each episode has. */
function measured(
  definition: Definition,
  known: Known,
  intervals: readonly Interval[],
  lines: ReadonlyMap<string, Line>,
  folded: Before,
): Running[] {
  const { running: before } = known
  if (before !== undefined && isCorrected(definition, folded)) markLate(definition, before, lines)
  const all = intervals.map((interval): Running =>
    interval === before ? before : { ...interval, notes: {}, counted: {} },
  )
  const gauges = definition.measures.flatMap((measure) => measure.gauges)
  for (const gauge of gauges) {
    const line = lines.get(gauge.field)
    if (line === undefined) continue
    const around = aroundOf(definition, gauge, lines)
    for (const [nth, one] of all.entries()) {
      if (one === before) goOn(definition, gauge, one, line, around, folded)
      else begin(gauge, one, line, around, known.since)
      const next = all[nth + 1]?.start ?? Infinity
      for (const entry of line.entries)
        if ((entry[0] < next || isOfBoth(gauge, one, entry)) && (entry[0] >= one.start || one === before))
          noteOf(gauge, one, entry, around)
      const odd = line.odd.filter((at) => at < next)
      noteOdd((one.notes[gauge.key] ??= {}), odd, one, definition.waits)
    }
  }
  return all
}

/** A value of the moment of a handover is the end of one, and the start of the next. A counter of energy grows in the next. */
const isOfBoth = ({ kind }: Gauge, { passedOn, end }: Running, [at]: Entry): boolean =>
  passedOn === true && at === end && kind !== 'growth' && kind !== 'curve'

function aroundOf(definition: Definition, gauge: Gauge, lines: ReadonlyMap<string, Line>): Around {
  const { waits, corrects, laws } = definition
  return {
    waits,
    corrects,
    law: laws.get(gauge.field),
    valueAt(field, at) {
      const line = lines.get(field)
      return (line?.entries.findLast(([each]) => each <= at) ?? line?.before)?.[1]
    },
  }
}

function begin(gauge: Gauge, one: Running, line: Line, around: Around, since: Known['since'] = {}): void {
  const { start, gapAt = 0 } = one
  // A value that it begins with is uncertain.
  const known = line.entries.findLast(([at]) => at <= start) ?? line.before
  if (known !== undefined && known[0] <= gapAt) one.gap = true
  const notes = (one.notes[gauge.key] = begun(gauge, line, one, around))
  if (start < (since[gauge.field] ?? 0)) notes.isPartial = true
}

/** Goes on with an episode that was found before. */
function goOn(definition: Definition, gauge: Gauge, one: Running, line: Line, around: Around, folded: Before): void {
  const notes = (one.notes[gauge.key] ??= { isPartial: true })
  if (folded.end !== undefined && one.end !== folded.end) resumed(gauge, notes, one, around)
  if (!isCorrected(definition, folded)) return
  for (const { at, value } of line.late.filter((said) => isLikely(line, said)))
    noteLate(gauge, notes, [at, value], one, around)
}

function noteOf(gauge: Gauge, one: Running, entry: Entry, around: Around): void {
  const notes = one.notes[gauge.key]
  if (notes === undefined) return
  const { after } = notes
  note(gauge, notes, entry, one, around)
  // The value of the end came after a gap.
  if (notes.after !== after && one.gapAfter !== undefined && entry[0] > one.gapAfter) one.gap = true
}

/** Adds to each episode how far its counters were in earlier ones, and returns how far they are in episodes that are over. */
function count(
  definition: Definition,
  counted: Known['counted'],
  all: readonly Running[],
  lines: ReadonlyMap<string, Line>,
): Known['counted'] {
  const over: Record<string, number> = { ...counted }
  for (const gauge of definition.measures.flatMap((measure) => measure.gauges)) {
    const line = lines.get(gauge.field)
    if (!definition.counters.has(gauge.field) || line === undefined) continue
    // The line begins with the first value.
    const [origin = line.entries[0]] = [line.before]
    let far = counted[gauge.key] ?? (origin && totalOf(origin))
    if (far !== undefined) over[gauge.key] = far
    for (const one of all) {
      if (far !== undefined) one.counted[gauge.key] = far
      if (one.closed === undefined || !isLong(definition, one)) continue
      far = countedBy(measuredOf(definition, one, gauge), one)
      if (far !== undefined) over[gauge.key] = far
    }
  }
  return over
}

/** What is known of a gauge in an episode. */
export const measuredOf = ({ laws }: Definition, { notes, counted }: Running, gauge: Gauge): Measured => ({
  gauge,
  notes: notes[gauge.key] ?? {},
  law: laws.get(gauge.field),
  counted: counted[gauge.key],
})

/** Nothing corrects the newest episode any more, so it is forgotten. */
export function withoutRunning(definition: Definition, { running, ...known }: Known): Known {
  if (running?.end === undefined) return { ...known, running }
  const closed = { ...running, closed: running.end }
  const counted = { ...known.counted }
  for (const gauge of definition.measures.flatMap((measure) => measure.gauges)) {
    const far = countedBy(measuredOf(definition, closed, gauge), closed)
    if (far !== undefined && isLong(definition, closed)) counted[gauge.key] = far
  }
  const endedAt = running.end + (running.cut === true ? 1 : 0)
  return { ...known, counted, timeline: { ...known.timeline, endedAt } }
}
