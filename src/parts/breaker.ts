import { elapsedMs, type Timer } from '../base/clock.ts'
import type { Entry, Step } from '../core/entry.ts'
import type { ClosedGate, Gate, Part, PartHost } from '../core/part.ts'

export interface BreakerEvents {
  /** A resting handler threw `Retry` when it was tried, so it rests until `atMs`. `failures`: the runs that failed in a row. */
  resting(handler: string, atMs: number, failures: number): void
  recovered(handler: string): void
}

export interface RestingHandler {
  readonly handler: string
  readonly sinceMs: number
  /** When it is tried again with one message. */
  readonly nextTryMs: number
}

/** The number of lanes for which a handler has to fail, without a success in between, before its circuit breaker opens. */
const lanesToOpen = 5

const firstRestMs = 1_000
const longestRestMs = 60_000

/**
 * One circuit breaker per handler. When a database is down, its handler fails for every vehicle, and trying each message until its
 * attempts are used up would only make dead letters. So the handler rests, and the attempts of its messages do not count. It is tried
 * with one message at a time: when the rest is over, and with each vehicle that it has not failed for yet, so that vehicles for which
 * it works do not wait. The first success closes the breaker.
 */
export class Breakers implements Part {
  readonly #events: BreakerEvents
  /** Handlers that have failed since their last success. */
  readonly #failing = new Map<Step, Breaker>()
  #core: PartHost | undefined

  constructor(events: BreakerEvents) {
    this.#events = events
  }

  attach(core: PartHost): void {
    this.#core = core
  }

  gate(entry: Entry, step: Step): Gate | undefined {
    if (this.#failing.size === 0) return undefined
    const breaker = this.#failing.get(step)
    return breaker === undefined || breaker.lets(entry) ? undefined : breaker
  }

  failed(entry: Entry, step: Step): ClosedGate | undefined {
    let breaker = this.#failing.get(step)
    if (breaker === undefined) {
      if (this.#core === undefined) return undefined
      breaker = new Breaker(this.#core)
      this.#failing.set(step, breaker)
    }
    return breaker.failed(entry)
  }

  askedToWait(step: Step): void {
    const breaker = this.#failing.get(step)
    const atMs = breaker?.askedToWait()
    if (breaker !== undefined && atMs !== undefined) this.#events.resting(step.name, atMs, breaker.failures)
  }

  succeeded(step: Step): void {
    if (this.#failing.size === 0) return
    const breaker = this.#failing.get(step)
    if (breaker === undefined) return
    this.#failing.delete(step)
    if (breaker.sinceMs !== undefined) this.#events.recovered(step.name)
    breaker.close()
  }

  stop(): void {
    for (const breaker of this.#failing.values()) breaker.stop()
  }

  resting(): readonly RestingHandler[] {
    return [...this.#failing].flatMap(([{ name }, { sinceMs, nextTryMs }]) =>
      sinceMs === undefined ? [] : [{ handler: name, sinceMs, nextTryMs }],
    )
  }
}

/** The breaker of one handler that fails. */
class Breaker implements Gate {
  readonly #core: PartHost
  /** Lanes that it failed for since its last success, until it opens. */
  readonly #lanes = new Set<string>()
  /** Messages that wait: those that the handler has not failed for, and the others. */
  readonly #untried = new Set<Entry>()
  readonly #tried = new Set<Entry>()
  /** The messages that it has failed for while the breaker was open, and that are not over. */
  readonly #failedFor = new WeakSet<Entry>()
  #restMs = firstRestMs
  #nextTryMs = 0
  /** The message that tries the handler. */
  #probe: Entry | undefined
  #timer: Timer | undefined
  #isClosed = false
  failures = 0
  /** When the breaker opened. `undefined`: it is closed. */
  sinceMs: number | undefined

  constructor(core: PartHost) {
    this.#core = core
  }

  get nextTryMs(): number {
    return this.#core.clock.now() + this.#leftMs()
  }

  /** Whether a message may try the handler now. */
  lets(entry: Entry): boolean {
    if (this.sinceMs === undefined) return true
    if (this.#mustWait(entry)) return false
    this.#probe = entry
    return true
  }

  #mustWait(entry: Entry): boolean {
    // A probe can end for another reason before its run.
    const isProbing = this.#probe !== undefined && !this.#probe.isOver
    return isProbing ? this.#probe !== entry : this.#failedFor.has(entry) && this.#leftMs() > 0
  }

  failed(entry: Entry): ClosedGate | undefined {
    this.failures += 1
    if (this.sinceMs === undefined) {
      this.#lanes.add(entry.laneKey)
      if (this.#lanes.size < lanesToOpen) return undefined
      this.sinceMs = this.#core.clock.now()
      this.#rest()
    } else if (this.#probe === entry) {
      this.#probe = undefined
      if (this.#leftMs() <= 0) {
        this.#restMs = Math.min(longestRestMs, this.#restMs * 2)
        this.#rest()
      }
    }
    this.#failedFor.add(entry)
    return { gate: this, failures: this.failures, restMs: Math.max(firstRestMs, this.#leftMs()) }
  }

  /** Rests on, and returns until when. `undefined`: it does not rest. */
  askedToWait(): number | undefined {
    if (this.#probe === undefined) return undefined
    this.#rest()
    return this.nextTryMs
  }

  keep(entry: Entry): boolean {
    // While its other handlers ran, the breaker may have closed, or the run for another vehicle may have ended.
    if (this.#isClosed || !this.#mustWait(entry)) return false
    const hasFailed = this.#failedFor.has(entry)
    if (hasFailed) this.#tried.add(entry)
    else this.#untried.add(entry)
    // The try has ended, so the handler may be tried with a vehicle that it has not failed for.
    if (hasFailed && (this.#probe === undefined || this.#probe.isOver)) this.#wakeFirst(this.#untried)
    return true
  }

  close(): void {
    this.#isClosed = true
    this.stop()
    for (const entry of this.#untried) this.#core.resume(entry)
    // The handler may still fail for these, so they come back one after another.
    for (const entry of this.#tried) this.#core.resume(entry, Math.ceil(firstRestMs * Math.random()))
  }

  stop(): void {
    this.#timer?.cancel()
  }

  #wakeFirst(entries: Set<Entry>): boolean {
    for (const entry of entries) {
      entries.delete(entry)
      if (entry.heldBy !== this) continue
      this.#core.resume(entry)
      return true
    }
    return false
  }

  #rest(): void {
    this.#probe = undefined
    const restMs = Math.round(this.#restMs * (0.75 + Math.random() / 4))
    this.#nextTryMs = elapsedMs(this.#core.clock) + restMs
    this.#arm(restMs)
  }

  #leftMs(): number {
    return Math.ceil(this.#nextTryMs - elapsedMs(this.#core.clock))
  }

  /** The timer repeats, because the message that may try the handler can end for another reason before its run. */
  #arm(afterMs: number): void {
    this.#timer?.cancel()
    this.#timer = this.#core.clock.after(afterMs, () => {
      this.#arm(this.#restMs)
      // A timer can fire some milliseconds early.
      this.#nextTryMs = Math.min(this.#nextTryMs, elapsedMs(this.#core.clock))
      if (!this.#wakeFirst(this.#untried)) this.#wakeFirst(this.#tried)
    })
  }
}
