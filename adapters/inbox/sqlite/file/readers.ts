import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { FleethookError } from '../../../../src/base/errors.ts'
import type { FileFigures } from './interface.ts'
import { createReader, dropReaderTables, inTransaction, type SqlRow } from './schema.ts'
import {
  expendableSql,
  type FileStatements,
  prepareFile,
  prepareReader,
  prepareShared,
  type ReaderStatements,
  type SharedStatements,
} from './statements.ts'

/** The name of the receiver among the readers of its file. */
export const receiver = ''

/** Who reads the messages of a file: the receiver, or one of its branches. */
export interface Reader {
  readonly number: number
  readonly name: string
  readonly statements: ReaderStatements
  /** When a process last had it, in milliseconds since the epoch. */
  readonly usedMs: number
  deadLetters: number
  /** The file did not have it before this process. */
  readonly isNew: boolean
  /** This process has it. */
  isUsed: boolean
  /** Settled messages after this `seq` stay: the states of their vehicles are not written yet. */
  heldAfter: number
}

/** The readers of an open file, and the statements that concern all of them. */
export class Readers {
  readonly file: FileStatements
  readonly receiver: Reader
  readonly #db: DatabaseSync
  readonly #byName = new Map<string, Reader>()
  #shared: SharedStatements | undefined
  /** By reader, the oldest messages that may make room. */
  #expendable: ReadonlyMap<Reader, StatementSync> | undefined

  constructor(db: DatabaseSync) {
    this.#db = db
    this.file = prepareFile(db)
    for (const row of this.file.readers.all()) this.#know(row)
    this.receiver = this.of(receiver)
    this.receiver.isUsed = true
  }

  /** The receiver comes first. */
  get all(): readonly Reader[] {
    return [...this.#byName.values()]
  }

  /** The branches that this process has. */
  get branches(): readonly Reader[] {
    return this.all.filter((reader) => reader.isUsed && reader !== this.receiver)
  }

  get shared(): SharedStatements {
    return (this.#shared ??= prepareShared(this.#db, this.#numbers))
  }

  get expendable(): ReadonlyMap<Reader, StatementSync> {
    if (this.#expendable === undefined) {
      const branches = this.all.filter((each) => each !== this.receiver)
      const numbers = this.#numbers
      this.#expendable = new Map(
        branches.map((each) => [each, this.#db.prepare(expendableSql(each.number, numbers))] as const),
      )
    }
    return this.#expendable
  }

  of(name: string): Reader {
    const known = this.#byName.get(name)
    if (known !== undefined) return known
    throw new FleethookError('inbox_unavailable', `The inbox has no reader \`${name}\`.`)
  }

  /** This process has a reader of this name, which is new if the file has none. */
  use(name: string, nowMs: number): Reader {
    const known = this.#byName.get(name) ?? this.#add(name, nowMs)
    known.isUsed = true
    return known
  }

  rename(from: string, to: string): void {
    this.#db.prepare('UPDATE readers SET name = ? WHERE number = ?').run(to, this.of(from).number)
  }

  /** Deletes what it still has to do. Messages that no other reader needs are settled then. */
  drop(name: string): void {
    const { number } = this.of(name)
    this.#db.prepare('DELETE FROM messages WHERE reader = ?').run(number)
    this.#db.prepare('DELETE FROM holes WHERE reader = ?').run(number)
    this.#db.prepare('DELETE FROM readers WHERE number = ?').run(number)
    dropReaderTables(this.#db, number)
    this.#byName.delete(name)
    this.#changed()
  }

  get #numbers(): readonly number[] {
    return this.all.map(({ number }) => number)
  }

  #add(name: string, nowMs: number): Reader {
    return inTransaction(this.#db, () => {
      const row = this.file.addReader.get(name, nowMs) ?? {}
      createReader(this.#db, Number(row['number']))
      return this.#know(row, true)
    })
  }

  #know(row: SqlRow, isNew = false): Reader {
    const number = Number(row['number'])
    const reader: Reader = {
      number,
      name: String(row['name']),
      statements: prepareReader(this.#db, number),
      usedMs: Number(row['used_at']),
      deadLetters: 0,
      isNew,
      isUsed: false,
      heldAfter: Infinity,
    }
    this.#byName.set(reader.name, reader)
    this.#changed()
    return reader
  }

  #changed(): void {
    this.#shared = undefined
    this.#expendable = undefined
  }
}

export function countDead(reader: Reader): void {
  reader.deadLetters = Number(reader.statements.countDead.get()?.['messages'])
}

export function figuresOf({ statements, deadLetters }: Reader): FileFigures {
  const oldest = statements.oldest.get()?.['place']
  return { oldest: oldest == null ? undefined : Number(oldest), deadLetters }
}
