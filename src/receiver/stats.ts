import type { Drift } from '../wire/data.ts'

/**
 * What a receiver has done and is doing. Counts are since construction, and add up: `received + recovered + replayed` is
 * `handled + deadLettered + duplicates + lost + conflated` and those of `pending` that came over the wire.
 */
export interface Stats {
  /** Messages that were accepted. */
  readonly received: number
  /** Accepted messages by topic, `unknown` included. */
  readonly topics: Readonly<Record<string, number>>
  /** Messages that an earlier process left in a durable inbox. */
  readonly recovered: number
  /** Messages that were put back from the dead letters, or from what was handled. */
  readonly replayed: number
  /** Messages whose handlers are all done. */
  readonly handled: number
  /** How often a handler discarded a message. The message counts among those above or below all the same. */
  readonly discarded: number
  /** Messages that were passed over, for the same had been handled (`dedupe`). */
  readonly duplicates: number
  /** Attempts after the first. */
  readonly retried: number
  /** Messages that were given up after their last attempt. */
  readonly deadLettered: number
  /** Dead letters that were forgotten because newer ones needed their room. */
  readonly deadLettersDropped: number
  /** Accepted messages that were never handled: a drain or a runtime ended first, or an inbox failed after the answer. */
  readonly lost: number
  /** Messages merged into others (`overflow: 'conflate'`). */
  readonly conflated: number
  /** Refused requests by the answer's `error`. A refused message is lost: the service sends once. */
  readonly refused: Readonly<Record<string, number>>
  /** What waits or is being handled, and what the receiver itself has to tell of: gaps and malformed bodies. */
  readonly pending: { readonly messages: number; readonly bytes: number }
  /** Messages whose handlers run right now: at most `concurrency`. */
  readonly running: number
  /** VINs that have work, one message of each at a time. */
  readonly lanes: number
  /** Holes that no `gap` event has told of yet. */
  readonly openGaps: number
  /** Values that did not read as the type the catalogue gives them. */
  readonly drift: readonly Drift[]
  readonly draining: boolean
}
