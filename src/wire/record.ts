/** A JSON object, as far as it is known: names to values that nobody has looked at. */
export interface JsonObject {
  readonly [key: string]: unknown
}

/** Whether a parsed value is a JSON object: not an array, not null, not a scalar. */
export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
