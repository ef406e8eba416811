import type { GapEvent } from './event.ts'

/** What an inbox keeps of a gap: the same, with times in milliseconds since the epoch. */
type Gap = Pick<GapEvent, 'reason' | 'missed'> & {
  readonly vin?: string | undefined
  readonly fromMs: number
  readonly toMs: number
}

/** Whether nobody listened, and nothing is known to be refused. For a vehicle that goes on as before, this is no gap. */
export const isPause = ({ vin, reason, missed }: Pick<Gap, 'vin' | 'reason' | 'missed'>): boolean =>
  vin === undefined && missed === 0 && (reason === 'stopped' || reason === 'restarted')

/** The gap of an event. */
export function gapOf({ vin, reason, from, to, missed }: GapEvent): Gap {
  return { vin, reason, fromMs: from.getTime(), toMs: to.getTime(), missed }
}

/** The event of a gap. */
export function gapEvent({ vin, reason, fromMs, toMs, missed }: Gap, nowMs: number): GapEvent {
  const at = new Date(nowMs)
  return {
    topic: 'gap',
    ...(vin === undefined ? {} : { vin }),
    createdAt: at.toISOString(),
    at,
    receivedAt: at,
    from: new Date(fromMs),
    to: new Date(toMs),
    reason,
    missed,
    id: `gap:${reason}:${vin ?? ''}:${fromMs}`,
    format: null,
    raw: null,
    meta: {},
  }
}
