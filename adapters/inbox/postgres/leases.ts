import { randomUUID } from 'node:crypto'
import { type Clock, elapsedMs } from '../../../src/base/clock.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import type { Database } from './client.ts'
import { partitions, schemaVersion } from './schema.ts'
import { aboutServer } from './promises.ts'

/** A partition that this process may handle. */
export interface Lease {
  readonly part: number
  /** Rises each time that the partition gets another owner. */
  readonly epoch: number
  /** What the owners before had in hand is written. Otherwise its messages may have been in hand. */
  readonly isClean: boolean
}

interface LeasesOptions {
  readonly db: Database
  readonly clock: Clock
  /** Names this process, at first. */
  readonly me: string
  readonly leaseMs: number
  /** Called before the leases count as renewed. Other processes may have had the partitions in `lost` in between. */
  readonly renewed: (lost: readonly number[], gained: readonly Lease[]) => void
}

/**
 * Leases of partitions. A process renews one row, its own, for all partitions that it has: at no traffic, nothing else is written. The clock of
 * the server ends leases, so the clocks of processes need not agree: a process counts from before it asked, less a margin.
 *
 * Only who holds the lock of an ended process's row, and ends it in the same statement, may free its partitions. So while a renewal finds its row
 * not ended, nobody can have had the partitions since the last one. After an ended lease a process begins its row again, and then asks, in a new
 * snapshot, what is still its own.
 */
export class Leases {
  /** Names this process. Another one after {@link moveOn}. */
  me: string
  /** Another session keeps its row locked, and the lease will end: nobody, not even another process, can change the row. */
  isLocked = false
  /** The name before. It is alive until its lease ends. */
  #former: string
  readonly #options: LeasesOptions
  readonly #epochs = new Map<number, number>()
  #validUntilMs = -Infinity
  /** The same by the time of day: the other clock stands still while the machine is suspended. */
  #validUntilTimeMs = -Infinity
  #isWanting = false

  constructor(options: LeasesOptions) {
    this.#options = options
    this.me = options.me
    this.#former = options.me
  }

  /** Whether no other process can have the partitions of this one. */
  get isFresh(): boolean {
    const { clock } = this.#options
    return elapsedMs(clock) < this.#validUntilMs && clock.now() < this.#validUntilTimeMs
  }

  /** How long no renewal has succeeded after the last lease was over, in milliseconds. */
  get overdueMs(): number {
    return elapsedMs(this.#options.clock) - this.#validUntilMs
  }

  /** When to look again, in milliseconds: sooner while this process has less than its share. */
  get everyMs(): number {
    return Math.min(this.#options.leaseMs / 4, this.#isWanting ? 250 : 1_000)
  }

  /** Renews the lease and takes free partitions. Resolves to how many this process has beyond its share. */
  async renew(): Promise<number> {
    let found = await this.#look()
    if (found === undefined) {
      this.isLocked = await this.#begin()
      if (this.isLocked) return 0
      found = await this.#look()
    }
    let spare = this.#take(found)
    if (found !== undefined && found.ended > 0 && (await this.#freeEnded())) spare = this.#take(await this.#look())
    return spare
  }

  #take(found: Found | undefined): number {
    if (found === undefined)
      throw new FleethookError('inbox_unavailable', 'Postgres did not renew the lease of this process in time.')
    const { leaseMs, renewed } = this.#options
    const { leases, missing, atMs, atTimeMs, leftMs } = found
    this.isLocked = leftMs < leaseMs * lockedShare
    const epochs = new Map(leases.map(({ part, epoch }) => [part, epoch]))
    const lost = [...this.#epochs].flatMap(([part, epoch]) => (epochs.get(part) === epoch ? [] : [part]))
    for (const part of lost) this.#epochs.delete(part)
    // An answer that did not arrive has given this process some that it does not know of.
    const gained = leases.filter(({ part }) => !this.#epochs.has(part))
    for (const { part, epoch } of gained) this.#epochs.set(part, epoch)
    renewed(lost, gained)
    this.#validUntilMs = atMs + leftMs - leaseMs * marginShare
    this.#validUntilTimeMs = atTimeMs + leftMs - leaseMs * marginShare
    this.#isWanting = missing > 0
    return Math.max(0, -missing)
  }

  /** Renews what has not ended. `undefined`: it has ended, or this process has no row yet. */
  async #look(): Promise<Found | undefined> {
    const { me } = this
    const { db, clock, leaseMs } = this.#options
    const { schema } = db
    const [atMs, atTimeMs] = [elapsedMs(clock), clock.now()]
    const rows = await db.run(
      `WITH known AS (SELECT until FROM ${schema}.process WHERE id = $1),
free AS (SELECT id FROM ${schema}.process WHERE id = $1 AND until > ${now}
  AND until < ${asked} + $2 * ${renewShare} * interval '1 ms' FOR UPDATE SKIP LOCKED),
renewed AS (UPDATE ${schema}.process p SET until = ${now} + $2 * interval '1 ms' FROM free WHERE p.id = free.id RETURNING p.until),
me AS (SELECT until FROM renewed UNION ALL SELECT until FROM known WHERE until > ${asked} AND NOT EXISTS (SELECT FROM renewed)),
others AS (SELECT count(*) FROM ${schema}.process WHERE id <> $1 AND id <> $3 AND until > ${now}),
mine AS (SELECT part, epoch FROM ${schema}.part WHERE owner = $1),
missing AS (SELECT ceil(${partitions} / (1.0 + others.count))::int - (SELECT count(*) FROM mine)::int AS count FROM others),
gained AS (UPDATE ${schema}.part p SET owner = $1, epoch = p.epoch + 1
  FROM (SELECT part, clean FROM ${schema}.part WHERE owner IS NULL ORDER BY random()
    LIMIT (SELECT greatest(0, missing.count) FROM missing, me) FOR UPDATE SKIP LOCKED) f
  WHERE p.part = f.part AND EXISTS (SELECT FROM me) RETURNING p.part, p.epoch, f.clean)
SELECT missing.count AS missing, l.part, l.epoch, l.clean::text AS clean, ${aboutServer},
  (SELECT floor(extract(epoch FROM me.until - ${now}) * 1000) FROM me)::text AS left_ms,
  (SELECT count(*) FROM ${schema}.part p JOIN ${schema}.process q ON q.id = p.owner WHERE q.id <> $1 AND q.until <= ${now})::text AS ended
FROM missing LEFT JOIN (SELECT *, false AS clean FROM mine UNION ALL TABLE gained) l ON true`,
      [me, leaseMs, this.#former],
      leaseMs / 2,
    )
    const leftMs = Number(rows[0]?.['left_ms'] ?? 0)
    if (leftMs <= 0) return undefined
    const leases = rows.flatMap(({ part, epoch, clean }) =>
      part === null ? [] : [{ part: Number(part), epoch: Number(epoch), isClean: clean === 'true' }],
    )
    return { atMs, atTimeMs, leftMs, leases, missing: Number(rows[0]?.['missing']), ended: Number(rows[0]?.['ended']) }
  }

  /** Resolves to whether another session has its row locked. It waits for no lock, because it would hold other locks during the wait. */
  async #begin(): Promise<boolean> {
    const { db, leaseMs } = this.#options
    const { schema } = db
    const [row] = await db.run(
      // An owner without a row came with an older version of the tables, or with a part of a backup: nobody could free its partitions.
      `WITH unknown AS (INSERT INTO ${schema}.process (id, until)
  SELECT DISTINCT owner, timestamptz '-infinity' FROM ${schema}.part p WHERE owner <> $1
  AND NOT EXISTS (SELECT FROM ${schema}.process q WHERE q.id = p.owner) ON CONFLICT DO NOTHING),
known AS (SELECT id FROM ${schema}.process WHERE id = $1),
free AS (SELECT id FROM ${schema}.process WHERE id = $1 FOR UPDATE SKIP LOCKED),
begun AS (UPDATE ${schema}.process p SET until = ${now} + $2 * interval '1 ms' FROM free WHERE p.id = free.id),
new AS (INSERT INTO ${schema}.process (id, until, version) SELECT $1, ${now} + $2 * interval '1 ms', ${schemaVersion} WHERE NOT EXISTS (SELECT FROM known)
  ON CONFLICT (id) DO NOTHING)
SELECT (EXISTS (SELECT FROM known) AND NOT EXISTS (SELECT FROM free))::text AS locked`,
      [this.me, leaseMs],
      leaseMs / 2,
    )
    return row?.['locked'] === 'true'
  }

  /** Frees partitions of processes that gave no sign of life. A row that another statement locks stays for the next time. */
  async #freeEnded(): Promise<boolean> {
    const { me } = this
    const { db, leaseMs } = this.#options
    const { schema } = db
    const rows = await db.run(
      `WITH silent AS (SELECT id FROM ${schema}.process q WHERE until <= ${now} AND id <> $1
  AND EXISTS (SELECT FROM ${schema}.part p WHERE p.owner = q.id) ORDER BY id FOR UPDATE SKIP LOCKED),
ended AS (UPDATE ${schema}.process q SET until = '-infinity' FROM silent WHERE q.id = silent.id RETURNING q.id),
left_by AS (SELECT part FROM ${schema}.part p JOIN ended ON ended.id = p.owner ORDER BY part FOR UPDATE OF p SKIP LOCKED)
UPDATE ${schema}.part p SET owner = NULL, clean = false FROM left_by WHERE p.part = left_by.part RETURNING p.part`,
      [me],
      leaseMs / 2,
    )
    return rows.length > 0
  }

  /**
   * Gives partitions back in which nothing runs. When the answer is lost, the next renewal tells whether they are still here. `unclean`: see
   * {@link Lease.isClean}.
   */
  async giveBack(parts: readonly number[], unclean: readonly number[]): Promise<void> {
    const { me } = this
    const { db, leaseMs } = this.#options
    await db.run(
      `UPDATE ${db.schema}.part p SET owner = NULL, clean = p.part <> ALL ($3::smallint[]) FROM (SELECT part FROM ${db.schema}.part
  WHERE owner = $1 AND part = ANY ($2::smallint[]) FOR UPDATE SKIP LOCKED) f WHERE p.part = f.part`,
      [me, parts, unclean],
      leaseMs / 2,
    )
    for (const part of parts) this.#epochs.delete(part)
  }

  /** Gives back what is left, and goes on under another name, with a row that nobody has locked. Nothing may run in the partitions any more. */
  async moveOn(): Promise<void> {
    const { me } = this
    const { db, leaseMs } = this.#options
    this.#validUntilMs = -Infinity
    await db.run(
      `UPDATE ${db.schema}.part p SET owner = NULL, clean = false FROM (SELECT part FROM ${db.schema}.part
  WHERE owner = $1 FOR UPDATE SKIP LOCKED) f WHERE p.part = f.part`,
      [me],
      leaseMs / 2,
    )
    this.#epochs.clear()
    this.#former = me
    this.me = randomUUID()
    this.isLocked = false
  }

  /** Gives everything back, for a stop. */
  async release(unclean: readonly number[]): Promise<void> {
    const { me } = this
    const { db } = this.#options
    const { schema } = db
    this.#validUntilMs = -Infinity
    await db.run(
      `WITH over AS (SELECT id FROM ${schema}.process q WHERE id = $1 OR (until < ${now} - interval '1 day'
  AND NOT EXISTS (SELECT FROM ${schema}.part p WHERE p.owner = q.id)) FOR UPDATE SKIP LOCKED),
me AS (DELETE FROM ${schema}.process q USING over WHERE q.id = over.id),
free AS (SELECT part FROM ${schema}.part WHERE owner = $1 FOR UPDATE SKIP LOCKED)
UPDATE ${schema}.part p SET owner = NULL, clean = p.part <> ALL ($2::smallint[]) FROM free WHERE p.part = free.part`,
      [me, unclean],
      2_000,
    )
  }
}

/** A renewal writes only when less than this share of the lease is left: most looks write nothing. */
const renewShare = 0.85
/** With less than this share left, a renewal has failed more than once. */
const lockedShare = 0.6
/** A process stops this share of the lease before Postgres ends it. */
const marginShare = 0.2

const now = 'clock_timestamp()'
/** The same in all of a statement. */
const asked = 'statement_timestamp()'

/** What a renewal found. The lease ends `leftMs` after some time that was not before `atMs`. */
interface Found {
  readonly atMs: number
  readonly atTimeMs: number
  readonly leftMs: number
  readonly leases: readonly Lease[]
  readonly missing: number
  /** The partitions of processes that gave no sign of life. */
  readonly ended: number
}
