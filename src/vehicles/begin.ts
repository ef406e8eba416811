import { checkedResult, checkedTimer } from './edge-checks.ts'
import type { AnyVehicleView, Edge, EdgeMemory, EdgeTimer, Trace } from './edge.ts'
import type { EdgeIndex } from './edge-index.ts'
import { changed } from './pending.ts'
import { valueOf } from './facts.ts'
import { Snapshot, type VehicleState } from './state.ts'

/**
 * A state with what conditions remember of its values: of values that a message reported, or of which nothing is remembered yet. `before`: the values
 * before the message. `factsMs`: the time at which facts count.
 */
export function traced(
  state: VehicleState,
  traces: EdgeIndex['traces'],
  follows: (trace: Trace, slot: number) => boolean,
  before: VehicleState['values'],
  factsMs: number,
): VehicleState {
  const { slots, values, facts } = state
  const memory = new Map<string, EdgeMemory>()
  for (const trace of traces.values()) {
    const { name, field } = trace
    const slot = slots.find(field) ?? -1
    const value = values[slot]
    if (value === undefined || !follows(trace, slot)) continue
    try {
      const next = trace.next(state.memory?.[name], value, state.time(slot, 0), {
        before: before[slot],
        fact: (given) => valueOf(given, facts, factsMs),
      })
      // Nothing is remembered, as before.
      if (next === null && state.memory?.[name] == null) continue
      memory.set(name, checkedResult(name, { memory: next })?.memory ?? null)
    } catch {
      slots.leftOut(`what the condition \`${name}\` remembers`)
    }
  }
  return memory.size === 0 ? state : state.with({ memory: { ...state.memory, ...Object.fromEntries(memory) } })
}

/**
 * A stored state with the timers and the traces of rules that it has not followed: because they are new, or were removed for a time. `gapTo`: what
 * of it is uncertain. `beganMs`: when the rules of this process began.
 */
export function begun(
  stored: VehicleState,
  edges: EdgeIndex,
  gapTo: (state: VehicleState) => number,
  beganMs: number,
): VehicleState {
  const { rules, beginning, traces } = edges
  const isNew = (trace: Trace, slot: number): boolean => stored.memory?.[trace.name] === undefined && slot >= 0
  const state = traced(stored, traces, isNew, [], Math.max(stored.seenMs, stored.facts?.atMs ?? 0))
  if (state.rules === rules || state.seq < 0) return state
  const followed = new Set(state.rules?.split(' '))
  const view = new Snapshot(state, state.seenMs, gapTo(state))
  let { timers } = state
  for (const [mark, edge] of beginning) {
    if (followed.has(mark)) continue
    const { name } = edge
    try {
      const timer = edge.begins?.(edge.daily === true ? view.through({ momentMs: beganMs, factsMs: beganMs }) : view)
      const known = timers?.[name]
      const isSame = timer !== undefined && known !== undefined && isStillThat(known, timer, edge, view)
      if (!isSame) timers = changed(timers, name, timer === undefined ? null : checkedTimer(name, timer))
    } catch {
      state.slots.leftOut(`the edge \`${name}\` cannot begin with a stored state`)
    }
  }
  return state.with({ timers, rules })
}

/** Whether an edge that was removed for a time has reported this, or waits for it, and its values have not changed since. */
function isStillThat(known: EdgeTimer, fresh: EdgeTimer, { fields }: Edge, vehicle: AnyVehicleView): boolean {
  if (fresh.byArrival === true) return fresh.since <= known.since
  // A number is mostly another one with each message.
  const texts = fields.filter((field) => typeof vehicle.value(field) !== 'number')
  return texts.every((field) => (vehicle.since(field)?.getTime() ?? 0) <= known.since)
}
