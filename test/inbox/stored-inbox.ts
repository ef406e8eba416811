import { FleethookError } from 'fleethook'
import type { DeadLetter, InboxFactory, InboxMessage, ListedMessage, Selection, Waiting } from 'fleethook/extend'

/** What outlives a receiver in a test: every message as JSON text, nothing else. */
export interface Disk {
  /** By id, in order of arrival. */
  readonly messages: Map<string, string>
  readonly deliveries: Map<string, number>
  readonly dead: Map<string, string>
  /** Settled messages, on a disk that retains them. */
  readonly settled: Map<string, string> | undefined
  /** What the next attempt has to know. */
  readonly next: Map<string, { readonly attempts: number; readonly notBefore: number }>
  lastId: string | undefined
  /** The last sign of life of a receiver that has not closed it. */
  inUseAt: number | undefined
}

export function disk({ retains = false }: { readonly retains?: boolean } = {}): Disk {
  return {
    messages: new Map(),
    deliveries: new Map(),
    dead: new Map(),
    settled: retains ? new Map() : undefined,
    next: new Map(),
    lastId: undefined,
    inUseAt: undefined,
  }
}

/** What a test can do to a disk while it is in use. Each is awaited before the step is done. */
export interface Faults {
  put?: (messages: readonly InboxMessage[]) => Promise<void> | void
  claim?: (id: string) => Promise<void> | void
  settle?: (id: string) => Promise<void> | void
  reschedule?: (id: string) => Promise<void> | void
  deadLetter?: (id: string) => Promise<void> | void
}

function isSelected({ id, lane, receivedAt }: InboxMessage, which: Selection, newestFirst: boolean): boolean {
  const { after } = which
  return (
    (which.id === undefined || id === which.id) &&
    (after === undefined || (newestFirst ? id < after : id > after)) &&
    (which.lane === undefined || lane === which.lane) &&
    (which.fromMs === undefined || receivedAt >= which.fromMs) &&
    (which.toMs === undefined || receivedAt < which.toMs)
  )
}

interface Stored {
  readonly message: InboxMessage
  readonly replayed?: boolean
}

/**
 * An inbox on a {@link Disk}: keeps only text, like an inbox on a real disk, and has nothing in memory when a new one is
 * created.
 */
export function storedInbox(on: Disk, faults: Faults = {}): InboxFactory {
  const read = (id: string): Stored | undefined => {
    const text = on.messages.get(id)
    return text === undefined ? undefined : (JSON.parse(text) as Stored)
  }
  const write = ({ event: _, ...message }: InboxMessage, replayed: boolean): string =>
    JSON.stringify({ message: { ...message, text: message.text }, replayed } satisfies Stored)
  const letters = (): readonly DeadLetter[] => [...on.dead.values()].map((text) => JSON.parse(text) as DeadLetter)

  const usage = (): { messages: number; bytes: number } => ({
    messages: on.messages.size,
    bytes: [...on.messages.keys()].reduce((sum, id) => sum + (read(id)?.message.bytes ?? 0), 0),
  })

  async function* waiting(after = ''): AsyncGenerator<readonly Waiting[]> {
    for (const id of [...on.messages.keys()].toSorted()) {
      if (id <= after) continue
      const stored = read(id)
      if (stored === undefined) continue
      const { lane, kind } = stored.message
      const next = on.next.get(id)
      const crashes = Math.max(0, (on.deliveries.get(id) ?? 0) - (next?.attempts ?? 0))
      yield [{ id, lane, kind, ...next, crashes }]
    }
  }

  return ({ limits: { pendingMessages = Infinity, pendingBytes = Infinity }, clock }) => {
    let closed = false
    const makeSure = (messages: readonly InboxMessage[]): void => {
      if (closed) throw new FleethookError('inbox_unavailable', 'The disk is closed.')
      const bytes = messages.reduce((sum, message) => sum + message.bytes, 0)
      if (messages.length > pendingMessages || bytes > pendingBytes)
        throw new FleethookError('body_too_large', 'The disk never has room for that.')
      if (on.messages.size + messages.length > pendingMessages || usage().bytes + bytes > pendingBytes)
        throw new FleethookError('inbox_full', 'The disk is full.')
    }
    return {
      durability: 'disk',
      waiting,
      async open() {
        const { lastId, inUseAt } = on
        on.inUseAt = clock.now()
        return {
          ...(lastId === undefined ? {} : { lastId }),
          gaps: inUseAt === undefined ? [] : [{ reason: 'restarted', fromMs: inUseAt }],
          waiting: waiting(),
        }
      },
      async put(messages) {
        await faults.put?.(messages)
        makeSure(messages)
        on.inUseAt = clock.now()
        for (const message of messages) {
          on.messages.set(message.id, write(message, false))
          if (on.lastId === undefined || message.id > on.lastId) on.lastId = message.id
        }
      },
      async claim(id) {
        await faults.claim?.(id)
        const stored = read(id)
        if (stored === undefined) return undefined
        const deliveries = on.deliveries.get(id) ?? 0
        on.deliveries.set(id, deliveries + 1)
        return { message: stored.message, deliveries, replayed: stored.replayed ?? false }
      },
      async settle(id, outcome = { as: 'done' }) {
        const { as } = outcome
        await (as === 'done' ? faults.settle : as === 'dead' ? faults.deadLetter : faults.reschedule)?.(id)
        const text = on.messages.get(id)
        if (text === undefined) return
        if (as === 'later') {
          const { attempts, notBefore, deliveries } = outcome.next
          on.next.set(id, { attempts, notBefore })
          if (deliveries !== undefined) on.deliveries.set(id, deliveries)
          return
        }
        if (as === 'done') on.settled?.set(id, text)
        else on.dead.set(id, JSON.stringify({ id, message: (JSON.parse(text) as Stored).message, ...outcome.reason }))
        on.messages.delete(id)
        on.deliveries.delete(id)
      },
      archive: {
        async list(what, which) {
          const dead = letters().map(({ message, error, attempts, diedAt }): ListedMessage => ({
            message,
            state: 'dead',
            reason: { error, attempts, diedAt },
          }))
          const settled = [...(on.settled?.values() ?? [])].map((text): ListedMessage => {
            const { message } = JSON.parse(text) as Stored
            return { message, state: 'settled' }
          })
          const waits = [...on.messages.keys()].flatMap((id): readonly ListedMessage[] => {
            const stored = read(id)
            return stored === undefined ? [] : [{ message: stored.message, state: 'waiting' }]
          })
          const isAll = what === 'all'
          const found = (what === 'dead' ? dead : what === 'settled' ? settled : [...dead, ...settled, ...waits])
            .filter(({ message }) => isSelected(message, which, isAll))
            .toSorted((a, b) => (a.message.id > b.message.id === isAll ? -1 : 1))
          let bytes = 0
          const last = found.findIndex(({ message }) => (bytes += message.bytes) >= 1_048_576)
          return found.slice(0, last < 0 ? which.limit : Math.min(which.limit, last + 1))
        },
        async revive(id) {
          const text = on.dead.get(id) ?? on.settled?.get(id)
          if (text === undefined) return undefined
          const { message } = JSON.parse(text) as Stored
          makeSure([message])
          on.dead.delete(id)
          on.settled?.delete(id)
          on.next.delete(id)
          on.messages.set(id, write(message, true))
          return message
        },
        discard: async (id) => on.dead.delete(id),
      },
      usage,
      refusing: () => (closed ? 'inbox_unavailable' : on.messages.size >= pendingMessages ? 'inbox_full' : undefined),
      async close() {
        on.inUseAt = undefined
        closed = true
      },
    }
  }
}
