import type { OperatorApi, ReceivedMessage } from '../observe/observer.ts'
import type { Stats } from '../observe/stats.ts'
import { whileUsed } from './feed.ts'

/** A receiver at one moment. Counts start when the receiver is created, so a rate is the difference between two samples. */
export interface Sample {
  /** ISO 8601 in UTC. */
  readonly at: string
  readonly received: number
  readonly handled: number
  readonly dead: number
  readonly refused: number
  readonly lost: number
  readonly waiting: number
  /** The age of the oldest message that waits. Left out: none waits, or the inbox does not know. */
  readonly oldestMs: number | undefined
  readonly lanes: number
  readonly running: number
  /** From the end of a body to its answer, in milliseconds. Left out if no message came or nobody read the feed. */
  readonly ack: { readonly count: number; readonly p50: number; readonly p99: number; readonly max: number } | undefined
}

/** The most samples that are kept: 15 minutes of them. */
const mostSamples = 180

const mostTimes = 2_000

/** The figures of a receiver every five seconds, for charts. It has no timer: the caller calls `take` regularly. */
export class Samples {
  static readonly stepMs = 5_000
  readonly #stats: () => Stats
  readonly #now: () => number
  readonly #samples: Sample[] = []
  #takenMs = -Infinity
  #times: number[] = []
  #timed = 0
  /** Measures the times of answers until the returned function is called. */
  readonly timeAnswers: () => () => void

  constructor(stats: () => Stats, observe: OperatorApi['observe'], now: () => number = Date.now) {
    this.#stats = stats
    this.#now = now
    const received = (messages: readonly ReceivedMessage[]): void => {
      const nowMs = now()
      for (const { receivedAt } of messages) this.#time(Math.max(0, nowMs - receivedAt))
    }
    this.timeAnswers = whileUsed(() => observe?.({ received }) ?? (() => {}))
  }

  /** Takes a sample, unless the last one was taken less than a step ago. */
  take(): void {
    const nowMs = this.#now()
    // A timer can fire some milliseconds early.
    if (Math.abs(nowMs - this.#takenMs) < 0.9 * Samples.stepMs) return
    this.#takenMs = nowMs
    const { received, handled, deadLettered, refused, lost, pending, inbox, lanes, running } = this.#stats()
    this.#samples.push({
      at: new Date(nowMs).toISOString(),
      received,
      handled,
      dead: deadLettered,
      lost,
      lanes,
      running,
      refused: Object.entries(refused).reduce((all, [error, each]) => (error === 'test' ? all : all + each), 0),
      waiting: pending.messages,
      oldestMs: inbox.oldestWaitingMs,
      ack: this.#ack(),
    })
    if (this.#samples.length > mostSamples) this.#samples.shift()
  }

  /** Oldest first. */
  list(): readonly Sample[] {
    return this.#samples
  }

  /** Under load, later times replace earlier ones. */
  #time(ms: number): void {
    this.#times[this.#timed % mostTimes] = ms
    this.#timed += 1
  }

  #ack(): Sample['ack'] {
    const times = this.#times.toSorted((one, other) => one - other)
    const count = this.#timed
    this.#times = []
    this.#timed = 0
    const quantile = (share: number): number => times[Math.ceil(share * times.length) - 1] ?? 0
    return count === 0 ? undefined : { count, p50: quantile(0.5), p99: quantile(0.99), max: quantile(1) }
  }
}
