import { checkOption, checkOptions, isObject, required, type Rule } from '../base/options.ts'
import type { FleetEvent } from '../events/event.ts'
import type { FieldCatalogue } from '../events/fields.ts'
import type { FieldValue } from '../events/values.ts'
import { firstSeqAt, msOfSeq } from '../inbox/delivery-id.ts'
import { documentValues } from '../vehicles/document.ts'
import type { AnyVehicleView, Condition, Edge, EdgeResult, EdgeStep, Occurrence, VehicleView } from '../vehicles/edge.ts' // prettier-ignore
import { markOf } from '../vehicles/edge-index.ts'
import { credibleMs, quietMs } from '../vehicles/lag.ts'
import { applied, lengthOf, nullMeansNone, Slots, Snapshot, VehicleState } from '../vehicles/state.ts'
import { wireTopics } from '../wire/envelope.ts'
import { isPlace } from './areas.ts'
import { createClockwork } from './clockwork.ts'
import { checkConditions, invalid } from './conditions.ts'
import { begun, type Measure, mostOfPath, note, noteLate, type Notes, resultOf, resumed, type Seen } from './measures.ts' // prettier-ignore
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
  /** An interruption in which this is true does not belong to it: the vehicle is unplugged. A `growth` with `startsAt` begins again after it. */
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
  /** It goes on: only of `open`. */
  readonly lasts: boolean
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

/** An edge that reports episodes: the result of {@link episode}. */
export interface EpisodeEdge<Of extends Measures = Measures> extends Edge<Episode<Of>> {
  /** The newest episode of a vehicle as it is known now: it lasts, or is over and not told yet, or not told so yet. `undefined`: there is none. */
  open<Fields extends FieldCatalogue>(vehicle: VehicleView<Fields>): Episode<Of> | undefined
  /** All episodes in a list of events, those of gaps too, in any order, as if no message came after them. Sorted by vehicle and start. */
  in(events: Iterable<FleetEvent>): readonly Episode<Of>[]
  /** Throws `option_invalid`: a condition of an episode belongs into `during`. */
  where(): never
}

/** The most characters of samples. When there are more, the older half is folded. */
const mostSamples = 5_000
/** The longest value. */
const longestValue = 256
const mostMeasures = 20
/** The most episodes that are corrected at the same time. */
const mostTold = 20
/** Of messages without one of the fields, one in this time is kept, so that there is no silence. */
const signMs = 60_000
/** The end of 2001: numbers of messages that are less count from 1. */
const firstTimeMs = 1e12
/** Later than every time, and a number in JSON. */
const never = 1e16

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
  const edge: EpisodeEdge = {
    name,
    fields: [],
    reads: definition.fields,
    topics: wireTopics,
    timing: createClockwork,
    shape: definition.shape,
    detect: (step) => detected(definition, step),
    isOutdated: ({ vin, id, revision }: EpisodeOccurrence, memory) =>
      typeof memory === 'string' && new Memory(definition, vin, memory).revisionOf(id) > revision,
    open(vehicle: unknown) {
      if (!(vehicle instanceof Snapshot)) return undefined
      const { state, gapTo } = vehicle.parts()
      const text = state.memory?.[name]
      return typeof text === 'string' ? new Memory(definition, state.vin, text).open(gapTo >= state.seq) : undefined
    },
    in: (events) => history(definition, events),
    where() {
      throw invalid('An episode has no `where`', 'Write the condition into `during`: all(…), or return in the handler.')
    },
  }
  // What is found has the measures of the definition, which the compiler cannot see.
  return edge as EpisodeEdge<Of> // oxlint-disable-line no-unsafe-type-assertion
}

const members = ['vin', 'id', 'revision', 'lasts', 'at', 'startedAt', 'endedAt', 'durationMs', 'pausedMs', 'cut', 'revoked', 'acrossGap', 'missing', '__proto__'] // prettier-ignore

/** A definition as the code reads it. Times are in milliseconds. */
type Definition = ReturnType<typeof definitionOf>
type Use = Definition['uses'][number]

function definitionOf(name: string, options: EpisodeOptions) {
  const aName = (value: unknown): boolean => typeof value === 'string' && value.length > 0 && value.length <= 100
  const aCondition: Rule = { must: 'must be a condition', accepts: isObject, hint: "For instance is('Gear', 'D')." }
  const aTime: Rule = { must: 'must be a time', accepts: isObject, hint: 'For instance { minutes: 3 }.' }
  checkOption('episode', 'name', name, required({ must: 'must be a text of 1 to 100 characters', accepts: aName }))
  checkOptions<EpisodeOptions>('episode', options, {
    during: required(aCondition),
    until: aCondition,
    splits: aCondition,
    joins: aTime,
    atLeast: aTime,
    waits: aTime,
    silence: aTime,
    corrects: aTime,
    measures: required({ must: 'must be an object of measures', accepts: isObject }, "For instance { odometer: span('Odometer') }."), // prettier-ignore
  })
  const { during, until, splits } = options
  const conditions = [during, until, splits].filter((condition) => condition !== undefined)
  checkConditions('episode', conditions)
  const measures = Object.entries(options.measures).map(([each, measure]) => {
    if (members.includes(each) || !isObject(measure) || typeof measure.kind !== 'string')
      throw invalid(
        `\`${each}\` of \`${name}\` is no measure, or has the name of a member of each episode`,
        'Make it with span, growth, range or path, and give it another name.',
      )
    // Notes are kept for the same measure of the same field.
    return { name: each, measure, key: [each, ...Object.values(measure)].join(' ').trim() }
  })
  const points = measures.reduce((sum, { measure: { mostPoints = 0 } }) => sum + mostPoints, 0)
  if (measures.length > mostMeasures || points > 2 * mostOfPath)
    throw invalid(
      `The episode \`${name}\` has ${measures.length} measures with ${points} points`,
      `At most ${mostMeasures} measures, and ${2 * mostOfPath} points of all paths, are kept.`,
    )
  const ms = (duration: Duration | undefined, otherwise: number): number =>
    duration === undefined ? otherwise : readDuration('episode', duration).ms
  const times = {
    joins: ms(options.joins, 0),
    atLeast: ms(options.atLeast, 0),
    waits: ms(options.waits, 120_000),
    silence: ms(options.silence, Infinity),
    corrects: ms(options.corrects, 3_600_000),
  }
  const deciding = conditions.flatMap((condition) => condition.fields)
  const fields = [...new Set([...deciding, ...measures.map(({ measure }) => measure.field)])]
  const said = [during.name, until?.name, splits?.name, times, measures.map(({ key }) => key)]
  return {
    name,
    during,
    until,
    splits,
    ...times,
    corrects: Math.max(times.waits, times.corrects),
    measures,
    fields,
    slots: new Slots({ fields }),
    /** By the number of a field: whether it decides a condition, and the measures of it. */
    uses: fields.map((field) => ({
      field,
      decides: deciding.includes(field),
      measures: measures.filter(({ measure }) => measure.field === field),
    })),
    /** Differs for another definition. */
    shape: markOf(JSON.stringify(said)),
  }
}

/** A value as it is kept until it is folded. Its place is that of its time, and of two with the same time and field the later arrival counts. */
type Sample = readonly [at: number, field: number, value: FieldValue]

/** In place of a field: a message without one of the fields, so that there is no silence. */
const heardOf = -1
/** In place of a field: values up to now are uncertain, because messages may be missing. The value is when the receiver listened again. */
const gapOf = -2

/** An episode that began. It is interrupted or over since `end`, and certainly over when it is `cut`, `split`, or the next one began: `closed`. */
interface Running {
  start: number
  end?: number
  paused: number
  cut?: true
  split?: true
  closed?: number
  /** Messages may be missing, or only since it was over. */
  gap?: true
  gapAfter?: true
  notes: Record<string, Notes>
  /** What its handler got. Not stored. */
  told?: Told
}

/** What is known up to a time. */
interface Known {
  at: number
  values: Record<string, Seen>
  /** What the condition was last. `null`: not known. */
  was: boolean | null
  /** Values up to these times are uncertain, or too old to be those of a start. And `splits` was true last at `splitAt`. */
  gapAt: number
  staleAt: number
  splitAt: number
  /** The last message, and since when the receiver listens. */
  heard: number
  listens: number
  /** Since when the values of a field are kept that came with a new definition. */
  since?: Record<string, number>
  running?: Running
}

// prettier-ignore
const nothingKnown = (): Known => ({ at: 0, values: {}, was: null, gapAt: 0, staleAt: 0, splitAt: 0, heard: 0, listens: 0 })

/** Finds the episodes in samples, moment by moment. */
class Fold {
  readonly #definition: Definition
  readonly #vin: string
  #view: AnyVehicleView
  readonly known: Known
  /** Those after which another one began. */
  readonly finished: Running[] = []

  constructor(definition: Definition, vin: string, known: Known) {
    this.#definition = definition
    this.#vin = vin
    this.known = known
    this.#view = this.#look()
  }

  get all(): readonly Running[] {
    const { running } = this.known
    return running === undefined ? this.finished : [...this.finished, running]
  }

  /** The place of samples that are older than what is known is gone. */
  run(samples: readonly Sample[]): this {
    const sorted = samples.toSorted(([one], [other]) => one - other)
    for (let from = 0, to = 0; from < sorted.length; from = to) {
      const at = sorted[from]?.[0] ?? 0
      while (sorted[to]?.[0] === at) to += 1
      const moment = sorted.slice(from, to)
      if (at >= this.known.at) this.#take(moment, at)
      else for (const sample of moment) this.#late(sample)
    }
    return this
  }

  /** Time goes on to this moment. */
  pass(at: number): this {
    const { known } = this
    const { running } = known
    const isOn = running !== undefined && running.end === undefined
    if (!isOn || at - Math.max(known.heard, known.listens) < this.#definition.silence) return this
    running.end = known.heard
    running.cut = true
    // It begins again with the next value of its condition.
    known.was = false
    return this
  }

  /** What conditions see. What is certain was reported after the last gap, so times stand for the numbers of messages. */
  #look(): AnyVehicleView {
    const { slots } = this.#definition
    const { values, heard, gapAt } = this.known
    const state = VehicleState.unknown(this.#vin, slots).with({
      values: slots.names.map((field) => values[field]?.[1]),
      times: slots.names.flatMap((field) => Array<number>(3).fill(values[field]?.[0] ?? 0)),
    })
    return new Snapshot(state, heard, gapAt)
  }

  /** All values with the same time count before the condition is asked. */
  #take(samples: readonly Sample[], at: number): void {
    this.pass(at)
    const { known } = this
    const { uses, splits } = this.#definition
    known.at = at
    known.heard = Math.max(known.heard, at)
    const before = known.running
    const reported = new Map<Use, Seen | undefined>()
    for (const [, field, value] of samples) {
      const use = uses[field]
      if (use === undefined) continue
      if (!reported.has(use)) reported.set(use, known.values[use.field])
      known.values[use.field] = [at, value]
    }
    const isDeciding = [...reported.keys()].some(({ decides }) => decides)
    if (isDeciding) this.#view = this.#look()
    if (splits?.test(this.#view) === true) known.splitAt = at
    if (isDeciding) this.#decide(at, reported)
    for (const [use, last] of reported) this.#note(at, use, last, known.running !== before)
    for (const [, field, value] of samples) if (field === gapOf) this.#gap(at, Number(value))
  }

  /** `reported`: what this moment reports, with the value before. */
  #decide(at: number, reported: ReadonlyMap<Use, Seen | undefined> = new Map()): void {
    const { during, until, joins } = this.#definition
    const { known } = this
    const { running, was } = known
    const is = during.test(this.#view)
    if (running !== undefined && running.end === undefined) {
      if (until === undefined ? is === false : until.test(this.#view) === true) running.end = at
    } else if (is === true && was !== true) {
      const isOver = running?.end === undefined || running.cut || running.split || at - running.end > joins
      if (running === undefined || isOver) this.#start(at, reported)
      else this.#resume(running, at)
    }
    const last = known.running
    if (last?.end !== undefined && known.splitAt === at) last.split = true
    if (is !== undefined) known.was = is
  }

  #start(at: number, reported: ReadonlyMap<Use, Seen | undefined>): void {
    const { known } = this
    const before = new Map([...reported].map(([{ field }, last]) => [field, last]))
    if (known.running !== undefined) this.finished.push(Object.assign(known.running, { closed: at }))
    const started: Running = { start: at, paused: 0, notes: {} }
    // Its first messages may be missing.
    if (known.was === null || at <= known.listens) started.gap = true
    for (const { measure, key } of this.#definition.measures) {
      // A counter that is reported with the start has run since the value before, if that is known.
      const last = before.get(measure.field)
      const isKnown =
        last === undefined ? measure.startsAt !== undefined && started.gap !== true : last[0] > known.gapAt
      const isCounter = measure.kind === 'growth' && before.has(measure.field) && isKnown
      const seen = isCounter ? last : known.values[measure.field]
      if (seen !== undefined && seen[0] <= known.gapAt) started.gap = true
      const certain = seen !== undefined && seen[0] > known.staleAt ? seen : undefined
      const notes = (started.notes[key] = begun(measure, certain, at))
      // What a counter stood at is not known, or the measure is newer than the episode.
      const isUnknown = started.gap === true && certain === undefined && measure.startsAt !== undefined
      if (isUnknown || at < (known.since?.[measure.field] ?? 0)) notes.isPartial = true
    }
    known.running = started
  }

  #resume(running: Running, at: number): void {
    running.paused += at - (running.end ?? at)
    delete running.end
    for (const { measure, key } of this.#definition.measures) resumed(measure, (running.notes[key] ??= {}))
  }

  /** `last`: the value before this one. `isNew`: the episode began with this moment. */
  #note(at: number, { field, measures }: Use, last: Seen | undefined, isNew: boolean): void {
    const { running, values, splitAt } = this.known
    let seen = values[field]
    if (seen === undefined) return
    const isFirst = last !== undefined && at > splitAt && (last[0] <= splitAt || last[2] === true)
    // While it lasts, the same number is still that of the time before: a new connection reports it again.
    const isOld = isFirst && seen[1] === last[1] && (running?.end === undefined || running.split === true)
    if (isOld) values[field] = seen = [at, seen[1], true]
    if (running === undefined) return
    for (const { measure, key } of measures) {
      // The value of the start is there already.
      if (isNew && (measure.kind === 'range' || running.notes[key]?.from?.[0] === at)) continue
      const notes = (running.notes[key] ??= { isPartial: true })
      const { after } = notes
      if (isFirst && !isOld && measure.startsAt !== undefined) notes.last = measure.startsAt
      note(measure, notes, seen, running, this.#definition)
      if (running.gapAfter === true && notes.after !== after) running.gap = true
    }
  }

  #gap(at: number, listens: number): void {
    const { known } = this
    const { running } = known
    known.gapAt = at
    // In less time a vehicle does not go far.
    if (listens - at > this.#definition.waits) known.staleAt = at
    known.was = null
    known.listens = Math.max(known.listens, listens)
    this.#view = this.#look()
    if (running === undefined) return
    if (running.end === undefined || at - running.end <= this.#definition.joins) running.gap = true
    else running.gapAfter = true
  }

  /** What was known then is folded. */
  #late([at, field, value]: Sample): void {
    const { known } = this
    const { running } = known
    const { uses, corrects } = this.#definition
    const use = uses[field]
    if (field === gapOf) this.#gap(known.at, Number(value))
    if (use === undefined) return
    const isNewest = at >= (known.values[use.field]?.[0] ?? 0)
    const isFinal = running?.end !== undefined && known.heard > running.end + corrects
    if (isNewest) known.values[use.field] = [at, value]
    if (use.decides) {
      this.#view = this.#look()
      if (isNewest && at > (running?.start ?? 0)) this.#decide(at)
      const isIn = running !== undefined && !isFinal && at >= running.start && at <= (running.end ?? at)
      if (known.running && (isIn || known.running !== running)) known.running.gap = true
    }
    if (running === undefined || isFinal) return
    for (const { measure, key } of use.measures)
      noteLate(measure, (running.notes[key] ??= { isPartial: true }), [at, value], running, this.#definition)
  }
}

/** What its handler got of an episode that may still be corrected: last `at` this time of the receiver. It is another one since `wrong`. */
interface Told {
  readonly first: number
  readonly revision: number
  readonly start: number
  readonly end: number
  readonly at: number
  /** Of its content, or `revoked`. Empty: of whatever is found. */
  hash: string
  wrong?: number
}

const revoked = 'revoked'
const untold = (first: number, revision: number): Told => ({ first, revision, start: 0, end: 0, at: 0, hash: '' })

/** What most messages change: the newest time of the vehicle, when that arrived, and the time of the sample that came last. */
interface Last {
  heard: number
  arrived: number
  noted: number
}

/** What most messages need to know. */
interface Head {
  readonly shape: string
  /** What the condition is: `on` while it lasts, `off`, or `ask`: a value of the condition decides something. */
  mode: 'on' | 'off' | 'ask'
  /** Values that are older may change what was told. And something may be told when the vehicle's time is at `wakes`. */
  calm: number
  wakes: number
  /** When the newest silence ended that was long enough: an older message may say that there was none. */
  hole: number
  /** The end of the newest gap that is among the samples, by the receiver's clock. */
  gapMs: number
  /** When samples were folded last, by arrival, and how many were left then. */
  checked: number
  old: number
}

/** Something that is to be told, corrected or, when it `isGone`, revoked. A value may make it due at `wakes`. */
interface Todo {
  readonly of: Running
  readonly due: number
  readonly wakes: number
  readonly isGone?: true
}

/** What an edge remembers of a vehicle: lines of JSON. What most messages write comes first: of a row whose end stays the same, Postgres logs only the rest. */
class Memory {
  readonly #definition: Definition
  readonly #vin: string
  readonly last: Last
  readonly head: Head
  /** The newest one comes first. */
  #samples: string
  #told: readonly Told[]
  #known: string

  constructor(definition: Definition, vin: string, text: string) {
    const [last = '', samples = '', head = '', told = '', known = ''] = text.split('\n')
    const { fields, shape } = definition
    this.#definition = definition
    this.#vin = vin
    this.last = JSON.parse(last)
    this.head = JSON.parse(head)
    this.#told = JSON.parse(told)
    this.#known = known
    this.#samples = samples
    if (this.head.shape === shape) return
    // Another definition had other fields, in another order. What was told stays as it was told.
    this.head = { ...this.head, shape }
    for (const each of this.#told) each.hash = ''
    const { fields: before, ...found }: Known & { readonly fields: readonly string[] } = JSON.parse(known)
    for (const field of fields) if (!before.includes(field)) found.since = { ...found.since, [field]: this.last.heard }
    this.#known = textOfKnown(found, definition)
    const moved = samplesOf(samples, this.last.noted).map(([at, field, value]): Sample => {
      return [at, field < 0 ? field : fields.indexOf(before[field] ?? ''), value]
    })
    this.#keep(moved)
  }

  static blank(definition: Definition, sentMs: number, arrivedMs: number, gapMs: number): string {
    const last: Last = { heard: sentMs, arrived: arrivedMs, noted: sentMs }
    const { shape } = definition
    const head: Head = { shape, mode: 'ask', calm: never, wakes: 0, hole: 0, gapMs, checked: arrivedMs, old: 0 }
    return [JSON.stringify(last), '', JSON.stringify(head), '[]', textOfKnown(nothingKnown(), definition)].join('\n')
  }

  /** 0: it is not corrected any more. */
  revisionOf(id: string): number {
    return this.#told.find(({ first }) => id === idOf(this.#definition, this.#vin, first))?.revision ?? 0
  }

  #keep(samples: readonly Sample[]): void {
    this.#samples = textOf(samples, 0)
    this.last.noted = samples.at(-1)?.[0] ?? this.last.noted
  }

  #fold(): Fold {
    return new Fold(this.#definition, this.#vin, JSON.parse(this.#known))
  }

  /** Finds the episodes in all that is remembered, and what is to be told now. */
  evaluate(added: readonly Sample[], arrivedMs: number, dueMs: number): EdgeResult<Episode> {
    const { last, head } = this
    const { joins, silence, corrects } = this.#definition
    // The vehicle's time: that of its newest message, and what has passed since that arrived.
    const now = Math.max(dueMs, last.heard + Math.max(0, arrivedMs - last.arrived))
    const samples = [...samplesOf(this.#samples, last.noted), ...added]
    this.#samples = textOf(added, last.noted) + this.#samples
    last.noted = added.at(-1)?.[0] ?? last.noted
    const fold = this.#fold().run(samples)
    fold.known.heard = Math.max(fold.known.heard, last.heard)
    const found = fold.pass(now).all
    const { happened, dueMs: due } = this.#decide(found, now, arrivedMs)
    this.#settle(samples, found, now, arrivedMs)
    const { running, was, listens } = fold.known
    const isOn = running !== undefined && running.end === undefined
    const isPaused = running?.end !== undefined && !running.cut && !running.split && now - running.end <= joins
    head.mode = isOn ? 'on' : isPaused || was !== false ? 'ask' : 'off'
    const told = JSON.stringify(this.#told)
    const memory = [JSON.stringify(last), this.#samples, JSON.stringify(head), told, this.#known].join('\n')
    const silent = isOn ? Math.max(last.heard, listens) + silence - last.heard + last.arrived : Infinity
    const checks = this.#samples !== '' && !isOn ? head.checked + corrects : Infinity
    const byArrival = due === Infinity
    const next = byArrival ? Math.ceil(Math.min(silent, checks)) : due
    const timer = { due: next === Infinity ? null : next, since: running?.start ?? last.heard, byArrival }
    return happened === undefined ? { memory, timer } : { happened, memory, timer }
  }

  /** Compares what was found with what was told. One is told at a time, and what shares a moment with it is corrected first. */
  #decide(found: readonly Running[], now: number, arrivedMs: number) {
    const { waits, joins, atLeast } = this.#definition
    const long = found.filter(({ start, end }) => end === undefined || end - start >= atLeast)
    pair(long, this.#told)
    const todo: Todo[] = []
    for (const of of long) {
      const { end, closed, cut, split, told } = of
      if (end === undefined) continue
      const joined = joins > 0 && split !== true ? end + joins + 1 : end
      const hasItsEnd = now < joined || hasAll(this.#definition, of, true)
      const ready = closed !== undefined || cut === true ? now : Math.max(joined, hasItsEnd ? 0 : end + waits)
      if (told === undefined) {
        todo.push({ of, due: ready, wakes: joined })
        continue
      }
      const { hash } = contentOf(this.#definition, of)
      told.hash ||= hash
      if (told.hash === hash) delete told.wrong
      else {
        const due = Math.max(ready, (told.wrong ??= now) + waits)
        todo.push({ of, due, wakes: due })
      }
    }
    for (const told of this.#told) {
      if (told.hash === revoked || long.some((each) => each.told === told)) continue
      const due = (told.wrong ??= now) + waits
      todo.push({ of: { start: told.start, end: told.end, paused: 0, notes: {}, told }, due, wakes: due, isGone: true })
    }
    const [first] = todo.filter(({ due }) => due <= now).toSorted((one, other) => one.of.start - other.of.start)
    const { start = 0, end = 0, told: corrected } = first?.of ?? {}
    const isInTheWay = ({ of: { told } }: Todo): boolean => told !== undefined && told.start < end && told.end > start
    const next = corrected === undefined ? (todo.find(isInTheWay) ?? first) : first
    const rest = todo.filter((each) => each !== next)
    const happened = next && this.#tell(next, arrivedMs)
    const calm = long.map((each) => {
      if (each.end === undefined || each.told === undefined) return -never
      return each.closed ?? (hasAll(this.#definition, each, false) ? each.end + waits + 1 : never)
    })
    this.head.calm = Math.max(-never, ...calm)
    this.head.wakes = Math.min(never, ...rest.map(({ wakes }) => wakes))
    return { happened, dueMs: Math.min(...rest.map(({ due }) => Math.max(due, now))) }
  }

  #tell({ of, isGone }: Todo, at: number): Episode {
    const { start, end = start, told: before } = of
    const hash = isGone === true ? revoked : contentOf(this.#definition, of).hash
    of.told = { first: before?.first ?? start, revision: (before?.revision ?? 0) + 1, start, end, at, hash }
    this.#told = [...this.#told.filter((one) => one !== before), of.told]
    return occurrence(this.#definition, this.#vin, of, of.told, end)
  }

  /** Folds what arrived long ago: in the order of arrival, so that an upload after hours is still sorted. Nothing is folded that is not told yet. */
  #settle(samples: readonly Sample[], found: readonly Running[], now: number, arrivedMs: number): void {
    const { head } = this
    const { joins, atLeast, corrects } = this.#definition
    const isExpired = (told: Told | undefined): boolean => told?.wrong === undefined && (told?.at ?? 0) + corrects <= arrivedMs // prettier-ignore
    const isOld = arrivedMs - head.checked >= corrects
    const times = samples.map(([at]) => at)
    let foldTo = isOld ? Math.max(0, ...times.slice(0, head.old)) : 0
    if (this.#samples.length > mostSamples || this.#told.length > mostTold)
      foldTo = Math.max(foldTo, times.toSorted((one, other) => one - other)[times.length >> 1] ?? 0)
    for (const { closed = Infinity, start, end = Infinity, told } of found) {
      const isTold = end - start < atLeast || (told?.start === start && told.wrong === undefined)
      if (!isTold) foldTo = Math.min(foldTo, closed - 1)
    }
    this.#told = this.#told.filter((told) => told.hash !== revoked || !isExpired(told))
    if (!isOld && !times.some((at) => at <= foldTo)) return
    const left = samples.filter(([at]) => at > foldTo)
    const fold = this.#fold().run(samples.filter(([at]) => at <= foldTo))
    const gone = new Set(fold.finished.map(({ start }) => start))
    const newest = found.at(-1)
    const idleMs = this.last.heard - (newest?.end ?? this.last.heard)
    if (newest !== undefined && left.length === 0 && idleMs > Math.max(joins, corrects) && isExpired(newest.told)) {
      delete fold.pass(now).known.running
      gone.add(newest.start)
    }
    head.checked = arrivedMs
    head.old = left.length
    this.#told = this.#told.filter((told) => !found.some((each) => each.told === told && gone.has(each.start)))
    this.#known = textOfKnown(fold.known, this.#definition)
    this.#keep(left)
  }

  /** The newest episode, when it is not told yet as it is known now. */
  open(hasGap: boolean): Episode | undefined {
    const { running } = this.#fold().run(samplesOf(this.#samples, this.last.noted)).known
    if (running === undefined) return undefined
    pair([running], this.#told)
    const { start, end = this.last.heard, told } = running
    if (running.end !== undefined && end - start < this.#definition.atLeast) return undefined
    // One that is told as over by silence does not say so in its samples.
    const over: Running = running.end === undefined ? { ...running, end, cut: true } : running
    if (told !== undefined && ['', contentOf(this.#definition, over).hash].includes(told.hash)) return undefined
    if (hasGap) running.gap = true
    return occurrence(this.#definition, this.#vin, running, told ?? untold(start, 0), end)
  }
}

/** Gives each episode what was told before: the entry whose start was the same first, or is, or the first one that shares a moment with it. */
function pair(found: readonly Running[], told: readonly Told[]): void {
  const free = new Set(told)
  const by = (isSame: (entry: Told, each: Running) => boolean): void => {
    for (const each of found) {
      const entry = each.told === undefined ? [...free].find((one) => isSame(one, each)) : undefined
      if (entry === undefined) continue
      each.told = entry
      free.delete(entry)
    }
  }
  by((entry, { start }) => entry.first === start)
  by((entry, { start }) => entry.start === start)
  by((entry, { start, end = Infinity }) => entry.hash !== revoked && entry.start < end && entry.end > start)
}

const textOfKnown = (known: Known, { fields }: Definition): string => JSON.stringify({ ...known, fields })

/** In the text, the newest sample comes first, at this time. The number of each is the time since the one before it. */
function samplesOf(text: string, newestMs: number): Sample[] {
  const kept: readonly (readonly [sinceMs: number, field: number, value: FieldValue, longitude?: number])[] =
    JSON.parse(`[${text}[0,0,0]]`)
  const samples: Sample[] = []
  let at = newestMs
  for (const [sinceMs, field, value, longitude] of kept) {
    samples.push([at, field, longitude === undefined ? value : { latitude: Number(value), longitude }])
    at -= sinceMs
  }
  samples.pop()
  return samples.toReversed()
}

function textOf(samples: readonly Sample[], beforeMs: number): string {
  let [text, before] = ['', beforeMs]
  for (const [at, field, value] of samples) {
    const isPair = isPlace(value) && Object.keys(value).length === 2
    text = `${JSON.stringify([at - before, field, ...(isPair ? [value.latitude, value.longitude] : [value])])},${text}`
    before = at
  }
  return text
}

type Message = Pick<EdgeStep, 'event' | 'before' | 'after' | 'at' | 'arrivedMs'>

/** The values of a message that an episode needs, each with its time. */
function samplesIn({ fields }: Definition, { event, before, after, at, arrivedMs }: Message): Sample[] {
  const sentMs = credibleMs(at.getTime(), arrivedMs)
  const samples: Sample[] = []
  const add = (name: string, value: FieldValue, ms: number): void => {
    const field = fields.indexOf(name)
    if (field < 0 || (value === null && !nullMeansNone.has(name)) || lengthOf(value) > longestValue) return
    samples.push([ms, field, value])
  }
  if (event.topic === 'vehicle_data')
    for (const { field, value, atMs } of documentValues(event.vehicleData, sentMs)) {
      const ms = credibleMs(atMs, arrivedMs)
      // A document rounds.
      add(field, after.at(field)?.getTime() === ms ? (after.value(field) ?? value) : value, ms)
    }
  if (event.topic !== 'data') return samples
  const { undecoded } = event
  const data: Readonly<Record<string, FieldValue | null | undefined>> = event.data
  const names = fields.filter((name) => data[name] != null || (data[name] === null && !Object.hasOwn(undecoded, name)))
  // A clock that was ahead and is right again says an earlier time of what is newer: by as much as a message takes.
  const isNewer = (name: string): boolean => Number(after.at(name)) === at.getTime()
  const known = names.map((name) => (isNewer(name) ? Number(before.at(name)) : 0))
  const ms = Math.max(sentMs, ...known.map((one) => (one > sentMs && one - sentMs <= quietMs ? one + 1 : 0)))
  for (const name of names) add(name, data[name] ?? null, ms)
  return samples
}

/** What the receiver knew of a vehicle before it was given the episode. */
function keptSamples({ uses }: Definition, before: AnyVehicleView): Sample[] {
  return uses.flatMap(({ field, decides }, index) => {
    const value = before.value(field)
    const at = decides ? before.since(field) : before.at(field)
    const isKept = value !== undefined && before.isCertain(field) && lengthOf(value) <= longestValue
    return isKept && at !== undefined ? [[at.getTime(), index, value]] : []
  })
}

/** Whether values can decide nothing, so that they are only kept. */
function isCalm(
  { uses, during, until }: Definition,
  heardMs: number,
  head: Head,
  own: readonly Sample[],
  after: AnyVehicleView,
): boolean {
  let isDeciding = false
  for (const [at, field] of own)
    if (uses[field]?.decides !== true) {
      if (at < head.calm) return false
    } else if (at < heardMs || head.mode === 'ask') return false
    else isDeciding = true
  if (!isDeciding) return true
  if (head.mode === 'off') return during.test(after) === false
  return until === undefined ? during.test(after) === true : until.test(after) === false
}

/** When the newest gap ended. 0: not known. In an inbox that processes share, the numbers of messages are no times. */
function gapEndOf(view: AnyVehicleView): number {
  const ms = view instanceof Snapshot ? msOfSeq(view.parts().gapTo) : 0
  return ms < firstTimeMs ? 0 : ms
}

function detected(definition: Definition, step: EdgeStep): EdgeResult<Episode> | undefined {
  const { event, arrivedMs, timer, before, after } = step
  const { silence, corrects, shape } = definition
  const isTimer = event.topic === 'timer'
  const sentMs = credibleMs(step.at.getTime(), arrivedMs)
  const gapMs = gapEndOf(after)
  const isNew = typeof step.memory !== 'string'
  const text = typeof step.memory === 'string' ? step.memory : Memory.blank(definition, sentMs, arrivedMs, gapMs)
  const samplesAt = text.indexOf('\n') + 1
  const headAt = text.indexOf('\n', samplesAt) + 1
  const last: Last = JSON.parse(text.slice(0, samplesAt))
  const head: Head = JSON.parse(text.slice(headAt, text.indexOf('\n', headAt)))
  const own = samplesIn(definition, step)
  if (isNew && !isTimer) own.unshift(...keptSamples(definition, before))
  if (isNew && own.length === 0) return undefined
  // Messages without one of the fields say that there was no silence: now and then one, and the last one before it.
  const isLast = last.heard > last.noted && sentMs - last.heard >= Math.min(silence, signMs)
  const isSign = own.length === 0 && (sentMs > last.noted + signMs || sentMs < head.hole)
  const signs = isTimer || isNew || silence === Infinity ? [] : [isLast ? last.heard : [], isSign ? sentMs : []].flat()
  const samples = [...signs.map((ms): Sample => [ms, heardOf, 0]), ...own]
  const isGap = !isNew && (timer === undefined || timer.acrossGap === true || gapMs > head.gapMs)
  const isSilence = !isTimer && sentMs - last.heard >= silence
  const isFull = headAt - samplesAt > mostSamples || arrivedMs - head.checked >= corrects
  const isDue = Math.max(sentMs, last.heard) >= head.wakes || (own.length === 0 && sentMs < head.hole)
  const mayKeep = !isTimer && !isGap && !isSilence && !isFull && !isDue && head.shape === shape
  if (mayKeep && isCalm(definition, last.heard, head, own, after)) {
    // Nothing to write: the last word of a vehicle is known to half a minute.
    if (samples.length === 0 && sentMs < last.heard + signMs / 2) return undefined
    const added = textOf(samples, last.noted)
    hear(last, sentMs, arrivedMs)
    last.noted = samples.at(-1)?.[0] ?? last.noted
    return { memory: `${JSON.stringify(last)}\n${added}${text.slice(samplesAt)}` }
  }
  const memory = new Memory(definition, after.vin, text)
  if (isGap) {
    // By the vehicle's time. A gap of which the receiver learns late does not make uncertain what came after it.
    const gapEnd = last.heard - last.arrived + (gapMs > head.gapMs ? gapMs : Math.max(arrivedMs, last.arrived))
    samples.unshift([Math.min(last.heard, gapEnd), gapOf, gapEnd])
    memory.head.gapMs = Math.max(gapMs, head.gapMs)
  }
  if (isSilence) memory.head.hole = sentMs
  if (!isTimer) hear(memory.last, sentMs, arrivedMs)
  // A time that is up by the vehicle's clock, and not by ours.
  return memory.evaluate(samples, arrivedMs, isTimer && timer?.byArrival !== true ? sentMs : 0)
}

function hear(last: Last, sentMs: number, arrivedMs: number): void {
  if (sentMs > last.heard) Object.assign(last, { heard: sentMs, arrived: arrivedMs })
}

/** Whether each span and growth has its value of the end, and, if it need not be told yet, each path too. */
const hasAll = ({ measures }: Definition, { notes }: Running, isToTell: boolean): boolean =>
  measures.every(
    ({ measure: { kind }, key }) =>
      notes[key]?.after !== undefined || kind === 'range' || (isToTell && kind === 'path'),
  )

const idOf = ({ name }: Definition, vin: string, first: number): string =>
  `${vin}:${name}:${new Date(first).toISOString()}`

/** What the handler gets of an episode, and a hash that differs for another content. */
function contentOf(definition: Definition, running: Running) {
  const values: Record<string, unknown> = {}
  const missing: string[] = []
  for (const { name, measure, key } of definition.measures) {
    const { value, isMissing } = resultOf(measure, running.notes[key] ?? {}, running, definition)
    values[name] = value
    if (isMissing) missing.push(name)
  }
  const { start, end, paused, cut, gap } = running
  return { values, missing, hash: markOf(JSON.stringify([start, end, paused, cut, gap, values, missing])) }
}

function occurrence(definition: Definition, vin: string, running: Running, told: Told, endMs: number): Episode {
  const { start, end, paused, cut = false, gap = false } = running
  const { missing, values } = contentOf(definition, running)
  return {
    vin,
    id: idOf(definition, vin, told.first),
    revision: told.revision,
    lasts: end === undefined,
    at: new Date(endMs),
    startedAt: new Date(start),
    endedAt: new Date(endMs),
    durationMs: endMs - start,
    pausedMs: paused,
    cut,
    revoked: told.hash === revoked,
    acrossGap: gap,
    missing,
    ...values,
  }
}

/** All episodes of a list of events. */
function history(definition: Definition, given: Iterable<FleetEvent<FieldCatalogue>>): Episode[] {
  // A gap counts from its end, however late its event is. That of a restart ends with the first message after it.
  const order = (event: FleetEvent<FieldCatalogue>): number => {
    if (event.topic !== 'gap') return event.receivedAt.getTime()
    return event.to.getTime() + (event.reason === 'restarted' || event.reason === 'stopped' ? -0.5 : 0.5)
  }
  const events = [...given].toSorted((one, other) => order(one) - order(other))
  const vins = new Set(events.flatMap(({ vin }) => vin ?? []))
  return [...vins].toSorted().flatMap((vin) => {
    const fold = new Fold(definition, vin, nothingKnown()).run(historySamples(definition, vin, events)).pass(Infinity)
    return fold.all.flatMap((each) => {
      const { start, end = start } = each
      return end - start < definition.atLeast ? [] : [occurrence(definition, vin, each, untold(start, 1), end)]
    })
  })
}

function historySamples(definition: Definition, vin: string, events: readonly FleetEvent<FieldCatalogue>[]): Sample[] {
  const samples: Sample[] = []
  let state = VehicleState.unknown(vin, definition.slots)
  let [heard, arrived, seq] = [0, 0, 0]
  for (const event of events) {
    if (event.vin !== vin && (event.vin !== undefined || event.topic !== 'gap')) continue
    const receivedMs = event.receivedAt.getTime()
    if (event.topic === 'gap' && heard > 0) samples.push([heard, gapOf, heard + event.to.getTime() - arrived])
    if (event.topic === 'gap' || event.topic === 'timer' || event.topic === 'unknown') continue
    seq = Math.max(seq + 1, firstSeqAt(receivedMs))
    const { after, sentMs } = applied(state, { event, seq, gapTo: -1 })
    const views = { before: new Snapshot(state, receivedMs, -1), after: new Snapshot(after, receivedMs, -1) }
    state = after
    const sent = credibleMs(sentMs, receivedMs)
    const own = samplesIn(definition, { event, ...views, at: new Date(sentMs), arrivedMs: receivedMs })
    samples.push(...own)
    if (own.length === 0) samples.push([sent, heardOf, 0])
    if (sent > heard) [heard, arrived] = [sent, receivedMs]
  }
  return samples
}
