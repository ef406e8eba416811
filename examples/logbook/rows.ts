import { upsert } from 'fleethook/when'
import type { Charge, Trip } from './episodes.ts'

/** A pool, or a transaction of it. */
export interface Database {
  query(sql: string, values: unknown[]): Promise<{ readonly rows: unknown[] }>
}

/** What a trip and a charge have in common. Columns that are not here, such as `note`, are yours: no correction changes them. */
const rowOf = (
  { id, revision, revoked, lasts, vin, customer, startedAt, endedAt }: Trip | Charge,
  doubts: readonly string[],
) => ({
  id,
  revision,
  revoked,
  lasts,
  vin,
  customer,
  started: startedAt,
  ended: endedAt,
  doubts: doubts.join(', '),
})

export function saveTrip(db: Database, t: Trip, doubts: readonly string[]) {
  const used = t.energy.from !== null && t.energy.to !== null ? t.energy.from - t.energy.to : null
  const { sql, values } = upsert('postgres', 'trips', {
    ...rowOf(t, doubts),
    odometer_from: t.odometer.from, // miles, as the vehicle says them
    odometer_to: t.odometer.to,
    unseen: t.odometer.unseen,
    kwh: used !== null && used < 0 ? null : used, // it was charged before its energy was said again
    from_place: t.place.from,
    to_place: t.place.to,
    route: t.route.points,
  })
  return db.query(sql, values)
}

export function saveCharge(db: Database, c: Charge, doubts: readonly string[]) {
  const by = c.energy.by ?? 'socket'
  const { sql, values } = upsert('postgres', 'charges', {
    ...rowOf(c, doubts),
    kwh: c.energy.kwh,
    unseen: c.energy.unseen,
    parts: by === 'battery' ? c.battery.parts : c.socket.parts,
    parts_certain: !c.missing.includes(by),
    percent_from: c.percent.from,
    percent_to: c.percent.to,
    place: c.place,
    at_home: c.atHome,
  })
  return db.query(sql, values)
}

type Table = 'trips' | 'charges'
const ofThatTime = 'vin = $1 AND NOT revoked AND started < $2 AND ended > $3'

/** Whether a row of its customer has a part of that time. When nobody had booked it, any row is one. */
export async function isKnown(db: Database, table: Table, { vin, startedAt, endedAt, customer }: Trip | Charge) {
  const sql = `SELECT FROM ${table} WHERE ${ofThatTime} AND ($4::text IS NULL OR customer = $4)`
  return (await db.query(sql, [vin, endedAt, startedAt, customer])).rows.length > 0
}

/** Revokes the rows of that time: their booking came late, so they are of somebody else. Revision 0, so that a part of one can be written again. */
export const revoke = (db: Database, table: Table, { vin, startedAt, endedAt }: Trip | Charge) =>
  db.query(`UPDATE ${table} SET revoked = true, revision = 0 WHERE ${ofThatTime}`, [vin, endedAt, startedAt])
