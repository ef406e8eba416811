import type { BuiltInFields, FieldCatalogue } from '../events/fields.ts'
import type { KeptGap } from '../inbox/inbox.ts'
import type { Edge, VehicleView } from './edge.ts'
import type { Snapshot } from './state.ts'

/** The newest state of each vehicle: `receiver.vehicles`. */
export interface Vehicles<Fields extends FieldCatalogue = BuiltInFields> {
  /** The newest state, including messages whose handlers are still running. `undefined`: no message of this vehicle was received. */
  get(vin: string): Promise<VehicleView<Fields> | undefined>
  /** In the order of their VINs, from the first one after `after`. It reads them in small steps while you iterate. */
  list(which?: { readonly after?: string | undefined }): AsyncIterable<VehicleView<Fields>>
  /**
   * Deletes the state of a vehicle, with everything that edges remember about it. Resolves to whether there was one. The next message
   * begins a new state. Messages stay: those that wait, those that the inbox keeps for replays, and dead letters.
   */
  forget(vin: string): Promise<boolean>
  stats(): Promise<VehiclesStats>
}

/** Figures of `receiver.vehicles`. */
export interface VehiclesStats {
  /** The number of vehicles with a state. */
  readonly vehicles: number
  /** The number of them whose newest state the inbox has not written yet. It writes every few seconds. */
  readonly unwritten: number
  /** The number of edges that have handlers. */
  readonly edges: number
}
/** `receiver.vehicles` in the process that has the states. */
export interface LocalVehicles extends Vehicles<FieldCatalogue> {
  get(vin: string): Promise<Snapshot | undefined>
  list(which?: Parameters<Vehicles['list']>[0]): AsyncIterable<Snapshot>
  /** The edges that have handlers. */
  edges(): readonly Edge[]
  /** Notes a gap that another process noticed. The event of a gap of all vehicles is handled elsewhere. */
  noteGap(gap: Pick<KeptGap, 'vin' | 'fromMs' | 'toMs'>): Promise<void>
}
