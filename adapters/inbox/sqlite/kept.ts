import { PassingMap } from '../../../src/base/passing-map.ts'
import type { Pending } from './store.ts'

/** A message that need not be read from the disk. */
export interface Kept extends Pending {
  readonly place: number
  deliveries: number
}

/**
 * Messages in memory: all that are handed out, and those that came last, so that most are neither read from the disk nor
 * parsed again. The oldest that wait make room for the newest: they wait behind something.
 */
export interface KeptMessages {
  get(id: string): Kept | undefined
  /** It is new, and waits. */
  add(kept: Kept): void
  /** It was handed out, and waits again. */
  release(kept: Kept): void
  /** It is handed out, and stays until it is removed or waits again. */
  claim(kept: Kept): void
  remove(id: string): void
}

/** What waits in memory at most. An event takes several times the room of its text. */
const mostBytes = 4 * 1_048_576
const mostMessages = 8_192

export function createKeptMessages(): KeptMessages {
  const waiting = new PassingMap<string, Kept>()
  const claimed = new PassingMap<string, Kept>()
  /** What waits in the order in which it came, and some that no longer does: by ids, which hold no event in memory. */
  let order: string[] = []
  let oldest = 0
  let bytes = 0

  function forget(id: string): void {
    const kept = waiting.get(id)
    if (kept === undefined) return
    waiting.delete(id)
    bytes -= kept.message.bytes
  }

  function makeRoom(): void {
    while (bytes > mostBytes || waiting.size > mostMessages) {
      const id = order[oldest]
      if (id === undefined) return
      oldest += 1
      forget(id)
    }
    if (order.length < 1_024 + 4 * waiting.size) return
    // Anew, not without what is gone: one that is put back again and again is in it each time.
    order = Array.from(waiting.values(), ({ message }) => message.id)
    oldest = 0
  }

  function add(kept: Kept): void {
    waiting.set(kept.message.id, kept)
    bytes += kept.message.bytes
    order.push(kept.message.id)
    makeRoom()
  }

  return {
    get: (id) => claimed.get(id) ?? waiting.get(id),
    add,
    release(kept) {
      claimed.delete(kept.message.id)
      forget(kept.message.id)
      add(kept)
    },
    claim(kept) {
      forget(kept.message.id)
      claimed.set(kept.message.id, kept)
    },
    remove(id) {
      forget(id)
      claimed.delete(id)
    },
  }
}
