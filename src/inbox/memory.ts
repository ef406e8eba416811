import { FleethookError } from '../base/errors.ts'
import { checkOptions, wholeNumber } from '../base/options.ts'
import { PassingMap } from '../base/passing-map.ts'
import type { Forgotten } from '../observe/dead-letters.ts'
import type { InboxStats } from '../observe/stats.ts'
import {
  type Claim,
  type DeadLetter,
  type DeadLetterReason,
  done,
  type Inbox,
  type InboxFactory,
  type InboxMessage,
  type InboxHost,
  isAbout,
  isSelected,
  listedLetter,
  type ListedMessage,
  type Outcome,
  type ReadersInMemory,
  type Selection,
  type Waiting,
  whyNeverFit,
} from './inbox.ts'
import type { VehicleStore } from './vehicle-store.ts'
import { bytesOfMessage, pageOf } from '../base/pages.ts'

interface Kept {
  /** Emptied at the end, because V8 keeps entries of a map for a while after they were deleted. */
  message: InboxMessage | undefined
  deliveries: number
  /** The dead letter that it was, when it is replayed. */
  readonly letter: DeadLetter | undefined
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

/** The inbox of a receiver. Its branches bring what several readers need: who has none does not bundle it. */
function createMemoryInbox(settings: InboxHost, mostDead: number): Inbox {
  const places = new MemoryPlaces(settings, mostDead)
  let readers: ReadersInMemory | undefined
  return {
    ...inboxOf(places),
    put(messages, from) {
      places.put(messages)
      readers?.follow(messages, from)
    },
    reader(name, own) {
      readers ??= own.readersInMemory(mostDead)
      return readers.add(name, own)
    },
    async forget(vin, dryRun) {
      const here = places.erase(vin, dryRun)
      const erased = (await readers?.erase(vin, dryRun, here)) ?? erasedOf(here)
      if (!dryRun) await places.vehicles?.forget(vin)
      return erased
    },
  }
}

/** An inbox with these places. */
export function inboxOf(places: MemoryPlaces): Inbox {
  return {
    durability: 'memory',
    open: async () => ({ waiting: nothing() }),
    put: (messages) => places.put(messages),
    claim: (id) => places.claim(id),
    settle: (id, outcome) => places.settle(id, outcome),
    archive: {
      list: async (what, which) => places.list(what, which),
      revive: async (id) => places.revive(id),
      discard: async (id) => places.removeDead(id),
    },
    usage: () => places.usage(),
    stats: () => places.stats(),
    refusing: () => places.refusing(),
    states: places.vehicles,
    close: async () => places.close(),
  }
}

async function* nothing(): AsyncGenerator<never> {}

/** Counts each message once, however many readers had it. */
export function erasedOf(found: readonly ListedMessage[]): Forgotten {
  const count = (which: readonly ListedMessage[]): number => new Set(which.map(({ message }) => message.id)).size
  return {
    messages: count(found),
    waiting: count(found.filter(({ state, message }) => state === 'waiting' && message.kind === 'wire')),
    deadLetters: count(found.filter(({ state }) => state === 'dead')),
  }
}

/** What one reader still has to do. The messages themselves are shared. */
export class MemoryPlaces {
  readonly vehicles: VehicleStore | undefined
  readonly #settings: InboxHost
  readonly #kept = new PassingMap<string, Kept>()
  readonly #dead = new Map<string, DeadLetter>()
  readonly #mostDead: number
  readonly #limits: { readonly pendingMessages: number; readonly pendingBytes: number }
  /** Made once: under overload, a stack trace for each refusal would cost more than everything else in it. */
  readonly #full: FleethookError
  #bytes = 0
  #deadBytes = 0
  #isClosed = false

  constructor(settings: InboxHost, mostDead: number) {
    const { pendingMessages = 50_000, pendingBytes = 64 * 1_048_576 } = settings.limits
    this.#settings = settings
    this.#mostDead = mostDead
    this.#limits = { pendingMessages, pendingBytes }
    this.vehicles = settings.states?.()
    this.#full = new FleethookError(
      'inbox_full',
      `The inbox is full: it may hold ${pendingMessages} messages or ${pendingBytes} bytes.`,
      { hint: 'Make the handlers faster, or raise `concurrency` or `limits`.' },
    )
  }

  /** Throws when there is no room for them. */
  put(messages: readonly InboxMessage[]): void {
    let bytes = 0
    for (const message of messages) bytes += message.bytes
    if (this.#isClosed)
      throw new FleethookError('inbox_unavailable', 'The inbox was closed: its receiver has been drained.')
    if (!this.hasRoom(messages.length, bytes)) throw whyNeverFit(messages.length, bytes, this.#limits) ?? this.#full
    this.#bytes += bytes
    for (const message of messages) this.#kept.set(message.id, { message, deliveries: 0, letter: undefined })
  }

  claim(id: string): Claim | undefined {
    const found = this.#kept.get(id)
    if (found?.message === undefined) return undefined
    const { message, deliveries, letter } = found
    found.deliveries += 1
    return { message, deliveries, replayed: letter !== undefined, changed: letter?.changed }
  }

  settle(id: string, outcome: Outcome = done): void {
    const found = this.#kept.get(id)
    if (found?.message === undefined) return
    if (outcome.as === 'later') {
      found.deliveries = outcome.next.deliveries ?? found.deliveries
      return
    }
    const { message } = found
    this.#kept.delete(id)
    found.message = undefined
    this.#bytes -= message.bytes
    if (outcome.vehicle !== undefined) this.vehicles?.keep(outcome.vehicle)
    if (outcome.as === 'dead') this.#bury(message, outcome.reason)
  }

  list(what: 'dead' | 'settled' | 'all', which: Selection): readonly ListedMessage[] {
    const isAll = what === 'all'
    const found = this.listed().filter(
      ({ state, message }) => (isAll || state === what) && isSelected(message, which, isAll),
    )
    const sorted = found.toSorted((a, b) => (a.message.id > b.message.id === isAll ? -1 : 1))
    return pageOf(sorted, which.limit, bytesOfMessage)
  }

  revive(id: string): Waiting | undefined {
    const letter = this.#dead.get(id)
    if (letter === undefined) return undefined
    const { message } = letter
    this.put([message])
    this.#kept.set(id, { message, deliveries: 0, letter })
    this.removeDead(id)
    return message
  }

  removeDead(id: string): boolean {
    this.#deadBytes -= this.#dead.get(id)?.message.bytes ?? 0
    return this.#dead.delete(id)
  }

  /** What there is of a vehicle. Erases it, unless `dryRun`. */
  erase(vin: string, dryRun: boolean): readonly ListedMessage[] {
    const found = this.listed().filter(({ message }) => isAbout(message, vin))
    if (!dryRun)
      for (const { message, state } of found)
        void (state === 'dead' ? this.removeDead(message.id) : this.settle(message.id))
    return found
  }

  usage(): { readonly messages: number; readonly bytes: number } {
    return { messages: this.#kept.size, bytes: this.#bytes }
  }

  stats(): InboxStats {
    const { pendingMessages, pendingBytes } = this.#limits
    // A replayed message is older than the time that it has waited.
    let oldest: number | undefined
    for (const { message, letter } of this.#kept.values()) {
      if (letter !== undefined) continue
      oldest = message?.receivedAt
      break
    }
    return {
      bytes: this.#bytes + this.#deadBytes,
      mostMessages: pendingMessages,
      used: Math.max(this.#kept.size / pendingMessages, this.#bytes / pendingBytes),
      deadLetters: this.#dead.size,
      oldestWaitingMs: oldest === undefined ? undefined : Math.max(0, this.#settings.clock.now() - oldest),
    }
  }

  refusing(): 'inbox_full' | 'inbox_unavailable' | undefined {
    if (this.#isClosed) return 'inbox_unavailable'
    return this.hasRoom(1, 1) ? undefined : 'inbox_full'
  }

  close(): void {
    this.#isClosed = true
  }

  hasRoom(messages: number, bytes: number): boolean {
    const { pendingMessages, pendingBytes } = this.#limits
    return this.#kept.size + messages <= pendingMessages && this.#bytes + bytes <= pendingBytes
  }

  /** The newest are kept. */
  #bury(message: InboxMessage, reason: DeadLetterReason): void {
    this.#dead.set(message.id, { ...reason, id: message.id, message })
    this.#deadBytes += message.bytes
    let dropped = 0
    for (const { id: oldest } of this.#dead.values()) {
      if (this.#dead.size <= this.#mostDead && this.#deadBytes <= this.#limits.pendingBytes) break
      this.removeDead(oldest)
      dropped += 1
    }
    if (dropped > 0) this.#settings.on({ type: 'dropped', deadLetters: dropped })
  }

  listed(): readonly ListedMessage[] {
    const found: ListedMessage[] = []
    for (const { message } of this.#kept.values()) if (message !== undefined) found.push({ message, state: 'waiting' })
    for (const letter of this.#dead.values()) found.push(listedLetter(letter))
    return found
  }
}
