import { FleethookError } from '../../../src/base/errors.ts'

/** The most branches that read one inbox: each has tables of its own, which exist before it does. */
export const mostBranches = 7

/** The number of the receiver among the readers of its inbox. */
export const receiver = 0

/** The tables in which a reader of the inbox has its places. Messages are stored once, in a table that all of them share. */
export class Tables {
  readonly schema: string
  /** {@link receiver}, or the number of a branch in the table `branch`. `undefined`: the inbox is not connected, or has no such branch yet. */
  number: number | undefined

  constructor(schema: string, number?: number) {
    this.schema = schema
    this.number = number
  }

  get waiting(): string {
    return this.#own('waiting')
  }

  get dead(): string {
    return this.#own('dead')
  }

  get vehicle(): string {
    return this.#own('vehicle')
  }

  get notice(): string {
    return this.#own('notice')
  }

  /** A condition: the message `m` is for this reader. Timers of the receiver are of its own rules, and a branch puts only for itself. */
  get reads(): string {
    const number = this.#known
    return number === receiver
      ? 'm.branch IS NULL'
      : `(m.branch = ${number} OR (m.branch IS NULL AND m.kind <> 'timer'))`
  }

  #own(name: string): string {
    const number = this.#known
    return number === receiver ? `${this.schema}.${name}` : `${this.schema}.branch_${number}_${name}`
  }

  get #known(): number {
    if (this.number !== undefined) return this.number
    throw new FleethookError('inbox_unavailable', 'The branch has no places in this inbox yet.')
  }
}

/** The tables of every reader that can be there, the receiver first. */
export const allTables = (schema: string): readonly Tables[] =>
  Array.from({ length: mostBranches + 1 }, (_, number) => new Tables(schema, number))

/** A condition: no reader has the message `m` waiting, nor as a dead letter. */
export const unneeded = (schema: string): string =>
  allTables(schema)
    .flatMap(({ waiting, dead }) => [waiting, dead])
    .map((table) => `NOT EXISTS (SELECT FROM ${table} x WHERE x.id = m.id)`)
    .join(' AND ')
