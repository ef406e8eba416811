import { backoffMs } from '../../dispatch/retry.ts'
import type { GapEvent } from '../../events/event.ts'
import type { Sink } from '../../receiver/source.ts'
import { pause } from './deadline.ts'

/** A time in which messages of a vehicle may be missing. */
interface Noticed {
  readonly vin: string
  readonly from: Date
  readonly to: Date
}

/** Waits for room: short ones first, for a receiver that has just been full. */
const patience = { attempts: Infinity, minMs: 20, maxMs: 2_000 }

/**
 * Hands messages to a receiver, one after another. Where a posted message would be refused for want of room and lost, this one
 * waits, and with it the stream. Gaps that are noticed meanwhile are told before what follows them.
 */
export async function feedMessages(
  sink: Sink,
  open: (noticed: (gap: Noticed) => void) => AsyncIterable<{ readonly text: string }>,
): Promise<void> {
  const gaps: GapEvent[] = []
  const noticed = (gap: Noticed): void => void gaps.push(gapEvent(gap))
  for await (const { text } of open(noticed)) {
    for (const gap of gaps.splice(0)) await untilDone(sink, () => sink.tell(gap))
    await untilDone(sink, async () => {
      const refused = await sink.take(text)
      return refused !== 'inbox_full' && refused !== 'inbox_unavailable'
    })
    if (sink.signal.aborted) return
  }
}

async function untilDone({ clock, signal }: Sink, attempt: () => Promise<boolean>): Promise<void> {
  for (let count = 1; !signal.aborted && !(await attempt()); count += 1) {
    await pause(clock, backoffMs(patience, count), signal).catch(() => {})
  }
}

function gapEvent({ vin, from, to }: Noticed): GapEvent {
  return {
    topic: 'gap',
    vin,
    createdAt: to.toISOString(),
    at: to,
    receivedAt: to,
    from,
    to,
    reason: 'stream_interrupted',
    missed: 0,
    id: `gap:stream_interrupted:${vin}:${from.getTime()}`,
    format: null,
    raw: null,
    meta: {},
  }
}
