import { pageBytes } from '../../../src/base/pages.ts'
import type { Database, Row } from './client.ts'
import { receiver, Tables } from './tables.ts'

/** The rows that one statement reads at most. */
const pageSize = 500

/** The texts that one statement reads at most, in bytes. A message that is read without its text gets it when its turn comes. */
const textBytes = 4 * pageBytes
const columns = [
  ...[
    'part',
    'seq',
    'attempts',
    'not_before',
    'deliveries',
    'replayed',
    'replay',
    'changed',
    'failing_since',
    'failed_by',
  ],
  ...['error', 'id', 'lane', 'received_at', 'door', 'kind', 'bytes'],
]
  .map((name) => `n.${name}`)
  .join(', ')

/** `undefined`: reading has to begin again. */
type Found = readonly Row[] | undefined

/** A read of more rows than one statement returns. */
interface Paging {
  /** The snapshot of the first page. */
  readonly snapshot: string
  /** The partitions in which there may be more, and the last `seq` of each that was read. */
  readonly after: ReadonlyMap<number, string>
}

/** How far waiting messages have been read. A new object each time that reading begins again. */
export class Position {
  /** The snapshot of the last complete read. `undefined`: nothing was read yet. */
  #seen: string | undefined
  #paging: Paging | undefined
  #server: string | undefined
  /** Most rows are known already, so their texts are not read. */
  readonly #isAgain: boolean
  /** The notices that the last read found, as JSON. */
  notices: unknown

  constructor(isAgain: boolean = false) {
    this.#isAgain = isAgain
  }

  /** Whether more rows are known to be there. */
  get isBehind(): boolean {
    return this.#paging !== undefined
  }

  /** Whether everything that was there at some time since the beginning was read. */
  get isComplete(): boolean {
    return this.#seen !== undefined
  }

  /**
   * Reads waiting messages that no read before has shown, per partition in the order of `seq`. It asks for what the last snapshot did
   * not show, because a lower `seq` can be committed after a higher one. `undefined`: the server has started again or lost its last
   * transactions, so reading has to begin again, because ids of transactions may repeat.
   */
  async read(db: Database, parts: readonly number[], noticesAfter: number, tables?: Tables): Promise<Found> {
    const paging = this.#paging
    // A few rows of each partition, in the order of its index: the time of a page must not grow with the number of messages that wait. A limit that
    // the planner does not know makes it use that index, also while the table has no statistics.
    const after = paging?.after ?? (this.#seen === undefined ? new Map(parts.map((part) => [part, '0'])) : undefined)
    const most = Math.ceil(pageSize / Math.max(1, after?.size ?? 1))
    const values: unknown[] = [[...(after?.keys() ?? parts)], noticesAfter]
    const bind = (value: unknown): string => `$${values.push(value)}`
    let where = ''
    if (after === undefined) {
      const [, xmax = '0', open = ''] = this.#seen?.split(':') ?? []
      where += ` AND (w.xid >= ${bind(xmax)}::xid8 OR w.xid = ANY (${bind(open === '' ? [] : open.split(','))}::xid8[]))`
    } else {
      where += ` AND w.seq > p.after`
      if (this.#seen !== undefined) where += ` AND NOT pg_visible_in_snapshot(w.xid, ${bind(this.#seen)}::pg_snapshot)`
      if (paging !== undefined) where += ` AND pg_visible_in_snapshot(w.xid, ${bind(paging.snapshot)}::pg_snapshot)`
    }
    const { schema, waiting, notice } = tables ?? new Tables(db.schema, receiver)
    const found = (condition: string): string =>
      `SELECT w.part, w.seq AS place, w.seq::text AS seq, w.attempts, w.not_before, w.deliveries, w.replayed::text AS replayed, w.replay, w.changed,
    w.failing_since, w.failed_by, w.error,
    m.id, m.lane, m.received_at, m.door, m.kind, m.bytes, ${this.#isAgain && this.#seen === undefined ? 'NULL' : 'm.text'} AS text
  FROM ${waiting} w JOIN ${schema}.message m ON m.id = w.id WHERE ${condition}${where} ORDER BY w.seq LIMIT ${after === undefined ? bind(most) : `(SELECT ${bind(most)}::int)`}`
    const rows = await db.run(
      `SELECT s.*, ${columns}, CASE WHEN sum(n.bytes) OVER (ORDER BY n.place ROWS UNBOUNDED PRECEDING) <= ${textBytes} THEN n.text END AS text,
  CASE WHEN row_number() OVER () = 1 THEN
  (${noticesSql(notice, '$2')}) END AS notices
FROM (SELECT pg_current_snapshot()::text AS snapshot, pg_postmaster_start_time()::text AS server, (SELECT id FROM ${schema}.boot)::text AS boot) s
LEFT JOIN LATERAL (${
        after === undefined
          ? found('w.part = ANY ($1::smallint[])')
          : `SELECT n.* FROM unnest($1::smallint[], ${bind([...after.values()])}::bigint[]) p(part, after)
  CROSS JOIN LATERAL (${found('w.part = p.part')}) n ORDER BY n.place`
      }) n ON true`,
      values,
    )
    const boot = rows[0]?.['boot']
    if (boot === null) {
      await db.run(`INSERT INTO ${schema}.boot DEFAULT VALUES ON CONFLICT DO NOTHING`)
      return undefined
    }
    const server = `${String(boot)} ${String(rows[0]?.['server'])}`
    this.#server ??= server
    if (server !== this.#server) return undefined
    this.notices = rows[0]?.['notices']
    const snapshot = paging?.snapshot ?? String(rows[0]?.['snapshot'])
    const here = rows.filter(({ seq }) => seq !== null)
    const more = new Map<number, string>()
    if (after !== undefined) {
      const counts = new Map<number, number>()
      for (const { part, seq } of here) {
        const count = (counts.get(Number(part)) ?? 0) + 1
        counts.set(Number(part), count)
        if (count === most) more.set(Number(part), String(seq))
      }
    } else if (here.length === most) for (const part of parts) more.set(part, String(here.at(-1)?.['seq']))
    this.#paging = more.size === 0 ? undefined : { snapshot, after: more }
    if (more.size === 0) this.#seen = snapshot
    return here
  }
}

/** What an erasure that was broken off has left says nothing after a minute. */
const noticesSql = (notice: string, after: string): string =>
  `SELECT json_agg(json_build_array(id, vin, seq, kind))::text FROM ${notice}
    WHERE id > ${after} AND (vin = '' OR at > clock_timestamp() - interval '1 minute')`

/** The same without messages. */
export async function readNotices(db: Database, { notice }: Tables, after: number): Promise<unknown> {
  const [row] = await db.run(`SELECT (${noticesSql(notice, '$1')}) AS notices`, [after])
  return row?.['notices']
}
