import type { Random } from '../../src/service/fleet/random.ts'

/** One thing that is fuzzed. */
export interface Face {
  /**
   * Builds the case of this random source, and checks the result. Resolves to a description of the fault, or to
   * `undefined` when every promise was kept.
   */
  check(random: Random): string | undefined | Promise<string | undefined>
  /** Checks that need several finished cases. */
  checkAll(): string | undefined | Promise<string | undefined>
}

const shared = [Object, Array, String, Number, Boolean, Function, Date, Map, Promise].map(({ prototype }) => prototype)
const known = shared.map((prototype) => Reflect.ownKeys(prototype).length)

/** Whether a case has changed the shared prototype. */
export function pollution(): string | undefined {
  for (const key in {}) return `Object.prototype has got the key ${key}.`
  return undefined
}

/**
 * The same check, more thorough and more expensive: it includes properties that a loop does not show, and other
 * prototypes.
 */
export function hiddenPollution(): string | undefined {
  const at = shared.findIndex((prototype, index) => Reflect.ownKeys(prototype).length !== known[index])
  return at < 0 ? undefined : `A prototype (number ${at}) has got other keys than it had.`
}
