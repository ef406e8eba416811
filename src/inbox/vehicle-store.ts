/** The settled state of a vehicle, for a store. */
export interface StoredVehicle {
  /** The VIN. Empty for what concerns all vehicles. */
  readonly vin: string
  /** The `seq` of the newest message that is in it. See `seqOf`. */
  readonly seq: number
  /** When its newest message was received, in milliseconds since the epoch: what `forgetUnseen` compares. `-Infinity`: it has none. */
  readonly seenMs: number
  /** About the room that it takes in memory. */
  readonly bytes: number
  /** When its first timer is due, in milliseconds since the epoch. `undefined`: it has none. */
  readonly dueMs?: number | undefined
  /** Stands for the rules about time that are in it. `undefined`: there were none. */
  readonly rules?: string | undefined
  /**
   * Returns the state as JSON text. The text is made by the call, so a store that needs it only sometimes calls it only then.
   */
  text(): string
}

/** The first timer of a stored vehicle. */
export interface Due {
  readonly vin: string
  readonly dueMs: number
}

/** The first timer of a state for a column of whole milliseconds. A timer of an edge of your own can have any number. */
export function dueColumn({ dueMs }: Pick<StoredVehicle, 'dueMs'>): number | null {
  const due = Math.ceil(dueMs ?? Number.NaN)
  return Number.isSafeInteger(due) ? due : null
}

/**
 * Where an inbox keeps the newest state of vehicles. The states come with `settle` and `deadLetter`, so a stored state is never
 * ahead of what was settled.
 *
 * A state is derived from messages. A store may write it late, as long as the inbox keeps the messages that are not in the
 * written states, and returns them as `unapplied` after a crash.
 */
export interface VehicleStore {
  /** Every vehicle with a timer, in pages. Read once, and only by a receiver with an edge that has a time. */
  due(): AsyncIterable<readonly Due[]>
  /** Every vehicle whose state has other `rules`, in pages. */
  outdated(rules: string): AsyncIterable<readonly StoredVehicle[]>
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
  /** For a store that several processes share. `due` and `outdated` then have the vehicles that this process handles now. */
  readonly shared?: SharedVehicles
}

/** A vehicle as another process describes it, in JSON. */
export interface SentVehicle {
  readonly vin: string
  readonly seq: number
  /** `null`: no message of the vehicle was received. */
  readonly seenMs: number | null
  readonly text: string
  /** Values of messages up to this `seq` are uncertain. */
  readonly gapTo: number
}

/** The states of vehicles that other processes keep. */
export interface VehiclesElsewhere {
  get(vin: string): Promise<SentVehicle | undefined>
  /** In the order of VINs, from the first one after `after`. */
  list(which: { readonly after?: string | undefined; readonly limit: number }): Promise<readonly SentVehicle[]>
  forget(vin: string): Promise<boolean>
  stats(): Promise<{ readonly vehicles: number; readonly unwritten: number; readonly edges: number }>
}

/** A gap that is none for a vehicle that goes on as before. */
export interface SharedPause {
  /** Its `seq`. */
  readonly to: number
  /** When it began, in milliseconds since the epoch. */
  readonly fromMs: number
}

/** Gaps of all vehicles. */
export interface SharedGaps {
  /** The `seq` of the newest gap that is no pause. -1: no such gap. */
  readonly to: number
  /** In the order of `seq`. */
  readonly pauses: readonly SharedPause[]
}

/** What a store that several processes share does besides. */
export interface SharedVehicles {
  /** The gaps of all vehicles up to this `seq`. */
  gapsTo(seq: number): SharedGaps
  follow(host: VehicleFollower): void
}

/** What a store that several processes share calls. */
export interface VehicleFollower {
  /** This process handles other vehicles than before. `isStale`: what it knows of this one may be outdated. */
  moved(isStale: (vin: string) => boolean): Promise<void>
  /** Another process was told to forget a vehicle that this one handles. */
  forget(vin: string): Promise<unknown>
}
