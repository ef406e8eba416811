import { checkOption, checkOptions, isObject } from '../base/options.ts'
import { type FieldCatalogue, nearestName, plainType, type UnlimitedType } from '../events/fields.ts'
import type { FieldValue, Location } from '../events/values.ts'
import type { AnyVehicleView, Bounds, Condition, Trace } from '../vehicles/edge.ts'
import { isWithin } from '../vehicles/edge-index.ts'
import { type Fact, isFact } from '../vehicles/fact.ts'
import { nullMeansNone } from '../vehicles/state.ts'
import { isPlace } from '../vehicles/places.ts'
import { aMargin, type Area, type MarginOption, widened } from './areas.ts'
import { absent, constantOperand, factOperand, type Operand } from './facts.ts'
import { type Duration, invalid, readDuration } from './duration.ts'

export { invalid }

/** The field of a vehicle's position. */
export const positionField = 'Location'

/** How long a value counts. */
export interface FreshOption {
  /**
   * A value that was not reported again for so long is not known any more: the condition is then neither true nor false, and an `after` that
   * counts begins anew with the next report. By the vehicle's clock. Choose two or three times the interval of the field. Default: a value counts until
   * there is another one, because a parked vehicle does not repeat it for days.
   *
   * @example
   * ```ts
   * import { above, starts } from 'fleethook/when'
   *
   * // 80 miles per hour for half a minute. Ten seconds, and then a tunnel, are not half a minute.
   * export const speeding = starts(above('VehicleSpeed', 80, { freshFor: { seconds: 10 } })).after({ seconds: 30 })
   * ```
   */
  readonly freshFor?: Duration
}

/**
 * The condition that one field's value decides. `null` is a value here: the field has none now. `isTrue` returns `undefined` for a value that says nothing.
 * `name` is without its closing bracket.
 */
export function valueCondition(
  what: string,
  name: string,
  field: string,
  isTrue: (value: FieldValue) => boolean | undefined,
  options: FreshOption = {},
): Condition {
  return comparison(what, name, field, [], isTrue, options)
}

/**
 * The condition that one field's value decides, compared with constants, facts or other fields. Without one of the facts it is false. Otherwise as
 * {@link valueCondition}.
 */
export function comparison<Value>(
  what: string,
  name: string,
  field: string,
  operands: readonly Operand<Value>[],
  isTrue: (value: FieldValue, others: readonly Value[], vehicle: AnyVehicleView) => boolean | undefined,
  options: FreshOption = {},
): Condition {
  checkOptions<FreshOption>(what, options, {
    freshFor: { must: 'must be a time', accepts: isObject, hint: 'For instance { seconds: 30 }.' },
  })
  const { freshFor } = options
  const fresh = freshFor === undefined ? undefined : readDuration('freshFor', freshFor)
  const facts = operands.flatMap((operand) => operand.facts)
  const isFresh = (vehicle: AnyVehicleView): boolean =>
    fresh === undefined || vehicle.moment.getTime() - Number(vehicle.at(field)) <= fresh.ms
  return {
    name: fresh === undefined ? `${name})` : `${name},freshFor ${fresh.name})`,
    fields: [...new Set([field, ...operands.flatMap(({ fields }) => fields)])],
    ...(facts.length === 0 ? {} : { facts }),
    ...(fresh === undefined ? {} : { ages: true }),
    test(vehicle) {
      const others: Value[] = []
      let isKnown = true
      for (const operand of operands) {
        const other = operand.read(vehicle)
        if (other === absent) return false
        if (other === undefined) isKnown = false
        else others.push(other)
      }
      const value = vehicle.value(field)
      if (!isKnown || value === undefined || !vehicle.isCertain(field) || !isFresh(vehicle)) return undefined
      return isTrue(value, others, vehicle)
    },
  }
}

/**
 * True when the vehicle's `Location` is in an area, or in the area that a fact of the vehicle says.
 *
 * @example
 * ```ts
 * import { circle, fact, inside } from 'fleethook/when'
 *
 * export const isAtTheDepot = inside(circle({ latitude: 52.3731, longitude: 4.8926, radiusMeters: 200 }))
 * export const isAtHome = inside(fact('home', 'area'), { marginMeters: 50 })
 * ```
 */
export function inside(
  area: Area | Fact<string, Area, never>,
  { marginMeters = 0, ...options }: FreshOption & MarginOption = {},
): Condition {
  checkOption('inside', 'marginMeters', marginMeters, aMargin)
  if (isFact(area)) checkTypeOf('inside', area, 'area')
  else checkArea('inside', area)
  const own = isFact(area) ? factOperand<Area>(area) : constantOperand(area, area.name)
  const name = `inside(${own.name}${marginMeters === 0 ? '' : `,marginMeters ${marginMeters}`}`
  const isIn = (value: FieldValue, [is]: readonly Area[], vehicle: AnyVehicleView): boolean | undefined =>
    isPlace(value) && is !== undefined
      ? isInArea(is, value) || (marginMeters > 0 && vehicle.trace(name) === is.name)
      : undefined
  return {
    ...comparison('inside', name, positionField, [own], isIn, options),
    ...(isFact(area) ? {} : { bounds: marginMeters === 0 ? area.bounds : widened(area.bounds, marginMeters) }),
    ...(marginMeters === 0 ? {} : { traces: [margin(name, area, marginMeters)] }),
  }
}

const isInArea = (area: Area, place: Location): boolean => isWithin(area.bounds, place) && area.metersTo(place) === 0

/** Remembers the name of the area in which the vehicle still is, although it is outside of it: not farther than the margin since it was inside. */
function margin(name: string, given: Area | Fact<string, Area, never>, meters: number): Trace {
  return {
    name,
    field: positionField,
    next(remembered, value, _, { before, fact }) {
      const area = isFact(given) ? fact<Area>(given) : given
      if (!isPlace(value)) return remembered ?? null
      if (area === undefined || isInArea(area, value) || area.metersTo(value) > meters) return null
      return remembered === area.name || (isPlace(before) && isInArea(area, before)) ? area.name : null
    },
  }
}

/**
 * True when all of the conditions are true, false when one is false, and otherwise neither.
 *
 * @example
 * ```ts
 * import { all, below, is } from 'fleethook/when'
 *
 * export const isParkedLow = all(is('Gear', 'P'), below('BatteryLevel', 20))
 * ```
 */
export function all(...conditions: readonly Condition[]): Condition {
  checkConditions('all', conditions)
  const bounds = conditions.find((condition) => condition.bounds !== undefined)?.bounds
  const joint = joined('all', conditions)
  // Until another message, they stay false by these.
  const lasting = conditions.filter(({ changesAt, ages }) => changesAt === undefined && ages !== true)
  return {
    ...joint,
    // Where one is false, all of them together are.
    ...(bounds === undefined ? {} : { bounds }),
    ...(joint.changesAt === undefined
      ? {}
      : {
          changesAt: (vehicle) =>
            lasting.some(({ test }) => test(vehicle) === false) ? undefined : joint.changesAt?.(vehicle),
        }),
    test: (vehicle) => opposite(decided(conditions, vehicle, false)),
  }
}

/**
 * True when one of the conditions is true, false when all are false, and otherwise neither.
 *
 * @example
 * ```ts
 * import { any, is } from 'fleethook/when'
 *
 * export const isPluggedIn = any(is('DetailedChargeState', 'Charging'), is('DetailedChargeState', 'Complete'))
 * ```
 */
export function any(...conditions: readonly Condition[]): Condition {
  checkConditions('any', conditions)
  const bounds = around(conditions)
  return {
    ...joined('any', conditions),
    ...(bounds === undefined ? {} : { bounds }),
    test: (vehicle) => decided(conditions, vehicle, true),
  }
}

/**
 * True when the condition is false, false when it is true, and otherwise neither.
 *
 * @example
 * ```ts
 * import { is, not } from 'fleethook/when'
 *
 * export const isUnplugged = not(is('ChargePortLatch', 'Engaged'))
 * ```
 */
export function not(condition: Condition): Condition {
  checkConditions('not', [condition])
  return { ...joined('not', [condition]), test: (vehicle) => opposite(condition.test(vehicle)) }
}

const opposite = (truth: boolean | undefined): boolean | undefined => (truth === undefined ? undefined : !truth)

/** True when one of the conditions is `deciding`, false when none can be, and otherwise neither. */
function decided(conditions: readonly Condition[], vehicle: AnyVehicleView, deciding: boolean): boolean | undefined {
  let isOpen = false
  for (const condition of conditions) {
    const truth = condition.test(vehicle)
    if (truth === deciding) return true
    isOpen ||= truth === undefined
  }
  return isOpen ? undefined : false
}

function joined(how: string, conditions: readonly Condition[]): Omit<Condition, 'test' | 'bounds'> {
  const traces = conditions.flatMap((condition) => condition.traces ?? [])
  const timed = conditions.filter(({ changesAt }) => changesAt !== undefined)
  const facts = [...new Set(conditions.flatMap((condition) => condition.facts ?? []))]
  return {
    ...(facts.length === 0 ? {} : { facts }),
    ...(conditions.some(({ ages }) => ages === true) ? { ages: true } : {}),
    ...(conditions.some(({ daily }) => daily === true) ? { daily: true } : {}),
    ...(conditions.some(({ online }) => online === true) ? { online: true } : {}),
    ...(traces.length === 0 ? {} : { traces }),
    ...(timed.length === 0 ? {} : { changesAt: (vehicle) => firstChange(timed, vehicle) }),
    name: `${how}(${conditions.map(({ name }) => name).join(',')})`,
    fields: [...new Set(conditions.flatMap(({ fields }) => fields))],
  }
}

function firstChange(conditions: readonly Condition[], vehicle: AnyVehicleView): number | undefined {
  const times = conditions.flatMap((condition) => condition.changesAt?.(vehicle) ?? [])
  return times.length === 0 ? undefined : Math.min(...times)
}

/** The box around all boxes, when every condition has one. */
function around(conditions: readonly Condition[]): Bounds | undefined {
  const boxes = conditions.flatMap(({ bounds }) => (bounds === undefined ? [] : [bounds]))
  if (boxes.length < conditions.length) return undefined
  return {
    south: Math.min(...boxes.map(({ south }) => south)),
    west: Math.min(...boxes.map(({ west }) => west)),
    north: Math.max(...boxes.map(({ north }) => north)),
    east: Math.max(...boxes.map(({ east }) => east)),
  }
}

/** The type that a catalogue gives a field. A field outside of it has any type, and the receiver decides whether it exists. */
const typeOf = (catalogue: FieldCatalogue, field: string): UnlimitedType =>
  Object.hasOwn(catalogue, field) ? plainType(catalogue[field] ?? 'any') : 'any'

/** Throws when a field can never have a value. `what` is the edge or condition, for instance `becomes`. */
export function checkConstant(
  what: string,
  catalogue: FieldCatalogue,
  field: unknown,
  value: unknown,
  allowsNull = false,
): void {
  checkField(what, field)
  if (value === null) {
    if (allowsNull || nullMeansNone.has(field) || !Object.hasOwn(catalogue, field)) return
    throw invalid(
      `\`${what}\` compares \`${field}\` with null, and its last value stays when the vehicle reports none`,
      'Leave the comparison out, or pass { invalid: true } to an edge that should happen when the vehicle stops reporting a value.',
    )
  }
  const type = typeOf(catalogue, field)
  const [isPossible, needed] = possible(type, value)
  if (isPossible) return
  const nearest = typeof type === 'object' && typeof value === 'string' ? nearestName(value, type.enum) : undefined
  throw invalid(
    `\`${what}\` compares \`${field}\` with ${JSON.stringify(value) ?? String(value)}, which it can never be`,
    `${nearest === undefined ? '' : `Did you mean '${nearest}'? `}It is ${needed}.`,
  )
}

function possible(type: UnlimitedType, value: unknown): readonly [isPossible: boolean, needed: string] {
  if (typeof type === 'object')
    return [typeof value === 'string' && type.enum.includes(value), `one of ${type.enum.join(', ')}`]
  switch (type) {
    case 'number':
    case 'timestamp':
      return [Number.isFinite(value), type === 'number' ? 'a number' : 'a number of seconds since 1970']
    case 'string':
      return [typeof value === 'string', 'a text']
    case 'boolean':
      return [typeof value === 'boolean', 'true or false']
    case 'location':
      return [isPlace(value), 'a { latitude, longitude }']
    case 'doors':
    case 'tires':
    case 'time':
      return [isObject(value) && !Array.isArray(value), `an object of ${type}`]
    case 'any':
      return [value !== undefined && typeof value !== 'function', 'any value']
  }
}

/** Throws when a field has no numbers, or a limit is not a number. */
export function checkNumber(
  what: string,
  catalogue: FieldCatalogue,
  field: unknown,
  ...limits: readonly unknown[]
): void {
  checkField(what, field)
  const type = typeOf(catalogue, field)
  if (type !== 'number' && type !== 'timestamp' && type !== 'any') {
    throw invalid(
      `\`${what}\` needs a field of numbers, and \`${field}\` is ${possible(type, undefined)[1]}`,
      'Use `becomes`, `changed` or `is` for this field.',
    )
  }
  for (const limit of limits)
    if (!Number.isFinite(limit))
      throw invalid(`\`${what}\` of \`${field}\` was given ${String(limit)}`, 'Pass a number.')
}

/** Throws for a fact of another type. */
export function checkTypeOf(what: string, { name, type }: Fact, ...types: readonly string[]): void {
  if (types.includes(type)) return
  throw invalid(
    `\`${what}\` was given the fact \`${name}\`, which is of the type ${type}`,
    `It needs one of the type ${types.join(' or ')}.`,
  )
}

export function checkField(what: string, field: unknown): asserts field is string {
  if (typeof field !== 'string' || field === '')
    throw invalid(`\`${what}\` needs the name of a field`, 'Write it in quotes, as in the catalogue.')
}

export function checkArea(what: string, area: unknown): void {
  if (isObject(area) && typeof area['metersTo'] === 'function') return
  throw invalid(`\`${what}\` needs an area`, 'Make one with `circle` or `polygon`.')
}

export function checkConditions(what: string, conditions: readonly unknown[]): void {
  if (conditions.length === 0) throw invalid(`\`${what}\` was given no condition`, 'Pass at least one.')
  for (const condition of conditions) {
    if (isObject(condition) && typeof condition['test'] === 'function') continue
    throw invalid(
      `\`${what}\` was given something other than a condition`,
      'Conditions are is, below, above, between, inside, has, hours, isOnline, drives, moves, all, any and not. An edge, such as becomes, is for receiver.when.',
    )
  }
}

/** Whether a text can be the name of an edge. */
export const isName = (name: unknown): name is string =>
  typeof name === 'string' && name.length > 0 && name.length <= 100
