import { upsert } from 'fleethook/when'
import type { Charge, Trip } from './episodes.ts'

/** A pool, or a transaction of it. */
export interface Database {
  query(sql: string, values: unknown[]): Promise<{ readonly rows: unknown[] }>
}

/** What a trip and a charge have in common. Columns that are not here, such as `note`, are yours: no correction changes them. */
const rowOf = (
  { id, revision, revoked, lasts, vin, startedAt, endedAt }: Trip | Charge,
  doubts: readonly string[],
) => ({
  id,
  revision,
  revoked,
  lasts,
  vin,
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

/** Whether a row has a part of that time. */
export async function isKnown(db: Database, table: 'trips' | 'charges', { vin, startedAt, endedAt }: Trip | Charge) {
  const sql = `SELECT FROM ${table} WHERE vin = $1 AND NOT revoked AND started < $2 AND ended > $3`
  return (await db.query(sql, [vin, endedAt, startedAt])).rows.length > 0
}
