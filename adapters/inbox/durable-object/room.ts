import type { Retention } from '../../../src/inbox/inbox.ts'
import { msOfSeq } from '../../../src/inbox/delivery-id.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import { neverFits, whyNeverFit } from '../../../src/inbox/inbox.ts'
import { dead, type Rows, waiting } from './rows.ts'

export interface Keeping {
  /** All of its messages together, in bytes. */
  readonly maxBytes: number
  /** Messages that wait or are being handled. */
  readonly pendingMessages: number
  readonly pendingBytes: number
  readonly dead: Required<Retention>
}

/** Dead letters that were received at these times, in milliseconds since the epoch, were deleted: newer ones needed the room, or their time was over. */
export type Dropped = (receivedAtMs: readonly number[]) => void

const forgottenAtOnce = 200

/** Knows how full an object is: counts when the object opens, and then follows every change. */
export class Room {
  readonly pending: { messages: number; bytes: number } = { messages: 0, bytes: 0 }
  readonly #rows: Rows
  readonly #keeping: Keeping
  readonly #dropped: Dropped
  #deadBytes = 0

  constructor(rows: Rows, keeping: Keeping, dropped: Dropped) {
    this.#rows = rows
    this.#keeping = keeping
    this.#dropped = dropped
  }

  count(): void {
    const [total] = this.#rows(
      `SELECT count(*) FILTER (WHERE state = ${waiting}) AS messages, sum(bytes) FILTER (WHERE state = ${waiting}) AS pending,
         sum(bytes) FILTER (WHERE state = ${dead}) AS dead FROM fleethook_messages`,
    )
    this.pending.messages = Number(total?.['messages'])
    this.pending.bytes = Number(total?.['pending'])
    this.#deadBytes = Number(total?.['dead'])
  }

  fits(messages: number, bytes: number): boolean {
    const { maxBytes, pendingMessages, pendingBytes } = this.#keeping
    return (
      this.pending.messages + messages <= pendingMessages &&
      this.pending.bytes + bytes <= pendingBytes &&
      this.pending.bytes + this.#deadBytes + bytes <= maxBytes
    )
  }

  /** Counts new messages. Throws `inbox_full` when there is no room for them, and `body_too_large` when there never will be. */
  enter(messages: number, bytes: number): void {
    const { maxBytes, pendingMessages, pendingBytes } = this.#keeping
    if (bytes > maxBytes) throw neverFits('maxBytes', maxBytes)
    if (!this.fits(messages, bytes))
      throw (
        whyNeverFit(messages, bytes, this.#keeping) ??
        new FleethookError(
          'inbox_full',
          // What to do about `This object is full`: Make handlers faster, or raise `concurrency`, `shards` or `limits`.
          `This object is full: it may hold ${pendingMessages} messages or ${pendingBytes} bytes that wait, ${maxBytes} bytes in all.`,
          { hint: 'Make the handlers faster, or raise `concurrency`, `shards` or `limits`.' },
        )
      )
    this.pending.messages += messages
    this.pending.bytes += bytes
  }

  leave(messages: number, bytes: number): void {
    this.pending.messages -= messages
    this.pending.bytes -= bytes
  }

  /** A message became a dead letter. Older ones make room for it. */
  died(bytes: number): void {
    this.leave(1, bytes)
    this.#deadBytes += bytes
    const dropped: number[] = []
    while (this.#deadBytes > this.#keeping.dead.maxBytes) {
      const oldest = this.#forget('1', 1)
      if (oldest.length === 0) break
      dropped.push(...oldest)
    }
    this.#drop(dropped)
  }

  /** A dead letter waits again. Throws `inbox_full` when there is no room for it. */
  revive(bytes: number): void {
    this.#deadBytes -= bytes
    try {
      this.enter(1, bytes)
    } catch (error) {
      this.#deadBytes += bytes
      throw error
    }
  }

  /** Deletes a dead letter. Returns whether there was one. */
  discard(place: number): boolean {
    return this.#forget('place = ?', 1, place).length === 1
  }

  /** Deletes dead letters whose retention is over. */
  sweep(nowMs: number): void {
    if (this.#deadBytes > 0) this.#drop(this.#forget('died_at < ?', forgottenAtOnce, nowMs - this.#keeping.dead.forMs))
  }

  #drop(places: readonly number[]): void {
    if (places.length > 0) this.#dropped(places.map(msOfSeq))
  }

  /** Returns the places of what it deleted. */
  #forget(which: string, atMost: number, ...bindings: readonly number[]): readonly number[] {
    const gone = this.#rows(
      `DELETE FROM fleethook_messages WHERE place IN
         (SELECT place FROM fleethook_messages WHERE state = ${dead} AND ${which} ORDER BY place LIMIT ${atMost})
       RETURNING bytes, place`,
      ...bindings,
    )
    for (const { bytes } of gone) this.#deadBytes -= Number(bytes)
    return gone.map(({ place }) => Number(place))
  }
}
