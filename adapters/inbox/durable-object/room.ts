import { FleethookError } from '../../../src/errors.ts'
import type { Rows } from './rows.ts'
import { dead, settled, waiting } from './schema.ts'

/** What one object keeps. */
export interface Keeping {
  /** All of its messages together, in bytes. */
  readonly maxBytes: number
  /** Messages that wait or are being handled. */
  readonly pendingMessages: number
  /** Their size in bytes. */
  readonly pendingBytes: number
  /** How long a handled message is kept, in milliseconds. 0: not at all. */
  readonly settledMs: number
  /** How long a dead letter is kept, in milliseconds. */
  readonly deadMs: number
  /** How many dead letters are kept. */
  readonly deadLetters: number
}

/** How full an object is. Counted when it is opened, and kept in step with every change. */
export interface Room {
  readonly pending: { readonly messages: number; readonly bytes: number }
  /** Counts what is there. */
  count(): void
  fits(messages: number, bytes: number): boolean
  /** Throws `inbox_full` when there is no room, after handled messages have made what room they can. */
  make(messages: number, bytes: number): void
  /** So much waits from now on. */
  entered(messages: number, bytes: number): void
  /** A message waits no more: it is gone, or what it was is kept as this. */
  left(bytes: number, as: 'gone' | 'settled' | 'dead'): void
  /** A message that was kept waits again. */
  revived(bytes: number, from: 'settled' | 'dead'): void
  /** Forgets dead letters, the oldest first. Returns how many. */
  forgetDead(which: string, atMost: number, ...bindings: readonly number[]): number
  /** Forgets the oldest dead letters beyond as many as are kept. Returns how many. */
  trimDead(): number
  /** Forgets what has been kept for long enough. */
  sweep(nowMs: number): void
}

/** How many rows are forgotten at once. */
const forgottenAtOnce = 200

export function createRoom(rows: Rows, keeping: Keeping): Room {
  const { maxBytes, pendingMessages, pendingBytes } = keeping
  const pending = { messages: 0, bytes: 0 }
  let retainedBytes = 0
  let deadCount = 0

  const pendingFits = (messages: number, bytes: number): boolean =>
    pending.messages + messages <= pendingMessages && pending.bytes + bytes <= pendingBytes
  const fits = (messages: number, bytes: number): boolean =>
    pendingFits(messages, bytes) && pending.bytes + retainedBytes + bytes <= maxBytes

  /** Returns how many there were. */
  function forget(which: string, atMost: number, ...bindings: readonly number[]): number {
    const gone = rows(
      `DELETE FROM fleethook_messages WHERE place IN
         (SELECT place FROM fleethook_messages WHERE ${which} ORDER BY place LIMIT ${atMost}) RETURNING bytes`,
      ...bindings,
    )
    for (const { bytes } of gone) retainedBytes -= Number(bytes)
    return gone.length
  }

  function forgetDead(which: string, atMost: number, ...bindings: readonly number[]): number {
    const gone = forget(`state = ${dead} AND ${which}`, atMost, ...bindings)
    deadCount -= gone
    return gone
  }

  return {
    pending,
    fits,

    count() {
      const [total] = rows(
        `SELECT count(*) FILTER (WHERE state = ${waiting}) AS messages,
           sum(bytes) FILTER (WHERE state = ${waiting}) AS pending,
           sum(bytes) FILTER (WHERE state <> ${waiting}) AS retained,
           count(*) FILTER (WHERE state = ${dead}) AS dead
         FROM fleethook_messages`,
      )
      pending.messages = Number(total?.['messages'])
      pending.bytes = Number(total?.['pending'])
      retainedBytes = Number(total?.['retained'])
      deadCount = Number(total?.['dead'])
    },

    make(messages, bytes) {
      // Handled messages make room for new ones; dead letters do not.
      while (!fits(messages, bytes) && pendingFits(messages, bytes)) {
        if (forget(`state = ${settled}`, forgottenAtOnce) === 0) break
      }
      if (fits(messages, bytes)) return
      throw new FleethookError(
        'inbox_full',
        `This object holds as much as it may: ${pendingMessages} messages or ${pendingBytes} bytes that wait, ${maxBytes} bytes in all.`,
        { hint: 'Make the handlers faster, or raise `concurrency`, `shards` or `limits`.' },
      )
    },

    entered(messages, bytes) {
      pending.messages += messages
      pending.bytes += bytes
    },

    left(bytes, as) {
      pending.messages -= 1
      pending.bytes -= bytes
      if (as !== 'gone') retainedBytes += bytes
      if (as === 'dead') deadCount += 1
    },

    revived(bytes, from) {
      pending.messages += 1
      pending.bytes += bytes
      retainedBytes -= bytes
      if (from === 'dead') deadCount -= 1
    },

    forgetDead,

    trimDead: () => (deadCount > keeping.deadLetters ? forgetDead('1', deadCount - keeping.deadLetters) : 0),

    sweep(nowMs) {
      const { settledMs, deadMs } = keeping
      if (settledMs > 0) forget(`state = ${settled} AND received_at < ?`, forgottenAtOnce, nowMs - settledMs)
      if (deadCount > 0) forgetDead('died_at < ?', forgottenAtOnce, nowMs - deadMs)
    },
  }
}
