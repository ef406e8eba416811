import { type Clock, elapsedMs } from '../../../src/base/clock.ts'
import type { Database } from './client.ts'
import { partitions } from './schema.ts'

/** A partition that this process may handle. */
export interface Lease {
  readonly part: number
  /** Rises each time that the partition gets another owner. */
  readonly epoch: number
  /** The owner before gave it back. Otherwise its messages may have been in hand. */
  readonly isClean: boolean
}

interface LeasesOptions {
  readonly db: Database
  readonly clock: Clock
  /** Names this process. */
  readonly me: string
  readonly leaseMs: number
  /** Called before the leases count as renewed. Other processes may have had the partitions in `lost` meanwhile. */
  readonly renewed: (lost: readonly number[], gained: readonly Lease[]) => void
}

/**
 * Leases of partitions. The clock of the server ends them, so the clocks of processes need not agree: a process counts from before it asked,
 * less a margin.
 */
export class Leases {
  readonly #options: LeasesOptions
  readonly #epochs = new Map<number, number>()
  #validUntilMs = -Infinity
  /** The same by the time of day: the other clock stands still while the machine is suspended. */
  #validUntilTimeMs = -Infinity
  #isWanting = false

  constructor(options: LeasesOptions) {
    this.#options = options
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

  /** When to renew, in milliseconds: sooner while this process has less than its share. */
  get everyMs(): number {
    return Math.min(this.#options.leaseMs / 4, this.#isWanting ? 250 : 1_000)
  }

  /** Renews the leases and takes free partitions. Resolves to how many this process has beyond its share. */
  async renew(): Promise<number> {
    const { db, clock, me, leaseMs, renewed } = this.#options
    const { schema } = db
    const [atMs, atTimeMs] = [elapsedMs(clock), clock.now()]
    const until = `clock_timestamp() + $2 * interval '1 ms'`
    const rows = await db.run(
      // A row that somebody else has locked is not renewed: all others would wait for it.
      `WITH free AS (SELECT id FROM ${schema}.process WHERE id = $1 FOR UPDATE SKIP LOCKED),
again AS (UPDATE ${schema}.process p SET until = ${until} FROM free WHERE p.id = free.id),
me AS (INSERT INTO ${schema}.process SELECT $1, ${until} WHERE NOT EXISTS (SELECT FROM ${schema}.process WHERE id = $1)),
mine AS (UPDATE ${schema}.part SET until = ${until} WHERE owner = $1
  AND part IN (SELECT part FROM ${schema}.part WHERE owner = $1 FOR UPDATE SKIP LOCKED) RETURNING part, epoch),
others AS (SELECT count(*) FROM ${schema}.process WHERE id <> $1 AND until > clock_timestamp()),
missing AS (SELECT ceil(${partitions} / (1.0 + others.count))::int - (SELECT count(*) FROM mine)::int AS count FROM others),
gained AS (UPDATE ${schema}.part p SET owner = $1, epoch = p.epoch + 1, until = ${until}
  FROM (SELECT part, owner IS NULL AS clean FROM ${schema}.part WHERE owner IS NULL OR (owner <> $1 AND until <= clock_timestamp())
    ORDER BY random() LIMIT (SELECT greatest(0, count) FROM missing) FOR UPDATE SKIP LOCKED) f
  WHERE p.part = f.part RETURNING p.part, p.epoch, f.clean)
SELECT missing.count AS missing, l.part, l.epoch, l.clean::text AS clean
FROM missing LEFT JOIN (SELECT *, false AS clean FROM mine UNION ALL TABLE gained) l ON true`,
      [me, leaseMs],
      leaseMs / 2,
    )
    const leases = rows.flatMap(({ part, epoch, clean }) =>
      part === null ? [] : [{ part: Number(part), epoch: Number(epoch), isClean: clean === 'true' }],
    )
    const epochs = new Map(leases.map(({ part, epoch }) => [part, epoch]))
    const lost = [...this.#epochs].flatMap(([part, epoch]) => (epochs.get(part) === epoch ? [] : [part]))
    for (const part of lost) this.#epochs.delete(part)
    // An answer that did not arrive has given this process some that it does not know of.
    const gained = leases.filter(({ part }) => !this.#epochs.has(part))
    for (const { part, epoch } of gained) this.#epochs.set(part, epoch)
    renewed(lost, gained)
    this.#validUntilMs = atMs + leaseMs * 0.8
    this.#validUntilTimeMs = atTimeMs + leaseMs * 0.8
    const missing = Number(rows[0]?.['missing'])
    this.#isWanting = missing > 0
    return Math.max(0, -missing)
  }

  /** Gives partitions back in which nothing runs. When the answer is lost, the next renewal tells whether they are still here. */
  async giveBack(parts: readonly number[]): Promise<void> {
    const { db, me, leaseMs } = this.#options
    await db.run(
      `UPDATE ${db.schema}.part p SET owner = NULL, until = NULL FROM (SELECT part FROM ${db.schema}.part
  WHERE owner = $1 AND part = ANY ($2::smallint[]) FOR UPDATE SKIP LOCKED) f WHERE p.part = f.part`,
      [me, parts],
      leaseMs / 2,
    )
    for (const part of parts) this.#epochs.delete(part)
  }

  /** Gives everything back, for a stop. */
  async release(): Promise<void> {
    const { db, me } = this.#options
    this.#validUntilMs = -Infinity
    await db.run(
      `WITH over AS (SELECT id FROM ${db.schema}.process WHERE id = $1 OR until < clock_timestamp() - interval '1 day' FOR UPDATE SKIP LOCKED),
me AS (DELETE FROM ${db.schema}.process p USING over WHERE p.id = over.id),
free AS (SELECT part FROM ${db.schema}.part WHERE owner = $1 FOR UPDATE SKIP LOCKED)
UPDATE ${db.schema}.part p SET owner = NULL, until = NULL FROM free WHERE p.part = free.part`,
      [me],
      2_000,
    )
  }
}
