import type { Claim } from '../../../src/inbox/inbox.ts'

/** A pending message in memory. */
export interface CachedMessage extends Claim {
  readonly seq: number
  deliveries: number
  isClaimed: boolean
}

/**
 * Pending messages in memory: every claimed one, and the newest of those that wait. So most messages are neither read from the
 * disk nor parsed again. When memory is used up, the oldest waiting messages go first: others are handled before they are.
 */
interface MessageCache {
  get(id: string): CachedMessage | undefined
  /** The message waits, for the first time or again. */
  wait(message: CachedMessage): void
  /** The message is handed out. It stays in memory until it is removed or waits again. */
  claim(message: CachedMessage): void
  remove(id: string): void
}

/** The limits for waiting messages. A parsed event takes several times the memory of its text. */
const mostBytes = 2 * 1_048_576
const mostMessages = 2_048

export function createMessageCache(): MessageCache {
  const cached = new Map<string, CachedMessage>()
  let waitingBytes = 0
  let waitingCount = 0
  /** Ids of the waiting messages, oldest first from `oldest` on, and ids of some that no longer wait. */
  let order: string[] = []
  let oldest = 0

  function count(message: CachedMessage, sign: 1 | -1): void {
    waitingCount += sign
    waitingBytes += sign * message.message.bytes
  }

  /** Rebuilds the order when most of it is out of date. A message that was rescheduled several times is in it as many times. */
  function compact(): void {
    order = []
    for (const [id, { isClaimed }] of cached) if (!isClaimed) order.push(id)
    oldest = 0
  }

  return {
    get: (id) => cached.get(id),

    wait(message) {
      const { id } = message.message
      const before = cached.get(id)
      if (before !== undefined && !before.isClaimed) count(before, -1)
      cached.delete(id)
      cached.set(id, message)
      message.isClaimed = false
      count(message, 1)
      order.push(id)
      while (waitingBytes > mostBytes || waitingCount > mostMessages) {
        const oldestId = order[oldest] ?? ''
        oldest += 1
        const found = cached.get(oldestId)
        if (found === undefined || found.isClaimed) continue
        cached.delete(oldestId)
        count(found, -1)
      }
      if (order.length >= 1_024 + 4 * waitingCount) compact()
    },

    claim(message) {
      const { id } = message.message
      const before = cached.get(id)
      if (before !== undefined && !before.isClaimed) count(before, -1)
      cached.set(id, message)
      message.isClaimed = true
    },

    remove(id) {
      const found = cached.get(id)
      if (found === undefined) return
      cached.delete(id)
      if (!found.isClaimed) count(found, -1)
    },
  }
}
