import type { Signs } from '../signs-of-life.ts'
import { briefly, type Database, databaseError } from './client.ts'
import { aboutServer } from './promises.ts'
import { schemaVersion } from './schema.ts'
import { serverMs } from './server-clock.ts'

/** Signs of life in the table `receiver`. */
export const signsIn = (db: Database, me: string): Signs => ({
  me,
  async write({ agoMs, listeningMs, isClosed, gaps, isAccounted }, withinMs) {
    await db.run(
      `INSERT INTO ${db.schema}.receiver SELECT $1::uuid, ${serverMs} - $2::bigint, $3::boolean, $4, $5::boolean, ${serverMs} - $2::bigint - $6::bigint, ${schemaVersion} FROM ${briefly}
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, closed = excluded.closed, gaps = excluded.gaps, accounted = excluded.accounted RETURNING ${aboutServer}`,
      [me, agoMs, isClosed, JSON.stringify(gaps), isAccounted, listeningMs],
      withinMs,
    )
  },
  async read() {
    const rows = await db.run(
      `SELECT id, since, seen_at, closed::text AS closed, accounted::text AS accounted, gaps FROM ${db.schema}.receiver`,
    )
    return rows.map((row) => ({
      id: String(row['id']),
      since: Number(row['since']),
      until: Number(row['seen_at']),
      isClosed: row['closed'] === 'true',
      isAccounted: row['accounted'] === 'true',
      gaps: JSON.parse(String(row['gaps'])),
    }))
  },
  async forget(ids) {
    await db.run(
      `WITH l AS (SELECT FROM ${briefly}) DELETE FROM ${db.schema}.receiver USING l WHERE id = ANY ($1::uuid[])`,
      [ids],
    )
  },
  reasonOf: (error) => databaseError(error).message,
})
