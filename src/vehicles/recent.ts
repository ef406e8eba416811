import type { StoredVehicle, VehicleStore } from '../inbox/vehicle-store.ts'

/** The newest states in memory, in a limited number of bytes. Those that were set longest ago go first. */
export class RecentVehicles {
  readonly #mostBytes: number
  readonly #dropped: (vehicles: number) => void
  #recent = new Map<string, StoredVehicle>()
  #recentBytes = 0
  #older = new Map<string, StoredVehicle>()

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
    if (known === undefined) this.#older.delete(vin)
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

  delete(vin: string): boolean {
    this.#recentBytes -= this.#recent.get(vin)?.bytes ?? 0
    return this.#recent.delete(vin) || this.#older.delete(vin)
  }

  *values(): Generator<StoredVehicle, void> {
    yield* this.#older.values()
    yield* this.#recent.values()
  }
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
      const vins: string[] = []
      for (const { vin } of states.values()) if (vin > after) vins.push(vin)
      return vins
        .toSorted()
        .slice(0, limit)
        .flatMap((vin) => states.get(vin) ?? [])
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
