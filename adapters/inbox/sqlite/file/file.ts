import type { DatabaseSync } from 'node:sqlite'
import { setImmediate } from 'node:timers/promises'
import zlib from 'node:zlib'
import { FleethookError } from '../../../../src/base/errors.ts'
import type { Selection } from '../../../../src/inbox/inbox.ts'
import type { FileSettings } from '../options.ts'
import { isHalfReplaced, replaceDamaged } from './damage.ts'
import { checkpoint, closeQuietly, failureOf, openDatabase, pageBytes } from './database.ts'
import type { Committed, InboxFile, Move, OpenedFile, Page, StoredMessage, Transaction } from './interface.ts'
import { createSpaceKeeper, ensureReserve, releaseReserve, type SpaceKeeper } from './retention.ts'
import {
  claimOf,
  deadLetterOf,
  gapOf,
  messageOf,
  prepareStatements,
  type SqlRow,
  type Statements,
  waitingOf,
} from './schema.ts'

interface Connection {
  readonly db: DatabaseSync
  readonly statements: Statements
  readonly space: SpaceKeeper
}

/** Rows per page of a list: a few milliseconds of reading. */
const pageRows = 2_000

/** The file itself. Each step blocks the thread that it runs in. */
export function createInboxFile(settings: FileSettings): InboxFile {
  const { path, maxBytes } = settings
  // SQLite starts the journal over at this size. Its space is part of the budget.
  const walPages = Math.max(64, Math.min(2000, Math.floor(maxBytes / 8 / pageBytes)))
  let connection: Connection | undefined
  /** How many gap events must be stored before the recorded gaps are removed. */
  let openGaps = 0
  /** Damage was found while the file was open. The next `open` replaces the file without reading it first. */
  let isDamaged = false
  /** This process has opened the file before, so an unclosed file is not a sign of a crash. */
  let isOurs = false

  /** Runs on the open file and translates errors. */
  function use<T>(run: (on: Connection) => T): T {
    if (connection === undefined) throw new FleethookError('inbox_unavailable', `The inbox ${path} is not open.`)
    try {
      return run(connection)
    } catch (error) {
      throw failed(error)
    }
  }

  function failed(error: unknown): FleethookError {
    const failure = failureOf(error, path)
    if (failure.code === 'inbox_damaged') isDamaged = true
    return failure
  }

  async function openFile(nowMs: number): Promise<OpenedFile> {
    const db = openDatabase(path, walPages)
    try {
      const statements = prepareStatements(db)
      const space = createSpaceKeeper(db, statements, settings, walPages)
      const pending = await countPending(statements)
      settleJournal(db)
      const found = { ...beginUse(statements, nowMs), ...pending }
      // Not earlier: a message that is written during the count could be counted or missed.
      connection = { db, statements, space }
      isOurs = true
      return { ...found, version: String(db.prepare('SELECT sqlite_version() AS version').get()?.['version']) }
    } catch (error) {
      closeQuietly(db)
      throw failureOf(error, path)
    }
  }

  /**
   * A journal that a process left can be readable and still not be on the disk: a kernel whose write failed may keep the page in
   * memory as clean. A power cut would then lose that page and everything appended after it. So the content goes into the file,
   * which is synced, and the journal starts over. A full disk prevents that, and does not mean that a sync failed.
   */
  function settleJournal(db: DatabaseSync): void {
    try {
      checkpoint(db)
    } catch (error) {
      const failure = failureOf(error, path)
      if (failure.code !== 'inbox_full') throw failure
    }
  }

  /** Marks the file as in use, and reads what the last process left. */
  function beginUse(statements: Statements, nowMs: number): Pick<OpenedFile, 'lastId' | 'gaps' | 'unclean'> {
    const state = statements.state.get()
    const newest = statements.newest.get()
    const unclean = state?.['closed'] === 0 && !isOurs
    inTransaction(statements, () => {
      const aliveAt = Math.max(Number(state?.['alive_at'] ?? 0), Number(newest?.['received_at'] ?? 0))
      if (unclean) statements.addGap.run('restarted', Math.min(aliveAt, nowMs))
      statements.setState.run(0, nowMs)
    })
    const gaps = statements.gaps.all().map(gapOf)
    // The receiver makes one event of all gaps with the same reason.
    openGaps = new Set(gaps.map(({ reason }) => reason)).size
    const ids = [newest?.['id'], state?.['last_id']].filter((id) => typeof id === 'string')
    return { lastId: ids.toSorted().at(-1), gaps, unclean }
  }

  async function openOrReplace(nowMs: number): Promise<OpenedFile> {
    if (!isDamaged && !isHalfReplaced(path)) {
      try {
        return await openFile(nowMs)
      } catch (error) {
        if (!isFailure(error, 'inbox_damaged')) throw error
      }
    }
    const damage = await replaceDamaged(path, nowMs, walPages, isOurs).catch((error: unknown) => {
      throw failureOf(error, path)
    })
    isDamaged = false
    return { ...(await openFile(nowMs)), ...(damage === undefined ? {} : { damage }) }
  }

  return {
    open: (nowMs) =>
      openOrReplace(nowMs).catch((error: unknown) => {
        // On a full disk, waiting messages can still be handled with the space of the reserve.
        if (!isFailure(error, 'inbox_full') || !releaseReserve(path)) throw error
        return openOrReplace(nowMs)
      }),

    async commit(transaction) {
      if (connection === undefined) throw new FleethookError('inbox_unavailable', `The inbox ${path} is not open.`)
      const { statements, space } = connection
      const gaps = openGaps === 0 ? 0 : transaction.puts.filter(({ kind }) => kind === 'gap').length
      try {
        statements.begin.run()
        const written = write(statements, space, transaction)
        space.sweepBeside(transaction)
        if (openGaps > 0 && gaps >= openGaps) statements.removeGaps.run()
        statements.commit.run()
        openGaps = Math.max(0, openGaps - gaps)
        return { ...written, hasRoom: space.hasRoom() }
      } catch (error) {
        rollBack(statements)
        const failure = failed(error)
        if (failure.code === 'inbox_full') releaseReserve(path)
        throw failure
      }
    },

    waiting: async (after) =>
      use(({ statements }) => {
        const rows = statements.waiting.all(after, pageRows)
        return { items: rows.map(waitingOf), next: seqAfter(rows) }
      }),

    async find(seq) {
      const row = use(({ statements }) => statements.pending.get(seq))
      return row === undefined ? undefined : use(() => claimOf(row))
    },

    async message(seq) {
      const row = use(({ statements }) => statements.message.get(seq))
      return row === undefined ? undefined : use(() => messageOf(row))
    },

    deadLetters: async (which, after) =>
      use(({ statements }) => select(statements.deadLetters.all(after, pageRows), which, deadLetterOf)),

    settled: async (which, after) =>
      use(({ statements }) =>
        select(statements.settled.all(after, pageRows), which, ({ place, elsewhere }) => {
          const row = elsewhere === 0 ? statements.message.get(Number(place)) : undefined
          return row === undefined ? undefined : messageOf(row)
        }),
      ),

    async tidy(nowMs, pendingBytes) {
      return use(({ statements, space }) => {
        const more = inTransaction(statements, () => {
          statements.setState.run(0, nowMs)
          return space.step(nowMs, pendingBytes)
        })
        ensureReserve(path)
        return { more: more || space.shrink(), hasRoom: space.hasRoom() }
      })
    },

    async probe(nowMs, pendingBytes) {
      const step = (): boolean =>
        use(
          ({ statements, space }) =>
            !space.hasRoom() && inTransaction(statements, () => space.step(nowMs, pendingBytes)),
        )
      // Other work gets its turn between two steps.
      while (step()) await setImmediate()
      return use(({ space }) => space.hasRoom() && ensureReserve(path))
    },

    async close(nowMs) {
      const closing = connection
      connection = undefined
      if (closing === undefined) return
      const { db, statements } = closing
      try {
        if (nowMs !== undefined) {
          // The receiver has emitted the gap events or logged that it could not.
          statements.removeGaps.run()
          statements.setState.run(1, nowMs)
          checkpoint(db)
        }
      } catch (error) {
        throw failureOf(error, path)
      } finally {
        db.close()
      }
    },
  }
}

function isFailure(error: unknown, code: string): boolean {
  return error instanceof FleethookError && error.code === code
}

function inTransaction<T>(statements: Statements, run: () => T): T {
  statements.begin.run()
  try {
    const result = run()
    statements.commit.run()
    return result
  } catch (error) {
    rollBack(statements)
    throw error
  }
}

function rollBack(statements: Statements): void {
  try {
    statements.rollback.run()
  } catch {
    // SQLite already rolled back.
  }
}

/** Reads every pending row, so that damage shows now. Other work gets its turn between two steps. */
async function countPending(statements: Statements): Promise<Pick<OpenedFile, 'messages' | 'bytes'>> {
  let messages = 0
  let bytes = 0
  for (let after: number | undefined = -1; after !== undefined;) {
    const row: SqlRow | undefined = statements.countPending.get(after, pageRows * 10)
    messages += Number(row?.['messages'])
    bytes += Number(row?.['bytes'] ?? 0)
    after = row?.['last'] == null ? undefined : Number(row['last'])
    await setImmediate()
  }
  return { messages, bytes }
}

function write(statements: Statements, space: SpaceKeeper, transaction: Transaction): Omit<Committed, 'hasRoom'> {
  const retracted = { messages: 0, bytes: 0 }
  for (const seq of transaction.retracted) {
    const bytes = bytesOf(statements.removePending.get(seq))
    statements.removeMessage.run(seq)
    if (bytes === undefined) continue
    retracted.messages += 1
    retracted.bytes += bytes
  }
  if (transaction.puts.length > 0) {
    space.makeRoom(transaction)
    writePuts(statements, transaction.puts)
  }
  for (const { seq, deliveriesFrom, deliveries, attempts, notBefore } of transaction.updates) {
    if (deliveriesFrom === undefined && attempts === undefined) statements.addDeliveries.run(deliveries, seq)
    else statements.updatePending.run(deliveriesFrom ?? null, deliveries, attempts ?? 0, notBefore ?? 0, seq)
  }
  for (const seq of transaction.settled) statements.settle.run(seq)
  return { moved: transaction.moves.map((move) => writeMove(statements, move)), retracted }
}

/** From this number of rows on, one statement that copies all of them is faster than one statement per row. */
const copyFromRows = 8

function writePuts(statements: Statements, puts: readonly StoredMessage[]): void {
  // A range can be copied only when no older message lies in it.
  let isRange = puts.length >= copyFromRows
  let previous = isRange ? Number(statements.newestSeq.get()?.['place'] ?? -1) : 0
  for (const { seq } of puts) {
    isRange &&= seq > previous
    previous = seq
  }
  for (const { seq, id, lane, receivedAt, door, kind, bytes, text } of puts) {
    statements.addMessage.run(seq, id, lane, receivedAt, door, kind, bytes, zlib.crc32(text), text)
    if (!isRange) statements.addPending.run(seq, id, lane, kind, bytes)
  }
  if (isRange) statements.addPendingRange.run(puts[0]?.seq ?? 0, previous)
}

/** Returns the size of the moved message. */
function writeMove(statements: Statements, move: Move): number | undefined {
  const { seq } = move
  switch (move.to) {
    case 'settled':
      return bytesOf(statements.removePending.get(seq))
    case 'deleted': {
      const bytes = bytesOf(statements.removeDead.get(seq))
      if (bytes !== undefined) statements.removeMessage.run(seq)
      return bytes
    }
    case 'pending': {
      const bytes = bytesOf(statements.revive.get(seq))
      if (bytes !== undefined) statements.removeDead.get(seq)
      return bytes
    }
    case 'dead': {
      const bytes = bytesOf(statements.removePending.get(seq))
      if (bytes !== undefined) statements.addDead.run(seq, bytes, move.error, move.attempts, move.diedAt)
      return bytes
    }
  }
}

function bytesOf(row: SqlRow | undefined): number | undefined {
  return row === undefined ? undefined : Number(row['bytes'])
}

/** Reads the selected rows of a page. A page may hold few selected rows, or none. */
function select<T>(rows: readonly SqlRow[], which: Selection, read: (row: SqlRow) => T | undefined): Page<T> {
  const { lane, fromMs, toMs, limit } = which
  const items: T[] = []
  for (const row of rows) {
    const receivedAt = Number(row['received_at'])
    const isSelected =
      (lane === undefined || row['lane'] === lane) &&
      (fromMs === undefined || receivedAt >= fromMs) &&
      (toMs === undefined || receivedAt < toMs)
    const item = isSelected ? read(row) : undefined
    if (item !== undefined) items.push(item)
    if (items.length >= limit) return { items, next: undefined }
  }
  return { items, next: seqAfter(rows) }
}

function seqAfter(rows: readonly SqlRow[]): number | undefined {
  const last = rows.at(-1)
  return rows.length < pageRows || last === undefined ? undefined : Number(last['place'])
}
