import { setImmediate } from 'node:timers/promises'
import type { Timer } from '../../../src/base/clock.ts'
import type { Health } from './health.ts'
import type { Store } from './store.ts'

/** How often it says that it is alive, and looks whether something can be dropped. */
const tidyMs = 10_000

/** What is done in the background as long as the inbox is open. Returns how to stop it. */
export function tidyEvery({
  store,
  health,
  now,
  after,
  pendingBytes,
}: {
  readonly store: Store
  readonly health: Health
  readonly now: () => number
  readonly after: (ms: number, run: () => void) => Timer
  readonly pendingBytes: () => number
}): () => void {
  let stopped = false
  let timer = after(tidyMs, () => void tidy())

  async function tidy(): Promise<void> {
    try {
      for (let more = true; more && !stopped && health.isUsable;) {
        const result = await store.tidy(now(), pendingBytes())
        more = result.more
        health.noteRoom(result.onCapacity)
        await setImmediate()
      }
    } catch (error) {
      health.failed(error)
    }
    if (!stopped) timer = after(tidyMs, () => void tidy())
  }

  return () => {
    stopped = true
    timer.cancel()
  }
}
