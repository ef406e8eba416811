import { FleethookError } from '../../../src/base/errors.ts'
import { seqOf } from '../../../src/inbox/delivery-id.ts'
import type { InboxMessage } from '../../../src/inbox/inbox.ts'
import type { ObjectStorage } from './platform.ts'
import { over, type Row, type Rows, waiting } from './rows.ts'

/** The messages of an object, which all of its readers share. */
export class ObjectStore {
  readonly storage: ObjectStorage
  readonly rows: Rows
  /** The size of all messages together. */
  bytes = 0

  constructor(storage: ObjectStorage) {
    const { sql } = storage
    this.storage = storage
    this.rows = (query, ...bindings) => sql.exec(query, ...bindings).toArray()
  }

  count(): void {
    this.bytes = Number(this.rows('SELECT sum(bytes) AS bytes FROM fleethook_messages')[0]?.['bytes'])
  }

  /** Keeps a message for the receiver, unless `isOwn` of a branch, and for the branches with these bits. */
  insert(message: InboxMessage, readers: number, isOwn: boolean): void {
    const { id, lane, receivedAt, door, kind, text, bytes } = message
    this.rows(
      `INSERT INTO fleethook_messages (place, id, lane, received_at, door, kind, text, bytes, state, readers)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      ...[seqOf(id), id, lane, receivedAt, door, kind, text, bytes, isOwn ? over : waiting, readers],
    )
  }

  /** The oldest messages that only branches need. */
  expendable(limit: number): readonly Row[] {
    return this.rows(
      `SELECT place, id, kind, bytes, readers FROM fleethook_messages WHERE state = ${over} ORDER BY place LIMIT ${limit}`,
    )
  }

  /** Deletes such a message. Returns the numbers of the branches that had it as a dead letter. */
  expend(place: number): ReadonlySet<number> {
    this.rows('DELETE FROM fleethook_messages WHERE place = ?', place)
    const gone = this.rows('DELETE FROM fleethook_places WHERE place = ? RETURNING reader, state', place)
    return new Set(gone.flatMap(({ reader, state }) => (state === waiting ? [] : [Number(reader)])))
  }

  /** Writes both or neither. A first write that is refused is reported, and the second goes on without it. */
  withBoth<Result>(first: () => void, second: () => Result, failed: (error: unknown) => void): Result {
    try {
      return this.storage.transactionSync(() => {
        first()
        return second()
      })
    } catch (error) {
      failed(error)
      return second()
    }
  }

  /**
   * A write about one message failed. Returns `message_refused` when the object takes other writes about it, and otherwise the error: then the
   * storage fails, and the same write may succeed later.
   */
  refusalOf(id: string, error: unknown): unknown {
    try {
      this.rows('UPDATE fleethook_messages SET place = place WHERE place = ?', seqOf(id))
    } catch {
      return error
    }
    const why = error instanceof Error ? error.message : String(error)
    if (/SQLITE_FULL|disk is full/.test(why)) return error
    if (/SQLITE_TOOBIG|too big/.test(why)) return tooLarge(error)
    return new FleethookError('message_refused', `The inbox of this object refuses a row: ${why}.`, { cause: error })
  }
}

/** However empty the object is. */
const tooLarge = (cause: unknown): FleethookError =>
  new FleethookError('body_too_large', 'A Durable Object does not take a message of this size.', {
    cause,
    hint: 'The platform takes rows of up to 2 MB. Send smaller messages.',
  })
