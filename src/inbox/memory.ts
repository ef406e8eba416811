import { FleethookError } from '../base/errors.ts'
import { checkOptions, wholeNumber } from '../base/options.ts'
import { PassingMap } from '../base/passing-map.ts'
import { noRequest, type RequestScope } from '../hosting/execution-context.ts'
import type { InboxStats } from '../observe/stats.ts'
import {
  type Claim,
  type DeadLetter,
  type DeadLetterReason,
  done,
  type Erased,
  type Inbox,
  type InboxFactory,
  type InboxMessage,
  type InboxSettings,
  isAbout,
  isSelected,
  listedLetter,
  type ListedMessage,
  type Outcome,
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

/** Messages that the receiver puts are for its readers, too, unless they are timers of its own rules. */
function createMemoryInbox(settings: InboxSettings, mostDead: number): Inbox {
  const places = new MemoryPlaces(settings, mostDead)
  const readers = new Map<string, MemoryPlaces>()
  return {
    ...inboxOf(places),
    put(messages, from = noRequest) {
      places.put(messages)
      if (readers.size === 0) return
      const shared = messages.filter(({ kind }) => kind !== 'timer')
      for (const reader of readers.values()) reader.follow(shared, from)
    },
    reader(name, own) {
      const reader = new MemoryPlaces(own, mostDead)
      readers.set(name, reader)
      return {
        ...inboxOf(reader),
        handsOut: 'stored',
        put(messages, from = noRequest) {
          reader.put(messages)
          own.onPut?.(messages, from)
        },
      }
    },
    async forget(vin, dryRun): Promise<Erased> {
      const found: Found = { all: new Set(), waiting: new Set(), dead: new Set() }
      const waitingHere = places.erase(vin, dryRun, found)
      const waitingOf: Record<string, number> = {}
      for (const [name, reader] of readers) waitingOf[name] = reader.erase(vin, dryRun, found)
      if (!dryRun) for (const each of [places, ...readers.values()]) await each.vehicles?.forget(vin)
      const { all, waiting, dead } = found
      return { messages: all.size, waiting: waiting.size, deadLetters: dead.size, waitingHere, waitingOf }
    },
  }
}

function inboxOf(places: MemoryPlaces): Inbox {
  return {
    durability: 'memory',
    open: async () => ({ waiting: places.waiting() }),
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
    vehicles: places.vehicles,
    close: async () => places.close(),
  }
}

/** The ids of what an erasure finds. */
interface Found {
  readonly all: Set<string>
  readonly waiting: Set<string>
  readonly dead: Set<string>
}

/** What one reader still has to do. The messages themselves are shared. */
class MemoryPlaces {
  readonly vehicles: VehicleStore | undefined
  readonly #settings: InboxSettings
  readonly #kept = new PassingMap<string, Kept>()
  readonly #dead = new Map<string, DeadLetter>()
  readonly #mostDead: number
  readonly #limits: { readonly pendingMessages: number; readonly pendingBytes: number }
  /** Made once: under overload, a stack trace for each refusal would cost more than everything else in it. */
  readonly #full: FleethookError
  #bytes = 0
  #deadBytes = 0
  #isClosed = false

  constructor(settings: InboxSettings, mostDead: number) {
    const { pendingMessages = 50_000, pendingBytes = 64 * 1_048_576 } = settings
    this.#settings = settings
    this.#mostDead = mostDead
    this.#limits = { pendingMessages, pendingBytes }
    this.vehicles = settings.vehiclesInMemory?.()
    this.#full = new FleethookError(
      'inbox_full',
      `The inbox is full: it may hold ${pendingMessages} messages or ${pendingBytes} bytes.`,
      { hint: 'Make the handlers faster, or raise `concurrency` or `limits`.' },
    )
  }

  /** What a reader was given before it was opened. */
  async *waiting(): AsyncGenerator<readonly Waiting[]> {
    const page = [...this.#kept.values()].flatMap(({ message }) => message ?? [])
    if (page.length > 0) yield page
  }

  /** Throws when there is no room for them. */
  put(messages: readonly InboxMessage[]): void {
    let bytes = 0
    for (const message of messages) bytes += message.bytes
    if (this.#isClosed)
      throw new FleethookError('inbox_unavailable', 'The inbox was closed: its receiver has been drained.')
    if (!this.#hasRoom(messages.length, bytes)) throw whyNeverFit(messages.length, bytes, this.#limits) ?? this.#full
    this.#bytes += bytes
    for (const message of messages) this.#kept.set(message.id, { message, deliveries: 0, letter: undefined })
  }

  /** Keeps a place for each message for which there is room. The receiver never waits for that. */
  follow(messages: readonly InboxMessage[], from: RequestScope): void {
    if (this.#isClosed || messages.length === 0) return
    const placed: InboxMessage[] = []
    const skipped: InboxMessage[] = []
    for (const message of messages) {
      const hasRoom = this.#hasRoom(1, message.bytes)
      if (hasRoom) this.put([message])
      ;(hasRoom ? placed : skipped).push(message)
    }
    if (placed.length > 0) this.#settings.onPut?.(placed, from)
    if (skipped.length > 0) this.#settings.onSkipped?.(skipped)
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
    const found = this.#listed().filter(
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

  /** Adds what there is of a vehicle to `found`, and erases it unless `dryRun`. Returns the number of messages of the wire that waited. */
  erase(vin: string, dryRun: boolean, found: Found): number {
    const own = this.#listed().filter(({ message }) => isAbout(message, vin))
    let waiting = 0
    for (const { message, state } of own) {
      const { id } = message
      const waits = state === 'waiting' && message.kind === 'wire'
      found.all.add(id)
      if (state === 'dead') found.dead.add(id)
      if (waits) found.waiting.add(id)
      if (waits) waiting += 1
      if (!dryRun) void (state === 'dead' ? this.removeDead(id) : this.settle(id))
    }
    return waiting
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
    return this.#hasRoom(1, 1) ? undefined : 'inbox_full'
  }

  close(): void {
    this.#isClosed = true
  }

  #hasRoom(messages: number, bytes: number): boolean {
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
    if (dropped > 0) this.#settings.onDropped?.(dropped)
  }

  #listed(): readonly ListedMessage[] {
    const found: ListedMessage[] = []
    for (const { message } of this.#kept.values()) if (message !== undefined) found.push({ message, state: 'waiting' })
    for (const letter of this.#dead.values()) found.push(listedLetter(letter))
    return found
  }
}
