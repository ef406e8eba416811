import type { FieldValue } from '../events/values.ts'
import type { Fact } from '../vehicles/fact.ts'
import type { Facts } from '../vehicles/facts.ts'
import type { Definition } from './definition.ts'

/** The facts of one vehicle over time, as an episode needs them: facts by which it is told apart, and facts that its conditions read. */
export class TimesOfFacts {
  readonly facts: Facts | undefined
  readonly #by: readonly Fact[]
  readonly #nextPart: ((atMs: number) => number) | undefined
  /** When a fact by which it is told apart became another one. */
  readonly #handOvers: readonly number[]
  /** When a fact of a condition may be another one. */
  readonly #changes: readonly number[]

  constructor({ by, asked, nextPart }: Pick<Definition, 'by' | 'asked' | 'nextPart'>, facts: Facts | undefined) {
    this.facts = facts?.opened()
    this.#by = by
    this.#nextPart = nextPart
    const times = timesIn(by, this.facts)
    this.#handOvers = times.filter((ms, nth) => keyOf(this.at(ms)) !== keyOf(this.at(times[nth - 1] ?? -Infinity)))
    this.#changes = timesIn(asked, this.facts)
  }

  /** Their values at a time, as they are stored. `null`: none. */
  at(ms: number): readonly FieldValue[] {
    return this.#by.map(({ name }) => this.facts?.at(name, ms) ?? null)
  }

  /** Whether it is told apart at this moment. */
  isHandOver(ms: number): boolean {
    return this.#handOvers.includes(ms) || this.#nextPart?.(ms - 1) === ms
  }

  /** The first time after this one at which it is told apart. `Infinity`: never. */
  nextHandOver(ms: number): number {
    return Math.min(this.#handOvers.find((each) => each > ms) ?? Infinity, this.#nextPart?.(ms) ?? Infinity)
  }

  /** The first time after this one at which a condition may be another one by its facts. `Infinity`: never. */
  nextChange(ms: number): number {
    return this.#changes.find((each) => each > ms) ?? Infinity
  }
}

const timesIn = (of: readonly Fact[], facts: Facts | undefined): readonly number[] =>
  facts === undefined || of.length === 0
    ? []
    : [...new Set(of.flatMap(({ name }) => facts.steps(name).map(([ms]) => ms)))].toSorted((a, b) => a - b)

/** Differs for other values. */
export const keyOf = (values: readonly FieldValue[] = []): string => JSON.stringify(values)
