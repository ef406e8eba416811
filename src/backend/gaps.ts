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
  /** A message was lost that came at `fromMs` or later; or, with `missed` 0, nobody knows how many. */
  note(vin: string | undefined, reason: GapReason, fromMs: number, missed?: number): void
  /** Takes the oldest hole, to be told of: what is lost from now on is another one. */
  take(nowMs: number): GapEvent | undefined
  /** It could not be told of. */
  putBack(gap: GapEvent): void
  readonly size: number
}

/** Beyond this many vehicles at once a gap no longer says which ones it concerns. */
const maxHoles = 10_000

export function createGaps(): Gaps {
  const holes = new Map<string, Hole>()
  /** Those that could not be told of when it was their turn: they are first again. */
  const returned = new Map<string, Hole>()

  function note(vin: string | undefined, reason: GapReason, fromMs: number, missed = 1): void {
    const known = returned.has(key(vin, reason)) || holes.has(key(vin, reason))
    const concerned = known || holes.size < maxHoles ? vin : undefined
    widen(returned.has(key(concerned, reason)) ? returned : holes, { vin: concerned, reason, fromMs, missed })
  }

  return {
    note,

    take(nowMs) {
      const from = returned.size > 0 ? returned : holes
      const [oldest] = from
      if (oldest === undefined) return undefined
      from.delete(oldest[0])
      return gapEvent(oldest[1], nowMs)
    },

    putBack({ vin, reason, from, missed }) {
      widen(returned, { vin, reason, fromMs: from.getTime(), missed })
    },

    get size() {
      return holes.size + returned.size
    },
  }
}

function widen(holes: Map<string, Hole>, { vin, reason, fromMs, missed }: Hole): void {
  const open = holes.get(key(vin, reason))
  holes.set(key(vin, reason), {
    vin,
    reason,
    fromMs: Math.min(fromMs, open?.fromMs ?? fromMs),
    missed: missed + (open?.missed ?? 0),
  })
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
