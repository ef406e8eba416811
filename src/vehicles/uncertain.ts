import type { FleetEvent, GapEvent } from '../events/event.ts'
import { isPause } from '../events/gap.ts'
import { originOf } from '../events/origin.ts'
import { firstSeqAt, isClockBehind } from '../inbox/delivery-id.ts'
import type { KeptGap } from '../inbox/inbox.ts'
import type { SharedGaps, StoredVehicle } from '../inbox/vehicle-store.ts'
import { gapEnd, goesOn, type VehicleState } from './state.ts'

/** An interval in which messages of any vehicle may be missing, in `seq`. */
interface Interval {
  readonly from: number
  readonly to: number
  /** It is no gap for a vehicle that goes on as before. */
  readonly isPause?: true | undefined
}

/** The two as one: a pause when each of them is. */
const joined = (one: Interval, other: Interval): Interval => ({
  from: Math.min(one.from, other.from),
  to: Math.max(one.to, other.to),
  isPause: one.isPause && other.isPause,
})

/** The most intervals that are kept. Only a backlog needs more than the newest one. */
const mostIntervals = 16

/** The intervals in which messages of any vehicle may be missing. */
class Intervals implements StoredVehicle {
  readonly vin = ''
  readonly seq: number
  readonly seenMs: number
  readonly list: readonly Interval[]

  constructor(seq: number, seenMs: number, list: readonly Interval[]) {
    this.seq = seq
    this.seenMs = seenMs
    this.list = list
  }

  get bytes(): number {
    return 64 * this.list.length
  }

  text(): string {
    return JSON.stringify({ gaps: this.list })
  }

  static read(stored: StoredVehicle | undefined): Intervals {
    if (stored === undefined) return new Intervals(-1, -Infinity, [])
    if (stored instanceof Intervals) return stored
    const { gaps }: { gaps: readonly Interval[] } = JSON.parse(stored.text())
    return new Intervals(stored.seq, stored.seenMs, gaps)
  }

  with(interval: Interval, seq: number, seenMs: number): Intervals {
    const isKnown = this.list.some(
      ({ from, to, isPause }) => from <= interval.from && to >= interval.to && isPause === interval.isPause,
    )
    const all = isKnown ? this.list : [...this.list, interval]
    const [first, second, ...rest] = all
    // Join the two oldest. That can only make more values uncertain.
    const list =
      first !== undefined && second !== undefined && all.length > mostIntervals ? [joined(first, second), ...rest] : all
    return new Intervals(Math.max(this.seq, seq), Math.max(this.seenMs, seenMs), list)
  }
}

/** The most gaps of single vehicles that take effect before their events. */
const mostNoted = 10_000

/** A `seq` after every message. */
export const seqNow: number = Number.MAX_SAFE_INTEGER

/** What of a vehicle is uncertain, because its messages may be missing: the gaps of all vehicles, and those whose events have not come yet. */
export class Uncertain {
  /** One interval per VIN, and '' for all vehicles. */
  readonly #noted = new Map<string, Interval>()
  readonly #now: () => number
  readonly #newestSeq: () => number
  /** The gaps of all vehicles, in a store that several processes share. */
  readonly #sharedTo: ((seq: number) => SharedGaps) | undefined
  #gaps = new Intervals(-1, -Infinity, [])
  /** The `seq` of the newest message of earlier processes. */
  lastBefore = -1

  constructor(now: () => number, newestSeq: () => number, sharedTo: ((seq: number) => SharedGaps) | undefined) {
    this.#now = now
    this.#newestSeq = newestSeq
    this.#sharedTo = sharedTo
  }

  /** The gaps of all vehicles, as a store keeps them. */
  get stored(): StoredVehicle {
    return this.#gaps
  }

  /** Reads what a store kept. Returns what it must keep from now on. `undefined`: the same. */
  begin(stored: StoredVehicle | undefined): StoredVehicle | undefined {
    this.#gaps = Intervals.read(stored)
    // Its event comes after messages that are applied again after a crash, and then these must know the gap.
    const restarted = this.#noted.get('')
    return restarted && (this.#gaps = this.#gaps.with(restarted, -1, -Infinity))
  }

  /** Notes a gap whose event comes later. */
  note(gap: KeptGap): void {
    const { vin = '' } = gap
    const known = this.#noted.get(vin)
    if (known === undefined && this.#noted.size >= mostNoted) return
    const interval = this.#between(gap)
    this.#noted.set(vin, known === undefined ? interval : joined(known, interval))
  }

  /** Records a gap of all vehicles that another process noticed. */
  add(gap: KeptGap): StoredVehicle {
    return (this.#gaps = this.#gaps.with(this.#between(gap), -1, -Infinity))
  }

  /** Records a gap of all vehicles, whose event has come. */
  record(event: GapEvent, seq: number): StoredVehicle {
    const from = Math.min(seq, firstSeqAt(event.from.getTime()))
    const interval: Interval = { from, to: this.come(event, seq), isPause: isPause(event) || undefined }
    return (this.#gaps = this.#gaps.with(interval, seq, event.receivedAt.getTime()))
  }

  /** Called with the event of a gap. Returns the end of the gap. Messages missed after it belong to another event. */
  come(event: GapEvent, seq: number): number {
    const key = event.vin ?? ''
    const noted = this.#noted.get(key)
    const end = gapEnd(event, seq)
    if (noted === undefined) return end
    // The event of a restart ends with the first message after it, whose values are certain. The noted gap ends before that message.
    const to = event.reason === 'restarted' || event.reason === 'stopped' ? Math.min(end, noted.to) : end
    if (noted.to <= end || noted.to < firstSeqAt(event.to.getTime() + 1)) this.#noted.delete(key)
    else this.#noted.set(key, { ...noted, from: end + 1 })
    return to
  }

  /** For a message with this `seq`: values of the vehicle up to the returned `seq` are uncertain. */
  to(seq: number, { vin, gaps }: Pick<VehicleState, 'vin' | 'gaps'>): number {
    const { to: shared = -1, pauses = [] } = this.#sharedTo?.(seq) ?? {}
    const pausedTo = pauses.at(-1)?.to ?? -1
    return this.#ends(seq, vin).reduce(
      (most, { to, isPause }) => (isPause === true && to <= gaps.spanned ? most : Math.max(most, to)),
      Math.max(shared, pausedTo > gaps.spanned ? pausedTo : -1),
    )
  }

  /**
   * The vehicle before a message. The first message after a pause decides whether the pause is a gap for it, once: a later
   * pause that is no gap does not make values from before an earlier gap certain. The event of a shared one comes a moment after its end: nobody
   * knows how long the vehicle was silent over it when a message came in between.
   */
  decided(state: VehicleState, event: FleetEvent, seq: number): VehicleState {
    if (originOf(event) !== 'vehicle') return state
    const { gaps } = state
    const decidedTo = Math.max(gaps.spanned, gaps.to)
    const shared = this.#sharedTo?.(seq).pauses.filter(({ to }) => to > decidedTo) ?? []
    const end = this.#ends(seq, state.vin).reduce(
      (most, { to, isPause }) => (isPause ? Math.max(most, to) : most),
      shared.at(-1)?.to ?? -1,
    )
    if (end <= decidedTo) return state
    const isSpanned = shared.every(({ fromMs }) => state.seenMs < fromMs) && goesOn(state, event)
    return state.with({ gaps: isSpanned ? { ...gaps, spanned: end } : { ...gaps, to: end } })
  }

  #ends(seq: number, vin: string): readonly Interval[] {
    const { list } = this.#gaps
    if (list.length === 0 && this.#noted.size === 0) return list
    return [...list, this.#noted.get(''), this.#noted.get(vin)].flatMap((gap) =>
      gap !== undefined && this.#counts(gap, seq) ? [gap] : [],
    )
  }

  /** Whether a gap counts for a message. An earlier process did not know a gap that ends later, and its result must not change. */
  #counts({ from, to }: Interval, seq: number): boolean {
    return seq <= this.lastBefore ? to < seq : from <= seq
  }

  #between(gap: KeptGap): Interval {
    return { from: firstSeqAt(gap.fromMs), to: this.#lastSeqAt(gap.toMs), isPause: isPause(gap) || undefined }
  }

  /** The last `seq` up to a time. When the clock was set back, all messages so far. */
  #lastSeqAt(ms: number): number {
    const newest = this.#newestSeq()
    return isClockBehind(newest, this.#now()) ? newest : firstSeqAt(ms + 1) - 1
  }
}
