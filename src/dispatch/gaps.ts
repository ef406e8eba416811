import type { GapEvent, GapReason } from '../events/event.ts'

/** One hole that is still open. */
interface Hole {
  readonly vin: string | undefined
  readonly reason: GapReason
  readonly fromMs: number
  readonly missed: number
}

/** Remembers where messages were lost until it can be told to handlers: one gap per VIN and reason. */
export interface Gaps {
  /** A message was lost that came at `fromMs` or later. */
  note(vin: string | undefined, reason: GapReason, fromMs: number): void
  /** The oldest hole, as it is now. */
  oldest(nowMs: number): GapEvent | undefined
  /** It has been told: what was lost since is another hole. */
  close(gap: GapEvent): void
  readonly size: number
}

/** Beyond this many vehicles at once a gap no longer says which ones it concerns. */
const maxHoles = 10_000

export function createGaps(): Gaps {
  const holes = new Map<string, Hole>()

  return {
    note(vin, reason, fromMs) {
      const concerned = holes.size < maxHoles || holes.has(key(vin, reason)) ? vin : undefined
      const open = holes.get(key(concerned, reason))
      holes.set(key(concerned, reason), {
        vin: concerned,
        reason,
        fromMs: Math.min(fromMs, open?.fromMs ?? fromMs),
        missed: (open?.missed ?? 0) + 1,
      })
    },

    oldest(nowMs) {
      const [hole] = holes.values()
      return hole === undefined ? undefined : gapEvent(hole, nowMs)
    },

    close({ vin, reason, missed }) {
      const told = key(vin, reason)
      const open = holes.get(told)
      // At the end of the line, so that the other vehicles are told of theirs first.
      holes.delete(told)
      if (open !== undefined && open.missed > missed) holes.set(told, { ...open, missed: open.missed - missed })
    },

    get size() {
      return holes.size
    },
  }
}

const key = (vin: string | undefined, reason: GapReason): string => `${reason} ${vin ?? ''}`

function gapEvent({ vin, reason, fromMs, missed }: Hole, nowMs: number): GapEvent {
  const from = new Date(fromMs)
  const to = new Date(nowMs)
  return {
    topic: 'gap',
    ...(vin === undefined ? {} : { vin }),
    createdAt: to.toISOString(),
    at: to,
    receivedAt: to,
    from,
    to,
    reason,
    missed,
    id: `gap:${reason}:${vin ?? ''}:${fromMs}`,
    format: null,
    raw: null,
    meta: {},
  }
}
