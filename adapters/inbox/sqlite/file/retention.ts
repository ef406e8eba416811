import { fsyncSync, rmSync, statSync, writeFileSync } from 'node:fs'
import type { DatabaseSync } from 'node:sqlite'
import { FleethookError } from '../../../../src/base/errors.ts'
import { firstSeqAt } from '../../../../src/inbox/delivery-id.ts'
import type { FileSettings } from '../options.ts'
import { withOpen } from './database.ts'
import type { Transaction } from './interface.ts'
import { type Statements, valueOf } from './schema.ts'

/** Drops messages that are kept only for replays, and keeps the file within `maxBytes`. Runs inside a transaction. */
export interface SpaceKeeper {
  /** Makes room for the puts, if needed by dropping settled messages. Throws `inbox_full`. */
  makeRoom(transaction: Transaction): void
  /** Drops a few settled messages with each commit, so that they go at least as fast as new ones arrive. */
  sweepBeside(transaction: Transaction): void
  /** Does one bounded step while the inbox is idle. Returns whether there is more to do. */
  step(nowMs: number, pendingBytes: number): boolean
  /** Returns some free pages to the disk. Runs outside a transaction. Returns whether there are more. */
  shrink(): boolean
  /** Whether the budget has room for more. */
  hasRoom(): boolean
}

/** Rows in one step, which takes some milliseconds. */
const stepRows = 512
/** The space that a message takes beside its text: its row in `pending`, its columns, its share of the pages. */
export const rowBytes = 320
/** The interval between two counts of the dead letters' bytes. */
const deadCountMs = 5_000
/** Free pages that stay in the file for new messages, and how many others go back to the disk at once. */
const sparePages = 1_024
const vacuumPages = 256

export function createSpaceKeeper(
  db: DatabaseSync,
  statements: Statements,
  { path, maxBytes, settled, dead }: FileSettings,
  walPages: number,
  heldAfter: () => number,
): SpaceKeeper {
  const pageBytes = Number(valueOf(db, 'PRAGMA page_size'))
  // SQLite starts the journal over at `walPages`, and one transaction may still exceed that.
  const budget = maxBytes - 2 * walPages * pageBytes
  const isUnlimited = maxBytes >= Number.MAX_SAFE_INTEGER
  /** The current round has dropped everything settled up to this `seq`. */
  let swept = -1
  let deadBytes = Number(statements.deadBytes.get()?.['bytes'])
  let deadCountedAt = 0
  let countdown = 0
  let isVacuuming = false

  const count = (name: 'pageCount' | 'freePages'): number => Number(Object.values(statements[name].get() ?? {})[0])
  const usedBytes = (): number => (count('pageCount') - count('freePages')) * pageBytes
  const settledBytes = (pendingBytes: number): number => usedBytes() - pendingBytes - deadBytes

  /** Looks at `rows` messages below `before` and drops the settled ones. Returns whether there were that many. */
  function sweep(before: number, rows: number): boolean {
    const step = statements.sweepTo.get(swept, before, rows)
    const to = step?.['place']
    if (to == null) {
      swept = -1
      return false
    }
    const last = Number(to)
    statements.sweep.run(swept, last, swept, last, swept, last)
    const isWhole = Number(step?.['messages']) === rows
    swept = isWhole ? last : -1
    return isWhole
  }

  /**
   * Messages from this `seq` on stay: the newest one, because later ids must sort after its id, and those that are not yet in
   * the states of vehicles.
   */
  const keptFrom = (): number => Math.min(Number(statements.newestSeq.get()?.['place'] ?? 0), heldAfter() + 1)

  /** Returns whether it dropped any. */
  function dropOldDead(nowMs: number): boolean {
    const before = nowMs - dead.forMs
    let dropped = 0
    for (const row of statements.oldDead.all(before, deadBytes > dead.maxBytes ? 1 : 0, stepRows)) {
      if (deadBytes <= dead.maxBytes && Number(row['died_at']) >= before) continue
      statements.removeDead.get(Number(row['place']))
      deadBytes -= Number(row['bytes'])
      dropped += 1
    }
    return dropped > 0
  }

  return {
    makeRoom({ puts, pendingBytes }) {
      if (isUnlimited) return
      let needed = 0
      for (const { bytes } of puts) needed += bytes + rowBytes
      if (usedBytes() + needed <= budget) return
      for (let rounds = 0; rounds < 16 && usedBytes() + needed > budget; rounds += 1) {
        if (!sweep(keptFrom(), stepRows) && rounds > 0) break
      }
      if (usedBytes() + needed > budget) throw budgetUsed(path, maxBytes, pendingBytes)
    },

    sweepBeside({ puts, nowMs, pendingBytes }) {
      countdown -= puts.length
      if (countdown > 0) return
      // Not at every commit, because most would find nothing to do.
      countdown = stepRows
      if (settledBytes(pendingBytes) > settled.maxBytes) sweep(keptFrom(), stepRows * 2)
      else sweep(Math.min(keptFrom(), firstSeqAt(nowMs - settled.forMs)), stepRows * 2)
    },

    step(nowMs, pendingBytes) {
      // Not at every step, because the count reads all dead letters.
      if (Math.abs(nowMs - deadCountedAt) >= deadCountMs) {
        deadCountedAt = nowMs
        deadBytes = Number(statements.deadBytes.get()?.['bytes'])
      }
      const isOver = settledBytes(pendingBytes) > settled.maxBytes || usedBytes() > budget * 0.9
      const before = isOver ? keptFrom() : Math.min(keptFrom(), firstSeqAt(nowMs - settled.forMs))
      return sweep(before, stepRows) || dropOldDead(nowMs)
    },

    shrink() {
      const free = count('freePages')
      if (free > sparePages && (isVacuuming || free * 4 >= count('pageCount'))) {
        db.exec(`PRAGMA incremental_vacuum(${vacuumPages})`)
        isVacuuming = true
        return true
      }
      // The file gets shorter only at a checkpoint.
      if (isVacuuming) db.exec('PRAGMA wal_checkpoint(PASSIVE)')
      isVacuuming = false
      return false
    },

    hasRoom: () => isUnlimited || usedBytes() + pageBytes * 16 <= budget,
  }
}

/** The error for an inbox that is as large as `maxBytes` allows. */
export function budgetUsed(path: string, maxBytes: number, pendingBytes: number): FleethookError {
  return new FleethookError(
    'inbox_full',
    `The inbox ${path} has used up its \`maxBytes\` (${maxBytes}); pending messages take ${pendingBytes} bytes.`,
    { hint: 'Make the handlers faster, or raise `maxBytes`. The inbox continues by itself.' },
  )
}

/**
 * A file of zeros beside the inbox. On a full disk the inbox deletes it, so that it can still write down which messages are
 * settled. When the disk has enough space to create it again, there is room for new messages too.
 */
const reserveBytes = 4 * 1_048_576

const reservePath = (path: string): string => `${path}-reserve`

/** Whether the reserve exists or could be created again. */
export function ensureReserve(path: string): boolean {
  const reserve = reservePath(path)
  if ((statSync(reserve, { throwIfNoEntry: false })?.size ?? 0) >= reserveBytes) return true
  try {
    withOpen(reserve, 'w', (handle) => {
      writeFileSync(handle, new Uint8Array(reserveBytes))
      fsyncSync(handle)
    })
    return true
  } catch {
    releaseReserve(path)
    return false
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
