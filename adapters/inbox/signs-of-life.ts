import type { Clock } from '../../src/base/clock.ts'
import type { Log } from '../../src/base/log.ts'
import type { InboxGap, KeptGap } from '../../src/inbox/inbox.ts'

/* Receivers that share a system leave signs of life in it. One that starts reports the time in which none listened. */

/** What a receiver that leaves signs of life is asked, and told. */
export interface LifeOfReceiver {
  readonly clock: Clock
  readonly log: Log
  /** The gaps that no event has reported yet. If this receiver ends, another one reports them. */
  readonly openGaps: () => readonly KeptGap[]
  /** Called when messages may be missing because no receiver listened. */
  readonly onGap: (gap: InboxGap) => void
  /** Called after each sign: the system answers, so gaps can be reported. */
  readonly onSigned: () => void
}

/** The time between two signs, and after how long without one a receiver counts as not listening, in milliseconds. */
export const signMs = 5_000
export const silentMs: number = 3 * signMs
/** How long the last sign may take, in milliseconds. */
export const lastSignMs = 1_000

/** When another receiver listened, in milliseconds since the epoch. */
export interface Listened {
  readonly since: number
  readonly until: number
  readonly isClosed: boolean
  /** It has reported the time before its first sign, or another one listened. */
  readonly isAccounted: boolean
}

/** The times until `nowMs` in which none of these receivers listened, and that none of them has accounted for. */
export function silences(
  receivers: readonly Listened[],
  nowMs: number,
): readonly (InboxGap & { readonly toMs: number })[] {
  // One that stopped while its first sign was on its way never listened after it.
  const inOrder = receivers
    .map((receiver) => ({ ...receiver, since: Math.min(receiver.since, receiver.until) }))
    .toSorted((one, other) => one.since - other.since)
  // A crash can leave some after it that did not account.
  const first = inOrder.findLast(({ isAccounted }) => isAccounted) ?? inOrder[0]
  const gaps: (InboxGap & { readonly toMs: number })[] = []
  let heard: Pick<Listened, 'until' | 'isClosed'> = { until: first?.since ?? nowMs, isClosed: false }
  const silentUntil = (toMs: number): void => {
    if (heard.until < toMs) gaps.push({ reason: heard.isClosed ? 'stopped' : 'restarted', fromMs: heard.until, toMs })
  }
  for (const receiver of inOrder) {
    silentUntil(receiver.since)
    if (receiver.until >= heard.until) heard = receiver
  }
  silentUntil(nowMs)
  return gaps
}

/** The most gaps in one sign of life that say which vehicle they concern. */
const mostGaps = 1_000

/** The gaps that fit in one sign of life. Those beyond the limit no longer say which vehicle they concern. */
export function fittingGaps(gaps: readonly KeptGap[]): readonly KeptGap[] {
  const others = new Map<string, KeptGap>()
  for (const { reason, fromMs, toMs, missed } of gaps.slice(mostGaps)) {
    const known = others.get(reason) ?? { fromMs, toMs, missed: 0 }
    others.set(reason, {
      reason,
      fromMs: Math.min(fromMs, known.fromMs),
      toMs: Math.max(toMs, known.toMs),
      missed: missed + known.missed,
    })
  }
  return [...gaps.slice(0, mostGaps), ...others.values()]
}
