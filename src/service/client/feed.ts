import { backoffMs } from '../../dispatch/retry.ts'
import type { GapEvent } from '../../events/event.ts'
import type { Sink } from '../../receiver/source.ts'
import { pause } from './deadline.ts'

/** A time in which messages of a vehicle may be missing. */
interface Interruption {
  readonly vin: string
  readonly from: Date
  readonly to: Date
}

/** The waits for a full receiver. The first ones are short, because it is often full for a moment only. */
const waits = { attempts: Infinity, minMs: 20, maxMs: 2_000 }

/**
 * Hands messages to a receiver one by one. When the receiver is full, it waits, and so does the stream: a posted message would be
 * refused and lost. An interruption reaches the receiver before the messages that follow it.
 */
export async function feedMessages(
  sink: Sink,
  open: (onInterruption: (interruption: Interruption) => void) => AsyncIterable<{ readonly text: string }>,
): Promise<void> {
  const gaps: GapEvent[] = []
  const onInterruption = (interruption: Interruption): void => void gaps.push(gapEvent(interruption))
  for await (const { text } of open(onInterruption)) {
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
    await pause(clock, backoffMs(waits, count), signal).catch(() => {})
  }
}

function gapEvent({ vin, from, to }: Interruption): GapEvent {
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
