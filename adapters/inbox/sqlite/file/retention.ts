import type { DatabaseSync } from 'node:sqlite'
import { firstSeqAt, msOfSeq } from '../../../../src/inbox/delivery-id.ts'
import type { FileSettings } from '../options.ts'
import { diskFull } from './database.ts'
import type { Dropped, Transaction } from './interface.ts'
import { inTransaction, type SqlRow, type Statements } from './schema.ts'
import { budgetUsed, rowBytes, Volume } from './volume.ts'

/** Rows in one step, which takes some milliseconds, and the most steps of one commit. */
const stepRows = 512
const mostRounds = 64
/** The interval between two counts of the dead letters' bytes. */
const deadCountMs = 5_000

/** Drops messages that are kept only for replays, and keeps the file within `maxBytes` and its volume. Runs inside a transaction. */
export class SpaceKeeper {
  readonly volume: Volume
  /** Settled messages after this `seq` stay: the states of their vehicles are not written yet. */
  heldAfter: number = Infinity
  readonly #db: DatabaseSync
  readonly #statements: Statements
  readonly #settings: FileSettings
  readonly #drops = new Drops()
  /** The current round has dropped everything settled up to this `seq`. */
  #swept = -1
  #deadBytes: number
  #deadCountedAt = 0
  /** Messages until a commit sweeps again. */
  #countdown = 0
  /** How often this search has come to the end of the file. */
  #ends = 0

  constructor(db: DatabaseSync, statements: Statements, settings: FileSettings, walPages: number) {
    this.volume = new Volume({ db, statements }, settings.path, settings.maxBytes, walPages)
    this.#db = db
    this.#statements = statements
    this.#settings = settings
    this.#deadBytes = this.#countDeadBytes()
  }

  /** Makes room for the puts, if needed by dropping settled messages. Throws `inbox_full`. */
  makeRoom({ puts, pendingBytes }: Transaction): void {
    const { volume } = this
    const { path, maxBytes } = this.#settings
    const needed = bytesFor(puts)
    if (volume.takes(needed)) return
    this.#dropWhile(
      () => volume.needsSettled(needed),
      () => volume.isOver(needed) || volume.isCramped(needed),
    )
    if (volume.isCramped(needed)) throw diskFull(path, 'there is no room for its reserve')
    if (volume.isOver(needed)) throw budgetUsed(path, maxBytes, pendingBytes)
  }

  /** Drops a few settled messages with each commit, so that they go at least as fast as new ones arrive. */
  sweepBeside({ puts, moves, nowMs, pendingBytes }: Transaction): void {
    const { volume } = this
    if (puts.length + moves.length > 0 && !volume.hasRoom) this.#dropWhile(() => !volume.hasRoom)
    this.#countdown -= puts.length
    if (this.#countdown > 0) return
    // Not at every commit, because most would find nothing to do.
    this.#countdown = stepRows
    this.#sweep(this.#sweptBefore(nowMs, pendingBytes), stepRows * 2)
  }

  /** Does one bounded step while the inbox is idle. `nowMs`: the time that deletes what is too old. Returns whether there is more to do. */
  step(nowMs: number, pendingBytes: number): boolean {
    // Not at every step, because the count reads all dead letters.
    if (Math.abs(nowMs - this.#deadCountedAt) >= deadCountMs) {
      this.#deadCountedAt = nowMs
      this.#deadBytes = this.#countDeadBytes()
    }
    this.volume.look()
    return this.#sweep(this.#sweptBefore(nowMs, pendingBytes), stepRows) || this.#dropOldDead(nowMs)
  }

  /** Drops settled messages, then the oldest dead letters, outside a transaction. Returns whether there is room now. */
  freeUp({ puts }: Transaction): boolean {
    const needed = bytesFor(puts)
    this.#freeing(() => this.#dropWhile(() => this.volume.isOut(needed)))
    this.volume.restartJournal()
    return !this.volume.isOut(needed)
  }

  /** One bounded step of the same while messages are refused. Returns whether there is more to drop. */
  freeMore(): boolean {
    return this.#freeing(() => {
      if (this.#sweep(this.#keptFrom, stepRows)) return true
      this.#ends += 1
      // The first end may have been reached from the middle.
      if (this.#ends < 2 || this.#dropDead()) return true
      this.#ends = 0
      return false
    })
  }

  /** The transaction was rolled back, so what it dropped is still there. */
  rolledBack(): void {
    this.#drops.rolledBack()
    // The next step counts again.
    this.#deadCountedAt = 0
  }

  /** What was dropped since the last call. */
  takeDropped(): Dropped | undefined {
    return this.#drops.take()
  }

  #countDeadBytes(): number {
    return Number(this.#statements.deadBytes.get()?.['bytes'])
  }

  /** Messages from this `seq` on stay: the newest, which later ids follow, and messages that the states of vehicles lack. */
  get #keptFrom(): number {
    return Math.min(Number(this.#statements.newestSeq.get()?.['place'] ?? 0), this.heldAfter + 1)
  }

  /** Settled messages before this `seq` go: the old ones, or all of them when they take too much. */
  #sweptBefore(nowMs: number, pendingBytes: number): number {
    const { settled } = this.#settings
    const settledBytes = this.volume.usedBytes - pendingBytes - this.#deadBytes
    const isTooMuch = settledBytes > settled.maxBytes || this.volume.isNearlyFull
    return isTooMuch ? this.#keptFrom : Math.min(this.#keptFrom, firstSeqAt(nowMs - settled.forMs))
  }

  /** Looks at `rows` messages below `before` and drops the settled ones. Returns whether there were that many. */
  #sweep(before: number, rows: number): boolean {
    const swept = this.#swept
    const step = this.#statements.sweepTo.get(swept, before, rows)
    const to = step?.['place']
    if (to == null) {
      this.#swept = -1
      return false
    }
    const last = Number(to)
    const { changes } = this.#statements.sweep.run(swept, last, swept, last, swept, last)
    this.#drops.note({ settled: Number(changes) })
    const isWhole = Number(step?.['messages']) === rows
    this.#swept = isWhole ? last : -1
    return isWhole
  }

  /** Drops settled messages while `isOut`, and then dead letters while `isUrgent`. The search is bounded. */
  #dropWhile(isOut: () => boolean, isUrgent: () => boolean = isOut): void {
    for (let rounds = 0; rounds < mostRounds && isOut(); rounds += 1) this.#sweep(this.#keptFrom, stepRows)
    while (isUrgent() && this.#dropDead());
  }

  /** Drops the oldest dead letters, whatever `retention` says. Returns whether there were any. */
  #dropDead(): boolean {
    const oldest = this.#statements.oldDead.all(0, 1, stepRows)
    for (const row of oldest) this.#dropLetter(row)
    if (oldest.length > 0) this.#drops.note({ dead: oldest })
    return oldest.length > 0
  }

  /** Drops dead letters that are too old, or too many. Returns whether there were any. */
  #dropOldDead(nowMs: number): boolean {
    const { dead } = this.#settings
    const before = nowMs - dead.forMs
    const old: SqlRow[] = []
    let expired = 0
    for (const row of this.#statements.oldDead.all(before, this.#deadBytes > dead.maxBytes ? 1 : 0, stepRows)) {
      const isExpired = Number(row['died_at']) < before
      if (this.#deadBytes <= dead.maxBytes && !isExpired) continue
      this.#dropLetter(row)
      old.push(row)
      if (isExpired) expired += 1
    }
    this.#drops.note({ dead: old, expired })
    return old.length > 0
  }

  #dropLetter(row: SqlRow): void {
    const place = Number(row['place'])
    this.#statements.removeDead.get(place)
    if (place < this.#keptFrom) this.#statements.removeMessage.run(place)
    this.#deadBytes -= Number(row['bytes'])
  }

  /** Runs what drops messages in a transaction of its own. The journal first, because the disk may have no room for more of it. */
  #freeing<Result>(run: () => Result): Result {
    this.volume.restartJournal()
    try {
      const result = inTransaction(this.#db, run)
      this.#drops.committed()
      return result
    } catch (error) {
      this.rolledBack()
      throw error
    }
  }
}

function bytesFor(puts: Transaction['puts']): number {
  let needed = puts.length * rowBytes
  for (const { bytes } of puts) needed += bytes
  return needed
}

interface NewlyDropped {
  /** Rows of dead letters. */
  readonly dead?: readonly SqlRow[]
  /** How many of those were too old. */
  readonly expired?: number
  /** The number of handled messages. */
  readonly settled?: number
}

/** Counts what is dropped, until it is told. */
class Drops {
  #dropped: Dropped | undefined
  /** The same before the current transaction. */
  #before: Dropped | undefined

  note({ dead: letters = [], expired = 0, settled: handled = 0 }: NewlyDropped): void {
    if (letters.length + handled === 0) return
    const times = letters.map(({ place }) => msOfSeq(Number(place)))
    const before = this.#dropped
    this.#dropped = {
      messages: (before?.messages ?? 0) + letters.length,
      expired: (before?.expired ?? 0) + expired,
      settled: (before?.settled ?? 0) + handled,
      fromMs: Math.min(before?.fromMs ?? Infinity, ...times),
      toMs: Math.max(before?.toMs ?? 0, ...times),
    }
  }

  committed(): void {
    this.#before = this.#dropped
  }

  rolledBack(): void {
    this.#dropped = this.#before
  }

  take(): Dropped | undefined {
    const taken = this.#dropped
    this.#dropped = undefined
    this.#before = undefined
    return taken
  }
}
