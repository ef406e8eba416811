import type { Json, Location } from '../events/values.ts'

/** A JSON object whose values nobody has checked yet. */
export interface JsonObject {
  readonly [key: string]: unknown
}

/** Whether a value is present. `null` in JSON means that it is not. */
export function isPresent(value: unknown): boolean {
  return value !== undefined && value !== null
}

export function asJsonObject(value: object): JsonObject {
  return value as JsonObject // oxlint-disable-line no-unsafe-type-assertion -- says no more than `object` does
}

/** A parsed message holds only JSON. A value that another parser put there is passed on as it is. */
export function asJson(value: unknown): Json {
  return value as Json // oxlint-disable-line no-unsafe-type-assertion -- see above
}

/** Whether a parsed value is a JSON object: not an array, not null, not a scalar. */
export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** The most levels of lists and objects in a value that is read. `[]` has one level, `[[]]` two. Code that walks values may recurse. */
export const maxValueDepth = 64

export function isDeeperThan(value: unknown, levels: number = maxValueDepth): boolean {
  if (typeof value !== 'object' || value === null) return false
  if (levels === 0) return true
  if (Array.isArray(value)) return value.some((item) => isDeeperThan(item, levels - 1))
  const object = asJsonObject(value)
  for (const key in object) if (isDeeperThan(object[key], levels - 1)) return true
  return false
}

/** The value with the text `…` for whatever is nested deeper than `levels`, so that `JSON.stringify` can write it. */
export function withoutDeeper(value: object, levels: number): unknown {
  return isDeeperThan(value, levels) ? copyOf(value, levels) : value
}

function copyOf(value: unknown, levels: number): unknown {
  if (typeof value !== 'object' || value === null || value instanceof Date) return value
  if (levels === 0) return '…'
  if (Array.isArray(value)) return value.map((item) => copyOf(item, levels - 1))
  const copy = new WireObject<unknown>()
  for (const [key, item] of Object.entries(value)) copy[key] = copyOf(item, levels - 1)
  return copy
}

export function isTextList(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((item) => typeof item === 'string')
}

/** The key of the method with which consoles print an object. */
export const inspect: unique symbol = /* @__PURE__ */ Symbol.for('nodejs.util.inspect.custom')

/** Names from the wire as keys. It has no prototype: `__proto__` is a key like any other, a missing one `undefined`. */
export interface WireObject<Value> {
  [name: string]: Value
}

// Not `{ __proto__: null }`, which engines keep as a slow dictionary. The `inspect` method is for consoles, which would otherwise print the
// prototype instead of the values.
export const WireObject: new <Value>() => WireObject<Value> = /* @__PURE__ */ (() => {
  class Values<Value> {
    [name: string]: Value
  }
  Object.setPrototypeOf(Values.prototype, null)
  Reflect.deleteProperty(Values.prototype, 'constructor')
  Object.defineProperty(Values.prototype, inspect, {
    value(this: object): object {
      return { ...this }
    },
  })
  return Values
})()

/** The empty {@link WireObject} that events share where they have nothing to hold. Frozen. */
export const emptyObject: Readonly<WireObject<never>> = /* @__PURE__ */ Object.freeze(
  /* @__PURE__ */ new WireObject<never>(),
)

/** The latitude and the longitude in a value. `undefined`: it has none, or 0,0, which is no place. */
export function placeOf(value: unknown): Location | undefined {
  if (!isJsonObject(value)) return undefined
  const { latitude, longitude } = value
  if (typeof latitude !== 'number' || typeof longitude !== 'number' || (latitude === 0 && longitude === 0))
    return undefined
  return { latitude, longitude }
}
