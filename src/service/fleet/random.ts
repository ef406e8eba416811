import { uniformFloat64 } from 'pure-rand/distribution/uniformFloat64'
import { uniformInt } from 'pure-rand/distribution/uniformInt'
import { xoroshiro128plus } from 'pure-rand/generator/xoroshiro128plus'
import type { RandomGenerator } from 'pure-rand/types/RandomGenerator'

/** A source of random numbers. The same seed gives the same numbers. */
export type Random = RandomGenerator

export function randomFrom(seed: number): Random {
  const random = xoroshiro128plus(seed)
  // Similar seeds begin with similar numbers.
  for (let draw = 0; draw < 8; draw++) random.next()
  return random
}

/** A real number in [min, max). */
export function between(random: Random, min: number, max: number): number {
  return min + (max - min) * uniformFloat64(random)
}

/** A whole number in [min, max]. */
export const whole: typeof uniformInt = uniformInt

export function chance(random: Random, probability: number): boolean {
  return uniformFloat64(random) < probability
}

export function oneOf<T>(random: Random, list: readonly [T, ...T[]]): T {
  return list[uniformInt(random, 0, list.length - 1)] ?? list[0]
}
