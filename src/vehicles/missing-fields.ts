import type { MissingField } from '../observe/stats.ts'
import type { Edge } from './edge.ts'
import type { VehicleState } from './state.ts'

const dayMs = 86_400_000

const mostNames = 10

/** No vehicle sent anything before: a clock that was never set has an earlier time. */
const firstCredibleMs = /* @__PURE__ */ Date.UTC(2010)

/** Looks at one state after another, and says which fields of rules have not come for a day. */
export class FieldCensus {
  readonly #edges: readonly Edge[]
  readonly #nowMs: number
  readonly #newest = new Map<string, number>()
  readonly #never = new Map<string, number>()
  #heard = 0
  /** Since when some vehicle is known, or the process runs. */
  #sinceMs: number

  constructor(edges: readonly Edge[], nowMs: number, startedMs: number) {
    this.#edges = edges
    this.#nowMs = nowMs
    this.#sinceMs = startedMs
  }

  get #fields(): ReadonlySet<string> {
    return new Set(this.#edges.flatMap(({ reads }) => reads))
  }

  add(states: Iterable<VehicleState>): void {
    const fields = [...this.#fields]
    for (const state of states) {
      const sinceMs = knownSince(state)
      const isHeard = state.receivedMs >= this.#nowMs - dayMs
      const isKnown = sinceMs <= this.#nowMs - dayMs
      if (isHeard) this.#heard += 1
      this.#sinceMs = Math.min(this.#sinceMs, sinceMs)
      for (const field of fields) {
        const slot = state.slots.find(field) ?? -1
        if (state.values[slot] !== undefined)
          this.#newest.set(field, Math.max(this.#newest.get(field) ?? -Infinity, state.time(slot, 0)))
        else if (isHeard && isKnown) this.#never.set(field, (this.#never.get(field) ?? 0) + 1)
      }
    }
  }

  /** Nothing is missing while no vehicle is heard, or none has been known for a day. */
  missing(): readonly MissingField[] {
    const longAgoMs = this.#nowMs - dayMs
    if (this.#heard === 0) return []
    return [...this.#fields].flatMap((field) => {
      const lastAtMs = this.#newest.get(field)
      const never = this.#never.get(field) ?? 0
      const isSilent = this.#sinceMs <= longAgoMs && (lastAtMs ?? -Infinity) < longAgoMs
      if (!isSilent && never === 0) return []
      const edges = this.#edges.filter(({ reads }) => reads.includes(field)).map(({ name }) => name)
      return [{ field, edges: edges.slice(0, mostNames), lastAtMs, heard: this.#heard, never }]
    })
  }
}

/** The oldest time of its values. */
function knownSince({ values, times }: VehicleState): number {
  let sinceMs = Infinity
  for (const [slot, value] of values.entries()) {
    const ms = value === undefined ? Infinity : (times[slot * 3 + 2] ?? Infinity)
    if (ms > firstCredibleMs && ms < sinceMs) sinceMs = ms
  }
  return sinceMs
}
