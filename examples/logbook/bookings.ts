import type { Vehicles } from 'fleethook'
import type { Pool } from 'pg'

/** Tells the receiver who has a vehicle, and when: what changed in the table `bookings`, also of the past. */
export async function tellBookings(vehicles: Pick<Vehicles, 'set'>, pool: Pick<Pool, 'connect'>) {
  const db = await pool.connect()
  try {
    await db.query('BEGIN')
    const { rows } = await db.query('DELETE FROM handovers WHERE starts < $1 RETURNING *', [inAWeek()])
    for (const { vin, customer, starts, ends } of rows.toSorted((one, other) => one.number - other.number))
      await vehicles.set(vin, { customer }, { from: starts, until: ends })
    await db.query('COMMIT')
  } catch (error) {
    await db.query('ROLLBACK')
    throw error
  } finally {
    db.release()
  }
}

const inAWeek = () => new Date(Date.now() + 7 * 86_400_000)
