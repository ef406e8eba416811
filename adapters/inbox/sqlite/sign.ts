import { uptime } from 'node:os'
import type { BelievedTime } from '../../../src/base/believed-time.ts'
import { elapsedMs, systemClock } from '../../../src/base/clock.ts'
import type { InboxHost, KeptGap } from '../../../src/inbox/inbox.ts'
import type { ReaderSign, SignOfLife } from './file/interface.ts'

/** What this process writes into the file to say that it lives. */
export function signOfLife(
  settings: InboxHost,
  believed: BelievedTime,
  readers: readonly ReaderSign[] = [],
): SignOfLife {
  const { clock, states, receiver: { openGaps } = {} } = settings
  const uptimeMs = clock === systemClock ? machineUptimeMs() : Math.floor(elapsedMs(clock))
  believed.now()
  const gaps = openGaps?.()
  return { nowMs: clock.now(), believed: believed.state, uptimeMs, gaps, keepsVehicles: states !== undefined, readers }
}

/**
 * The sign of life of a receiver that took no messages from `atMs` on, with a gap for the stop: the kernel resets
 * connections that it had given to this process. The next start replaces that gap.
 */
export function lastSign(sign: SignOfLife, atMs: number): SignOfLife {
  const { nowMs, uptimeMs, gaps = [] } = sign
  const agoMs = Math.max(0, nowMs - atMs)
  const fromMs = nowMs - agoMs
  const stop: KeptGap = { reason: 'stopped', fromMs, toMs: nowMs, missed: 0 }
  const uptimeThenMs = uptimeMs === undefined ? undefined : uptimeMs - agoMs
  return { ...sign, nowMs: fromMs, uptimeMs: uptimeThenMs, gaps: [...gaps, stop] }
}

/** Deno needs a permission for it. */
function machineUptimeMs(): number | undefined {
  try {
    return Math.floor(uptime() * 1_000)
  } catch {
    return undefined
  }
}
