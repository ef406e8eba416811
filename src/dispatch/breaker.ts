import { type Clock, elapsedMs, type Timer } from '../base/clock.ts'

/** What circuit breakers report. */
export interface BreakerEvents {
  /** A resting handler threw `Retry` when it was tried, so it rests until `atMs`. `failures`: the runs that failed in a row. */
  resting(handler: object, atMs: number, failures: number): void
  /** A resting handler has succeeded again. */
  recovered(handler: object): void
}

/** A handler whose circuit breaker is open. */
export interface RestingHandler {
  readonly handler: object
  readonly sinceMs: number
  /** When it is tried again with one message. */
  readonly nextTryMs: number
}

/** The number of lanes for which a handler has to fail, without a success in between, before its circuit breaker opens. */
const lanesToOpen = 5

/** Beyond this number of lanes, a handler counts as failed for every lane. */
const mostLanes = 10_000

const firstRestMs = 1_000
const longestRestMs = 60_000

/** The state of one handler. Only {@link Breakers} changes it. */
interface Breaker {
  /** Lanes that it failed for since its last success. */
  readonly lanes: Set<string>
  failures: number
  sinceMs: number | undefined
  restMs: number
  /** By the clock that is never set back. */
  nextTryMs: number
  isProbing: boolean
  timer: Timer | undefined
}

/**
 * One circuit breaker per handler. When a database is down, its handler fails for every vehicle, and trying each message
 * until its attempts are used up would only make dead letters. So the handler rests, and the attempts of its messages do not
 * count. It is tried with one message at a time: when the rest is over, and with each vehicle that it has not failed for yet,
 * so that vehicles for which it works do not wait.
 */
export class Breakers {
  readonly #clock: Clock
  readonly #events: BreakerEvents
  readonly #onTry: (handler: object) => void
  readonly #onRecovered: (handler: object) => void
  /** Handlers that have failed since their last success. */
  readonly failing: Map<object, Breaker> = new Map()

  /** `onTry` is called when a resting handler may be tried with one message, `onRecovered` when it has succeeded again. */
  constructor(
    clock: Clock,
    events: BreakerEvents,
    onTry: (handler: object) => void,
    onRecovered: (handler: object) => void,
  ) {
    this.#clock = clock
    this.#events = events
    this.#onTry = onTry
    this.#onRecovered = onRecovered
  }

  /**
   * Whether a handler rests now for a lane. When it returns false for a handler that rests, the caller has to try it with one
   * message.
   */
  isResting(handler: object, lane: string): boolean {
    const breaker = this.failing.get(handler)
    if (breaker?.sinceMs === undefined) return false
    if (breaker.isProbing || (this.hasFailedFor(handler, lane) && this.#leftMs(breaker) > 0)) return true
    breaker.isProbing = true
    return false
  }

  /** Whether a handler has failed for a lane since its last success. */
  hasFailedFor(handler: object, lane: string): boolean {
    const lanes = this.failing.get(handler)?.lanes
    return lanes !== undefined && (lanes.size >= mostLanes || lanes.has(lane))
  }

  /** The time until a resting handler is tried again, in milliseconds. */
  restMs(handler: object): number {
    const breaker = this.failing.get(handler)
    return breaker === undefined ? 0 : Math.max(firstRestMs, this.#leftMs(breaker))
  }

  /**
   * A run of the handler failed for a message of this lane. Returns 0, or, when the handler rests from now on, the number of
   * failures since its last success.
   */
  failed(handler: object, lane: string): number {
    let breaker = this.failing.get(handler)
    if (breaker === undefined) {
      breaker = {
        ...{ lanes: new Set<string>(), failures: 0, sinceMs: undefined, restMs: firstRestMs, nextTryMs: 0 },
        ...{ isProbing: false, timer: undefined },
      }
      this.failing.set(handler, breaker)
    }
    breaker.failures += 1
    if (breaker.lanes.size < mostLanes) breaker.lanes.add(lane)
    if (breaker.sinceMs === undefined) {
      if (breaker.lanes.size < lanesToOpen) return 0
      breaker.sinceMs = this.#clock.now()
      this.#rest(handler, breaker)
    } else if (breaker.isProbing) {
      if (this.#leftMs(breaker) <= 0) {
        breaker.restMs = Math.min(longestRestMs, breaker.restMs * 2)
        this.#rest(handler, breaker)
      } else breaker.isProbing = false
    }
    return breaker.failures
  }

  succeeded(handler: object): void {
    const breaker = this.failing.get(handler)
    if (breaker === undefined) return
    this.failing.delete(handler)
    breaker.timer?.cancel()
    if (breaker.sinceMs === undefined) return
    this.#events.recovered(handler)
    this.#onRecovered(handler)
  }

  /** A run threw `Retry`, which is neither a success nor a failure. A handler that was being tried goes on resting. */
  askedToWait(handler: object): void {
    const breaker = this.failing.get(handler)
    if (breaker?.isProbing !== true) return
    this.#rest(handler, breaker)
    this.#events.resting(handler, this.#clock.now() + this.#leftMs(breaker), breaker.failures)
  }

  /** The handlers that rest now. */
  resting(): readonly RestingHandler[] {
    return [...this.failing].flatMap(([handler, breaker]) => {
      const { sinceMs } = breaker
      return sinceMs === undefined ? [] : [{ handler, sinceMs, nextTryMs: this.#clock.now() + this.#leftMs(breaker) }]
    })
  }

  /** No timer fires any more. */
  stop(): void {
    for (const { timer } of this.failing.values()) timer?.cancel()
  }

  #rest(handler: object, breaker: Breaker): void {
    breaker.isProbing = false
    const restMs = Math.round(breaker.restMs * (0.75 + Math.random() / 4))
    breaker.nextTryMs = elapsedMs(this.#clock) + restMs
    this.#arm(handler, breaker, restMs)
  }

  #leftMs({ nextTryMs }: Breaker): number {
    return Math.ceil(nextTryMs - elapsedMs(this.#clock))
  }

  /** The timer repeats, because the message that may try the handler can end for another reason before its run. */
  #arm(handler: object, breaker: Breaker, afterMs: number): void {
    breaker.timer?.cancel()
    breaker.timer = this.#clock.after(afterMs, () => {
      this.#arm(handler, breaker, breaker.restMs)
      // A timer can fire some milliseconds early.
      breaker.nextTryMs = Math.min(breaker.nextTryMs, elapsedMs(this.#clock))
      this.#onTry(handler)
    })
  }
}
