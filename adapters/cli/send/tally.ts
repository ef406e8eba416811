import { createHistogram } from 'node:perf_hooks'
import type { Format, WireTopic } from '../../../src/events/event.ts'
import type { Bottleneck, Pacing } from './pace.ts'
import type { RefusalBody, PostOutcome, SendOptions } from './post.ts'

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

const none = (): Counts => ({ sent: 0, accepted: 0, refused: 0, failed: 0 })
const kinds = 50

const mostFrequentFirst = <Kind extends { readonly count: number }>(all: ReadonlyMap<string, Kind>): readonly Kind[] =>
  [...all.values()].toSorted((a, b) => b.count - a.count)

/** Counts outcomes while messages are sent. */
export class Tally {
  readonly total: Counts = none()
  readonly byTopic: Map<WireTopic, Map<Format, Counts>> = new Map()
  readonly #refusals = new Map<string, RefusalCount>()
  readonly #failures = new Map<string, FailureCount>()
  readonly #ackMicros = createHistogram()

  refusals(): readonly RefusalCount[] {
    return mostFrequentFirst(this.#refusals)
  }

  failures(): readonly FailureCount[] {
    return mostFrequentFirst(this.#failures)
  }

  /** The response times of all answered messages. `undefined`: there is none yet. */
  ackMs(): AckMs | undefined {
    const times = this.#ackMicros
    if (times.count === 0) return undefined
    const at = (percentile: number): number => times.percentile(percentile) / 1_000
    return { p50: at(50), p95: at(95), p99: at(99), max: times.max / 1_000 }
  }

  count(topic: WireTopic, format: Format, outcome: PostOutcome): void {
    for (const counts of [this.total, this.#cell(topic, format)]) {
      counts.sent++
      counts[outcome.kind]++
    }
    if (outcome.kind === 'failed') {
      const known = this.#failures.get(outcome.code)
      if (known) known.count++
      else this.#failures.set(outcome.code, { code: outcome.code, count: 1 })
      return
    }
    if (outcome.kind === 'refused') this.#countRefusal(outcome)
    this.#ackMicros.record(Math.max(1, Math.round(outcome.ackMs * 1_000)))
  }

  #cell(topic: WireTopic, format: Format): Counts {
    const row = this.byTopic.get(topic) ?? new Map<Format, Counts>()
    this.byTopic.set(topic, row)
    const counts = row.get(format) ?? none()
    row.set(format, counts)
    return counts
  }

  #countRefusal({ kind: _, ackMs: __, ...refusal }: Extract<PostOutcome, { kind: 'refused' }>): void {
    const { status, code, error, text } = refusal
    // A server can use new words for every refusal, so the number of kinds is bounded.
    const key = this.#refusals.size < kinds ? JSON.stringify([status, code, error ?? text]) : String(status)
    const known = this.#refusals.get(key)
    if (known) known.count++
    else this.#refusals.set(key, { ...refusal, count: 1 })
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
