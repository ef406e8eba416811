import { noRequest, type RequestScope } from '../hosting/execution-context.ts'
import type { Inbox, InboxMessage, InboxHost, ReadersInMemory, Waiting } from './inbox.ts'
import { erasedOf, inboxOf, MemoryPlaces } from './memory.ts'

/**
 * The branches that read the inbox in memory of their receiver. Each has places of its own for the same messages, which it gets as the receiver puts
 * them, except timers: those are of the receiver's own rules.
 */
export function readersInMemory(mostDead: number): ReadersInMemory {
  const readers = new Map<string, MemoryReader>()
  return {
    add(name, settings) {
      const reader = new MemoryReader(settings, mostDead)
      readers.set(name, reader)
      return reader.inbox
    },
    follow(messages, from = noRequest) {
      const shared = messages.filter(({ kind }) => kind !== 'timer')
      for (const reader of readers.values()) reader.follow(shared, from)
    },
    async erase(vin, dryRun, here) {
      const found = [...readers].map(([name, { places }]) => [name, places.erase(vin, dryRun)] as const)
      if (!dryRun) for (const { places } of readers.values()) await places.vehicles?.forget(vin)
      const all = [...here, ...found.flatMap(([, its]) => its)]
      const waitingOf = Object.fromEntries(found.map(([name, its]) => [name, erasedOf(its).waiting]))
      return { ...erasedOf(all), waitingHere: erasedOf(here).waiting, waitingOf }
    },
  }
}

class MemoryReader {
  readonly places: MemoryPlaces
  readonly #settings: InboxHost

  constructor(settings: InboxHost, mostDead: number) {
    this.places = new MemoryPlaces(settings, mostDead)
    this.#settings = settings
  }

  get inbox(): Inbox {
    return {
      ...inboxOf(this.places),
      shared: { handsOut: 'stored' },
      open: async () => ({ waiting: this.#waiting() }),
      put: (messages, from = noRequest) => {
        this.places.put(messages)
        this.#settings.on({ type: 'stored', messages, from })
      },
    }
  }

  /** Keeps a place for each message for which there is room. The receiver never waits for that. */
  follow(messages: readonly InboxMessage[], from: RequestScope): void {
    if (this.places.refusing() === 'inbox_unavailable' || messages.length === 0) return
    const placed: InboxMessage[] = []
    const skipped: InboxMessage[] = []
    for (const message of messages) {
      const hasRoom = this.places.hasRoom(1, message.bytes)
      if (hasRoom) this.places.put([message])
      ;(hasRoom ? placed : skipped).push(message)
    }
    if (placed.length > 0) this.#settings.on({ type: 'stored', messages: placed, from })
    if (skipped.length > 0) this.#settings.on({ type: 'skipped', messages: skipped })
  }

  /** What it was given before it was opened. */
  async *#waiting(): AsyncGenerator<readonly Waiting[]> {
    const page = this.places.listed().flatMap(({ state, message }) => (state === 'waiting' ? [message] : []))
    if (page.length > 0) yield page
  }
}
