import { FleethookError, type InboxFactory } from 'fleethook'
import type { DeadLetter, InboxMessage } from 'fleethook'

/** What outlives a receiver in a test: every message as JSON text, nothing else. */
export interface Disk {
  /** By id, in order of arrival. */
  readonly messages: Map<string, string>
  readonly deliveries: Map<string, number>
  readonly dead: Map<string, string>
  puts: number
}

export function disk(): Disk {
  return { messages: new Map(), deliveries: new Map(), dead: new Map(), puts: 0 }
}

/** What a test can do to a disk while it is in use. Each is awaited before the step is done. */
export interface Faults {
  put?: (messages: readonly InboxMessage[]) => Promise<void> | void
  claim?: (id: string) => Promise<void> | void
  settle?: (id: string) => Promise<void> | void
  deadLetter?: (id: string) => Promise<void> | void
}

interface Stored {
  readonly message: InboxMessage
  /** Grows with each call of `put`. */
  readonly place: number
  readonly replayed?: boolean
}

/** An inbox on a {@link Disk}: keeps text only, as one on a real disk does, and has nothing when a new one is made. */
export function storedInbox(on: Disk, faults: Faults = {}): InboxFactory {
  const read = (id: string): Stored | undefined => {
    const text = on.messages.get(id)
    return text === undefined ? undefined : (JSON.parse(text) as Stored)
  }
  const write = ({ event: _, ...message }: InboxMessage, place: number, replayed: boolean): string =>
    JSON.stringify({ message: { ...message, text: message.text }, place, replayed } satisfies Stored)
  const inOrder = (): readonly string[] =>
    [...on.messages.keys()].toSorted((a, b) => (read(a)?.place ?? 0) - (read(b)?.place ?? 0))

  const usage = (): { messages: number; bytes: number } => ({
    messages: on.messages.size,
    bytes: [...on.messages.keys()].reduce((sum, id) => sum + (read(id)?.message.bytes ?? 0), 0),
  })

  return ({ pendingMessages, pendingBytes }) => {
    let closed = false
    const makeSure = (messages: readonly InboxMessage[]): void => {
      if (closed) throw new FleethookError('inbox_unavailable', 'The disk is closed.')
      const bytes = messages.reduce((sum, message) => sum + message.bytes, usage().bytes)
      if (on.messages.size + messages.length > pendingMessages || bytes > pendingBytes)
        throw new FleethookError('inbox_full', 'The disk is full.')
    }
    return {
      durability: 'disk',
      async put(messages) {
        const place = (on.puts += 1)
        await faults.put?.(messages)
        makeSure(messages)
        for (const message of messages) on.messages.set(message.id, write(message, place, false))
      },
      async claim(id) {
        await faults.claim?.(id)
        const stored = read(id)
        if (stored === undefined) return undefined
        const deliveries = on.deliveries.get(id) ?? 0
        on.deliveries.set(id, deliveries + 1)
        return { message: stored.message, deliveries, replayed: stored.replayed ?? false }
      },
      async settle(id) {
        await faults.settle?.(id)
        on.messages.delete(id)
        on.deliveries.delete(id)
      },
      async reschedule() {},
      async deadLetter(id, reason) {
        await faults.deadLetter?.(id)
        const stored = read(id)
        if (stored === undefined) return 0
        on.messages.delete(id)
        on.deliveries.delete(id)
        on.dead.set(id, JSON.stringify({ id, message: stored.message, ...reason }))
        return 0
      },
      async *recover() {
        for (const id of inOrder()) {
          const stored = read(id)
          if (stored !== undefined) yield stored.message
        }
      },
      async deadLetters(most) {
        return [...on.dead.values()].slice(0, most).map((text) => JSON.parse(text) as DeadLetter)
      },
      async revive(id) {
        const text = on.dead.get(id)
        if (text === undefined) return undefined
        const { message } = JSON.parse(text) as DeadLetter
        makeSure([message])
        on.dead.delete(id)
        on.messages.set(id, write(message, (on.puts += 1), true))
        return message
      },
      discard: async (id) => on.dead.delete(id),
      usage,
      async close() {
        closed = true
      },
    }
  }
}
