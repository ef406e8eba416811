import { seqOf } from '../../../src/inbox/delivery-id.ts'
import type { Inbox } from '../../../src/inbox/inbox.ts'
import type { GroupCommit } from './group-commit.ts'
import type { Kept, KeptMessages } from './kept.ts'
import type { Store } from './store.ts'
import type { Suspects } from './suspects.ts'

/** Hands messages out, and counts how often. */
export type Claims = Pick<Inbox, 'claim'>

export interface ClaimsOptions {
  readonly store: Pick<Store, 'find'>
  readonly queue: GroupCommit
  readonly kept: KeptMessages
  readonly suspects: Suspects
  /** Reads from the file. */
  readonly reading: <T>(read: () => Promise<T>) => Promise<T>
}

export function createClaims({ store, queue, kept, suspects, reading }: ClaimsOptions): Claims {
  async function find(id: string, place: number): Promise<Kept | undefined> {
    if (queue.isSettled(place)) return undefined
    if (queue.touches(place)) await queue.flush()
    const found = await reading(() => store.find(place))
    if (found?.message.id !== id) return undefined
    return kept.get(id) ?? { ...found, place }
  }

  /** A disk that fails for a while must not look like a message that ends its process each time. */
  function takeBack(found: Kept, error: unknown): never {
    const { place, message } = found
    found.deliveries -= 1
    queue.change({ place, deliveries: -1 })
    suspects.giveBack(message.lane)
    throw error
  }

  return {
    async claim(id) {
      const place = seqOf(id)
      const found = kept.get(id) ?? (await find(id, place))
      if (found === undefined) return undefined
      const { message, deliveries, replayed } = found
      found.deliveries += 1
      kept.claim(found)
      queue.change({ place, deliveries: 1 })
      if (suspects.take(place, message.lane)) await queue.flush().catch((error: unknown) => takeBack(found, error))
      return { message, deliveries, replayed }
    },
  }
}
