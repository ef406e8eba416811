import type { GapReason } from '../../../src/events/event.ts'
import type { DeadLetter, InboxMessage, Selection, Waiting } from '../../../src/inbox/inbox.ts'
import type { Damage } from './salvage.ts'

/**
 * What works on the file: the same, whether it runs beside the receiver or in a thread of its own. Everything that it is given
 * or gives is data that can be sent to a thread. Rejects with a `FleethookError` by `failureOf`.
 */
export interface Store {
  open(nowMs: number): Promise<Found>
  /** What waits, in the order of places, from behind this one on. */
  waiting(after: number): Promise<Page<Waiting>>
  /** Writes all of it, synced to the disk, or nothing. */
  commit(batch: Batch): Promise<Committed>
  /** A message that is pending. */
  find(place: number): Promise<Pending | undefined>
  /** A message, whatever became of it. */
  message(place: number): Promise<InboxMessage | undefined>
  deadLetters(which: Selection, after: number): Promise<Page<DeadLetter>>
  settled(which: Selection, after: number): Promise<Page<InboxMessage>>
  /** A sign of life, and one bounded step of what can wait: retention, and giving room back to the disk. */
  tidy(nowMs: number, pendingBytes: number): Promise<{ readonly more: boolean; readonly onCapacity: boolean }>
  /** Drops what may be dropped. Resolves to whether there is room on the disk again, and in the budget. */
  probe(nowMs: number, pendingBytes: number): Promise<boolean>
  /** Lets go of the file. `nowMs` is left out when it cannot be said that all is well. */
  close(nowMs?: number): Promise<void>
}

/** What a file holds when it is opened. */
export interface Found {
  readonly lastId: string | undefined
  readonly holes: readonly { readonly reason: GapReason; readonly fromMs: number }[]
  readonly messages: number
  readonly bytes: number
  /** The process before this one ended without `close`: what it handed out last may not be counted. */
  readonly unclean: boolean
  readonly version: string
  /** The file was damaged, and there is a new one. */
  readonly damage?: Damage
}

/** A part of a list, and where the next part begins: `undefined` when this was the last. */
export interface Page<T> {
  readonly found: readonly T[]
  readonly next: number | undefined
}

/** A message that waits or is being handled. */
export interface Pending {
  readonly message: InboxMessage
  readonly deliveries: number
  readonly replayed: boolean
}

/** A message as a row: no event, and its place. */
export interface Row extends Omit<InboxMessage, 'event'> {
  readonly place: number
}

/** What became of a pending message since the last commit. */
export interface Change {
  readonly place: number
  /** What its count of deliveries is begun anew with, if it is. */
  readonly from?: number
  /** How often it was handed out since. */
  readonly deliveries: number
  readonly attempts?: number
  readonly notBefore?: number
}

/** What takes a message from one table to another, and has a result. */
export type Move =
  | { readonly to: 'settled'; readonly place: number }
  | { readonly to: 'pending'; readonly place: number }
  | { readonly to: 'nowhere'; readonly place: number }
  | {
      readonly to: 'dead'
      readonly place: number
      readonly error: string
      readonly attempts: number
      readonly diedAt: number
    }

/** What goes into one transaction, in this order. */
export interface Batch {
  /** Puts that were refused when a commit failed, and may have been written nonetheless. */
  readonly retracted: readonly number[]
  readonly puts: readonly Row[]
  readonly changes: readonly Change[]
  readonly settled: readonly number[]
  readonly moves: readonly Move[]
  readonly nowMs: number
  /** The room that all takes that is pending, the puts of this batch included. */
  readonly pendingBytes: number
}

export interface Committed {
  /** For each move the size of the message that it moved; `undefined` when there was none. */
  readonly moved: readonly (number | undefined)[]
  /** What was there of what was retracted. */
  readonly retracted: { readonly messages: number; readonly bytes: number }
  /** Whether there is room for more. */
  readonly onCapacity: boolean
}
