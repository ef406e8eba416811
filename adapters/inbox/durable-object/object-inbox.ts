import { FleethookError } from '../../../src/base/errors.ts'
import { idWithSeq, msOfSeq, seqOf } from '../../../src/inbox/delivery-id.ts'
import { CrashSuspects } from '../crash-suspects.ts'
import {
  type Archive,
  type DeadLetterReason,
  done,
  type Inbox,
  type InboxMessage,
  mostCrashes,
  type NextAttempt,
  type Opened,
  type Waiting,
} from '../../../src/inbox/inbox.ts'
import { laneOf } from '../../../src/inbox/receipts.ts'
import { claimOf, listedOf, messageOf, unwritable, waitingOf } from '../stored-row.ts'
import type { StoredVehicle } from '../../../src/inbox/vehicle-store.ts'
import type { ObjectStorage } from './platform.ts'
import { type Dropped, type Keeping, Room } from './room.ts'
import { dead, deleteMeta, listing, prepareSchema, readMeta, type Rows, waiting, writeMeta } from './rows.ts'
import { createObjectVehicles, type ObjectVehicles } from './vehicles.ts'

export interface ObjectInbox extends Inbox {
  readonly vehicles: ObjectVehicles | undefined
  readonly archive: Archive
  /** The number of messages that are handed out now, and of all claims so far. They show whether anything is going on. */
  activity(): { readonly handedOut: number; readonly claims: number }
  /** See {@link Room.sweep}. */
  sweep(nowMs: number): void
}

interface ObjectInboxOptions extends Keeping {
  /** The receiver keeps states of vehicles. Default `false`. */
  readonly keepsVehicles?: boolean
  /** Called in the same step as the write of a message. */
  readonly kept?: () => void
  /** A row was refused, and its message goes on without it. */
  readonly failed?: (error: unknown) => void
  readonly dropped?: Dropped
}

/** The key of the time since which the states of vehicles lack messages. */
const staleKey = 'vehicles_stale_from'

const firstId = '00000000-0000-7000-8000-000000000000'

/** However empty the object is. */
const tooLarge = (cause: unknown): FleethookError =>
  new FleethookError('body_too_large', 'A Durable Object does not take a message of this size.', {
    cause,
    hint: 'The platform takes rows of up to 2 MB. Send smaller messages.',
  })

const pageSize = 1_000

/** Nothing waits for the disk: the platform holds back each answer until what was written is on several machines. */
export function createObjectInbox(storage: ObjectStorage, options: ObjectInboxOptions): ObjectInbox {
  const { sql } = storage
  const { keepsVehicles = false, kept = () => {}, dropped = () => {} } = options
  const rows: Rows = (query, ...bindings) => sql.exec(query, ...bindings).toArray()
  const room = new Room(rows, options, dropped)
  const vehicles = keepsVehicles ? createObjectVehicles(rows) : undefined
  /** The states of vehicles are from this time, and no gap event reports that yet. */
  let staleFromMs: number | undefined
  let lastId: string | undefined
  let closed = false
  let claims = 0
  /** The number of times each message was handed out. Most are not written, because rows are most of what a message costs. */
  const handedOut = new Map<string, number>()
  /** The object before this one may have ended with messages in hand. */
  const crashSuspects = new CrashSuspects()

  async function* found(): AsyncGenerator<readonly Waiting[]> {
    for (let after = -1; ;) {
      const page = rows(
        `SELECT place, id, lane, kind, deliveries, attempts, not_before, error AS failure FROM fleethook_messages
         WHERE state = ${waiting} AND place > ? ORDER BY place LIMIT ${pageSize}`,
        after,
      )
      if (page.length === 0) return
      after = Number(page.at(-1)?.['place'])
      yield page.map(waitingOf)
    }
  }

  function insert({ id, lane, receivedAt, door, kind, text, bytes }: InboxMessage): void {
    sql.exec(
      `INSERT INTO fleethook_messages (place, id, lane, received_at, door, kind, text, bytes)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
      ...[seqOf(id), id, lane, receivedAt, door, kind, text, bytes],
    )
    if (lastId === undefined || id > lastId) lastId = id
  }

  /** States miss what a receiver without the part `vehicles` settles. Returns the gap that says so to the next one. */
  function staleness(): Opened['gaps'] {
    const noted = readMeta(sql, staleKey)
    if (vehicles === undefined && noted === undefined) {
      const [newest] = rows('SELECT max(place) AS place FROM fleethook_vehicles')
      if (typeof newest?.['place'] === 'number') writeMeta(sql, staleKey, String(msOfSeq(newest['place'])))
    }
    if (vehicles === undefined || noted === undefined) return undefined
    staleFromMs = Number(noted)
    return [{ reason: 'stopped', fromMs: staleFromMs }]
  }

  /** Writes the state of a vehicle together with the change that led to it, or neither. A state that is refused holds no message: the older one stays. */
  function withState<Result>(vehicle: StoredVehicle | undefined, change: () => Result): Result {
    if (vehicle === undefined || vehicles === undefined) return change()
    try {
      return storage.transactionSync(() => {
        vehicles.keep(vehicle)
        return change()
      })
    } catch (error) {
      options.failed?.(error)
      return change()
    }
  }

  /**
   * A write about one message failed. Returns `message_refused` when the object takes other writes about it, and otherwise the error: then the
   * storage fails, and the same write may succeed later.
   */
  function refusalOf(id: string, error: unknown): unknown {
    try {
      sql.exec('UPDATE fleethook_messages SET place = place WHERE place = ?', seqOf(id))
    } catch {
      return error
    }
    const why = error instanceof Error ? error.message : String(error)
    if (/SQLITE_FULL|disk is full/.test(why)) return error
    if (/SQLITE_TOOBIG|too big/.test(why)) return tooLarge(error)
    return new FleethookError('message_refused', `The inbox of this object refuses a row: ${why}.`, { cause: error })
  }

  /** Writes about one message, which goes on without it when the row is refused. */
  function writeOrGoOn<Result>(id: string, write: () => Result): Result | undefined {
    try {
      return write()
    } catch (error) {
      const refusal = refusalOf(id, error)
      if (refusal === error) throw error
      options.failed?.(refusal)
      return undefined
    }
  }

  function remove(id: string): Record<string, unknown> | undefined {
    return rows(`DELETE FROM fleethook_messages WHERE place = ? AND state = ${waiting} RETURNING bytes`, seqOf(id))[0]
  }

  function bury(
    id: string,
    { error, attempts, diedAt, changed }: DeadLetterReason,
  ): Record<string, unknown> | undefined {
    const update = (text: string, change: string | null): Record<string, unknown> | undefined =>
      rows(
        `UPDATE fleethook_messages SET state = ${dead}, error = ?, attempts = ?, died_at = ?, changed = coalesce(?, changed)
         WHERE place = ? AND state = ${waiting} RETURNING bytes`,
        ...[text, attempts, diedAt, change, seqOf(id)],
      )[0]
    try {
      return update(error, changed ?? null)
    } catch (refused) {
      // Without what is refused: the message must not hold its vehicle forever.
      options.failed?.(refused)
      return update(unwritable, null)
    }
  }

  /** The error of a message that waits is its last failure. */
  function reschedule(id: string, { attempts, notBefore, deliveries, failure }: NextAttempt): void {
    const claimed = deliveries ?? handedOut.get(id) ?? null
    try {
      sql.exec(
        `UPDATE fleethook_messages SET attempts = ?, not_before = ?, deliveries = coalesce(?, deliveries), error = ?
         WHERE place = ? AND state = ${waiting}`,
        ...[attempts, notBefore, claimed, failure === undefined ? null : JSON.stringify(failure), seqOf(id)],
      )
    } catch (error) {
      throw refusalOf(id, error)
    }
  }

  /** That it ran alone and did not end the object must be written before others run, because they may end it. */
  const ranAlone = (id: string): boolean => (handedOut.get(id) ?? 0) >= mostCrashes

  function open(): Opened {
    storage.transactionSync(() => prepareSchema(sql))
    room.count()
    const [last] = rows('SELECT id FROM fleethook_messages ORDER BY place DESC LIMIT 1')
    const left = readMeta(sql, 'last_id')
    if (last !== undefined) crashSuspects.upTo = seqOf(messageOf(last).id)
    lastId = last === undefined ? left : messageOf(last).id
    if (left !== undefined && lastId !== undefined && left > lastId) lastId = left
    // Settled messages are gone, and later ids must sort after every id that the states have seen.
    const [newest] = keepsVehicles ? rows('SELECT max(place) AS place FROM fleethook_vehicles') : []
    const seen = typeof newest?.['place'] === 'number' ? idWithSeq(firstId, newest['place']) : undefined
    if (seen !== undefined && (lastId === undefined || seqOf(seen) > seqOf(lastId))) lastId = seen
    if (room.pending.messages > 0) kept()
    return { lastId, gaps: staleness(), waiting: found() }
  }

  return {
    durability: 'replicated',
    // Time passes without the object.
    watchesTime: false,
    vehicles,

    open: async () => open(),

    async put(messages) {
      if (closed) throw new FleethookError('inbox_unavailable', 'The inbox was closed.')
      let bytes = 0
      for (const message of messages) bytes += message.bytes
      room.enter(messages.length, bytes)
      try {
        storage.transactionSync(() => {
          for (const message of messages) insert(message)
          if (staleFromMs !== undefined && messages.some(({ kind }) => kind === 'gap')) deleteMeta(sql, staleKey)
        })
      } catch (error) {
        room.leave(messages.length, bytes)
        throw messages[0] === undefined ? error : refusalOf(messages[0].id, error)
      }
      kept()
    },

    async claim(id) {
      const [row] = rows(`SELECT * FROM fleethook_messages WHERE place = ? AND state = ${waiting}`, seqOf(id))
      if (row === undefined) return undefined
      const { message, replayed, ...claim } = claimOf(row)
      const seq = seqOf(id)
      const known = { lane: message.lane, seq, replayed, deliveries: handedOut.get(id) ?? claim.deliveries }
      const deliveries = crashSuspects.deliveriesOf(known)
      claims += 1
      handedOut.set(id, deliveries + 1)
      if (crashSuspects.mustWrite(known)) {
        writeOrGoOn(id, () =>
          sql.exec('UPDATE fleethook_messages SET deliveries = ? WHERE place = ?', deliveries + 1, seq),
        )
        // A handler that ends the object in this task would undo what the task wrote.
        await storage.sync()
      }
      return { ...claim, message, replayed, deliveries }
    },

    async settle(id, outcome = done) {
      const wasAlone = ranAlone(id)
      if (outcome.as === 'later') reschedule(id, outcome.next)
      else if (outcome.as === 'dead') {
        const gone = withState(outcome.vehicle, () => bury(id, outcome.reason))
        if (gone !== undefined) room.died(Number(gone['bytes']))
      } else {
        // It is handled. When its row cannot go, the next object handles it again.
        const gone = writeOrGoOn(id, () => withState(outcome.vehicle, () => remove(id)))
        if (gone !== undefined) room.leave(1, Number(gone['bytes']))
      }
      handedOut.delete(id)
      if (wasAlone) await storage.sync()
    },

    archive: {
      // Keeping a settled message would cost a third row.
      list: async (what, which) =>
        what === 'settled'
          ? []
          : listing(rows, what, which).map((row) => listedOf(row, row['state'] === dead ? 'dead' : 'waiting')),
      async revive(id) {
        const [row] = rows(`SELECT * FROM fleethook_messages WHERE place = ? AND state = ${dead}`, seqOf(id))
        if (row === undefined) return undefined
        room.revive(Number(row['bytes']))
        sql.exec(
          `UPDATE fleethook_messages SET state = ${waiting}, replayed = 1, deliveries = 0, attempts = 0, not_before = 0,
             error = NULL, died_at = NULL WHERE place = ?`,
          seqOf(id),
        )
        kept()
        return messageOf(row)
      },
      discard: async (id) => room.discard(seqOf(id)),
    },

    async forget(vin, dryRun) {
      const own = `lane = ? OR (lane GLOB '[*][^*]*' AND instr(lower(text), lower(?)) > 0)`
      const found = rows(`SELECT place, kind, state FROM fleethook_messages WHERE ${own}`, laneOf(vin), vin)
      if (!dryRun) {
        rows(`DELETE FROM fleethook_messages WHERE ${own}`, laneOf(vin), vin)
        rows('DELETE FROM fleethook_vehicles WHERE vin = ?', vin)
        room.count()
      }
      return {
        messages: found.length,
        waiting: found.filter(({ state, kind }) => state === waiting && kind === 'wire').length,
        deadLetters: found.filter(({ state }) => state === dead).length,
      }
    },

    usage: () => ({ ...room.pending }),

    refusing: () => (closed ? 'inbox_unavailable' : room.fits(1, 1) ? undefined : 'inbox_full'),

    async close() {
      if (!closed && lastId !== undefined) writeMeta(sql, 'last_id', lastId)
      closed = true
    },

    activity: () => ({ handedOut: handedOut.size, claims }),

    sweep: (nowMs) => room.sweep(nowMs),
  }
}
