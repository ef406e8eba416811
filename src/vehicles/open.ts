import type { Clock } from '../base/clock.ts'
import { firstPage, pagesOf } from '../base/pages.ts'
import { PassingMap } from '../base/passing-map.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import { originOf } from '../events/origin.ts'
import { seqOf } from '../inbox/delivery-id.ts'
import type { Claim, InboxMessage, KeptGap } from '../inbox/inbox.ts'
import { vinOf } from '../inbox/receipts.ts'
import type { StoredVehicle, VehicleStore } from '../inbox/vehicle-store.ts'
import type { MissingField } from '../observe/stats.ts'
import { begun } from './begin.ts'
import { arrivedMs } from './clock.ts'
import { type Advanced, advance } from './detect.ts'
import type { Occurrence } from './edge.ts'
import { EdgeIndex } from './edge-index.ts'
import { Rounds } from './rounds.ts'
import type { Facts } from './facts.ts'
import { applied, type Applied, factsOf, type Odd, type Slots, Snapshot, VehicleState } from './state.ts'
import { Step } from './step.ts'
import { VehicleTimers } from './timers.ts'
import { seqNow, Uncertain } from './uncertain.ts'
import type { LocalVehicles, ReadVehicles } from './vehicles.ts'

/** A vehicle with what the business said of it. */
export interface FactsOfVehicle {
  readonly vin: string
  readonly facts: Facts | undefined
}

/** For a message without a vehicle. */
const noMoment = { nowMs: 0, gapTo: -1 }

interface OpenVehicle {
  state: VehicleState
  /** The number of messages in `state` that are not over. */
  steps: number
  /** The newest state that was settled. */
  settled?: StoredVehicle
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
  readonly timers: VehicleTimers
  readonly #store: VehicleStore
  readonly #clock: Clock
  readonly #oddSeen: (odd: Odd) => void
  readonly #clockRead: (vin: string, behindMs: number | undefined) => void
  readonly #open = new PassingMap<string, OpenVehicle>()
  /** Vehicles that were forgotten before all their messages were over, with the `seq` of the newest of these messages. */
  readonly #forgotten = new Map<string, number>()
  readonly #uncertain: Uncertain
  readonly #rounds: Rounds
  /** When the rules of this process began: the same for a timer when it is set, and when it is due. */
  #beganMs: number | undefined

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
    this.#clockRead = clockRead
    this.#oddSeen = oddSeen
    this.#store = store
    this.slots = slots
    this.#clock = clock
    this.edges = edges
    const { shared } = store
    this.#uncertain = new Uncertain(() => clock.now(), newestSeq, shared && ((seq) => shared.gapsTo(seq)))
    const read = (vin: string, stored: StoredVehicle | undefined): VehicleState => this.#read(vin, stored)
    const leftOut = (reason: string): void => slots.leftOut(reason)
    this.timers = new VehicleTimers({ store, clock, edges, newestSeq, open: this.#open, read, leftOut })
    this.#rounds = new Rounds({ store, clock, edges, read, fieldsMissing, forgets })
  }

  /** Call this once the inbox is open. Reads the gaps of all vehicles, and applies messages that a crash kept out of the stored states. */
  async recover(
    unapplied: AsyncIterable<readonly InboxMessage[]> | undefined,
    read: (message: InboxMessage) => FleetEvent | MalformedBody,
    lastId?: string,
  ): Promise<void> {
    this.#rounds.start()
    if (lastId !== undefined) this.#uncertain.lastBefore = seqOf(lastId)
    this.#store.shared?.follow({
      moved: (isStale) => this.timers.moved(isStale),
      forget: (vin) => this.#forget(vin),
    })
    const gaps = this.#uncertain.begin(await this.#store.load(''))
    if (gaps !== undefined) this.#store.keep(gaps)
    if (unapplied === undefined) return
    for await (const messages of unapplied)
      for (const message of messages) {
        const event = readable(message, read)
        if (event !== undefined && event.topic !== 'malformed') await this.#applyAgain(message, event)
      }
  }

  /** Skips messages that the state includes: applied again, one could replace the value of a later message with the same time. */
  async #applyAgain({ id, lane }: InboxMessage, event: FleetEvent): Promise<void> {
    const seq = seqOf(id)
    if (event.vin === undefined) {
      if (event.topic === 'gap' && seq > this.#uncertain.stored.seq)
        this.#store.keep(this.#uncertain.record(event, seq))
      return
    }
    const state = await this.find(lane)
    if (state !== undefined && seq > state.seq) this.#store.keep(this.#advance(state, event, seq).after)
  }

  missingFields(): Promise<readonly MissingField[]> {
    return this.#rounds.missingFields()
  }

  stopTimers(): void {
    this.#rounds.stop()
    this.timers.stop()
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
    if (replayed) return this.#replayed(state, before)
    if (event.vin === undefined || state === undefined)
      return event.topic === 'gap'
        ? new Step(undefined, noMoment, undefined, undefined, this.#uncertain.record(event, seq))
        : undefined
    if (event.topic === 'gap') this.#uncertain.come(event, seq)
    // The vehicle was forgotten.
    if (event.topic === 'timer' && state.seq < 0) {
      this.timers.set(event.vin, undefined, true)
      return undefined
    }
    return this.#applied(event, seq, state, isFollowed)
  }

  #applied(event: FleetEvent, seq: number, state: VehicleState, isFollowed: boolean = false): Step {
    const { after, found, happened, gapTo } = this.#advance(state, event, seq)
    // The message of a timer may be missing in a gap, too.
    this.timers.set(state.vin, after.dueMs, originOf(event) === 'receiver', isFollowed)
    for (const odd of found.odd) this.#oddSeen(odd)
    const behindMs = after.clock?.behindMs
    if (behindMs !== undefined || state.clock?.behindMs !== undefined) this.#clockRead(state.vin, behindMs)
    this.#take(after)
    return new Step(after, { nowMs: arrivedMs(event, seq), gapTo, before: state }, found, happened, after)
  }

  #replayed(state: VehicleState | undefined, before: string | undefined): Step {
    const isOutdated = (edge: string, change: Occurrence): boolean =>
      this.edges.get(edge)?.isOutdated?.(change, state?.memory?.[edge]) === true
    if (before !== undefined) return Step.read(before, this.slots, isOutdated)
    const gapTo = state === undefined ? -1 : this.#uncertain.to(seqNow, state)
    return new Step(state, { nowMs: this.#clock.now(), gapTo })
  }

  #advance(
    known: VehicleState,
    event: FleetEvent,
    seq: number,
  ): Advanced & { readonly found: Applied; readonly gapTo: number } {
    const state = this.#uncertain.decided(known, event, seq)
    const gapTo = this.#uncertain.to(seq, state)
    const arrival = { event, seq, gapTo }
    const found = applied(state, arrival)
    const times = this.timers.heard(event, seq, event.topic === 'timer' ? undefined : found.sentMs)
    const { after, happened } = advance(state, arrival, found, this.edges, times)
    return { after, happened, found, gapTo }
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
    if (replayed || state === undefined) return undefined
    // Somebody was told that it is stored.
    if (event?.topic === 'facts') return this.#applied(event, seq, state)
    if (state.seq < 0) return undefined
    const after = state.with({
      seq: Math.max(state.seq + 1, seq),
      gaps: { ...state.gaps, to: Math.max(state.gaps.to, seq) },
    })
    this.timers.set(state.vin, after.dueMs, event?.topic === 'timer')
    this.#take(after)
    return new Step(after, { nowMs: this.#clock.now(), gapTo: after.gaps.to }, undefined, undefined, after)
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
    if (settled?.vin === '') return this.#uncertain.stored
    if (settled === undefined) return undefined
    const open = this.#open.get(settled.vin)
    // A message without a handler can be settled before an older message that waits in a batch, and its state includes the older one.
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
  noteGap(gap: KeptGap): void {
    // With a shared store, every process learns of the gap from the store, and of the gap of a vehicle in its lane.
    if (this.#store.shared === undefined) this.#uncertain.note(gap)
  }

  /** `receiver.vehicles`. Each method calls `open` first. */
  api(open: () => Promise<void>): LocalVehicles {
    return {
      get: async (vin) => {
        await open()
        const state = this.#open.get(vin)?.state ?? this.#read(vin, await this.#store.load(vin))
        return state.seq < 0 ? undefined : this.#view(state)
      },
      list: (which) => this.#list(open, which),
      forget: async (vin) => {
        await open()
        return this.#forget(vin)
      },
      edges: () => this.edges.all,
      noteGap: async (gap) => {
        await open()
        // The clocks of two processes differ, but messages from now on are certainly after the gap.
        const endMs = this.#clock.now() - 1
        const ended = { ...gap, fromMs: Math.min(gap.fromMs, endMs), toMs: Math.min(gap.toMs, endMs) }
        if (gap.vin === undefined) this.#store.keep(this.#uncertain.add(ended))
        else this.noteGap(ended)
      },
      stats: async () => {
        await open()
        return { ...(await this.#store.count()), edges: this.edges.size }
      },
    }
  }

  /** Every vehicle with its facts, in pages. */
  async *known(): AsyncGenerator<readonly FactsOfVehicle[]> {
    const find = (last: StoredVehicle | undefined, limit: number): Promise<readonly StoredVehicle[]> =>
      this.#store.list({ after: last?.vin, limit })
    for await (const page of pagesOf<StoredVehicle>(find))
      yield page.map((stored) => ({
        vin: stored.vin,
        facts: factsOf(this.#open.get(stored.vin)?.state ?? stored, this.slots),
      }))
  }

  #view(state: VehicleState): Snapshot {
    return new Snapshot(state, this.#clock.now(), this.#uncertain.to(seqNow, state))
  }

  async *#list(
    open: () => Promise<void>,
    { after }: Parameters<ReadVehicles['list']>[0] = {},
  ): AsyncGenerator<Snapshot> {
    await open()
    const find = (last: StoredVehicle | undefined, limit: number): Promise<readonly StoredVehicle[]> =>
      this.#store.list({ after: last?.vin ?? after, limit })
    for await (const page of pagesOf<StoredVehicle>(find, firstPage))
      for (const each of page) yield this.#view(this.#open.get(each.vin)?.state ?? this.#read(each.vin, each))
  }

  async #forget(vin: string): Promise<boolean> {
    const opened = this.#open.get(vin)
    if (opened !== undefined) {
      this.#forgotten.set(vin, opened.state.seq)
      opened.state = VehicleState.unknown(vin, this.slots)
    }
    this.timers.set(vin, undefined)
    return (await this.#store.forget(vin)) || opened !== undefined
  }

  #read(vin: string, stored: StoredVehicle | undefined): VehicleState {
    if (stored === undefined) return VehicleState.unknown(vin, this.slots)
    if (stored instanceof VehicleState && stored.slots === this.slots) return this.#begun(stored)
    const row = { vin, seq: stored.seq, seenMs: stored.seenMs, text: stored.text() }
    return this.#begun(VehicleState.read(row, this.slots))
  }

  #begun(stored: VehicleState): VehicleState {
    this.#beganMs ??= this.#clock.now()
    return begun(stored, this.edges, (state) => this.#uncertain.to(seqNow, state), this.#beganMs)
  }
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
