import type { Clock, Timer } from '../base/clock.ts'
import type { RequestWork } from './work.ts'

/** How long the work of a request may go on after it began. Workers cut off what `waitUntil` holds at 30 seconds. */
export const requestWorkMs = 25_000

/** Follows the requests whose work the runtime ends by itself, with or without notice. */
export class RequestDeadlines {
  readonly #clock: Clock
  readonly #expire: (request: RequestWork, sinceMs: number) => void
  readonly #held = new Map<RequestWork, number>()
  /** When each request began, as far as it is known: the runtime counts from then. */
  readonly #began = new WeakMap<object, number>()

  constructor(clock: Clock, expire: (request: RequestWork, sinceMs: number) => void) {
    this.#clock = clock
    this.#expire = expire
  }

  /** Keeps the request's work alive until its messages are settled, and calls `expire` when that takes too long. */
  hold(request: RequestWork): void {
    const now = this.#clock.now()
    // The timer of a request is gone when the runtime has ended the request. The requests are nearly in order of age, so this
    // looks at a few at most.
    for (const [other, sinceMs] of this.#held) {
      if (now - sinceMs <= requestWorkMs) break
      this.#end(other, sinceMs)
    }
    const { context } = request
    if (context === undefined) return
    const sinceMs = this.#began.get(context) ?? now
    this.#began.set(context, sinceMs)
    this.#held.set(request, sinceMs)
    const timer = this.#clock.after(Math.max(0, sinceMs + requestWorkMs - now), () => this.#end(request, sinceMs))
    context.waitUntil(this.#settled(request, timer))
  }

  #end(request: RequestWork, sinceMs: number): void {
    if (this.#held.delete(request)) this.#expire(request, sinceMs)
  }

  async #settled(request: RequestWork, timer: Timer): Promise<void> {
    await request.settled()
    timer.cancel()
    this.#held.delete(request)
  }
}
