import type { Json } from '../events/values.ts'

/** A JSON object, as far as it is known: names to values that nobody has looked at. */
export interface JsonObject {
  readonly [key: string]: unknown
}

/** Whether a value is there: JSON has `null` for what is not. */
export function isPresent(value: unknown): boolean {
  return value !== undefined && value !== null
}

/** Any object can be asked for keys; what it answers is unknown. */
export function asJsonObject(value: object): JsonObject {
  return value as JsonObject // oxlint-disable-line no-unsafe-type-assertion -- the type says no more than `object` does
}

/** JSON is all that a message can hold: what somebody else's parser put there instead is passed on as it is. */
export function asJson(value: unknown): Json {
  return value as Json // oxlint-disable-line no-unsafe-type-assertion -- see above
}

/** Whether a parsed value is a JSON object: not an array, not null, not a scalar. */
export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
