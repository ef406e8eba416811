import { createHistogram } from 'node:perf_hooks'
import type { Format, WireTopic } from '../../../src/events/event.ts'
import type { Answer, Outcome } from './post.ts'

/** How many messages had which fate. */
export interface Counts {
  sent: number
  accepted: number
  refused: number
  failed: number
}

/** One kind of refusal, and how often it came. */
export interface RefusalCount extends Answer {
  readonly status: number
  count: number
}

/** One kind of network error, and how often it came. */
export interface FailureCount {
  readonly code: string
  count: number
}

/** How long answers took, in milliseconds. */
export interface AckMs {
  readonly p50: number
  readonly p95: number
  readonly p99: number
  readonly max: number
}

/** Everything that is counted while sending. */
export interface Tally {
  readonly total: Readonly<Counts>
  readonly byTopic: ReadonlyMap<WireTopic, ReadonlyMap<Format, Readonly<Counts>>>
  /** The most frequent first. */
  refusals(): readonly Readonly<RefusalCount>[]
  failures(): readonly Readonly<FailureCount>[]
  /** Of every message that was answered; `undefined` before the first. */
  ackMs(): AckMs | undefined
  count(topic: WireTopic, format: Format, outcome: Outcome): void
}

const none = (): Counts => ({ sent: 0, accepted: 0, refused: 0, failed: 0 })
const kinds = 50

/** Counts outcomes. */
export function createTally(): Tally {
  const total = none()
  const byTopic = new Map<WireTopic, Map<Format, Counts>>()
  const refusals = new Map<string, RefusalCount>()
  const failures = new Map<string, FailureCount>()
  const ackMicros = createHistogram()

  const cell = (topic: WireTopic, format: Format): Counts => {
    const row = byTopic.get(topic) ?? new Map<Format, Counts>()
    byTopic.set(topic, row)
    const counts = row.get(format) ?? none()
    row.set(format, counts)
    return counts
  }

  const countRefusal = ({ status, code, error, text, hint }: Answer & { readonly status: number }): void => {
    // A server may word every refusal anew: the kinds that are told apart are bounded.
    const key = refusals.size < kinds ? JSON.stringify([status, code, error ?? text]) : String(status)
    const known = refusals.get(key)
    if (known) known.count++
    else {
      const said = { ...(code === undefined ? {} : { code }), ...(error === undefined ? {} : { error }) }
      const words = { ...(text === undefined ? {} : { text }), ...(hint === undefined ? {} : { hint }) }
      refusals.set(key, { status, ...said, ...words, count: 1 })
    }
  }

  return {
    total,
    byTopic,
    refusals: () => [...refusals.values()].toSorted((a, b) => b.count - a.count),
    failures: () => [...failures.values()].toSorted((a, b) => b.count - a.count),
    ackMs() {
      if (ackMicros.count === 0) return undefined
      const at = (percentile: number): number => ackMicros.percentile(percentile) / 1_000
      return { p50: at(50), p95: at(95), p99: at(99), max: ackMicros.max / 1_000 }
    },
    count(topic, format, outcome) {
      for (const counts of [total, cell(topic, format)]) {
        counts.sent++
        counts[outcome.kind]++
      }
      if (outcome.kind === 'refused') countRefusal(outcome)
      if (outcome.kind !== 'failed') ackMicros.record(Math.max(1, Math.round(outcome.ackMs * 1_000)))
      else {
        const known = failures.get(outcome.code)
        if (known) known.count++
        else failures.set(outcome.code, { code: outcome.code, count: 1 })
      }
    },
  }
}
