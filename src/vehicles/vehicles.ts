import { backgroundTimer, type Clock, type Timer } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import { PassingMap } from '../base/passing-map.ts'
import type { FleetEvent, GapEvent, TimerEvent } from '../events/event.ts'
import { type BuiltInFields, type FieldCatalogue, guessOf, isInCatalogue } from '../events/fields.ts'
import type { MalformedBody } from '../events/malformed.ts'
import { BelievedTime } from '../base/believed-time.ts'
import type { MissingField } from '../observe/stats.ts'
import { driftMs, firstSeqAt, isClockBehind, msOfSeq, seqOf } from '../inbox/delivery-id.ts'
import type { Claim, InboxMessage, KeptGap } from '../inbox/inbox.ts'
import { firstPage, pagesOf } from '../base/pages.ts'
import { vinOf } from '../inbox/receipts.ts'
import type { Due, StoredVehicle, VehicleStore } from '../inbox/vehicle-store.ts'
import {
  type AnyVehicleView,
  type Change,
  type Clockwork,
  dated,
  undated,
  type Edge,
  type EdgeMemory,
  type EdgeStep,
  type EdgeTimer,
  isWaiting,
  type Occurrence,
  type Port,
  type Timing,
  type Trace,
  type VehicleView,
} from './edge.ts'
import { arrivedMs } from './clock.ts'
import { checkedResult, checkedTimer, checkShape } from './edge-checks.ts'
import { EdgeIndex } from './edge-index.ts'
import { credibleMs, type Lag, lagAfter, wakeMs } from './lag.ts'
import { FieldCensus } from './missing-fields.ts'
import {
  applied,
  type Applied,
  type Arrival,
  gapEnd,
  isTime,
  type Odd,
  type Slots,
  Snapshot,
  type StoredRow,
  type Timers,
  VehicleState,
} from './state.ts'

/** The newest state of each vehicle: `receiver.vehicles`. */
export interface Vehicles<Fields extends FieldCatalogue = BuiltInFields> {
  /** The newest state, including messages whose handlers are still running. `undefined`: no message of this vehicle was received. */
  get(vin: string): Promise<VehicleView<Fields> | undefined>
  /** In the order of their VINs, from the first one after `after`. It reads them in small steps while you iterate. */
  list(which?: { readonly after?: string | undefined }): AsyncIterable<VehicleView<Fields>>
  /**
   * Deletes the state of a vehicle, with everything that edges remember about it. Resolves to whether there was one. The next message
   * begins a new state. Messages stay: those that wait, those that the inbox keeps for replays, and dead letters.
   */
  forget(vin: string): Promise<boolean>
  stats(): Promise<VehiclesStats>
}

/** Figures of `receiver.vehicles`. */
export interface VehiclesStats {
  /** The number of vehicles with a state. */
  readonly vehicles: number
  /** The number of them whose newest state the inbox has not written yet. It writes every few seconds. */
  readonly unwritten: number
  /** The number of edges that have handlers. */
  readonly edges: number
}

/** The subject of the handlers of an edge, beside those of topics. */
export const subjectOf = (edge: string): string => `edge ${edge}`

/** A subject that is there twice runs its handlers twice. */
export interface EdgeSubjects {
  /** Their handlers run before those of its topic: what was due before the message. */
  readonly earlier: readonly string[]
  /** Their handlers run after those of its topic. */
  readonly keys: readonly string[]
}

/** What an edge found, or the error that it threw. `isEarlier`: its time was up before the message. */
type Happened = { readonly edge: string; readonly isEarlier: boolean } & Found

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

  /** These changes, and those that are reported only where `first: true` or `invalid: true` asks for them. */
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

/** For a message without a vehicle. */
const noMoment = { nowMs: 0, gapTo: -1 }

/** An interval in which messages of any vehicle may be missing, in `seq`. */
interface Interval {
  readonly from: number
  readonly to: number
}

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
    const isKnown = this.list.some(({ from, to }) => from <= interval.from && to >= interval.to)
    const all = isKnown ? this.list : [...this.list, interval]
    const [first, second, ...rest] = all
    // Join the two oldest. That can only make more values uncertain.
    const list =
      first !== undefined && second !== undefined && all.length > mostIntervals
        ? [{ from: Math.min(first.from, second.from), to: Math.max(first.to, second.to) }, ...rest]
        : all
    return new Intervals(Math.max(this.seq, seq), Math.max(this.seenMs, seenMs), list)
  }
}

/** The most gaps of single vehicles that take effect before their events. */
const mostNoted = 10_000

interface OpenVehicle {
  state: VehicleState
  /** The number of messages in `state` that are not over. */
  steps: number
  /** The newest state that was settled. */
  settled?: StoredVehicle
}

/** `receiver.vehicles` in the process that has the states. */
export interface LocalVehicles extends Vehicles<FieldCatalogue> {
  get(vin: string): Promise<Snapshot | undefined>
  list(which?: Parameters<Vehicles['list']>[0]): AsyncIterable<Snapshot>
  /** The edges that have handlers. */
  edges(): readonly Edge[]
  /** Notes a gap that another process noticed. The event of a gap of all vehicles is handled elsewhere. */
  noteGap(gap: Pick<KeptGap, 'vin' | 'fromMs' | 'toMs'>): Promise<void>
}

interface VehicleStatesOptions {
  readonly store: VehicleStore
  readonly slots: Slots
  readonly clock: Clock
  readonly edges?: EdgeIndex
  /** The `seq` of the newest message that was received. */
  readonly newestSeq?: () => number
  /** Called for a message of a vehicle whose clock was set back by this much. `undefined`: it is right again. */
  readonly clockRead?: (vin: string, behindMs: number | undefined) => void
  /** Called once for each value that is left out. */
  readonly oddSeen?: (odd: Odd) => void
  /** Called once a day with the fields of rules that do not come. Left out: nobody looks. */
  readonly fieldsMissing?: ((missing: readonly MissingField[]) => void) | undefined
  /** Forgets silent vehicles while the process runs. */
  readonly forgets?: { readonly afterMs: number; readonly everyMs: number; failed(error: unknown): void } | undefined
}

/**
 * The newest state of each vehicle. A lane opens one message at a time, so the messages of a vehicle change its state in order. The
 * state is in memory while one of its messages is not over, and otherwise in the store.
 */
export class VehicleStates {
  readonly slots: Slots
  readonly edges: EdgeIndex
  readonly #store: VehicleStore
  readonly #clock: Clock
  readonly #newestSeq: () => number
  readonly #oddSeen: (odd: Odd) => void
  readonly #clockRead: (vin: string, behindMs: number | undefined) => void
  readonly #open = new PassingMap<string, OpenVehicle>()
  /** Vehicles that were forgotten before all their messages were over, with the `seq` of the newest of these messages. */
  readonly #forgotten = new Map<string, number>()
  /** Gaps whose events have not come yet: one interval per VIN, and '' for all vehicles. */
  readonly #noted = new Map<string, Interval>()
  #gaps = new Intervals(-1, -Infinity, [])
  /** Keeps time, for a receiver with edges that have timers. */
  #clockwork: Clockwork | undefined
  #put: ((due: readonly Due[]) => Promise<boolean>) | undefined
  #beginning: Timer | undefined
  /** How long messages that come late are waited for. At the end, none will come. */
  #quiet: number | undefined
  /** The `seq` of the newest message of earlier processes. */
  #lastBefore = -1
  readonly #forgets: VehicleStatesOptions['forgets']
  #forgetting: Timer | undefined
  readonly #fieldsMissing: VehicleStatesOptions['fieldsMissing']
  readonly #startedMs: number
  #looking: Timer | undefined
  readonly #believed: BelievedTime
  #isStopped = false
  /** What began in the future, by a clock that was ahead, begins now. */
  #isTakenBack = false

  constructor({
    store,
    slots,
    clock,
    edges = new EdgeIndex(),
    newestSeq = () => -1,
    clockRead = () => {},
    oddSeen = () => {},
    forgets,
    fieldsMissing,
  }: VehicleStatesOptions) {
    this.#fieldsMissing = fieldsMissing
    this.#startedMs = clock.now()
    this.#clockRead = clockRead
    this.#oddSeen = oddSeen
    this.#store = store
    this.#forgets = forgets
    this.#believed = new BelievedTime(clock)
    this.#newestSeq = newestSeq
    this.slots = slots
    this.#clock = clock
    this.edges = edges
  }

  /** Call this once the inbox is open. Reads the gaps of all vehicles, and applies messages that a crash kept out of the stored states. */
  async recover(
    unapplied: AsyncIterable<readonly InboxMessage[]> | undefined,
    read: (message: InboxMessage) => FleetEvent | MalformedBody,
    lastId?: string,
  ): Promise<void> {
    this.#forgetLater()
    if (this.edges.size > 0) this.#lookLater(firstLookMs)
    if (lastId !== undefined) this.#lastBefore = seqOf(lastId)
    this.#store.shared?.follow({
      moved: async (isStale) => {
        const clockwork = this.#clockwork
        if (clockwork === undefined) return
        for (const vin of clockwork.known.keys()) if (isStale(vin)) clockwork.set(vin, undefined, true)
        await this.#readTimers(clockwork)
        void this.#begin()
      },
      forget: (vin) => this.#forget(vin),
    })
    this.#gaps = Intervals.read(await this.#store.load(''))
    // Its event comes after messages that are applied again after a crash, and then these must know the gap.
    const restarted = this.#noted.get('')
    if (restarted !== undefined) this.#store.keep((this.#gaps = this.#gaps.with(restarted, -1, -Infinity)))
    if (unapplied === undefined) return
    for await (const messages of unapplied) {
      for (const message of messages) {
        const seq = seqOf(message.id)
        const event = readable(message, read)
        if (event === undefined || event.topic === 'malformed') continue
        if (event.vin === undefined) {
          if (event.topic === 'gap' && seq > this.#gaps.seq) this.#store.keep(this.#gap(event, seq))
          continue
        }
        const state = await this.find(message.lane)
        // Skip messages that the state includes: applied again, one could replace the value of a later message with the same time.
        if (state === undefined || seq <= state.seq) continue
        this.#store.keep(this.#advance(state, event, seq).after)
      }
    }
  }

  /**
   * Call this when the stored states are complete. Resolves when the timers of all vehicles are known, to a function that starts them.
   * Those that are due get a message by `put`, which resolves to whether the inbox took it.
   */
  async findTimers(put: (timers: readonly TimerEvent[]) => Promise<boolean>, port?: Port): Promise<() => void> {
    this.#put = (due) => put(due.map(({ vin, dueMs }) => timerEvent(vin, dueMs, new Date(this.#clock.now()))))
    const start = (): void => {
      this.#clockwork?.start(port)
      void this.#begin()
    }
    if (this.edges.timing !== undefined) await this.#keepTime(this.edges.timing)
    // An edge that is registered later.
    this.edges.onTiming = (timing) =>
      void (this.#clockwork === undefined ? this.#keepTime(timing).then(start) : this.#begin())
    return start
  }

  /** The process stood still until now. */
  stoodStill(): void {
    this.#clockwork?.stoodStill()
  }

  /** When the next timer is due. */
  nextTimerMs(): number | undefined {
    return this.#clockwork?.nextMs()
  }

  #forgetLater(): void {
    const forgets = this.#forgets
    if (forgets === undefined || this.#isStopped) return
    this.#forgetting = backgroundTimer(this.#clock, forgets.everyMs, () => {
      this.#store.forgetUnseen(this.#believed.now() - forgets.afterMs).catch(forgets.failed)
      this.#forgetLater()
    })
  }

  /** Looks for fields of rules that do not come. */
  #lookLater(afterMs: number): void {
    const found = this.#fieldsMissing
    if (found === undefined || this.#isStopped) return
    this.#looking = backgroundTimer(this.#clock, afterMs, () => {
      // The inbox has said so when it cannot list its states.
      void this.missingFields().then(found, () => {})
      this.#lookLater(lookEachMs)
    })
  }

  async missingFields(): Promise<readonly MissingField[]> {
    const census = new FieldCensus(this.edges.all, this.#believed.now(), this.#startedMs)
    const find = (last: StoredVehicle | undefined, limit: number): Promise<readonly StoredVehicle[]> =>
      this.#store.list({ after: last?.vin, limit })
    for await (const page of pagesOf<StoredVehicle>(find, firstPage))
      census.add(page.filter(({ vin }) => vin !== '').map((each) => this.#read(each.vin, each)))
    return census.missing()
  }

  /** No message will come any more, and nothing is kept: puts messages for all that is due by now. Resolves to whether there was something. */
  async tellDue(): Promise<boolean> {
    this.#quiet = 0
    const now = this.#clock.now()
    const due: Due[] = []
    for (const vin of this.#clockwork?.known.keys() ?? []) {
      const { state } = this.#open.get(vin) ?? { state: this.#read(vin, await this.#store.load(vin)) }
      if ((state.wakeMs(0) ?? Infinity) <= now) due.push({ vin, dueMs: now })
    }
    return due.length > 0 && (await this.#put?.(due)) === true
  }

  stopTimers(): void {
    this.#isStopped = true
    this.#forgetting?.cancel()
    this.#looking?.cancel()
    this.edges.onTiming = undefined
    this.#beginning?.cancel()
    this.#beginning = undefined
    this.#clockwork?.stop()
  }

  async #keepTime(timing: Timing): Promise<void> {
    const newestMs = (): number => msOfSeq(this.#newestSeq())
    const clockwork = timing({ clock: this.#clock, newestMs, put: async (due) => (await this.#put?.(due)) === true })
    this.#clockwork = clockwork
    try {
      await this.#readTimers(clockwork)
    } catch (error) {
      // A shared store tries again by itself, and the clockwork must start.
      if (this.#store.shared === undefined) throw error
    }
  }

  /** Sets the timers of vehicles. Those that the clockwork knows already are newer than what the store has. */
  async #readTimers(clockwork: Clockwork): Promise<void> {
    for (const { state } of this.#open.values()) clockwork.set(state.vin, state.dueMs)
    for await (const page of this.#store.due())
      for (const { vin, dueMs } of page)
        // An earlier version stored any number of an edge. The state is read without it.
        if (this.#open.get(vin) === undefined && !clockwork.known.has(vin))
          clockwork.set(vin, isTime(dueMs) ? dueMs : 0)
  }

  /**
   * Sets the timers of vehicles for which a rule holds that their states do not know yet, because it is new. The vehicles that send nothing
   * any more are those for which a rule about silence is added. Nothing is written: the next message of a vehicle, or of its timer, does that.
   */
  async #begin(): Promise<void> {
    const { rules } = this.edges
    const clockwork = this.#clockwork
    if (rules === undefined || clockwork === undefined || this.#put === undefined) return
    this.#beginning?.cancel()
    // Set until it is done, so that a stop is seen.
    const beginning = (this.#beginning = backgroundTimer(this.#clock, againMs, () => void this.#begin()))
    try {
      for await (const page of this.#store.outdated(rules))
        for (const stored of page) {
          if (this.#beginning !== beginning) return
          const { dueMs } = this.#read(stored.vin, this.#open.get(stored.vin)?.state ?? stored)
          if (dueMs !== undefined) clockwork.add(stored.vin, dueMs)
        }
    } catch {
      // It is tried again when the timer fires.
      this.slots.leftOut('the states of vehicles for a rule that is new cannot be read now')
      return
    }
    beginning.cancel()
  }

  /** The state before the next message of a lane. `undefined` for a lane without a VIN. */
  find(lane: string): VehicleState | undefined | Promise<VehicleState | undefined> {
    const vin = vinOf(lane)
    if (vin === undefined) return undefined
    const open = this.#open.get(vin)
    if (open !== undefined) return this.#begun(open.state)
    const stored = this.#store.load(vin)
    return stored instanceof Promise ? stored.then((found) => this.#read(vin, found)) : this.#read(vin, stored)
  }

  /**
   * Applies a message whose turn has come. A replay changes nothing, and reports what the message reported before (`changed`). `isFollowed`: newer
   * messages wait in its lane.
   */
  step(
    id: string,
    event: FleetEvent | MalformedBody,
    state: VehicleState | undefined,
    { replayed, changed: before, seq = seqOf(id) }: Pick<Claim, 'replayed' | 'changed' | 'seq'>,
    isFollowed: boolean = false,
  ): Step | undefined {
    if (event.topic === 'malformed') return undefined
    if (replayed) {
      const isOutdated = (edge: string, change: Occurrence): boolean =>
        this.edges.get(edge)?.isOutdated?.(change, state?.memory?.[edge]) === true
      if (before !== undefined) return Step.read(before, this.slots, isOutdated)
      return new Step(state, { nowMs: this.#clock.now(), gapTo: this.#gapTo(seqNow, state?.vin) })
    }
    if (event.vin === undefined || state === undefined)
      return event.topic === 'gap' ? new Step(undefined, noMoment, undefined, none, this.#gap(event, seq)) : undefined
    if (event.topic === 'gap') this.#unnote(event, seq)
    const isTimer = event.topic === 'timer'
    // The vehicle was forgotten.
    if (isTimer && state.seq < 0) {
      this.#clockwork?.set(event.vin, undefined, true)
      return undefined
    }
    const { after, found, happened, gapTo } = this.#advance(state, event, seq)
    // The message of a timer may be missing in a gap, too.
    this.#clockwork?.set(state.vin, after.dueMs, isTimer || event.topic === 'gap', isFollowed)
    for (const odd of found.odd) this.#oddSeen(odd)
    const behindMs = after.clock?.behindMs
    if (behindMs !== undefined || state.clock?.behindMs !== undefined) this.#clockRead(state.vin, behindMs)
    this.#take(after)
    return new Step(after, { nowMs: arrivedMs(event, seq), gapTo, before: state }, found, happened, after)
  }

  /**
   * A message that is given up unread, or because it may end the process, changes nothing of its vehicle. What is known from before it is uncertain
   * from then on: otherwise nothing would say that its values are missing.
   */
  miss(
    id: string,
    event: FleetEvent | MalformedBody | undefined,
    state: VehicleState | undefined,
    { replayed, seq = seqOf(id) }: Pick<Claim, 'replayed' | 'seq'>,
  ): Step | undefined {
    if (replayed || state === undefined || state.seq < 0) return undefined
    const after = state.with({ seq: Math.max(state.seq + 1, seq), gapTo: Math.max(state.gapTo, seq) })
    this.#clockwork?.set(state.vin, after.dueMs, event?.topic === 'timer')
    this.#take(after)
    return new Step(after, { nowMs: this.#clock.now(), gapTo: after.gapTo }, undefined, none, after)
  }

  /** The state after a message that is not over. */
  #take(after: VehicleState): void {
    const open = this.#open.get(after.vin)
    if (open === undefined) this.#open.set(after.vin, { state: after, steps: 1 })
    else {
      open.state = after
      open.steps += 1
    }
  }

  /** The state that the inbox stores when the message is settled or given up. */
  settling(step: Step | undefined): StoredVehicle | undefined {
    const settled = step?.settled
    // Gaps may have been added since.
    if (settled?.vin === '') return this.#gaps
    if (settled === undefined) return undefined
    const open = this.#open.get(settled.vin)
    // A message that no handler is for can be settled before one that a batch gathers, and its state includes that one.
    const newest = (open?.settled?.seq ?? -1) > settled.seq ? open?.settled : settled
    if (open !== undefined && newest !== undefined) open.settled = newest
    return settled.seq <= (this.#forgotten.get(settled.vin) ?? -1) ? undefined : newest
  }

  /** Call this when the message is over and the store has the state that was settled with it. */
  over(step: Step | undefined): void {
    if (step?.settled === undefined) return
    const { vin } = step.settled
    const open = this.#open.get(vin)
    if (open === undefined) return
    open.steps -= 1
    if (open.steps > 0) return
    this.#open.delete(vin)
    this.#forgotten.delete(vin)
  }

  /** Notes that messages of this vehicle, or of any, may be missing. The event of the gap comes later, in its lane. */
  noteGap(vin: string | undefined, fromMs: number, toMs: number): void {
    // Every process learns of the gap from the store, and of that of a vehicle in its lane.
    if (this.#store.shared !== undefined) return
    const known = this.#noted.get(vin ?? '')
    if (known === undefined && this.#noted.size >= mostNoted) return
    const [from, to] = [firstSeqAt(fromMs), this.#lastSeqAt(toMs)]
    this.#noted.set(
      vin ?? '',
      known === undefined ? { from, to } : { from: Math.min(from, known.from), to: Math.max(to, known.to) },
    )
  }

  async *#list(
    open: () => Promise<void>,
    view: (state: VehicleState) => Snapshot,
    after: string | undefined,
  ): AsyncGenerator<Snapshot> {
    await open()
    for await (const page of pagesOf<StoredVehicle>(
      (last, limit) => this.#store.list({ after: last?.vin ?? after, limit }),
      firstPage,
    ))
      for (const each of page) yield view(this.#open.get(each.vin)?.state ?? this.#read(each.vin, each))
  }

  /** `receiver.vehicles`. Each method calls `open` first. */
  api(open: () => Promise<void>): LocalVehicles {
    const view = (state: VehicleState): Snapshot =>
      new Snapshot(state, this.#clock.now(), this.#gapTo(seqNow, state.vin))
    return {
      get: async (vin) => {
        await open()
        const state = this.#open.get(vin)?.state ?? this.#read(vin, await this.#store.load(vin))
        return state.seq < 0 ? undefined : view(state)
      },
      list: ({ after } = {}) => this.#list(open, view, after),
      forget: async (vin) => {
        await open()
        return this.#forget(vin)
      },
      edges: () => this.edges.all,
      noteGap: async ({ vin, fromMs, toMs }) => {
        await open()
        // The clocks of two processes differ, but messages from now on are certainly after the gap.
        const endMs = this.#clock.now() - 1
        if (vin !== undefined) return this.noteGap(vin, Math.min(fromMs, endMs), Math.min(toMs, endMs))
        const [from, to] = [firstSeqAt(Math.min(fromMs, endMs)), this.#lastSeqAt(Math.min(toMs, endMs))]
        this.#store.keep((this.#gaps = this.#gaps.with({ from, to }, -1, -Infinity)))
      },
      stats: async () => {
        await open()
        return { ...(await this.#store.count()), edges: this.edges.size }
      },
    }
  }

  async #forget(vin: string): Promise<boolean> {
    const opened = this.#open.get(vin)
    if (opened !== undefined) {
      this.#forgotten.set(vin, opened.state.seq)
      opened.state = VehicleState.unknown(vin, this.slots)
    }
    this.#clockwork?.set(vin, undefined)
    return (await this.#store.forget(vin)) || opened !== undefined
  }

  /**
   * The state after a message, and what happened. What was due before the message, by the vehicle's clock (a silence: by arrival), happens
   * before it, in the order of its times. So nothing depends on whether the message of a timer or a newer message came first.
   */
  #advance(before: VehicleState, event: FleetEvent, seq: number): Advanced {
    const gapTo = this.#gapTo(seq, before.vin)
    const arrival: Arrival = { event, seq, gapTo }
    const found = applied(before, arrival)
    if (this.edges.size === 0) return { after: found.after, found, happened: none, gapTo }
    const after = traced(found.after, this.edges.traces, (_, slot) => found.after.time(slot, 1) === found.after.seq)
    // The clocks of two receivers differ.
    const nowMs = Math.max(arrivedMs(event, seq), before.seenMs)
    const { vin, lag: lagBefore } = before
    const { topic } = event
    const isTimer = topic === 'timer'
    const isSent = !isTimer && topic !== 'gap'
    const at = new Date(found.sentMs)
    if (!isTimer) this.#clockwork?.heard(at.getTime())
    const sent = credibleMs(at.getTime(), nowMs)
    const look = (state: VehicleState): Snapshot => new Snapshot(state, nowMs, gapTo, { momentMs: sent })
    const views = { before: look(before), after: look(after) }
    if (isSent && wasAhead(event, seq)) void this.#takeBack()
    // While the clock is set forward, nothing is late and nobody is silent. And a silence that begins then is none that begins in the future.
    const heardMs = Math.min(nowMs, this.#clockwork?.nowMs() ?? Infinity)
    const arrived = heardMs < nowMs - driftMs ? heardMs : nowMs
    let timers = timersOf(before, Math.max(gapTo, after.gapTo))
    let memory: Map<string, EdgeMemory> | undefined
    const happened: Happened[] = []

    const detect = (edge: Edge, isEarlier: boolean, step: Omit<EdgeStep, 'memory' | 'timer' | 'arrivedMs'>): void => {
      const { name } = edge
      const timer = timers?.[name]
      memory ??= new Map(Object.entries(after.memory ?? {}))
      // What was due is over.
      if (step.event.topic === 'timer') timers = changed(timers, name, null)
      try {
        const result = checkedResult(
          name,
          edge.detect({ ...step, arrivedMs: arrived, memory: memory.get(name), timer }),
        )
        for (const change of [...(result?.earlier ?? none), result?.happened])
          if (change !== undefined) happened.push({ edge: name, isEarlier, change })
        if (result?.memory === null) memory.delete(name)
        else if (result?.memory !== undefined) memory.set(name, result.memory)
        if (result?.timer !== undefined) timers = changed(timers, name, result.timer)
      } catch (error) {
        happened.push({ edge: name, isEarlier, error })
      }
    }

    const tellDue = (isDue: (timer: EdgeTimer, edge: Edge) => boolean, isEarlier: boolean): void => {
      const view = isEarlier ? views.before : views.after
      for (let left = mostAgain + this.edges.size; timers !== undefined && left > 0; left -= 1) {
        const next = this.#firstDue(timers, isDue)
        if (next === undefined) return
        const dueMs = Math.min(next.dueMs, nowMs)
        const timerStep = isTimer ? event : timerEvent(vin, dueMs, event.receivedAt)
        detect(next.edge, isEarlier, {
          before: view.through({ momentMs: next.dueMs - 1 }),
          after: view.through({ momentMs: next.dueMs }),
          event: timerStep,
          at: new Date(dueMs),
          changes: none,
        })
      }
    }

    // Also for an edge that is no longer registered.
    if (isTimer) timers = this.#withoutUnknown(timers, event.at.getTime())
    if (timers !== undefined) {
      if (isTimer) tellDue((timer) => (wakeMs(timer, lagBefore, this.#quiet) ?? Infinity) <= event.at.getTime(), false)
      else if (isSent)
        tellDue(({ due, byArrival }, { fields }) => {
          if (due === null || due > (byArrival === true ? nowMs : sent)) return false
          if (byArrival === true) return due <= heardMs + driftMs
          // A document has values with older times.
          return found.changes.every(
            (change) => credibleMs(change.at.getTime(), nowMs) >= due || !fields.includes(change.field),
          )
        }, true)
    }
    if (!isTimer) {
      const fields = found.touched.flatMap((slot) => this.slots.names[slot] ?? [])
      const { changes } = found
      for (const edge of this.edges.touched(event, fields, views.before, views.after, waitingIn(before.memory)))
        detect(edge, false, { ...views, event, at, changes })
      if (isSent) tellDue(({ due, byArrival }) => due !== null && byArrival !== true && due <= sent, false)
    }
    const lag = isSent && this.edges.timing !== undefined ? lagAfter(lagBefore, sent, heardMs) : lagBefore
    return { after: remembering(after, memory, timers, lag, this.edges), found, happened, gapTo }
  }

  /**
   * The clock of an earlier process was ahead: what its vehicles wait for began in the future, and would come late by that, or for those that send
   * nothing more, never.
   */
  async #takeBack(): Promise<void> {
    const clockwork = this.#clockwork
    if (this.#isTakenBack || clockwork === undefined) return
    this.#isTakenBack = true
    try {
      for (const vin of [...clockwork.known.keys()]) {
        const found = this.#store.load(vin)
        const stored = found instanceof Promise ? await found : found
        // The messages of one that sends something do it.
        if (this.#open.get(vin) !== undefined || this.#isStopped) continue
        const state = this.#read(vin, stored)
        const right = begunBy(state, clockwork.nowMs())
        if (right === state) continue
        this.#store.keep(right)
        clockwork.set(vin, right.dueMs)
      }
    } catch {
      // The inbox has said so. The next message tries it again.
      this.#isTakenBack = false
    }
  }

  /** The timer that is due first, of an edge that is registered. */
  #firstDue(
    timers: Timers,
    isDue: (timer: EdgeTimer, edge: Edge) => boolean,
  ): { readonly edge: Edge; readonly dueMs: number } | undefined {
    let first: { readonly edge: Edge; readonly dueMs: number } | undefined
    for (const name in timers) {
      const [timer, edge] = [timers[name], this.edges.get(name)]
      if (timer === undefined || timer.due === null || edge === undefined || !isDue(timer, edge)) continue
      const isFirst =
        first === undefined ||
        timer.due < first.dueMs ||
        (timer.due === first.dueMs && this.edges.numberOf(name) < this.edges.numberOf(first.edge.name))
      if (isFirst) first = { edge, dueMs: timer.due }
    }
    return first
  }

  /** Without what was due of edges that are no longer registered. */
  #withoutUnknown(timers: Timers | undefined, dueMs: number): Timers | undefined {
    let kept = timers
    for (const name in timers)
      if (!this.edges.has(name) && (timers[name]?.due ?? Infinity) <= dueMs) kept = changed(kept, name, null)
    return kept
  }

  #read(vin: string, stored: StoredVehicle | undefined): VehicleState {
    if (stored === undefined) return VehicleState.unknown(vin, this.slots)
    if (stored instanceof VehicleState && stored.slots === this.slots) return this.#begun(stored)
    return this.#begun(
      VehicleState.read({ vin, seq: stored.seq, seenMs: stored.seenMs, text: stored.text() }, this.slots),
    )
  }

  /** A stored state with the timers and the traces of rules that it has not followed: because they are new, or were removed for a time. */
  #begun(stored: VehicleState): VehicleState {
    const { rules, beginning, traces } = this.edges
    const state = traced(stored, traces, (trace, slot) => stored.memory?.[trace.name] === undefined && slot >= 0)
    if (state.rules === rules || state.seq < 0) return state
    const followed = new Set(state.rules?.split(' '))
    const view = new Snapshot(state, state.seenMs, this.#gapTo(seqNow, state.vin))
    let { timers } = state
    for (const [mark, edge] of beginning) {
      if (followed.has(mark)) continue
      const { name } = edge
      try {
        const timer = edge.begins?.(view)
        const known = timers?.[name]
        const isSame = timer !== undefined && known !== undefined && isStillThat(known, timer, edge, view)
        if (!isSame) timers = changed(timers, name, timer === undefined ? null : checkedTimer(name, timer))
      } catch {
        this.slots.leftOut(`the edge \`${name}\` cannot begin with a stored state`)
      }
    }
    return state.with({ timers, rules })
  }

  /** Records a gap of all vehicles, whose event has come. */
  #gap(event: GapEvent, seq: number): Intervals {
    const interval = { from: Math.min(seq, firstSeqAt(event.from.getTime())), to: this.#unnote(event, seq) }
    this.#gaps = this.#gaps.with(interval, seq, event.receivedAt.getTime())
    return this.#gaps
  }

  /** The last `seq` up to a time. When the clock was set back, all messages so far. */
  #lastSeqAt(ms: number): number {
    const newest = this.#newestSeq()
    return isClockBehind(newest, this.#clock.now()) ? newest : firstSeqAt(ms + 1) - 1
  }

  /** Called with the event of a gap. Returns the end of the gap. Messages missed after it belong to another event. */
  #unnote(event: GapEvent, seq: number): number {
    const key = event.vin ?? ''
    const noted = this.#noted.get(key)
    const end = gapEnd(event, seq)
    if (noted === undefined) return end
    // The event of a restart ends with the first message after it, whose values are certain. The noted gap ends before that message.
    const to = event.reason === 'restarted' || event.reason === 'stopped' ? Math.min(end, noted.to) : end
    if (noted.to <= end || noted.to < firstSeqAt(event.to.getTime() + 1)) this.#noted.delete(key)
    else this.#noted.set(key, { from: end + 1, to: noted.to })
    return to
  }

  /** For a message with this `seq`: values of the vehicle up to the returned `seq` are uncertain. */
  #gapTo(seq: number, vin: string | undefined): number {
    const { list } = this.#gaps
    const shared = this.#store.shared?.gapTo(seq) ?? -1
    if (list.length === 0 && this.#noted.size === 0) return shared
    return Math.max(
      shared,
      ...[...list, this.#noted.get(''), this.#noted.get(vin ?? '')].flatMap((gap) =>
        gap !== undefined && this.#counts(gap, seq) ? [gap.to] : [],
      ),
    )
  }

  /** Whether a gap counts for a message. An earlier process did not know a gap that ends later, and its result must not change. */
  #counts({ from, to }: Interval, seq: number): boolean {
    return seq <= this.#lastBefore ? to < seq : from <= seq
  }
}

interface Advanced {
  readonly after: VehicleState
  readonly found: Pick<Applied, 'changes' | 'sentMs' | 'odd'>
  readonly happened: readonly Happened[]
  readonly gapTo: number
}

/** A `seq` after every message. */
const seqNow = Number.MAX_SAFE_INTEGER

/** One message tells all that is due, whatever the number of edges, because it may set their timers again. An edge that is due again at once is told at most this many times more. */
const mostAgain = 64

/** Ids that are ahead of the clock by less say nothing about it. */
const toleranceMs = 60_000

/** When the fields of rules are looked for first, and how often. Each look reads all states. */
const firstLookMs = 3_600_000
const lookEachMs = 86_400_000

/** When the states are read again after the store failed, in milliseconds. */
const againMs = 60_000

/** Wakes the timers of a vehicle that are due at this time or before. */
function timerEvent(vin: string, dueMs: number, receivedAt: Date): TimerEvent {
  const at = new Date(dueMs)
  return {
    topic: 'timer',
    vin,
    createdAt: at.toISOString(),
    at,
    receivedAt,
    id: `timer:${vin}:${dueMs}`,
    format: null,
    raw: null,
    meta: {},
  }
}

/** Stores what edges remember, without edges that are no longer registered. */
function remembering(
  state: VehicleState,
  found: Map<string, EdgeMemory> | undefined,
  timers: Timers | undefined,
  lag: Lag | undefined,
  edges: EdgeIndex,
): VehicleState {
  const { rules } = edges
  for (const name of found?.keys() ?? []) if (!edges.has(name) && !edges.traces.has(name)) found?.delete(name)
  const memory = found === undefined ? state.memory : found.size > 0 ? Object.fromEntries(found) : undefined
  const isSame = state.memory === memory && state.timers === timers && state.lag === lag && state.rules === rules
  return isSame ? state : state.with({ memory, timers, lag, rules })
}

/** A state with what conditions remember of its values: of those that a message reported, or that nothing is remembered of yet. */
function traced(
  state: VehicleState,
  traces: EdgeIndex['traces'],
  follows: (trace: Trace, slot: number) => boolean,
): VehicleState {
  const { slots, values } = state
  const memory = new Map<string, EdgeMemory>()
  for (const trace of traces.values()) {
    const { name, field } = trace
    const slot = slots.find(field) ?? -1
    const value = values[slot]
    if (value === undefined || !follows(trace, slot)) continue
    try {
      const next = trace.next(state.memory?.[name], value, state.time(slot, 0))
      memory.set(name, checkedResult(name, { memory: next })?.memory ?? null)
    } catch {
      slots.leftOut(`what the condition \`${name}\` remembers`)
    }
  }
  return memory.size === 0 ? state : state.with({ memory: { ...state.memory, ...Object.fromEntries(memory) } })
}

/** The names of edges that have happened and are not told yet: each message may decide about them. */
function waitingIn(memory: VehicleState['memory']): readonly string[] {
  let names: string[] | undefined
  for (const name in memory) if (isWaiting(memory[name])) (names ??= []).push(name)
  return names ?? none
}

/** The timers of a vehicle. Those that began before a gap say so. */
function timersOf({ timers, seq }: VehicleState, gapTo: number): Timers | undefined {
  if (timers === undefined || seq > gapTo) return timers
  return Object.fromEntries(Object.entries(timers).map(([name, timer]) => [name, { ...timer, acrossGap: true }]))
}

/** Whether the clock that made the ids was ahead: a vehicle says what the receiver's clock says now. */
function wasAhead({ at, receivedAt, meta }: FleetEvent, seq: number): boolean {
  const nowMs = receivedAt.getTime()
  if (meta.createdAtMissing === true) return false
  return msOfSeq(seq) - nowMs > toleranceMs && Math.abs(at.getTime() - nowMs) < driftMs
}

/** The same state, without what begins after this time. */
function begunBy(state: VehicleState, nowMs: number): VehicleState {
  const { lag } = state
  let { timers } = state
  for (const [name, timer] of Object.entries(timers ?? {})) {
    const { since, due } = timer
    const laterMs = since - nowMs
    if (laterMs > 0)
      timers = changed(timers, name, { ...timer, since: nowMs, due: due === null ? null : due - laterMs })
  }
  if (timers === state.timers && (lag === undefined || lag.atMs <= nowMs)) return state
  return state.with({ timers, lag: lag && { ...lag, atMs: Math.min(lag.atMs, nowMs) } })
}

/** Whether an edge that was removed for a time has reported this, or waits for it, and its values have not changed since. */
function isStillThat(known: EdgeTimer, fresh: EdgeTimer, { fields }: Edge, vehicle: AnyVehicleView): boolean {
  if (fresh.byArrival === true) return fresh.since <= known.since
  // A number is mostly another one with each message.
  const texts = fields.filter((field) => typeof vehicle.value(field) !== 'number')
  return texts.every((field) => (vehicle.since(field)?.getTime() ?? 0) <= known.since)
}

/** The timers when one of them is another one, or `null` for none. */
function changed(timers: Timers | undefined, name: string, timer: EdgeTimer | null): Timers | undefined {
  if (timer !== null) return { ...timers, [name]: timer }
  if (timers?.[name] === undefined) return timers
  const { [name]: _, ...others } = timers
  return Object.keys(others).length === 0 ? undefined : others
}

/** The event of a message. A message that cannot be read is a dead letter, and changes no state. */
function readable(
  message: InboxMessage,
  read: (message: InboxMessage) => FleetEvent | MalformedBody,
): FleetEvent | MalformedBody | undefined {
  try {
    return message.event ?? read(message)
  } catch {
    return undefined
  }
}

/** Throws `handler_invalid` for an edge over fields that are not kept, or that are in no catalogue. */
export function checkEdge(edge: Edge, slots: Slots, ownFields: FieldCatalogue = {}): Edge {
  checkShape(edge)
  const unknown = edge.reads.find((field) => !isInCatalogue(field, ownFields))
  if (unknown !== undefined) {
    throw new FleethookError(
      'handler_invalid',
      `The edge \`${edge.name}\` reads \`${unknown}\`, which is not in the catalogue.`,
      { hint: `${guessOf(unknown, ownFields)}Add a field of your own to the option \`fields\`.` },
    )
  }
  const missing = edge.reads.find((field) => !slots.keeps(field))
  if (missing !== undefined) {
    throw new FleethookError(
      'handler_invalid',
      `The edge \`${edge.name}\` reads \`${missing}\`, which is not among the \`fields\` of the part \`vehicles\`.`,
      { hint: `Add '${missing}' to its \`fields\`.` },
    )
  }
  return edge
}
