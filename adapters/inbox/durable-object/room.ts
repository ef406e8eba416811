import type { Retention } from '../../../src/inbox/inbox.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import { dead, type Rows, settled, waiting } from './rows.ts'

export interface Keeping {
  /** All of its messages together, in bytes. */
  readonly maxBytes: number
  /** Messages that wait or are being handled. */
  readonly pendingMessages: number
  readonly pendingBytes: number
  readonly settled: Required<Retention>
  readonly dead: Required<Retention>
}

/** The state in which a message that is no longer pending is kept. */
export type Retained = 'settled' | 'dead'

const states = { settled, dead }

/** Knows how full an object is: counts when the object opens, and then follows every change. */
interface Room {
  readonly pending: { readonly messages: number; readonly bytes: number }
  count(): void
  fits(messages: number, bytes: number): boolean
  /** Throws `inbox_full` when there is no room even after dropping settled messages. */
  make(messages: number, bytes: number): void
  entered(messages: number, bytes: number): void
  /** A message no longer waits: it is deleted, or kept. Returns the number of messages that were dropped to keep it. */
  left(bytes: number, as: 'gone' | Retained): number
  /** A message that was kept waits again. */
  revived(bytes: number, from: Retained): void
  /** Deletes a kept message. Returns whether there was one. */
  forget(place: number, as: Retained): boolean
  sweep(nowMs: number): void
}

const forgottenAtOnce = 200

export function createRoom(rows: Rows, keeping: Keeping): Room {
  const { maxBytes, pendingMessages, pendingBytes } = keeping
  const pending = { messages: 0, bytes: 0 }
  const retained = { settled: 0, dead: 0 }

  const pendingFits = (messages: number, bytes: number): boolean =>
    pending.messages + messages <= pendingMessages && pending.bytes + bytes <= pendingBytes
  const fits = (messages: number, bytes: number): boolean =>
    pendingFits(messages, bytes) && pending.bytes + retained.settled + retained.dead + bytes <= maxBytes

  /** Returns how many there were. */
  function forget(as: Retained, which: string, atMost: number, ...bindings: readonly number[]): number {
    const gone = rows(
      `DELETE FROM fleethook_messages WHERE place IN
         (SELECT place FROM fleethook_messages WHERE state = ${states[as]} AND ${which} ORDER BY place LIMIT ${atMost})
       RETURNING bytes`,
      ...bindings,
    )
    for (const { bytes } of gone) retained[as] -= Number(bytes)
    return gone.length
  }

  return {
    pending,
    fits,

    count() {
      const sumOf = (state: number): string => `sum(bytes) FILTER (WHERE state = ${state})`
      const [total] = rows(
        `SELECT count(*) FILTER (WHERE state = ${waiting}) AS messages, ${sumOf(waiting)} AS pending,
           ${sumOf(settled)} AS settled, ${sumOf(dead)} AS dead FROM fleethook_messages`,
      )
      pending.messages = Number(total?.['messages'])
      pending.bytes = Number(total?.['pending'])
      retained.settled = Number(total?.['settled'])
      retained.dead = Number(total?.['dead'])
    },

    make(messages, bytes) {
      // Settled messages make room for new ones; dead letters do not. When even dropping all of them would not be enough,
      // none is dropped.
      const couldFit = pendingFits(messages, bytes) && pending.bytes + retained.dead + bytes <= maxBytes
      while (couldFit && !fits(messages, bytes)) {
        if (forget('settled', '1', forgottenAtOnce) === 0) break
      }
      if (fits(messages, bytes)) return
      throw new FleethookError(
        'inbox_full',
        `This object is full: it may hold ${pendingMessages} messages or ${pendingBytes} bytes that wait, ${maxBytes} bytes in all.`,
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
      if (as === 'gone') return 0
      retained[as] += bytes
      let forgotten = 0
      while (retained[as] > keeping[as].maxBytes && forget(as, '1', 1) === 1) forgotten += 1
      return forgotten
    },

    revived(bytes, from) {
      pending.messages += 1
      pending.bytes += bytes
      retained[from] -= bytes
    },

    forget: (place, as) => forget(as, 'place = ?', 1, place) === 1,

    sweep(nowMs) {
      if (retained.settled > 0) {
        forget('settled', 'received_at < ?', forgottenAtOnce, nowMs - keeping.settled.forMs)
      }
      if (retained.dead > 0) forget('dead', 'died_at < ?', forgottenAtOnce, nowMs - keeping.dead.forMs)
    },
  }
}
