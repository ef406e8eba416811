import { checkOptions, type Rule, trueOrFalse } from '../base/options.ts'
import type { Alert } from '../events/event.ts'
import type { FieldCatalogue } from '../events/fields.ts'
import type { FieldValue, Location } from '../events/values.ts'
import {
  type AlertOccurrence,
  type AnyVehicleView,
  type Change,
  type Condition,
  dated,
  undated,
  type Edge,
  type EdgeRecord,
  type EdgeResult,
  type EdgeStep,
  type EdgeTopic,
  type Occurrence,
  waitingFor,
} from '../vehicles/edge.ts'
import { type Fact, isFact } from '../vehicles/fact.ts'
import { isCorrected } from '../vehicles/clock.ts'
import { longestMemory } from '../vehicles/edge-checks.ts'
import { isDeepEqual, lengthOf, longestName, nullMeansNone } from '../vehicles/state.ts'
import { isTimeSet, readTime } from '../wire/scalars.ts'
import { isPlace } from '../vehicles/places.ts'
import { aMargin, type Area, type MarginOption, widened } from './areas.ts'
import { createClockwork } from './clockwork.ts'
import {
  checkArea,
  checkConditions,
  checkConstant,
  checkField,
  checkNumber,
  checkTypeOf,
  inside,
  invalid,
  isName,
  positionField,
} from './conditions.ts'
import {
  beginning,
  type Duration,
  type Heard,
  hearing,
  inOrder,
  readDuration,
  isSilence,
  isUncertain,
  knowing,
  type Lasted,
  lastKnown,
  lastedAfter,
  type Silence,
  silence,
  type SilentOptions,
  timerOf,
} from './time.ts'
import { type Followed, followed, type Missed, missed, type WithinOption } from './sequences.ts'

/** What `receiver.when` takes: an edge of `fleethook/when`. */
export interface VehicleEdge<Happened extends Occurrence = Occurrence> extends Edge<Happened> {
  /**
   * The same edge, when all of these conditions are true after the message.
   *
   * @example
   * ```ts
   * import { becomes, below } from 'fleethook/when'
   *
   * export const parksLow = becomes('Gear', 'P').where(below('BatteryLevel', 20))
   * ```
   */
  where(...conditions: readonly Condition[]): VehicleEdge<Happened>
  /**
   * The same edge under your own name instead of the derived one. The name is part of the id of each occurrence, and the edge
   * remembers under it. So give an edge a name that stays when you change its limits, and another one when it becomes another
   * edge. Throws `option_invalid` for a name that is not 1 to 100 characters.
   */
  named(name: string): VehicleEdge<Happened>
  /**
   * The same edge, told at most once in this time for each vehicle, by the vehicle's clock. What happens in between is not told, also not later. From a
   * second to a year.
   *
   * @example
   * ```ts
   * import { below, starts } from 'fleethook/when'
   *
   * export const isLow = starts(below('BatteryLevel', 20)).cooldown({ days: 1 })
   * ```
   */
  cooldown(duration: Duration): VehicleEdge<Happened>
  /**
   * Happens when the other edge happens at most `within` after this one, also over a restart. The newest one before it counts.
   *
   * @example
   * ```ts
   * import { becomes, enters, circle } from 'fleethook/when'
   *
   * const depot = circle({ latitude: 52.3731, longitude: 4.8926, radiusMeters: 200 })
   * export const plugsInAtTheDepot = enters(depot).followedBy(becomes('ChargePortLatch', 'Engaged'), { within: { minutes: 10 } })
   * ```
   */
  followedBy<Second extends Occurrence>(second: Edge<Second>, options: WithinOption): VehicleEdge<Followed<Second>>
  /**
   * Happens when the other edge does not happen in this time after this one: at the end of it, also when no message arrives then. It counts from the first
   * one, and another one begins when that is decided.
   *
   * @example
   * ```ts
   * import { becomes } from 'fleethook/when'
   *
   * export const notPluggedIn = becomes('Gear', 'P').unless(becomes('ChargePortLatch', 'Engaged'), { within: { minutes: 15 } })
   * ```
   */
  unless(second: Edge, options: WithinOption): VehicleEdge<Missed>
}

/** An edge that begins something which may last: `becomes`, `starts` and `ends` make it. */
export interface LastingEdge<Happened extends Occurrence = Occurrence> extends VehicleEdge<Happened> {
  where(...conditions: readonly Condition[]): LastingEdge<Happened>
  named(name: string): LastingEdge<Happened>
  /**
   * Happens when it has lasted for this time without interruption, also when no message arrives at that moment: once, unless the value
   * or the condition changes before. See "Time" in docs/vehicles.md.
   *
   * @example
   * ```ts
   * import { all, below, is, starts } from 'fleethook/when'
   *
   * export const parkedLow = starts(all(is('Gear', 'P'), below('BatteryLevel', 20))).after({ minutes: 30 })
   * ```
   */
  after(duration: Duration): VehicleEdge<Lasted>
}

/** Asks for changes that are not reported otherwise. */
export interface FirstOption {
  /**
   * Also the first value that the receiver sees of a vehicle. Default `false`: the first value is no change. Pass `true` where each value
   * counts, for instance for a counter.
   */
  readonly first?: boolean
}

/** Asks for changes that are not reported otherwise. */
export interface InvalidOption {
  /**
   * Also when the vehicle reports no value any more (the maker's `invalid`, the service's `null`), and when the same value returns.
   * Default `false`: the last value stays.
   */
  readonly invalid?: boolean
}

/** The size of a change. */
export interface DeltaOption {
  /** Happens when the number is this far from where it was the last time it happened. Above 0. Default: any change. */
  readonly delta?: number
}

/** The limit of `crosses`: one of `below` and `above`. */
export type Limit =
  | {
      /** Happens when the number gets below this one. */
      readonly below: number
      /** After it happened, it can happen again when the number was at this one or above. Default: `below`. */
      readonly again?: number
      readonly above?: never
    }
  | {
      /** Happens when the number gets above this one. */
      readonly above: number
      /** After it happened, it can happen again when the number was at this one or below. Default: `above`. */
      readonly again?: number
      readonly below?: never
    }

/** An edge before it has `where` and `named`. */
interface Detecting<Happened extends Occurrence> extends Omit<Edge<Happened>, 'reads' | 'topics' | 'where' | 'begins'> {
  readonly changesAt?: Condition['changesAt']
  readonly begins?: Edge['begins'] | undefined
  readonly reads?: readonly string[]
  readonly topics?: readonly EdgeTopic[]
  readonly holds?: (vehicle: AnyVehicleView) => boolean | undefined
  readonly isFirst?: boolean
  readonly mayBegin?: (vehicle: AnyVehicleView, sinceMs: number) => boolean
  readonly given?: true
  /** It has a cooldown, which counts what its conditions let through. */
  readonly cools?: { where(conditions: readonly Condition[]): LastingEdge<Happened> }
}

function edge<Happened extends Occurrence>({
  begins,
  cools,
  ...detecting
}: Detecting<Happened>): LastingEdge<Happened> {
  const { fields, reads = fields, topics = [], daily, changesAt } = detecting
  const begun = begins ?? (daily === true && changesAt !== undefined ? wakes(changesAt) : undefined)
  const own: LastingEdge<Happened> = {
    ...detecting,
    ...(begun === undefined ? {} : { begins: begun }),
    reads,
    topics,
    where: (...conditions) => (cools === undefined ? limited(detecting, conditions) : cools.where(conditions)),
    named: (name) => renamed(detecting, name),
    cooldown: (duration) => cooled(detecting, duration),
    followedBy: (second, options) => sequence(followed(own, second, options)),
    unless: (second, options) => sequence(missed(own, second, options)),
    after: (duration) => edge({ ...detecting, ...lastedAfter(detecting, duration) }),
  }
  return own
}

const sequence = <Happened extends Occurrence>(detecting: Detecting<Happened>): VehicleEdge<Happened> => edge(detecting)

/** It waits for what changes by itself. */
const wakes =
  (changesAt: NonNullable<Condition['changesAt']>): NonNullable<Edge['begins']> =>
  (vehicle) =>
    timerOf(changesAt, vehicle)

/**
 * The memory moves on while the conditions are not true: the edge has happened, and nobody is told. An uncertain value keeps counting as it
 * last arrived, because no other may arrive for days, and the occurrence says that messages may be missing. If it makes a condition
 * false, another value may be missing, so the occurrence waits until the vehicle reports what decides.
 */
function limited<Happened extends Occurrence>(
  inner: Detecting<Happened>,
  conditions: readonly Condition[],
): LastingEdge<Happened> {
  checkConditions('where', conditions)
  const fields = [...new Set(conditions.flatMap((condition) => condition.fields))]
  const names = conditions.map(({ name }) => name).join(',')
  const areTrue = (vehicle: AnyVehicleView): boolean => {
    const known = knowing(vehicle)
    return conditions.every(({ test }) => test(known) === true)
  }
  /** No condition is certainly false, and each has its values. */
  const mayBeTrue = (vehicle: AnyVehicleView): boolean => {
    const known = knowing(vehicle)
    return conditions.every(({ test }) => test(known) !== undefined && test(vehicle) !== false)
  }
  return edge({
    ...inner,
    traces: [...(inner.traces ?? []), ...conditions.flatMap((condition) => condition.traces ?? [])],
    name: inner.given ? inner.name : `${inner.name}.where(${names})`,
    reads: [...new Set([...(inner.reads ?? inner.fields), ...fields])],
    readsFacts: [...(inner.readsFacts ?? inner.facts ?? []), ...conditions.flatMap(({ facts = [] }) => facts)],
    mayBegin: (vehicle, sinceMs) =>
      areTrue(vehicle) && fields.every((field) => (vehicle.since(field)?.getTime() ?? Infinity) <= sinceMs),
    detect(step) {
      const { after } = step
      const waiting = waitingFor(step.memory, names)
      const known = waiting === undefined ? step.memory : waiting.inner
      const found = inner.detect(waiting === undefined ? step : { ...step, memory: known })
      const { happened: last, earlier = [], ...others } = found ?? {}
      // What waits is what this edge has found before.
      const all = (waiting?.happened ?? []).map((each) => dated(each as Happened)) // oxlint-disable-line no-unsafe-type-assertion
      all.push(...earlier, ...(last === undefined ? [] : [last]))
      if (all.length === 0) return found
      const isOver: EdgeResult<Happened> = waiting === undefined ? others : { memory: known ?? null, ...others }
      if (areTrue(after)) {
        const isAcross = fields.some((field) => isUncertain(after, field))
        return telling(
          isOver,
          all.map((each) => (isAcross ? marked(each) : each)),
        )
      }
      if (!mayBeTrue(after)) return isOver
      const ownMemory = found?.memory === undefined ? known : (found.memory ?? undefined)
      // An edge remembers little. What does not fit is told without waiting, the oldest first, and marked.
      const told = all.splice(0, Math.max(0, all.length - mostWaiting)).map(marked)
      for (;;) {
        if (all.length === 0) return telling(isOver, told)
        const memory = { waits: names, inner: ownMemory, happened: all.map((each) => undated(laterTold(each))) }
        if (JSON.stringify(memory).length <= longestMemory) return telling({ ...others, memory }, told)
        told.push(...all.splice(0, 1).map(marked))
      }
    },
  })
}

/** The most occurrences of an edge that wait for the same conditions. */
const mostWaiting = 50

/** What an edge found, and these occurrences, each told on its own. */
function telling<Happened extends Occurrence>(
  others: Omit<EdgeResult<Happened>, 'happened' | 'earlier'>,
  all: readonly Happened[],
): EdgeResult<Happened> {
  const happened = all.at(-1)
  return happened === undefined ? others : { ...others, happened, earlier: all.slice(0, -1) }
}

const marked = <Happened extends Occurrence>(happened: Happened): Happened =>
  happened.acrossGap ? happened : { ...happened, acrossGap: true }

function laterTold<Happened extends Occurrence>(happened: Happened): Happened {
  return 'late' in happened ? { ...happened, acrossGap: true, late: true } : { ...happened, acrossGap: true }
}

/** What a cooled edge remembers. */
interface Cooled extends EdgeRecord {
  /** When it was told last. */
  readonly toldMs?: number | undefined
}

/** Lets through only what is far enough from what was told last. */
function cooled<Happened extends Occurrence>(inner: Detecting<Happened>, duration: Duration): LastingEdge<Happened> {
  const { ms, name } = readDuration('cooldown', duration)
  return edge({
    ...inner,
    name: inner.given ? inner.name : `${inner.name}.cooldown(${name})`,
    cools: { where: (conditions) => limited(inner, conditions).cooldown(duration) as LastingEdge<Happened> }, // oxlint-disable-line no-unsafe-type-assertion
    detect(step) {
      const { memory } = step
      const kept: Cooled =
        typeof memory === 'object' && memory !== null && 'toldMs' in memory ? memory : { inner: memory ?? undefined }
      const { happened, earlier = [], memory: next, ...others } = inner.detect({ ...step, memory: kept.inner }) ?? {}
      let { toldMs } = kept
      const all = [...earlier, ...(happened === undefined ? [] : [happened])].filter(({ at }) => {
        if (toldMs !== undefined && Math.abs(at.getTime() - toldMs) < ms) return false
        toldMs = Math.max(at.getTime(), toldMs ?? -Infinity)
        return true
      })
      if (toldMs === undefined) return telling(next === undefined ? others : { ...others, memory: next }, all)
      const own = next === undefined ? kept.inner : (next ?? undefined)
      return telling({ ...others, memory: { inner: own, toldMs } }, all)
    },
  })
}

function renamed<Happened extends Occurrence>(inner: Detecting<Happened>, name: unknown): LastingEdge<Happened> {
  if (!isName(name))
    throw invalid('The name of an edge must be a text of 1 to 100 characters', 'Leave `named` out for a derived name.')
  return edge({ ...inner, name, given: true })
}

/** The part of a derived name that says which options are set, for instance `,first`. */
const marks = (options: object): string =>
  Object.entries(options)
    .filter(([, value]) => value !== undefined && value !== false)
    .toSorted(([one], [two]) => (one < two ? -1 : 1))
    .map(([name, value]) => (value === true ? `,${name}` : `,${name} ${String(value)}`))
    .join('')

/** The change of one field in a message, if the options ask for changes of its kind. */
function changeOf(
  { changes }: EdgeStep,
  field: string,
  { first, invalid: isInvalidAsked }: FirstOption & InvalidOption,
): Change | undefined {
  const change = changes.find((one) => one.field === field)
  if (change === undefined || (change.first && first !== true) || (change.invalid && isInvalidAsked !== true))
    return undefined
  return change
}

export function valueEdge(
  what: 'becomes' | 'ceases',
  catalogue: FieldCatalogue,
  field: string,
  value: FieldValue,
  options: FirstOption & InvalidOption = {},
): LastingEdge<Change> {
  if (what === 'becomes')
    checkOptions<FirstOption & InvalidOption>(what, options, { first: trueOrFalse, invalid: trueOrFalse })
  else checkOptions<InvalidOption>(what, options, { invalid: trueOrFalse })
  checkConstant(what, catalogue, field, value, options.invalid)
  return edge({
    name: `${what}(${field},${JSON.stringify(value)}${marks(options)})`,
    fields: [field],
    ...(what === 'becomes' ? { holds: hasValue(field, value, options.invalid), isFirst: options.first === true } : {}),
    detect(step) {
      const change = changeOf(step, field, options)
      const compared = what === 'becomes' ? change?.to : change?.from
      return change !== undefined && isDeepEqual(compared, value) ? { happened: change } : undefined
    },
  })
}

/** `invalid`: no value is another one. Otherwise the last one stays. */
const hasValue =
  (field: string, value: FieldValue, invalid = false) =>
  (vehicle: AnyVehicleView): boolean => {
    const isNone = vehicle.invalidSince(field) !== undefined
    if (value === null && !nullMeansNone.has(field)) return isNone
    return isDeepEqual(vehicle.value(field), value) && !(invalid && isNone)
  }

const aDelta: Rule = {
  must: 'must be a number above 0',
  accepts: (value) => typeof value === 'number' && value > 0 && value < Infinity,
}

export function changedEdge(
  catalogue: FieldCatalogue,
  field: string,
  options: FirstOption & InvalidOption & DeltaOption = {},
): VehicleEdge<Change> {
  checkOptions<FirstOption & InvalidOption & DeltaOption>('changed', options, {
    first: trueOrFalse,
    invalid: trueOrFalse,
    delta: aDelta,
  })
  const { delta, ...asked } = options
  if (delta === undefined) checkField('changed', field)
  else checkNumber('changed', catalogue, field)
  return edge({
    name: `changed(${field}${marks(options)})`,
    fields: [field],
    detect(step) {
      const change = changeOf(step, field, asked)
      if (delta === undefined || change === undefined || typeof change.to !== 'number')
        return change === undefined ? undefined : { happened: change }
      return moved(step, change, (from, to) => Math.abs(to - from) >= delta)
    },
  })
}

/** A fact of the vehicle is another one. */
export interface FactChange<Value = unknown> extends Occurrence {
  /** The name of the fact. */
  readonly fact: string
  /** `undefined`: there was none. */
  readonly from: Value | undefined
  /** `undefined`: there is none. */
  readonly to: Value | undefined
}

export function changedFactEdge<Value>(given: Fact<string, Value>): VehicleEdge<FactChange<Value>> {
  const { name } = given
  return edge<FactChange<Value>>({
    name: `changed(fact ${name})`,
    fields: [],
    facts: [given],
    detect({ before, after, at }) {
      const [from, to] = [before.fact(given), after.fact(given)]
      return isSameFact(from, to) ? undefined : { happened: { at, acrossGap: false, fact: name, from, to } }
    },
  })
}

/** An area is the same when its shape is. */
const isSameFact = (one: unknown, other: unknown): boolean =>
  one === other || JSON.stringify(one) === JSON.stringify(other)

/** `up` is 1 for `rises` and -1 for `falls`. */
export function movesEdge(
  what: 'rises' | 'falls',
  catalogue: FieldCatalogue,
  field: string,
  options: DeltaOption = {},
): VehicleEdge<Change> {
  checkOptions<DeltaOption>(what, options, { delta: aDelta })
  checkNumber(what, catalogue, field)
  const up = what === 'rises' ? 1 : -1
  const { delta = 0 } = options
  return edge({
    name: `${what}(${field}${marks(options)})`,
    fields: [field],
    detect(step) {
      const change = changeOf(step, field, {})
      if (typeof change?.to !== 'number' || typeof change.from !== 'number') return undefined
      const isUp = (from: number, to: number): boolean => (to - from) * up > 0 && Math.abs(to - from) >= delta
      if (delta === 0) return isUp(change.from, change.to) ? { happened: change } : undefined
      return moved(step, change, isUp, (from, to) => (to - from) * up < 0)
    },
  })
}

/**
 * Compares a number with where it was when the edge happened last. `[value, time]` of that is remembered while the newest value
 * is another one. `resets`: the number went the other way, so it starts from here.
 */
function moved(
  { memory }: EdgeStep,
  change: Change,
  isFar: (from: number, to: number) => boolean,
  resets: (from: number, to: number) => boolean = () => false,
): EdgeResult<Change> | undefined {
  const { to } = change
  if (typeof to !== 'number') return undefined
  const last = typeof memory === 'string' ? reference(memory) : undefined
  const [from, fromMs] = last ?? [change.from, change.fromAt?.getTime()]
  // The first value, where it is asked for, or a number after something else.
  if (typeof from !== 'number') return { happened: change, memory: null }
  if (isFar(from, to))
    return {
      happened: { ...change, from, fromAt: fromMs === undefined ? undefined : new Date(fromMs) },
      memory: null,
    }
  return { memory: resets(from, to) ? null : JSON.stringify([from, fromMs]) }
}

function reference(memory: string): readonly [value: number, atMs: number | undefined] | undefined {
  const read: unknown = JSON.parse(memory)
  if (!Array.isArray(read) || typeof read[0] !== 'number') return undefined
  return [read[0], typeof read[1] === 'number' ? read[1] : undefined]
}

export function crossesEdge(catalogue: FieldCatalogue, field: string, limit: Limit & FirstOption): VehicleEdge<Change> {
  checkOptions<{ below?: number; above?: number; again?: number; first?: boolean }>('crosses', limit, {
    below: anyNumber,
    above: anyNumber,
    again: anyNumber,
    first: trueOrFalse,
  })
  const { below, above, again, first } = limit
  if ((below === undefined) === (above === undefined))
    throw invalid('`crosses` needs one limit', 'Pass { below: 20 } or { above: 80 }. For both, register two edges.')
  checkNumber('crosses', catalogue, field)
  const up = above === undefined ? -1 : 1
  const line = above ?? below ?? 0
  const back = again ?? line
  if ((back - line) * up > 0) {
    throw invalid(
      `\`crosses\` of \`${field}\` has { ${up < 0 ? 'below' : 'above'}: ${line}, again: ${back} }, and \`again\` is on the wrong side`,
      `Pass a number ${up < 0 ? 'above' : 'below'} ${line}: the value goes back there before the edge can happen again.`,
    )
  }
  const isOver = (value: unknown): boolean => typeof value === 'number' && (value - line) * up > 0
  const isBack = (value: unknown): boolean => typeof value !== 'number' || (value - back) * up <= 0
  return edge({
    name: `crosses(${field}${marks(limit)})`,
    fields: [field],
    detect(step) {
      const change = changeOf(step, field, { first: true })
      return change === undefined
        ? undefined
        : switched(step, change, {
            wasOn: isOver(change.from),
            isOver: isOver(change.to),
            isBack: isBack(change.to),
            happensOn: true,
            first,
          })
    },
  })
}

const anyNumber: Rule = { must: 'must be a number', accepts: (value) => Number.isFinite(value) }

/**
 * An edge with hysteresis. It is on from a value over the line until a value is back, and remembers only what the last
 * value does not say: that it is still on.
 */
function switched<Value>(
  { memory }: EdgeStep,
  change: Change<Value>,
  to: {
    readonly wasOn: boolean
    readonly isOver: boolean
    readonly isBack: boolean
    readonly happensOn: boolean
    readonly first: boolean | undefined
  },
): EdgeResult<Change<Value>> {
  const before = !change.first && (memory === true || to.wasOn)
  const after = to.isOver || (before && !to.isBack)
  const remembered = after && !to.isOver ? true : null
  const happens = after === to.happensOn && (change.first ? to.first === true : before !== after)
  return happens ? { happened: change, memory: remembered } : { memory: remembered }
}

export function areaEdge(
  what: 'enters' | 'leaves',
  area: Area | Fact<string, Area, never>,
  options: MarginOption & FirstOption = {},
): VehicleEdge<Change<Location>> {
  checkOptions<MarginOption & FirstOption>(what, options, { marginMeters: aMargin, first: trueOrFalse })
  if (isFact(area)) return ownAreaEdge(what, area, options)
  checkArea(what, area)
  const { marginMeters = 0, first } = options
  const metersTo = (value: unknown): number => (isPlace(value) ? area.metersTo(value) : Infinity)
  return edge({
    name: `${what}(${area.name}${marks(options)})`,
    fields: [positionField],
    bounds: widened(area.bounds, marginMeters),
    detect(step) {
      const { memory } = step
      const change = changeOf(step, positionField, { first: true })
      if (!isMove(change)) return change && { memory: memory === true || metersTo(change.from) === 0 ? true : null }
      const meters = metersTo(change.to)
      return switched(step, change, {
        wasOn: metersTo(change.from) === 0,
        isOver: meters === 0,
        isBack: meters > marginMeters,
        happensOn: what === 'enters',
        first,
      })
    },
  })
}

/** The area is a fact, so it can become another one around the vehicle. An area that is gone is neither entered nor left. */
function ownAreaEdge(
  what: 'enters' | 'leaves',
  area: Fact<string, Area, never>,
  { first, ...margin }: MarginOption & FirstOption,
): VehicleEdge<Change<Location>> {
  checkTypeOf(what, area, 'area')
  const within = inside(area, margin)
  return edge<Change<Location>>({
    name: `${what}(fact ${area.name}${marks({ first, ...margin })})`,
    fields: [positionField],
    facts: [area],
    traces: within.traces ?? [],
    detect({ before, after, at, changes }) {
      const [from, to] = [before.value(positionField), after.value(positionField)]
      if (!isPlace(to) || after.fact<Area>(area) === undefined) return undefined
      const [was, is] = [before, after].map((vehicle) => within.test(knowing(vehicle)) === true)
      if (isPlace(from) ? was === is : first !== true) return undefined
      if (is !== (what === 'enters')) return undefined
      const moved = changes.find(({ field }) => field === positionField)
      const fromAt = before.at(positionField)
      const acrossGap = isUncertain(before, positionField)
      const same = { field: positionField, at, fromAt, acrossGap, first: moved?.first === true, invalid: false }
      return { happened: { ...same, from: isPlace(from) ? from : undefined, to, at: moved?.at ?? at } }
    },
  })
}

/** Ignores invalid coordinates. */
const isMove = (change: Change | undefined): change is Change<Location> => isPlace(change?.to)

export function onlineEdge(name: 'comesOnline' | 'goesOffline', options: FirstOption = {}): VehicleEdge {
  checkOptions<FirstOption>(name, options, { first: trueOrFalse })
  const wanted = name === 'comesOnline'
  return aboutTheVehicle(name, options, ({ online }) => (online === undefined ? undefined : online === wanted))
}

export function asleepEdge(options: FirstOption = {}): VehicleEdge {
  checkOptions<FirstOption>('fallsAsleep', options, { first: trueOrFalse })
  // A vehicle that is online is not asleep, also when no state of it was heard.
  return aboutTheVehicle('fallsAsleep', options, ({ state, online }) =>
    state === undefined ? (online === true ? false : undefined) : state === 'asleep',
  )
}

function aboutTheVehicle(
  name: string,
  options: FirstOption,
  isSo: (vehicle: AnyVehicleView) => boolean | undefined,
): VehicleEdge {
  return edge({
    name: `${name}(${marks(options).slice(1)})`,
    fields: [],
    topics: onlineTopics,
    detect({ before, after, at }) {
      const was = isSo(before)
      if (isSo(after) !== true || was === true || (was === undefined && options.first !== true)) return undefined
      return { happened: { at, acrossGap: was !== undefined && !before.isOnlineCertain } }
    },
  })
}

/** The topics that say something of values, and of whether a vehicle is online. */
const valueTopics: readonly EdgeTopic[] = ['data', 'vehicle_data']
const onlineTopics: readonly EdgeTopic[] = ['state', 'connectivity', 'vehicle_data']

/** The memory of a condition that was neither true nor false yet. */
const notKnown = 'unknown'

/** An uncertain value keeps counting as it last arrived. So it ends nothing, and another field can begin what it keeps true. */
export function turnsEdge(what: 'starts' | 'ends', condition: Condition, options: FirstOption = {}): LastingEdge {
  checkConditions(what, [condition])
  checkOptions<FirstOption>(what, options, { first: trueOrFalse })
  const wanted = what === 'starts'
  const { fields, bounds, ages, daily, online, facts, traces = [] } = condition
  const { changesAt } = condition
  const holds = (vehicle: AnyVehicleView): boolean | undefined => {
    const truth = condition.test(vehicle)
    return truth === undefined ? undefined : truth === wanted
  }
  return edge({
    name: `${what}(${condition.name}${marks(options)})`,
    fields,
    // A value that is reported again is no change, but counts for longer.
    topics: [...new Set([...(ages === true ? valueTopics : []), ...(online === true ? onlineTopics : [])])],
    ...(bounds === undefined ? {} : { bounds }),
    ...(facts === undefined ? {} : { facts }),
    traces,
    holds,
    isFirst: options.first === true,
    ...(changesAt === undefined ? {} : { timing: createClockwork, changesAt }),
    ...(daily === true ? { daily } : {}),
    detect(given) {
      const step = daily === true ? inOrder(given) : given
      const found = turned(step)
      return changesAt === undefined ? found : { ...found, timer: timerOf(changesAt, step.after) ?? null }
    },
  })

  function turned({ before, after, at, memory }: EdgeStep): EdgeResult {
    const last = typeof memory === 'boolean' ? memory : condition.test(lastKnown(before))
    const was = memory === notKnown ? undefined : last
    const is = condition.test(knowing(after))
    // Remembered only while it is neither true nor false. Otherwise the values say it.
    if (is === undefined) return { memory: was ?? notKnown }
    if (is !== wanted || was === is || (was === undefined && options.first !== true)) return { memory: null }
    const began = new Date(beginning({ fields, holds }, after, at.getTime()))
    const isOnlineOld = online === true && before.online !== undefined && !before.isOnlineCertain
    const acrossGap = isOnlineOld || fields.some((field) => isUncertain(before, field))
    return { happened: { at: began, acrossGap }, memory: null }
  }
}

export const silentEdge = (duration: Duration, options: SilentOptions): VehicleEdge<Silence> =>
  edge(silence(duration, options))

export function heardEdge(silent: VehicleEdge<Silence>): VehicleEdge<Heard> {
  if (!isSilence(silent)) throw invalid('`heardAgain` needs the silence that it ends', 'Pass the result of `silent`.')
  return edge(hearing(silent))
}

/** The alerts that one edge remembers of a vehicle. A vehicle has a few. More would be reported again, and none is missed. */
const mostAlerts = 100

/** The newest alert of a name. */
interface KnownAlert {
  readonly isActive: boolean
  /** When it started, or when it ended. */
  readonly sinceMs: number
  /** When the clock was ahead of the receipt: its start, which a repeated alert has again, and the newest time that the clock said. */
  readonly ahead: { readonly startMs: number; readonly newestMs: number } | undefined
}

/** An alert of a message, with its times by a clock that is never ahead of the receipt. */
interface SentAlert {
  readonly alert: Alert
  /** The start and the newest time by its own clock, when that is ahead of the receipt. */
  readonly saidMs: number | undefined
  readonly newestSaidMs: number
  readonly startMs: number | undefined
  readonly endMs: number | undefined
}

/** An alert that ended this long before its first message is history that comes beside the news. */
const historyMs = 86_400_000

function sentAlerts({ at, event, arrivedMs }: EdgeStep): readonly SentAlert[] {
  if (event.topic !== 'alerts') return []
  // The clock of a vehicle that was set back is corrected.
  const shiftMs = Math.max(0, at.getTime() - event.at.getTime())
  const read = (time: string | undefined): number | undefined => {
    const ms = msOf(time)
    return ms === undefined ? undefined : ms + shiftMs
  }
  const received = (ms: number | undefined): number | undefined => (ms === undefined ? ms : Math.min(ms, arrivedMs))
  return event.alerts.map((alert) => {
    const saidMs = read(alert.startedAt)
    const saidEndMs = read(alert.endedAt)
    const newestSaidMs = Math.max(saidMs ?? -Infinity, saidEndMs ?? -Infinity)
    return { alert, saidMs, newestSaidMs, startMs: received(saidMs), endMs: received(saidEndMs) }
  })
}

/** What an alert of a message says that no earlier one said. `known` is the newest alert of its name. */
function newsOf(
  { alert, saidMs, newestSaidMs, startMs, endMs }: SentAlert,
  known: KnownAlert | undefined,
  atMs: number,
): { readonly starts: boolean; readonly ends: boolean; readonly next: KnownAlert } | undefined {
  const { sinceMs, isActive: wasActive } = known ?? { sinceMs: -Infinity, isActive: false }
  const isActive = alert.endedAt === undefined
  // An alert that does not say when it started is the known alert, or is as old as its end.
  const beganMs = startMs ?? (wasActive ? sinceMs : ((isActive ? undefined : endMs) ?? atMs))
  const isKnown = saidMs !== undefined && saidMs === known?.ahead?.startMs
  // Two times of a clock that is ahead count as received at once, and are in its own order.
  const wasAhead = { aheadMs: known?.ahead?.newestMs ?? 0, atMs: sinceMs }
  const isStillAhead = saidMs !== undefined && saidMs > beganMs
  const isRightAgain = isStillAhead && isCorrected({ aheadMs: saidMs, atMs: beganMs }, wasAhead)
  const byClock = isStillAhead && !isRightAgain ? known?.ahead : undefined
  // A late message lists what was active earlier, and every message can repeat what an earlier one said.
  const isNew =
    !isKnown &&
    (byClock === undefined ? isRightAgain || beganMs > sinceMs : saidMs !== undefined && saidMs > byClock.newestMs)
  if (isActive && !isNew) return undefined
  const endedMs = Math.max(beganMs, endMs ?? atMs)
  const isOver = !isActive && wasActive && (isKnown || beganMs >= sinceMs)
  if (!isNew && !isOver) return undefined
  const sinceNextMs = isActive ? beganMs : endedMs
  const isAhead = saidMs !== undefined && newestSaidMs > sinceNextMs
  const ahead = isAhead ? { startMs: saidMs, newestMs: newestSaidMs } : undefined
  const next = { isActive, sinceMs: sinceNextMs, ahead }
  const isHistory = known === undefined && !isActive && endedMs < atMs - historyMs
  return { starts: isNew && !isHistory, ends: !isActive && !isHistory, next }
}

export function alertEdge(what: 'alertStarts' | 'alertEnds', name?: string): VehicleEdge<AlertOccurrence> {
  if (name !== undefined && (typeof name !== 'string' || name === ''))
    throw invalid(`\`${what}\` needs the name of an alert`, 'Leave it out for all alerts.')
  return edge<AlertOccurrence>({
    name: `${what}(${name === undefined ? '' : JSON.stringify(name)})`,
    fields: [],
    topics: ['alerts'],
    detect(step) {
      const { event, at, memory } = step
      if (event.topic !== 'alerts') return undefined
      const known = knownAlerts(memory)
      const alerts: Alert[] = []
      const inOrder = sentAlerts(step).toSorted((a, b) => (a.startMs ?? Infinity) - (b.startMs ?? Infinity))
      for (const sent of inOrder) {
        if (name !== undefined && sent.alert.name !== name) continue
        const key = sent.alert.name.slice(0, longestName)
        const news = newsOf(sent, known.get(key), at.getTime())
        if (news === undefined) continue
        known.delete(key)
        known.set(key, news.next)
        if (what === 'alertStarts' ? news.starts : news.ends) alerts.push(sent.alert)
      }
      const kept = [...known]
        .slice(-mostAlerts)
        .map(([alert, { sinceMs, isActive, ahead }]) =>
          ahead === undefined
            ? [alert, sinceMs, isActive]
            : [alert, sinceMs, isActive, ...new Set([ahead.startMs, ahead.newestMs])],
        )
      return {
        memory: JSON.stringify(kept),
        ...(alerts.length === 0 ? {} : { happened: { at, acrossGap: false, alerts: alerts.map(storable) } }),
      }
    },
  })
}

/** The alert without members that are too large or nested too deep: a dead letter stores what happened. */
function storable(alert: Alert): Alert {
  const { name, audiences } = alert
  const others = Object.entries(alert).filter(([, value]) => lengthOf(value) < Infinity)
  return { ...Object.fromEntries(others), name, audiences }
}

function knownAlerts(memory: unknown): Map<string, KnownAlert> {
  const read: unknown = typeof memory === 'string' ? JSON.parse(memory) : []
  const known = new Map<string, KnownAlert>()
  for (const entry of Array.isArray(read) ? read : []) {
    if (!Array.isArray(entry)) continue
    const [name, sinceMs, isActive, startMs, newestMs = startMs]: readonly unknown[] = entry
    if (typeof name !== 'string' || typeof sinceMs !== 'number') continue
    const ahead = typeof startMs === 'number' && typeof newestMs === 'number' ? { startMs, newestMs } : undefined
    known.set(name, { sinceMs, isActive: isActive === true, ahead })
  }
  return known
}

function msOf(time: string | undefined): number | undefined {
  const ms = readTime(time)
  return isTimeSet(ms) ? ms : undefined
}
