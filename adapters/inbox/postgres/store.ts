import { createMessages, replayable } from '../../../src/backend/replay.ts'
import type { Clock } from '../../../src/base/clock.ts'
import { firstSeqAt, idWithSeq } from '../../../src/inbox/delivery-id.ts'
import type { Messages, ReplaySelection } from '../../../src/inbox/dead-letters.ts'
import type {
  DeadLetter,
  DeadLetterReason,
  InboxMessage,
  ListedMessage,
  Listing,
  Selection,
} from '../../../src/inbox/inbox.ts'
import { pageBytes } from '../../../src/inbox/pages.ts'
import type { Receipts } from '../../../src/inbox/receipts.ts'
import type { StoredVehicle } from '../../../src/inbox/vehicle-store.ts'
import { letterOf, listedOf, messageOf } from '../../../src/inbox/stored-row.ts'
import { type DeadLetterStore, paced } from '../two-halves.ts'
import type { Database, Row } from './client.ts'
import type { Place } from './endings.ts'
import type { PostgresSettings } from './options.ts'
import { partitionOf, storable } from './schema.ts'
import { heldSql, stateValues, upsertSql } from './vehicles.ts'

/** How long a dead letter is kept, in milliseconds. */
const deadMs = 30 * 86_400_000
/** How much longer a message stays, in milliseconds: a replay may be on its way, or an insert whose answer was lost is sent again. */
const spareMs = 60_000
/** The rows that one statement deletes, so that none of them takes long. */
const tidyRows = 1_000

/** The columns of a dead letter. */
const letterSql = 'm.*, d.error, d.attempts, d.died_at, d.changed'

const isId = (text: string): boolean => /^[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}$/.test(text)

/** Messages that wait for no handler in particular: handled ones, and dead letters. Any process may ask for them. */
export class Store implements DeadLetterStore {
  readonly #db: Database
  readonly #clock: Clock
  readonly #settings: Pick<PostgresSettings, 'keepForMs' | 'confirmMs'>

  constructor(db: Database, clock: Clock, settings: Pick<PostgresSettings, 'keepForMs' | 'confirmMs'>) {
    this.#db = db
    this.#clock = clock
    this.#settings = settings
  }

  /** Makes a message of this process a dead letter. */
  async bury(
    { part, seq }: Place,
    me: string,
    { error, attempts, diedAt, changed }: DeadLetterReason,
    vehicle: StoredVehicle | undefined,
  ): Promise<void> {
    const { schema } = this.#db
    await this.#db.run(
      `WITH ${heldSql(schema, '$3')}, gone AS (DELETE FROM ${schema}.waiting w USING held
  WHERE w.part = held.part AND seq = $2 RETURNING id, seq), state AS (${upsertSql(schema, 8)})
INSERT INTO ${schema}.dead SELECT id, $4, $5, $6, $7 FROM gone ON CONFLICT (id) DO UPDATE
SET error = excluded.error, attempts = excluded.attempts, died_at = excluded.died_at, changed = excluded.changed`,
      [
        ...[[part], seq, me, storable(error), attempts, diedAt, changed ?? null],
        ...stateValues(vehicle === undefined ? [] : [vehicle]),
      ],
    )
  }

  async deadLetters(which: Which): Promise<readonly DeadLetter[]> {
    const { sql, values } = selected(which, 'ASC')
    const { schema } = this.#db
    const rows = await this.#db.run(
      `SELECT ${letterSql} FROM (${pageSql(`${schema}.dead d JOIN ${schema}.message m ON m.id = d.id`, sql)}) page
JOIN ${schema}.message m USING (id) JOIN ${schema}.dead d USING (id) WHERE ${inPage} ORDER BY m.id`,
      values,
    )
    return rows.map(letterOf)
  }

  async findDeadLetter(id: string): Promise<DeadLetter | undefined> {
    return isId(id) ? (await this.deadLetters({ id, limit: 1 }))[0] : undefined
  }

  async replay(ids: readonly string[]): Promise<number> {
    const { schema } = this.#db
    let count = 0
    await paced(this.#clock, ids.filter(isId), async (some) => {
      const lanes = await this.#db.run(`SELECT id, lane FROM ${schema}.message WHERE id = ANY ($1::uuid[])`, [some])
      const rows = await this.#db.run(
        `WITH gone AS (DELETE FROM ${schema}.dead WHERE id = ANY ($2::uuid[]) RETURNING id, changed)
INSERT INTO ${schema}.waiting (part, id, replayed, changed)
  SELECT n.part, n.id, true, gone.changed FROM unnest($1::smallint[], $2::uuid[]) n(part, id) JOIN gone USING (id) ORDER BY n.id
  RETURNING id`,
        [lanes.map(({ lane }) => partitionOf(String(lane))), lanes.map(({ id }) => id)],
      )
      count += rows.length
    })
    return count
  }

  async discard(ids: readonly string[]): Promise<number> {
    const rows = await this.#db.run(`DELETE FROM ${this.#db.schema}.dead WHERE id = ANY ($1::uuid[]) RETURNING id`, [
      ids.filter(isId),
    ])
    return rows.length
  }

  /** Handled messages. */
  async settled(which: Selection): Promise<readonly InboxMessage[]> {
    const { after = '' } = which
    const first = this.#firstKept
    const { sql, values } = selected({ ...which, after: after > first ? after : first }, 'ASC', this.#isSettled)
    const { schema } = this.#db
    const rows = await this.#db.run(
      `SELECT m.* FROM (${pageSql(`${schema}.message m`, sql)}) page JOIN ${schema}.message m USING (id) WHERE ${inPage} ORDER BY m.id`,
      values,
    )
    return rows.map(messageOf)
  }

  /** All messages, newest first. */
  async messages(which: Which): Promise<readonly ListedMessage[]> {
    const { sql, values } = selected(which, 'DESC')
    const { schema } = this.#db
    const rows = await this.#db.run(
      `SELECT ${letterSql}, (NOT (${this.#isSettled}))::text AS open
FROM (${pageSql(`${schema}.message m`, sql)}) page JOIN ${schema}.message m USING (id) LEFT JOIN ${schema}.dead d USING (id)
WHERE ${inPage} ORDER BY m.id DESC`,
      values,
    )
    return rows.map((row) => listedOf(row, stateOf(row)))
  }

  /** What `receiver.messages` does. */
  listing(reread: Receipts['reread']): Messages {
    return {
      list: createMessages({ messages: (which) => this.messages(which) }, reread).list,
      // Several receivers make ids, so the one before the next `seq` can be of another.
      get: async (id) =>
        isId(id) ? createMessages({ messages: () => this.messages({ id, limit: 1 }) }, reread).get(id) : undefined,
    }
  }

  /** Handles handled messages again, in order per vehicle. Resolves to their number. */
  async replayHandled(which: ReplaySelection, reread: Receipts['reread']): Promise<number> {
    const found: { readonly id: string; readonly part: number }[] = []
    for await (const { id, lane } of replayable((selection) => this.settled(selection), which, reread))
      found.push({ id, part: partitionOf(lane) })
    if (which.dryRun === true) return found.length
    let count = 0
    const { schema } = this.#db
    await paced(this.#clock, found, async (some) => {
      const rows = await this.#db.run(
        `INSERT INTO ${schema}.waiting (part, id, replayed)
  SELECT n.part, m.id, true FROM unnest($1::smallint[], $2::uuid[]) n(part, id) JOIN ${schema}.message m ON m.id = n.id
  WHERE ${this.#isSettled} AND m.id >= $3::uuid ORDER BY m.id RETURNING id`,
        [some.map(({ part }) => part), some.map(({ id }) => id), this.#firstKept],
      )
      count += rows.length
    })
    return count
  }

  /** Deletes what is no longer kept. Several processes may do it at once. */
  async tidy(): Promise<void> {
    const { schema } = this.#db
    const now = this.#clock.now()
    await this.#db.run(
      `DELETE FROM ${schema}.dead WHERE id IN (SELECT id FROM ${schema}.dead WHERE died_at < $1 LIMIT ${tidyRows} FOR UPDATE SKIP LOCKED)`,
      [now - deadMs],
    )
    for (;;) {
      const rows = await this.#db.run(
        `DELETE FROM ${schema}.message WHERE id IN (SELECT m.id FROM ${schema}.message m
  WHERE m.id < $1::uuid AND ${this.#isSettled} ORDER BY m.id LIMIT ${tidyRows} FOR UPDATE SKIP LOCKED) RETURNING id`,
        [firstIdAt(now - this.#settings.keepForMs - this.#settings.confirmMs - spareMs)],
      )
      if (rows.length < tidyRows) break
    }
    // A message needs only the newest gap before it. A gap that comes late has a lower number than newer messages.
    await this.#db.run(
      `WITH old AS (SELECT * FROM ${schema}.notice WHERE at < now() - interval '1 hour'),
oldest AS (SELECT coalesce(min(seq), ${Number.MAX_SAFE_INTEGER}) AS seq
  FROM ${schema}.part p, LATERAL (SELECT seq FROM ${schema}.waiting w WHERE w.part = p.part ORDER BY seq LIMIT 1) w)
DELETE FROM ${schema}.notice WHERE id IN (SELECT id FROM old WHERE vin <> ''
  OR seq < (SELECT max(o.seq) FROM old o, oldest WHERE o.vin = '' AND o.seq <= oldest.seq))`,
    )
  }

  /** The first message that may be replayed. Those before it may be deleted at any moment. */
  get #firstKept(): string {
    return firstIdAt(this.#clock.now() - this.#settings.keepForMs)
  }

  get #isSettled(): string {
    const { schema } = this.#db
    return `NOT EXISTS (SELECT FROM ${schema}.waiting w WHERE w.id = m.id) AND NOT EXISTS (SELECT FROM ${schema}.dead x WHERE x.id = m.id)`
  }
}

const stateOf = ({ error, open }: Row): ListedMessage['state'] =>
  error === null ? (open === 'true' ? 'waiting' : 'settled') : 'dead'

/** The smallest id of a message that came at this time. */
const firstIdAt = (ms: number): string => idWithSeq('00000000-0000-0000-0000-000000000000', firstSeqAt(Math.max(0, ms)))

/** The ids of a page, each with the bytes of those before it. Texts are read only for what is in the page. */
const pageSql = (from: string, selection: string): string =>
  `SELECT id, pg_catalog.sum(bytes) OVER (ROWS UNBOUNDED PRECEDING) - bytes AS before FROM (SELECT m.id, m.bytes FROM ${from} ${selection}) listed`
const inPage = `page.before < ${pageBytes}`

/** `id`: only this one. */
type Which = Selection & Listing & { readonly id?: string }

function selected(
  { id, lane, fromMs, toMs, limit, after, before }: Which,
  order: 'ASC' | 'DESC',
  also = 'true',
): { readonly sql: string; readonly values: readonly unknown[] } {
  const values: unknown[] = []
  const conditions = [also]
  const add = (condition: string, value: unknown): void => {
    if (value === undefined) return
    values.push(value)
    conditions.push(condition.replace('?', `$${values.length}`))
  }
  add('m.id = ?::uuid', id)
  add('m.lane = ?', lane)
  add('m.received_at >= ?', fromMs)
  add('m.received_at < ?', toMs)
  add('m.id > ?::uuid', after)
  add('m.id < ?::uuid', before)
  return { sql: `WHERE ${conditions.join(' AND ')} ORDER BY m.id ${order} LIMIT ${Math.trunc(limit)}`, values }
}
