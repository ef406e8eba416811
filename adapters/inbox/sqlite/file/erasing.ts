import type { DatabaseSync } from 'node:sqlite'
import { setImmediate } from 'node:timers/promises'
import { laneOf } from '../../../../src/inbox/receipts.ts'
import type { ForgottenPage, Removed } from './interface.ts'
import type { Reader, Readers } from './readers.ts'
import { inTransaction, type SqlRow } from './schema.ts'

/** Rows that are looked at before the receiver goes on: some milliseconds. */
const rowsAtOnce = 2_000

/** What an erasure has found of a reader. */
export interface ErasedPlaces {
  readonly reader: Reader
  readonly pending: Removed
  readonly waiting: number
}

/** Erases the messages of a vehicle among the next rows, of all readers. `after`: -1 begins, which is written down until all is erased. */
export function forgetPage(
  db: DatabaseSync,
  readers: Readers,
  vin: string,
  after: number,
  dryRun: boolean,
): Omit<ForgottenPage, 'readers'> & { readonly places: readonly ErasedPlaces[] } {
  const { file, shared } = readers
  const reached = file.sweepTo.get(after, Number.MAX_SAFE_INTEGER, rowsAtOnce)
  const upTo = reached?.['place'] == null ? after : Number(reached['place'])
  const found = shared.aboutVin.all(after, upTo, laneOf(vin), vin)
  const seqs = found.map(({ place }) => Number(place))
  let places: readonly ErasedPlaces[] = []
  if (!dryRun)
    inTransaction(db, () => {
      if (after < 0) file.addErasing.run(vin)
      places = readers.all.map((reader) => erasePlaces(reader, seqs))
      for (const seq of seqs) file.removeMessage.run(seq)
    })
  return {
    messages: found.length,
    waiting: found.filter(({ waits, kind }) => waits === 1 && kind === 'wire').length,
    deadLetters: found.filter(({ died }) => died === 1).length,
    places,
    next: Number(reached?.['messages']) < rowsAtOnce ? undefined : upTo,
  }
}

function erasePlaces(reader: Reader, seqs: readonly number[]): ErasedPlaces {
  const { removePending, removeDead, removeFailure } = reader.statements
  const rows: SqlRow[] = []
  for (const seq of seqs) {
    if (removeDead.get(seq) !== undefined) reader.deadLetters -= 1
    removeFailure.run(seq)
    const row = removePending.get(seq)
    if (row !== undefined) rows.push(row)
  }
  return {
    reader,
    pending: { messages: rows.length, bytes: rows.reduce((sum, { bytes }) => sum + Number(bytes), 0) },
    waiting: rows.filter(({ kind }) => kind === 'wire').length,
  }
}

export function eraseState(readers: Readers, vin: string): void {
  for (const { statements } of readers.all) {
    statements.removeVehicle.run(vin)
    statements.removeOldFailures.run()
  }
  readers.file.removeGapsOf.run(vin)
}

/** Erases the rows of vehicles whose erasure an earlier process has begun. Returns these vehicles, because pages may still have something of them. */
export async function eraseOwed(db: DatabaseSync, readers: Readers): Promise<readonly string[]> {
  const owed = readers.file.erasing.all().map(({ vin }) => String(vin))
  for (const vin of owed) {
    for (let after: number | undefined = -1; after !== undefined;) {
      after = forgetPage(db, readers, vin, after, false).next
      await setImmediate()
    }
    inTransaction(db, () => eraseState(readers, vin))
  }
  return owed
}
