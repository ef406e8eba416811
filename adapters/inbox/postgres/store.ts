import { type DeadLetterStore, partOf, replayable } from '../../../src/inbox/archive.ts'
import { type Clock, elapsedMs, pause } from '../../../src/base/clock.ts'
import { BelievedTime } from '../../../src/base/believed-time.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import { firstSeqAt, idWithSeq } from '../../../src/inbox/delivery-id.ts'
import type { Replayed, ReplayPage, ReplaySelection } from '../../../src/observe/dead-letters.ts'
import {
  type Archive,
  type DeadLetter,
  type DeadLetterReason,
  type InboxMessage,
  listedLetter,
  type ListedMessage,
  type ReadMessage,
  type Selection,
} from '../../../src/inbox/inbox.ts'
import { pageBytes } from '../../../src/base/pages.ts'
import type { StoredVehicle } from '../../../src/inbox/vehicle-store.ts'
import { letterOf, listedOf, messageOf } from '../stored-row.ts'
import { paced } from '../paced.ts'
import { briefly, type Database, type Row } from './client.ts'
import { patientMs, type Place } from './endings.ts'
import type { PostgresSettings } from './options.ts'
import { partitionOf, storable } from './schema.ts'
import { receiver, Tables, unneeded } from './tables.ts'
import { endSql, lockedSql, stateValues } from './vehicles.ts'

/** How much longer a message stays, in milliseconds: a replay may be on its way, or an insert whose answer was lost is sent again. */
const spareMs = 60_000
/** The rows that one statement deletes, so that none of them takes long. */
const tidyRows = 1_000

/** The time between two notes of the believed time, in milliseconds. */
const noteEveryMs = 1_800_000

type StoreSettings = Pick<PostgresSettings, 'keepForMs' | 'deadForMs' | 'confirmMs'>

/** The columns of a dead letter. */
const letterSql = 'm.*, d.error, d.attempts, d.died_at, d.changed'

const isId = (text: string): boolean => /^[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}$/.test(text)

/** Messages of a reader that wait for no handler in particular: handled ones, and dead letters. Any process may ask for them. */
export class Store implements DeadLetterStore {
  readonly #db: Database
  readonly #tables: Tables
  readonly #clock: Clock
  readonly #settings: StoreSettings
  readonly #believed: BelievedTime
  /** The believed time that the tables have. */
  #writtenMs = 0

  /** `onAhead`: see {@link BelievedTime}. */
  constructor(
    db: Database,
    clock: Clock,
    settings: StoreSettings,
    onAhead?: (aheadMs: number) => void,
    tables: Tables = new Tables(db.schema, receiver),
  ) {
    this.#db = db
    this.#tables = tables
    this.#clock = clock
    this.#settings = settings
    this.#believed = new BelievedTime(clock, onAhead)
  }

  /** Reads the time that an earlier process believed. Before the first {@link tidy}. */
  async follow(): Promise<void> {
    const { schema } = this.#db
    const [row] = await this.#db.run(
      `SELECT coalesce(known_ms, (SELECT received_at FROM ${schema}.message ORDER BY id DESC LIMIT 1)) AS known, doubted_ms, seen_ms
FROM ${schema}.meta`,
    )
    if (row?.['known'] == null) return
    const knownMs = Number(row['known'])
    this.#believed.follow({
      knownMs,
      doubtedMs: Number(row['doubted_ms'] ?? 0),
      seenMs: Number(row['seen_ms'] ?? knownMs),
    })
  }

  /**
   * Makes a message of this process a dead letter, with the marks of its run. Resolves to whether a late commit has ended it instead: see
   * `DeadLetterReason`. Rejects when somebody else keeps it locked.
   */
  async bury(place: Place, me: string, why: DeadLetterReason, vehicle: StoredVehicle | undefined): Promise<boolean> {
    // A transaction of the handler that failed ends a moment after its connection is closed, and has the row locked until then.
    const untilMs = elapsedMs(this.#clock) + patientMs
    for (;;) {
      const isHandled = await this.#buryNow(place, me, why, vehicle)
      if (isHandled !== 'locked') return isHandled
      if (elapsedMs(this.#clock) >= untilMs)
        throw new FleethookError(
          'inbox_unavailable',
          'Another session has locked a message that is to become a dead letter.',
          { hint: 'It is tried again. End the transaction of that session: see pg_stat_activity and pg_locks.' },
        )
      await pause(this.#clock, patientMs / 20)
    }
  }

  async #buryNow(
    { part, seq }: Place,
    me: string,
    { error, attempts, diedAt, changed, marks }: DeadLetterReason,
    vehicle: StoredVehicle | undefined,
  ): Promise<boolean | 'locked'> {
    const tables = this.#tables
    const [row] = await this.#db.run(
      `WITH g AS (SELECT ($1::smallint[])[1] AS part, $2::bigint AS seq, $8::text AS vin),
${endSql(tables, '$3', 9)},
died AS (INSERT INTO ${tables.dead} (id, error, attempts, died_at, changed, done, replay)
  SELECT id, $4, $5, $6, $7, done, replay FROM gone WHERE $17::text[] IS NULL OR NOT done @> $17::text[] ON CONFLICT (id) DO UPDATE
  SET error = excluded.error, attempts = excluded.attempts, died_at = excluded.died_at, changed = excluded.changed,
    done = excluded.done, replay = excluded.replay RETURNING id)
SELECT (EXISTS (${lockedSql(tables, '$3')}))::text AS locked,
  (EXISTS (SELECT FROM gone) AND NOT EXISTS (SELECT FROM died))::text AS handled`,
      [
        ...[[part], seq, me, storable(error), attempts, diedAt, changed === undefined ? null : storable(changed)],
        vehicle === undefined ? '' : storable(vehicle.vin),
        ...stateValues(vehicle === undefined ? [] : [[seq, vehicle]]),
        marks ?? null,
      ],
    )
    return row?.['locked'] === 'true' ? 'locked' : row?.['handled'] === 'true'
  }

  async deadLetters(which: Selection): Promise<readonly DeadLetter[]> {
    const { sql, values } = selected(which, 'ASC')
    const { schema } = this.#db
    const { dead } = this.#tables
    const rows = await this.#db.run(
      `SELECT ${letterSql} FROM (${pageSql(`${dead} d JOIN ${schema}.message m ON m.id = d.id`, sql)}) page
JOIN ${schema}.message m ON m.id = page.id JOIN ${dead} d ON d.id = m.id WHERE ${inPage} ORDER BY m.id`,
      values,
    )
    return rows.map(letterOf)
  }

  /** See `Archive`. */
  async list(...[what, which]: Parameters<Archive['list']>): Promise<readonly ListedMessage[]> {
    if (which.id !== undefined && !isId(which.id)) return []
    if (what === 'all') return this.messages(which)
    if (what === 'dead') return (await this.deadLetters(which)).map(listedLetter)
    return (await this.settled(which)).map((message) => ({ message, state: 'settled' }))
  }

  async replay(ids: readonly string[]): Promise<number> {
    const { schema } = this.#db
    const { waiting, dead } = this.#tables
    let count = 0
    await paced(this.#clock, ids.filter(isId), async (some) => {
      const lanes = await this.#db.run(`SELECT id, lane FROM ${schema}.message WHERE id = ANY ($1::uuid[])`, [some])
      const rows = await this.#db.run(
        `WITH free AS (SELECT id FROM ${dead} WHERE id = ANY ($2::uuid[]) FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM ${dead} d USING free WHERE d.id = free.id RETURNING d.id, d.changed, d.done, d.replay)
INSERT INTO ${waiting} (part, id, replayed, changed, done, replay)
  SELECT n.part, n.id, true, gone.changed, gone.done, gone.replay FROM unnest($1::smallint[], $2::uuid[]) n(part, id)
  JOIN gone ON gone.id = n.id ORDER BY n.id
  RETURNING id`,
        [lanes.map(({ lane }) => partitionOf(String(lane))), lanes.map(({ id }) => id)],
      )
      count += rows.length
    })
    return count
  }

  async discard(ids: readonly string[]): Promise<number> {
    const { dead } = this.#tables
    const rows = await this.#db.run(
      `WITH free AS (SELECT id FROM ${dead} WHERE id = ANY ($1::uuid[]) FOR UPDATE SKIP LOCKED)
DELETE FROM ${dead} d USING free WHERE d.id = free.id RETURNING d.id`,
      [ids.filter(isId)],
    )
    return rows.length
  }

  /** Handled messages. */
  async settled(which: Selection): Promise<readonly InboxMessage[]> {
    const { after = '' } = which
    const first = this.#firstKept
    const { sql, values } = selected({ ...which, after: after > first ? after : first }, 'ASC', this.#isSettled)
    const { schema } = this.#db
    const rows = await this.#db.run(
      `SELECT m.* FROM (${pageSql(`${schema}.message m`, sql)}) page JOIN ${schema}.message m ON m.id = page.id WHERE ${inPage} ORDER BY m.id`,
      values,
    )
    return rows.map(messageOf)
  }

  /** All messages, newest first. */
  async messages(which: Selection): Promise<readonly ListedMessage[]> {
    const { sql, values } = selected(which, 'DESC', this.#tables.reads)
    const { schema } = this.#db
    const rows = await this.#db.run(
      `SELECT ${letterSql}, (NOT (${this.#isSettled}))::text AS open
FROM (${pageSql(`${schema}.message m`, sql)}) page JOIN ${schema}.message m ON m.id = page.id LEFT JOIN ${this.#tables.dead} d ON d.id = m.id
WHERE ${inPage} ORDER BY m.id DESC`,
      values,
    )
    return rows.map((row) => listedOf(row, stateOf(row)))
  }

  /** Handles handled messages again, in order per vehicle. Resolves to their number. */
  async replayHandled(which: ReplaySelection, reread: ReadMessage): Promise<number> {
    const found: Pick<InboxMessage, 'id' | 'lane'>[] = []
    for await (const { id, lane } of replayable(this, which, reread)) found.push({ id, lane })
    return which.dryRun === true ? found.length : this.#replay(found)
  }

  async replaySome(which: ReplayPage, reread: ReadMessage): Promise<Replayed> {
    const { found, next } = await partOf(this, which, reread)
    return { messages: await this.#replay(found), next }
  }

  async #replay(messages: readonly Pick<InboxMessage, 'id' | 'lane'>[]): Promise<number> {
    const found = messages.map(({ id, lane }) => ({ id, part: partitionOf(lane) }))
    let count = 0
    const { schema } = this.#db
    await paced(this.#clock, found, async (some) => {
      const rows = await this.#db.run(
        `INSERT INTO ${this.#tables.waiting} (part, id, replayed, replay)
  SELECT n.part, m.id, true, gen_random_uuid() FROM unnest($1::smallint[], $2::uuid[]) n(part, id) JOIN ${schema}.message m ON m.id = n.id
  WHERE ${this.#isSettled} AND m.id >= $3::uuid ORDER BY m.id RETURNING id`,
        [some.map(({ part }) => part), some.map(({ id }) => id), this.#firstKept],
      )
      count += rows.length
    })
    return count
  }

  /** The oldest dead letters whose retention is over. */
  async expired(): Promise<readonly { readonly id: string; readonly receivedAt: number }[]> {
    const { schema } = this.#db
    const rows = await this.#db.run(
      `SELECT d.id, m.received_at FROM ${this.#tables.dead} d JOIN ${schema}.message m ON m.id = d.id WHERE d.died_at < $1 ORDER BY d.id LIMIT ${tidyRows}`,
      [this.#believed.now() - this.#settings.deadForMs],
    )
    return rows.map(({ id, received_at: receivedAt }) => ({ id: String(id), receivedAt: Number(receivedAt) }))
  }

  /** Deletes what is no longer kept, without dead letters. Several processes may do it at once. Resolves to the number of messages. */
  async tidy(): Promise<number> {
    const { schema } = this.#db
    const now = this.#believed.now()
    const { knownMs, doubtedMs, seenMs } = this.#believed.state
    // While nothing is in doubt, it only has to be older than the next jump.
    if (doubtedMs > 0 || Math.abs(now - this.#writtenMs) >= noteEveryMs) {
      const values = [knownMs, doubtedMs, seenMs]
      await this.#db.run(
        `UPDATE ${schema}.meta SET known_ms = $1, doubted_ms = $2, seen_ms = $3 FROM ${briefly}`,
        values,
      )
      this.#writtenMs = now
    }
    let count = 0
    for (;;) {
      const rows = await this.#db.run(
        `DELETE FROM ${schema}.message WHERE id IN (SELECT m.id FROM ${schema}.message m
  WHERE m.id < $1::uuid AND ${unneeded(schema)} ORDER BY m.id LIMIT ${tidyRows} FOR UPDATE SKIP LOCKED) RETURNING id`,
        [firstIdAt(now - this.#settings.keepForMs - this.#settings.confirmMs - spareMs)],
      )
      count += rows.length
      if (rows.length < tidyRows) break
    }
    await this.tidyNotices()
    return count
  }

  /** Deletes the places of gaps that no message needs. */
  async tidyNotices(): Promise<void> {
    const { schema } = this.#db
    const { waiting, notice } = this.#tables
    // No jump of a clock harms here: who did not look for an hour has lost its partitions. A message needs only the newest gap before it, and the newest pause. A gap that comes late has a lower number than newer messages.
    await this.#db.run(
      `WITH old AS (SELECT * FROM ${notice} WHERE at < now() - (CASE WHEN vin = '' THEN interval '1 hour' ELSE interval '10 minutes' END)),
oldest AS (SELECT coalesce(min(seq), ${Number.MAX_SAFE_INTEGER}) AS seq
  FROM ${schema}.part p, LATERAL (SELECT seq FROM ${waiting} w WHERE w.part = p.part ORDER BY seq LIMIT 1) w)
DELETE FROM ${notice} WHERE id IN (SELECT n.id FROM ${notice} n JOIN old ON old.id = n.id WHERE old.vin <> ''
  OR old.seq < (SELECT max(o.seq) FROM old o, oldest WHERE o.vin = '' AND (o.kind IS NULL) = (old.kind IS NULL) AND o.seq <= oldest.seq) FOR UPDATE OF n SKIP LOCKED)`,
    )
  }

  /** The first message that may be replayed. Older messages may be deleted at any moment. */
  get #firstKept(): string {
    return firstIdAt(this.#believed.now() - this.#settings.keepForMs)
  }

  get #isSettled(): string {
    const { waiting, dead, reads } = this.#tables
    return `${reads} AND NOT EXISTS (SELECT FROM ${waiting} w WHERE w.id = m.id) AND NOT EXISTS (SELECT FROM ${dead} x WHERE x.id = m.id)`
  }
}

const stateOf = ({ error, open }: Row): ListedMessage['state'] =>
  error === null ? (open === 'true' ? 'waiting' : 'settled') : 'dead'

/** The smallest id of a message that came at this time. */
const firstIdAt = (ms: number): string => idWithSeq('00000000-0000-0000-0000-000000000000', firstSeqAt(Math.max(0, ms)))

/** The ids of a page, each with the bytes of the messages before it. Texts are read only for what is in the page. */
const pageSql = (from: string, selection: string): string =>
  `SELECT id, sum(bytes) OVER (ROWS UNBOUNDED PRECEDING) - bytes AS before FROM (SELECT m.id, m.bytes FROM ${from} ${selection}) listed`
const inPage = `page.before < ${pageBytes}`

function selected(
  { id, lane, fromMs, toMs, limit, after }: Selection,
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
  add('m.lane = ?', lane === undefined ? undefined : storable(lane))
  add('m.received_at >= ?', fromMs)
  add('m.received_at < ?', toMs)
  add(`m.id ${order === 'ASC' ? '>' : '<'} ?::uuid`, after)
  return { sql: `WHERE ${conditions.join(' AND ')} ORDER BY m.id ${order} LIMIT ${Math.trunc(limit)}`, values }
}
