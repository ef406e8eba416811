import type { Database } from './client.ts'

/** What grows when Postgres cannot clean up. */
export interface TableHealth {
  /** Rows of the tables that are deleted and still take space. */
  readonly deadRows: number
  /** For how long a snapshot has kept Postgres from removing dead rows, in milliseconds. */
  readonly oldestSnapshotMs: number
  /** Who holds it. */
  readonly holder: string | undefined
}

/** A user sees the snapshots of other users only with the role `pg_read_all_stats`. */
export async function tableHealth(db: Database): Promise<TableHealth> {
  const [row] = await db.run(
    `SELECT (SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables WHERE schemaname = $1)::text AS dead, h.holder, h.ms::text AS ms
FROM (VALUES (1)) one LEFT JOIN LATERAL (
  SELECT format('process %s (%s)', pid, CASE WHEN application_name = '' THEN backend_type ELSE coalesce(application_name, backend_type) END) AS holder, xact_start AS since
    FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND xact_start IS NOT NULL AND pid <> pg_backend_pid()
  UNION ALL SELECT format('the prepared transaction %s', gid), prepared FROM pg_prepared_xacts
  ORDER BY since LIMIT 1
) s ON true, LATERAL (SELECT s.holder, floor(extract(epoch FROM clock_timestamp() - s.since) * 1000) AS ms) h`,
    [db.schema],
  )
  const holder = row?.['holder']
  return {
    deadRows: Number(row?.['dead']),
    oldestSnapshotMs: Math.max(0, Number(row?.['ms'] ?? 0)),
    holder: typeof holder === 'string' ? holder : undefined,
  }
}
