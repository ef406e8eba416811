import type { KeptGap } from '../../../src/inbox/inbox.ts'
import { bitOf, BranchRows } from './place-rows.ts'
import { markReaders, type Row, vehicleTable } from './rows.ts'
import type { ObjectStore } from './store.ts'

/** A branch that an object knows. */
export interface KnownReader {
  readonly number: number
  readonly name: string
  /** Since when no receiver has it. */
  readonly leftAt: number | undefined
  /** Since when its states of vehicles lack messages, because the branch did not keep them. */
  readonly staleFrom: number | undefined
  /** Its gaps that no event reports yet. */
  readonly gaps: readonly KeptGap[]
}

type Columns = Readonly<Partial<Record<'left_at' | 'stale_from' | 'gaps', number | string | null>>>

/** The table of its states of vehicles. */
export const vehiclesOf = (name: string): string => `"fleethook_vehicles_${name}"`

/** The branches that an object knows, in rows. */
export class ReaderRows {
  readonly #store: ObjectStore

  constructor(store: ObjectStore) {
    this.#store = store
  }

  all(): readonly KnownReader[] {
    return this.#store.rows('SELECT * FROM fleethook_readers ORDER BY number').map(readerOf)
  }

  add(name: string): KnownReader {
    const { rows, storage } = this.#store
    const taken = new Set(this.all().map(({ number }) => number))
    let number = 1
    while (taken.has(number)) number += 1
    storage.transactionSync(() => {
      rows('INSERT INTO fleethook_readers (number, name) VALUES (?, ?)', number, name)
      storage.sql.exec(vehicleTable(vehiclesOf(name)))
      markReaders(storage.sql)
    })
    return { number, name, leftAt: undefined, staleFrom: undefined, gaps: [] }
  }

  note(number: number, columns: Columns): void {
    const set = Object.keys(columns).map((name) => `${name} = ?`)
    this.#store.rows(
      `UPDATE fleethook_readers SET ${set.join(', ')} WHERE number = ?`,
      ...[...Object.values(columns), number],
    )
  }

  /** What waits for a branch, and its dead letters. */
  left(number: number): { readonly messages: number; readonly deadLetters: number } {
    const { rows } = this.#store
    const [total] = rows(`SELECT count(*) AS messages FROM fleethook_messages WHERE readers & ${bitOf(number)}`)
    const [dead] = rows('SELECT count(*) AS letters FROM fleethook_places WHERE reader = ? AND state <> 0', number)
    const deadLetters = Number(dead?.['letters'])
    return { messages: Number(total?.['messages']) - deadLetters, deadLetters }
  }

  /** Deletes a branch with all that it has. */
  drop({ number, name }: KnownReader): void {
    const { rows, storage } = this.#store
    storage.transactionSync(() => {
      const its = new BranchRows(rows)
      its.known(number)
      its.drop()
      rows('DELETE FROM fleethook_readers WHERE number = ?', number)
      storage.sql.exec(`DROP TABLE ${vehiclesOf(name)}`)
    })
    this.#store.count()
  }
}

function readerOf(row: Row): KnownReader {
  const { left_at: leftAt, stale_from: staleFrom, gaps } = row
  return {
    number: Number(row['number']),
    name: String(row['name']),
    leftAt: typeof leftAt === 'number' ? leftAt : undefined,
    staleFrom: typeof staleFrom === 'number' ? staleFrom : undefined,
    // This module wrote it.
    gaps: typeof gaps === 'string' ? (JSON.parse(gaps) as readonly KeptGap[]) : [],
  }
}
