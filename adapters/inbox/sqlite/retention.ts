import type { DatabaseSync } from 'node:sqlite'
import { FleethookError } from '../../../src/base/errors.ts'
import type { FileSettings } from './options.ts'
import { numberOf } from './schema.ts'
import type { Statements } from './statements.ts'
import type { Batch } from './store.ts'

/** Drops what is kept only for replays, and sees that the file stays within its budget. Works within a transaction. */
export interface Retention {
  /** Makes sure that the puts fit into the budget, dropping settled messages if need be. Throws `inbox_full`. */
  makeRoom(batch: Batch): void
  /** A few rows with each commit, as fast as others come, while more is kept than may be. */
  sweepBeside(batch: Batch): void
  /** A bounded step in which nothing else happens. Returns whether there is more to do. */
  step(nowMs: number, pendingBytes: number): boolean
  /** Gives free pages back to the disk, a few at a time, outside of a transaction. Returns whether there are more. */
  giveBack(): boolean
  /** Whether there is room for more. */
  isRoomy(): boolean
}

/** Rows in one step: some milliseconds. */
const stepRows = 512
/** What a message takes beside its text: its row that waits, its columns, its part of the pages. */
export const rowBytes = 320
/** How often it is counted how much is dead. */
const deadCountMs = 5_000
/** Free pages that are kept for what comes next, and how many are given back at once. */
const sparePages = 1_024
const vacuumPages = 256

export function createRetention(
  db: DatabaseSync,
  statements: Statements,
  settings: FileSettings & { readonly walPages: number },
): Retention {
  const { path, maxBytes, settled, dead } = settings
  const pageBytes = numberOf(db, 'PRAGMA page_size')
  // The journal may be once as large as where it is begun anew, and one batch beside that.
  const budget = maxBytes - 2 * settings.walPages * pageBytes
  const isUnlimited = maxBytes >= Number.MAX_SAFE_INTEGER
  /** Everything settled up to this place was dropped in this round. */
  let swept = -1
  let deadBytes = Number(statements.deadBytes.get()?.['bytes'])
  let deadCountedAt = 0
  let countdown = 0
  let isVacuuming = false

  const count = (name: 'pageCount' | 'freePages'): number => Number(Object.values(statements[name].get() ?? {})[0])
  const usedBytes = (): number => (count('pageCount') - count('freePages')) * pageBytes
  const settledBytes = (pendingBytes: number): number => usedBytes() - pendingBytes - deadBytes

  /** Drops settled messages of places below `before`, so many rows being looked at. Returns whether it looked at that many. */
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

  /** The last message stays: its id is the one that those to come have to follow. */
  const lastPlace = (): number => Number(statements.lastPlace.get()?.['place'] ?? 0)

  /** Returns whether there was any to be dropped. */
  function buryOld(nowMs: number): boolean {
    const before = nowMs - dead.forMs
    let dropped = 0
    for (const row of statements.oldDead.all(before, deadBytes > dead.maxBytes ? 1 : 0, stepRows)) {
      if (deadBytes <= dead.maxBytes && Number(row['died_at']) >= before) continue
      statements.forgetDead.run(Number(row['place']))
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
        if (!sweep(lastPlace(), stepRows) && rounds > 0) break
      }
      if (usedBytes() + needed > budget) throw usedUp(path, maxBytes, pendingBytes)
    },

    sweepBeside({ puts, nowMs, pendingBytes }) {
      countdown -= puts.length
      if (countdown > 0) return
      // Looked at now and then: a commit that finds nothing to do should cost nothing.
      countdown = stepRows
      if (settledBytes(pendingBytes) > settled.maxBytes) sweep(lastPlace(), stepRows * 2)
      else sweep(Math.min(lastPlace(), placeAt(nowMs - settled.forMs)), stepRows * 2)
    },

    step(nowMs, pendingBytes) {
      // Now and then, and those that are dropped once a round: both take reading all that are dead.
      if (Math.abs(nowMs - deadCountedAt) >= deadCountMs) {
        deadCountedAt = nowMs
        deadBytes = Number(statements.deadBytes.get()?.['bytes'])
      }
      const isOver = settledBytes(pendingBytes) > settled.maxBytes || usedBytes() > budget * 0.9
      const before = isOver ? lastPlace() : Math.min(lastPlace(), placeAt(nowMs - settled.forMs))
      return sweep(before, stepRows) || buryOld(nowMs)
    },

    giveBack() {
      const free = count('freePages')
      if (free > sparePages && (isVacuuming || free * 4 >= count('pageCount'))) {
        db.exec(`PRAGMA incremental_vacuum(${vacuumPages})`)
        isVacuuming = true
        return true
      }
      // Only then is the file shorter.
      if (isVacuuming) db.exec('PRAGMA wal_checkpoint(PASSIVE)')
      isVacuuming = false
      return false
    },

    isRoomy: () => isUnlimited || usedBytes() + pageBytes * 16 <= budget,
  }
}

/** The first place of a millisecond. */
function placeAt(ms: number): number {
  return ms * 2048
}

function usedUp(path: string, maxBytes: number, pendingBytes: number): FleethookError {
  return new FleethookError(
    'inbox_full',
    `The inbox ${path} has used up its ${maxBytes} bytes; ${pendingBytes} bytes of messages are pending.`,
    { hint: 'Make the handlers faster, or raise `maxBytes`; the inbox goes on by itself.' },
  )
}
