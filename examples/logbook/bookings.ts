import type { Vehicles } from 'fleethook'

/** A pool of connections to the database. */
interface Pool {
  connect(): Promise<{ query(sql: string, values?: unknown[]): Promise<{ rows: unknown[] }>; release(): void }>
}

/** A row of the table `handovers`. */
interface Handover {
  readonly number: number
  readonly vin: string
  readonly customer: string | null
  readonly starts: Date
  readonly ends: Date
}

/** Tells the receiver who has a vehicle, and when: what changed in the table `bookings`, also of the past. */
export async function tellBookings(vehicles: Pick<Vehicles, 'set'>, pool: Pool) {
  const db = await pool.connect()
  try {
    await db.query('BEGIN')
    // A plan is told in the week before. Who else tells bookings waits until these are told.
    const { rows } = await db.query("DELETE FROM handovers WHERE starts < now() + interval '7 days' RETURNING *")
    const inOrder = (rows as Handover[]).toSorted((one, other) => one.number - other.number)
    for (const { vin, customer, starts, ends } of inOrder)
      await vehicles.set(vin, { customer }, { from: starts, until: ends })
    await db.query('COMMIT')
  } catch (error) {
    await db.query('ROLLBACK')
    throw error
  } finally {
    db.release()
  }
}
