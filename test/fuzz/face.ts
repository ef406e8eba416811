import type { Random } from '../../src/service/fleet/random.ts'

/** One thing that is fuzzed. */
export interface Face {
  /**
   * Makes the case that this chance leads to, and looks at what comes out. Resolves to what is wrong; to `undefined` when
   * all that is promised was kept.
   */
  check(random: Random): string | undefined | Promise<string | undefined>
  /** What can only be seen once several cases are over. */
  checkAll(): string | undefined | Promise<string | undefined>
}

const shared = [Object, Array, String, Number, Boolean, Function, Date, Map, Promise].map(({ prototype }) => prototype)
const known = shared.map((prototype) => Reflect.ownKeys(prototype).length)

/** Whether a case has reached the object that everything else shares. */
export function pollution(): string | undefined {
  for (const key in {}) return `Object.prototype has got the key ${key}.`
  return undefined
}

/** The same, at more expense: also what does not show in a loop, and the other prototypes. */
export function hiddenPollution(): string | undefined {
  const at = shared.findIndex((prototype, index) => Reflect.ownKeys(prototype).length !== known[index])
  return at < 0 ? undefined : `A prototype (number ${at}) has got other keys than it had.`
}
