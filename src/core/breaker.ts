import { type Clock, elapsedMs, type Timer } from '../base/clock.ts'
import type { Stats } from '../inbox/stats.ts'
import type { Message, Handler } from './message.ts'
import type { Reports } from '../reports/reports.ts'

/** What breakers need of their core. */
interface BreakerHost {
  readonly clock: Clock
  readonly reports: Reports
  /** A message may have its turn again. Does nothing unless a breaker keeps it. */
  resume(message: Message, afterMs?: number): void
}

/** After a failure: the breaker at which the message waits, if it is open, and the time until the next try. */
export interface Rest {
  readonly breaker: Breaker | undefined
  readonly restMs: number
}

/** The number of lanes for which a handler has to fail, without a success in between, before its circuit breaker opens. */
const lanesToOpen = 5

const firstPauseMs = 1_000
const longestPauseMs = 60_000

/**
 * One circuit breaker per handler. When a database is down, its handler fails for every vehicle, and trying each message until its
 * attempts are used up would only make dead letters. So the handler is paused, and the attempts of its messages do not count. It is tried
 * with one message at a time: when the pause is over, and with each vehicle that it has not failed for yet, so that vehicles for which
 * it works do not wait. The first success closes the breaker.
 */
export class Breakers {
  /** Handlers that have failed since their last success. */
  readonly failing: Map<Handler, Breaker> = new Map()
  readonly #host: BreakerHost

  constructor(host: BreakerHost) {
    this.#host = host
  }

  /** The breaker that keeps a message from a handler now. `undefined`: the handler may run, and the breaker counts on it. */
  keeperOf(message: Message, handler: Handler): Breaker | undefined {
    const breaker = this.failing.get(handler)
    return breaker === undefined || breaker.lets(message) ? undefined : breaker
  }

  /** A handler failed with something other than `Retry` or `Discard`. It may not run again for this message for `leastMs`. */
  failed(message: Message, handler: Handler, leastMs: number): Rest | undefined {
    let breaker = this.failing.get(handler)
    if (breaker === undefined) {
      breaker = new Breaker(this.#host)
      this.failing.set(handler, breaker)
    }
    return breaker.failed(message, leastMs)
  }

  /** A handler threw `Retry`, which is neither a success nor a failure. */
  askedToWait(handler: Handler): void {
    const breaker = this.failing.get(handler)
    const atMs = breaker?.askedToWait()
    if (breaker !== undefined && atMs !== undefined)
      this.#host.reports.stillPaused(handler.name, atMs, breaker.failures)
  }

  succeeded(handler: Handler): void {
    const breaker = this.failing.get(handler)
    if (breaker === undefined) return
    this.failing.delete(handler)
    if (breaker.sinceMs !== undefined) this.#host.reports.recovered(handler.name)
    breaker.close()
  }

  stop(): void {
    for (const breaker of this.failing.values()) breaker.stop()
  }

  paused(): Stats['paused'] {
    return [...this.failing].flatMap(([{ name }, { sinceMs, nextTryMs }]) =>
      sinceMs === undefined ? [] : [{ handler: name, since: new Date(sinceMs), nextTryAt: new Date(nextTryMs) }],
    )
  }
}

/** The breaker of one handler that fails. */
export class Breaker {
  readonly #core: BreakerHost
  /** Lanes that it failed for since its last success, until it opens. */
  readonly #lanes = new Set<string>()
  /** Messages that wait: those that the handler has not failed for, and the others. */
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

  constructor(core: BreakerHost) {
    this.#core = core
  }

  get nextTryMs(): number {
    return this.#core.clock.now() + this.#leftMs()
  }

  /** Whether a message may try the handler now. */
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

  failed(message: Message, leastMs: number): Rest | undefined {
    this.failures += 1
    if (this.sinceMs === undefined) {
      this.#lanes.add(message.lane)
      if (this.#lanes.size < lanesToOpen) return undefined
      this.sinceMs = this.#core.clock.now()
      this.#pause()
    } else if (this.#probe === message) {
      this.#probe = undefined
      if (this.#leftMs() <= 0) {
        this.#pauseMs = Math.min(longestPauseMs, this.#pauseMs * 2)
        this.#pause()
      }
    }
    this.#failedFor.set(message, elapsedMs(this.#core.clock) + leastMs)
    return { breaker: this, restMs: Math.max(firstPauseMs, leastMs, this.#leftMs()) }
  }

  /** Stays paused, and returns until when. `undefined`: it is not paused. */
  askedToWait(): number | undefined {
    if (this.#probe === undefined) return undefined
    this.#pause()
    return this.nextTryMs
  }

  /** Keeps a message, and resumes it later. `false`: the handler may be tried. */
  keep(message: Message): boolean {
    const notBefore = this.#failedFor.get(message)
    const restMs = Math.ceil((notBefore ?? 0) - elapsedMs(this.#core.clock))
    if (notBefore !== undefined && restMs > 0) this.#core.resume(message, restMs)
    // While its other handlers ran, the breaker may have closed, or the run for another vehicle may have ended.
    else if (this.#isClosed || !this.#mustWait(message)) return false
    else (notBefore === undefined ? this.#untried : this.#tried).add(message)
    // The try has ended, so the handler may be tried with a vehicle that it has not failed for.
    if (notBefore !== undefined && (this.#probe === undefined || this.#probe.isOver)) this.#wakeFirst(this.#untried)
    return true
  }

  close(): void {
    this.#isClosed = true
    this.stop()
    for (const message of this.#untried) this.#core.resume(message)
    // The handler may still fail for these, so they come back one after another.
    for (const message of this.#tried) this.#core.resume(message, Math.ceil(firstPauseMs * Math.random()))
  }

  stop(): void {
    this.#timer?.cancel()
  }

  #wakeFirst(messages: Set<Message>): boolean {
    for (const message of messages) {
      messages.delete(message)
      if (message.heldBy !== this) continue
      this.#core.resume(message)
      return true
    }
    return false
  }

  #pause(): void {
    this.#probe = undefined
    const pauseMs = Math.round(this.#pauseMs * (0.75 + Math.random() / 4))
    this.#nextTryMs = elapsedMs(this.#core.clock) + pauseMs
    this.#arm(pauseMs)
  }

  #leftMs(): number {
    return Math.ceil(this.#nextTryMs - elapsedMs(this.#core.clock))
  }

  /** The timer repeats, because the message that may try the handler can end for another reason before its run. */
  #arm(afterMs: number): void {
    this.#timer?.cancel()
    this.#timer = this.#core.clock.after(afterMs, () => {
      this.#arm(this.#pauseMs)
      // A timer can fire some milliseconds early.
      this.#nextTryMs = Math.min(this.#nextTryMs, elapsedMs(this.#core.clock))
      if (!this.#wakeFirst(this.#untried)) this.#wakeFirst(this.#tried)
    })
  }
}
