import { FleethookError } from '../../../src/base/errors.ts'
import { msOfSeq } from '../../../src/inbox/delivery-id.ts'
import { neverFits, type Retention, whyNeverFit } from '../../../src/inbox/inbox.ts'
import type { PlaceRows, Released } from './place-rows.ts'
import { dead } from './rows.ts'
import type { ObjectStore } from './store.ts'

/** What a reader of an object may keep. */
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

/** Knows how much one reader of an object has: counts when the object opens, and then follows every change. */
export class Room {
  readonly pending: { messages: number; bytes: number } = { messages: 0, bytes: 0 }
  readonly #store: ObjectStore
  readonly #rows: PlaceRows
  readonly #keeping: Keeping
  readonly #dropped: Dropped
  #deadBytes = 0

  constructor(store: ObjectStore, rows: PlaceRows, keeping: Keeping, dropped: Dropped) {
    this.#store = store
    this.#rows = rows
    this.#keeping = keeping
    this.#dropped = dropped
  }

  count(): void {
    const { messages, pending, dead: deadBytes } = this.#rows.totals()
    Object.assign(this.pending, { messages, bytes: pending })
    this.#deadBytes = deadBytes
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

  /** The handlers of a message are done. */
  settled({ bytes, isGone }: Released): void {
    this.leave(1, bytes)
    if (isGone) this.#store.bytes -= bytes
  }

  /** A message became a dead letter. Older ones make room for it. */
  died(bytes: number): void {
    this.leave(1, bytes)
    this.#deadBytes += bytes
    const dropped: number[] = []
    while (this.#deadBytes > this.#keeping.dead.maxBytes) {
      const [oldest] = this.#rows.dead(Number.MAX_SAFE_INTEGER, 1)
      if (oldest === undefined || !this.discard(oldest)) break
      dropped.push(oldest)
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
    const released = this.#rows.release(place, dead)
    if (released === undefined) return false
    const { bytes, isGone } = released
    this.#deadBytes -= bytes
    if (isGone) this.#store.bytes -= bytes
    return true
  }

  /** Dead letters are deleted, with their messages: the receiver needed the room. */
  expended(places: readonly number[], bytes: number): void {
    this.#deadBytes -= bytes
    this.#drop(places)
  }

  /** Deletes dead letters whose retention is over. */
  sweep(nowMs: number): void {
    if (this.#deadBytes === 0) return
    const old = this.#rows.dead(nowMs - this.#keeping.dead.forMs, forgottenAtOnce)
    this.#drop(old.filter((place) => this.discard(place)))
  }

  #drop(places: readonly number[]): void {
    if (places.length > 0) this.#dropped(places.map(msOfSeq))
  }
}
