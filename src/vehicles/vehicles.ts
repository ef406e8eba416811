import type { BuiltInFields, FieldCatalogue } from '../events/fields.ts'
import type { Fact } from './fact.ts'
import type { KeptGap } from '../inbox/inbox.ts'
import type { Edge, VehicleView } from './edge.ts'
import type { Snapshot } from './state.ts'

/** Facts by name, each with the type that it is set with. */
export type FactsBy<Of extends readonly Fact[]> = {
  readonly [Each in Of[number] as Each['name']]: Each extends Fact<string, unknown, infer Given> ? Given : never
}

/** Since when something is so, and until when, by the business's clock. */
export interface FactTime {
  /** It can be over or still to come. Default: the receipt. */
  readonly from?: Date | undefined
  /** What was said without an end holds again then. Default: it holds until something else is said of a later time. */
  readonly until?: Date | undefined
}

/** A row of a table: a VIN and its facts. Leaving a fact out, or `null`, removes it. */
export interface FactRow {
  readonly vin: string
  readonly [fact: string]: unknown
}

/** Options of `setAll`. */
export interface SetAllOptions<Name extends string = string> {
  /** The facts that the table has. Default: the facts that a row has. */
  readonly facts?: readonly Name[]
}

/** What `setAll` did. */
export interface SetAllResult {
  /** The number of vehicles of which something differed. */
  readonly told: number
}

/** How facts are set. `By` has their types by name. */
export interface SayingVehicles<By extends object = Readonly<Record<string, unknown>>> {
  /**
   * Says what the business knows of a vehicle. It resolves when the inbox has it, in its place among the vehicle's messages, and rejects when the inbox
   * does not take it. `null`: none. `from` and `until` can be over: then episodes are corrected, and edges see only what is so now.
   *
   * Rejects with `option_invalid` for a fact that the part `vehicles` does not keep, a value that it cannot have (at most 16,000 characters of JSON), and a
   * time that is none, and with `inbox_full` or `inbox_unavailable`.
   *
   * @example
   * ```ts
   * import { createReceiver, vehicles } from 'fleethook'
   * import { fact } from 'fleethook/when'
   *
   * const booking = fact('booking', 'string')
   * const receiver = createReceiver({ secret: false, parts: [vehicles({ fields: ['Gear'], facts: [booking] })] })
   * const [from, until] = [new Date('2026-12-01T14:00:00Z'), new Date('2026-12-01T16:00:00Z')]
   * await receiver.vehicles.set('0FLEETV14T0000004', { booking: 'b-7' }, { from, until })
   * ```
   */
  set(vin: string, facts: { readonly [Name in keyof By]?: By[Name] | null | undefined }, time?: FactTime): Promise<void>
  /**
   * Keeps facts in step with a table: says what differs from what is so now, and removes them from vehicles that no row has. Facts that neither a row nor
   * `facts` names stay. When the inbox is full, it waits for room, for a minute at most. Rejects as `set` does, and for a VIN that is there twice.
   */
  setAll(
    rows: Iterable<RowOf<By>> | AsyncIterable<RowOf<By>>,
    options?: SetAllOptions<keyof By & string>,
  ): Promise<SetAllResult>
}

/** A row with the types of the facts. */
export type RowOf<By extends object> = { readonly vin: string } & {
  readonly [Name in keyof By]?: By[Name] | null | undefined
}

/** The newest state of each vehicle: `receiver.vehicles`. `By` has the types of its facts by name. */
export interface Vehicles<
  Fields extends FieldCatalogue = BuiltInFields,
  By extends object = Readonly<Record<string, unknown>>,
>
  extends ReadVehicles<Fields>, SayingVehicles<By> {}

/** How the newest states are read. */
export interface ReadVehicles<Fields extends FieldCatalogue = BuiltInFields> {
  /** The newest state, including messages whose handlers are still running. `undefined`: no message of this vehicle was received. */
  get(vin: string): Promise<VehicleView<Fields> | undefined>
  /** In the order of their VINs, from the first one after `after`. It reads them in small steps while you iterate. */
  list(which?: { readonly after?: string | undefined }): AsyncIterable<VehicleView<Fields>>
  /**
   * Deletes the state of a vehicle, with everything that edges remember about it. Resolves to whether there was one. The next message
   * begins a new state. Messages stay: waiting messages, messages that the inbox keeps for replays, and dead letters.
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
export interface LocalVehicles extends ReadVehicles<FieldCatalogue> {
  get(vin: string): Promise<Snapshot | undefined>
  list(which?: Parameters<ReadVehicles['list']>[0]): AsyncIterable<Snapshot>
  /** The edges that have handlers. */
  edges(): readonly Edge[]
  /** Notes a gap that another process noticed. The event of a gap of all vehicles is handled elsewhere. */
  noteGap(gap: KeptGap): Promise<void>
}
