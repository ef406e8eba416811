import { inspect } from './inspect.ts'

/**
 * An object whose keys are names off the wire: `__proto__` and `constructor` are keys as any other, and a name that is
 * absent reads `undefined`, because there is no prototype to reach.
 *
 * It is made by a constructor, because engines keep `{ __proto__: null }` as a slow dictionary. The symbol is for
 * consoles, which would print the prototype instead of the values.
 */
export interface Named<Value> {
  [name: string]: Value
}

const Constructor: new () => Named<never> = /* @__PURE__ */ (() => {
  class Values {
    [name: string]: never
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

/** A new, empty one. */
export function named<Value>(): Named<Value> {
  return new Constructor()
}

/** The one that stands wherever there is nothing to say. Shared, so frozen. */
export const nothing: Readonly<Named<never>> = /* @__PURE__ */ Object.freeze(/* @__PURE__ */ new Constructor())
