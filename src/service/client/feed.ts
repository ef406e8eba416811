import { gapEvent } from '../../events/gap.ts'
import { pause } from '../../base/clock.ts'
import { backoffMs } from '../../core/retry.ts'
import type { GapEvent } from '../../events/event.ts'
import type { Sink } from '../../receiver/interface.ts'

/** A time in which messages of a vehicle or of an energy site may be missing. */
interface MissedTime {
  readonly vin?: string | undefined
  readonly siteId?: string | undefined
  readonly from: Date
  readonly to: Date
}

/** The next item of a source: a message, or an interruption before the messages that follow it. */
export type Fed = { readonly text: string } | { readonly interruption: MissedTime }

/** The waits while the receiver is full. The first ones are short, because it is often full only for a moment. */
const waits = { attempts: Infinity, minMs: 20, maxMs: 2_000 }

/** Passes on messages one by one. While the receiver is full, the stream waits: a posted message would be lost. */
export async function feedMessages(sink: Sink, source: AsyncIterable<Fed>): Promise<void> {
  for await (const fed of source) {
    await untilDone(sink, async () => {
      if ('interruption' in fed) return sink.tell(eventOf(fed.interruption))
      const refused = await sink.take(fed.text)
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

function eventOf({ vin, siteId, from, to }: MissedTime): GapEvent {
  const [fromMs, toMs] = [from.getTime(), to.getTime()]
  const reason = 'stream_interrupted'
  if (vin !== undefined) return gapEvent({ vin, reason, fromMs, toMs, missed: 0 }, toMs)
  const gap = gapEvent({ reason, fromMs, toMs, missed: 0 }, toMs)
  return { ...gap, id: `gap:${reason}:${siteId}:${fromMs}`, meta: { siteId } }
}
