import type { DatabaseSync } from 'node:sqlite'
import { firstSeqAt, msOfSeq } from '../../../../src/inbox/delivery-id.ts'
import type { FileSettings } from '../options.ts'
import { diskFull } from './database.ts'
import type { Dropped, ExpiredPlace, Transaction } from './interface.ts'
import type { Reader, Readers } from './readers.ts'
import { inTransaction, type SqlRow } from './schema.ts'
import { budgetUsed, rowBytes, Volume } from './volume.ts'

/** Rows in one step, which takes some milliseconds, and the most steps of one commit. */
const stepRows = 512
const mostRounds = 64
/** What somebody still needs goes in steps of this many bytes: no more than new messages need may be lost. */
const stepBytes = 1_048_576
/** The interval between two counts of the dead letters' bytes. */
const deadCountMs = 5_000

/** Drops messages that are kept only for replays, and keeps the file within `maxBytes` and its volume. Runs inside a transaction. */
export class SpaceKeeper {
  readonly volume: Volume
  readonly #db: DatabaseSync
  readonly #readers: Readers
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

  constructor(db: DatabaseSync, readers: Readers, settings: FileSettings, walPages: number) {
    this.volume = new Volume({ db, statements: readers.file }, settings.path, settings.maxBytes, walPages)
    this.#db = db
    this.#readers = readers
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

  /** Drops settled messages, then places of branches, then the oldest dead letters, outside a transaction. Returns whether there is room now. */
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
      if (this.#ends < 2 || this.#dropPlaces() || this.#dropDead()) return true
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
  takeDropped(reader: Reader): Dropped | undefined {
    return this.#drops.take(reader)
  }

  #countDeadBytes(): number {
    return this.#readers.all.reduce((sum, { statements }) => sum + Number(statements.deadBytes.get()?.['bytes']), 0)
  }

  /** Messages from this `seq` on stay: the newest, which later ids follow, and messages that the states of vehicles lack. */
  get #keptFrom(): number {
    let { heldAfter } = this.#readers.receiver
    for (const reader of this.#readers.all) heldAfter = Math.min(heldAfter, reader.heldAfter)
    return Math.min(Number(this.#readers.file.newestSeq.get()?.['place'] ?? 0), heldAfter + 1)
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
    const step = this.#readers.file.sweepTo.get(swept, before, rows)
    const to = step?.['place']
    if (to == null) {
      this.#swept = -1
      return false
    }
    const last = Number(to)
    const range = Array.from({ length: 1 + 2 * this.#readers.all.length }, () => [swept, last]).flat()
    const { changes } = this.#readers.shared.sweep.run(...range)
    this.#drops.note(this.#readers.receiver, { settled: Number(changes) })
    const isWhole = Number(step?.['messages']) === rows
    this.#swept = isWhole ? last : -1
    return isWhole
  }

  /** Drops settled messages while `isOut`, and then places of branches and dead letters while `isUrgent`. The search is bounded. */
  #dropWhile(isOut: () => boolean, isUrgent: () => boolean = isOut): void {
    for (let rounds = 0; rounds < mostRounds && isOut(); rounds += 1) this.#sweep(this.#keptFrom, stepRows)
    while (isUrgent() && (this.#dropPlaces() || this.#dropDead()));
  }

  /**
   * Drops the oldest places of branches, with their messages, that the receiver is done with: a branch that is behind never makes it refuse. Returns
   * whether there were any.
   */
  #dropPlaces(): boolean {
    const { all, expendable, shared, receiver } = this.#readers
    const oldest = [...expendable.values()].map((found) => found.all(stepRows)).filter((rows) => rows.length > 0)
    const first = oldest.toSorted(([one], [other]) => Number(one?.['place']) - Number(other?.['place']))[0] ?? []
    const seqs = oneStep(first).map(({ place }) => Number(place))
    for (const reader of all) {
      if (reader === receiver) continue
      const rows = seqs.flatMap((place) => {
        const row = reader.statements.removePending.get(place)
        return row === undefined ? [] : [{ ...row, place }]
      })
      this.#drops.note(reader, { places: rows })
    }
    for (const seq of seqs) if (seq < this.#keptFrom) shared.removeUnkept.run(seq)
    return seqs.length > 0
  }

  /** Drops the oldest dead letters, whatever `retention` says. Returns whether there were any. */
  #dropDead(): boolean {
    let isAny = false
    for (const reader of this.#readers.all) {
      const oldest = oneStep(reader.statements.oldDead.all(0, 1, stepRows))
      for (const row of oldest) this.#dropLetter(reader, row)
      if (oldest.length > 0) this.#drops.note(reader, { dead: oldest })
      isAny ||= oldest.length > 0
    }
    return isAny
  }

  /** Drops dead letters that are too old, or too many. Returns whether there were any. */
  #dropOldDead(nowMs: number): boolean {
    const { dead } = this.#settings
    const before = nowMs - dead.forMs
    let isAny = false
    for (const reader of this.#readers.all) {
      const old: SqlRow[] = []
      let expired = 0
      for (const row of reader.statements.oldDead.all(before, this.#deadBytes > dead.maxBytes ? 1 : 0, stepRows)) {
        const isExpired = Number(row['died_at']) < before
        if (this.#deadBytes <= dead.maxBytes && !isExpired) continue
        this.#dropLetter(reader, row)
        old.push(row)
        if (isExpired) expired += 1
      }
      this.#drops.note(reader, { dead: old, expired })
      isAny ||= old.length > 0
    }
    return isAny
  }

  #dropLetter(reader: Reader, row: SqlRow): void {
    const place = Number(row['place'])
    if (reader.statements.removeDead.get(place) !== undefined) reader.deadLetters -= 1
    if (place < this.#keptFrom) this.#readers.shared.removeUnkept.run(place)
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

/** The first of the rows, as many as a step drops. */
function oneStep(rows: readonly SqlRow[]): readonly SqlRow[] {
  let bytes = 0
  const end = rows.findIndex((row) => (bytes += Number(row['bytes'])) >= stepBytes)
  return end < 0 ? rows : rows.slice(0, end + 1)
}

function bytesFor(puts: Transaction['puts']): number {
  let needed = puts.length * rowBytes
  for (const { bytes } of puts) needed += bytes
  return needed
}

interface NewlyDropped {
  /** Rows of dead letters. */
  readonly dead?: readonly SqlRow[]
  /** How many of them were too old. */
  readonly expired?: number
  /** The number of handled messages. */
  readonly settled?: number
  /** Rows of messages that waited. */
  readonly places?: readonly SqlRow[]
}

/** Counts what is dropped of each reader, until it is told. */
class Drops {
  #dropped: ReadonlyMap<Reader, Dropped> = new Map()
  /** The same before the current transaction. */
  #before: ReadonlyMap<Reader, Dropped> = new Map()

  note(reader: Reader, { dead: letters = [], expired = 0, settled: handled = 0, places = [] }: NewlyDropped): void {
    if (letters.length + handled + places.length === 0) return
    const times = [...letters, ...places].map(({ place }) => msOfSeq(Number(place)))
    const missed = letters.length + places.filter(({ kind }) => kind === 'wire').length
    // Until its event is stored, so that a crash does not hide what is gone.
    if (missed > 0) reader.statements.addGap.run('inbox_expired', Math.min(...times), Math.max(...times), null, missed)
    const before = this.#dropped.get(reader)
    this.#dropped = new Map([
      ...this.#dropped,
      [
        reader,
        {
          messages: (before?.messages ?? 0) + letters.length,
          expired: (before?.expired ?? 0) + expired,
          settled: (before?.settled ?? 0) + handled,
          fromMs: Math.min(before?.fromMs ?? Infinity, ...times),
          toMs: Math.max(before?.toMs ?? 0, ...times),
          places: [...(before?.places ?? []), ...places.map(placeOf)],
        },
      ],
    ])
  }

  committed(): void {
    this.#before = this.#dropped
  }

  rolledBack(): void {
    this.#dropped = this.#before
  }

  take(reader: Reader): Dropped | undefined {
    const taken = this.#dropped.get(reader)
    if (taken === undefined) return undefined
    this.#dropped = new Map([...this.#dropped].filter(([each]) => each !== reader))
    this.#before = this.#dropped
    return taken
  }
}

const placeOf = ({ place, id, bytes, kind }: SqlRow): ExpiredPlace => ({
  seq: Number(place),
  id: String(id),
  bytes: Number(bytes),
  isOfWire: kind === 'wire',
})
