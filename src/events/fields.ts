import type { BuiltInCatalogue } from './catalogue.generated.ts'
import type { Doors, FieldValue, Location, Tires, TimeOfDay } from './values.ts'

/** The constants of an enum, by their short names, and the prefix that the maker writes before them. */
export interface EnumType {
  readonly enum: readonly string[]
  /** `ShiftState` where the wire says `ShiftStateD` or `D` and the value is `D`. */
  readonly prefix?: string
}

/**
 * What the value of a field means.
 *
 * `timestamp` is a number of seconds since the epoch. `any` is a field on which the public sources contradict
 * each other: its value is passed on as it was sent, without its wrapper.
 */
export type FieldType =
  'string' | 'number' | 'boolean' | 'location' | 'doors' | 'tires' | 'time' | 'timestamp' | 'any' | EnumType

/** Field name to the type of its value. */
export interface FieldCatalogue {
  readonly [field: string]: FieldType
}

/** The value that a {@link FieldType} stands for, without the `null` that every field can be. */
export type ValueOf<T extends FieldType> = T extends { readonly enum: readonly (infer Constant)[] }
  ? Constant
  : T extends 'number' | 'timestamp'
    ? number
    : T extends 'string'
      ? string
      : T extends 'boolean'
        ? boolean
        : T extends 'location'
          ? Location
          : T extends 'doors'
            ? Doors
            : T extends 'tires'
              ? Tires
              : T extends 'time'
                ? TimeOfDay
                : FieldValue

/** The catalogue that fleethook brings: 251 fields, generated from the public sources. */
export type BuiltInFields = { readonly [Name in keyof BuiltInCatalogue]: BuiltInCatalogue[Name] }

/**
 * The `data` of a message: every field of the catalogue by its type, `null` when it has no value now, absent when
 * the message does not carry it. Names outside the catalogue are allowed and can have any value.
 */
export type FieldValues<Fields extends FieldCatalogue = BuiltInFields> = {
  readonly [Name in keyof Fields]?: ValueOf<Fields[Name]> | null
} & { readonly [name: string]: FieldValue | undefined }

/** The built-in catalogue extended by one of the user's own; the user's word wins. */
export type ExtendedBy<Fields extends FieldCatalogue> = string extends keyof Fields
  ? BuiltInFields
  : Omit<BuiltInFields, keyof Fields> & Fields
