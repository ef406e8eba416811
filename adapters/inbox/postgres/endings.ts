import { type Timer, elapsedMs, pause, resolvedOr } from '../../../src/base/clock.ts'
import type { LastFailure } from '../../../src/observe/stats.ts'
import type { StoredVehicle } from '../../../src/inbox/vehicle-store.ts'
import { type Database, isAboutRows, isLocked, rowError } from './client.ts'
import { storable } from './schema.ts'
import type { Tables } from './tables.ts'
import { type EndState, endSql, lockedSql, stateValues } from './vehicles.ts'

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
  /** Postgres does not take what is written of a message that will be tried again. */
  readonly refused: (place: Place, error: Error) => void
  /** Messages that will be tried again are in no table any more: their vehicle was erased in another process. */
  readonly erased: (seqs: readonly string[]) => void
  /** Another session has locked this number of rows, the first of them for this long. Called while that is so. */
  readonly locked: (rows: number, forMs: number) => void
}

interface Deferred {
  readonly sinceMs: number
  /** Otherwise Postgres refuses it. */
  readonly isLocked: boolean
}

/** The most rows that one statement changes. */
const atOnce = 2_000
const pauseMs = 250
/** How long a flush, and a message that is given up, wait for a row that somebody has locked, in milliseconds. */
export const patientMs = 1_000
/** A lock of this age is no longer the end of some transaction, in milliseconds. */
const tellAfterMs = 5_000

/**
 * Writes what became of messages, in bulk: one statement is in flight, and the next one has all that came during it. What Postgres did not take
 * is written again.
 */
export class Endings {
  readonly #db: Database
  readonly #tables: Tables
  readonly #me: () => string
  readonly #on: On
  readonly #settled = new Map<string, Ending>()
  readonly #tries = new Map<string, Place & Tries>()
  /** Rows that somebody else has locked or that Postgres refuses, and since when. They are tried again after a pause. */
  #later = new Map<string, Deferred>()
  /** The same, of the round before. */
  #before: ReadonlyMap<string, Deferred> = new Map()
  #again: Timer | undefined
  #isWriting = false
  /** The number of rounds that were written. A round is what fits into one statement. */
  #rounds = 0
  /** What waits for a round. */
  #waiters: { readonly round: number; readonly resolve: () => void }[] = []
  #isClosed = false

  constructor(db: Database, tables: Tables, me: () => string, on: On) {
    this.#db = db
    this.#tables = tables
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

  /**
   * Resolves to whether all that waits now is written in that time. What comes later does not delay it, nor what somebody has locked for long. A
   * statement that has just failed can still hold a lock: Postgres reports the error before it releases the lock.
   */
  async flush(withinMs: number): Promise<boolean> {
    const untilMs = elapsedMs(this.#db.clock) + withinMs
    const waiting = new Set(this.#waiting())
    const isLeft = (): boolean =>
      !this.#isClosed && this.#waiting().some((one) => waiting.has(one) && this.#deferredMs(one) < patientMs)
    while (isLeft()) {
      const leftMs = untilMs - elapsedMs(this.#db.clock)
      if (leftMs <= 0) return false
      await resolvedOr(this.#written(), this.#db.clock, leftMs)
      if (isLeft() && this.#later.size > 0) await pause(this.#db.clock, Math.min(leftMs, pauseMs / 5))
    }
    return true
  }

  #waiting(): readonly Place[] {
    return [...this.#settled.values(), ...this.#tries.values()]
  }

  /** How long it could not be written, in milliseconds. */
  #deferredMs({ seq }: Place): number {
    const deferred = this.#later.get(seq) ?? this.#before.get(seq)
    return deferred === undefined ? 0 : elapsedMs(this.#db.clock) - deferred.sinceMs
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

  /** Whether something of this partition is still to be written. */
  has(part: number): boolean {
    return [this.#settled, this.#tries].some((waiting) => [...waiting.values()].some((one) => one.part === part))
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
    this.#again?.cancel()
    if (!this.#isWriting) this.#release(Infinity)
  }

  async #write(): Promise<void> {
    if (this.#isWriting) return
    this.#isWriting = true
    // The messages that end in this task share the statement.
    await Promise.resolve()
    for (;;) {
      const tries = this.#next(this.#tries)
      const settled = this.#next(this.#settled)
      if (this.#isClosed || tries.length + settled.length === 0) break
      try {
        await this.#eachAlone(
          tries,
          (some) => this.#writeTries(some),
          (one, error) => this.#refuseTries(one, error),
        )
        await this.#eachAlone(
          settled,
          (some) => this.#writeSettled(some),
          (one, error) => this.#refuseSettled(one, error),
        )
        this.#rounds += 1
        this.#release(this.#rounds)
      } catch (error) {
        this.#on.failed(error)
        await pause(this.#db.clock, pauseMs)
      }
    }
    this.#isWriting = false
    this.#release(Infinity)
  }

  /** The endings that the next statement writes. */
  #next<One extends Place>(waiting: ReadonlyMap<string, One>): readonly One[] {
    const next: One[] = []
    for (const one of waiting.values()) {
      if (next.length === atOnce) break
      if (!this.#later.has(one.seq)) next.push(one)
    }
    return next
  }

  /** A row that Postgres refuses or that somebody has locked takes no others with it: then each half is tried by itself, down to one row. */
  async #eachAlone<One>(
    some: readonly One[],
    write: (some: readonly One[]) => Promise<void>,
    refused: (one: One, error: unknown) => void,
  ): Promise<void> {
    const [first] = some
    if (first === undefined) return
    try {
      await write(some)
    } catch (error) {
      if (!isLocked(error) && !(await isAboutRows(error, () => write([])))) throw error
      const half = Math.ceil(some.length / 2)
      if (some.length === 1) refused(first, error)
      else for (const part of [some.slice(0, half), some.slice(half)]) await this.#eachAlone(part, write, refused)
    }
  }

  async #writeTries(tries: readonly (Place & Tries)[]): Promise<void> {
    const { schema, waiting } = this.#tables
    // Another process may have the partition by now, and its own counts. A row that the transaction of an abandoned attempt still locks
    // comes later: all others would wait for it.
    const found = await this.#db.run(
      `WITH g AS (SELECT * FROM unnest($1::smallint[], $2::bigint[], $3::int[], $4::bigint[], $5::int[],
  $7::bigint[], $8::text[], $9::text[]) g(part, seq, attempts, not_before, deliveries, failing_since, failed_by, error)),
there AS (SELECT w.part, w.seq FROM ${waiting} w JOIN g ON g.part = w.part AND g.seq = w.seq JOIN ${schema}.part p ON p.part = w.part AND p.owner = $6),
free AS (SELECT w.part, w.seq FROM ${waiting} w JOIN there t ON t.part = w.part AND t.seq = w.seq FOR NO KEY UPDATE OF w SKIP LOCKED),
changed AS (UPDATE ${waiting} w SET attempts = g.attempts, not_before = g.not_before, deliveries = g.deliveries,
  failing_since = g.failing_since, failed_by = g.failed_by, error = g.error
  FROM g JOIN free f ON f.part = g.part AND f.seq = g.seq WHERE w.part = g.part AND w.seq = g.seq)
SELECT l.seq::text AS seq, false::text AS erased FROM (SELECT part, seq FROM there EXCEPT SELECT part, seq FROM free) l
UNION ALL SELECT g.seq::text, true::text FROM g JOIN ${schema}.part p ON p.part = g.part AND p.owner = $6
  WHERE NOT EXISTS (SELECT FROM ${waiting} w WHERE w.part = g.part AND w.seq = g.seq)`,
      [
        ...[tries.map(({ part }) => part), tries.map(({ seq }) => seq)],
        ...[tries.map(({ attempts }) => attempts), tries.map(({ notBefore }) => notBefore)],
        ...[tries.map(({ deliveries }) => deliveries), this.#me()],
        tries.map(({ failure }) => failure?.sinceMs ?? null),
        tries.map(({ failure }) => (failure === undefined ? null : storable(failure.handler))),
        tries.map(({ failure }) => (failure === undefined ? null : storable(failure.error))),
      ],
    )
    this.#defer(
      found.filter(({ erased }) => erased !== 'true'),
      true,
    )
    const erased = found.flatMap((row) => (row['erased'] === 'true' ? [String(row['seq'])] : []))
    // Without messages that were settled since.
    if (erased.length > 0) this.#on.erased(erased.filter((seq) => this.#tries.has(seq)))
    for (const one of tries)
      if (!this.#later.has(one.seq) && this.#tries.get(one.seq) === one) this.#tries.delete(one.seq)
  }

  async #writeSettled(settled: readonly Ending[]): Promise<void> {
    // The newest state of each vehicle.
    const states = new Map<string, EndState>()
    for (const { seq, vehicle } of settled) if (vehicle !== undefined) states.set(vehicle.vin, [seq, vehicle])
    const locked = await this.#db.run(
      `WITH g AS (SELECT * FROM unnest($1::smallint[], $2::bigint[], $4::text[]) g(part, seq, vin)),
${endSql(this.#tables, '$3', 5)}
${lockedSql(this.#tables, '$3')}`,
      [
        ...[settled.map(({ part }) => part), settled.map(({ seq }) => seq), this.#me()],
        settled.map(({ vehicle }) => storable(vehicle?.vin ?? '')),
        ...stateValues([...states.values()]),
      ],
    )
    this.#defer(locked, true)
    // Without messages that were given up since: this process may have handled them again.
    const written = settled.filter((ending) => !this.#later.has(ending.seq) && this.#settled.get(ending.seq) === ending)
    for (const { seq } of written) this.#settled.delete(seq)
    this.#on.deleted(written)
  }

  #refuseTries(one: Place & Tries, error: unknown): void {
    if (isLocked(error)) this.#defer([one], true)
    else {
      if (this.#tries.get(one.seq) === one) this.#tries.delete(one.seq)
      this.#on.failed(rowError(error))
      this.#on.refused(one, rowError(error))
    }
  }

  /** A state that is refused does not hold its message: the older state stays. */
  #refuseSettled(one: Ending, error: unknown): void {
    if (!isLocked(error)) this.#on.failed(rowError(error))
    if (isLocked(error) || one.vehicle === undefined) this.#defer([one], isLocked(error))
    one.vehicle = isLocked(error) ? one.vehicle : undefined
  }

  /** These come later, and others do not wait for them. Says so when somebody has them locked for long. */
  #defer(rows: readonly { readonly seq?: unknown }[], isLocked: boolean): void {
    const now = elapsedMs(this.#db.clock)
    for (const { seq } of rows)
      this.#later.set(String(seq), { sinceMs: this.#before.get(String(seq))?.sinceMs ?? now, isLocked })
    if (rows.length === 0 || this.#again !== undefined) return
    this.#again = this.#db.clock.after(pauseMs, () => {
      this.#again = undefined
      this.#before = this.#later
      this.#later = new Map()
      const locked = [...this.#before.values()].filter((deferred) => deferred.isLocked)
      const forMs = elapsedMs(this.#db.clock) - Math.min(...locked.map(({ sinceMs }) => sinceMs))
      if (forMs >= tellAfterMs) this.#on.locked(locked.length, Math.round(forMs))
      void this.#write()
    })
  }

  #release(upTo: number): void {
    const waiters = this.#waiters
    this.#waiters = waiters.filter(({ round }) => round > upTo)
    for (const { round, resolve } of waiters) if (round <= upTo) resolve()
  }
}
