import type { DatabaseSync } from 'node:sqlite'
import { setImmediate } from 'node:timers/promises'
import { FleethookError } from '../../../src/base/errors.ts'
import { closeQuietly, openDatabase, pageBytes } from './database.ts'
import { failureOf } from './failure.ts'
import type { FileSettings } from './options.ts'
import { listLetters, listSettled, listWaiting, pageRows } from './listing.ts'
import { isHalfMended } from './quarantine.ts'
import { giveUpReserve, hasRoom } from './reserve.ts'
import { createRetention, type Retention } from './retention.ts'
import { messageOf, pendingOf, reasonOf, type Row } from './rows.ts'
import { salvage } from './salvage.ts'
import { numberOf } from './schema.ts'
import { prepareStatements, type Statements } from './statements.ts'
import type { Found, Store } from './store.ts'
import { writeBatch } from './writing.ts'

interface Connection {
  readonly db: DatabaseSync
  readonly statements: Statements
  readonly retention: Retention
}

/** The store itself. Each of its steps blocks the thread that it runs in. */
export function createFileStore(settings: FileSettings): Store {
  const { path, maxBytes } = settings
  // Room for the journal is part of the budget. It is begun anew at this size, and one transaction more may fit before that.
  const walPages = Math.max(64, Math.min(2000, Math.floor(maxBytes / 8 / pageBytes)))
  let connection: Connection | undefined
  /** Gap events that are still to be kept before holes are told of. */
  let holes = 0

  /** Met while it was open: what it says from now on is not asked for. */
  let damaged = false
  /** Opened once: that it is open is no sign of a process that ended. */
  let isOurs = false

  /** Runs on the open file, and says what an error means. */
  function using<T>(run: (on: Connection) => T): T {
    if (connection === undefined) throw notOpen(path)
    try {
      return run(connection)
    } catch (error) {
      const failure = failureOf(error, path)
      if (failure.code === 'inbox_damaged') damaged = true
      throw failure
    }
  }

  async function openFile(nowMs: number): Promise<Found> {
    const { db, version } = openDatabase(path, walPages)
    try {
      const statements = prepareStatements(db)
      const opened = { db, statements, retention: createRetention(db, statements, { ...settings, walPages }) }
      const pending = await countPending(opened)
      settleJournal(db)
      const found = { ...begin(opened, nowMs), ...pending, version }
      // Not before: what is written while it is counted would be counted or not, as it happens.
      connection = opened
      isOurs = true
      return found
    } catch (error) {
      closeQuietly(db)
      throw failureOf(error, path)
    }
  }

  /**
   * A journal that a process left behind may be readable and yet not on the disk: a kernel whose write failed can keep the page in
   * its memory and call it clean. What would be appended to such a journal would be lost with it in a power cut. So what it holds
   * is written into the file and synced there, and the journal begun anew. That there is no room for it says nothing of the sort.
   */
  function settleJournal(db: DatabaseSync): void {
    try {
      numberOf(db, 'PRAGMA wal_checkpoint(TRUNCATE)')
    } catch (error) {
      const failure = failureOf(error, path)
      if (failure.code !== 'inbox_full') throw failure
    }
  }

  function inTransaction<T>({ statements }: Connection, run: () => T): T {
    statements.begin.run()
    try {
      const result = run()
      statements.commit.run()
      return result
    } catch (error) {
      try {
        statements.rollback.run()
      } catch {
        // SQLite has done so already.
      }
      throw error
    }
  }

  /** Reads every row that waits, so that a damaged one is met now; in steps, so that others have their turn. */
  async function countPending({ statements }: Connection): Promise<Pick<Found, 'messages' | 'bytes'>> {
    let messages = 0
    let bytes = 0
    for (let after: number | undefined = -1; after !== undefined;) {
      const row: Row | undefined = statements.count.get(after, pageRows * 10)
      messages += Number(row?.['messages'])
      bytes += Number(row?.['bytes'] ?? 0)
      after = row?.['last'] == null ? undefined : Number(row['last'])
      await setImmediate()
    }
    return { messages, bytes }
  }

  /** Takes the file: from now on it is in use. */
  function begin(on: Connection, nowMs: number): Pick<Found, 'lastId' | 'holes' | 'unclean'> {
    const { statements } = on
    const state = statements.state.get()
    const last = statements.last.get()
    const unclean = state?.['closed'] === 0 && !isOurs
    inTransaction(on, () => {
      const aliveAt = Math.max(Number(state?.['alive_at'] ?? 0), Number(last?.['received_at'] ?? 0))
      if (unclean) statements.addHole.run('restarted', Math.min(aliveAt, nowMs))
      statements.alive.run(0, nowMs)
    })
    const found = statements.holes.all().map((row) => ({
      reason: reasonOf(row['reason']),
      fromMs: Number(row['from_ms']),
    }))
    // Those of one reason become one event.
    holes = new Set(found.map(({ reason }) => reason)).size
    const lastId = [last?.['id'], state?.['last_id']]
      .filter((id) => typeof id === 'string')
      .toSorted()
      .at(-1)
    return { lastId, holes: found, unclean }
  }

  async function openOrMend(nowMs: number): Promise<Found> {
    if (!damaged && !isHalfMended(path)) {
      try {
        return await openFile(nowMs)
      } catch (error) {
        if (codeOf(error) !== 'inbox_damaged') throw error
      }
    }
    const damage = await salvage(path, nowMs, walPages, isOurs).catch((error: unknown) => {
      throw failureOf(error, path)
    })
    damaged = false
    return { ...(await openFile(nowMs)), ...(damage === undefined ? {} : { damage }) }
  }

  return {
    open: (nowMs) =>
      openOrMend(nowMs).catch((error: unknown) => {
        // A disk that is full must not keep what waits from being handled.
        if (codeOf(error) !== 'inbox_full' || !giveUpReserve(path)) throw error
        return openOrMend(nowMs)
      }),

    waiting: async (after) => using(({ statements }) => listWaiting(statements, after)),

    async commit(batch) {
      try {
        return using((on) => {
          const gaps = batch.puts.filter(({ kind }) => kind === 'gap').length
          const written = inTransaction(on, () => {
            const written = writeBatch(on.statements, on.retention, batch)
            on.retention.sweepBeside(batch)
            if (holes > 0 && gaps >= holes) on.statements.forgetHoles.run()
            return written
          })
          holes = Math.max(0, holes - gaps)
          return { ...written, onCapacity: on.retention.isRoomy() }
        })
      } catch (error) {
        if (codeOf(error) === 'inbox_full') giveUpReserve(path)
        throw error
      }
    },

    async find(place) {
      return using(({ statements }) => {
        const row = statements.find.get(place)
        return row === undefined ? undefined : pendingOf(row)
      })
    },

    async message(place) {
      return using(({ statements }) => {
        const row = statements.message.get(place)
        return row === undefined ? undefined : messageOf(row)
      })
    },

    deadLetters: async (which, after) => using(({ statements }) => listLetters(statements, which, after)),
    settled: async (which, after) => using(({ statements }) => listSettled(statements, which, after)),

    async tidy(nowMs, pendingBytes) {
      return using((on) => {
        const more = inTransaction(on, () => {
          on.statements.alive.run(0, nowMs)
          return on.retention.step(nowMs, pendingBytes)
        })
        hasRoom(path)
        return { more: more || on.retention.giveBack(), onCapacity: on.retention.isRoomy() }
      })
    },

    async probe(nowMs, pendingBytes) {
      const step = (): boolean =>
        using((on) => !on.retention.isRoomy() && inTransaction(on, () => on.retention.step(nowMs, pendingBytes)))
      // In steps, so that others have their turn: where nothing can be dropped each of them is looked at in vain.
      while (step()) await setImmediate()
      return using(({ retention }) => retention.isRoomy() && hasRoom(path))
    },

    async close(nowMs) {
      const closing = connection
      connection = undefined
      if (closing === undefined) return
      const { db, statements } = closing
      try {
        if (nowMs !== undefined) {
          // Whoever closes it has told of them, or counted them as untold.
          statements.forgetHoles.run()
          statements.alive.run(1, nowMs)
          numberOf(db, 'PRAGMA wal_checkpoint(TRUNCATE)')
        }
      } catch (error) {
        throw failureOf(error, path)
      } finally {
        db.close()
      }
    },
  }
}

function codeOf(error: unknown): string | undefined {
  return error instanceof FleethookError ? error.code : undefined
}

function notOpen(path: string): FleethookError {
  return new FleethookError('inbox_unavailable', `The inbox ${path} is not open.`)
}
