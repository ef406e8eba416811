import type { FleetEvent } from '../events/event.ts'
import type { FieldCatalogue } from '../events/fields.ts'
import { isPause } from '../events/gap.ts'
import { originOf } from '../events/origin.ts'
import { firstSeqAt, msOfSeq } from '../inbox/delivery-id.ts'
import type { KeptMessages } from '../observe/dead-letters.ts'
import type { AnyVehicleView, Edge, EdgeResult, EdgeStep, EpisodeOccurrence, VehicleView } from '../vehicles/edge.ts'
import type { Fact } from '../vehicles/fact.ts'
import type { Facts } from '../vehicles/facts.ts'
import { credibleMs } from '../vehicles/lag.ts'
import { applied, goesOn, Snapshot, VehicleState } from '../vehicles/state.ts'
import { wireTopics } from '../wire/envelope.ts'
import { createClockwork } from './clockwork.ts'
import { invalid } from './conditions.ts'
import { type Definition, definitionOf, type EpisodeOptions, type Measures } from './definition.ts'
import { fold, nothingKnown, type Told } from './fold.ts'
import { eventsByVehicle } from './kept-events.ts'
import { Memory } from './memory.ts'
import { gapOf, heardOf, keptSamples, type Sample, samplesIn } from './samples.ts'
import { type Episode, episodeOf, nameOf } from './telling.ts'
import { keyOf } from './times-of-facts.ts'

export type { EpisodeOptions, Measures } from './definition.ts'
export type { Episode } from './telling.ts'

/** An edge that reports episodes: the result of {@link episode}. */
export interface EpisodeEdge<Of extends Measures = Measures, By extends readonly Fact[] = readonly []> extends Edge<
  Episode<Of, By>
> {
  /** The newest episode of a vehicle, even before it is reported: it lasts, is over and not reported yet, or differs from its last report. `undefined`: there is none. */
  open<Fields extends FieldCatalogue>(vehicle: VehicleView<Fields>): Episode<Of, By> | undefined
  /**
   * All episodes that are over in a list of events, gaps included, in any order, as if no message came after them. Sorted by vehicle and start.
   * Pass a vehicle of the receiver: the limits of its option `fields` count then, and with `by`, the vehicle knows its facts.
   */
  in<Fields extends FieldCatalogue>(
    events: Iterable<FleetEvent>,
    vehicle?: VehicleView<Fields>,
  ): readonly Episode<Of, By>[]
  /**
   * The episodes of all vehicles that began in this time, of the messages that the inbox still keeps. Use it each night to find one whose messages came too
   * late for its row. It takes one list of all messages since the day before `from`, and keeps of them what an episode reads: 50 MB at most, which are about
   * 800,000 messages. When there are more, each list is for as many vehicles as fit.
   */
  within(receiver: Remembering, time: { readonly from: Date; readonly to: Date }): AsyncIterable<Episode<Of, By>>
  /**
   * Why a number of an episode may be wrong, in words for a row: messages may be missing, its end was lost, one of these measures is not certain (default:
   * any). A measure of fields that the vehicle has never reported is no doubt: it is `null`.
   */
  doubts<Fields extends FieldCatalogue>(
    episode: EpisodeOccurrence,
    vehicle: VehicleView<Fields> | undefined,
    of?: readonly (keyof Of & string)[],
  ): readonly string[]
  /** Throws `option_invalid`: a condition of an episode belongs into `during`. */
  where(): never
}

/** A receiver with the part `vehicles`. */
export interface Remembering {
  readonly vehicles: { list(): AsyncIterable<{ readonly vin: string }> }
  readonly messages: Pick<KeptMessages, 'list'>
}

/** Keeps one message without any of the fields in this time, so that there is no silence. */
const signMs = 60_000

/**
 * Tells what happened between two moments: a trip, a charge, a stay. It is told when it is over, with what it measured, and told again with the same
 * `id` and the next `revision` when something that came late corrects it: so a handler is one upsert. Fields can come in pieces, late, twice
 * and in any order. What is not known is `null` and named in `missing`, never 0. See docs/episodes.md.
 *
 * Throws `option_invalid` for a name that is not 1 to 100 characters, an invalid condition, time or measure, and a measure named like a member of {@link Episode}.
 *
 * @example
 * ```ts
 * import { drives, episode, path, span } from 'fleethook/when'
 * export const trip = episode('trip', {
 *   during: drives(),
 *   joins: { minutes: 3 }, silence: { hours: 1 },
 *   measures: { odometer: span('Odometer'), energy: span('EnergyRemaining'), route: path() },
 * })
 * ```
 */
export function episode<const Of extends Measures, const By extends readonly Fact[] = readonly []>(
  name: string,
  options: EpisodeOptions<Of, By>,
): EpisodeEdge<Of, By> {
  const definition = definitionOf(name, options)
  const { by, asked } = definition
  const definitionFor = definitionsOf(name, options, definition)
  const facts = [...by, ...asked]
  const edge: EpisodeEdge = {
    name,
    fields: [],
    reads: definition.fields,
    facts,
    traces: definition.traces,
    topics: wireTopics,
    timing: createClockwork,
    shape: definition.shape,
    detect: (step) => detected(definitionFor(step.after), step),
    isOutdated({ id, revision }: EpisodeOccurrence, memory) {
      const told: readonly Told[] = JSON.parse(String(memory).split('\n')[3] ?? '[]')
      return told.some((one) => one.revision > revision && id.endsWith(nameOf(one.first, one.by)))
    },
    open(vehicle: unknown) {
      if (!(vehicle instanceof Snapshot)) return undefined
      const { state, gapTo } = vehicle.parts()
      const text = state.memory?.[name]
      return typeof text === 'string'
        ? Memory.read(definitionFor(vehicle), state.vin, text, state.facts)?.open(gapTo >= state.seq)
        : undefined
    },
    in: (events, vehicle: unknown) => history(definitionFor(vehicle), events, factsIn(vehicle)),
    within: ({ vehicles, messages }, time) => begunWithin(definitionFor, vehicles, messages, time),
    doubts: (found, vehicle: AnyVehicleView | undefined, of) => doubtsOf(definition, found, vehicle, of),
    where() {
      throw invalid('An episode has no `where`', 'Write the condition into `during`: all(…), or return in the handler.')
    },
  }
  // What is found has the measures of the definition, which the compiler cannot see.
  return edge as unknown as EpisodeEdge<Of, By> // oxlint-disable-line no-unsafe-type-assertion
}

const factsIn = (vehicle: unknown): Facts | undefined =>
  vehicle instanceof Snapshot ? vehicle.parts().state.facts : undefined

/** The definition for each receiver: the limits of its option `fields` count. */
function definitionsOf(name: string, options: EpisodeOptions, plain: Definition): (vehicle: unknown) => Definition {
  const known = new WeakMap<FieldCatalogue, Definition>()
  return (vehicle) => {
    if (!(vehicle instanceof Snapshot)) return plain
    const { ownFields } = vehicle.parts().state.slots
    let own = known.get(ownFields)
    if (own === undefined) known.set(ownFields, (own = definitionOf(name, options, ownFields)))
    return own
  }
}

/** The newest time of the vehicle, and when that arrived. */
interface Last {
  readonly heard: number
  readonly arrived: number
}

/** A gap that ended at this time of the receiver. By the vehicle's time: a gap that is learned late does not make later values uncertain. */
function gapSample({ heard, arrived }: Last, endMs: number): Sample {
  const listens = heard - arrived + endMs
  return [Math.min(heard, listens), gapOf, listens]
}

/** What a message says of the vehicle, before it is known whether it decides something. */
interface Arrival {
  readonly own: readonly Sample[]
  readonly sentMs: number
  /** When the newest gap ended. 0: not known. */
  readonly gapMs: number
}

function arrivalOf(definition: Definition, { event, before, after, at, arrivedMs, memory }: EdgeStep): Arrival {
  // In an inbox that processes share, the numbers of messages are no times, and count from 1.
  const gapEnd = after instanceof Snapshot ? msOfSeq(after.parts().gapTo) : 0
  const gapMs = gapEnd < Date.UTC(2002) ? 0 : gapEnd
  const isFirst = memory === undefined && originOf(event) === 'vehicle'
  const known = isFirst ? keptSamples(definition, before) : []
  const own = [...known, ...samplesIn(definition, { event, before, after, at, arrivedMs })]
  return { own, sentMs: credibleMs(at.getTime(), arrivedMs), gapMs }
}

/** Messages without one of the fields say that there was no silence: now and then one, and the last one before it. */
function signsOf({ silence }: Definition, { last, head }: Memory, { own, sentMs }: Arrival): readonly Sample[] {
  if (silence === Infinity) return []
  const isLast = last.heard > last.noted && sentMs - last.heard >= Math.min(silence, signMs)
  const isSign = own.length === 0 && (sentMs > last.noted + signMs || sentMs < head.hole)
  return [isLast ? last.heard : [], isSign ? sentMs : []].flat().map((ms): Sample => [ms, heardOf, 0])
}

/**
 * Whether values decide nothing, so that they are only kept. Each is newer than what is told or waits to be told (a value of a condition: newer than everything), and
 * the condition stays what it is.
 */
function isCalm(
  definition: Definition,
  { last, head }: Memory,
  { own, sentMs }: Arrival,
  after: EdgeStep['after'],
): boolean {
  const { during, until, deciding } = definition
  const decides = ([, field]: Sample): boolean => deciding.has(field)
  const isInPlace =
    sentMs >= head.hole && own.every((sample) => sample[0] >= (decides(sample) ? last.heard : head.calm))
  if (!isInPlace || !(own.some(decides) || definition.isAged)) return isInPlace
  return head.is === (head.is === true && until !== undefined ? until.test(after) === false : during.test(after))
}

function detected(definition: Definition, step: EdgeStep): EdgeResult<Episode> | undefined {
  const { event, arrivedMs, timer, after } = step
  const isSign = originOf(event) === 'vehicle'
  const arrival = arrivalOf(definition, step)
  const { own, sentMs, gapMs } = arrival
  const text = typeof step.memory === 'string' ? step.memory : undefined
  const isNew = text === undefined
  if (isNew && own.length === 0) return undefined
  const facts = factsIn(after)
  if (!isNew && isToldLate(definition, step) && after instanceof Snapshot)
    after.parts().state.slots.toldLate(after.vin, definition.name)
  const read = isNew ? undefined : Memory.read(definition, after.vin, text, facts)
  const memory = read ?? new Memory(definition, after.vin, undefined, facts)
  const { last, head } = memory
  const samples = [...(isSign ? signsOf(definition, memory, arrival) : []), ...own]
  const isGap = !isNew && (timer === undefined || timer.acrossGap === true || gapMs > head.gapMs || read === undefined)
  if (isGap) samples.unshift(gapSample(last, gapMs > head.gapMs ? gapMs : Math.max(arrivedMs, last.arrived)))
  const isSilence = isSign && sentMs - last.heard >= definition.silence
  const decides =
    !isSign || isGap || isSilence || memory.isFull(arrivedMs) || !isCalm(definition, memory, arrival, after)
  // A vehicle's activity is recorded at most every 30 s.
  const isNothing = samples.length === 0 && sentMs < last.heard + signMs / 2
  head.gapMs = Math.max(gapMs, head.gapMs)
  if (isSilence) head.hole = sentMs
  if (isSign && sentMs > last.heard) Object.assign(last, { heard: sentMs, arrived: arrivedMs })
  if (!decides) return isNothing ? undefined : { memory: memory.add(samples).text }
  // A time that is up by the vehicle's clock, and not by ours.
  return memory.evaluate(samples, arrivedMs, event.topic === 'timer' && timer?.byArrival !== true ? sentMs : 0)
}

/** Whether the business says something else of a time whose episodes are corrected no more. */
function isToldLate({ by, corrects }: Definition, { event, before, after, arrivedMs }: EdgeStep): boolean {
  if (event.topic !== 'facts' || event.at.getTime() >= arrivedMs - corrects) return false
  const known = (vehicle: unknown): string =>
    keyOf(by.map(({ name }) => factsIn(vehicle)?.at(name, event.at.getTime()) ?? null))
  return known(before) !== known(after)
}

/** How long before the time the messages are read, because the state before decides where an episode begins. */
const earlierMs = 86_400_000

async function* begunWithin(
  definitionFor: (vehicle: unknown) => Definition,
  vehicles: Remembering['vehicles'],
  messages: Remembering['messages'],
  { from, to }: { readonly from: Date; readonly to: Date },
): AsyncGenerator<Episode, void, undefined> {
  const { fields } = definitionFor(undefined)
  for await (const kept of eventsByVehicle(messages, fields, new Date(from.getTime() - earlierMs)))
    for await (const vehicle of vehicles.list())
      for (const found of history(definitionFor(vehicle), kept.of(vehicle.vin), factsIn(vehicle)))
        if (found.startedAt >= from && found.startedAt < to) yield found
}

function doubtsOf(
  { measures }: Definition,
  { acrossGap, cut, missing }: EpisodeOccurrence,
  vehicle: AnyVehicleView | undefined,
  of: readonly string[] = missing,
): readonly string[] {
  const isReported = (field: string): boolean =>
    vehicle === undefined || vehicle.at(field) !== undefined || vehicle.invalidSince(field) !== undefined
  const uncertain = measures.filter(
    ({ name, gauges }) => missing.includes(name) && of.includes(name) && gauges.some(({ field }) => isReported(field)),
  )
  return [
    ...(acrossGap ? ['messages may be missing'] : []),
    ...(cut ? ['its end was lost'] : []),
    ...uncertain.map(({ name }) => `${name} is not certain`),
  ]
}

/** How long after the last event hours and days go on to begin and end: they would do so for ever. */
const aWhile = ({ silence }: Definition): number => (silence === Infinity ? earlierMs : silence)

/** All episodes of a list of events. `kept`: what is known of facts, when the events do not say it. */
function history(definition: Definition, given: Iterable<FleetEvent<FieldCatalogue>>, kept?: Facts): Episode[] {
  // A gap counts from its end, however late its event is. The gap of a restart ends with the first message after it.
  const order = (event: FleetEvent<FieldCatalogue>): number => {
    if (event.topic !== 'gap') return event.receivedAt.getTime()
    return event.to.getTime() + (event.reason === 'restarted' || event.reason === 'stopped' ? -0.5 : 0.5)
  }
  const events = [...given].toSorted((one, other) => order(one) - order(other))
  const vins = new Set(events.flatMap(({ vin }) => vin ?? []))
  return [...vins].toSorted().flatMap((vin) => {
    const samples: Sample[] = []
    let pauses: Sample[] = []
    const last = { heard: 0, arrived: 0 }
    let [state, seq] = [VehicleState.unknown(vin, definition.slots), 0]
    for (const event of events) {
      if (event.vin !== vin && (event.vin !== undefined || event.topic !== 'gap')) continue
      const arrivedMs = event.receivedAt.getTime()
      if (event.topic === 'gap' && last.heard > 0)
        (isPause(event) ? pauses : samples).push(gapSample(last, event.to.getTime()))
      if (event.topic === 'facts') state = applied(state, { event, seq: (seq += 1), gapTo: -1 }).after
      if (originOf(event) !== 'vehicle' || event.topic === 'unknown') continue
      if (pauses.length > 0 && !goesOn(state, event)) samples.push(...pauses)
      pauses = []
      seq = Math.max(seq + 1, firstSeqAt(arrivedMs))
      const { after: next, sentMs } = applied(state, { event, seq, gapTo: -1 })
      const [before, after] = [new Snapshot(state, arrivedMs, -1), new Snapshot(next, arrivedMs, -1)]
      state = next
      const own = samplesIn(definition, { event, before, after, at: new Date(sentMs), arrivedMs })
      const heard = credibleMs(sentMs, arrivedMs)
      samples.push(...(own.length > 0 ? own : [[heard, heardOf, 0] as const]))
      if (heard > last.heard) Object.assign(last, { heard, arrived: arrivedMs })
    }
    samples.push(...pauses)
    const { found, known } = fold(definition, vin, nothingKnown(definition), samples, {
      now:
        definition.nextPart !== undefined || definition.timed.some(({ daily }) => daily === true)
          ? last.heard + aWhile(definition)
          : Number.MAX_SAFE_INTEGER,
      facts: kept ?? state.facts,
    })
    const over = found.filter(({ end }) => end !== undefined)
    return over.map((each) => Object.assign(episodeOf(definition, vin, each, known.timeline.at), { revision: 1 }))
  })
}
