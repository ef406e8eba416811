import type { StoredVehicle, VehicleStore } from '../inbox/vehicle-store.ts'

/** The newest states in memory, in a limited number of bytes. The states that were set longest ago go first. */
export class RecentVehicles {
  readonly #mostBytes: number
  readonly #dropped: (vehicles: number) => void
  #recent = new Map<string, StoredVehicle>()
  #recentBytes = 0
  #older = new Map<string, StoredVehicle>()
  #inOrder: readonly string[] | undefined
  /** VINs that are not in that list. `undefined`: nobody has asked for one. */
  #added: Set<string> | undefined

  constructor(mostBytes: number, dropped: (vehicles: number) => void = () => {}) {
    this.#mostBytes = mostBytes
    this.#dropped = dropped
  }

  get size(): number {
    return this.#recent.size + this.#older.size
  }

  get(vin: string): StoredVehicle | undefined {
    return this.#recent.get(vin) ?? this.#older.get(vin)
  }

  set(vehicle: StoredVehicle): void {
    const { vin, bytes } = vehicle
    const known = this.#recent.get(vin)
    if (known === undefined && !this.#older.delete(vin)) this.#added?.add(vin)
    this.#recent.set(vin, vehicle)
    this.#recentBytes += bytes - (known?.bytes ?? 0)
    if (this.#recentBytes * 2 <= this.#mostBytes) return
    // What concerns all vehicles stays.
    const all = this.get('')
    const dropped = this.#older.size
    this.#older = this.#recent
    this.#recent = new Map()
    this.#recentBytes = 0
    if (all !== undefined) this.set(all)
    if (dropped > 0) this.#dropped(dropped)
  }

  /** The first states after this VIN, in the order of their VINs. Without the state of ''. */
  inOrder(after: string, limit: number): readonly StoredVehicle[] {
    const vins = this.#sorted()
    const found: StoredVehicle[] = []
    for (let nth = firstAfter(vins, after); nth < vins.length && found.length < limit; nth += 1) {
      const state = this.get(vins[nth] ?? '')
      if (state !== undefined && state.vin !== '') found.push(state)
    }
    return found
  }

  /** All VINs in order, and some that are gone. It is kept from page to page, because sorting all of them takes long. */
  #sorted(): readonly string[] {
    const added = this.#added
    if (this.#inOrder === undefined || added === undefined || this.#inOrder.length > 2 * this.size + 1_000) {
      this.#inOrder = [...new Set([...this.#older.keys(), ...this.#recent.keys()])].toSorted()
    } else if (added.size > 0) {
      this.#inOrder = merged(this.#inOrder, [...added].toSorted())
    }
    this.#added = new Set()
    return this.#inOrder
  }

  delete(vin: string): boolean {
    this.#recentBytes -= this.#recent.get(vin)?.bytes ?? 0
    return this.#recent.delete(vin) || this.#older.delete(vin)
  }

  *values(): Generator<StoredVehicle, void> {
    yield* this.#older.values()
    yield* this.#recent.values()
  }
}

/** The place of the first text that sorts after another one. */
function firstAfter(sorted: readonly string[], after: string): number {
  let [low, high] = [0, sorted.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if ((sorted[middle] ?? '') > after) high = middle
    else low = middle + 1
  }
  return low
}

/** Both lists in one, each text once. */
function merged(one: readonly string[], other: readonly string[]): readonly string[] {
  const all: string[] = []
  let nth = 0
  for (const vin of one) {
    for (let next = other[nth]; next !== undefined && next <= vin; next = other[nth]) {
      if (next < vin) all.push(next)
      nth += 1
    }
    all.push(vin)
  }
  return [...all, ...other.slice(nth)]
}

/** The most room for states in memory, where there is no other place for them: some 200,000 vehicles with ten fields. */
const memoryBytes = 256 * 1_048_576

/** The store of an inbox in memory. Calls `dropped` when it had to forget vehicles. */
export function memoryVehicles(dropped?: (vehicles: number) => void): VehicleStore {
  const states = new RecentVehicles(memoryBytes, dropped)
  return {
    async *due() {
      yield [...states.values()].flatMap(({ vin, dueMs }) => (dueMs === undefined ? [] : [{ vin, dueMs }]))
    },
    async *outdated(rules) {
      yield [...states.values()].filter((state) => state.vin !== '' && state.rules !== rules)
    },
    load: (vin) => states.get(vin),
    keep: (vehicle) => states.set(vehicle),
    async list({ after = '', limit }) {
      return states.inOrder(after, limit)
    },
    forget: async (vin) => states.delete(vin),
    async forgetUnseen(ms) {
      let forgotten = 0
      for (const { vin, seenMs } of states.values()) if (vin !== '' && seenMs < ms && states.delete(vin)) forgotten += 1
      return forgotten
    },
    count: async () => ({ vehicles: states.size - Number(states.get('') !== undefined), unwritten: 0 }),
  }
}
