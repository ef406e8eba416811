import type { FieldValue } from '../events/values.ts'
import type { EpisodeOccurrence } from '../vehicles/edge.ts'
import type { Fact } from '../vehicles/fact.ts'
import { markOf } from '../vehicles/edge-index.ts'
import type { Definition, Measures } from './definition.ts'
import { measuredOf, type Running, type Told } from './fold.ts'
import { overAt } from './intervals.ts'
import { keyOf } from './times-of-facts.ts'
import { isComplete, type Measure, resultOf } from './measures.ts'

/*
 * What was told is compared with what is found now: each episode is told once it is over, and told again when it changed. At most one with a message:
 * when more wait, the timer is due at once.
 */

/** Something with a beginning and an end, as the handler of {@link episode} gets it in `change`. `at` is `endedAt`. */
export type Episode<Of extends Measures = Measures, By extends readonly Fact[] = readonly []> = EpisodeOccurrence & {
  readonly [Name in keyof Of]: Of[Name] extends Measure<infer Result> ? Result : never
} & {
  readonly [Each in By[number] as Each['name']]: (Each extends Fact<string, infer Value, never> ? Value : never) | null
}

/** The most episodes that are corrected at the same time. */
export const mostTold = 20

/** What the handler gets. An episode that lasts goes up to the last message. */
export function episodeOf(definition: Definition, vin: string, running: Running, heard: number): Episode {
  const { start, end = heard, paused, cut = false, gap = false, revoked = false, by = [] } = running
  const { first = start, revision = 0 } = running.told ?? {}
  // A measure can have any name.
  const values: Record<string, unknown> = Object.create(null)
  const missing: string[] = []
  for (const { name, measure, gauges } of definition.measures) {
    const noted = gauges.map((gauge) => measuredOf(definition, running, gauge))
    const [value, isMissing] = resultOf(measure, noted, running, heard)
    values[name] = value
    if (isMissing) missing.push(name)
  }
  for (const [nth, fact] of definition.by.entries()) {
    const stored = by[nth] ?? null
    values[fact.name] = stored === null ? null : (fact.read(stored) ?? null)
  }
  return {
    vin,
    id: `${vin}:${definition.name}:${nameOf(first, by)}`,
    revision,
    lasts: running.end === undefined,
    at: new Date(end),
    startedAt: new Date(start),
    endedAt: new Date(end),
    durationMs: end - start,
    pausedMs: paused,
    cut,
    revoked,
    acrossGap: gap,
    missing,
    ...values,
  }
}

/** The last part of an id. Each customer has its own. */
export const nameOf = (first: number, by: readonly FieldValue[] = []): string =>
  new Date(first).toISOString() + (by.length === 0 ? '' : `:${markOf(keyOf(by))}`)

export const hashOf = (episode: Episode): string => markOf(JSON.stringify(episode))

const overlap = (one?: Running, other?: Told): boolean =>
  one !== undefined && other !== undefined && one.start < other.end && (one.end ?? Infinity) > other.start

/** Whether each measure has its value of the end. A counter of energy that was not reported needs none. */
export function hasAll({ measures }: Definition, { notes }: Running, isForPath = true): boolean {
  return measures.every(({ gauges, measure }) => {
    if (measure.kind === 'path' && !isForPath) return true
    const isSaid = gauges.filter(({ key }) => notes[key]?.first !== undefined)
    return (isSaid.length > 0 ? isSaid : gauges).every((gauge) => isComplete(gauge, notes[gauge.key]))
  })
}

/** What was told, and what is still remembered of it. */
export interface Compared {
  /** The episodes with their last report, and reported episodes that are gone. */
  readonly all: readonly Running[]
  readonly told: readonly Told[]
}

/** Pairs each episode found with its last report: by the first start, by the current start, or by overlap. Adds reported episodes that are gone. */
export function compared(
  definition: Definition,
  found: readonly Running[],
  told: readonly Told[],
  foldedTo: number,
  arrivedMs: number,
): Compared {
  const rules: readonly ((entry: Told, each: Running) => boolean)[] = [
    ({ first }, { start }) => first === start,
    (entry, { start }) => entry.start === start,
    (entry, each) => entry.revoked !== true && overlap(each, entry),
  ]
  const free = new Set(told)
  for (const isSame of rules)
    for (const each of found) {
      each.told ??= [...free].find((entry) => keyOf(entry.by) === keyOf(each.by) && isSame(entry, each))
      if (each.told !== undefined) free.delete(each.told)
    }
  // What is folded is not found again. It is remembered for the replay of a dead letter.
  const oldest = told.length > mostTold ? Infinity : arrivedMs - definition.corrects
  const kept = told.filter((each) => !free.has(each) || each.start > foldedTo || each.at > oldest)
  const isAnothers = (entry: Told): boolean =>
    found.some((each) => each.start === entry.start && keyOf(entry.by) !== keyOf(each.by))
  const gone = [...free].filter((entry) => entry.start > foldedTo || isAnothers(entry))
  const revoked = gone.map((each): Running => {
    const { start, end } = each
    return {
      start,
      end,
      closed: start,
      paused: 0,
      notes: {},
      counted: {},
      told: each,
      revoked: true,
      by: each.by,
    }
  })
  return { all: [...found, ...revoked], told: kept }
}

/** What a telling needs to know. */
export interface Now {
  /** The vehicle's time, and when it was heard last. */
  readonly now: number
  readonly heard: number
  readonly arrivedMs: number
  /** There is no room to wait: what is known is told. */
  readonly isFull: boolean
}

/** When it is to be told, corrected or revoked. `Infinity`: it lasts, or was told as it is. */
function dueOf(definition: Definition, vin: string, of: Running, { now, heard, isFull }: Now): number {
  const { end = Infinity, closed, cut, told } = of
  const { waits, tellsEach } = definition
  const over = overAt(definition, of)
  const isWhole = closed !== undefined || cut === true || isFull || hasAll(definition, of, false)
  const ready = isWhole || now < over ? over : Math.max(over, end + waits)
  const early = tellsEach === Infinity ? Infinity : (told?.early ?? -Infinity) + tellsEach
  if (told === undefined) return Math.min(ready, Math.max(early, of.start))
  if (end === Infinity && tellsEach === Infinity) return Infinity
  const hash = hashOf(episodeOf(definition, vin, of, heard))
  told.hash ||= hash
  if (told.hash === hash) {
    delete told.wrong
    return Infinity
  }
  if (told.early !== undefined) return Math.min(ready, early)
  return isFull ? ready : Math.max(ready, (told.wrong ??= now) + waits)
}

/** What is told now, if something is, and when the next one is due. */
export interface Telling {
  readonly happened?: Episode
  readonly due: number
  readonly told: readonly Told[]
}

/** One is told at a time, the first one first. But an earlier telling that a new one overlaps is corrected before the new one is told. */
export function tellNext(definition: Definition, vin: string, { all, told }: Compared, when: Now): Telling {
  const { now, heard, arrivedMs } = when
  const todo = all.map((of) => ({ of, due: dueOf(definition, vin, of, when) }))
  const [first] = todo.filter(({ due }) => due <= now).toSorted((one, other) => one.of.start - other.of.start)
  const next = todo.find(({ of, due }) => !first?.of.told && due < Infinity && overlap(first?.of, of.told)) ?? first
  const due = Math.min(...todo.map((each) => (each === next ? Infinity : Math.max(each.due, now))))
  if (next === undefined) return { due, told }
  const { start, end = heard, revoked = false, told: before = { first: start, revision: 0 } } = next.of
  const isEarly = next.of.end === undefined || now < overAt(definition, next.of)
  const early = isEarly && definition.tellsEach < Infinity ? { early: now } : {}
  const telling: Told = {
    first: before.first,
    revision: before.revision + 1,
    start,
    end,
    at: arrivedMs,
    revoked,
    hash: '',
    by: next.of.by,
    ...early,
  }
  next.of.told = telling
  const happened = episodeOf(definition, vin, next.of, heard)
  telling.hash = hashOf(happened)
  return {
    happened,
    due: isEarly ? Math.min(due, now + definition.tellsEach) : due,
    told: [...told.filter((one) => one !== before), telling],
  }
}
