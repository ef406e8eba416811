import type { FieldValue } from '../events/values.ts'
import type { Fact } from '../vehicles/fact.ts'
import type { Facts } from '../vehicles/facts.ts'

/** The facts of one vehicle over time, as an episode needs them: those by which it is told apart, and those that its conditions read. */
export class TimesOfFacts {
  readonly facts: Facts | undefined
  readonly #by: readonly Fact[]
  /** When a fact by which it is told apart became another one. */
  readonly #handOvers: readonly number[]
  /** When a fact of a condition may be another one. */
  readonly #changes: readonly number[]

  constructor(
    { by, asked }: { readonly by: readonly Fact[]; readonly asked: readonly Fact[] },
    facts: Facts | undefined,
  ) {
    this.facts = facts
    this.#by = by
    const times = timesIn(by, facts)
    this.#handOvers = times.filter((ms, nth) => keyOf(this.at(ms)) !== keyOf(this.at(times[nth - 1] ?? -Infinity)))
    this.#changes = timesIn(asked, facts)
  }

  /** Their values at a time, as they are stored. `null`: none. */
  at(ms: number): readonly FieldValue[] {
    return this.#by.map(({ name }) => this.facts?.at(name, ms) ?? null)
  }

  /** Whether it is told apart at this moment. */
  isHandOver(ms: number): boolean {
    return this.#handOvers.includes(ms)
  }

  /** The first time after this one at which it is told apart. `Infinity`: never. */
  nextHandOver(ms: number): number {
    return this.#handOvers.find((each) => each > ms) ?? Infinity
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
