import { checkOption, checkOptions, isObject, required, type Rule } from '../base/options.ts'
import type { FieldCatalogue } from '../events/fields.ts'
import { type Law, lawOf } from '../events/laws.ts'
import { type Condition, membersOfEpisode, type Trace } from '../vehicles/edge.ts'
import { type Fact, isFact } from '../vehicles/fact.ts'
import { markOf } from '../vehicles/edge-index.ts'
import { Slots } from '../vehicles/state.ts'
import { checkConditions, invalid, isName } from './conditions.ts'
import { type PeriodOptions, periodsOf } from './hours.ts'
import { anyCounter } from './ledger.ts'
import { type Gauge, gaugesOf, type Measure, mostOfPath } from './measures.ts'
import { type Duration, readDuration } from './time.ts'

/** The measures of an episode, each under its name. */
export type Measures = Readonly<Record<string, Measure>>

/** What {@link episode} takes. A {@link Duration} is from a second to a year, by the vehicle's clock. */
export interface EpisodeOptions<Of extends Measures = Measures, By extends readonly Fact[] = readonly Fact[]> {
  /** It begins when this becomes true, and lasts while it is. */
  readonly during: Condition
  /** It ends when this is true. Default: when `during` is false. */
  readonly until?: Condition
  /** An interruption that is not longer belongs to it. Default: none does. */
  readonly joins?: Duration
  /** An interruption in which this is true does not belong to it: the vehicle is unplugged. A counter of energy can begin again after it. */
  readonly splits?: Condition
  /** A shorter one is left out. Default: none is. */
  readonly atLeast?: Duration
  /** How long the values of its end may take. Default 2 minutes. */
  readonly waits?: Duration
  /** When no message of the vehicle comes for so long, it ended with the last one. Default: it goes on. */
  readonly silence?: Duration
  /** How long it is corrected after it was told. Default 1 hour. */
  readonly corrects?: Duration
  /** It is told at once and while it lasts, with `lasts: true`: each time that it changed, but not more often than this. Default: when it is over. */
  readonly tellsEach?: Duration
  /**
   * Facts by which it is told apart, such as its customer: where one of them changes, it ends and the next one begins. Each is a member of the episode, with
   * its value, or `null`. Default: none.
   */
  readonly by?: By
  /** It ends when the day or the month does, by the clocks of a zone, and the next one begins: for a logbook by day. Default: it goes on. */
  readonly splitsAt?: PeriodOptions
  /** At most 20. No name of a member of an {@link Episode}, and of no fact in `by`. */
  readonly measures: Of
}

/** A measure with its name, and what it needs of each of its fields. */
export interface NamedMeasure {
  readonly name: string
  readonly measure: Measure
  readonly gauges: readonly Gauge[]
}

/** A definition as the code reads it. Times are in milliseconds. */
export interface Definition {
  readonly name: string
  readonly during: Condition
  readonly until: Condition | undefined
  readonly splits: Condition | undefined
  readonly joins: number
  readonly atLeast: number
  readonly waits: number
  readonly silence: number
  readonly corrects: number
  readonly tellsEach: number
  readonly measures: readonly NamedMeasure[]
  readonly by: readonly Fact[]
  /** The first moment after this one at which it is split, whatever happens. `undefined`: it is not. */
  readonly nextPart: ((atMs: number) => number) | undefined
  /** The facts of conditions. */
  readonly asked: readonly Fact[]
  readonly fields: readonly string[]
  /** The fields that conditions read. */
  readonly deciding: ReadonlySet<string | number>
  /** The conditions that change with time, and what conditions remember. */
  readonly timed: readonly Condition[]
  readonly traces: readonly Trace[]
  /** A value of a condition counts for a time only, so each message is looked at. */
  readonly isAged: boolean
  /** What physics allows for a field. */
  readonly laws: ReadonlyMap<string, Law>
  /** The fields whose counters have a line. */
  readonly counters: ReadonlySet<string>
  readonly slots: Slots
  readonly shape: string
}

const timesOf = ['joins', 'atLeast', 'waits', 'silence', 'corrects', 'tellsEach'] as const

/** `ownFields`: the catalogue of the receiver, with its limits. */
export function definitionOf(name: string, options: EpisodeOptions, ownFields: FieldCatalogue = {}): Definition {
  checkAll(name, options)
  const { during, until, splits, by = [] } = options
  const conditions = [during, until, splits].filter((condition) => condition !== undefined)
  checkConditions('episode', conditions)
  const ofLink = conditions.find(({ online }) => online === true)
  if (ofLink !== undefined)
    throw invalid(
      `The episode \`${name}\` asks \`${ofLink.name}\`, and episodes keep values of fields only`,
      'Ask `isOnline` and `isAsleep` in starts and ends.',
    )
  const measures = Object.entries(options.measures).map(([each, measure]) => {
    if (
      membersOfEpisode.includes(each) ||
      by.some((fact) => fact.name === each) ||
      !isObject(measure) ||
      typeof measure.kind !== 'string'
    )
      throw invalid(
        `\`${each}\` of \`${name}\` is no measure, or has the name of a member of each episode or of a fact in \`by\``,
        'Make it with span, growth, energy, range or another measure, and give it another name.',
      )
    return { name: each, measure, gauges: gaugesOf(each, measure) }
  })
  checkRoom(name, measures)
  const times = { joins: 0, atLeast: 0, waits: 120_000, silence: Infinity, corrects: 3_600_000, tellsEach: Infinity }
  for (const each of timesOf) {
    const given = options[each]
    if (given !== undefined) times[each] = readDuration(each, given).ms
  }
  times.corrects = Math.max(times.waits, times.corrects)
  const needed = conditions.flatMap((condition) => condition.fields)
  const gauges = measures.flatMap((measure) => measure.gauges)
  const measured = gauges.flatMap(({ field, others }) => [field, ...others])
  const fields = [...new Set([...needed, ...measured])]
  const laws = lawsOf(fields, gauges, ownFields)
  const counters = new Set([...laws].flatMap(([field, { kind }]) => (kind === 'counter' ? field : [])))
  const asked = conditions.flatMap(({ facts = [] }) => facts)
  const apart = by.length === 0 ? [] : [by.map((fact) => fact.name)]
  const said = [during.name, until?.name, splits?.name, times, gauges.map(({ key }) => key), [...laws], ...apart]
  // Differs for another definition, and for other laws. The number: for what an older version wrote.
  const { splitsAt } = options
  const nextPart = splitsAt && periodsOf('splitsAt', splitsAt)
  const shape = markOf(JSON.stringify([3, ...said, ...(splitsAt === undefined ? [] : [splitsAt.every, splitsAt.zone])]))
  const [slots, deciding] = [new Slots({ fields, facts: [...by, ...asked] }, ownFields), new Set(needed)]
  const timed = conditions.filter(({ changesAt }) => changesAt !== undefined)
  const traces = conditions.flatMap((condition) => condition.traces ?? [])
  const isAged = conditions.some(({ ages }) => ages === true)
  const read = { measures, by, nextPart, asked, fields, deciding, timed, traces, isAged, laws, counters, slots, shape }
  return { name, during, until, splits, ...times, ...read }
}

/** The law of each field: from the catalogue, or for a field that is measured as a counter, that it only grows. */
function lawsOf(
  fields: readonly string[],
  gauges: readonly Gauge[],
  ownFields: FieldCatalogue,
): ReadonlyMap<string, Law> {
  const counted = new Set(gauges.flatMap(({ kind, field }) => (kind === 'growth' || kind === 'curve' ? field : [])))
  return new Map(
    fields.flatMap((field) => {
      const law = lawOf(field, ownFields) ?? (counted.has(field) ? anyCounter : undefined)
      return law === undefined ? [] : [[field, law] as const]
    }),
  )
}

function checkAll(name: string, options: EpisodeOptions): void {
  const aCondition: Rule = { must: 'must be a condition', accepts: isObject, hint: "For instance is('Gear', 'D')." }
  const aTime: Rule = { must: 'must be a time', accepts: isObject, hint: 'For instance { minutes: 3 }.' }
  checkOption('episode', 'name', name, required({ must: 'must be a text of 1 to 100 characters', accepts: isName }))
  checkOptions<EpisodeOptions>('episode', options, {
    during: required(aCondition),
    until: aCondition,
    splits: aCondition,
    splitsAt: {
      must: 'must be a period',
      accepts: isObject,
      hint: "For instance { every: 'day', zone: 'Europe/Amsterdam' }.",
    },
    by: {
      must: 'must be a list of facts',
      accepts: (value) => Array.isArray(value) && value.every(isFact),
      hint: "Make them with fact('customer', 'string').",
    },
    joins: aTime,
    atLeast: aTime,
    waits: aTime,
    silence: aTime,
    corrects: aTime,
    tellsEach: aTime,
    measures: required(
      { must: 'must be an object of measures', accepts: isObject },
      "For instance { odometer: span('Odometer') }.",
    ),
  })
}

function checkRoom(name: string, measures: readonly NamedMeasure[]): void {
  const sizeOf = ({ mostPoints = 0, others = [] }: Measure): number => mostPoints * (1 + others.length)
  const points = measures.reduce((sum, { measure }) => sum + (measure.kind === 'path' ? sizeOf(measure) : 0), 0)
  if (measures.length <= 20 && points <= 2 * mostOfPath) return
  throw invalid(
    `The episode \`${name}\` has ${measures.length} measures with ${points} points`,
    `At most 20 measures, and ${2 * mostOfPath} points of all paths and their fields, are kept.`,
  )
}
