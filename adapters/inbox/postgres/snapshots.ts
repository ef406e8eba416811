import type { Database, Row } from './client.ts'

/** The rows that one statement reads at most. */
const pageSize = 500

/** The transactions that a snapshot does not show: those from `xmax` on, and those that were open. */
interface Seen {
  readonly xmax: string
  readonly open: readonly string[]
}

/** How far waiting messages have been read. A new object each time that reading begins again. */
export class Position {
  /** What the last complete read showed. `undefined`: nothing was read yet. */
  #seen: Seen | undefined
  /** The snapshot of the first of several pages, and the last row of them. */
  #page: { readonly snapshot: string; readonly after: string } | undefined
  #server: string | undefined
  /** The notices that the last read found, as JSON. */
  notices: unknown

  /** Whether more rows are known to be there. */
  get isBehind(): boolean {
    return this.#page !== undefined
  }

  /** Whether everything that was there at some time since the beginning was read. */
  get isComplete(): boolean {
    return this.#seen !== undefined
  }

  /**
   * Reads waiting messages that no read before has shown, in the order of `seq`. It asks for what the last snapshot did not show, because a
   * lower `seq` can be committed after a higher one. `undefined`: the server has started again or lost its last transactions, so reading has
   * to begin again, because ids of transactions may repeat.
   */
  async read(db: Database, parts: readonly number[], noticesAfter: number | null): Promise<readonly Row[] | undefined> {
    const seen = this.#seen
    const page = this.#page
    const values: unknown[] = [parts, noticesAfter]
    let where = ''
    if (seen !== undefined) {
      values.push(seen.xmax, seen.open)
      where += ' AND (w.xid >= $3::xid8 OR w.xid = ANY ($4::xid8[]))'
    }
    if (page !== undefined) {
      values.push(page.after, page.snapshot)
      where += ` AND w.seq > $${values.length - 1}::bigint AND pg_visible_in_snapshot(w.xid, $${values.length}::pg_snapshot)`
    }
    const rows = await db.run(
      `SELECT s.*, n.*, CASE row_number() OVER () WHEN 1 THEN
  (SELECT json_agg(json_build_array(id, vin, seq))::text FROM ${db.schema}.notice WHERE id > $2) END AS notices
FROM (SELECT pg_current_snapshot()::text AS snapshot, pg_postmaster_start_time()::text AS server, (SELECT id FROM ${db.schema}.boot)::text AS boot) s
LEFT JOIN LATERAL (SELECT w.part, w.seq::text AS seq, w.attempts, w.not_before, w.deliveries, w.replayed::text AS replayed, w.changed,
    m.id, m.lane, m.received_at, m.door, m.kind, m.bytes, m.text
  FROM ${db.schema}.waiting w JOIN ${db.schema}.message m ON m.id = w.id
  WHERE w.part = ANY ($1::smallint[])${where} ORDER BY w.seq LIMIT ${pageSize}) n ON true`,
      values,
    )
    const boot = rows[0]?.['boot']
    if (boot === null) {
      await db.run(`INSERT INTO ${db.schema}.boot DEFAULT VALUES ON CONFLICT DO NOTHING`)
      return undefined
    }
    const server = `${String(boot)} ${String(rows[0]?.['server'])}`
    this.#server ??= server
    if (server !== this.#server) return undefined
    this.notices = rows[0]?.['notices']
    const snapshot = page?.snapshot ?? String(rows[0]?.['snapshot'])
    const found = rows.filter(({ seq }) => seq !== null)
    const last = found.at(-1)
    if (found.length === pageSize && last !== undefined) this.#page = { snapshot, after: String(last['seq']) }
    else {
      this.#page = undefined
      const [, xmax = '0', open = ''] = snapshot.split(':')
      this.#seen = { xmax, open: open === '' ? [] : open.split(',') }
    }
    return found
  }
}
