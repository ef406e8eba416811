/** The settled state of a vehicle, for a store. */
export interface StoredVehicle {
  /** The VIN. Empty: what concerns all vehicles. */
  readonly vin: string
  /** The `seq` of the newest message that is in it. See `seqOf`. */
  readonly seq: number
  /** When that message was received, in milliseconds since the epoch. `-Infinity`: no message is in it. */
  readonly seenMs: number
  /** The state as JSON text. It is made when it is asked for, so a store need not ask each time. */
  text(): string
}

/**
 * Where an inbox keeps the newest state of vehicles. The states come with `settle` and `deadLetter`, so a stored state is never
 * ahead of what was settled. `vehiclesConformance` in `fleethook/testing` defines what every store must do.
 *
 * A state is derived from messages. A store may write it later than it came, as long as the inbox keeps the messages that are not in
 * what was written, and returns them from `unapplied` after a crash.
 */
export interface VehicleStore {
  /** The last state that came. May return the same object. Not a promise where it is in memory. */
  load(vin: string): StoredVehicle | undefined | Promise<StoredVehicle | undefined>
  /** A state that comes without a message: after a crash. */
  keep(vehicle: StoredVehicle): void
  /** States in the order of VINs, from the first one after `after`. Without the state of VIN ''. */
  list(which: { readonly after?: string | undefined; readonly limit: number }): Promise<readonly StoredVehicle[]>
  /** Deletes a state for good. Resolves to whether there was one. */
  forget(vin: string): Promise<boolean>
  /** Deletes states whose vehicles were not seen since `ms`. Resolves to their number. */
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
