import type { FactsEvent, FleetEvent } from '../events/event.ts'
import { originOf } from '../events/origin.ts'
import { driftMs } from '../inbox/delivery-id.ts'
import { traced } from './begin.ts'
import { type Edge, type EdgeMemory, type EdgeStep, type EdgeTimer, isWaiting, type Trace } from './edge.ts'
import { checkedResult } from './edge-checks.ts'
import type { EdgeIndex } from './edge-index.ts'
import { credibleMs, lagAfter, wakeMs } from './lag.ts'
import { changed, timersOf } from './pending.ts'
import { plannedEvent } from './facts.ts'
import { type Applied, type Arrival, receiptMs, Snapshot, type Timers, type VehicleState } from './state.ts'
import type { Happened } from './step.ts'
import { timerEvent, type TimesNow } from './timers.ts'

/** What a message does to its vehicle. */
export interface Advanced {
  readonly after: VehicleState
  readonly happened: readonly Happened[]
}

/** One message tells all that is due, whatever the number of edges, because it may set their timers again. An edge that is due again at once is told at most this many times more. */
const mostAgain = 64

const none: readonly never[] = []

/**
 * The state after a message that was `applied`, and what happened. What was due before the message, by the vehicle's clock (a silence: by arrival),
 * happens before it, in the order of its times. So nothing depends on whether the message of a timer or a newer message came first. Pure.
 */
export function advance(
  before: VehicleState,
  arrival: Arrival,
  found: Applied,
  edges: EdgeIndex,
  times: TimesNow,
): Advanced {
  const { event, gapTo } = arrival
  const nowMs = receiptMs(before, arrival)
  const facts = event.topic === 'facts' ? found.after.facts : before.facts?.passedTo(nowMs)
  if (edges.size === 0) return { after: withFacts(found.after, facts), happened: none }
  const factsMs = facts?.atMs ?? nowMs
  const isReported = (_: Trace, slot: number): boolean => found.after.time(slot, 1) === found.after.seq
  const after = traced(found.after, edges.traces, isReported, before.values, factsMs)
  const isTimer = event.topic === 'timer'
  const isSent = originOf(event) === 'vehicle'
  const sentMs = credibleMs(found.sentMs, nowMs)
  // While the clock is set forward, nothing is late and nobody is silent. A silence that begins then does not begin in the future.
  const heardMs = Math.min(nowMs, times.nowMs)
  const look = (state: VehicleState): Snapshot => new Snapshot(state, nowMs, gapTo, { momentMs: sentMs, factsMs })
  const moment: Moment = { event, found, nowMs, sentMs, heardMs, before: look(before), after: look(after) }
  const detection = new Detection(edges, moment, after.memory, timersOf(before, Math.max(gapTo, after.gaps.to)))
  // What was planned happens before whatever comes, at its own time.
  if (before.facts !== facts) detection.pass(before, nowMs, times.quiet)
  if (event.topic === 'facts') detection.hear(event, before, nowMs, times.quiet)
  else if (isTimer) {
    // Also for an edge that is no longer registered.
    detection.dropUnknown(event.at.getTime())
    detection.tellDue((timer) => (wakeMs(timer, before.lag, times.quiet) ?? Infinity) <= event.at.getTime(), false)
  } else {
    if (isSent) detection.tellDue((timer, edge) => isDueBefore(timer, edge, moment), true)
    detection.ask(before.memory)
    if (isSent) detection.tellDue(({ due, byArrival }) => due !== null && byArrival !== true && due <= sentMs, false)
  }
  const lag = isSent && edges.timing !== undefined ? lagAfter(before.lag, sentMs, heardMs) : before.lag
  const memory = detection.remembered()
  const { timers, happened } = detection
  const { rules } = edges
  const isSame =
    after.facts === facts &&
    after.memory === memory &&
    after.timers === timers &&
    after.lag === lag &&
    after.rules === rules
  return { after: isSame ? after : after.with({ facts, memory, timers, lag, rules }), happened }
}

const withFacts = (state: VehicleState, facts: VehicleState['facts']): VehicleState =>
  state.facts === facts ? state : state.with({ facts })

/** One message as the edges of its vehicle see it. */
interface Moment {
  readonly event: FleetEvent
  readonly found: Applied
  /** When the message was received. */
  readonly nowMs: number
  /** When it was sent, by the vehicle's clock. */
  readonly sentMs: number
  /** When it was received, by a clock that nobody sets forward. */
  readonly heardMs: number
  readonly before: Snapshot
  readonly after: Snapshot
}

/** Whether the time of an edge was up before the message. */
function isDueBefore(
  { due, byArrival }: EdgeTimer,
  { fields }: Edge,
  { found, nowMs, sentMs, heardMs }: Moment,
): boolean {
  if (due === null || due > (byArrival === true ? nowMs : sentMs)) return false
  if (byArrival === true) return due <= heardMs + driftMs
  // A document has values with older times.
  return found.changes.every(
    (change) => credibleMs(change.at.getTime(), nowMs) >= due || !fields.includes(change.field),
  )
}

/** Asks the edges of one vehicle, one after another, and collects what they find, remember and wait for. */
class Detection {
  readonly happened: Happened[] = []
  timers: Timers | undefined
  readonly #edges: EdgeIndex
  readonly #moment: Moment
  readonly #arrivedMs: number
  readonly #known: VehicleState['memory']
  #memory: Map<string, EdgeMemory> | undefined

  constructor(edges: EdgeIndex, moment: Moment, known: VehicleState['memory'], timers: Timers | undefined) {
    const { heardMs, nowMs } = moment
    this.#edges = edges
    this.#moment = moment
    this.#arrivedMs = heardMs < nowMs - driftMs ? heardMs : nowMs
    this.#known = known
    this.timers = timers
  }

  /** What all edges remember now, without edges that are no longer registered. */
  remembered(): VehicleState['memory'] {
    const memory = this.#memory
    if (memory === undefined) return this.#known
    for (const name of memory.keys()) if (!this.#edges.has(name) && !this.#edges.traces.has(name)) memory.delete(name)
    return memory.size > 0 ? Object.fromEntries(memory) : undefined
  }

  /** Drops what was due of edges that are no longer registered. */
  dropUnknown(dueMs: number): void {
    for (const name in this.timers)
      if (!this.#edges.has(name) && (this.timers[name]?.due ?? Infinity) <= dueMs)
        this.timers = changed(this.timers, name, null)
  }

  /** Tells what is due, in the order of its times. `isEarlier`: before the message. */
  tellDue(isDue: (timer: EdgeTimer, edge: Edge) => boolean, isEarlier: boolean): void {
    const { before, after, event, nowMs } = this.#moment
    const view = isEarlier ? before : after
    for (let left = mostAgain + this.#edges.size; this.timers !== undefined && left > 0; left -= 1) {
      const next = this.#firstDue(this.timers, isDue)
      if (next === undefined) return
      const dueMs = Math.min(next.dueMs, nowMs)
      this.#detect(next.edge, isEarlier, {
        before: view.through({ momentMs: next.dueMs - 1 }),
        after: view.through({ momentMs: next.dueMs }),
        event: event.topic === 'timer' ? event : timerEvent(view.vin, dueMs, event.receivedAt),
        at: new Date(dueMs),
        changes: none,
      })
    }
  }

  /** What was planned of facts up to now, in the order of its times with what is due. */
  pass(state: VehicleState, toMs: number, quiet: number | undefined): void {
    const { before, event } = this.#moment
    const isSent = originOf(event) === 'vehicle'
    let facts = state.facts
    for (let atMs = facts?.nextMs; facts !== undefined && atMs !== undefined && atMs <= toMs; atMs = facts.nextMs) {
      const dueMs = atMs
      const isUp = (timer: EdgeTimer, edge: Edge): boolean =>
        isSent
          ? (timer.due ?? Infinity) <= dueMs && isDueBefore(timer, edge, this.#moment)
          : (wakeMs(timer, state.lag, quiet) ?? Infinity) <= dueMs
      this.tellDue(isUp, isSent)
      const planned = plannedEvent(state.vin, facts, dueMs, event.receivedAt)
      const step = {
        before: before.through({ factsMs: facts.atMs, momentMs: dueMs }),
        after: before.through({ factsMs: dueMs, momentMs: dueMs }),
        event: planned,
        at: planned.at,
        changes: none,
      }
      const touched = this.#edges.touched(
        planned,
        none,
        step.before,
        step.after,
        waitingIn(this.#known),
        facts.changing(dueMs),
      )
      for (const edge of touched) this.#detect(edge, isSent, step)
      facts = facts.passedTo(dueMs)
    }
  }

  /** What the business says, behind what was due before it. What is planned is only kept. */
  hear(event: FactsEvent, state: VehicleState, nowMs: number, quiet: number | undefined): void {
    const { before, after } = this.#moment
    this.tellDue((timer) => (wakeMs(timer, state.lag, quiet) ?? Infinity) <= nowMs, false)
    const at = event.from ?? new Date(nowMs)
    if (at.getTime() > nowMs) return
    const step = { before, after, event, at, changes: none }
    const names = Object.keys(event.facts)
    for (const edge of this.#edges.touched(event, none, before, after, waitingIn(state.memory), names))
      this.#detect(edge, false, step)
  }

  /** Asks the edges that the message touches, and the edges that have happened and are not told yet: each message may decide about them. */
  ask(memory: VehicleState['memory']): void {
    const { before, after, event, found } = this.#moment
    const { names } = after.parts().state.slots
    const fields = found.touched.flatMap((slot) => names[slot] ?? [])
    const { changes } = found
    const at = new Date(found.sentMs)
    for (const edge of this.#edges.touched(event, fields, before, after, waitingIn(memory)))
      this.#detect(edge, false, { before, after, event, at, changes })
  }

  #detect(edge: Edge, isEarlier: boolean, step: Omit<EdgeStep, 'memory' | 'timer' | 'arrivedMs'>): void {
    const { name } = edge
    const timer = this.timers?.[name]
    const memory = (this.#memory ??= new Map(Object.entries(this.#known ?? {})))
    // What was due is over.
    if (step.event.topic === 'timer') this.timers = changed(this.timers, name, null)
    try {
      const asked = { ...step, arrivedMs: this.#arrivedMs, memory: memory.get(name), timer }
      const result = checkedResult(name, edge.detect(asked))
      for (const change of [...(result?.earlier ?? none), result?.happened])
        if (change !== undefined) this.happened.push({ edge: name, isEarlier, change })
      if (result?.memory === null) memory.delete(name)
      else if (result?.memory !== undefined) memory.set(name, result.memory)
      if (result?.timer !== undefined) this.timers = changed(this.timers, name, result.timer)
    } catch (error) {
      this.happened.push({ edge: name, isEarlier, error })
    }
  }

  /** The timer that is due first, of an edge that is registered. */
  #firstDue(
    timers: Timers,
    isDue: (timer: EdgeTimer, edge: Edge) => boolean,
  ): { readonly edge: Edge; readonly dueMs: number } | undefined {
    let first: { readonly edge: Edge; readonly dueMs: number } | undefined
    for (const name in timers) {
      const [timer, edge] = [timers[name], this.#edges.get(name)]
      if (timer === undefined || timer.due === null || edge === undefined || !isDue(timer, edge)) continue
      const isFirst =
        first === undefined ||
        timer.due < first.dueMs ||
        (timer.due === first.dueMs && this.#edges.numberOf(name) < this.#edges.numberOf(first.edge.name))
      if (isFirst) first = { edge, dueMs: timer.due }
    }
    return first
  }
}

/** The names of edges that have happened and are not told yet. */
function waitingIn(memory: VehicleState['memory']): readonly string[] {
  let names: string[] | undefined
  for (const name in memory) if (isWaiting(memory[name])) (names ??= []).push(name)
  return names ?? none
}
