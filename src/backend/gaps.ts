import type { GapEvent, GapReason } from '../events/event.ts'

/** Lost messages that no gap event reports yet. */
interface OpenGap {
  readonly vin: string | undefined
  readonly reason: GapReason
  readonly fromMs: number
  readonly missed: number
}

/** Beyond this number of vehicles a gap no longer says which vehicle it concerns. */
const mostGaps = 10_000

/** Remembers lost messages until a gap event can report them: one gap per VIN and reason. */
export class Gaps {
  readonly #open = new Map<string, OpenGap>()
  /** Gaps that found no room in the inbox when it was their turn: they are first again. */
  readonly #returned = new Map<string, OpenGap>()

  /** The number of open gaps. */
  size = 0

  /** A message was lost that came at `fromMs` or later. `missed` 0: an unknown number of messages. */
  note(vin: string | undefined, reason: GapReason, fromMs: number, missed: number = 1): void {
    const known = this.#returned.has(key(vin, reason)) || this.#open.has(key(vin, reason))
    const concerned = known || this.#open.size < mostGaps ? vin : undefined
    const gaps = this.#returned.has(key(concerned, reason)) ? this.#returned : this.#open
    widen(gaps, { vin: concerned, reason, fromMs, missed })
    this.#count()
  }

  /** Takes the oldest gap as an event. What is lost from now on belongs to another gap. */
  take(nowMs: number): GapEvent | undefined {
    const gaps = this.#returned.size > 0 ? this.#returned : this.#open
    const [oldest] = gaps
    if (oldest === undefined) return undefined
    gaps.delete(oldest[0])
    this.#count()
    return gapEvent(oldest[1], nowMs)
  }

  /** The inbox had no room for the event. */
  giveBack({ vin, reason, from, missed }: GapEvent): void {
    widen(this.#returned, { vin, reason, fromMs: from.getTime(), missed })
    this.#count()
  }

  #count(): void {
    this.size = this.#open.size + this.#returned.size
  }
}

function widen(gaps: Map<string, OpenGap>, { vin, reason, fromMs, missed }: OpenGap): void {
  const open = gaps.get(key(vin, reason))
  gaps.set(key(vin, reason), {
    vin,
    reason,
    fromMs: Math.min(fromMs, open?.fromMs ?? fromMs),
    missed: missed + (open?.missed ?? 0),
  })
}

const key = (vin: string | undefined, reason: GapReason): string => `${reason} ${vin ?? ''}`

function gapEvent({ vin, reason, fromMs, missed }: OpenGap, nowMs: number): GapEvent {
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
