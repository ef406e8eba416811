import { uniformFloat64 } from 'pure-rand/distribution/uniformFloat64'
import { uniformInt } from 'pure-rand/distribution/uniformInt'
import { xoroshiro128plus } from 'pure-rand/generator/xoroshiro128plus'
import type { RandomGenerator } from 'pure-rand/types/RandomGenerator'

/** A source of chance: the same seed, the same luck. */
export type Random = RandomGenerator

/** A source of chance from a whole number. */
export function randomFrom(seed: number): Random {
  const random = xoroshiro128plus(seed)
  // Seeds that are close to each other have first draws that are close to each other.
  for (let draw = 0; draw < 8; draw++) random.next()
  return random
}

/** A real number in [min, max). */
export function between(random: Random, min: number, max: number): number {
  return min + (max - min) * uniformFloat64(random)
}

/** A whole number in [min, max]. */
export function whole(random: Random, min: number, max: number): number {
  return uniformInt(random, min, max)
}

/** True with the probability given. */
export function chance(random: Random, probability: number): boolean {
  return uniformFloat64(random) < probability
}

/** One of the list. */
export function oneOf<T>(random: Random, list: readonly [T, ...T[]]): T {
  return list[uniformInt(random, 0, list.length - 1)] ?? list[0]
}
