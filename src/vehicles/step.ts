import type { StoredVehicle } from '../inbox/vehicle-store.ts'
import { type AnyVehicleView, type Change, dated, type Occurrence, undated } from './edge.ts'
import { type Applied, type Slots, Snapshot, type StoredRow, VehicleState } from './state.ts'

/** The subject of the handlers of an edge. Topics are subjects, too. */
export const subjectOf = (edge: string): string => `edge ${edge}`

/** A subject that is there twice runs its handlers twice. */
export interface EdgeSubjects {
  /** Their handlers run before the handlers of its topic: what was due before the message. */
  readonly earlier: readonly string[]
  /** Their handlers run after the handlers of its topic. */
  readonly keys: readonly string[]
}

/** What an edge found, or the error that it threw. `isEarlier`: its time was up before the message. */
export type Happened = { readonly edge: string; readonly isEarlier: boolean } & Found

type Found = { readonly change: Occurrence } | { readonly error: unknown }

/** The effect of one message. It is computed when the message's turn comes, and kept until the message is over. */
export class Step {
  readonly happened: readonly Happened[]
  /** The state that is stored when the message is settled. */
  readonly settled: StoredVehicle | undefined
  readonly #state: VehicleState | undefined
  /** Before the message, for what happened earlier. */
  readonly #before: VehicleState | undefined
  readonly #nowMs: number
  readonly #gapTo: number
  readonly #applied: Pick<Applied, 'changes'> | undefined
  #changes: readonly Change[] | undefined
  #view: AnyVehicleView | undefined

  constructor(
    state: VehicleState | undefined,
    arrival: { readonly nowMs: number; readonly gapTo: number; readonly before?: VehicleState },
    applied?: Pick<Applied, 'changes'>,
    happened: readonly Happened[] = none,
    settled?: StoredVehicle,
  ) {
    this.#before = happened.some(({ isEarlier }) => isEarlier) ? arrival.before : undefined
    this.#state = state
    this.#nowMs = arrival.nowMs
    this.#gapTo = arrival.gapTo
    this.#applied = applied
    this.happened = happened
    this.settled = settled
  }

  /** The changes that handlers see. */
  get changes(): readonly Change[] {
    return (this.#changes ??= this.all.filter(({ first, invalid }) => !first && !invalid))
  }

  /** These changes, and changes that are reported only where `first: true` or `invalid: true` asks for them. */
  get all(): readonly Change[] {
    return this.#applied?.changes ?? none
  }

  /** The subjects of the edges that happened: their handlers get the message, too. */
  get subjects(): EdgeSubjects | undefined {
    if (this.happened.length === 0) return undefined
    const subjects = (isEarlier: boolean): readonly string[] =>
      this.happened.flatMap((each) => (each.isEarlier === isEarlier ? [subjectOf(each.edge)] : []))
    return { earlier: subjects(true), keys: subjects(false) }
  }

  /** The vehicle after the message. `undefined` for a message without a VIN. */
  get view(): AnyVehicleView | undefined {
    return (this.#view ??= this.#state && new Snapshot(this.#state, this.#nowMs, this.#gapTo))
  }

  /** The vehicle when something happened: an earlier one does not see the message. */
  viewAt({ isEarlier }: Pick<Happened, 'isEarlier'>): AnyVehicleView | undefined {
    return isEarlier && this.#before !== undefined ? new Snapshot(this.#before, this.#nowMs, this.#gapTo) : this.view
  }

  /** For a dead letter: what a replay must report again. `undefined`: nothing. */
  text(): string | undefined {
    if (this.#state === undefined || (this.all.length === 0 && this.happened.length === 0)) return undefined
    const { vin, seq, seenMs } = this.#state
    const happened = this.happened.flatMap((each) =>
      'change' in each ? { ...each, change: writable(each.change) } : [],
    )
    const kept: KeptStep = {
      vin,
      seq,
      seenMs,
      text: this.#state.text(),
      nowMs: this.#nowMs,
      gapTo: this.#gapTo,
      all: this.all,
      happened,
      earlier: this.#before?.text(),
    }
    return JSON.stringify(kept)
  }

  /** Reads what {@link text} wrote. */
  static read(text: string, slots: Slots, isOutdated: (edge: string, change: Occurrence) => boolean): Step {
    const kept: KeptStep = JSON.parse(text)
    const happened = kept.happened.flatMap((each) => {
      const change = 'change' in each ? dated(each.change) : undefined
      if (change === undefined || isOutdated(each.edge, change)) return []
      // A dead letter of an earlier version does not say when.
      return { edge: each.edge, isEarlier: each.isEarlier ?? false, change }
    })
    const { nowMs, gapTo, earlier } = kept
    const state = VehicleState.read(kept, slots)
    const before = earlier === undefined ? state : VehicleState.read({ ...kept, text: earlier }, slots)
    return new Step(state, { nowMs, gapTo, before }, { changes: kept.all.map(dated) }, happened)
  }
}

interface KeptStep extends StoredRow {
  readonly nowMs: number
  readonly gapTo: number
  readonly all: readonly Change[]
  readonly happened: readonly ({ readonly edge: string; readonly isEarlier?: boolean } & Found)[]
  /** The state before the message, when something happened before it. */
  readonly earlier: string | undefined
}

/** A change as JSON can write it. An edge of your own may return anything, and a replay must still report that it happened. */
function writable(change: Occurrence): Occurrence {
  try {
    const written = undated(change)
    JSON.stringify(written)
    return written
  } catch {
    return { at: change.at, acrossGap: change.acrossGap }
  }
}

const none: readonly never[] = []
