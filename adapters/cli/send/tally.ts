import { createHistogram } from 'node:perf_hooks'
import type { Format, WireTopic } from '../../../src/events/event.ts'
import type { Bottleneck, Pacing } from './pace.ts'
import type { RefusalBody, PostOutcome, SendOptions } from './post.ts'

/** Messages by outcome. */
export interface Counts {
  sent: number
  accepted: number
  refused: number
  failed: number
}

/** One kind of refusal, with its number. */
interface RefusalCount extends RefusalBody {
  readonly status: number
  count: number
}

/** One kind of network error, with its number. */
export interface FailureCount {
  readonly code: string
  count: number
}

/** Response times in milliseconds. */
interface AckMs {
  readonly p50: number
  readonly p95: number
  readonly p99: number
  readonly max: number
}

/** The counts while messages are sent. */
export interface Tally {
  readonly total: Readonly<Counts>
  readonly byTopic: ReadonlyMap<WireTopic, ReadonlyMap<Format, Readonly<Counts>>>
  /** The most frequent first. */
  refusals(): readonly Readonly<RefusalCount>[]
  failures(): readonly Readonly<FailureCount>[]
  /** The response times of all answered messages. `undefined`: there is none yet. */
  ackMs(): AckMs | undefined
  count(topic: WireTopic, format: Format, outcome: PostOutcome): void
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

  const countRefusal = ({ status, code, error, text, hint }: RefusalBody & { readonly status: number }): void => {
    // A server can use new words for every refusal, so the number of kinds is bounded.
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

/** Why sending ended before its count. */
export type StopReason = 'interrupted' | 'unreachable'

/** The result of a run: the source of the summary, and the output of `--json`. */
export interface SendResult extends Readonly<Counts> {
  readonly vins: number
  readonly seed: number
  /** ISO 8601. The same seed and start make the same messages. */
  readonly startAt: string
  readonly stopped: StopReason | null
  /** Messages that were not sent because sending stopped. `null` when there was no count. */
  readonly notSent: number | null
  readonly elapsedMs: number
  readonly rate: {
    readonly askedPerSecond: number
    readonly achievedPerSecond: number
    readonly keptUp: boolean
    /** The longest delay of a message after its planned time. */
    readonly latestMs: number
    /** What delayed messages. `null` when the rate was kept. */
    readonly bottleneck: Bottleneck | null
  }
  /** `null` when nothing was answered. */
  readonly ackMs: AckMs | null
  /** Topic to format to counts. */
  readonly topics: { readonly [topic: string]: { readonly [format: string]: Readonly<Counts> } }
  readonly refusals: readonly Readonly<RefusalCount>[]
  readonly failures: readonly Readonly<FailureCount>[]
}

/** Collects the result of a run. */
export function resultOf(
  { vins, seed, count, ratePerSecond }: SendOptions,
  startAt: number,
  tally: Tally,
  pacing: Pacing,
  stopped: StopReason | undefined,
): SendResult {
  const { achievedPerSecond, keptUp, latestMs, bottleneck, elapsedMs } = pacing
  const rounded = (value: number): number => Math.round(value * 1_000) / 1_000
  return {
    ...tally.total,
    vins,
    seed,
    startAt: new Date(startAt).toISOString(),
    stopped: stopped ?? null,
    notSent: Number.isFinite(count) ? count - tally.total.sent : null,
    elapsedMs: rounded(elapsedMs),
    rate: {
      askedPerSecond: ratePerSecond,
      achievedPerSecond: rounded(achievedPerSecond),
      keptUp,
      latestMs: rounded(latestMs),
      bottleneck: keptUp ? null : bottleneck,
    },
    ackMs: tally.ackMs() ?? null,
    topics: Object.fromEntries([...tally.byTopic].map(([topic, formats]) => [topic, Object.fromEntries(formats)])),
    refusals: tally.refusals(),
    failures: tally.failures(),
  }
}
