import type { Claim } from '../../../src/inbox/inbox.ts'

/** A pending message in memory. */
export interface CachedMessage extends Claim {
  readonly seq: number
  deliveries: number
  isClaimed: boolean
}

/** The limits for waiting messages. A parsed event takes several times the memory of its text. */
const mostBytes = 2 * 1_048_576
const mostMessages = 2_048

/**
 * Pending messages in memory: every claimed one, and the newest of those that wait. So most messages are neither read from the
 * disk nor parsed again. When memory is used up, the oldest waiting messages go first: others are handled before they are.
 */
export class MessageCache {
  readonly #cached = new Map<string, CachedMessage>()
  #waitingBytes = 0
  #waitingCount = 0
  /** Ids of the waiting messages, oldest first from `#oldest` on, and ids of some that no longer wait. */
  #order: string[] = []
  #oldest = 0

  get(id: string): CachedMessage | undefined {
    return this.#cached.get(id)
  }

  /** The message waits, for the first time or again. */
  wait(message: CachedMessage): void {
    const { id, bytes } = message.message
    this.#stopWaiting(id)
    // Deleted first, so that the ids are in the order in which they began to wait.
    this.#cached.delete(id)
    this.#cached.set(id, message)
    message.isClaimed = false
    this.#waitingCount += 1
    this.#waitingBytes += bytes
    this.#order.push(id)
    while (this.#waitingBytes > mostBytes || this.#waitingCount > mostMessages) {
      const oldestId = this.#order[this.#oldest] ?? ''
      this.#oldest += 1
      if (this.#cached.get(oldestId)?.isClaimed === false) this.remove(oldestId)
    }
    // A message that was rescheduled several times is in the order as many times.
    if (this.#order.length >= 1_024 + 4 * this.#waitingCount) this.#compact()
  }

  /** The message is handed out. It stays in memory until it is removed or waits again. */
  claim(message: CachedMessage): void {
    const { id } = message.message
    this.#stopWaiting(id)
    this.#cached.set(id, message)
    message.isClaimed = true
  }

  remove(id: string): void {
    this.#stopWaiting(id)
    this.#cached.delete(id)
  }

  #stopWaiting(id: string): void {
    const found = this.#cached.get(id)
    if (found === undefined || found.isClaimed) return
    this.#waitingCount -= 1
    this.#waitingBytes -= found.message.bytes
  }

  #compact(): void {
    this.#order = []
    for (const [id, { isClaimed }] of this.#cached) if (!isClaimed) this.#order.push(id)
    this.#oldest = 0
  }
}
