import type { Receiver, Vehicles } from 'fleethook'
import { type Charge, charge, type Trip, trip } from './episodes.ts'
import { type Database, isKnown, revoke, saveCharge, saveTrip } from './rows.ts'

const hourMs = 3_600_000

/** A message or a booking that comes hours late can leave a time without the row of its customer. This finds it for the day before, and writes it. */
export async function check(receiver: Receiver & { readonly vehicles: Vehicles }, db: Database) {
  const time = { from: new Date(Date.now() - 26 * hourMs), to: new Date(Date.now() - 2 * hourMs) }
  await mend(db, 'trips', trip.within(receiver, time), saveTrip)
  await mend(db, 'charges', charge.within(receiver, time), saveCharge)
}

async function mend<Each extends Trip | Charge>(
  db: Database,
  table: 'trips' | 'charges',
  found: AsyncIterable<Each>,
  save: (db: Database, each: Each, doubts: readonly string[]) => Promise<unknown>,
) {
  const all: Each[] = []
  for await (const each of found) all.push(each)
  for (const each of all) if (!(await isKnown(db, table, each))) await revoke(db, table, each)
  for (const each of all) {
    if (await isKnown(db, table, each)) continue
    console.warn('an episode was in no row', each.id)
    await save(db, each, ['its messages or its booking came late'])
  }
}
