import type { DatabaseSync } from 'node:sqlite'
import { setImmediate } from 'node:timers/promises'
import { FleethookError } from '../../../src/errors.ts'
import type { Selection } from '../../../src/inbox/inbox.ts'
import { type Opening, openDatabase } from './database.ts'
import { failureOf } from './failure.ts'
import type { FileSettings } from './options.ts'
import { hasRoom } from './reserve.ts'
import { createRetention, type Retention } from './retention.ts'
import { type Row, keep, letterOf, messageOf, pendingOf, reasonOf, waitingOf } from './rows.ts'
import { numberOf } from './schema.ts'
import { prepareStatements, type Statements } from './statements.ts'
import type { Batch, Found, Move, Page, Store } from './store.ts'

/** Rows that are read at once: a few milliseconds. */
const pageRows = 2_000

interface Connection {
  readonly db: DatabaseSync
  readonly statements: Statements
  readonly retention: Retention
}

/** The store itself. Each of its steps blocks the thread that it runs in. */
export function createFileStore(settings: FileSettings): Store {
  const { path, maxBytes } = settings
  // Room for the journal is part of the budget. It is begun anew at this size, and one transaction more may fit before that.
  const walPages = Math.max(64, Math.min(1000, Math.floor(maxBytes / 8 / 4096)))
  let connection: Connection | undefined
  /** Gap events that are still to be kept before holes are told of. */
  let holes = 0

  /** Runs on the open file, and says what an error means. */
  function using<T>(run: (on: Connection) => T): T {
    if (connection === undefined) throw notOpen(path)
    try {
      return run(connection)
    } catch (error) {
      throw failureOf(error, path)
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
  async function countPending(): Promise<{ readonly messages: number; readonly bytes: number }> {
    let messages = 0
    let bytes = 0
    for (let after: number | undefined = -1; after !== undefined;) {
      const row = using(({ statements }) => statements.count.get(after ?? -1, pageRows * 10))
      messages += Number(row?.['messages'])
      bytes += Number(row?.['bytes'] ?? 0)
      after = row?.['last'] == null ? undefined : Number(row['last'])
      await setImmediate()
    }
    return { messages, bytes }
  }

  function begin({ db }: Opening, nowMs: number): Omit<Found, 'messages' | 'bytes' | 'version'> {
    const statements = prepareStatements(db)
    connection = { db, statements, retention: createRetention(db, statements, { ...settings, walPages }) }
    return using((on) => {
      const state = statements.state.get()
      const last = statements.last.get()
      const unclean = state?.['closed'] === 0
      inTransaction(on, () => {
        const aliveAt = Math.max(Number(state?.['alive_at'] ?? 0), Number(last?.['received_at'] ?? 0))
        if (unclean) statements.addHole.run('restarted', Math.min(aliveAt, nowMs))
        statements.alive.run(0, nowMs)
      })
      const found = statements.holes.all().map((row) => ({
        reason: reasonOf(row['reason']),
        fromMs: Number(row['from_ms']),
      }))
      holes = found.length
      const lastId = last?.['id'] ?? state?.['last_id']
      return { lastId: lastId == null ? undefined : String(lastId), holes: found, unclean }
    })
  }

  function move(statements: Statements, to: Move): number | undefined {
    const { place } = to
    const bytesOf = (row: Row | undefined): number | undefined => (row === undefined ? undefined : Number(row['bytes']))
    switch (to.to) {
      case 'settled':
        return bytesOf(statements.take.get(place))
      case 'nowhere': {
        const bytes = bytesOf(statements.unearth.get(place))
        if (bytes !== undefined) statements.forget.run(place)
        return bytes
      }
      case 'pending': {
        const bytes = bytesOf(statements.revive.get(place))
        if (bytes !== undefined) statements.unearth.get(place)
        return bytes
      }
      case 'dead': {
        const bytes = bytesOf(statements.take.get(place))
        if (bytes !== undefined) statements.bury.run(place, bytes, to.error, to.attempts, to.diedAt)
        return bytes
      }
    }
  }

  function write({ statements, retention }: Connection, batch: Batch): readonly (number | undefined)[] {
    for (const place of batch.retracted) {
      statements.settle.run(place)
      statements.forget.run(place)
    }
    if (batch.puts.length > 0) retention.makeRoom(batch)
    for (const row of batch.puts) {
      keep(statements.keep, row)
      statements.wait.run(row.place, row.id, row.lane, row.kind, row.bytes)
      if (row.kind === 'gap' && holes > 0) {
        holes -= 1
        if (holes === 0) statements.forgetHoles.run()
      }
    }
    for (const { place, deliveries, attempts, notBefore } of batch.changes) {
      if (attempts === undefined) statements.deliver.run(deliveries, place)
      else statements.change.run(deliveries, attempts, notBefore ?? 0, place)
    }
    for (const place of batch.settled) statements.settle.run(place)
    return batch.moves.map((to) => move(statements, to))
  }

  /** A part of a list: as many rows are looked at as a step may take, however few of them are asked for. */
  function list<T>(
    name: 'letters' | 'listed',
    { lane, fromMs, toMs, limit }: Selection,
    after: number,
    read: (row: Row, statements: Statements) => T | undefined,
  ): Page<T> {
    return using(({ statements }) => {
      const rows = statements[name].all(after, pageRows)
      const found: T[] = []
      for (const row of rows) {
        const receivedAt = Number(row['received_at'])
        const isAsked =
          (lane === undefined || row['lane'] === lane) &&
          (fromMs === undefined || receivedAt >= fromMs) &&
          (toMs === undefined || receivedAt < toMs)
        if (!isAsked) continue
        const item = read(row, statements)
        if (item !== undefined) found.push(item)
        if (found.length >= limit) return { found, next: undefined }
      }
      const last = rows.at(-1)
      return { found, next: rows.length < pageRows || last === undefined ? undefined : Number(last['place']) }
    })
  }

  return {
    async open(nowMs) {
      const opening = openDatabase(path, walPages)
      const found = begin(opening, nowMs)
      return { ...found, ...(await countPending()), version: opening.version }
    },

    async waiting(after) {
      return using(({ statements }) => {
        const rows = statements.waiting.all(after, pageRows)
        const last = rows.at(-1)
        return {
          found: rows.map(waitingOf),
          next: rows.length < pageRows || last === undefined ? undefined : Number(last['place']),
        }
      })
    },

    async commit(batch) {
      return using((on) => {
        const before = holes
        try {
          const moved = inTransaction(on, () => {
            const moved = write(on, batch)
            on.retention.sweepBeside(batch)
            return moved
          })
          return { moved, roomy: on.retention.isRoomy() }
        } catch (error) {
          holes = before
          throw error
        }
      })
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

    async deadLetters(which, after) {
      return list('letters', which, after, letterOf)
    },

    async settled(which, after) {
      return list('listed', which, after, (row, statements) => {
        if (row['elsewhere'] !== 0) return undefined
        const message = statements.message.get(Number(row['place']))
        return message === undefined ? undefined : messageOf(message)
      })
    },

    async tidy(nowMs, pendingBytes) {
      return using((on) => {
        const more = inTransaction(on, () => {
          on.statements.alive.run(0, nowMs)
          return on.retention.step(nowMs, pendingBytes)
        })
        return { more: more || on.retention.giveBack(), roomy: on.retention.isRoomy() }
      })
    },

    async probe() {
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

function notOpen(path: string): FleethookError {
  return new FleethookError('inbox_unavailable', `The inbox ${path} is not open.`)
}
