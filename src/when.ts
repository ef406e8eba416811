/**
 * Edges and conditions for `receiver.when`: what happens to a vehicle, and what is true of it.
 *
 * @module
 */
import { checkOptions, numberBetween, type Rule, wholeNumber } from './base/options.ts'
import {
  builtInFields,
  type BuiltInFields,
  type ExtendedBy,
  type FieldCatalogue,
  type FieldName,
  type OtherField,
  type ValueOf,
} from './events/fields.ts'
import type { FieldValue, Location } from './events/values.ts'
import type { AlertOccurrence, Change, Condition } from './vehicles/edge.ts'
import { type Fact, isFact } from './vehicles/fact.ts'
import { isDeepEqual } from './vehicles/state.ts'
import type { Area, MarginOption } from './when/areas.ts'
import {
  checkConstant,
  checkField,
  checkNumber,
  checkTypeOf,
  comparison,
  type FreshOption,
  invalid,
  positionField,
  valueCondition,
} from './when/conditions.ts'
import {
  alertEdge,
  areaEdge,
  asleepEdge,
  changedEdge,
  changedFactEdge,
  crossesEdge,
  type DeltaOption,
  type FactChange,
  type FirstOption,
  heardEdge,
  type InvalidOption,
  type LastingEdge,
  type Limit,
  movesEdge,
  onlineEdge,
  silentEdge,
  turnsEdge,
  valueEdge,
  type VehicleEdge,
} from './when/edges.ts'
import { constantOperand, factOperand, fieldOperand, type Operand } from './when/facts.ts'
import { type Curve, type Energy, type Measure, mostOfPath, type Path, type Range, type Span } from './when/measures.ts'
import type { Duration, Heard, Silence, SilentOptions } from './when/time.ts'

export type { EdgeBatchHandler, EdgeHandler, Happening } from './core/handler.ts'
export type {
  AlertOccurrence,
  AnyVehicleView,
  Bounds,
  Change,
  Condition,
  Edge,
  EdgeMemory,
  EdgeRecord,
  EdgeResult,
  EdgeStep,
  EdgeTimer,
  EdgeTopic,
  EpisodeOccurrence,
  KnownThen,
  Occurrence,
  PendingTimer,
  Trace,
  VehicleView,
} from './vehicles/edge.ts'
export type { Clockwork, Timing, TimingHost } from './vehicles/timing.ts'
export type { FactsBy, FactTime, RowOf, SetAllOptions, SetAllResult, VehiclesStats } from './vehicles/vehicles.ts'
export { metersBetween } from './vehicles/places.ts'
export { type Area, circle, type Circle, type MarginOption, polygon } from './when/areas.ts'
export { all, any, type FreshOption, inside, not } from './when/conditions.ts'
export { fact, type FactGiven, type FactTypes, has } from './when/facts.ts'
export type { Fact, KnownFact } from './vehicles/fact.ts'
export type {
  DeltaOption,
  FactChange,
  FirstOption,
  InvalidOption,
  LastingEdge,
  Limit,
  VehicleEdge,
} from './when/edges.ts'
export { episode, type Episode, type EpisodeEdge, type EpisodeOptions, type Measures } from './when/episode.ts'
export { hours, type HoursOptions, type PeriodOptions } from './when/hours.ts'
export { isAsleep, isOnline } from './when/online.ts'
export { drives, moves, type MovesOptions } from './when/motion.ts'
export type { Curve, CurvePart, Energy, Measure, Path, PathPoint, Range, Span } from './when/measures.ts'
export type { Followed, Missed, WithinOption } from './when/sequences.ts'
export type { Duration, Heard, Lasted, Silence, SilentOptions } from './when/time.ts'
export { type EpisodeRow, type SqliteValue, type SqlValue, type Statement, upsert } from './when/upsert.ts'

/** A value that a field can have. */
export type ConstantOf<Fields extends FieldCatalogue, Name> = Name extends keyof Fields
  ? ValueOf<Fields[Name]>
  : FieldValue

/** A field of a catalogue, or an {@link OtherField}. */
export type AnyField<Fields extends FieldCatalogue = BuiltInFields> = FieldName<Fields> | OtherField

/** A field of a catalogue whose values are numbers, or an {@link OtherField}. */
export type NumberField<Fields extends FieldCatalogue = BuiltInFields> =
  { [Name in FieldName<Fields>]: ValueOf<Fields[Name]> extends number ? Name : never }[FieldName<Fields>] | OtherField

/** What a number is compared with: a constant, a fact of the vehicle, or another of its fields. */
export type NumberOperand<Fields extends FieldCatalogue = BuiltInFields> =
  number | Fact<string, number, never> | NumberField<Fields>

/** A field of a catalogue whose values are places, or an {@link OtherField}. */
export type PlaceField<Fields extends FieldCatalogue = BuiltInFields> =
  { [Name in FieldName<Fields>]: ValueOf<Fields[Name]> extends Location ? Name : never }[FieldName<Fields>] | OtherField

/** Options of `growth`. */
export interface GrowthOptions {
  /**
   * What the counter begins with. When no value before the start is known, the first one counts from here, if it can have come so far since the start.
   * Default: it counts from the first value that is known.
   */
  readonly startsAt?: number | undefined
}

/** Options of `energy`: the fields of both counters, in kWh. */
export interface EnergyOptions<Field extends string = string> {
  /** What the socket gave with AC. Default `'ACChargingEnergyIn'`. */
  readonly ac?: Field
  /** What reached the battery. Default `'DCChargingEnergyIn'`. */
  readonly dc?: Field
}

/** Options of `curve`. */
export interface CurveOptions {
  /** The length of a part, from 1 to 1,440. Parts begin at multiples of it, by UTC. Default 15. */
  readonly everyMinutes?: number
}

/** Options of `path`. */
export interface PathOptions<Field extends string = string> {
  /** A position counts when it is this far from the last position that counted, in meters. From 1 to 100,000. Default 25. */
  readonly everyMeters?: number
  /** The most points, from 2 to 1,000. When there are more, their distance is doubled. Default 250. */
  readonly mostPoints?: number
  /** The field of the position. Default `'Location'`. */
  readonly field?: Field
  /** At most two fields whose last values each point has, under `with`. */
  readonly with?: readonly string[]
}

/** The measures of an {@link episode} whose types follow from a catalogue. */
export interface MeasureRules<Fields extends FieldCatalogue = BuiltInFields> {
  /** See {@link span}. */
  span<const Name extends AnyField<Fields>>(field: Name): Measure<Span<ConstantOf<Fields, Name>>>
  /** See {@link growth}. */
  growth(field: NumberField<Fields>, options?: GrowthOptions): Measure<number | null>
  /** See {@link energy}. */
  energy(options?: EnergyOptions<NumberField<Fields>>): Measure<Energy>
  /** See {@link curve}. */
  curve(field: NumberField<Fields>, options?: CurveOptions): Measure<Curve>
  /** See {@link average}. */
  average(field: NumberField<Fields>): Measure<number | null>
  /** See {@link last}. */
  last<const Name extends AnyField<Fields>>(field: Name): Measure<ConstantOf<Fields, Name> | null>
  /** See {@link range}. */
  range(field: NumberField<Fields>): Measure<Range>
  /** See {@link path}. */
  path(options?: PathOptions<PlaceField<Fields>>): Measure<Path>
}

/** The edges, conditions and measures whose types follow from a catalogue: the result of {@link rulesFor}. */
export interface Rules<Fields extends FieldCatalogue = BuiltInFields> extends MeasureRules<Fields> {
  /** See {@link becomes}. */
  becomes<const Name extends AnyField<Fields>>(
    field: Name,
    value: ConstantOf<Fields, Name> | null,
    options?: FirstOption & InvalidOption,
  ): LastingEdge<Change<ConstantOf<Fields, Name>>>
  /** See {@link ceases}. */
  ceases<const Name extends AnyField<Fields>>(
    field: Name,
    value: ConstantOf<Fields, Name> | null,
    options?: InvalidOption,
  ): VehicleEdge<Change<ConstantOf<Fields, Name>>>
  /** See {@link changed}. */
  changed<const Name extends AnyField<Fields>>(
    field: Name,
    options?: FirstOption &
      InvalidOption &
      (Name extends NumberField<Fields> ? DeltaOption : { readonly delta?: never }),
  ): VehicleEdge<Change<ConstantOf<Fields, Name>>>
  changed<Value>(fact: Fact<string, Value, never>): VehicleEdge<FactChange<Value>>
  /** See {@link crosses}. */
  crosses(field: NumberField<Fields>, limit: Limit & FirstOption): VehicleEdge<Change<number>>
  /** See {@link rises}. */
  rises(field: NumberField<Fields>, options?: DeltaOption): VehicleEdge<Change<number>>
  /** See {@link falls}. */
  falls(field: NumberField<Fields>, options?: DeltaOption): VehicleEdge<Change<number>>
  /** See {@link is}. */
  is<const Name extends AnyField<Fields>>(
    field: Name,
    value: ConstantOf<Fields, Name> | null,
    options?: FreshOption,
  ): Condition
  is<const Name extends AnyField<Fields>>(
    field: Name,
    fact: Fact<string, ConstantOf<Fields, Name>, never>,
    options?: FreshOption,
  ): Condition
  is<Value>(fact: Fact<string, unknown, Value>, value: Value): Condition
  /** See {@link below}. */
  below(field: NumberField<Fields>, limit: NumberOperand<Fields>, options?: FreshOption): Condition
  /** See {@link above}. */
  above(field: NumberField<Fields>, limit: NumberOperand<Fields>, options?: FreshOption): Condition
  /** See {@link between}. */
  between(
    field: NumberField<Fields>,
    least: NumberOperand<Fields>,
    most: NumberOperand<Fields>,
    options?: FreshOption,
  ): Condition
}

/**
 * The edges, conditions and measures that name a field, for a receiver with the option `fields`: with the types of your own fields. Pass the
 * same object.
 *
 * @example
 * ```ts
 * import type { FieldCatalogue } from 'fleethook'
 * import { rulesFor } from 'fleethook/when'
 *
 * export const fields = { Mood: { enum: ['Calm', 'Angry'] } } as const satisfies FieldCatalogue
 * const { becomes } = rulesFor(fields)
 * export const calmsDown = becomes('Mood', 'Calm')
 * ```
 */
export function rulesFor<const Own extends FieldCatalogue>(fields: Own): Rules<ExtendedBy<Own>> {
  const catalogue = { ...builtInFields, ...fields }
  return { ...rulesOf<ExtendedBy<Own>>(catalogue), ...measuresOf<ExtendedBy<Own>>(catalogue) }
}

const aField: Rule = {
  must: 'must be the name of a field',
  accepts: (value) => typeof value === 'string' && value !== '',
}

function measuresOf<Fields extends FieldCatalogue>(catalogue: FieldCatalogue): MeasureRules<Fields> {
  const rules = {
    span(field: string): Measure {
      checkField('span', field)
      return { kind: 'span', field }
    },
    growth(field: string, options: GrowthOptions = {}): Measure {
      checkNumber('growth', catalogue, field)
      checkOptions<GrowthOptions>('growth', options, { startsAt: numberBetween(-1e15, 1e15) })
      return { kind: 'growth', field, startsAt: options.startsAt }
    },
    energy(options: EnergyOptions = {}): Measure {
      checkOptions<EnergyOptions>('energy', options, { ac: aField, dc: aField })
      const { ac = 'ACChargingEnergyIn', dc = 'DCChargingEnergyIn' } = options
      for (const field of [ac, dc]) checkNumber('energy', catalogue, field)
      return { kind: 'energy', field: ac, others: [dc] }
    },
    curve(field: string, options: CurveOptions = {}): Measure {
      checkNumber('curve', catalogue, field)
      checkOptions<CurveOptions>('curve', options, { everyMinutes: wholeNumber(1, 1_440) })
      return { kind: 'curve', field, startsAt: 0, everyMinutes: options.everyMinutes ?? 15 }
    },
    average(field: string): Measure {
      checkNumber('average', catalogue, field)
      return { kind: 'average', field }
    },
    last(field: string): Measure {
      checkField('last', field)
      return { kind: 'last', field }
    },
    range(field: string): Measure {
      checkNumber('range', catalogue, field)
      return { kind: 'range', field }
    },
    path(options: PathOptions = {}): Measure {
      checkOptions<PathOptions>('path', options, {
        everyMeters: numberBetween(1, 100_000),
        mostPoints: wholeNumber(2, mostOfPath),
        field: aField,
        with: {
          must: 'must be a list of one or two fields',
          accepts: (value) => Array.isArray(value) && value.length <= 2 && value.every(aField.accepts),
        },
      })
      const { everyMeters = 25, mostPoints = 250, field = positionField, with: others = [] } = options
      return { kind: 'path', field, everyMeters, mostPoints, others }
    },
  }
  // The compiler cannot see that a value of a field has the field's type. The interface says it.
  return rules as MeasureRules<Fields> // oxlint-disable-line no-unsafe-type-assertion
}

function rulesOf<Fields extends FieldCatalogue>(
  catalogue: FieldCatalogue,
): Omit<Rules<Fields>, keyof MeasureRules<Fields>> {
  const rules = {
    becomes: (field: string, value: FieldValue, options?: FirstOption & InvalidOption) =>
      valueEdge('becomes', catalogue, field, value, options),
    ceases: (field: string, value: FieldValue, options?: InvalidOption) =>
      valueEdge('ceases', catalogue, field, value, options),
    changed: (field: string | Fact, options?: FirstOption & InvalidOption & DeltaOption) =>
      isFact(field) ? changedFactEdge(field) : changedEdge(catalogue, field, options),
    crosses: (field: string, limit: Limit & FirstOption) => crossesEdge(catalogue, field, limit),
    rises: (field: string, options?: DeltaOption) => movesEdge('rises', catalogue, field, options),
    falls: (field: string, options?: DeltaOption) => movesEdge('falls', catalogue, field, options),
    is(field: string | Fact, value: FieldValue | Fact, options?: FreshOption) {
      if (isFact(field)) return factIs(field, value)
      if (isFact(value)) return isOfFact(field, value, options)
      checkConstant('is', catalogue, field, value)
      const name = `is(${field},${JSON.stringify(value)}`
      return valueCondition('is', name, field, (actual) => isDeepEqual(actual, value), options)
    },
    below(field: string, limit: GivenNumber, options?: FreshOption) {
      return numbers('below', catalogue, field, [limit], (actual, [most = Number.NaN]) => actual < most, options)
    },
    above(field: string, limit: GivenNumber, options?: FreshOption) {
      return numbers('above', catalogue, field, [limit], (actual, [least = Number.NaN]) => actual > least, options)
    },
    between(field: string, least: GivenNumber, most: GivenNumber, options?: FreshOption) {
      if (typeof least === 'number' && typeof most === 'number' && least > most) {
        throw invalid(
          `\`between\` of \`${field}\` is from ${least} to ${most}, which no number is`,
          'Pass the smaller number first.',
        )
      }
      const isBetween = (actual: number, [low = Number.NaN, high = Number.NaN]: readonly number[]): boolean =>
        actual >= low && actual <= high
      return numbers('between', catalogue, field, [least, most], isBetween, options)
    },
  }
  // The compiler cannot see that a change of a field has the field's values. The interface says it.
  return rules as unknown as Rules<Fields> // oxlint-disable-line no-unsafe-type-assertion
}

/** What a number is compared with. The name of a field, too. */
type GivenNumber = number | string | Fact

/** A condition that compares a number with others. */
function numbers(
  what: string,
  catalogue: FieldCatalogue,
  field: string,
  limits: readonly GivenNumber[],
  isTrue: (actual: number, limits: readonly number[]) => boolean,
  options?: FreshOption,
): Condition {
  checkNumber(what, catalogue, field, ...limits.filter((limit) => typeof limit !== 'string' && !isFact(limit)))
  const operands = limits.map((limit) => numberOperand(what, catalogue, limit))
  const areTrue = (value: FieldValue, others: readonly unknown[]): boolean => {
    const known = others.filter((other) => typeof other === 'number')
    return typeof value === 'number' && known.length === others.length && isTrue(value, known)
  }
  const name = `${what}(${[field, ...operands.map((operand) => operand.name)].join(',')}`
  return comparison<unknown>(what, name, field, operands, areTrue, options)
}

function numberOperand(what: string, catalogue: FieldCatalogue, limit: GivenNumber): Operand {
  if (isFact(limit)) {
    checkTypeOf(what, limit, 'number', 'any')
    return factOperand(limit)
  }
  if (typeof limit !== 'string') return constantOperand(limit)
  checkNumber(what, catalogue, limit)
  return fieldOperand(limit)
}

/** A field has the value of a fact. */
function isOfFact(field: string, fact: Fact, options?: FreshOption): Condition {
  checkField('is', field)
  const isSame = (value: FieldValue, [other]: readonly unknown[]): boolean => isDeepEqual(value, other as FieldValue) // oxlint-disable-line no-unsafe-type-assertion
  return comparison<unknown>('is', `is(${field},fact ${fact.name}`, field, [factOperand(fact)], isSame, options)
}

/** A fact has a value. */
function factIs(fact: Fact, given: unknown): Condition {
  const value = fact.write(given)
  return {
    name: `is(fact ${fact.name},${JSON.stringify(value)})`,
    fields: [],
    facts: [fact],
    test(vehicle) {
      const own = vehicle.fact(fact)
      return own !== undefined && isDeepEqual(fact.write(own), value)
    },
  }
}

const builtIn: Omit<Rules, keyof MeasureRules> = /* @__PURE__ */ rulesOf<BuiltInFields>(builtInFields)
const measures: MeasureRules = /* @__PURE__ */ measuresOf<BuiltInFields>(builtInFields)

/**
 * Happens when a field gets this value from another one. The first value that the receiver sees of a vehicle is no change. With
 * `first: true` it is.
 *
 * Throws `option_invalid` for a value that the field can never have.
 *
 * @example
 * ```ts
 * import { createReceiver, vehicles } from 'fleethook'
 * import { becomes } from 'fleethook/when'
 *
 * createReceiver({ secret: 'a-long-random-value', parts: [vehicles({ fields: ['DetailedChargeState'] })] })
 *   .when(becomes('DetailedChargeState', 'Charging'), ({ vin, change }) => console.log(vin, 'was', change.from))
 * ```
 */
export const becomes: Rules['becomes'] = builtIn.becomes

/**
 * Happens when a field had this value and gets another one.
 *
 * Throws `option_invalid` for a value that the field can never have.
 *
 * @example
 * ```ts
 * import { ceases } from 'fleethook/when'
 *
 * export const leavesPark = ceases('Gear', 'P')
 * ```
 */
export const ceases: Rules['ceases'] = builtIn.ceases

/**
 * Happens when a field gets another value. Structures are compared member by member. With `delta`, a number must be so far from
 * where it was when the edge happened last: many small steps in one direction add up.
 *
 * Throws `option_invalid` for a `delta` of a field without numbers.
 *
 * @example
 * ```ts
 * import { changed } from 'fleethook/when'
 *
 * export const opensOrCloses = changed('DoorState')
 * export const everyTenPercent = changed('BatteryLevel', { delta: 10 })
 * ```
 */
export const changed: Rules['changed'] = builtIn.changed

/**
 * Happens when a number gets below a limit (or above it), once, until it was back at `again`. Numbers jump around a limit, so
 * choose `again` some steps away from it. At the limit itself, a number is neither below nor above it.
 *
 * Throws `option_invalid` for an `again` on the wrong side of the limit.
 *
 * @example
 * ```ts
 * import { crosses } from 'fleethook/when'
 *
 * export const isLow = crosses('BatteryLevel', { below: 20, again: 25 })
 * export const isFull = crosses('BatteryLevel', { above: 79.5, again: 75 })
 * ```
 */
export const crosses: Rules['crosses'] = builtIn.crosses

/**
 * Happens when a number gets larger. With `delta`, it must be so far above its lowest value since the edge happened last.
 *
 * @example
 * ```ts
 * import { rises } from 'fleethook/when'
 *
 * export const heatsUp = rises('InsideTemp', { delta: 5 })
 * ```
 */
export const rises: Rules['rises'] = builtIn.rises

/**
 * Happens when a number gets smaller. With `delta`, it must be so far below its highest value since the edge happened last.
 *
 * @example
 * ```ts
 * import { falls, is } from 'fleethook/when'
 *
 * export const drainsWhileParked = falls('BatteryLevel', { delta: 5 }).where(is('Gear', 'P'))
 * ```
 */
export const falls: Rules['falls'] = builtIn.falls

/**
 * Happens when a vehicle's `Location` gets into an area. With `marginMeters`, it must have been that far outside before. The area may be a fact of
 * the vehicle: then it also happens when the area becomes another one, around the vehicle.
 *
 * @example
 * ```ts
 * import { circle, enters } from 'fleethook/when'
 *
 * const depot = circle({ latitude: 52.3731, longitude: 4.8926, radiusMeters: 200 })
 * export const arrives = enters(depot, { marginMeters: 30 })
 * ```
 */
export function enters(
  area: Area | Fact<string, Area, never>,
  options?: MarginOption & FirstOption,
): VehicleEdge<Change<Location>> {
  return areaEdge('enters', area, options)
}

/**
 * Happens when a vehicle's `Location` gets out of an area. With `marginMeters`, it happens that far outside. With `first: true`, also when the first
 * position is outside. The area may be a fact of the vehicle: then it also happens when the area becomes another one, that the vehicle is not in. It
 * does not happen when the fact is removed.
 *
 * @example
 * ```ts
 * import { circle, leaves } from 'fleethook/when'
 *
 * const depot = circle({ latitude: 52.3731, longitude: 4.8926, radiusMeters: 200 })
 * export const departs = leaves(depot, { marginMeters: 30 })
 * ```
 */
export function leaves(
  area: Area | Fact<string, Area, never>,
  options?: MarginOption & FirstOption,
): VehicleEdge<Change<Location>> {
  return areaEdge('leaves', area, options)
}

/**
 * Happens when a vehicle that was not online is online, by its `state` and `connectivity` messages.
 *
 * @example
 * ```ts
 * import { comesOnline } from 'fleethook/when'
 *
 * export const online = comesOnline()
 * ```
 */
export function comesOnline(options?: FirstOption): VehicleEdge {
  return onlineEdge('comesOnline', options)
}

/**
 * Happens when a vehicle that was online is not, by its `state` and `connectivity` messages. A vehicle that falls asleep goes
 * offline too.
 *
 * @example
 * ```ts
 * import { drives, goesOffline } from 'fleethook/when'
 *
 * export const silentOnTheRoad = goesOffline().where(drives())
 * ```
 */
export function goesOffline(options?: FirstOption): VehicleEdge {
  return onlineEdge('goesOffline', options)
}

/**
 * Happens when the state of a vehicle becomes `asleep`.
 *
 * @example
 * ```ts
 * import { above, fallsAsleep } from 'fleethook/when'
 *
 * export const asleepInTheSun = fallsAsleep().where(above('InsideTemp', 40))
 * ```
 */
export function fallsAsleep(options?: FirstOption): VehicleEdge {
  return asleepEdge(options)
}

/**
 * Happens when a message lists an alert as active and no earlier message did. Without a name: any alert. `change.alerts` has the
 * alerts that started with this message.
 *
 * @example
 * ```ts
 * import { createReceiver, vehicles } from 'fleethook'
 * import { alertStarts } from 'fleethook/when'
 *
 * createReceiver({ secret: 'a-long-random-value', parts: [vehicles({ fields: 'all' })] })
 *   .when(alertStarts(), ({ vin, change }) => console.log(vin, change.alerts.map((alert) => alert.name)))
 * ```
 */
export function alertStarts(name?: string): VehicleEdge<AlertOccurrence> {
  return alertEdge('alertStarts', name)
}

/**
 * Happens when an alert that a message listed as active has an end. Without a name: any alert.
 *
 * @example
 * ```ts
 * import { alertEnds } from 'fleethook/when'
 *
 * export const charged = alertEnds('LowVoltageBatteryLow')
 * ```
 */
export function alertEnds(name?: string): VehicleEdge<AlertOccurrence> {
  return alertEdge('alertEnds', name)
}

/**
 * Happens when a condition turns true, whichever of its fields came last. `change.at` is when it became true, also when the older of two
 * values came last. While a value of it is unknown or uncertain, it is neither true nor false. It then happens when it is true again and
 * was last false.
 *
 * @example
 * ```ts
 * import { all, below, circle, inside, is, starts } from 'fleethook/when'
 *
 * const depot = circle({ latitude: 52.3731, longitude: 4.8926, radiusMeters: 200 })
 * export const chargesLowAtTheDepot = starts(
 *   all(is('DetailedChargeState', 'Charging'), inside(depot), below('BatteryLevel', 20)),
 * )
 * ```
 */
export function starts(condition: Condition, options?: FirstOption): LastingEdge {
  return turnsEdge('starts', condition, options)
}

/**
 * Happens when a condition turns false, whichever of its fields came last. See {@link starts}.
 *
 * @example
 * ```ts
 * import { ends, is } from 'fleethook/when'
 *
 * export const unplugged = ends(is('ChargePortLatch', 'Engaged'))
 * ```
 */
export function ends(condition: Condition, options?: FirstOption): LastingEdge {
  return turnsEdge('ends', condition, options)
}

/**
 * Happens when no message of a vehicle came for a time, once per silence. By default, a vehicle that is asleep or offline is silent on
 * purpose, so its time does not count, unless it sends values after the message that says so: see {@link SilentOptions.evenOffline}.
 *
 * @example
 * ```ts
 * import { silent } from 'fleethook/when'
 *
 * export const lost = silent({ hours: 1 })
 * ```
 */
export function silent(duration: Duration, options: SilentOptions = {}): VehicleEdge<Silence> {
  return silentEdge(duration, options)
}

/**
 * Happens with the first message after the silence happened. Only messages that count for the silence count here, too.
 *
 * @example
 * ```ts
 * import { heardAgain, silent } from 'fleethook/when'
 *
 * export const found = heardAgain(silent({ hours: 1 }))
 * ```
 */
export function heardAgain(silence: VehicleEdge<Silence>): VehicleEdge<Heard> {
  return heardEdge(silence)
}

/**
 * True when a field has this value.
 *
 * Throws `option_invalid` for a value that the field can never have.
 *
 * @example
 * ```ts
 * import { is } from 'fleethook/when'
 *
 * export const isParked = is('Gear', 'P')
 * ```
 */
export const is: Rules['is'] = builtIn.is

/**
 * True when a number is less than the limit, in the unit of the field.
 *
 * @example
 * ```ts
 * import { below } from 'fleethook/when'
 *
 * export const isLow = below('BatteryLevel', 20)
 * ```
 */
export const below: Rules['below'] = builtIn.below

/**
 * True when a number is more than the limit, in the unit of the field: the maker streams `VehicleSpeed` in miles per hour, and 130 km/h are 80.8.
 *
 * @example
 * ```ts
 * import { above } from 'fleethook/when'
 *
 * export const isFast = above('VehicleSpeed', 80.8, { freshFor: { seconds: 10 } })
 * ```
 */
export const above: Rules['above'] = builtIn.above

/**
 * True when a number is from the first to the second, both included. Throws `option_invalid` when the first is the larger one.
 *
 * @example
 * ```ts
 * import { between } from 'fleethook/when'
 *
 * export const isComfortable = between('InsideTemp', 18, 24)
 * ```
 */
export const between: Rules['between'] = builtIn.between

/**
 * A measure of an {@link episode}: the value of a field at both ends, of the field's type. So `span('Odometer')` is how far it went, and
 * `span('Location')` where it began and ended.
 *
 * @example
 * ```ts
 * import { drives, episode, span } from 'fleethook/when'
 *
 * export const trip = episode('trip', {
 *   during: drives(),
 *   measures: { odometer: span('Odometer'), place: span('Location') },
 * })
 * ```
 */
export const span: MeasureRules['span'] = measures.span

/**
 * A measure of an {@link episode}: how much a counter grew, in its own unit, over resets. It is the difference of two places on one line that never
 * falls, so nothing is counted twice. `null`: not known. See "What is believed" in docs/episodes.md.
 *
 * Throws `option_invalid` for a field without numbers.
 *
 * @example
 * ```ts
 * import { episode, growth, is } from 'fleethook/when'
 *
 * export const charge = episode('charge', {
 *   during: is('DetailedChargeState', 'Charging'),
 *   splits: is('DetailedChargeState', 'Disconnected'),
 *   measures: { kwh: growth('ACChargingEnergyIn', { startsAt: 0 }) },
 * })
 * ```
 */
export const growth: MeasureRules['growth'] = measures.growth

/**
 * A measure of an {@link episode}: the kWh of a charge. With AC both counters run: what the socket gave, and what reached the battery. With DC only
 * the second does. So it counts the counter that moved, and never adds them.
 *
 * Throws `option_invalid` for a field without numbers.
 *
 * @example
 * ```ts
 * import { energy, episode, is } from 'fleethook/when'
 *
 * export const charge = episode('charge', {
 *   during: is('DetailedChargeState', 'Charging'),
 *   splits: is('DetailedChargeState', 'Disconnected'),
 *   measures: { energy: energy() }, // { kwh, by: 'socket' or 'battery', unseen }
 * })
 * ```
 */
export const energy: MeasureRules['energy'] = measures.energy

/**
 * A measure of an {@link episode}: how much a counter grew in each quarter of an hour, so that a price by time of day is a join. Between two values
 * it is a straight line, and the sum of all parts is the growth. After a pause longer than two parts, its name is in `missing`.
 *
 * Throws `option_invalid` for a field without numbers.
 *
 * @example
 * ```ts
 * import { curve, episode, is } from 'fleethook/when'
 *
 * export const charge = episode('charge', {
 *   during: is('DetailedChargeState', 'Charging'),
 *   measures: { quarters: curve('ACChargingEnergyIn', { everyMinutes: 15 }) }, // kWh
 * })
 * ```
 */
export const curve: MeasureRules['curve'] = measures.curve

/**
 * A measure of an {@link episode}: the average of a number from its start to its end, without interruptions. Each value counts until the next one.
 *
 * Throws `option_invalid` for a field without numbers.
 *
 * @example
 * ```ts
 * import { average, episode, is } from 'fleethook/when'
 *
 * export const trip = episode('trip', { during: is('Gear', 'D'), measures: { outside: average('OutsideTemp') } })
 * ```
 */
export const average: MeasureRules['average'] = measures.average

/**
 * A measure of an {@link episode}: the value of a field at its end, however old. For what is said once and stays: a destination, a place where it is
 * parked, a version.
 *
 * @example
 * ```ts
 * import { episode, is, last } from 'fleethook/when'
 *
 * export const charge = episode('charge', {
 *   during: is('DetailedChargeState', 'Charging'),
 *   measures: { place: last('Location') },
 * })
 * ```
 */
export const last: MeasureRules['last'] = measures.last

/**
 * A measure of an {@link episode}: the smallest and the largest number that was reported from its start to its end, without interruptions.
 *
 * Throws `option_invalid` for a field without numbers.
 *
 * @example
 * ```ts
 * import { drives, episode, range } from 'fleethook/when'
 *
 * export const trip = episode('trip', { during: drives(), measures: { speed: range('VehicleSpeed') } })
 * ```
 */
export const range: MeasureRules['range'] = measures.range

/**
 * A measure of an {@link episode}: where the vehicle went, and how far in meters. With the position before the start, if it is certain, and the first
 * one after the end. Positions are personal data.
 *
 * Throws `option_invalid` for an option out of range: see {@link PathOptions}.
 *
 * @example
 * ```ts
 * import { drives, episode, path } from 'fleethook/when'
 *
 * export const trip = episode('trip', { during: drives(), measures: { route: path({ everyMeters: 50 }) } })
 * ```
 */
export const path: MeasureRules['path'] = measures.path
