import { backgroundTimer, type Clock, type Timer } from '../base/clock.ts'
import type { FleetEvent, TimerEvent } from '../events/event.ts'
import { originOf } from '../events/origin.ts'
import { driftMs, msOfSeq } from '../inbox/delivery-id.ts'
import type { Due, StoredVehicle, VehicleStore } from '../inbox/vehicle-store.ts'
import type { Clockwork, Port, Timing } from './timing.ts'
import type { EdgeIndex } from './edge-index.ts'
import { begunBy } from './pending.ts'
import { isTime, type VehicleState } from './state.ts'

/** What the timers need of the states. */
interface TimersHost {
  readonly store: VehicleStore
  readonly clock: Clock
  readonly edges: EdgeIndex
  readonly newestSeq: () => number
  /** The states of vehicles with a message that is not over. */
  readonly open: {
    get(vin: string): { readonly state: VehicleState } | undefined
    values(): Iterable<{ readonly state: VehicleState }>
  }
  readonly read: (vin: string, stored: StoredVehicle | undefined) => VehicleState
  readonly leftOut: (reason: string) => void
}

/** The time as the timers of vehicles see it when a message has its turn. */
export interface TimesNow {
  /** By a clock that nobody sets forward. `Infinity`: nobody keeps time. */
  readonly nowMs: number
  /** How long messages that come late are waited for. `undefined`: as always. */
  readonly quiet: number | undefined
}

/** When the states are read again after the store failed, in milliseconds. */
const againMs = 60_000

/** Ids that are ahead of the clock by less say nothing about it. */
const toleranceMs = 60_000

/** Wakes vehicles for what is due, by the clockwork of the edges that have timers. */
export class VehicleTimers {
  readonly #host: TimersHost
  #clockwork: Clockwork | undefined
  #put: ((due: readonly Due[]) => Promise<boolean>) | undefined
  #beginning: Timer | undefined
  /** At the end, no message will come. */
  #quiet: number | undefined
  #isStarted = false
  #isStopped = false
  #port: Port | undefined
  /** What began in the future, by a clock that was ahead, begins now. */
  #isTakenBack = false

  constructor(host: TimersHost) {
    this.#host = host
  }

  /**
   * Call this when the stored states are complete. Resolves when the timers of all vehicles are known, to a function that starts them.
   * Timers that are due get a message by `put`, which resolves to whether the inbox took it.
   */
  async find(put: (timers: readonly TimerEvent[]) => Promise<boolean>, port?: Port): Promise<() => void> {
    const { clock, edges } = this.#host
    this.#put = (due) => put(due.map(({ vin, dueMs }) => timerEvent(vin, dueMs, new Date(clock.now()))))
    this.#port = port
    if (edges.timing === undefined) await this.#keepPlans()
    else await this.#keepTime(edges.timing)
    // An edge that is registered later.
    edges.onTiming = (timing) =>
      void (this.#clockwork === undefined ? this.#keepTime(timing).then(() => this.#start()) : this.#begin())
    return () => this.#start()
  }

  #start(): void {
    this.#isStarted = !this.#isStopped
    this.#clockwork?.start(this.#port)
    void this.#begin()
  }

  /** The process stood still until now. */
  stoodStill(): void {
    this.#clockwork?.stoodStill()
  }

  /** When the next timer is due. */
  nextMs(): number | undefined {
    return this.#clockwork?.nextMs()
  }

  /** As in {@link Clockwork}. */
  set(vin: string, dueMs: number | undefined, isAwake?: boolean, isFollowed?: boolean): void {
    const { planning } = this.#host.edges
    if (dueMs !== undefined && this.#clockwork === undefined && planning !== undefined) {
      const clockwork = this.#create(planning)
      if (this.#isStarted) clockwork.start(this.#port)
    }
    this.#clockwork?.set(vin, dueMs, isAwake, isFollowed)
  }

  /** A message has its turn, and says that it was sent at `sentMs`. A timer says nothing: then it is left out. */
  heard(event: FleetEvent, seq: number, sentMs?: number): TimesNow {
    const clockwork = this.#clockwork
    if (sentMs !== undefined && clockwork !== undefined) {
      clockwork.heard(sentMs)
      if (originOf(event) === 'vehicle' && wasAhead(event, seq)) void this.#takeBack(clockwork)
    }
    return { nowMs: clockwork?.nowMs() ?? Infinity, quiet: this.#quiet }
  }

  /** This process handles other vehicles than before. `isStale`: what it knows of this one may be outdated. */
  async moved(isStale: (vin: string) => boolean): Promise<void> {
    const clockwork = this.#clockwork
    if (clockwork === undefined) {
      await this.#keepPlans()
      if (this.#isStarted) this.#start()
      return
    }
    for (const vin of clockwork.known.keys()) if (isStale(vin)) clockwork.set(vin, undefined, true)
    await this.#readTimers(clockwork)
    void this.#begin()
  }

  /** No message will come any more, and nothing is kept: puts messages for all that is due by now. Resolves to whether there was something. */
  async tellDue(): Promise<boolean> {
    const { clock, open, read, store } = this.#host
    this.#quiet = 0
    const now = clock.now()
    const due: Due[] = []
    for (const vin of this.#clockwork?.known.keys() ?? []) {
      const { state } = open.get(vin) ?? { state: read(vin, await store.load(vin)) }
      if ((state.wakeMs(0) ?? Infinity) <= now) due.push({ vin, dueMs: now })
    }
    return due.length > 0 && (await this.#put?.(due)) === true
  }

  stop(): void {
    this.#isStopped = true
    this.#isStarted = false
    this.#host.edges.onTiming = undefined
    this.#beginning?.cancel()
    this.#beginning = undefined
    this.#clockwork?.stop()
  }

  #create(timing: Timing): Clockwork {
    const { clock, newestSeq } = this.#host
    const newestMs = (): number => msOfSeq(newestSeq())
    const clockwork = timing({ clock, newestMs, put: async (due) => (await this.#put?.(due)) === true })
    this.#clockwork = clockwork
    return clockwork
  }

  /** Keeps time when something is planned of a fact. Until then, messages need not pay for it. */
  async #keepPlans(): Promise<void> {
    const { edges, store } = this.#host
    const { planning } = edges
    if (planning === undefined) return
    try {
      for await (const page of store.due()) if (page.length > 0) return await this.#keepTime(planning)
    } catch (error) {
      if (store.shared === undefined) throw error
      // It tries again by itself.
      if (this.#clockwork === undefined) this.#create(planning)
    }
  }

  async #keepTime(timing: Timing): Promise<void> {
    const { store } = this.#host
    const clockwork = this.#create(timing)
    try {
      await this.#readTimers(clockwork)
    } catch (error) {
      // A shared store tries again by itself, and the clockwork must start.
      if (store.shared === undefined) throw error
    }
  }

  /** Sets the timers of vehicles. Timers that the clockwork knows already are newer than what the store has. */
  async #readTimers(clockwork: Clockwork): Promise<void> {
    const { open, store } = this.#host
    for (const { state } of open.values()) clockwork.set(state.vin, state.dueMs)
    for await (const page of store.due())
      for (const { vin, dueMs } of page)
        // An earlier version stored any number of an edge. The state is read without it.
        if (open.get(vin) === undefined && !clockwork.known.has(vin)) clockwork.set(vin, isTime(dueMs) ? dueMs : 0)
  }

  /**
   * Sets the timers of vehicles for which a rule holds that their states do not know yet, because it is new. A new rule about silence is about
   * vehicles that send nothing any more. Nothing is written: the next message of a vehicle, or of its timer, does that.
   */
  async #begin(): Promise<void> {
    const { clock, edges, leftOut, open, read, store } = this.#host
    const { rules } = edges
    const clockwork = this.#clockwork
    if (rules === undefined || clockwork === undefined || this.#put === undefined) return
    this.#beginning?.cancel()
    // Set until it is done, so that a stop is seen.
    const beginning = (this.#beginning = backgroundTimer(clock, againMs, () => void this.#begin()))
    try {
      for await (const page of store.outdated(rules))
        for (const stored of page) {
          if (this.#beginning !== beginning) return
          const { dueMs } = read(stored.vin, open.get(stored.vin)?.state ?? stored)
          if (dueMs !== undefined) clockwork.add(stored.vin, dueMs)
        }
    } catch {
      // It is tried again when the timer fires.
      leftOut('the states of vehicles for a rule that is new cannot be read now')
      return
    }
    beginning.cancel()
  }

  /**
   * The clock of an earlier process was ahead: what its vehicles wait for began in the future, and would come late by
   * that. For vehicles that send nothing more, it would never come.
   */
  async #takeBack(clockwork: Clockwork): Promise<void> {
    const { open, read, store } = this.#host
    if (this.#isTakenBack) return
    this.#isTakenBack = true
    try {
      for (const vin of [...clockwork.known.keys()]) {
        const found = store.load(vin)
        const stored = found instanceof Promise ? await found : found
        // For a vehicle that sends something, its messages do it.
        if (open.get(vin) !== undefined || this.#isStopped) continue
        const state = read(vin, stored)
        const right = begunBy(state, clockwork.nowMs())
        if (right === state) continue
        store.keep(right)
        clockwork.set(vin, right.dueMs)
      }
    } catch {
      // The inbox has said so. The next message tries it again.
      this.#isTakenBack = false
    }
  }
}

/** Wakes the timers of a vehicle that are due at this time or before. */
export function timerEvent(vin: string, dueMs: number, receivedAt: Date): TimerEvent {
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

/** Whether the clock that made the ids was ahead: a vehicle says what the receiver's clock says now. */
function wasAhead({ at, receivedAt, meta }: FleetEvent, seq: number): boolean {
  const nowMs = receivedAt.getTime()
  if (meta.createdAtMissing === true) return false
  return msOfSeq(seq) - nowMs > toleranceMs && Math.abs(at.getTime() - nowMs) < driftMs
}
