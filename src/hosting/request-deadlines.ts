import type { Clock } from '../base/clock.ts'
import type { ExecutionContext } from './execution-context.ts'

/** How long the work of a request may go on after it began. Workers cut off what `waitUntil` holds at 30 seconds. */
const requestWorkMs = 25_000

/** When the last line about a request has to be written, counted from its beginning. */
const requestEndMs = 28_000

/** The work that a runtime ends with its request. */
interface BoundWork {
  readonly context: ExecutionContext | undefined
  settled(): Promise<void>
}

interface Core<Work> {
  readonly options: {
    readonly clock: Clock
    readonly reports: { requestEnds(atMostMs: number): Promise<void> | undefined }
  }
  /** The runtime is about to end the request's work, or has ended it. */
  expire(request: Work, sinceMs: number): void
}

/** Follows the requests whose work the runtime ends by itself, with or without notice. */
export class RequestDeadlines<Work extends BoundWork> {
  readonly #core: Core<Work>
  /** When their work began, in milliseconds since the epoch. */
  readonly #held = new Map<Work, number>()
  /** When each request began, as far as it is known: the runtime counts from then. */
  readonly #began = new WeakMap<object, number>()

  constructor(core: Core<Work>) {
    this.#core = core
  }

  /** Keeps the request's work alive until its messages are settled. Calls `expire` when that takes too long. */
  keepAlive(request: Work): void {
    const { clock, reports } = this.#core.options
    const now = clock.now()
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
    const timer = clock.after(Math.max(0, sinceMs + requestWorkMs - now), () => this.#end(request, sinceMs))
    const settled = request.settled().then(() => {
      timer.cancel()
      this.#held.delete(request)
      return reports.requestEnds(Math.max(0, sinceMs + requestEndMs - clock.now()))
    })
    context.waitUntil(settled)
  }

  #end(request: Work, sinceMs: number): void {
    if (this.#held.delete(request)) this.#core.expire(request, sinceMs)
  }
}
