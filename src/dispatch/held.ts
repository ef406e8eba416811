import type { Clock, Timer } from '../base/clock.ts'
import type { Arrival } from './work.ts'

/** Below the 30 seconds after which Workers cut what `waitUntil` holds. */
export const heldWorkMs = 25_000

/** Follows the requests whose work the runtime ends on its own, with or without telling. */
export interface Held {
  /** Holds the request's surroundings until the arrival is settled, and calls `expire` when that takes too long. */
  hold(arrival: Arrival): void
}

export function createHeld(clock: Clock, expire: (arrival: Arrival, sinceMs: number) => void): Held {
  const held = new Map<Arrival, number>()

  /** When each request began, as far as it is known: that is what the runtime counts from. */
  const began = new WeakMap<object, number>()

  function end(arrival: Arrival, sinceMs: number): void {
    if (held.delete(arrival)) expire(arrival, sinceMs)
  }

  async function settled(arrival: Arrival, timer: Timer): Promise<void> {
    await arrival.settled()
    timer.cancel()
    held.delete(arrival)
  }

  return {
    hold(arrival) {
      const now = clock.now()
      // The timer of a request that was ended died with it. Oldest first, or nearly: a few at most are looked at.
      for (const [other, sinceMs] of held) {
        if (now - sinceMs <= heldWorkMs) break
        end(other, sinceMs)
      }
      const { context } = arrival
      if (context === undefined) return
      const sinceMs = began.get(context) ?? now
      began.set(context, sinceMs)
      held.set(arrival, sinceMs)
      const timer = clock.after(Math.max(0, sinceMs + heldWorkMs - now), () => end(arrival, sinceMs))
      context.waitUntil(settled(arrival, timer))
    },
  }
}
