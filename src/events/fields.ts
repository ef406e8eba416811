import { catalogueText, type BuiltInCatalogue } from './catalogue.generated.ts'
import type { Doors, FieldValue, Location, Tires, TimeOfDay } from './values.ts'

/** The constants of an enum, by their short names, and the prefix that the maker writes before them. */
export interface EnumType {
  readonly enum: readonly string[]
  /** For instance `ShiftState`: the wire says `ShiftStateD` or `D`, and the value is `D`. Default: no prefix. */
  readonly prefix?: string
}

/**
 * What physics allows for the numbers of a field, in its own unit, so that one odd value is not believed (docs/vehicles.md, "What is
 * believed"). Wide limits only: what they forbid counts when the next value confirms it, or never. Without any, every value counts.
 */
export interface Limits {
  /** No value is less. */
  readonly least?: number
  /** No value is more. */
  readonly most?: number
  /** The most that it changes in a minute. Default: any. */
  readonly perMinute?: number
  /** The most that two values differ that were reported at the same time or nearly so. Default 0, and without `perMinute` any. */
  readonly atOnce?: number
  /** It never falls, as an odometer. */
  readonly counter?: true
  /** It is a counter that begins again at 0, as the energy of a charge. */
  readonly restarts?: true
  /** A counter may step back by this, because it is rounded or corrected. Default 0. */
  readonly back?: number
}

/** A `number` or a `location` with limits. They replace the limits of the built-in catalogue, and `{}` has none. A place has no bounds, and its unit is the meter. */
export type LimitedType = { readonly number: Limits } | { readonly location: Pick<Limits, 'perMinute' | 'atOnce'> }

/**
 * The type of a field's values.
 *
 * - `timestamp` is a number of seconds since the epoch.
 * - `any` is for a field whose type is not known: the value is taken out of its wrapper and otherwise left as it was sent.
 * - `{ number: { least: 0, perMinute: 5 } }` is a number of which physics says more: see {@link Limits}.
 */
export type FieldType =
  | 'string'
  | 'number'
  | 'boolean'
  | 'location'
  | 'doors'
  | 'tires'
  | 'time'
  | 'timestamp'
  | 'any'
  | EnumType
  | LimitedType

/** A type without limits. */
export type UnlimitedType = Exclude<FieldType, LimitedType>

/**
 * Field name to the type of its values, as in the option `fields`.
 *
 * @example
 * ```ts
 * import type { FieldCatalogue } from 'fleethook'
 *
 * export const fields = { CabinHumidity: { number: { least: 0, most: 100 } }, Mood: { enum: ['Calm', 'Angry'] } } as const satisfies FieldCatalogue
 * ```
 */
export interface FieldCatalogue {
  readonly [field: string]: FieldType
}

/** The value that a {@link FieldType} stands for, without the `null` that every field can have. */
export type ValueOf<T extends FieldType> = T extends { readonly enum: readonly (infer Constant)[] }
  ? Constant
  : T extends 'number' | 'timestamp' | { readonly number: unknown }
    ? number
    : T extends 'string'
      ? string
      : T extends 'boolean'
        ? boolean
        : T extends 'location' | { readonly location: unknown }
          ? Location
          : T extends 'doors'
            ? Doors
            : T extends 'tires'
              ? Tires
              : T extends 'time'
                ? TimeOfDay
                : FieldValue

/** The built-in catalogue: 251 fields, generated from the public sources. */
export type BuiltInFields = { readonly [Name in keyof BuiltInCatalogue]: BuiltInCatalogue[Name] }

/** The names of a catalogue, for instance in the filter `fields` of a handler. */
export type FieldName<Fields extends FieldCatalogue = BuiltInFields> = keyof Fields & string

declare const other: unique symbol

/**
 * The name of a field that is not in the catalogue. A misspelled name is a type error, so say that you mean this one:
 *
 * @example
 * ```ts
 * import type { Handler } from 'fleethook'
 * import type { OtherField } from 'fleethook/normalize'
 *
 * export const onData: Handler<'data'> = (event) => {
 *   console.log(event.data['CabinHumidity' as OtherField]) // any value of a field, or undefined
 * }
 * ```
 *
 * A field that you use more than once belongs in the option `fields`, which gives it a type.
 */
export type OtherField = string & { readonly [other]: true }

/**
 * The `data` of a message. A field of the catalogue has the catalogue's type, is `null` when it has no value now, and is
 * `undefined` when the message does not carry it. Any other name is a type error, unless it is an {@link OtherField}.
 */
export type FieldValues<Fields extends FieldCatalogue = BuiltInFields> = {
  readonly [Name in keyof Fields]?: ValueOf<Fields[Name]> | null
} & { readonly [name: OtherField]: FieldValue | undefined }

/** The built-in catalogue extended by your own. Your type wins for a name that is in both. */
export type ExtendedBy<Fields extends FieldCatalogue> = string extends keyof Fields
  ? BuiltInFields
  : Omit<BuiltInFields, keyof Fields> & { readonly [Name in keyof Fields]: WithoutLimits<Fields[Name]> }

/** Limits change no type: a receiver with limits for fields of the built-in catalogue is a receiver like any other. */
type WithoutLimits<Type extends FieldType> = Type extends { readonly number: unknown }
  ? 'number'
  : Type extends { readonly location: unknown }
    ? 'location'
    : Type

/** The limits that a type states, if it does. */
export function limitsOf(type: FieldType): Limits | undefined {
  if (typeof type !== 'object') return undefined
  return 'number' in type ? type.number : 'location' in type ? type.location : undefined
}

/** The type without its limits. */
export function plainType(type: FieldType): UnlimitedType {
  return typeof type !== 'object' || 'enum' in type ? type : 'number' in type ? 'number' : 'location'
}

/** Reads lines of `type:Name Name …` (an enum is `Prefix=Constant …`): a third of the size of an object. */
function readCatalogue(text: string): Readonly<Record<string, FieldType>> {
  const types: Record<string, FieldType> = {}
  for (const line of text.split('\n')) {
    const colon = line.indexOf(':')
    const equals = line.indexOf('=')
    const type =
      equals < 0
        ? (line.slice(0, colon) as FieldType) // oxlint-disable-line no-unsafe-type-assertion
        : { enum: line.slice(equals + 1, colon).split(' '), prefix: line.slice(0, equals) }
    for (const name of line.slice(colon + 1).split(' ')) types[name] = type
  }
  return types
}

/** The built-in catalogue: every field that fleethook knows, with its type. */
// The compiler cannot read types out of text. The script writes both, and a test compares them. oxlint-disable-next-line
// no-unsafe-type-assertion
export const builtInFields: BuiltInFields = /* @__PURE__ */ readCatalogue(catalogueText) as BuiltInFields

/** The number of letters to add, remove or change to get from one text to the other (Levenshtein). */
function distance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, at) => at)
  for (const letter of from) {
    let last = (row[0] ?? 0) + 1
    row = row.map((above, at) => {
      if (at > 0) last = Math.min(above + 1, last + 1, (row[at - 1] ?? 0) + (letter === to[at - 1] ? 0 : 1))
      return last
    })
  }
  return row.at(-1) ?? 0
}

/** The name that a misspelled one probably stands for: the nearest, when at most a third of its letters differ. */
export function nearestName(misspelled: string, names: readonly string[]): string | undefined {
  let nearest: string | undefined
  let least = Infinity
  for (const name of names) {
    const letters = distance(misspelled.toLowerCase(), name.toLowerCase())
    if (letters < least && letters <= name.length / 3) [nearest, least] = [name, letters]
  }
  return nearest
}

/** Whether a field is in the built-in catalogue, or among the fields that a business added. */
export function isInCatalogue(field: string, ownFields: FieldCatalogue): boolean {
  return Object.hasOwn(builtInFields, field) || Object.hasOwn(ownFields, field)
}

/** For the hint about a field that is not in the catalogue: the name that it probably stands for, if any. */
export function guessOf(field: string, ownFields: FieldCatalogue): string {
  const nearest = nearestName(field, [...Object.keys(builtInFields), ...Object.keys(ownFields)])
  return nearest === undefined ? '' : `Did you mean \`${nearest}\`? `
}
