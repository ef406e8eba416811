import type { Receiver, Vehicles } from 'fleethook'
import { charge, trip } from './episodes.ts'
import { type Database, isKnown, saveCharge, saveTrip } from './rows.ts'

const hourMs = 3_600_000
const late = ['its messages came late']

/** A message that comes hours late can leave a trip or a charge without a row. This finds the missing rows of the day before, and writes them. */
export async function check(receiver: Receiver & { readonly vehicles: Vehicles }, db: Database) {
  const time = { from: new Date(Date.now() - 26 * hourMs), to: new Date(Date.now() - 2 * hourMs) }
  for await (const found of trip.within(receiver, time)) {
    if (await isKnown(db, 'trips', found)) continue
    console.warn('a trip was in no row', found.id)
    await saveTrip(db, found, late)
  }
  for await (const found of charge.within(receiver, time)) {
    if (await isKnown(db, 'charges', found)) continue
    console.warn('a charge was in no row', found.id)
    await saveCharge(db, found, late)
  }
}
