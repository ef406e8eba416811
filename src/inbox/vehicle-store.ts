/** The settled state of a vehicle, for a store. */
export interface StoredVehicle {
  /** The VIN. Empty for what concerns all vehicles. */
  readonly vin: string
  /** The `seq` of the newest message that is in it. See `seqOf`. */
  readonly seq: number
  /** When that message was received, in milliseconds since the epoch. `-Infinity`: no message is in it. */
  readonly seenMs: number
  /**
   * Returns the state as JSON text. The text is made by the call, so a store that needs it only sometimes calls it only then.
   */
  text(): string
}

/**
 * Where an inbox keeps the newest state of vehicles. The states come with `settle` and `deadLetter`, so a stored state is never
 * ahead of what was settled. `vehiclesConformance` in `fleethook/testing` defines what every store must do.
 *
 * A state is derived from messages. A store may write it late, as long as the inbox keeps the messages that are not in the
 * written states, and returns them as `unapplied` after a crash.
 */
export interface VehicleStore {
  /** The last state that was given to the store. May return the same object, and need not be a promise. */
  load(vin: string): StoredVehicle | undefined | Promise<StoredVehicle | undefined>
  /** Stores a state without a message: after a crash. */
  keep(vehicle: StoredVehicle): void
  /** States in the order of VINs, from the first one after `after`. Without the state of VIN ''. */
  list(which: { readonly after?: string | undefined; readonly limit: number }): Promise<readonly StoredVehicle[]>
  /** Deletes a state for good. Resolves to whether there was one. */
  forget(vin: string): Promise<boolean>
  /** Deletes the states of vehicles that were not seen since `ms`. Resolves to their number. */
  forgetUnseen(ms: number): Promise<number>
  /** The number of vehicles, and the part of them that is not written yet. */
  count(): Promise<{ readonly vehicles: number; readonly unwritten: number }>
}

/** The store of an inbox in memory. */
export function memoryVehicles(): VehicleStore {
  const states = new Map<string, StoredVehicle>()
  return {
    load: (vin) => states.get(vin),
    keep: (vehicle) => void states.set(vehicle.vin, vehicle),
    async list({ after = '', limit }) {
      const vins: string[] = []
      for (const vin of states.keys()) if (vin > after) vins.push(vin)
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
    count: async () => ({ vehicles: states.size - Number(states.has('')), unwritten: 0 }),
  }
}
