import { FleethookError } from '../base/errors.ts'
import { isObject } from '../base/options.ts'
import type { FieldValue, Location } from '../events/values.ts'
import { type AnyVehicleView, type Condition, membersOfEpisode } from '../vehicles/edge.ts'
import { type Fact, isFact } from '../vehicles/fact.ts'
import { type Area, type Circle, circle, polygon } from './areas.ts'
import { createClockwork } from './clockwork.ts'

/** The types of facts, as they are read. */
export interface FactTypes {
  readonly string: string
  readonly number: number
  readonly boolean: boolean
  readonly area: Area
  readonly any: FieldValue
}

/** The types of facts, as they are set. An area is a `circle`, a `polygon`, or what one is made of, as a row of a table has it. */
export interface FactGiven extends Omit<FactTypes, 'area'> {
  readonly area: Area | Circle | readonly Location[]
}

const typeNames: readonly string[] = ['string', 'number', 'boolean', 'area', 'any']

/**
 * Declares a fact: what the business knows of a vehicle and sets while the receiver runs. Pass it to the part `vehicles`, and use it where a condition has
 * a constant. `receiver.vehicles.set` says it. See docs/facts.md.
 *
 * Throws `option_invalid` for a name that is not 1 to 100 characters, or `'vin'`, and for a type that does not exist.
 *
 * @example
 * ```ts
 * import { createReceiver, vehicles } from 'fleethook'
 * import { below, fact, starts } from 'fleethook/when'
 *
 * const lowBattery = fact('lowBattery', 'number')
 * const receiver = createReceiver({ secret: false, parts: [vehicles({ fields: ['BatteryLevel'], facts: [lowBattery] })] })
 *   .when(starts(below('BatteryLevel', lowBattery)), ({ vin }) => console.log(vin, 'is low'))
 * await receiver.vehicles.set('0FLEETV14T0000004', { lowBattery: 25 })
 * ```
 */
export function fact<const Name extends string, const Type extends keyof FactTypes>(
  name: Name,
  type: Type,
): Fact<Name, FactTypes[Type], FactGiven[Type]> {
  const given: { readonly name: unknown; readonly type: unknown } = { name, type }
  if (typeof given.name !== 'string' || name === '' || name.length > 100 || name === 'vin')
    throw wrong(
      'The name of a fact must be a text of 1 to 100 characters, and not `vin`',
      "For instance fact('customer', 'string').",
    )
  if (membersOfEpisode.includes(name))
    throw wrong(`The fact \`${name}\` has the name of a member of each episode`, 'Give it another name.')
  if (typeof given.type !== 'string' || !typeNames.includes(given.type))
    throw wrong(
      `The fact \`${name}\` has the type ${JSON.stringify(given.type)}`,
      `The types are ${typeNames.join(', ')}.`,
    )
  const made: Fact = {
    name,
    type,
    timing: createClockwork,
    ...(type === 'area' ? ofAreas(name) : ofValues(name, type)),
  }
  // What is read has the type of the fact, which the compiler cannot see.
  return made as Fact<Name, FactTypes[Type], FactGiven[Type]> // oxlint-disable-line no-unsafe-type-assertion
}

function ofValues(name: string, type: string): Pick<Fact, 'read' | 'write'> {
  const isOfType = (value: unknown): value is FieldValue =>
    type === 'any' ? value !== undefined : typeof value === type && !Number.isNaN(value)
  return {
    read: (stored) => (isOfType(stored) ? stored : undefined),
    write(given) {
      const value = type === 'any' ? plain(name, given) : given
      if (isOfType(value) && value !== Infinity && value !== -Infinity) return value
      throw wrong(`The fact \`${name}\` was set to ${shown(given)}`, `It is a ${type}. Set it to null for none.`)
    },
  }
}

/** What JSON makes of a value. */
function plain(name: string, given: unknown): FieldValue {
  try {
    const text: string | undefined = JSON.stringify(given)
    if (text !== undefined) return JSON.parse(text)
  } catch {
    // Told below.
  }
  throw wrong(`The fact \`${name}\` was set to ${shown(given)}`, 'It is what JSON can write.')
}

function ofAreas(name: string): Pick<Fact, 'read' | 'write'> {
  const known = new WeakMap<object, Area>()
  return {
    read(stored) {
      if (typeof stored !== 'object' || stored === null) return undefined
      const area = known.get(stored) ?? areaOf(stored)
      if (area !== undefined) known.set(stored, area)
      return area
    },
    write(given) {
      const shape = isObject(given) && 'shape' in given ? given['shape'] : given
      // Throws for what is no area.
      if (typeof shape === 'object' && shape !== null && areaOf(shape) !== undefined) return plain(name, shape)
      throw wrong(
        `The fact \`${name}\` was set to ${shown(given)}`,
        'It is an area: a circle, a polygon, or their numbers.',
      )
    },
  }
}

/** An area of its center and radius, or of its corners. */
function areaOf(shape: object): Area | undefined {
  if (Array.isArray(shape)) return polygon(shape)
  return 'radiusMeters' in shape && 'latitude' in shape && 'longitude' in shape
    ? circle({
        latitude: Number(shape.latitude),
        longitude: Number(shape.longitude),
        radiusMeters: Number(shape.radiusMeters),
      })
    : undefined
}

const shown = (given: unknown): string =>
  typeof given === 'object' && given !== null
    ? `an ${Array.isArray(given) ? 'array' : 'object'}`
    : typeof given === 'string'
      ? 'a text'
      : String(given)

/**
 * True when a fact of the vehicle is set, whatever its value, and otherwise false.
 *
 * @example
 * ```ts
 * import { all, fact, has, is, not, starts } from 'fleethook/when'
 *
 * const booking = fact('booking', 'string')
 * export const withoutBooking = starts(all(is('Gear', 'D'), not(has(booking)))).after({ minutes: 5 })
 * ```
 */
export function has(given: Fact): Condition {
  checkFact('has', given)
  return {
    name: `has(fact ${given.name})`,
    fields: [],
    facts: [given],
    test: (vehicle) => vehicle.fact(given) !== undefined,
  }
}

/** What a condition compares a field with: a constant, a fact, or another field. */
export interface Operand<Value = unknown> {
  readonly name: string
  readonly fields: readonly string[]
  readonly facts: readonly Fact[]
  /** `undefined`: it is not known. `absent`: nobody set it, and whatever compares with it is false. */
  read(vehicle: AnyVehicleView): Value | undefined | typeof absent
}

/** There is no such fact. */
export const absent: unique symbol = Symbol('absent')

/** What a condition compares with a fact. */
export function factOperand<Value>(given: Fact<string, Value>): Operand<Value> {
  return {
    name: `fact ${given.name}`,
    fields: [],
    facts: [given],
    read(vehicle) {
      const value = vehicle.fact(given)
      return value === undefined ? absent : value
    },
  }
}

/** What a condition compares with another field. */
export function fieldOperand(field: string): Operand<FieldValue> {
  return {
    name: field,
    fields: [field],
    facts: [],
    read: (vehicle) => (vehicle.isCertain(field) ? vehicle.value(field) : undefined),
  }
}

export function constantOperand<Value>(value: Value, name: string = String(value)): Operand<Value> {
  return { name, fields: [], facts: [], read: () => value }
}

export function checkFact(what: string, given: unknown): asserts given is Fact {
  if (!isFact(given)) throw wrong(`\`${what}\` needs a fact`, "Make one with fact('customer', 'string').")
}

const wrong = (what: string, hint: string): FleethookError => new FleethookError('option_invalid', `${what}.`, { hint })
