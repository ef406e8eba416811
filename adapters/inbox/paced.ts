import type { Clock } from '../../src/base/clock.ts'

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
