import { FleethookError } from '../base/errors.ts'
import { checkOptions, wholeNumber } from '../base/options.ts'
import { PassingMap } from '../base/passing-map.ts'
import { createConflation, type Mergeable } from './conflate.ts'
import {
  type Claim,
  type DeadLetter,
  type Inbox,
  type InboxFactory,
  type InboxMessage,
  type InboxSettings,
  isSelected,
  type ListedMessage,
} from './inbox.ts'
import { memoryVehicles, type StoredVehicle } from './vehicle-store.ts'

interface Kept extends Mergeable {
  deliveries: number
  readonly changed: string | undefined
}

/** The methods of an inbox in memory that need no promise. Each throws where the method of the same name rejects. */
export interface SyncInbox {
  put(messages: readonly InboxMessage[]): void
  claim(id: string): Claim | undefined
  settle(id: string, vehicle?: StoredVehicle): void
}

const syncInboxes = /* @__PURE__ */ new WeakMap<Inbox, SyncInbox>()

/** `undefined` for every inbox that {@link memoryInbox} did not return itself: a copy may have other methods. */
export function syncInboxOf(inbox: Inbox): SyncInbox | undefined {
  return syncInboxes.get(inbox)
}

/**
 * Keeps messages in memory: fast, on every runtime, and gone with the process. A crash loses messages that were
 * acknowledged and not yet handled.
 *
 * Keeps the newest `deadLetters` dead letters (default 1,000), in no more bytes than `limits.pendingBytes`. Throws
 * `option_invalid` for a wrong option.
 *
 * @example
 * ```ts
 * import { createReceiver, memoryInbox } from 'fleethook'
 *
 * createReceiver({ secret: 'a-long-random-value', inbox: memoryInbox({ deadLetters: 100 }) })
 * ```
 */
export function memoryInbox(options: { readonly deadLetters?: number } = {}): InboxFactory {
  checkOptions('memoryInbox', options, { deadLetters: wholeNumber(0) })
  const { deadLetters: mostDead = 1000 } = options
  return (settings) => createMemoryInbox(settings, mostDead)
}

function createMemoryInbox(settings: InboxSettings, mostDead: number): Inbox {
  const { pendingMessages = 10_000, pendingBytes = 64 * 1_048_576 } = settings
  const kept = new PassingMap<string, Kept>()
  const dead = new Map<string, DeadLetter>()
  const vehicles = memoryVehicles()
  const conflation = settings.overflow === 'conflate' ? createConflation<Kept>() : undefined
  // Made once: under overload, a stack trace for each refusal would cost more than everything else in it.
  const full = new FleethookError(
    'inbox_full',
    `The inbox is full: it may hold ${pendingMessages} messages or ${pendingBytes} bytes.`,
    { hint: 'Make the handlers faster, or raise `concurrency` or `limits`.' },
  )
  let bytes = 0
  let deadBytes = 0
  let closed = false

  const fits = (messages: number, moreBytes: number): boolean =>
    kept.size + messages <= pendingMessages && bytes + moreBytes <= pendingBytes

  function forget(id: string): Kept | undefined {
    const found = kept.get(id)
    if (found === undefined) return undefined
    kept.delete(id)
    found.gone = true
    bytes -= found.message.bytes
    conflation?.removed(found)
    return found
  }

  /** Merges only as many messages as necessary, so that the others keep their detail. */
  function makeRoom(messages: number, moreBytes: number): void {
    if (closed) throw new FleethookError('inbox_unavailable', 'The inbox was closed: its receiver has been drained.')
    if (fits(messages, moreBytes)) return
    // Merges nothing for messages that would not fit even into an empty inbox.
    if (messages > pendingMessages || moreBytes > pendingBytes) throw full
    const gone: string[] = []
    while (!fits(messages, moreBytes)) {
      const merged = conflation?.merge()
      if (merged === undefined) break
      const { into, from, message } = merged
      bytes += message.bytes - into.message.bytes
      into.message = message
      forget(from.message.id)
      gone.push(from.message.id)
    }
    if (gone.length > 0) settings.onConflated(gone)
    if (!fits(messages, moreBytes)) throw full
  }

  function removeDead(id: string): boolean {
    deadBytes -= dead.get(id)?.message.bytes ?? 0
    return dead.delete(id)
  }

  function keep(message: InboxMessage, replayed: boolean, changed?: string): void {
    const added: Kept = { message, deliveries: 0, replayed, gone: false, changed }
    kept.set(message.id, added)
    bytes += message.bytes
    conflation?.added(added)
  }

  const sync: SyncInbox = {
    put(messages) {
      let more = 0
      for (const message of messages) more += message.bytes
      if (closed || !fits(messages.length, more)) makeRoom(messages.length, more)
      for (const message of messages) keep(message, false)
    },

    claim(id) {
      const found = kept.get(id)
      if (found === undefined) return undefined
      const { message, deliveries, replayed, changed } = found
      found.deliveries += 1
      return changed === undefined ? { message, deliveries, replayed } : { message, deliveries, replayed, changed }
    },

    settle(id, vehicle) {
      forget(id)
      if (vehicle !== undefined) vehicles.keep(vehicle)
    },
  }

  const inbox: Inbox = {
    durability: 'memory',

    open: async () => ({ waiting: nothing() }),

    put: async (messages) => sync.put(messages),
    claim: async (id) => sync.claim(id),
    settle: async (id, vehicle) => sync.settle(id, vehicle),
    async reschedule() {},

    async deadLetter(id, reason, vehicle) {
      const found = forget(id)
      if (found === undefined) return 0
      if (vehicle !== undefined) vehicles.keep(vehicle)
      dead.set(id, { ...reason, id, message: found.message })
      deadBytes += found.message.bytes
      let dropped = 0
      for (const { id: oldest } of dead.values()) {
        if (dead.size <= mostDead && deadBytes <= pendingBytes) break
        removeDead(oldest)
        dropped += 1
      }
      return dropped
    },

    async deadLetters(which) {
      const letters = [...dead.values()].filter((letter) => isSelected(letter.message, which))
      return letters.toSorted((a, b) => (a.id < b.id ? -1 : 1)).slice(0, which.limit)
    },

    findDeadLetter: async (id) => dead.get(id),

    settled: async () => [],

    async messages(which) {
      const listed: ListedMessage[] = []
      for (const { message } of kept.values())
        if (isSelected(message, which)) listed.push({ message, state: 'waiting' })
      for (const { message, error, attempts, diedAt } of dead.values())
        if (isSelected(message, which)) listed.push({ message, state: 'dead', reason: { error, attempts, diedAt } })
      return listed.toSorted((a, b) => (a.message.id > b.message.id ? -1 : 1)).slice(0, which.limit)
    },

    async revive(id, changed) {
      const letter = dead.get(id)
      if (letter === undefined) return undefined
      makeRoom(1, letter.message.bytes)
      removeDead(id)
      keep(letter.message, true, changed ?? letter.changed)
      return letter.message
    },

    discard: async (id) => removeDead(id),

    usage: () => ({ messages: kept.size, bytes }),

    stats() {
      // A replayed message is older than the time that it has waited.
      let oldest: number | undefined
      for (const { message, replayed } of kept.values()) {
        if (replayed) continue
        oldest = message.receivedAt
        break
      }
      return {
        bytes: bytes + deadBytes,
        mostMessages: pendingMessages,
        deadLetters: dead.size,
        ...(oldest === undefined ? {} : { oldestWaitingMs: Math.max(0, settings.clock.now() - oldest) }),
      }
    },

    refusing: () => (closed ? 'inbox_unavailable' : fits(1, 1) ? undefined : 'inbox_full'),

    vehicles,

    async close() {
      closed = true
    },
  }
  syncInboxes.set(inbox, sync)
  return inbox
}

async function* nothing(): AsyncGenerator<never> {}
