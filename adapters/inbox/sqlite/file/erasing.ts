import type { DatabaseSync } from 'node:sqlite'
import { setImmediate } from 'node:timers/promises'
import { laneOf } from '../../../../src/inbox/receipts.ts'
import type { ForgottenPage } from './interface.ts'
import { inTransaction, type Statements } from './schema.ts'

/** Rows that are looked at before the receiver goes on: some milliseconds. */
const rowsAtOnce = 2_000

/** Erases the messages of a vehicle among the next rows. `after`: -1 begins, which is written down until all is erased. */
export function forgetPage(
  db: DatabaseSync,
  statements: Statements,
  vin: string,
  after: number,
  dryRun: boolean,
): Omit<ForgottenPage, 'oldest'> {
  const reached = statements.sweepTo.get(after, Number.MAX_SAFE_INTEGER, rowsAtOnce)
  const upTo = reached?.['place'] == null ? after : Number(reached['place'])
  const found = statements.aboutVin.all(after, upTo, laneOf(vin), vin)
  const waits = found.filter((row) => row['waits'] === 1)
  if (!dryRun)
    inTransaction(db, () => {
      if (after < 0) statements.addErasing.run(vin)
      for (const { place } of found) {
        statements.removePending.get(Number(place))
        statements.removeDead.get(Number(place))
        statements.removeFailure.run(Number(place))
        statements.removeMessage.run(Number(place))
      }
    })
  return {
    messages: found.length,
    waiting: waits.filter(({ kind }) => kind === 'wire').length,
    deadLetters: found.filter(({ died }) => died === 1).length,
    pending: { messages: waits.length, bytes: waits.reduce((sum, { bytes }) => sum + Number(bytes), 0) },
    next: Number(reached?.['messages']) < rowsAtOnce ? undefined : upTo,
  }
}

export function eraseState(statements: Statements, vin: string): void {
  statements.removeVehicle.run(vin)
  statements.removeGapsOf.run(vin)
  statements.removeOldFailures.run()
}

/** Erases the rows of vehicles whose erasure an earlier process has begun. Returns those, because pages may still have something of them. */
export async function eraseOwed(db: DatabaseSync, statements: Statements): Promise<readonly string[]> {
  const owed = statements.erasing.all().map(({ vin }) => String(vin))
  for (const vin of owed) {
    for (let after: number | undefined = -1; after !== undefined;) {
      after = forgetPage(db, statements, vin, after, false).next
      await setImmediate()
    }
    inTransaction(db, () => eraseState(statements, vin))
  }
  return owed
}
