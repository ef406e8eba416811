import { dead, over, type Row, type Rows, waiting } from './rows.ts'

type State = typeof waiting | typeof dead

/** What changes when a message fails, is claimed again after a crash, is given up, or is replayed. What is `undefined` stays. */
interface Columns {
  readonly state?: number
  readonly deliveries?: number | undefined
  readonly attempts?: number
  readonly not_before?: number
  readonly replayed?: number
  readonly error?: string | null
  readonly died_at?: number | null
  readonly changed?: string | null | undefined
}

/** The names of the columns that change, and their values. */
function given(columns: Columns): { readonly names: readonly string[]; readonly values: (string | number | null)[] } {
  const entries: [string, string | number | null | undefined][] = Object.entries(columns)
  const known = entries.flatMap(([name, value]) => (value === undefined ? [] : [{ name, value }]))
  return { names: known.map(({ name }) => name), values: known.map(({ value }) => value) }
}

/** A message that a reader no longer needs. */
export interface Released {
  readonly bytes: number
  /** No other reader needs it either, so it is deleted. */
  readonly isGone: boolean
}

/** The rows of what one reader of an object still has to do. */
export abstract class PlaceRows {
  /** A table of its messages, with what it has done with each of them. Beside them, it can have rows that are `over`. */
  abstract readonly source: string
  protected readonly rows: Rows

  constructor(rows: Rows) {
    this.rows = rows
  }

  /** Writes these columns of a message that is in this state. Returns its size, and `undefined` when it is not. */
  abstract change(place: number, from: State, columns: Columns): number | undefined
  /** Takes a message that is in this state from the reader. `undefined`: it is not. */
  abstract release(place: number, from: State): Released | undefined

  find(place: number, state: State): Row | undefined {
    return this.rows(`SELECT * FROM ${this.source} WHERE place = ? AND state = ${state}`, place)[0]
  }

  /** A page of what waits, in the order of places. */
  waiting(after: number, upTo: number, limit: number): readonly Row[] {
    return this.rows(
      `SELECT place, id, lane, kind, deliveries, attempts, not_before, error AS failure FROM ${this.source}
       WHERE state = ${waiting} AND place > ? AND place <= ? ORDER BY place LIMIT ${limit}`,
      ...[after, upTo],
    )
  }

  /** The oldest dead letters that were given up before this time. */
  dead(diedBefore: number, limit: number): readonly number[] {
    const found = this.rows(
      `SELECT place FROM ${this.source} WHERE state = ${dead} AND died_at < ? ORDER BY place LIMIT ${limit}`,
      diedBefore,
    )
    return found.map(({ place }) => Number(place))
  }

  totals(): { readonly messages: number; readonly pending: number; readonly dead: number } {
    const [total] = this.rows(
      `SELECT count(*) FILTER (WHERE state = ${waiting}) AS messages, sum(bytes) FILTER (WHERE state = ${waiting}) AS pending,
         sum(bytes) FILTER (WHERE state = ${dead}) AS dead FROM ${this.source}`,
    )
    return {
      messages: Number(total?.['messages']),
      pending: Number(total?.['pending']),
      dead: Number(total?.['dead']),
    }
  }
}

/** The receiver has them in the rows of the messages. */
export class ReceiverRows extends PlaceRows {
  readonly source = 'fleethook_messages'

  change(place: number, from: State, columns: Columns): number | undefined {
    const { names, values } = given(columns)
    const set = names.map((name) => `${name} = ?`).join(', ')
    const [row] = this.rows(
      `UPDATE fleethook_messages SET ${set} WHERE place = ? AND state = ${from} RETURNING bytes`,
      ...values,
      place,
    )
    return row && Number(row['bytes'])
  }

  release(place: number, from: State): Released | undefined {
    const of = `place = ? AND state = ${from}`
    const [gone] = this.rows(`DELETE FROM fleethook_messages WHERE ${of} AND readers = 0 RETURNING bytes`, place)
    if (gone !== undefined) return { bytes: Number(gone['bytes']), isGone: true }
    const bytes = this.change(place, from, { state: over, error: null, changed: null })
    return bytes === undefined ? undefined : { bytes, isGone: false }
  }
}

/** A branch has a bit in the rows of the messages, and rows of its own for what failed. */
export class BranchRows extends PlaceRows {
  source = ''
  #number = 0

  /** The object knows the branch by this number. */
  known(number: number): void {
    this.#number = number
    this.source = `(SELECT m.place, m.id, m.lane, m.received_at, m.door, m.kind, m.text, m.bytes, coalesce(p.state, ${waiting}) AS state,
       coalesce(p.deliveries, 0) AS deliveries, coalesce(p.attempts, 0) AS attempts, coalesce(p.not_before, 0) AS not_before,
       coalesce(p.replayed, 0) AS replayed, p.error, p.died_at, p.changed FROM fleethook_messages m
       LEFT JOIN fleethook_places p ON p.reader = ${number} AND p.place = m.place WHERE m.readers & ${this.bit})`
  }

  /** Says in the row of a message that the branch needs it. */
  get bit(): number {
    return bitOf(this.#number)
  }

  change(place: number, from: State, columns: Columns): number | undefined {
    const row = this.find(place, from)
    if (row === undefined) return undefined
    const { names, values } = given(columns)
    this.rows(
      `INSERT INTO fleethook_places (reader, place, ${names.join(', ')}) VALUES (?, ?${', ?'.repeat(names.length)})
       ON CONFLICT (reader, place) DO UPDATE SET ${names.map((name) => `${name} = excluded.${name}`).join(', ')}`,
      ...[this.#number, place, ...values],
    )
    return Number(row['bytes'])
  }

  release(place: number, from: State): Released | undefined {
    const row = this.find(place, from)
    if (row === undefined) return undefined
    this.rows('DELETE FROM fleethook_places WHERE reader = ? AND place = ?', this.#number, place)
    const isGone = this.rows(
      `DELETE FROM fleethook_messages WHERE place = ? AND ${this.#onlyIts} RETURNING place`,
      place,
    )
    if (isGone.length === 0)
      this.rows(`UPDATE fleethook_messages SET readers = readers & ~${this.bit} WHERE place = ?`, place)
    return { bytes: Number(row['bytes']), isGone: isGone.length > 0 }
  }

  /** Deletes all that the branch has. */
  drop(): void {
    this.rows(`DELETE FROM fleethook_messages WHERE ${this.#onlyIts}`)
    this.rows(`UPDATE fleethook_messages SET readers = readers & ~${this.bit} WHERE readers & ${this.bit}`)
    this.rows('DELETE FROM fleethook_places WHERE reader = ?', this.#number)
  }

  get #onlyIts(): string {
    return `state = ${over} AND readers = ${this.bit}`
  }
}

export const bitOf = (number: number): number => 2 ** number

/** The bits of the readers that a row of a message has. */
export function bitsIn(readers: number): readonly number[] {
  const bits: number[] = []
  for (let bit = 1; bit <= readers; bit *= 2) if (Math.floor(readers / bit) % 2 === 1) bits.push(bit)
  return bits
}
