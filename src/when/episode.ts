import { checkOptions, isObject } from '../base/options.ts'
import type { FleetEvent } from '../events/event.ts'
import type { FieldCatalogue } from '../events/fields.ts'
import type { FieldValue } from '../events/values.ts'
import { firstSeqAt } from '../inbox/delivery-id.ts'
import { documentValues } from '../vehicles/document.ts'
import type {
  AnyVehicleView,
  Condition,
  Edge,
  EdgeResult,
  EdgeStep,
  Occurrence,
  VehicleView,
} from '../vehicles/edge.ts'
import { credibleMs } from '../vehicles/lag.ts'
import { applied, lengthOf, nullMeansNone, Slots, Snapshot, VehicleState } from '../vehicles/state.ts'
import { markOf } from '../vehicles/edge-index.ts'
import { wireTopics } from '../wire/envelope.ts'
import { isPlace } from './areas.ts'
import { createClockwork } from './clockwork.ts'
import { checkConditions, invalid } from './conditions.ts'
import { begun, isComplete, type Measure, mostOfPath, note, noteLate, type Notes, resultOf, resumed, type Seen } from './measures.ts' // prettier-ignore
import { type Duration, readDuration } from './time.ts'

/** The measures of an episode, each under its name. */
export type Measures = Readonly<Record<string, Measure>>

/** What {@link episode} takes. A {@link Duration} is from a second to a year, by the vehicle's clock. */
export interface EpisodeOptions<Of extends Measures = Measures> {
  /** It begins when this becomes true, and lasts while it is. */
  readonly during: Condition
  /** It ends when this is true. Default: when `during` is false. */
  readonly until?: Condition
  /** An interruption that is not longer belongs to it. Default: none does. */
  readonly joins?: Duration
  /** An interruption in which this is true does not belong to it, for instance when the vehicle is unplugged. Default: none. */
  readonly splits?: Condition
  /** A shorter one is left out. Default: none is. */
  readonly atLeast?: Duration
  /** How long the values of its end may take. Default 2 minutes. */
  readonly waits?: Duration
  /** When no message of the vehicle comes for so long, it ended with the last one. Default: it goes on. */
  readonly silence?: Duration
  /** How long it is corrected after it was told. Default 1 hour. */
  readonly corrects?: Duration
  /** At most 20. No name of a member of an {@link Episode}. */
  readonly measures: Of
}

/** Something with a beginning and an end, as the handler of {@link episode} gets it in `change`. `at` is `endedAt`. */
export type Episode<Of extends Measures = Measures> = EpisodeOccurrence & {
  readonly [Name in keyof Of]: Of[Name] extends Measure<infer Result> ? Result : never
}

/** The members of each {@link Episode}. */
export interface EpisodeOccurrence extends Occurrence {
  readonly vin: string
  /** The VIN, the name and the start that was told first: the same for each correction. */
  readonly id: string
  /** 1, 2, …: each correction has the next one. 0: it is not told yet. */
  readonly revision: number
  /** By the vehicle's clock, but never later than the receipt. */
  readonly startedAt: Date
  /** Of one that lasts: the time of the vehicle's newest message. */
  readonly endedAt: Date
  /** From the start to the end, in milliseconds. */
  readonly durationMs: number
  /** The part of it that was interrupted. */
  readonly pausedMs: number
  /** It ended by silence. */
  readonly cut: boolean
  /** A correction: there is no such episode, or it is part of another one. Its measures have no values. */
  readonly revoked: boolean
  /** Measures without a value, or with one that may not be that of the start or of the end: see "Why is this null" in docs/episodes.md. */
  readonly missing: readonly string[]
}

/** An edge that tells of episodes: the result of {@link episode}. */
export interface EpisodeEdge<Of extends Measures = Measures> extends Edge<Episode<Of>> {
  /** The episode of a vehicle that lasts, so far. `undefined`: there is none, or the vehicle was not kept by the part `vehicles`. */
  open<Fields extends FieldCatalogue>(vehicle: VehicleView<Fields>): Episode<Of> | undefined
  /**
   * All episodes in a list of events, of any vehicles and in any order, as if no message came after them: to compute them from history, to try a
   * definition, or in a test. Sorted by vehicle and start. Pass the events of gaps too.
   */
  in(events: Iterable<FleetEvent>): readonly Episode<Of>[]
  /** Throws `option_invalid`: a condition of an episode belongs into `during`. */
  where(): never
}

/** A definition as the code reads it. Times are in milliseconds. */
interface Definition {
  readonly name: string
  readonly during: Condition
  readonly until: Condition | undefined
  readonly splits: Condition | undefined
  readonly joins: number
  readonly atLeast: number
  readonly waits: number
  readonly silence: number
  readonly corrects: number
  readonly measures: readonly (readonly [name: string, measure: Measure, key: string])[]
  readonly fields: readonly string[]
  /** Which of them decide the condition. */
  readonly decides: ReadonlySet<number>
  /** Differs for another definition. */
  readonly shape: string
}

/** A value as it is kept until it is folded. Its place is that of its time. */
interface Sample {
  readonly at: number
  /** Its number in the definition. */
  readonly field: number
  readonly value: FieldValue
}

/** In place of a field: a message without one of the fields, so that there is no silence. */
const heardOf = -1
/** In place of a field: messages may be missing. The value is when the receiver listened again. */
const gapOf = -2

/** An episode that began. */
interface Running {
  start: number
  /** Since when it is interrupted or over. */
  end?: number
  paused: number
  /** It ended by silence. */
  cut?: true
  /** It does not go on. */
  split?: true
  gap?: true
  /** Messages may be missing since it was over. */
  gapAfter?: true
  /** When the next one began. */
  closed?: number
  notes: Record<string, Notes>
}

/** What was told of an episode that may still be corrected. */
interface Told {
  /** The start that was told first. */
  readonly first: number
  /** How many others were told with the same start before. */
  readonly nth: number
  revision: number
  start: number
  end: number
  hash: string
  /** When it was told, by the vehicle's clock. */
  at: number
  /** Since when it is known to be another one. */
  wrong?: number
  revoked?: true
}

/** What is known up to a time. */
interface Known {
  at: number
  values: Record<number, Seen>
  /** What the condition was last. `null`: not known. */
  was: boolean | null
  /** Values up to this time are uncertain. */
  gapAt: number
  /** The last message, and since when the receiver listens. */
  heard: number
  listens: number
  /** Counters that began anew, and whose next value did not come yet. */
  resets: string[]
  running?: Running
}

/** The first line of a memory: what most messages need to know. */
interface Head {
  readonly shape: string
  /** Times of samples are relative to it. */
  readonly origin: number
  /** The newest time of the vehicle, and when that arrived. */
  heard: number
  arrived: number
  /** The newest time of a sample. */
  noted: number
  /** What the condition is: `on` while it lasts, `off`, or `ask`: a value of the condition decides something. */
  mode: 'on' | 'off' | 'ask'
  /** Values that are older may change what was told. `Infinity`: something is awaited. */
  calm: number
  /** When the newest silence ended that was long enough: an older message may say that there was none. */
  hole: number
  /** When samples were folded last, by arrival, and how many were left then. */
  checked: number
  old: number
  /** The length of the samples. */
  length: number
}

/** The most characters of samples. When there are more, the older half is folded. */
const mostSamples = 6_000
/** The longest value. */
const longestValue = 256
const mostMeasures = 20
/** The most episodes that are corrected at the same time. */
const mostTold = 20
const signMs = 60_000

/**
 * Tells what happened between two moments: a trip, a charge, a stay. It is told when it is over, with what it measured, and told again with the same
 * `id` and the next `revision` when something that came late corrects it: so a handler is one upsert. Values are sorted by the vehicle's
 * clock, so fields can come in pieces, late, twice and in any order. What is not known is `null` and named in `missing`, never 0. See
 * docs/episodes.md.
 *
 * Throws `option_invalid` for a name that is not 1 to 100 characters, a condition that is none, a time that is out of range, and a measure that is
 * none or has the name of a member of {@link Episode}.
 *
 * @example
 * ```ts
 * import { any, episode, growth, is, path, span } from 'fleethook/when'
 *
 * export const trip = episode('trip', {
 *   during: any(is('Gear', 'D'), is('Gear', 'R'), is('Gear', 'N')),
 *   joins: { minutes: 3 },
 *   silence: { hours: 1 },
 *   measures: { odometer: span('Odometer'), energy: span('EnergyRemaining'), route: path() },
 * })
 * ```
 */
export function episode<const Of extends Measures>(name: string, options: EpisodeOptions<Of>): EpisodeEdge<Of> {
  const definition = definitionOf(name, options)
  const { fields, shape } = definition
  // What the fold finds has the measures of the definition, which the compiler cannot see.
  const typed = (found: EpisodeOccurrence): Episode<Of> => found as Episode<Of> // oxlint-disable-line no-unsafe-type-assertion
  return {
    name,
    fields: [],
    reads: fields,
    topics: wireTopics,
    timing: createClockwork,
    shape,
    detect(step) {
      const { happened, ...others } = detected(definition, step) ?? {}
      return happened === undefined ? others : { ...others, happened: typed(happened) }
    },
    open(vehicle) {
      const found = lasting(definition, vehicle)
      return found && typed(found)
    },
    in: (events) => history(definition, events).map(typed),
    where() {
      throw invalid('An episode has no `where`', 'Write the condition into `during`: all(…), or return in the handler.')
    },
  }
}

const members = ['vin', 'id', 'revision', 'at', 'startedAt', 'endedAt', 'durationMs', 'pausedMs', 'cut', 'revoked', 'acrossGap', 'missing'] // prettier-ignore

function definitionOf(name: unknown, options: EpisodeOptions): Definition {
  if (typeof name !== 'string' || name.length === 0 || name.length > 100)
    throw invalid('The name of an episode must be a text of 1 to 100 characters', "For instance 'trip'.")
  const isSet = { must: 'must be given', accepts: isObject }
  checkOptions<EpisodeOptions>('episode', options, {
    during: { must: 'must be a condition', accepts: isObject, isRequired: true, hint: "For instance is('Gear', 'D')." },
    until: { must: 'must be a condition', accepts: isObject },
    splits: { must: 'must be a condition', accepts: isObject },
    joins: isSet,
    atLeast: isSet,
    waits: isSet,
    silence: isSet,
    corrects: isSet,
    measures: { must: 'must be an object of measures', accepts: isObject, isRequired: true, hint: "For instance { odometer: span('Odometer') }." }, // prettier-ignore
  })
  const { during, until, splits } = options
  const conditions = [during, until, splits].filter((condition) => condition !== undefined)
  checkConditions('episode', conditions)
  const measures = Object.entries(options.measures)
  for (const [each, measure] of measures) {
    if (members.includes(each) || each === '__proto__')
      throw invalid(`A measure of the episode \`${name}\` is named \`${each}\`, as a member of each episode`, 'Give it another name.') // prettier-ignore
    if (!isObject(measure) || typeof measure.field !== 'string' || typeof measure.kind !== 'string')
      throw invalid(`The measure \`${each}\` of the episode \`${name}\` is none`, 'Make it with span, growth, range or path.') // prettier-ignore
  }
  const points = measures.reduce((sum, [, { mostPoints = 0 }]) => sum + mostPoints, 0)
  if (measures.length > mostMeasures || points > 2 * mostOfPath)
    throw invalid(
      `The episode \`${name}\` has ${measures.length} measures with ${points} points`,
      `At most ${mostMeasures} measures, and ${2 * mostOfPath} points of all paths, are kept.`,
    )
  const ms = (duration: Duration | undefined, otherwise: number): number =>
    duration === undefined ? otherwise : readDuration('episode', duration).ms
  const deciding = conditions.flatMap((condition) => condition.fields)
  const resets = measures.flatMap(([, { resetBy }]) => resetBy?.fields ?? [])
  const fields = [...new Set([...deciding, ...measures.map(([, { field }]) => field), ...resets])]
  const times = [ms(options.joins, 0), ms(options.atLeast, 0), ms(options.waits, 120_000), ms(options.silence, Infinity), ms(options.corrects, 3_600_000)] as const // prettier-ignore
  const [joins, atLeast, waits, silence, corrects] = times
  const keyed = measures.map(([each, measure]) => [each, measure, keyOf(each, measure)] as const)
  const said = [
    conditions.map((condition) => condition.name),
    times.join(),
    ...keyed.map(([, { resetBy }, key]) => [key, resetBy?.name]),
  ]
  return {
    name,
    during,
    until,
    splits,
    joins,
    atLeast,
    waits,
    silence,
    corrects: Math.max(waits, corrects),
    measures: keyed,
    fields,
    decides: new Set(deciding.map((field) => fields.indexOf(field))),
    shape: markOf(JSON.stringify(said)),
  }
}

/** Notes are kept for the same measure of the same field. */
const keyOf = (name: string, { kind, field, startsAt, everyMeters, mostPoints }: Measure): string =>
  [name, kind, field, startsAt, everyMeters, mostPoints].join(' ').trim()

/** Finds the episodes in samples, moment by moment. */
class Fold {
  readonly #definition: Definition
  readonly #view: AnyVehicleView
  readonly known: Known
  /** Those after which another one began. */
  readonly finished: Running[] = []

  constructor(definition: Definition, vin: string, known: Known) {
    this.#definition = definition
    this.known = known
    this.#view = viewOf(definition, vin, known)
  }

  /** The last episode. */
  get running(): Running | undefined {
    return this.known.running
  }

  /** Samples are in the order of their times, and none is older than what is known. */
  run(samples: readonly Sample[]): void {
    const { known } = this
    const { decides, fields } = this.#definition
    for (let first = 0, next = 0; first < samples.length; first = next) {
      const at = samples[first]?.at ?? 0
      this.pass(at)
      let isDeciding = false
      let gap: number | undefined
      for (; samples[next]?.at === at; next += 1) {
        const { field, value } = samples[next] ?? { field: heardOf, value: null }
        if (field === gapOf) gap = Number(value)
        if (field < 0) continue
        known.values[field] = [at, value]
        isDeciding ||= decides.has(field)
      }
      known.at = at
      known.heard = Math.max(known.heard, at)
      this.#reset()
      const before = known.running
      if (isDeciding) this.#decide(at)
      if (known.running !== undefined)
        for (let index = first; index < next; index += 1) {
          const name = fields[samples[index]?.field ?? heardOf]
          const isNew = before !== known.running
          if (name !== undefined) this.#note(name, known.values[samples[index]?.field ?? heardOf], isNew)
        }
      this.#takeResets(samples, first, next)
      if (gap !== undefined) this.#gap(at, gap)
    }
  }

  /** Time goes on to this moment. */
  pass(at: number): void {
    const { known } = this
    const { running } = known
    if (running === undefined || running.end !== undefined) return
    if (at - Math.max(known.heard, known.listens) < this.#definition.silence) return
    running.end = known.heard
    running.cut = true
    // It begins again with the next value of its condition.
    known.was = false
  }

  #decide(at: number): void {
    const { during, until, splits, joins } = this.#definition
    const { known } = this
    const { running, was } = known
    const is = during.test(this.#view)
    if (running !== undefined && running.end === undefined) {
      if (until === undefined ? is === false : until.test(this.#view) === true) running.end = at
    } else if (is === true && was !== true) {
      const isOver = running?.end === undefined || running.cut || running.split || at - running.end > joins
      if (running !== undefined && !isOver) this.#resume(running, at)
      else this.#start(at)
    }
    if (running?.end !== undefined && splits?.test(this.#view) === true) running.split = true
    if (is !== undefined) known.was = is
  }

  #start(at: number): void {
    const { known } = this
    const { measures, fields } = this.#definition
    if (known.running !== undefined) {
      known.running.closed = at
      this.finished.push(known.running)
    }
    const started: Running = { start: at, paused: 0, notes: {} }
    if (known.was === null) started.gap = true
    for (const [, measure, key] of measures) {
      const seen = known.values[fields.indexOf(measure.field)]
      const isCertain = seen !== undefined && seen[0] > known.gapAt
      if (seen !== undefined && !isCertain) started.gap = true
      started.notes[key] = begun(measure, isCertain ? seen : undefined, at)
    }
    known.running = started
  }

  #resume(running: Running, at: number): void {
    running.paused += at - (running.end ?? at)
    delete running.end
    for (const [, measure, key] of this.#definition.measures) resumed(measure, (running.notes[key] ??= {}))
  }

  #note(field: string, seen: Seen | undefined, isNew: boolean): void {
    const { known } = this
    const { running } = known
    if (running === undefined || seen === undefined) return
    for (const [, measure, key] of this.#definition.measures) {
      // The value of the start is there already.
      if (measure.field !== field || (isNew && running.notes[key]?.from !== undefined) || (isNew && measure.kind === 'range')) continue // prettier-ignore
      const notes = (running.notes[key] ??= { isPartial: true })
      const { after } = notes
      const isReset = known.resets.includes(key) && measure.resetBy?.test(this.#view) !== true
      note(measure, notes, seen, running, this.#definition, isReset)
      if (running.gapAfter === true && notes.after !== after) running.gap = true
    }
  }

  #gap(at: number, listens: number): void {
    const { known } = this
    const { running } = known
    known.gapAt = at
    known.was = null
    known.listens = Math.max(known.listens, listens)
    if (running === undefined) return
    if (running.end === undefined || at - running.end <= this.#definition.joins) running.gap = true
    else running.gapAfter = true
  }

  #reset(): void {
    for (const [, { resetBy }, key] of this.#definition.measures)
      if (resetBy?.test(this.#view) === true && !this.known.resets.includes(key)) this.known.resets.push(key)
  }

  /** The next value of a counter that began anew is there. */
  #takeResets(samples: readonly Sample[], first: number, next: number): void {
    const { known } = this
    if (known.resets.length === 0) return
    const { measures, fields } = this.#definition
    for (const [, measure, key] of measures) {
      const field = fields.indexOf(measure.field)
      const isThere = samples.slice(first, next).some((sample) => sample.field === field)
      if (isThere && measure.resetBy?.test(this.#view) !== true)
        known.resets = known.resets.filter((each) => each !== key)
    }
  }

  /** A sample whose place is gone, because what was known then is folded. */
  late({ at, field, value }: Sample): void {
    const { known } = this
    const { running } = known
    const { measures, fields, decides } = this.#definition
    if (field < 0) return
    const newest = known.values[field]
    const isNewest = newest === undefined || at >= newest[0]
    if (isNewest) known.values[field] = [at, value]
    if (decides.has(field)) {
      if (running !== undefined && at >= running.start && at <= (running.end ?? Infinity)) running.gap = true
      if (isNewest && at > (running?.start ?? -Infinity)) this.#decide(at)
      if (known.running !== undefined && known.running !== running) known.running.gap = true
    }
    if (running === undefined) return
    for (const [, measure, key] of measures)
      if (measure.field === fields[field])
        noteLate(measure, (running.notes[key] ??= { isPartial: true }), [at, value], running, this.#definition)
  }
}

const nothingKnown = (): Known => ({ at: 0, values: {}, was: null, gapAt: 0, heard: 0, listens: 0, resets: [] })

/** What conditions see: the values that are known, and which of them are certain. */
function viewOf({ fields }: Definition, vin: string, known: Known): AnyVehicleView {
  const seen = (field: string): Seen | undefined => known.values[fields.indexOf(field)]
  const at = (field: string): Date | undefined => {
    const [ms] = seen(field) ?? []
    return ms === undefined ? undefined : new Date(ms)
  }
  return {
    vin,
    value: (field) => seen(field)?.[1],
    at,
    since: at,
    ageMs: (field) => (seen(field) === undefined ? undefined : known.heard - (seen(field)?.[0] ?? 0)),
    isCertain: (field) => (seen(field)?.[0] ?? 0) > known.gapAt,
    invalidSince: () => undefined,
    fields: fields.filter((field) => seen(field) !== undefined),
    online: undefined,
    state: undefined,
    isOnlineCertain: false,
    seenAt: undefined,
    clockBehindMs: undefined,
    timers: [],
  }
}

/**
 * What an edge remembers of a vehicle: four lines. Most messages read the first one and write at the end. The others are JSON: what was told, what is
 * known, and the samples after that, in the order of arrival.
 */
interface Memory {
  readonly head: Head
  readonly told: Told[]
  readonly known: Known
  readonly samples: Sample[]
}

const writtenHead = (head: Head): string =>
  [
    head.shape,
    head.mode,
    head.origin,
    ...[head.heard, head.arrived, head.noted, head.hole, head.calm, head.checked].map((ms) => ms - head.origin),
    head.old,
    head.length,
  ].join(' ')

function readHead(text: string): Head {
  const [shape = '', mode, ...numbers] = text.slice(0, text.indexOf('\n')).split(' ')
  const [origin = 0, ...rest] = numbers.map(Number)
  const [heard = 0, arrived = 0, noted = 0, hole = 0, calm = 0, checked = 0] = rest.map((ms) => ms + origin)
  const [old = 0, length = 0] = rest.slice(6)
  const known = mode === 'on' || mode === 'off' ? mode : 'ask'
  return { shape, mode: known, origin, heard, arrived, noted, hole, calm, checked, old, length }
}

function read(definition: Definition, text: string): Memory {
  const head = readHead(text)
  const lines = text.split('\n')
  const told: Told[] = JSON.parse(lines[1] ?? '[]')
  const { fields, ...known }: Known & { readonly fields: readonly string[] } = JSON.parse(lines[2] ?? '')
  const samples = readSamples(lines[3] ?? '', head.origin)
  if (head.shape === definition.shape) return { head, told, known, samples }
  // Another definition had other fields, in another order.
  const moved = (field: number): number => (field < 0 ? field : definition.fields.indexOf(fields[field] ?? ''))
  const values = Object.entries(known.values).flatMap(([field, seen]) => {
    const index = moved(Number(field))
    return index < 0 ? [] : [[index, seen] as const]
  })
  return {
    head: { ...head, shape: definition.shape },
    told,
    known: { ...known, values: Object.fromEntries(values) },
    samples: samples.flatMap((sample) => {
      const field = moved(sample.field)
      return sample.field >= 0 && field < 0 ? [] : [{ ...sample, field }]
    }),
  }
}

/** A place is a pair, and another structure a list of one. */
function writtenSample({ at, field, value }: Sample, origin: number): string {
  const isPair = isPlace(value) && Object.keys(value).length === 2
  const short = isPair ? [value.latitude, value.longitude] : typeof value === 'object' ? [value] : value
  return `${at - origin},${field},${JSON.stringify(short)},`
}

function readSamples(text: string, origin: number): Sample[] {
  const items: readonly FieldValue[] = JSON.parse(`[${text}0]`)
  const samples: Sample[] = []
  for (let index = 0; index + 2 < items.length; index += 3) {
    const written = items[index + 2] ?? null
    const [first, second]: readonly FieldValue[] = Array.isArray(written) ? written : [written]
    const value = second === undefined ? (first ?? null) : { latitude: Number(first), longitude: Number(second) }
    samples.push({ at: Number(items[index]) + origin, field: Number(items[index + 1]), value })
  }
  return samples
}

const writtenSamples = (samples: readonly Sample[], origin: number): string =>
  samples.map((sample) => writtenSample(sample, origin)).join('')

/** The values of a message that an episode needs, each with its time. */
function samplesOf(
  { fields }: Definition,
  { event, before, after, at }: Pick<EdgeStep, 'event' | 'before' | 'after' | 'at'>,
  sentMs: number,
  arrivedMs: number,
  heardMs: number,
): Sample[] {
  const samples: Sample[] = []
  const add = (name: string, given: FieldValue, ms: number, isDocument: boolean): void => {
    const field = fields.indexOf(name)
    if (field < 0 || (given === null && !nullMeansNone.has(name)) || lengthOf(given) > longestValue) return
    const isNewest = after.at(name)?.getTime() === (isDocument ? ms : at.getTime())
    // A document rounds. And a clock that was ahead and is right again says an earlier time of what is newer.
    const value = isDocument && isNewest ? (after.value(name) ?? given) : given
    const knownMs = ms < heardMs && isNewest ? (before.at(name)?.getTime() ?? 0) : 0
    samples.push({ at: knownMs > ms ? knownMs + 1 : ms, field, value })
  }
  if (event.topic === 'data') {
    const data: Readonly<Record<string, FieldValue | null | undefined>> = event.data
    for (const name of fields) {
      const value = data[name]
      if (value !== undefined && !(value === null && Object.hasOwn(event.undecoded, name))) add(name, value, sentMs, false) // prettier-ignore
    }
  } else if (event.topic === 'vehicle_data')
    for (const { field, value, atMs } of documentValues(event.vehicleData, sentMs))
      add(field, value, credibleMs(atMs, arrivedMs), true)
  return samples
}

/** What the receiver knew of a vehicle before it was given the episode. */
function keptSamples({ fields, decides }: Definition, before: AnyVehicleView): Sample[] {
  return fields.flatMap((name, field) => {
    const value = before.value(name)
    const at = decides.has(field) ? before.since(name) : before.at(name)
    const isKept = value !== undefined && before.isCertain(name) && lengthOf(value) <= longestValue
    return isKept && at !== undefined ? [{ at: at.getTime(), field, value }] : []
  })
}

/** Messages without one of the fields, as far as they say that there was no silence. */
function signs({ silence }: Definition, head: Head, sentMs: number, hasSamples: boolean): Sample[] {
  if (silence === Infinity) return []
  const found: Sample[] = []
  // The last one before a silence.
  if (head.heard > head.noted && sentMs - head.heard >= Math.min(silence, signMs))
    found.push({ at: head.heard, field: heardOf, value: 0 })
  if (!hasSamples && (sentMs > head.noted + signMs || sentMs < head.hole))
    found.push({ at: sentMs, field: heardOf, value: 0 })
  return found
}

/** Whether a message can decide nothing, so that its samples are only kept. */
function isCalm(
  definition: Definition,
  head: Head,
  samples: readonly Sample[],
  step: EdgeStep,
  sentMs: number,
): boolean {
  const { shape, decides, corrects, silence, during, until } = definition
  if (head.shape !== shape || step.timer === undefined || step.timer.acrossGap === true) return false
  if (head.length > mostSamples || (head.length > 0 && step.arrivedMs - head.checked > corrects)) return false
  if (sentMs - head.heard >= silence || (sentMs < head.hole && samples.length === 0)) return false
  let isDeciding = false
  for (const { at, field } of samples) {
    if (!decides.has(field)) {
      if (at < head.calm) return false
    } else if (at < head.heard || head.mode === 'ask') return false
    else isDeciding = true
  }
  if (!isDeciding) return true
  if (head.mode === 'off') return during.test(step.after) === false
  return until === undefined ? during.test(step.after) === true : until.test(step.after) === false
}

function detected(definition: Definition, step: EdgeStep): EdgeResult<EpisodeOccurrence> | undefined {
  const { event, memory: text, arrivedMs, timer } = step
  const isTimer = event.topic === 'timer'
  const sentMs = credibleMs(step.at.getTime(), arrivedMs)
  if (typeof text !== 'string') {
    const kept = isTimer ? [] : keptSamples(definition, step.before)
    const samples = [...kept, ...samplesOf(definition, step, sentMs, arrivedMs, 0)]
    if (samples.length === 0) return undefined
    const times = { heard: sentMs, arrived: arrivedMs, noted: sentMs, hole: 0, calm: Infinity, checked: arrivedMs }
    const head: Head = { shape: definition.shape, mode: 'ask', origin: sentMs, ...times, old: 0, length: 0 }
    return evaluated(
      definition,
      step.after.vin,
      { head, told: [], known: nothingKnown(), samples: [] },
      samples,
      arrivedMs,
    )
  }
  const head = readHead(text)
  const own = samplesOf(definition, step, sentMs, arrivedMs, head.heard)
  const samples = isTimer ? [] : [...signs(definition, head, sentMs, own.length > 0), ...own]
  const isGap = timer === undefined || timer.acrossGap === true
  if (isTimer || isGap || !isCalm(definition, head, own, step, sentMs)) {
    const memory = read(definition, text)
    const gap = { at: head.heard, field: gapOf, value: head.heard + Math.max(0, arrivedMs - head.arrived) }
    hear(memory.head, definition, isTimer ? 0 : sentMs, arrivedMs)
    // A time that is up by the vehicle's clock, and not by ours.
    const dueMs = isTimer && timer?.byArrival !== true ? sentMs : 0
    return evaluated(definition, step.after.vin, memory, isGap ? [gap, ...samples] : samples, arrivedMs, dueMs)
  }
  const line = writtenSamples(samples, head.origin)
  hear(head, definition, sentMs, arrivedMs)
  for (const { at } of samples) head.noted = Math.max(head.noted, at)
  head.length += line.length
  return { memory: writtenHead(head) + text.slice(text.indexOf('\n')) + line }
}

function hear(head: Head, { silence }: Definition, sentMs: number, arrivedMs: number): void {
  if (sentMs <= head.heard) return
  if (sentMs - head.heard >= silence) head.hole = sentMs
  head.heard = sentMs
  head.arrived = arrivedMs
}

/** Finds the episodes in all that is remembered, and what is to be told of them now. */
function evaluated(
  definition: Definition,
  vin: string,
  { head, told, known, samples }: Memory,
  added: readonly Sample[],
  arrivedMs: number,
  dueMs: number = 0,
): EdgeResult<EpisodeOccurrence> {
  const { joins, silence, corrects, fields } = definition
  // The vehicle's time: that of its newest message, and what has passed since that arrived.
  const now = Math.max(dueMs, head.heard + Math.max(0, arrivedMs - head.arrived))
  const folding = new Fold(definition, vin, known)
  for (const sample of added) {
    head.noted = Math.max(head.noted, sample.at)
    if (sample.at < known.at) folding.late(sample)
    else samples.push(sample)
  }
  const sorted = samples.toSorted((one, other) => one.at - other.at)
  let stored = JSON.stringify({ ...known, fields })
  folding.run(sorted)
  known.heard = Math.max(known.heard, head.heard)
  folding.pass(now)
  const { running } = folding
  const found = [...folding.finished, ...(running === undefined ? [] : [running])]
  const decision = decided(definition, vin, found, told, now)
  // What nothing can correct any more is folded.
  const isOn = running !== undefined && running.end === undefined
  const isOld = arrivedMs - head.checked > corrects
  let foldTo = isOld ? Math.max(0, ...samples.slice(0, head.old).map(({ at }) => at)) : 0
  if (head.length > mostSamples || told.length > mostTold)
    foldTo = Math.max(foldTo, sorted[sorted.length >> 1]?.at ?? 0)
  const isExpired = (entry: Told | undefined): boolean => entry !== undefined && entry.wrong === undefined && entry.at + corrects <= now // prettier-ignore
  for (const each of found) {
    const entry = decision.pairs.get(each)
    if (each.end !== undefined && isExpired(entry)) foldTo = Math.max(foldTo, each.closed ?? head.noted)
  }
  for (const each of found)
    if (each.closed !== undefined && !isTold(decision.pairs.get(each))) foldTo = Math.min(foldTo, each.closed - 1) // prettier-ignore
  let left = samples
  let kept: readonly Told[] = told.filter((entry) => !(entry.revoked === true && isExpired(entry)))
  if (foldTo >= (sorted[0]?.at ?? Infinity) || (running !== undefined && sorted.length === 0)) {
    const folded = new Fold(definition, vin, JSON.parse(stored))
    folded.run(sorted.filter(({ at }) => at <= foldTo))
    left = samples.filter(({ at }) => at > foldTo)
    const isOver = ({ start }: Running): boolean => folded.finished.some((each) => each.start === start)
    const gone = new Set(found.filter(isOver).map((each) => decision.pairs.get(each)))
    const last = running && decision.pairs.get(running)
    const isIdle = last === undefined ? now - (running?.end ?? now) > Math.max(joins, corrects) : isExpired(last)
    if (!isOn && left.length === 0 && isIdle) {
      folded.known.heard = head.heard
      folded.pass(now)
      delete folded.known.running
      gone.add(last)
    }
    kept = kept.filter((entry) => !gone.has(entry))
    stored = JSON.stringify({ ...folded.known, fields })
    head.checked = arrivedMs
    head.old = left.length
  } else if (isOld) {
    head.checked = arrivedMs
    head.old = samples.length
  }
  const ends = kept.flatMap((entry) => (entry.wrong === undefined && entry !== (isOn && decision.pairs.get(running)) ? [entry.at + corrects] : [])) // prettier-ignore
  const silent = isOn ? Math.max(head.heard, known.listens) + silence : Infinity
  const next = Math.min(silent, ...ends.map((end) => Math.max(end, now + 1_000)))
  const byArrival = decision.due === Infinity
  const due = byArrival ? Math.ceil(head.arrived + next - head.heard) : decision.due
  const isPaused = running?.end !== undefined && !running.cut && !running.split && now - running.end <= joins
  head.mode = isOn ? 'on' : isPaused || known.was !== false ? 'ask' : 'off'
  head.calm = decision.calm
  const line = writtenSamples(left, head.origin)
  head.length = line.length
  const memory = [writtenHead(head), JSON.stringify(kept), stored, line].join('\n')
  const timer = { due: due === Infinity ? null : due, since: running?.start ?? head.heard, byArrival }
  return decision.happened === undefined ? { memory, timer } : { happened: decision.happened, memory, timer }
}

const isTold = (entry: Told | undefined): boolean => entry !== undefined && entry.wrong === undefined

interface Decision {
  readonly happened: EpisodeOccurrence | undefined
  /** When something else is to be told. */
  readonly due: number
  readonly calm: number
  readonly pairs: ReadonlyMap<Running, Told>
}

/** Something that is to be told, or corrected. */
interface Todo {
  readonly due: number
  readonly start: number
  readonly end: number
  readonly entry: Told | undefined
  /** `undefined`: what was told is revoked. */
  readonly of: Running | undefined
}

/** Compares what was found with what was told. One is told at a time, and what shares a moment with it is corrected first. */
function decided(definition: Definition, vin: string, found: readonly Running[], told: Told[], now: number): Decision {
  const { waits, joins, atLeast } = definition
  const long = found.filter(({ start, end }) => end === undefined || end - start >= atLeast)
  const pairs = paired(long, told)
  const todo: Todo[] = []
  for (const each of long) {
    const { start, end, closed, cut, split } = each
    if (end === undefined) continue
    const entry = pairs.get(each)
    const isReady = closed !== undefined || cut === true
    const joined = joins > 0 && split !== true ? end + joins + 1 : end
    const ready = isReady ? now : Math.max(joined, hasAll(definition, each, true) ? 0 : end + waits)
    if (entry === undefined) todo.push({ due: ready, start, end, entry, of: each })
    else if (entry.hash === contentOf(definition, each).hash) delete entry.wrong
    else {
      entry.wrong ??= now
      todo.push({ due: Math.max(ready, entry.wrong + waits), start, end, entry, of: each })
    }
  }
  const isThere = new Set(pairs.values())
  for (const entry of told) {
    if (isThere.has(entry) || entry.revoked === true) continue
    entry.wrong ??= now
    todo.push({ due: entry.wrong + waits, start: entry.start, end: entry.end, entry, of: undefined })
  }
  const due = todo.filter((each) => each.due <= now).toSorted((one, other) => one.start - other.start)
  const first = due[0]
  const isInTheWay = ({ entry }: Todo): boolean => entry !== undefined && first !== undefined && entry.start < first.end && entry.end > first.start // prettier-ignore
  const next = first?.entry === undefined ? (todo.find(isInTheWay) ?? first) : first
  const happened = next && tell(definition, vin, next, told, pairs, now)
  const rest = todo.filter((each) => each !== next)
  const calm = Math.max(
    ...long.map((each) => {
      if (each.end === undefined || !pairs.has(each)) return -Infinity
      return each.closed ?? (hasAll(definition, each, false) ? each.end + waits + 1 : Infinity)
    }),
  )
  const others = rest.map((each) => Math.max(each.due, now))
  return { happened, due: Math.min(...others), calm: rest.length > 0 ? Infinity : calm, pairs }
}

/** What was told of each episode: the one with the same start, or the first one that shares a moment with it. */
function paired(found: readonly Running[], told: readonly Told[]): Map<Running, Told> {
  const pairs = new Map<Running, Told>()
  const free = new Set(told)
  const pair = (isSame: (entry: Told, each: Running) => boolean): void => {
    for (const each of found) {
      const entry = pairs.has(each) ? undefined : [...free].find((one) => isSame(one, each))
      if (entry === undefined) continue
      pairs.set(each, entry)
      free.delete(entry)
    }
  }
  pair((entry, { start }) => entry.start === start)
  pair((entry, { start }) => entry.first === start)
  pair((entry, { start, end = Infinity }) => entry.revoked !== true && entry.start < end && entry.end > start)
  return pairs
}

function tell(
  definition: Definition,
  vin: string,
  { entry, of: each, start, end }: Todo,
  told: Told[],
  pairs: Map<Running, Told>,
  now: number,
): EpisodeOccurrence {
  const nth = told.filter(({ first }) => first === start).length
  const next: Told = entry ?? { first: start, nth, revision: 0, start, end, hash: '', at: now }
  if (entry === undefined) told.push(next)
  if (each !== undefined) pairs.set(each, next)
  next.revision += 1
  next.at = now
  next.hash = each === undefined ? '' : contentOf(definition, each).hash
  delete next.wrong
  delete next.revoked
  if (each === undefined) next.revoked = true
  else [next.start, next.end] = [start, end]
  return occurrence(definition, vin, each ?? { start, end, paused: 0, notes: {} }, end, next)
}

/** Whether each span and growth has its value of the end, and, if it need not be told yet, each path too. */
const hasAll = ({ measures }: Definition, { notes }: Running, isToTell: boolean): boolean =>
  measures.every(([, measure, key]) => isComplete(measure, notes[key] ?? {}, isToTell))

/** What is told of an episode. */
function contentOf(
  definition: Definition,
  running: Running,
): { readonly missing: readonly string[]; readonly values: Readonly<Record<string, unknown>>; readonly hash: string } {
  // prettier-ignore
  const missing: string[] = []
  const values: Record<string, unknown> = {}
  const told: unknown[] = [running.start, running.end, running.paused, running.cut, running.gap]
  for (const [name, measure, key] of definition.measures) {
    const { value, isMissing, mark = value } = resultOf(measure, running.notes[key] ?? {}, running, definition)
    if (isMissing) missing.push(name)
    values[name] = value
    told.push(mark, isMissing)
  }
  return { missing, values, hash: markOf(JSON.stringify(told)) }
}

function occurrence(
  definition: Definition,
  vin: string,
  running: Running,
  endMs: number,
  entry: Pick<Told, 'first' | 'nth' | 'revision' | 'revoked'>,
): EpisodeOccurrence {
  const { start, paused, cut = false, gap = false } = running
  const { missing, values } = contentOf(definition, running)
  const first = new Date(entry.first).toISOString()
  return {
    vin,
    id: `${vin}:${definition.name}:${first}${entry.nth === 0 ? '' : `:${entry.nth}`}`,
    revision: entry.revision,
    at: new Date(endMs),
    startedAt: new Date(start),
    endedAt: new Date(endMs),
    durationMs: endMs - start,
    pausedMs: paused,
    cut,
    revoked: entry.revoked === true,
    acrossGap: gap,
    missing,
    ...values,
  }
}

/** The episode of a vehicle that lasts. */
function lasting(definition: Definition, vehicle: unknown): EpisodeOccurrence | undefined {
  if (!(vehicle instanceof Snapshot)) return undefined
  const { state, gapTo } = vehicle.parts()
  const text = state.memory?.[definition.name]
  if (typeof text !== 'string') return undefined
  const { head, told, known, samples } = read(definition, text)
  const folding = new Fold(definition, state.vin, known)
  folding.run(samples.toSorted((one, other) => one.at - other.at))
  const { running } = folding
  if (running === undefined) return undefined
  const { end, cut, split, start } = running
  if (end !== undefined && (cut === true || split === true || head.heard - end > definition.joins)) return undefined
  if (gapTo >= state.seq) running.gap = true
  return occurrence(definition, state.vin, running, end ?? head.heard, paired([running], told).get(running) ?? { first: start, nth: 0, revision: 0 }) // prettier-ignore
}

/** All episodes of a list of events. */
function history(definition: Definition, given: Iterable<FleetEvent<FieldCatalogue>>): EpisodeOccurrence[] {
  const events = [...given].toSorted((one, other) => one.receivedAt.getTime() - other.receivedAt.getTime())
  const vins = new Set(events.flatMap(({ vin }) => vin ?? []))
  return [...vins].toSorted().flatMap((vin) => {
    const own = events.filter((event) => event.vin === vin || (event.vin === undefined && event.topic === 'gap'))
    const folding = new Fold(definition, vin, nothingKnown())
    folding.run(historySamples(definition, vin, own).toSorted((one, other) => one.at - other.at))
    folding.pass(Infinity)
    const { finished, running } = folding
    return [...finished, ...(running === undefined ? [] : [running])].flatMap((each) => {
      const { start, end } = each
      if (end === undefined || end - start < definition.atLeast) return []
      return [occurrence(definition, vin, each, end, { first: start, nth: 0, revision: 1 })]
    })
  })
}

function historySamples(definition: Definition, vin: string, events: readonly FleetEvent<FieldCatalogue>[]): Sample[] {
  const samples: Sample[] = []
  let state = VehicleState.unknown(vin, new Slots({ fields: definition.fields }))
  let [heard, arrived, seq] = [0, 0, 0]
  for (const event of events) {
    const receivedMs = event.receivedAt.getTime()
    if (event.topic === 'gap' && heard > 0)
      samples.push({ at: heard, field: gapOf, value: heard + Math.max(0, receivedMs - arrived) })
    seq = Math.max(seq + 1, firstSeqAt(receivedMs))
    const { after, sentMs } = applied(state, { event, seq, gapTo: -1 })
    const views = { before: new Snapshot(state, receivedMs, -1), after: new Snapshot(after, receivedMs, -1) }
    state = after
    if (event.topic === 'gap' || event.topic === 'timer' || event.topic === 'unknown') continue
    const sent = credibleMs(sentMs, receivedMs)
    const own = samplesOf(definition, { event, ...views, at: new Date(sentMs) }, sent, receivedMs, heard)
    samples.push(...own)
    if (own.length === 0) samples.push({ at: sent, field: heardOf, value: 0 })
    if (sent > heard) [heard, arrived] = [sent, receivedMs]
  }
  return samples
}
