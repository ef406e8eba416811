import type { Clock, Timer } from '../base/clock.ts'
import type { RequestWork } from './message.ts'
import type { Reports } from '../reports/reports.ts'

/** How long the work of a request may go on after it began. Workers cut off what `waitUntil` holds at 30 seconds. */
const requestWorkMs = 25_000

/** When the last line about a request has to be written, counted from its beginning. */
const requestEndMs = 28_000

interface Held {
  readonly sinceMs: number
  timer: Timer | undefined
}

/** Follows the requests whose work the runtime ends by itself, with or without notice. */
export class RequestDeadlines {
  readonly #clock: Clock
  readonly #reports: Reports
  readonly #expire: (request: RequestWork, sinceMs: number) => void
  readonly #held = new Map<RequestWork, Held>()
  /** When each request began, as far as it is known: the runtime counts from then. */
  readonly #began = new WeakMap<object, number>()

  constructor(clock: Clock, reports: Reports, expire: (request: RequestWork, sinceMs: number) => void) {
    this.#clock = clock
    this.#reports = reports
    this.#expire = expire
  }

  /** Keeps the request's work alive until its messages are settled. */
  keepAlive(request: RequestWork): void {
    const now = this.#clock.now()
    // The timer of a request is gone when the runtime has ended the request. The requests are nearly in order of age, so this
    // looks at a few at most.
    for (const [other, { sinceMs }] of this.#held) {
      if (now - sinceMs <= requestWorkMs) break
      this.#end(other, sinceMs)
    }
    const { context } = request
    if (context === undefined) return
    const sinceMs = this.#began.get(context) ?? now
    this.#began.set(context, sinceMs)
    const held: Held = { sinceMs, timer: undefined }
    this.#held.set(request, held)
    const settled = request.settled().then(() => {
      held.timer?.cancel()
      this.#held.delete(request)
      return this.#reports.requestEnds(Math.max(0, sinceMs + requestEndMs - this.#clock.now()))
    })
    context.waitUntil(settled)
  }

  /** Its handlers have started and are not done: calls `expire` when they take too long. */
  watch(request: RequestWork): void {
    const held = this.#held.get(request)
    if (held === undefined) return
    const leftMs = held.sinceMs + requestWorkMs - this.#clock.now()
    held.timer = this.#clock.after(Math.max(0, leftMs), () => this.#end(request, held.sinceMs))
  }

  #end(request: RequestWork, sinceMs: number): void {
    if (this.#held.delete(request)) this.#expire(request, sinceMs)
  }
}
