import { FleethookError } from '../errors.ts'
import { conflate } from './conflate.ts'
import type { DeadLetter, Inbox, InboxMessage } from './inbox.ts'

/** How much an inbox may hold, and what it does when that is reached. */
export interface InboxSettings {
  /** Waiting and claimed messages together. */
  readonly pendingMessages: number
  /** Their size in bytes. */
  readonly pendingBytes: number
  /** `'conflate'` merges queued `data` messages of a VIN before it refuses. */
  readonly overflow: 'refuse' | 'conflate'
  /** Told how many messages were merged away. */
  readonly conflated?: (messages: number) => void
}

/** Makes an inbox for a receiver, within what the receiver's options allow: the value of the option `inbox`. */
export type InboxFactory = (settings: InboxSettings) => Inbox

interface Kept {
  message: InboxMessage
  claimed: boolean
  deliveries: number
  readonly replayed: boolean
}

/**
 * Keeps messages in memory: fast, everywhere, and gone with the process. What was acknowledged and not yet handled is
 * lost in a crash.
 *
 * Dead letters are kept in a ring of `deadLetters` (default 1,000): the oldest makes room for the newest.
 *
 * @example
 * ```ts
 * import { createReceiver, memoryInbox } from 'fleethook'
 *
 * createReceiver({ secret: 'a-long-random-value', inbox: memoryInbox({ deadLetters: 100 }) })
 * ```
 */
export function memoryInbox(options: { readonly deadLetters?: number } = {}): InboxFactory {
  const { deadLetters: ringSize = 1000 } = options
  if (!Number.isInteger(ringSize) || ringSize < 0) {
    throw new FleethookError(
      'option_invalid',
      `Option \`deadLetters\` of memoryInbox must be a whole number of at least 0 and is ${ringSize}.`,
    )
  }
  return (settings) => createMemoryInbox(settings, ringSize)
}

function createMemoryInbox(settings: InboxSettings, ringSize: number): Inbox {
  const kept = new Map<string, Kept>()
  const dead = new Map<string, DeadLetter>()
  let bytes = 0
  // Looking for what can be merged costs a walk over everything, so a walk that freed nothing is not repeated before
  // something new has come in.
  let mergeable = true

  const fits = (messages: number, moreBytes: number): boolean =>
    kept.size + messages <= settings.pendingMessages && bytes + moreBytes <= settings.pendingBytes

  function forget(id: string): Kept | undefined {
    const found = kept.get(id)
    if (found === undefined) return undefined
    kept.delete(id)
    bytes -= found.message.bytes
    return found
  }

  function merge(): void {
    if (!mergeable || settings.overflow !== 'conflate') return
    const waiting: InboxMessage[] = []
    for (const { message, claimed } of kept.values()) if (!claimed) waiting.push(message)
    let merged = 0
    for (const { into, from } of conflate(waiting)) {
      const survivor = kept.get(into.id)
      if (survivor === undefined) continue
      bytes += into.bytes - survivor.message.bytes
      survivor.message = into
      for (const id of from) forget(id)
      merged += from.length
    }
    if (merged > 0) settings.conflated?.(merged)
    mergeable = false
  }

  return {
    durability: 'memory',

    async put(messages) {
      let more = 0
      for (const message of messages) more += message.bytes
      if (!fits(messages.length, more)) {
        merge()
        if (!fits(messages.length, more)) throw full(settings)
      }
      for (const message of messages)
        kept.set(message.id, { message, claimed: false, deliveries: 0, replayed: message.replayed ?? false })
      bytes += more
      mergeable = true
    },

    async claim(id) {
      const found = kept.get(id)
      if (found === undefined) return undefined
      const { message, deliveries, replayed } = found
      found.claimed = true
      found.deliveries += 1
      return { message, deliveries, replayed }
    },

    async settle(id) {
      forget(id)
    },

    async reschedule(id) {
      const found = kept.get(id)
      if (found !== undefined) found.claimed = false
    },

    async deadLetter(id, { error, attempts, diedAt }) {
      const found = forget(id)
      if (found === undefined) return undefined
      dead.set(id, { id, message: found.message, error, attempts, diedAt })
      if (dead.size <= ringSize) return undefined
      const [oldest] = dead.values()
      if (oldest !== undefined) dead.delete(oldest.id)
      return oldest
    },

    async *recover() {},

    async deadLetters(limit) {
      return [...dead.values()].slice(0, limit)
    },

    async takeDeadLetter(id) {
      const letter = dead.get(id)
      dead.delete(id)
      return letter
    },

    usage: () => ({ messages: kept.size, bytes }),

    async close() {},
  }
}

function full({ pendingMessages, pendingBytes }: InboxSettings): FleethookError {
  return new FleethookError(
    'inbox_full',
    `The inbox holds as much as it may: ${pendingMessages} messages or ${pendingBytes} bytes.`,
    {
      hint: 'Make the handlers faster, or raise `concurrency` or `limits`.',
    },
  )
}
