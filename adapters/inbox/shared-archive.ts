import type { Clock } from '../../src/base/clock.ts'
import { createDeadLetterReader } from '../../src/inbox/archive.ts'
import type { DeadLetters, MessageSelection } from '../../src/inbox/dead-letters.ts'
import type { Archive } from '../../src/inbox/inbox.ts'

/** The dead letters that a shared system keeps. */
export interface DeadLetterStore extends Pick<Archive, 'list'> {
  /** Makes dead letters waiting messages again, in the order given. Resolves to their number. */
  replay(ids: readonly string[]): Promise<number>
  discard(ids: readonly string[]): Promise<number>
}

/** What `receiver.deadLetters` does with them. */
export function deadLettersOf(
  store: DeadLetterStore,
  reread: Parameters<typeof createDeadLetterReader>[1],
): DeadLetters {
  const reader = createDeadLetterReader(store, reread)
  type Which = string | (MessageSelection & { readonly dryRun?: boolean | undefined })
  const each =
    (run: (ids: readonly string[]) => Promise<number>) =>
    async (which: Which): Promise<number> => {
      const ids = typeof which === 'string' ? [which] : await reader.ids(which)
      return typeof which !== 'string' && which.dryRun === true ? ids.length : run(ids)
    }
  return {
    list: reader.list,
    get: reader.get,
    replay: each((ids) => store.replay(ids)),
    discard: each((ids) => store.discard(ids)),
  }
}

/** The most replayed messages per second. The limit keeps new messages from waiting long. */
const perSecond = 500
const atOnce = 50

/** Replays in steps, so that new messages run in between. Keeps the order of the items. */
export async function paced<Item>(
  clock: Clock,
  items: readonly Item[],
  run: (some: readonly Item[]) => Promise<unknown>,
): Promise<void> {
  for (let start = 0; start < items.length; start += atOnce) {
    const some = items.slice(start, start + atOnce)
    // Also after the last ones: the next page follows at once.
    const rest = new Promise<void>((resolve) => {
      clock.after((1_000 * some.length) / perSecond, resolve)
    })
    await Promise.all([rest, run(some)])
  }
}
