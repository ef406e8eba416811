import type { FieldValue } from '../events/values.ts'
import type { Timing } from './timing.ts'

/**
 * Something that the business knows of a vehicle, and sets while the receiver runs: whose it is, a limit, an area, a booking. `fact` of `fleethook/when`
 * makes it.
 */
export interface Fact<Name extends string = string, Value = unknown, Given = Value> {
  readonly name: Name
  /** `'string'`, `'number'`, `'boolean'`, `'area'` or `'any'`. */
  readonly type: string
  /** The value as it is stored. Throws `option_invalid` for a value that the fact cannot have. */
  write(given: Given): FieldValue
  /** The value of what is stored. `undefined`: the fact had another type before. */
  read(stored: FieldValue): Value | undefined
  /** Keeps time for what is planned. */
  readonly timing: Timing
}

/** What is known of one fact of a vehicle. */
export interface KnownFact {
  readonly name: string
  /** As it is stored. `undefined`: there is none now. */
  readonly value: FieldValue | undefined
  /** Since when it is so. */
  readonly since: Date | undefined
  /** When it will be another one, as far as it is planned. `undefined`: nothing is. */
  readonly nextAt: Date | undefined
}

/** The longest value of a fact, in characters of JSON. */
export const longestFact = 16_000

/** Whether a value is a fact. */
export const isFact = (value: unknown): value is Fact =>
  typeof value === 'object' && value !== null && 'name' in value && 'write' in value && 'timing' in value
