import type { EdgeTimer } from './edge.ts'
import type { Timers, VehicleState } from './state.ts'

/** The timers when one of them is another one, or `null` for none. */
export function changed(timers: Timers | undefined, name: string, timer: EdgeTimer | null): Timers | undefined {
  if (timer !== null) return { ...timers, [name]: timer }
  if (timers?.[name] === undefined) return timers
  const { [name]: _, ...others } = timers
  return Object.keys(others).length === 0 ? undefined : others
}

/** The timers of a vehicle. Timers that began before a gap say so. */
export function timersOf({ timers, seq }: VehicleState, gapTo: number): Timers | undefined {
  if (timers === undefined || seq > gapTo) return timers
  return Object.fromEntries(Object.entries(timers).map(([name, timer]) => [name, { ...timer, acrossGap: true }]))
}

/** The same state, without what begins after this time. */
export function begunBy(state: VehicleState, nowMs: number): VehicleState {
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
