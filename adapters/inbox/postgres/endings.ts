import type { Clock } from '../../../src/base/clock.ts'
import { pause } from '../../../src/base/clock.ts'
import { resolvedOr } from '../../../src/core/draining.ts'
import type { LastFailure } from '../../../src/inbox/failing.ts'
import type { StoredVehicle } from '../../../src/inbox/vehicle-store.ts'
import { type Database, isAboutData } from './client.ts'
import { storable } from './schema.ts'
import { heldSql, stateValues, upsertSql } from './vehicles.ts'

/** A row of `waiting`. */
export interface Place {
  readonly part: number
  readonly seq: string
}

/** A settled message, and the state of its vehicle after it. */
export interface Ending extends Place {
  vehicle?: StoredVehicle | undefined
}

/** What is written of a message that will be tried again. */
export interface Tries {
  readonly attempts: number
  readonly notBefore: number
  readonly deliveries: number
  readonly failure?: LastFailure | undefined
}

interface On {
  readonly failed: (error: unknown) => void
  readonly deleted: (endings: readonly Ending[]) => void
}

/** The most rows that one statement changes. */
const atOnce = 2_000
const pauseMs = 250

/**
 * Writes what became of messages, in bulk: one statement is in flight, and the next one has all that came meanwhile. What Postgres did not take
 * is written again.
 */
export class Endings {
  readonly #db: Database
  readonly #clock: Clock
  readonly #me: string
  readonly #on: On
  readonly #settled = new Map<string, Ending>()
  readonly #tries = new Map<string, Place & Tries>()
  #isWriting = false
  /** The number of rounds that were written. A round is what fits into one statement. */
  #rounds = 0
  /** What waits for a round. */
  #waiters: { readonly round: number; readonly resolve: () => void }[] = []
  #isClosed = false

  constructor(db: Database, clock: Clock, me: string, on: On) {
    this.#db = db
    this.#clock = clock
    this.#me = me
    this.#on = on
  }

  settle(ending: Ending): void {
    this.#tries.delete(ending.seq)
    this.#settled.set(ending.seq, ending)
    void this.#write()
  }

  /** Resolves when it is written, or when the inbox is closed. */
  note({ part, seq }: Place, tries: Tries): Promise<void> {
    this.#tries.set(seq, { part, seq, ...tries })
    return this.#written()
  }

  /** Resolves to whether all is written in that time that waits now. What comes later does not delay it. */
  async flush(withinMs: number): Promise<boolean> {
    let isWritten = false
    const written = this.#written().then(() => {
      isWritten = true
    })
    await resolvedOr(written, this.#clock, withinMs)
    return isWritten
  }

  async #written(): Promise<void> {
    const rows = Math.max(this.#settled.size, this.#tries.size)
    if (rows === 0) return
    void this.#write()
    // The statement that runs now may lack the newest rows.
    const round = this.#rounds + 1 + Math.ceil(rows / atOnce)
    await new Promise<void>((resolve) => {
      this.#waiters.push({ round, resolve })
    })
  }

  /** Another process may have these partitions, and handles again what is not written. Returns the messages that are given up. */
  drop(parts: readonly number[]): readonly Place[] {
    for (const { part, seq } of this.#tries.values()) if (parts.includes(part)) this.#tries.delete(seq)
    const dropped = [...this.#settled.values()].filter(({ part }) => parts.includes(part))
    for (const { seq } of dropped) this.#settled.delete(seq)
    return dropped
  }

  /** Gives up what cannot be written: its messages are handled again. */
  close(): void {
    this.#isClosed = true
  }

  async #write(): Promise<void> {
    if (this.#isWriting) return
    this.#isWriting = true
    // The messages that end in this task share the statement.
    await Promise.resolve()
    const { schema } = this.#db
    while (!this.#isClosed && this.#settled.size + this.#tries.size > 0) {
      const tries = [...this.#tries.values()].slice(0, atOnce)
      const settled = [...this.#settled.values()].slice(0, atOnce)
      const later = new Set<string>()
      try {
        if (tries.length > 0) {
          // Another process may have the partition by now, and its own counts. A row that the transaction of an abandoned attempt still locks
          // comes later: all others would wait for it.
          const locked = await this.#db.run(
            `WITH g AS (SELECT * FROM unnest($1::smallint[], $2::bigint[], $3::int[], $4::bigint[], $5::int[],
  $7::bigint[], $8::text[], $9::text[]) g(part, seq, attempts, not_before, deliveries, failing_since, failed_by, error)),
there AS (SELECT w.part, w.seq FROM ${schema}.waiting w JOIN g ON g.part = w.part AND g.seq = w.seq JOIN ${schema}.part p ON p.part = w.part AND p.owner = $6),
free AS (SELECT w.part, w.seq FROM ${schema}.waiting w JOIN there t ON t.part = w.part AND t.seq = w.seq FOR NO KEY UPDATE OF w SKIP LOCKED),
changed AS (UPDATE ${schema}.waiting w SET attempts = g.attempts, not_before = g.not_before, deliveries = g.deliveries,
  failing_since = g.failing_since, failed_by = g.failed_by, error = g.error
  FROM g JOIN free f ON f.part = g.part AND f.seq = g.seq WHERE w.part = g.part AND w.seq = g.seq)
SELECT seq::text AS seq FROM there t WHERE NOT EXISTS (SELECT FROM free f WHERE f.seq = t.seq)`,
            [
              ...[tries.map(({ part }) => part), tries.map(({ seq }) => seq)],
              ...[tries.map(({ attempts }) => attempts), tries.map(({ notBefore }) => notBefore)],
              ...[tries.map(({ deliveries }) => deliveries), this.#me],
              tries.map(({ failure }) => failure?.sinceMs ?? null),
              tries.map(({ failure }) => (failure === undefined ? null : storable(failure.handler))),
              tries.map(({ failure }) => (failure === undefined ? null : storable(failure.error))),
            ],
          )
          for (const { seq } of locked) later.add(String(seq))
          for (const one of tries)
            if (!later.has(one.seq) && this.#tries.get(one.seq) === one) this.#tries.delete(one.seq)
        }
        if (settled.length > 0) {
          // The newest state of each vehicle.
          const states = new Map(
            settled.flatMap(({ vehicle }) => (vehicle === undefined ? [] : [[vehicle.vin, vehicle]])),
          )
          await this.#db.run(
            `WITH ${heldSql(schema, '$3')}, gone AS (DELETE FROM ${schema}.waiting w USING unnest($1::smallint[], $2::bigint[]) g(part, seq)
  JOIN held ON held.part = g.part WHERE w.part = g.part AND w.seq = g.seq RETURNING w.seq) ${upsertSql(schema, 4)}`,
            [
              ...[settled.map(({ part }) => part), settled.map(({ seq }) => seq), this.#me],
              ...stateValues([...states.values()]),
            ],
          )
          // Without those that were given up meanwhile: this process may have handled them again.
          const written = settled.filter((ending) => this.#settled.get(ending.seq) === ending)
          for (const { seq } of written) this.#settled.delete(seq)
          this.#on.deleted(written)
        }
        this.#rounds += 1
        this.#release(this.#rounds)
        if (later.size > 0) await pause(this.#clock, pauseMs)
      } catch (error) {
        this.#on.failed(error)
        // Without the states that Postgres refuses.
        if (isAboutData(error)) for (const ending of settled) ending.vehicle = undefined
        await pause(this.#clock, pauseMs)
      }
    }
    this.#isWriting = false
    this.#release(Infinity)
  }

  #release(upTo: number): void {
    const waiters = this.#waiters
    this.#waiters = waiters.filter(({ round }) => round > upTo)
    for (const { round, resolve } of waiters) if (round <= upTo) resolve()
  }
}
