import { checkOption, checkOptions, isObject, required, type Rule } from '../base/options.ts'
import type { FleetEvent } from '../events/event.ts'
import type { FieldCatalogue } from '../events/fields.ts'
import type { FieldValue } from '../events/values.ts'
import { firstSeqAt, msOfSeq } from '../inbox/delivery-id.ts'
import { documentValues } from '../vehicles/document.ts'
import {
  type AnyVehicleView,
  type Condition,
  type Edge,
  type EdgeResult,
  type EdgeStep,
  type EpisodeOccurrence,
  membersOfEpisode,
  type VehicleView,
} from '../vehicles/edge.ts'
import { markOf } from '../vehicles/edge-index.ts'
import { credibleMs, quietMs } from '../vehicles/lag.ts'
import { applied, lengthOf, nullMeansNone, Slots, Snapshot, VehicleState } from '../vehicles/state.ts'
import { wireTopics } from '../wire/envelope.ts'
import { isPlace } from '../vehicles/places.ts'
import { createClockwork } from './clockwork.ts'
import { checkConditions, invalid, isName } from './conditions.ts'
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

/** An edge that reports episodes: the result of {@link episode}. */
export interface EpisodeEdge<Of extends Measures = Measures> extends Edge<Episode<Of>> {
  /** The newest episode of a vehicle as it is known now: it lasts, or is over and not told yet, or not told so yet. `undefined`: there is none. */
  open<Fields extends FieldCatalogue>(vehicle: VehicleView<Fields>): Episode<Of> | undefined
  /** All episodes that are over in a list of events, those of gaps too, in any order, as if no message came after them. Sorted by vehicle and start. */
  in(events: Iterable<FleetEvent>): readonly Episode<Of>[]
  /** Throws `option_invalid`: a condition of an episode belongs into `during`. */
  where(): never
}

/** The most characters of samples. When there are more, the older half is folded. */
const mostSamples = 5_000
const longestValue = 256
/** The most episodes that are corrected at the same time. */
const mostTold = 20
/** Of messages without one of the fields, one in this time is kept, so that there is no silence. */
const signMs = 60_000

/**
 * Tells what happened between two moments: a trip, a charge, a stay. It is told when it is over, with what it measured, and told again with the same
 * `id` and the next `revision` when something that came late corrects it: so a handler is one upsert. Fields can come in pieces, late, twice
 * and in any order. What is not known is `null` and named in `missing`, never 0. See docs/episodes.md.
 *
 * Throws `option_invalid` for a name (1 to 100 characters), a condition, a time or a measure that is none, and a measure named like a member of {@link Episode}.
 *
 * @example
 * ```ts
 * import { any, episode, is, path, span } from 'fleethook/when'
 * export const trip = episode('trip', {
 *   during: any(is('Gear', 'D'), is('Gear', 'R'), is('Gear', 'N')),
 *   joins: { minutes: 3 }, silence: { hours: 1 },
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
    isOutdated({ id, revision }: EpisodeOccurrence, memory) {
      const told: readonly Told[] = JSON.parse(String(memory).split('\n')[3] ?? '[]')
      return told.some((one) => one.revision > revision && id.endsWith(new Date(one.first).toISOString()))
    },
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

/** A definition as the code reads it. Times are in milliseconds. */
type Definition = ReturnType<typeof definitionOf>
function definitionOf(name: string, options: EpisodeOptions) {
  const aCondition: Rule = { must: 'must be a condition', accepts: isObject, hint: "For instance is('Gear', 'D')." }
  const aTime: Rule = { must: 'must be a time', accepts: isObject, hint: 'For instance { minutes: 3 }.' }
  checkOption('episode', 'name', name, required({ must: 'must be a text of 1 to 100 characters', accepts: isName }))
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
    if (membersOfEpisode.includes(each) || !isObject(measure) || typeof measure.kind !== 'string')
      throw invalid(
        `\`${each}\` of \`${name}\` is no measure, or has the name of a member of each episode`,
        'Make it with span, growth, range or path, and give it another name.',
      )
    // Notes are kept for the same measure of the same field.
    return { name: each, measure, key: [each, ...Object.values(measure)].join(' ').trim() }
  })
  const points = measures.reduce((sum, { measure: { mostPoints = 0 } }) => sum + mostPoints, 0)
  if (measures.length > 20 || points > 2 * mostOfPath)
    throw invalid(
      `The episode \`${name}\` has ${measures.length} measures with ${points} points`,
      `At most 20 measures, and ${2 * mostOfPath} points of all paths, are kept.`,
    )
  const times = { joins: 0, atLeast: 0, waits: 120_000, silence: Infinity, corrects: 3_600_000 }
  for (const each of ['joins', 'atLeast', 'waits', 'silence', 'corrects'] as const) {
    const given = options[each]
    if (given !== undefined) times[each] = readDuration(each, given).ms
  }
  times.corrects = Math.max(times.waits, times.corrects)
  const needed = conditions.flatMap((condition) => condition.fields)
  const fields = [...new Set([...needed, ...measures.map(({ measure }) => measure.field)])]
  const said = [during.name, until?.name, splits?.name, times, measures.map(({ key }) => key)]
  // Differs for another definition. The number: for what an older version wrote.
  const shape = markOf(JSON.stringify([2, ...said]))
  const slots = new Slots({ fields })
  const deciding = new Set<string | number>(needed)
  return { name, during, until, splits, ...times, measures, fields, deciding, slots, shape }
}

/** A value as it is kept until it is folded. Its place is that of its time, and of two with the same time and field the later arrival counts. */
type Sample = readonly [at: number, field: string | number, value: FieldValue]
/** In place of a field: a message without one of the fields, so that there is no silence. */
const heardOf = -1
/** In place of a field: values up to now are uncertain, because messages may be missing. The value is when the receiver listened again. */
const gapOf = -2

/** An episode that began. It is interrupted or over since `end`, and nothing joins it when it is `cut`, `split`, or the next one began: `closed`. */
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
  /** What its handler got, and whether it is no more. Not stored. */
  told?: Told | undefined
  revoked?: true
}

/** When nothing can join an episode any more. */
const overAt = ({ joins }: Definition, { end = Infinity, cut, split }: Running): number =>
  joins === 0 || cut === true || split === true ? end : end + joins + 1

/** What is known up to a time. */
interface Known {
  fields: readonly string[]
  at: number
  values: Record<string, Seen>
  /** What the condition was last. `null`: not known. */
  was: boolean | null
  /** Values up to these times are uncertain, or too old to be those of a start. */
  gapAt: number
  staleAt: number
  /** Whether `splits` is true, and when it was last. */
  isSplit?: boolean
  splitAt: number
  listens: number
  /** Since when the values of a field are kept that came with a new definition. */
  since?: Record<string, number>
  running?: Running
}

const nothingKnown = ({ fields }: Definition): Known => {
  return { fields, at: 0, values: {}, was: null, gapAt: 0, staleAt: 0, splitAt: 0, listens: 0 }
}

/** Finds the episodes in samples, moment by moment. */
class Fold {
  readonly #definition: Definition
  readonly #vin: string
  readonly known: Known
  readonly #closed: Running[] = []

  constructor(definition: Definition, vin: string, known: Known) {
    this.#definition = definition
    this.#vin = vin
    this.known = known
  }

  /** Those that are long enough, or last. */
  get found(): readonly Running[] {
    const all = [...this.#closed, ...(this.known.running ? [this.known.running] : [])]
    return all.filter(({ start, end = Infinity }) => end - start >= this.#definition.atLeast)
  }

  run(samples: readonly Sample[]): this {
    const sorted = samples.toSorted(([one], [other]) => one - other)
    for (let from = 0, to = 0; from < sorted.length; from = to) {
      const at = sorted[from]?.[0] ?? 0
      while (sorted[to]?.[0] === at) to += 1
      const moment = sorted.slice(from, to)
      if (at >= this.known.at) this.#take(moment, at)
      else for (const sample of moment) this.#late(sample)
      for (const [, field, value] of moment) if (field === gapOf) this.#gap(Number(value))
    }
    return this
  }

  /** Time goes on to this moment, and the vehicle was heard at another one. */
  pass(at: number, heard: number = 0): this {
    const { running, listens, at: newest } = this.known
    const last = Math.max(heard, newest)
    const isOn = running !== undefined && running.end === undefined
    if (isOn && at - Math.max(last, listens) >= this.#definition.silence) {
      Object.assign(running, { end: last, cut: true })
      // It begins again with the next value of its condition.
      this.known.was = false
    }
    return this
  }

  /** What conditions see. What is certain was reported after the last gap, so times stand for the numbers of messages. */
  #look(): AnyVehicleView {
    const { slots } = this.#definition
    const { values, at, gapAt } = this.known
    const state = VehicleState.unknown(this.#vin, slots).with({
      values: slots.names.map((field) => values[field]?.[1]),
      times: slots.names.flatMap((field) => Array<number>(3).fill(values[field]?.[0] ?? 0)),
    })
    return new Snapshot(state, at, gapAt)
  }

  /** All values with the same time count before the condition is asked. */
  #take(samples: readonly Sample[], at: number): void {
    this.pass(at)
    const { known } = this
    const { deciding, measures } = this.#definition
    known.at = at
    const { running: before } = known
    /** The value before, by field. */
    const reported = new Map<string, Seen | undefined>()
    for (const [, field, value] of samples) {
      if (typeof field === 'number') continue
      if (!reported.has(field)) reported.set(field, known.values[field])
      known.values[field] = [at, value]
    }
    const isDeciding = samples.some(([, field]) => deciding.has(field))
    if (isDeciding) this.#decide(at)
    if (known.isSplit === true) known.splitAt = at
    const { running, splitAt } = known
    for (const [field, last] of reported) {
      const value = known.values[field]?.[1] ?? null
      const isFirst = last !== undefined && at > splitAt && (last[0] <= splitAt || last[2] === true)
      // While it lasts, the same number is still that of the time before: a new connection reports it again.
      const isOld = isFirst && value === last[1] && (running?.end === undefined || running.split === true)
      const seen: Seen = (known.values[field] = isOld ? [at, value, true] : [at, value])
      if (running === undefined) continue
      for (const { measure, key } of measures) {
        if (measure.field !== field) continue
        const notes = (running.notes[key] ??= { isPartial: true })
        const { after } = notes
        const restarts = isFirst && !isOld && measure.startsAt !== undefined
        if (running !== before) {
          // The value of the start is there already. But a counter has run since the value before, if that is known.
          const stood = last === undefined || restarts ? measure.startsAt : last[1]
          const isKnown = last === undefined ? running.gap !== true : last[0] > known.gapAt
          if (measure.kind !== 'growth' || typeof stood !== 'number' || !isKnown) continue
          notes.last = stood
        } else if (restarts) notes.last = measure.startsAt
        note(measure, notes, seen, running, this.#definition)
        if (running.gapAfter === true && notes.after !== after) running.gap = true
      }
    }
  }

  /** Whether one begins, goes on or ends, as the condition says at a moment. */
  #decide(at: number): void {
    const { during, until, splits, joins, measures } = this.#definition
    const { known } = this
    const { running, was, values, gapAt, staleAt, listens, splitAt, since = {} } = known
    const view = this.#look()
    const is = during.test(view)
    known.isSplit = splits?.test(view) === true
    if (running !== undefined && running.end === undefined) {
      if (until === undefined ? is === false : until.test(view) === true) running.end = at
    } else if (is === true && was !== true) {
      if (running?.end !== undefined && at < overAt(this.#definition, running)) {
        running.paused += at - running.end
        delete running.end
        for (const { measure, key } of measures) resumed(measure, running.notes[key] ?? {}, running, this.#definition)
      } else {
        if (running !== undefined) this.#closed.push(Object.assign(running, { closed: at }))
        const started: Running = (known.running = { start: at, paused: 0, notes: {} })
        const isUncertain = measures.some(({ measure }) => (values[measure.field]?.[0] ?? Infinity) <= gapAt)
        // Its first messages may be missing, or a part that it joins.
        const isPart = staleAt === gapAt && splitAt <= gapAt && at - joins <= listens
        if (isUncertain || was === null || at <= listens || isPart) started.gap = true
        for (const { measure, key } of measures) {
          const seen = values[measure.field]
          const certain = seen !== undefined && (seen[0] > staleAt || seen[0] === at) ? seen : undefined
          const notes = (started.notes[key] = begun(measure, certain, at))
          // What a counter stood at is not known, or the measure is newer than the episode.
          const isUnknown = started.gap === true && certain === undefined && measure.startsAt !== undefined
          if (isUnknown || at < (since[measure.field] ?? 0)) notes.isPartial = true
        }
      }
    }
    if (known.running?.end !== undefined && known.isSplit) known.running.split = true
    known.was = is ?? was
  }

  /** Values up to now are uncertain. The receiver listens again since this time. */
  #gap(listens: number): void {
    const { known } = this
    const { running, at } = known
    known.gapAt = at
    // In less time a vehicle does not go far.
    if (listens - at > this.#definition.waits) known.staleAt = at
    known.was = null
    known.isSplit = false
    known.listens = Math.max(known.listens, listens)
    if (running !== undefined) running[at < overAt(this.#definition, running) ? 'gap' : 'gapAfter'] = true
  }

  /** What was known then is folded. */
  #late([at, field, value]: Sample): void {
    const { known } = this
    const { deciding, during, measures, corrects } = this.#definition
    if (typeof field === 'number') return
    const decides = deciding.has(field)
    if (at >= (known.values[field]?.[0] ?? 0)) {
      // What was sent before an end by silence begins nothing, and does not go on.
      const isCut = known.was === false && during.test(this.#look()) === true
      known.values[field] = [at, value]
      if (decides && !isCut && at > (known.running?.start ?? 0)) this.#decide(at)
    }
    const { running } = known
    if (running === undefined || known.at > (running.end ?? Infinity) + corrects) return
    if (decides && at >= running.start && at <= (running.end ?? at)) running.gap = true
    for (const { measure, key } of measures)
      if (measure.field === field)
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
  readonly revoked?: boolean
  /** Of all that it got. Empty: of whatever is found. */
  hash: string
  wrong?: number
}

/** What the handler gets. One that lasts goes up to the last message. */
function episodeOf(definition: Definition, vin: string, running: Running, heard: number): Episode {
  const { start, end = heard, paused, cut = false, gap = false, revoked = false } = running
  const { first = start, revision = 0 } = running.told ?? {}
  // A measure can have any name.
  const values: Record<string, unknown> = Object.create(null)
  const missing: string[] = []
  for (const { name, measure, key } of definition.measures) {
    const [value, isMissing] = resultOf(measure, running.notes[key] ?? {}, running, definition)
    values[name] = value
    if (isMissing) missing.push(name)
  }
  return {
    vin,
    id: `${vin}:${definition.name}:${new Date(first).toISOString()}`,
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

const overlap = (one?: Running, other?: Told): boolean =>
  one !== undefined && other !== undefined && one.start < other.end && (one.end ?? Infinity) > other.start

/** What most messages change: the newest time of the vehicle, when that arrived, and the time of the sample that came last. */
interface Last {
  heard: number
  arrived: number
  noted: number
}

/** What most messages need to know. */
interface Head {
  shape: string
  /** What the condition is for as long as nothing begins or ends. `null`: a value of the condition may decide something. */
  is: boolean | null
  /** Values that are older may change what was told, or is to be told. */
  calm: number
  /** When the newest silence ended that was long enough: an older message may say that there was none. */
  hole: number
  /** The end of the newest gap that is among the samples, by the receiver's clock. */
  gapMs: number
  /** When samples were folded last, by arrival (0: under another definition), and how many were left then. */
  checked: number
  old: number
}

/** What an edge remembers of a vehicle: lines of JSON. What most messages write comes first: of a row whose end stays the same, Postgres logs only the rest. */
class Memory {
  readonly #definition: Definition
  readonly #vin: string
  readonly last: Last
  readonly head: Head
  /** The newest one comes first. */
  samples: string
  /** The lines of the head and of what was told: most messages change nothing of them. */
  #lines: readonly [head: string, told: string]
  #told: readonly Told[] = []
  #known: string

  constructor(definition: Definition, vin: string, text?: string) {
    const [last, samples = '', head = '', told = '[]', known] = text?.split('\n') ?? []
    const { fields, shape } = definition
    this.#definition = definition
    this.#vin = vin
    this.last = last ? JSON.parse(last) : { heard: 0, arrived: 0, noted: 0 }
    this.head = head ? JSON.parse(head) : { shape, is: null, calm: 0, hole: 0, gapMs: 0, checked: 0, old: 0 }
    this.#lines = [head, told]
    this.#known = known ?? JSON.stringify(nothingKnown(definition))
    this.samples = samples
    if (this.head.shape === shape) return
    // Another definition had other fields, in another order. What was told stays as it was told.
    Object.assign(this.head, { shape, checked: 0, old: 0 })
    this.#lines = [head, told.replaceAll(/"hash":"[^"]*"/g, '"hash":""')]
    const found: Known = JSON.parse(this.#known)
    const kept = samplesOf(samples, this.last.noted, found.fields)
    const added = fields.filter((field) => !found.fields.includes(field))
    for (const field of added) found.since = { ...found.since, [field]: this.last.heard }
    this.#known = JSON.stringify(Object.assign(found, { fields }))
    this.add(kept, '')
  }

  get text(): string {
    return [JSON.stringify(this.last), this.samples, ...this.#lines, this.#known].join('\n')
  }

  /** The newest episode, when it is not told yet as it is known now. */
  open(hasGap: boolean): Episode | undefined {
    const kept = samplesOf(this.samples, this.last.noted, this.#definition.fields)
    const running = this.#fold().run(kept).found.at(-1)
    if (running === undefined) return undefined
    this.#compared([running], Infinity, 0)
    const { end, told } = running
    // One that was told as over by silence does not say so in its samples.
    const over: Running = end === undefined ? { ...running, end: this.last.heard, cut: true } : running
    if (told !== undefined && ['', markOf(JSON.stringify(this.#episodeOf(over)))].includes(told.hash)) return undefined
    if (hasGap) running.gap = true
    return this.#episodeOf(running)
  }

  /** Finds the episodes in all that is remembered, compares them with what was told, and tells one if it is time. */
  evaluate(added: readonly Sample[], arrivedMs: number, dueMs: number): EdgeResult<Episode> {
    const { last, head } = this
    const { fields, silence, waits, corrects } = this.#definition
    // The vehicle's time: that of its newest message, and what has passed since that arrived.
    const now = Math.max(dueMs, last.heard + Math.max(0, arrivedMs - last.arrived))
    const samples = [...samplesOf(this.samples, last.noted, fields), ...added]
    this.add(added)
    const fold = this.#fold()
    const foldedTo = fold.known.at
    const { found, known } = fold.run(samples).pass(now, last.heard)
    const all = this.#compared(found, foldedTo, arrivedMs)
    const { happened, due } = this.#tellNext(all, now, arrivedMs)
    const { running, was, listens } = known
    const { start = last.heard, end = Infinity } = running ?? {}
    const isOn = running !== undefined && running.end === undefined
    this.#settle(samples, all, due === Infinity, arrivedMs)
    const over = running === undefined ? 0 : overAt(this.#definition, running)
    head.is = isOn || (was === false && now >= over ? false : null)
    if (running === undefined) head.calm = 0
    else if (now < over) head.calm = start
    else head.calm = hasAll(this.#definition, running) ? end + waits + 1 : Number.MAX_SAFE_INTEGER
    this.#lines = [JSON.stringify(head), JSON.stringify(this.#told)]
    const silent = Math.max(0, listens - last.heard) + last.arrived + silence
    const byArrival = due === Infinity
    const wakes = byArrival ? Math.ceil(isOn ? silent : this.samples === '' ? Infinity : head.checked + corrects) : due
    const timer = { due: wakes === Infinity ? null : wakes, since: start, byArrival }
    return happened === undefined ? { memory: this.text, timer } : { happened, memory: this.text, timer }
  }

  /** Each episode found, with its last telling: one that had the same start at first, or has it now, or overlaps it. And those told that are gone. */
  #compared(found: readonly Running[], foldedTo: number, arrivedMs: number): readonly Running[] {
    const rules: readonly ((entry: Told, each: Running) => boolean)[] = [
      ({ first }, { start }) => first === start,
      (entry, { start }) => entry.start === start,
      (entry, each) => entry.revoked !== true && overlap(each, entry),
    ]
    this.#told = JSON.parse(this.#lines[1])
    const free = new Set(this.#told)
    for (const isSame of rules)
      for (const each of found) {
        each.told ??= [...free].find((entry) => isSame(entry, each))
        if (each.told !== undefined) free.delete(each.told)
      }
    // What is folded is not found again. It is remembered for the replay of a dead letter.
    const oldest = this.#told.length > mostTold ? Infinity : arrivedMs - this.#definition.corrects
    this.#told = this.#told.filter((told) => !free.has(told) || told.start > foldedTo || told.at > oldest)
    const gone = [...free].filter(({ start }) => start > foldedTo)
    const revoked = gone.map((told): Running => {
      const { start, end } = told
      return { start, end, closed: start, paused: 0, notes: {}, told, revoked: true }
    })
    return [...found, ...revoked]
  }

  /** When it is to be told, corrected or revoked. `Infinity`: it lasts, or was told as it is. */
  #dueOf(of: Running, now: number): number {
    const { end, closed, cut, told } = of
    const { waits } = this.#definition
    if (end === undefined) return Infinity
    const over = overAt(this.#definition, of)
    const isWhole = closed !== undefined || cut === true || hasAll(this.#definition, of, 'path')
    const ready = isWhole || now < over ? over : Math.max(over, end + waits)
    if (told === undefined) return ready
    const hash = markOf(JSON.stringify(this.#episodeOf(of)))
    told.hash ||= hash
    if (told.hash !== hash) return Math.max(ready, (told.wrong ??= now) + waits)
    delete told.wrong
    return Infinity
  }

  /** One is told at a time, the first one first. But an earlier telling that a new one overlaps is corrected before the new one is told. */
  #tellNext(all: readonly Running[], now: number, at: number) {
    const todo = all.map((of) => ({ of, due: this.#dueOf(of, now) }))
    const [first] = todo.filter(({ due }) => due <= now).toSorted((one, other) => one.of.start - other.of.start)
    const next = todo.find(({ of, due }) => !first?.of.told && due < Infinity && overlap(first?.of, of.told)) ?? first
    const due = Math.min(...todo.map((each) => (each === next ? Infinity : Math.max(each.due, now))))
    if (next === undefined) return { due }
    const { start, end = start, revoked = false, told: before = { first: start, revision: 0 } } = next.of
    const told: Told = { first: before.first, revision: before.revision + 1, start, end, at, revoked, hash: '' }
    next.of.told = told
    const happened = this.#episodeOf(next.of)
    told.hash = markOf(JSON.stringify(happened))
    this.#told = [...this.#told.filter((one) => one !== before), told]
    return { happened, due }
  }

  /** Folds what arrived long ago: in the order of arrival, so that an upload after hours is still sorted. Nothing is folded that is not told yet. */
  #settle(samples: readonly Sample[], all: readonly Running[], isAllTold: boolean, arrivedMs: number): void {
    const { head, last } = this
    const { joins, corrects } = this.#definition
    const isOld = arrivedMs - head.checked >= corrects
    const times = samples.map(([at]) => at)
    let foldTo = isOld ? Math.max(0, ...times.slice(0, head.old)) : 0
    if (this.samples.length > mostSamples || this.#told.length > mostTold)
      foldTo = Math.max(foldTo, times.toSorted((one, other) => one - other)[times.length >> 1] ?? 0)
    for (const { closed = Infinity, told } of all)
      if (told === undefined || told.wrong !== undefined) foldTo = Math.min(foldTo, closed - 1)
    if (!isOld && !times.some((at) => at <= foldTo)) return
    const left = samples.filter(([at]) => at > foldTo)
    const { known } = this.#fold().run(samples.filter(([at]) => at <= foldTo))
    // Nothing corrects it any more.
    const isFinal = left.length === 0 && last.heard > (known.running?.end ?? Infinity) + Math.max(joins, corrects)
    if (isFinal && isAllTold) delete known.running
    head.checked = arrivedMs
    head.old = left.length
    this.#known = JSON.stringify(known)
    this.add(left, '')
  }

  #fold(): Fold {
    return new Fold(this.#definition, this.#vin, JSON.parse(this.#known))
  }

  #episodeOf(of: Running): Episode {
    return episodeOf(this.#definition, this.#vin, of, this.last.heard)
  }

  add(samples: readonly Sample[], kept: string = this.samples): this {
    this.samples = textOf(samples, this.last.noted, this.#definition.fields) + kept
    this.last.noted = samples.at(-1)?.[0] ?? this.last.noted
    return this
  }
}

/** In the text, the newest sample comes first, at this time. Each has the time since the one before it, and the number of its field. */
function samplesOf(text: string, newestMs: number, fields: readonly string[]): Sample[] {
  const kept: readonly [number, number, FieldValue, longitude?: number][] = JSON.parse(`[${text.slice(0, -1)}]`)
  let at = newestMs
  const samples = kept.map(([ms, number, value, longitude]): Sample => {
    at -= ms
    return [at + ms, fields[number] ?? number, longitude === undefined ? value : { latitude: Number(value), longitude }]
  })
  return samples.toReversed()
}

function textOf(samples: readonly Sample[], beforeMs: number, fields: readonly string[]): string {
  let [text, before] = ['', beforeMs]
  for (const [at, field, value] of samples) {
    const number = typeof field === 'number' ? field : fields.indexOf(field)
    const isPair = isPlace(value) && Object.keys(value).length === 2
    text = `${JSON.stringify([at - before, number, ...(isPair ? [value.latitude, value.longitude] : [value])])},${text}`
    before = at
  }
  return text
}

type Received = Pick<EdgeStep, 'event' | 'before' | 'after' | 'at' | 'arrivedMs'>

/** The values of a message that an episode needs, each with its time. */
function samplesIn({ fields }: Definition, { event, before, after, at, arrivedMs }: Received): Sample[] {
  const sentMs = credibleMs(at.getTime(), arrivedMs)
  const samples: Sample[] = []
  const add = (name: string, value: FieldValue | null, ms: number): void => {
    const isNone = value === null && !nullMeansNone.has(name)
    if (fields.includes(name) && !isNone && lengthOf(value) <= longestValue) samples.push([ms, name, value])
  }
  if (event.topic === 'vehicle_data')
    for (const { field, value, atMs } of documentValues(event.vehicleData, sentMs)) {
      const ms = credibleMs(atMs, arrivedMs)
      // A document rounds.
      add(field, after.at(field)?.getTime() === ms ? (after.value(field) ?? value) : value, ms)
    }
  if (event.topic !== 'data') return samples
  const data: Readonly<Record<string, FieldValue | null | undefined>> = event.data
  const names = fields.filter((name) => data[name] !== undefined && !Object.hasOwn(event.undecoded, name))
  // A clock that was ahead and is right again says an earlier time of what is newer: by as much as a message takes. In what order it
  // spoke while it was ahead, the state knows.
  const known = names.map((name) => (Number(after.at(name)) === at.getTime() ? Number(before.at(name)) : 0))
  const ms = Math.max(sentMs, ...known.map((one) => (one > sentMs && one - sentMs <= quietMs ? one + 1 : 0)))
  // One that waits to be confirmed is not older.
  const isHeld = (name: string): boolean =>
    after.odd?.some(({ field, held }) => field === name && Number(held?.at) === sentMs) === true
  const keptMs = (name: string): number =>
    event.at.getTime() > arrivedMs && !isHeld(name) ? Number(after.at(name)) : sentMs
  for (const name of names) add(name, data[name] ?? null, keptMs(name) < sentMs ? keptMs(name) - 1 : ms)
  return samples
}

/** What the receiver knew of a vehicle before it was given the episode. */
function keptSamples({ fields, deciding }: Definition, before: AnyVehicleView): Sample[] {
  return fields.flatMap((field) => {
    const value = before.value(field)
    const at = deciding.has(field) ? before.since(field) : before.at(field)
    const isKept = value !== undefined && before.isCertain(field) && lengthOf(value) <= longestValue
    return isKept && at !== undefined ? [[at.getTime(), field, value]] : []
  })
}

/** A gap that ended at this time of the receiver. By the vehicle's time: one that is learned late does not make uncertain what came after it. */
function gapSample({ heard, arrived }: Last, endMs: number): Sample {
  const listens = heard - arrived + endMs
  return [Math.min(heard, listens), gapOf, listens]
}

function detected(definition: Definition, step: EdgeStep): EdgeResult<Episode> | undefined {
  const { event, arrivedMs, timer, before, after } = step
  const { during, until, deciding, silence, corrects } = definition
  const isTimer = event.topic === 'timer'
  const isNew = typeof step.memory !== 'string'
  const sentMs = credibleMs(step.at.getTime(), arrivedMs)
  // When the newest gap ended. 0: not known. In an inbox that processes share, the numbers of messages are no times, and count from 1.
  const gapEnd = after instanceof Snapshot ? msOfSeq(after.parts().gapTo) : 0
  const gapMs = gapEnd < Date.UTC(2002) ? 0 : gapEnd
  const own = [...(isNew && !isTimer ? keptSamples(definition, before) : []), ...samplesIn(definition, step)]
  if (isNew && own.length === 0) return undefined
  const memory = new Memory(definition, after.vin, isNew ? undefined : step.memory)
  const { last, head } = memory
  // Messages without one of the fields say that there was no silence: now and then one, and the last one before it.
  const isLast = last.heard > last.noted && sentMs - last.heard >= Math.min(silence, signMs)
  const isSign = own.length === 0 && (sentMs > last.noted + signMs || sentMs < head.hole)
  const signs = isTimer || silence === Infinity ? [] : [isLast ? last.heard : [], isSign ? sentMs : []].flat()
  const samples = [...signs.map((ms): Sample => [ms, heardOf, 0]), ...own]
  const isGap = !isNew && (timer === undefined || timer.acrossGap === true || gapMs > head.gapMs)
  const isSilence = !isTimer && sentMs - last.heard >= silence
  if (isGap) samples.unshift(gapSample(last, gapMs > head.gapMs ? gapMs : Math.max(arrivedMs, last.arrived)))
  const isFull = memory.samples.length > mostSamples || arrivedMs - head.checked >= corrects
  const isInHole = own.length === 0 && sentMs < head.hole
  const decides = ([, field]: Sample): boolean => deciding.has(field)
  const isInPlace = own.every((sample) => sample[0] >= (decides(sample) ? last.heard : head.calm))
  const goesOn = (): boolean => head.is === (head.is && until ? until.test(after) === false : during.test(after))
  const isCalm = isInPlace && (!own.some(decides) || goesOn())
  // The last word of a vehicle is known to half a minute.
  const isNothing = samples.length === 0 && sentMs < last.heard + signMs / 2
  head.gapMs = Math.max(gapMs, head.gapMs)
  if (isSilence) head.hole = sentMs
  if (!isTimer && sentMs > last.heard) Object.assign(last, { heard: sentMs, arrived: arrivedMs })
  // Such values decide nothing, so they are only kept.
  if (isCalm && !isTimer && !isGap && !isSilence && !isFull && !isInHole)
    return isNothing ? undefined : { memory: memory.add(samples).text }
  // A time that is up by the vehicle's clock, and not by ours.
  return memory.evaluate(samples, arrivedMs, isTimer && timer?.byArrival !== true ? sentMs : 0)
}

/** Whether each span, growth and path has its value of the end, but for one kind. */
const hasAll = ({ measures }: Definition, { notes }: Running, but: Measure['kind'] = 'range'): boolean =>
  measures.every(({ measure: { kind }, key }) => kind === 'range' || kind === but || notes[key]?.after !== undefined)

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
    const samples: Sample[] = []
    const last: Last = { heard: 0, arrived: 0, noted: 0 }
    let [state, seq] = [VehicleState.unknown(vin, definition.slots), 0]
    for (const event of events) {
      if (event.vin !== vin && (event.vin !== undefined || event.topic !== 'gap')) continue
      const arrivedMs = event.receivedAt.getTime()
      if (event.topic === 'gap' && last.heard > 0) samples.push(gapSample(last, event.to.getTime()))
      if (event.topic === 'gap' || event.topic === 'timer' || event.topic === 'unknown') continue
      seq = Math.max(seq + 1, firstSeqAt(arrivedMs))
      const { after: next, sentMs } = applied(state, { event, seq, gapTo: -1 })
      const [before, after] = [new Snapshot(state, arrivedMs, -1), new Snapshot(next, arrivedMs, -1)]
      state = next
      const own = samplesIn(definition, { event, before, after, at: new Date(sentMs), arrivedMs })
      const heard = credibleMs(sentMs, arrivedMs)
      samples.push(...(own.length > 0 ? own : [[heard, heardOf, 0] as const]))
      if (heard > last.heard) Object.assign(last, { heard, arrived: arrivedMs })
    }
    const fold = new Fold(definition, vin, nothingKnown(definition)).run(samples).pass(Number.MAX_SAFE_INTEGER)
    const over = fold.found.filter(({ end }) => end !== undefined)
    return over.map((each) => Object.assign(episodeOf(definition, vin, each, fold.known.at), { revision: 1 }))
  })
}
