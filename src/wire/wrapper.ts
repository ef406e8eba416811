import type { JsonObject } from './record.ts'

/** What {@link wrapperOf} says of `{"invalid": true}`. */
export const INVALID = 'invalid'

function isWrapper(key: string): boolean {
  // The letter first: most keys are none, and one look is enough to see it.
  const letter = key.charCodeAt(key.length - 5)
  return letter === 86 ? key.endsWith('Value') : letter === 118 && key.endsWith('_value') // V, v
}

/**
 * The key that wraps a value: one key ending in `Value` (or `_value`), whatever stands before it, and nothing beside it
 * but perhaps `invalid`. `'invalid'` when the vehicle says that there is no value. `undefined` when the object is no wrapper.
 */
export function wrapperOf(sent: JsonObject): string | undefined {
  let wrapper: string | undefined
  let invalid = false
  for (const key in sent) {
    if (key === INVALID) invalid = sent[key] === true
    else if (wrapper === undefined && isWrapper(key)) wrapper = key
    else return undefined
  }
  return invalid ? INVALID : wrapper
}
