import { appendFileSync, existsSync, rmSync, statfsSync, statSync, truncateSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import type { DatabaseSync } from 'node:sqlite'
import { FleethookError } from '../../../../src/base/errors.ts'
import { firstSeqAt, msOfSeq } from '../../../../src/inbox/delivery-id.ts'
import type { FileSettings } from '../options.ts'
import { diskFull, isOutOfSpace, pageBytes as newPageBytes } from './database.ts'
import type { Dropped, Transaction } from './interface.ts'
import { inTransaction, type SqlRow, type Statements, valueOf } from './schema.ts'

/** Drops messages that are kept only for replays, and keeps the file within `maxBytes` and its volume. Runs inside a transaction. */
export interface SpaceKeeper {
  /** Makes room for the puts, if needed by dropping settled messages. Throws `inbox_full`. */
  makeRoom(transaction: Transaction): void
  /** Drops a few settled messages with each commit, so that they go at least as fast as new ones arrive. */
  sweepBeside(transaction: Transaction): void
  /** Does one bounded step while the inbox is idle. `nowMs`: the time that deletes what is too old. Returns whether there is more to do. */
  step(nowMs: number, pendingBytes: number): boolean
  /** Returns some free pages to the disk. Runs outside a transaction. Returns whether there are more. */
  shrink(): boolean
  hasRoom(): boolean
  /** Drops settled messages, then the oldest dead letters, outside a transaction. Returns whether there is room now. */
  freeUp(transaction: Transaction): boolean
  /** One bounded step of the same while messages are refused. Returns whether there is more to drop. */
  freeMore(): boolean
  /** The transaction was rolled back, so what it dropped is still there. */
  rolledBack(): void
  /** Whether free pages of the file can take some megabytes. */
  hasFreePages(): boolean
  /** Adds a piece to the reserve, if it is not complete. Returns whether there was room for it. */
  growReserve(): boolean
  /** Gives the space of the reserve to the file and its journal. */
  releaseReserve(): void
  /** What was dropped since the last call. */
  takeDropped(): Dropped | undefined
}

interface NewlyDropped {
  /** Rows of dead letters. */
  readonly dead?: readonly SqlRow[]
  /** How many of those were too old. */
  readonly expired?: number
  /** The number of handled messages. */
  readonly settled?: number
}

/** Rows in one step, which takes some milliseconds, and the most steps of one commit. */
const stepRows = 512
const mostRounds = 64
/** The volume is looked at each time that this much was put. */
const lookBytes = 1_048_576
/** The space that a message takes beside its text: its row in `pending`, its columns, its share of the pages. */
export const rowBytes = 320
/** The interval between two counts of the dead letters' bytes. */
const deadCountMs = 5_000
/** Free pages that stay in the file for new messages, and how many others go back to the disk at once. */
const sparePages = 1_024
const vacuumPages = 256
/** The pages of a file without messages, at most. */
const emptyPages = 32

/** SQLite starts the journal over at this number of pages, when the inbox can have so many bytes. That space is part of them. */
export const walPagesFor = (bytes: number): number => Math.max(64, Math.min(2000, Math.floor(bytes / 8 / newPageBytes)))

/** The most bytes that the messages of one body can take in a file of this size, when it is empty. */
export const mostNewBytes = (maxBytes: number): number =>
  maxBytes - (2 * walPagesFor(maxBytes) + emptyPages) * newPageBytes

export function createSpaceKeeper(
  db: DatabaseSync,
  statements: Statements,
  { path, maxBytes, settled, dead }: FileSettings,
  walPages: number,
  heldAfter: () => number,
): SpaceKeeper {
  const pageBytes = Number(valueOf(db, 'PRAGMA page_size'))
  let journalPages = walPages
  let sizes = sizesWith(walPages)
  const isUnlimited = maxBytes >= Number.MAX_SAFE_INTEGER
  /** What is kept for replays goes when the file has more than this, so that the volume never gets full because of it. */
  let keptBudget = sizes.budget
  /** There is no room for the reserve. So puts may use only free pages of the file, or the journal could never move into it. */
  let isShort = false
  /** What may still be put before the volume is looked at again. */
  let unseenBytes = 0
  /** The current round has dropped everything settled up to this `seq`. */
  let swept = -1
  let deadBytes = Number(statements.deadBytes.get()?.['bytes'])
  let deadCountedAt = 0
  let countdown = 0
  let isVacuuming = false

  const count = (name: 'pageCount' | 'freePages'): number => Number(Object.values(statements[name].get() ?? {})[0])
  const usedBytes = (): number => (count('pageCount') - count('freePages')) * pageBytes
  const settledBytes = (pendingBytes: number): number => usedBytes() - pendingBytes - deadBytes
  const hasRoom = (): boolean => isUnlimited || usedBytes() + pageBytes * 16 <= sizes.budget
  const needs = ({ puts }: Pick<Transaction, 'puts'>): number => {
    let needed = puts.length * rowBytes
    for (const { bytes } of puts) needed += bytes
    return needed
  }
  let dropped: Dropped | undefined
  /** The same before the current transaction. */
  let droppedBefore: Dropped | undefined
  /** How often this search has come to the end of the file. */
  let ends = 0

  /** The bytes of the journal, of the reserve, and of the rest. SQLite starts the journal over at `pages`, and one transaction may still exceed that. */
  function sizesWith(pages: number) {
    const journal = 2 * pages * pageBytes
    return { journal, reserve: journal / 2 + Math.min(pieceBytes, journal / 2), budget: maxBytes - journal }
  }

  /**
   * A disk quota, which nobody can ask for, has ended: what the files take is all that there is. A journal and a reserve for the whole volume would
   * leave no room for messages, and the inbox would refuse them for good.
   */
  function fitInto(bytes: number): void {
    const pages = walPagesFor(bytes)
    if (pages >= journalPages) return
    journalPages = pages
    sizes = sizesWith(pages)
    db.exec(`PRAGMA wal_autocheckpoint = ${pages}`)
  }

  /** Looks how much of its volume the inbox can have. */
  function look(): void {
    unseenBytes = lookBytes
    growReserve()
    // A disk quota leaves less than the volume has.
    const space = isShort ? ownBytes(path) : spaceFor(path)
    keptBudget = Math.min(sizes.budget, Math.max(space / 8, space - sizes.journal - sizes.reserve))
  }

  /** Looks at `rows` messages below `before` and drops the settled ones. Returns whether there were that many. */
  function sweep(before: number, rows: number): boolean {
    const step = statements.sweepTo.get(swept, before, rows)
    const to = step?.['place']
    if (to == null) {
      swept = -1
      return false
    }
    const last = Number(to)
    const { changes } = statements.sweep.run(swept, last, swept, last, swept, last)
    noteDropped({ settled: Number(changes) })
    const isWhole = Number(step?.['messages']) === rows
    swept = isWhole ? last : -1
    return isWhole
  }

  /** Messages from this `seq` on stay: the newest, which later ids follow, and those that vehicles do not have yet. */
  const keptFrom = (): number => Math.min(Number(statements.newestSeq.get()?.['place'] ?? 0), heldAfter() + 1)

  /** Drops the oldest dead letters, whatever `retention` says. Returns whether there were any. */
  function dropDead(): boolean {
    const oldest = statements.oldDead.all(0, 1, stepRows)
    for (const row of oldest) {
      const place = Number(row['place'])
      statements.removeDead.get(place)
      if (place < keptFrom()) statements.removeMessage.run(place)
      deadBytes -= Number(row['bytes'])
    }
    if (oldest.length === 0) return false
    noteDropped({ dead: oldest })
    return true
  }

  function noteDropped({ dead: letters = [], expired = 0, settled: handled = 0 }: NewlyDropped): void {
    if (letters.length + handled === 0) return
    const times = letters.map(({ place }) => msOfSeq(Number(place)))
    dropped = {
      messages: (dropped?.messages ?? 0) + letters.length,
      expired: (dropped?.expired ?? 0) + expired,
      settled: (dropped?.settled ?? 0) + handled,
      fromMs: Math.min(dropped?.fromMs ?? Infinity, ...times),
      toMs: Math.max(dropped?.toMs ?? 0, ...times),
    }
  }

  /** Drops settled messages while `isOut`, and then dead letters while `isUrgent`. The search is bounded. */
  function dropWhile(isOut: () => boolean, isUrgent = isOut): void {
    for (let rounds = 0; rounds < mostRounds && isOut(); rounds += 1) sweep(keptFrom(), stepRows)
    while (isUrgent() && dropDead());
  }

  /** Runs what drops messages in a transaction of its own. The journal first, because the disk may have no room for more of it. */
  function freeing<Result>(run: () => Result): Result {
    restartJournal()
    try {
      const result = inTransaction(db, run)
      droppedBefore = dropped
      return result
    } catch (error) {
      rolledBack()
      throw error
    }
  }

  function rolledBack(): void {
    dropped = droppedBefore
    // The next step counts again.
    deadCountedAt = 0
  }

  /** Moves the journal into the file. It starts over then, so that it needs no more space on the disk, and gives back what is too long. */
  function restartJournal(): void {
    const isTooLong = ownBytes(path, ['-wal']) > sizes.journal
    db.prepare(`PRAGMA wal_checkpoint(${isTooLong ? 'TRUNCATE' : 'PASSIVE'})`).get()
  }

  const hasFreePages = (bytes = Math.min(pieceBytes, sizes.reserve)): boolean => count('freePages') * pageBytes >= bytes

  /** A message takes at most twice its space while pages are split. */
  const roomFor = (needed: number): number => 2 * needed + pageBytes * 16

  /** While the volume has plenty of space, only a quota can end it, and the files of the inbox show how much may be needed. */
  function growReserve(): boolean {
    const hasPlenty = spaceFor(path) > plenty * sizes.reserve
    const bytes = hasPlenty ? Math.min(sizes.reserve, ownBytes(path, ['', '-wal'])) : sizes.reserve
    const hasRoom = addToReserve(path, bytes)
    if (!hasRoom) fitInto(ownBytes(path))
    isShort = !hasRoom || (isShort && ownBytes(path, ['-reserve']) < bytes)
    return hasRoom
  }

  /** Returns whether it dropped any. */
  function dropOldDead(nowMs: number): boolean {
    const before = nowMs - dead.forMs
    const old: SqlRow[] = []
    let expired = 0
    for (const row of statements.oldDead.all(before, deadBytes > dead.maxBytes ? 1 : 0, stepRows)) {
      const isExpired = Number(row['died_at']) < before
      if (deadBytes <= dead.maxBytes && !isExpired) continue
      const place = Number(row['place'])
      statements.removeDead.get(place)
      if (place < keptFrom()) statements.removeMessage.run(place)
      deadBytes -= Number(row['bytes'])
      old.push(row)
      if (isExpired) expired += 1
    }
    noteDropped({ dead: old, expired })
    return old.length > 0
  }

  return {
    makeRoom({ puts, pendingBytes }) {
      const needed = needs({ puts })
      unseenBytes -= needed
      if (unseenBytes <= 0) look()
      if (!isShort && usedBytes() + needed <= keptBudget) return
      const isCramped = (): boolean => isShort && !hasFreePages(roomFor(needed))
      const isOver = (): boolean => !isUnlimited && usedBytes() + needed > sizes.budget
      dropWhile(
        () => usedBytes() + needed > keptBudget || isCramped(),
        () => isOver() || isCramped(),
      )
      if (isCramped()) throw diskFull(path, 'there is no room for its reserve')
      if (isOver()) throw budgetUsed(path, maxBytes, pendingBytes)
    },

    sweepBeside({ puts, moves, nowMs, pendingBytes }) {
      if (puts.length + moves.length > 0 && !hasRoom()) dropWhile(() => !hasRoom())
      countdown -= puts.length
      if (countdown > 0) return
      // Not at every commit, because most would find nothing to do.
      countdown = stepRows
      if (settledBytes(pendingBytes) > settled.maxBytes || usedBytes() > keptBudget * 0.9)
        sweep(keptFrom(), stepRows * 2)
      else sweep(Math.min(keptFrom(), firstSeqAt(nowMs - settled.forMs)), stepRows * 2)
    },

    step(nowMs, pendingBytes) {
      // Not at every step, because the count reads all dead letters.
      if (Math.abs(nowMs - deadCountedAt) >= deadCountMs) {
        deadCountedAt = nowMs
        deadBytes = Number(statements.deadBytes.get()?.['bytes'])
      }
      look()
      const isOver = settledBytes(pendingBytes) > settled.maxBytes || usedBytes() > keptBudget * 0.9
      const before = isOver ? keptFrom() : Math.min(keptFrom(), firstSeqAt(nowMs - settled.forMs))
      return sweep(before, stepRows) || dropOldDead(nowMs)
    },

    shrink() {
      const free = count('freePages')
      const pages = count('pageCount')
      const isTooLong = pages * pageBytes > keptBudget
      if (free > (isTooLong ? 0 : sparePages) && (isVacuuming || isTooLong || free * 4 >= pages)) {
        if (isTooLong) restartJournal()
        db.prepare(`PRAGMA incremental_vacuum(${vacuumPages})`).all()
        isVacuuming = true
        return true
      }
      // The file gets shorter only at a checkpoint.
      if (isVacuuming) restartJournal()
      isVacuuming = false
      return false
    },

    hasRoom,

    freeUp(transaction) {
      const needed = needs(transaction)
      const isOut = (): boolean =>
        !hasFreePages(roomFor(needed)) || (!isUnlimited && usedBytes() + needed > sizes.budget)
      freeing(() => dropWhile(isOut))
      restartJournal()
      return !isOut()
    },

    freeMore: () =>
      freeing(() => {
        if (sweep(keptFrom(), stepRows)) return true
        ends += 1
        // The first end may have been reached from the middle.
        if (ends < 2 || dropDead()) return true
        ends = 0
        return false
      }),

    rolledBack,

    hasFreePages: () => hasFreePages(),

    growReserve,

    releaseReserve() {
      isShort = true
      unseenBytes = 0
      releaseReserve(path)
    },

    takeDropped() {
      const taken = dropped
      dropped = undefined
      droppedBefore = undefined
      return taken
    },
  }
}

/** What an inbox at this path can have of its volume, in bytes: the space of its files, and what is free. */
export function spaceFor(path: string): number {
  try {
    let folder = dirname(resolve(path))
    while (!existsSync(folder)) folder = dirname(folder)
    const { bavail, bsize } = statfsSync(folder)
    return bavail * bsize + ownBytes(path)
  } catch {
    // The runtime needs a permission for it, or the disk is gone.
    return Infinity
  }
}

function ownBytes(path: string, ends: readonly string[] = ['', '-wal', '-reserve']): number {
  return ends.reduce((sum, end) => sum + (statSync(path + end, { throwIfNoEntry: false })?.size ?? 0), 0)
}

export function budgetUsed(path: string, maxBytes: number, pendingBytes: number): FleethookError {
  return new FleethookError(
    'inbox_full',
    `The inbox ${path} has used up its \`maxBytes\` (${maxBytes}); pending messages take ${pendingBytes} bytes.`,
    { hint: 'Make the handlers faster, or raise `maxBytes`. The inbox continues by itself.' },
  )
}

/** A file of zeros. On a full disk it makes room to move the journal and to write down what is settled. */
const reservePath = (path: string): string => `${path}-reserve`

/** The reserve is not larger than the inbox itself while the volume has this many times its size. */
const plenty = 128

/** What is added to the reserve at once: some milliseconds of writing. */
const pieceBytes = 4 * 1_048_576

/** Returns `false` when there is no room for a piece. */
function addToReserve(path: string, bytes: number): boolean {
  const reserve = reservePath(path)
  const size = statSync(reserve, { throwIfNoEntry: false })?.size ?? 0
  if (size >= bytes) return true
  const piece = Math.min(pieceBytes, bytes - size)
  try {
    // No sync: file systems and quotas count the space when it is written, and nobody reads it.
    appendFileSync(reserve, new Uint8Array(piece), { mode: 0o600 })
    return true
  } catch (error) {
    // A part of a piece would only take the last of the disk.
    if (existsSync(reserve)) truncateSync(reserve, size)
    return !isOutOfSpace(error)
  }
}

/** Deletes the reserve. Returns whether there was one. */
export function releaseReserve(path: string): boolean {
  try {
    rmSync(reservePath(path))
    return true
  } catch {
    // There is no reserve, or the disk cannot be written.
    return false
  }
}
