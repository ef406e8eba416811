import { FleethookError } from '../../../../src/base/errors.ts'
import { closeQuietly, failureOf, openDatabase } from './database.ts'
import { type Reader, Readers, receiver } from './readers.ts'
import { inTransaction } from './schema.ts'

/** The pages of a journal to which little is appended. */
const walPages = 1_000

/** What a branch had in the file. */
export interface BranchInFile {
  readonly messages: number
  readonly deadLetters: number
}

/** Gives what waits for a branch to the branch of another name. For the file of a stopped receiver. */
export function renameBranch(path: string, from: string, to: string): BranchInFile {
  return changed(path, from, (readers) => {
    const other = readers.all.find(({ name }) => name === to)
    if (other !== undefined && (hasMore(other) || to === receiver))
      throw new FleethookError(
        'option_invalid',
        `The file ${path} has a branch \`${to}\` already, and messages wait for it.`,
        {
          hint: `Drop one of them, or name the branch \`${from}\` as before.`,
        },
      )
    if (other !== undefined) readers.drop(to)
    readers.rename(from, to)
  })
}

/** Deletes what waits for a branch that the receiver no longer has, with its dead letters and its states of vehicles. */
export function dropBranch(path: string, name: string): BranchInFile {
  return changed(path, name, (readers) => readers.drop(name))
}

/** The names of the branches in the file of a stopped receiver. */
export function branchesIn(path: string): readonly string[] {
  const db = openDatabase(path, walPages)
  try {
    return namesOf(new Readers(db))
  } catch (error) {
    throw failureOf(error, path)
  } finally {
    closeQuietly(db)
  }
}

/** Forgets what the file dropped. Its next receiver would report it again, after the inbox that has the messages now. */
export function forgetDropped(path: string): void {
  const db = openDatabase(path, walPages)
  try {
    db.exec("DELETE FROM holes WHERE reason = 'inbox_expired'")
  } catch (error) {
    throw failureOf(error, path)
  } finally {
    closeQuietly(db)
  }
}

function changed(path: string, name: string, change: (readers: Readers) => void): BranchInFile {
  const db = openDatabase(path, walPages)
  try {
    const readers = new Readers(db)
    const found = readers.all.find((reader) => reader.name === name && name !== receiver)
    if (found === undefined) {
      const names = namesOf(readers)
      throw new FleethookError('option_invalid', `The file ${path} has no branch \`${name}\`.`, {
        hint: names.length === 0 ? 'It has none.' : `In the file, its branches are ${names.join(', ')}.`,
      })
    }
    const had = countedOf(found)
    inTransaction(db, () => change(readers))
    return had
  } catch (error) {
    throw failureOf(error, path)
  } finally {
    closeQuietly(db)
  }
}

const namesOf = (readers: Readers): readonly string[] =>
  readers.all.flatMap(({ name }) => (name === receiver ? [] : [name])).toSorted()

function countedOf({ statements }: Reader): BranchInFile {
  const messages = Number(statements.countPending.get(-1, Number.MAX_SAFE_INTEGER)?.['messages'])
  return { messages, deadLetters: Number(statements.countDead.get()?.['messages']) }
}

function hasMore(reader: Reader): boolean {
  const { messages, deadLetters } = countedOf(reader)
  return messages + deadLetters > 0
}
