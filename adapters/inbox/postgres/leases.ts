import { type Clock, elapsedMs } from '../../../src/base/clock.ts'
import type { Database } from './client.ts'
import { partitions } from './schema.ts'

/** A partition that this process may handle. */
interface Lease {
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
  /** Other processes may have had these partitions meanwhile. */
  readonly lost: (parts: readonly number[]) => void
  readonly gained: (leases: readonly Lease[]) => void
  /** Starts nothing more in partitions that others need, up to this many. Returns those in which nothing runs. */
  readonly vacate: (count: number) => Promise<readonly number[]>
  /** Partitions that were not given back after all, unless they are lost. */
  readonly keep: (parts: readonly number[]) => void
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
  /** Given back, but the answer was lost. Nothing starts there until a renewal tells who has them. */
  #doubtful: readonly number[] = []

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

  /** Renews the leases, takes free partitions, and gives back what is more than the share of this process. */
  async renew(): Promise<void> {
    const { db, clock, me, leaseMs, lost, keep } = this.#options
    const [atMs, atTimeMs] = [elapsedMs(clock), clock.now()]
    const [row] = await db.run(
      `WITH me AS (INSERT INTO ${db.schema}.process VALUES ($1, clock_timestamp() + $2 * interval '1 ms')
  ON CONFLICT (id) DO UPDATE SET until = excluded.until),
mine AS (UPDATE ${db.schema}.part SET until = clock_timestamp() + $2 * interval '1 ms' WHERE owner = $1
  AND part IN (SELECT part FROM ${db.schema}.part WHERE owner = $1 ORDER BY part FOR UPDATE) RETURNING part, epoch)
SELECT (SELECT coalesce(json_agg(json_build_array(part, epoch)), '[]') FROM mine)::text AS mine,
  (SELECT count(*) FROM ${db.schema}.process WHERE id <> $1 AND until > clock_timestamp())::int AS others,
  (SELECT count(*) FROM ${db.schema}.part WHERE owner IS NULL OR until <= clock_timestamp())::int AS free`,
      [me, leaseMs],
      leaseMs / 2,
    )
    const mine = new Map(pairsOf(row?.['mine']))
    const gone = [...this.#epochs].flatMap(([part, epoch]) => (mine.get(part) === epoch ? [] : [part]))
    for (const part of gone) this.#epochs.delete(part)
    if (gone.length > 0) lost(gone)
    keep(this.#doubtful)
    this.#doubtful = []
    this.#validUntilMs = atMs + leaseMs * 0.8
    this.#validUntilTimeMs = atTimeMs + leaseMs * 0.8
    // An answer that did not arrive has given these to this process.
    this.#add([...mine].map(([part, epoch]) => ({ part, epoch, isClean: false })))
    const share = Math.ceil(partitions / (Number(row?.['others']) + 1))
    const missing = share - this.#epochs.size
    this.#isWanting = missing > 0
    if (missing > 0 && Number(row?.['free']) > 0) await this.#gain(missing)
    else if (missing < 0) await this.#giveBack(-missing)
  }

  /** Gives everything back, for a stop. */
  async release(): Promise<void> {
    const { db, me } = this.#options
    this.#validUntilMs = -Infinity
    await db.run(
      `WITH me AS (DELETE FROM ${db.schema}.process WHERE id = $1 OR until < clock_timestamp() - interval '1 day')
UPDATE ${db.schema}.part SET owner = NULL, until = NULL WHERE owner = $1`,
      [me],
      2_000,
    )
  }

  async #gain(count: number): Promise<void> {
    const { db, me, leaseMs } = this.#options
    const rows = await db.run(
      `UPDATE ${db.schema}.part p SET owner = $1, epoch = p.epoch + 1, until = clock_timestamp() + $2 * interval '1 ms'
FROM (SELECT part, owner IS NULL AS clean FROM ${db.schema}.part WHERE owner IS NULL OR until <= clock_timestamp()
  ORDER BY random() LIMIT $3 FOR UPDATE SKIP LOCKED) f
WHERE p.part = f.part RETURNING p.part, p.epoch, f.clean::text AS clean`,
      [me, leaseMs, count],
      leaseMs / 2,
    )
    this.#add(
      rows.map(({ part, epoch, clean }) => ({
        part: Number(part),
        epoch: Number(epoch),
        isClean: clean === 'true',
      })),
    )
  }

  #add(leases: readonly Lease[]): void {
    const { gained } = this.#options
    const known = leases.filter(({ part }) => !this.#epochs.has(part))
    for (const { part, epoch } of known) this.#epochs.set(part, epoch)
    if (known.length > 0) gained(known)
  }

  async #giveBack(count: number): Promise<void> {
    const { db, me, leaseMs, lost, vacate } = this.#options
    const parts = await vacate(count)
    if (parts.length === 0) return
    try {
      await db.run(
        `UPDATE ${db.schema}.part SET owner = NULL, until = NULL WHERE owner = $1 AND part = ANY($2::smallint[])`,
        [me, parts],
        leaseMs / 2,
      )
    } catch (error) {
      this.#doubtful = parts
      throw error
    }
    for (const part of parts) this.#epochs.delete(part)
    lost(parts)
  }
}

function pairsOf(json: unknown): readonly (readonly [number, number])[] {
  const pairs: unknown = JSON.parse(String(json ?? '[]'))
  if (!Array.isArray(pairs)) return []
  return pairs.map((pair: unknown) => (Array.isArray(pair) ? [Number(pair[0]), Number(pair[1])] : [-1, -1]))
}
