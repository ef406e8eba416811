import type { Clock, Timer } from '../clock.ts'
import type { Batch } from './work.ts'

/** Below the 30 seconds after which Workers cut what `waitUntil` holds. */
export const heldWorkMs = 25_000

/** Follows the requests whose work the runtime ends on its own, with or without telling. */
export interface Held {
  /** Holds the request's surroundings until the batch is settled, and calls `expire` when that takes too long. */
  hold(batch: Batch): void
}

export function createHeld(clock: Clock, expire: (batch: Batch, sinceMs: number) => void): Held {
  const held = new Map<Batch, number>()

  /** When each request began, as far as it is known: that is what the runtime counts from. */
  const began = new WeakMap<object, number>()

  function end(batch: Batch, sinceMs: number): void {
    if (held.delete(batch)) expire(batch, sinceMs)
  }

  async function settled(batch: Batch, timer: Timer): Promise<void> {
    await batch.settled()
    timer.cancel()
    held.delete(batch)
  }

  return {
    hold(batch) {
      const now = clock.now()
      // The timer of a request that was ended died with it. Oldest first, or nearly: a few at most are looked at.
      for (const [other, sinceMs] of held) {
        if (now - sinceMs <= heldWorkMs) break
        end(other, sinceMs)
      }
      const { context } = batch
      if (context === undefined) return
      const sinceMs = began.get(context) ?? now
      began.set(context, sinceMs)
      held.set(batch, sinceMs)
      const timer = clock.after(Math.max(0, sinceMs + heldWorkMs - now), () => end(batch, sinceMs))
      context.waitUntil(settled(batch, timer))
    },
  }
}
