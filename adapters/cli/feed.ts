import { setTimeout } from 'node:timers/promises'
import * as z from 'zod/mini'
import type { ShownItem } from '../../src/operator/feed.ts'
import { isJsonObject } from '../../src/wire/record.ts'
import { type ConnectionOptions, Operator } from './operator.ts'

const isItem = (value: unknown): boolean =>
  isJsonObject(value) && typeof value['kind'] === 'string' && typeof value['at'] === 'string'
const batch = z.object({
  items: z.array(z.custom<ShownItem>(isItem)),
  missed: z.optional(z.number()),
  ended: z.optional(z.string()),
})

/** Some items of a receiver's feed. */
export interface FollowedBatch {
  readonly items: readonly ShownItem[]
  /** The number of items that the feed dropped before these. */
  readonly missed: number
  /** Whether it belongs to what the feed had kept before the command began. */
  readonly isKept: boolean
  /** Whether it is the last part of what the feed has now. */
  readonly isLast: boolean
}

/** The pause before a command looks for a stopped receiver again, in milliseconds. */
const againMs = 1_000

/**
 * The items of a receiver's feed until the signal aborts, on and on through restarts of the receiver. Rejects when no receiver runs at
 * first. A feed keeps no successful message while nobody reads it, so `onLost` and `onFound` say where some may be missing.
 */
export async function* follow(
  operator: Operator,
  query: URLSearchParams,
  signal: AbortSignal,
  onLost: () => void,
  onFound: () => void,
): AsyncGenerator<FollowedBatch> {
  let since: string | undefined
  let isLost = false
  let isSlow = false
  while (!signal.aborted) {
    if (since !== undefined) query.set('since', since)
    try {
      for await (const { id, data } of operator.stream(`/feed?${query}`, signal)) {
        const { items, missed = 0, ended } = batch.parse(JSON.parse(data))
        if (ended !== undefined) {
          console.error('The receiver dropped this command, because it read too slowly. It goes on where it was.')
          isSlow = true
          break
        }
        if (isLost) onFound()
        isLost = false
        yield { items, missed, isKept: since === undefined, isLast: id !== undefined }
        since = id ?? since
      }
    } catch (error) {
      if (since === undefined && !signal.aborted) throw error
      if (error instanceof z.core.$ZodError) throw error
    }
    if (signal.aborted) return
    if (!isLost && !isSlow) onLost()
    isLost ||= !isSlow
    isSlow = false
    await setTimeout(againMs, undefined, { signal }).catch(() => {})
  }
}

/** The time to read the kept items of the feed, in milliseconds. The feed sends them at once. */
const feedMs = 5_000

/** The test messages and errors that the receiver's feed has kept, oldest first. Rejects when no receiver runs. */
export async function keptErrors(to: ConnectionOptions): Promise<readonly ShownItem[]> {
  const operator = new Operator(to, 'receiver')
  const items: ShownItem[] = []
  for await (const { id, data } of operator.stream('/feed?errors=true', AbortSignal.timeout(feedMs))) {
    items.push(...batch.parse(JSON.parse(data)).items)
    // The last part of the kept items has the cursor.
    if (id !== undefined) break
  }
  return items
}
