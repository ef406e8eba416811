import type { SendOptions } from './options.ts'
import type { Bottleneck, Pacing } from './pace.ts'
import type { AckMs, Counts, FailureCount, RefusalCount, Tally } from './tally.ts'

/** Why sending ended before its count. */
export type Stopped = 'interrupted' | 'unreachable'

/** What came of a run: what the summary is written from, and what `--json` prints. */
export interface SendResult extends Readonly<Counts> {
  readonly vins: number
  readonly seed: number
  /** ISO 8601: with the seed it makes the same messages again. */
  readonly startAt: string
  readonly stopped: Stopped | null
  /** What was asked for and not sent, because sending stopped; `null` when no count was asked for. */
  readonly notSent: number | null
  readonly elapsedMs: number
  readonly rate: {
    readonly askedPerSecond: number
    readonly achievedPerSecond: number
    readonly keptUp: boolean
    /** By how much the latest message left after its moment. */
    readonly latestMs: number
    /** What held messages back; `null` when the rate was kept. */
    readonly bottleneck: Bottleneck | null
  }
  /** `null` when nothing was answered. */
  readonly ackMs: AckMs | null
  /** Topic to format to counts. */
  readonly topics: { readonly [topic: string]: { readonly [format: string]: Readonly<Counts> } }
  readonly refusals: readonly Readonly<RefusalCount>[]
  readonly failures: readonly Readonly<FailureCount>[]
}

/** Puts together what came of a run. */
export function resultOf(
  { vins, seed, count, ratePerSecond }: SendOptions,
  startAt: number,
  tally: Tally,
  pacing: Pacing,
  stopped: Stopped | undefined,
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
