import { type Clock, elapsedMs, type Timer } from '../base/clock.ts'
import type { Message, Registered } from './message.ts'
import type { Reports } from '../reports/reports.ts'

interface BreakerHost {
  readonly options: { readonly clock: Clock; readonly reports: Reports }
  resume(message: Message, afterMs?: number): void
}

/** The number of lanes for which a handler has to fail, without a success in between, before its circuit breaker opens. */
const lanesToOpen = 5

const firstPauseMs = 1_000
const longestPauseMs = 60_000

/**
 * The circuit breaker of a handler that has failed since its last success. When a database is down, its handler fails for every vehicle, and
 * trying each message until its attempts are used up would only make dead letters. So the handler is paused, and the attempts of its messages do
 * not count. It is tried with one message at a time: when the pause is over, and with each vehicle that it has not failed for yet, so that
 * vehicles for which it works do not wait. The first success closes the breaker.
 */
export class Breaker {
  readonly #handler: Registered
  readonly #core: BreakerHost
  readonly #clock: Clock
  /** Lanes that it failed for since its last success, until it opens. */
  readonly #lanes = new Set<string>()
  /** Messages that wait: first the ones it has not failed for, then the others. */
  readonly #untried = new Set<Message>()
  readonly #tried = new Set<Message>()
  /** The messages that it has failed for while the breaker was open, and that are not over, and the time before which it may not run for them. */
  readonly #failedFor = new WeakMap<Message, number>()
  #pauseMs = firstPauseMs
  #nextTryMs = 0
  /** The message that tries the handler. */
  #probe: Message | undefined
  #timer: Timer | undefined
  #isClosed = false
  /** In a row. */
  failures = 0
  /** When the breaker opened. `undefined`: it is closed. */
  sinceMs: number | undefined

  constructor(handler: Registered, core: BreakerHost) {
    this.#handler = handler
    this.#core = core
    this.#clock = core.options.clock
  }

  get nextTryMs(): number {
    return this.#clock.now() + this.#leftMs()
  }

  lets(message: Message): boolean {
    if (this.sinceMs === undefined) return true
    if (this.#mustWait(message)) return false
    this.#probe = message
    return true
  }

  #mustWait(message: Message): boolean {
    // A probe can end for another reason before its run.
    const isProbing = this.#probe !== undefined && !this.#probe.isOver
    return isProbing ? this.#probe !== message : this.#failedFor.has(message) && this.#leftMs() > 0
  }

  /** The handler failed with something other than `Retry` or `Discard`. Returns how long its message waits; `undefined` while closed. */
  failed(message: Message, leastMs: number): number | undefined {
    this.failures += 1
    if (this.sinceMs === undefined) {
      this.#lanes.add(message.lane)
      if (this.#lanes.size < lanesToOpen) return undefined
      this.sinceMs = this.#clock.now()
      this.#pause()
    } else if (this.#probe === message) {
      this.#probe = undefined
      if (this.#leftMs() <= 0) {
        this.#pauseMs = Math.min(longestPauseMs, this.#pauseMs * 2)
        this.#pause()
      }
    }
    this.#failedFor.set(message, elapsedMs(this.#clock) + leastMs)
    return Math.max(firstPauseMs, leastMs, this.#leftMs())
  }

  /** The handler threw `Retry`, which is neither a success nor a failure. A paused handler stays paused. */
  askedToWait(): void {
    if (this.#probe === undefined) return
    this.#pause()
    this.#core.options.reports.stillPaused(this.#handler.name, this.nextTryMs, this.failures)
  }

  /** Keeps a message, and resumes it later. `false`: the handler may be tried. */
  keep(message: Message): boolean {
    const notBefore = this.#failedFor.get(message)
    const restMs = Math.ceil((notBefore ?? 0) - elapsedMs(this.#clock))
    if (notBefore !== undefined && restMs > 0) this.#resume(message, restMs)
    // While its other handlers ran, the breaker may have closed, or the run for another vehicle may have ended.
    else if (this.#isClosed || !this.#mustWait(message)) return false
    else (notBefore === undefined ? this.#untried : this.#tried).add(message)
    // The try has ended, so the handler may be tried with a vehicle that it has not failed for.
    if (notBefore !== undefined && (this.#probe === undefined || this.#probe.isOver)) this.#wakeFirst(this.#untried)
    return true
  }

  /** The handler succeeded. */
  close(): void {
    this.#isClosed = true
    if (this.sinceMs !== undefined) this.#core.options.reports.recovered(this.#handler.name)
    this.stop()
    for (const message of this.#untried) this.#resume(message)
    // The handler may still fail for these, so they come back one after another.
    for (const message of this.#tried) this.#resume(message, Math.ceil(firstPauseMs * Math.random()))
  }

  stop(): void {
    this.#timer?.cancel()
  }

  #wakeFirst(messages: Set<Message>): boolean {
    for (const message of messages) {
      messages.delete(message)
      if (this.#resume(message)) return true
    }
    return false
  }

  /** It may have its turn again. Returns whether the breaker still kept it. */
  #resume(message: Message, afterMs: number = 0): boolean {
    if (message.heldBy !== this) return false
    this.#core.resume(message, afterMs)
    return true
  }

  #pause(): void {
    this.#probe = undefined
    const pauseMs = Math.round(this.#pauseMs * (0.75 + Math.random() / 4))
    this.#nextTryMs = elapsedMs(this.#clock) + pauseMs
    this.#arm(pauseMs)
  }

  #leftMs(): number {
    return Math.ceil(this.#nextTryMs - elapsedMs(this.#clock))
  }

  /** The timer repeats, because the message that may try the handler can end for another reason before its run. */
  #arm(afterMs: number): void {
    this.#timer?.cancel()
    this.#timer = this.#clock.after(afterMs, () => {
      this.#arm(this.#pauseMs)
      // A timer can fire some milliseconds early.
      this.#nextTryMs = Math.min(this.#nextTryMs, elapsedMs(this.#clock))
      if (!this.#wakeFirst(this.#untried)) this.#wakeFirst(this.#tried)
    })
  }
}
