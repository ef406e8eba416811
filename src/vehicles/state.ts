import type { FleetEvent } from '../events/event.ts'
import type { FieldValue } from '../events/values.ts'
import { firstSeqAt } from '../inbox/delivery-id.ts'
import type { StoredVehicle } from '../inbox/vehicle-store.ts'
import { documentValues } from './document.ts'
import type { AnyVehicleView, Change, EdgeMemory } from './edge.ts'

/**
 * Fields whose `null` is a value and means none, for instance no destination. For every other field, `null` means that the vehicle
 * does not report a value now, and the last value stays.
 * `ChargingCableType` and `FastChargerPresent` are sent as `null` with both meanings. They keep their last value, so a vehicle that
 * falls asleep does not look unplugged. Ask for `{ invalid: true }` to see the change to `null`.
 */
export const nullMeansNone: ReadonlySet<string> = new Set([
  'DestinationName',
  'MilesToArrival',
  'MinutesToArrival',
  'TimeToFullCharge',
])

/** The most fields that are kept. The catalogue has 251, but a sender could make up any number of names. */
const mostFields = 1_000

/** The fields that are kept. Each has a slot: a small number that is the same in all states of a process. */
export class Slots {
  readonly names: string[] = []
  readonly deltas: (number | undefined)[] = []
  readonly #slots = new Map<string, number>()
  readonly #keepsAll: boolean

  constructor(fields: readonly string[] | undefined, deltas: Readonly<Record<string, number>> = {}) {
    this.#keepsAll = fields === undefined
    for (const name of fields ?? Object.keys(deltas)) this.#add(name, deltas[name])
  }

  /** `undefined`: the field is not kept. */
  slotOf(name: string): number | undefined {
    return this.#slots.get(name) ?? (this.#keepsAll ? this.#add(name) : undefined)
  }

  /** Like {@link slotOf}, but gives a new field no slot. */
  find(name: string): number | undefined {
    return this.#slots.get(name)
  }

  /** Whether the field is kept, or will be once a message has it. */
  keeps(name: string): boolean {
    return this.#keepsAll || this.#slots.has(name)
  }

  #add(name: string, delta?: number): number | undefined {
    const slot = this.names.length
    if (slot >= mostFields) return undefined
    this.names.push(name)
    this.deltas.push(delta)
    this.#slots.set(name, slot)
    return slot
  }
}

/** What the vehicle's `state` and `connectivity` messages say. */
interface Link {
  readonly online: boolean | undefined
  readonly state: string | undefined
  /** When the state was reported, in milliseconds since the epoch. `-Infinity`: never. */
  readonly stateMs: number
  /** The `seq` of the newest of these messages. */
  readonly heard: number
  /** The open connections, and when each was opened. */
  readonly connections: Readonly<Record<string, number>>
}

/** The most open connections that are kept. A vehicle has two networks, but the message that ends a connection can be missing. */
const mostConnections = 8

type Memory = Readonly<Record<string, EdgeMemory>>

/** What messages change of a state. */
type StateParts = Omit<VehicleState, 'vin' | 'slots' | 'text' | 'with'>

const nothing: readonly never[] = []

/**
 * The newest values of one vehicle. It never changes: a message makes a new state. It is a class with plain lists by slot, because
 * a hundred thousand of them must fit in 100 MB.
 */
export class VehicleState implements StoredVehicle {
  readonly vin: string
  readonly slots: Slots
  /** The `seq` of the newest message that the state includes. */
  readonly seq: number
  /** When that message was received, in milliseconds since the epoch. */
  readonly seenMs: number
  /** By slot: the last value. `undefined`: never reported. */
  readonly values: readonly (FieldValue | undefined)[]
  /** By slot: when the vehicle sent it, in milliseconds since the epoch, and never later than the receipt. */
  readonly ats: readonly number[]
  /** By slot: the `seq` of the message that last reported a value. */
  readonly seqs: readonly number[]
  /** By slot: since when the vehicle has reported no value. */
  readonly invalid: Readonly<Record<number, number>> | undefined
  /** By slot: the last value that was reported as a change, for fields with a `delta`. */
  readonly bases: Readonly<Record<number, number>> | undefined
  readonly link: Link | undefined
  /** What edges remember, by the name of the edge. */
  readonly memory: Memory | undefined
  /** Values up to this `seq` are uncertain, because messages of this vehicle may be missing. */
  readonly gapTo: number

  constructor(vin: string, slots: Slots, parts: StateParts) {
    this.vin = vin
    this.slots = slots
    this.seq = parts.seq
    this.seenMs = parts.seenMs
    this.values = parts.values
    this.ats = parts.ats
    this.seqs = parts.seqs
    this.invalid = parts.invalid
    this.bases = parts.bases
    this.link = parts.link
    this.memory = parts.memory
    this.gapTo = parts.gapTo
  }

  static unknown(vin: string, slots: Slots): VehicleState {
    return new VehicleState(vin, slots, {
      ...{ seq: -1, seenMs: -Infinity, values: nothing, ats: nothing, seqs: nothing, gapTo: -1 },
      ...{ invalid: undefined, bases: undefined, link: undefined, memory: undefined },
    })
  }

  /** Reads what {@link text} wrote. Fields that are no longer kept are left out. */
  static read({ vin, seq, seenMs, text }: StoredRow, slots: Slots): VehicleState {
    const row: StoredState = JSON.parse(text)
    const values: (FieldValue | undefined)[] = []
    const ats: number[] = []
    const seqs: number[] = []
    const invalid: Record<number, number> = {}
    const bases: Record<number, number> = {}
    for (const [name, [value, at, valueSeq, invalidMs, base]] of Object.entries(row.fields)) {
      const slot = slots.slotOf(name)
      if (slot === undefined) continue
      grow(values, ats, seqs, slot)
      values[slot] = value
      ats[slot] = at
      seqs[slot] = valueSeq
      if (invalidMs != null) invalid[slot] = invalidMs
      if (base != null) bases[slot] = base
    }
    return new VehicleState(vin, slots, {
      ...{ seq, seenMs, values, ats, seqs },
      invalid: orNone(invalid),
      bases: orNone(bases),
      link: row.link && {
        ...{ online: row.link.online, state: row.link.state, heard: row.link.heard },
        ...{ stateMs: row.link.stateMs ?? -Infinity, connections: row.link.connections },
      },
      memory: row.memory,
      gapTo: row.gapTo ?? -1,
    })
  }

  /** The state as JSON, with the names of the fields. */
  text(): string {
    // Without a prototype: a field can have any name.
    const fields: Record<string, StoredState['fields'][string]> = Object.create(null)
    for (const [slot, value] of this.values.entries()) {
      const name = this.slots.names[slot]
      if (value === undefined || name === undefined) continue
      const invalidMs = this.invalid?.[slot]
      const base = this.bases?.[slot]
      const known = [value, this.ats[slot] ?? 0, this.seqs[slot] ?? 0] as const
      fields[name] = base === undefined && invalidMs === undefined ? known : [...known, invalidMs ?? null, base ?? null]
    }
    const { link, memory, gapTo } = this
    const row: StoredState = {
      fields,
      ...(link === undefined
        ? {}
        : { link: { ...link, stateMs: Number.isFinite(link.stateMs) ? link.stateMs : null } }),
      ...(memory === undefined ? {} : { memory }),
      ...(gapTo < 0 ? {} : { gapTo }),
    }
    return JSON.stringify(row)
  }

  with(parts: Partial<StateParts>): VehicleState {
    return new VehicleState(this.vin, this.slots, { ...partsOf(this), ...parts })
  }
}

/** A state as a store returns it. */
export interface StoredRow {
  readonly vin: string
  readonly seq: number
  readonly seenMs: number
  readonly text: string
}

/** A state as it is stored. `null` stands for values that JSON does not have. */
interface StoredState {
  readonly fields: Readonly<
    Record<
      string,
      readonly [value: FieldValue, at: number, seq: number, invalidMs?: number | null, base?: number | null]
    >
  >
  readonly link?: Omit<Link, 'stateMs' | 'online' | 'state'> & {
    readonly stateMs: number | null
    readonly online?: boolean | undefined
    readonly state?: string | undefined
  }
  readonly memory?: Memory
  readonly gapTo?: number
}

/** A copy that may change. To spread the state would take three times as long. */
const partsOf = (state: VehicleState): { -readonly [Name in keyof StateParts]: StateParts[Name] } => ({
  seq: state.seq,
  seenMs: state.seenMs,
  values: state.values,
  ats: state.ats,
  seqs: state.seqs,
  invalid: state.invalid,
  bases: state.bases,
  link: state.link,
  memory: state.memory,
  gapTo: state.gapTo,
})

function orNone<T extends object>(record: T): T | undefined {
  return Object.keys(record).length === 0 ? undefined : record
}

/** Fills lists up to a slot: V8 keeps lists without holes small and fast. */
function grow(values: (FieldValue | undefined)[], ats: number[], seqs: number[], slot: number): void {
  while (values.length <= slot) {
    values.push(undefined)
    ats.push(0)
    seqs.push(0)
  }
}

/** One message with its `seq`. */
export interface Arrival {
  readonly event: FleetEvent
  readonly seq: number
  /** Values up to this `seq` are uncertain, because messages of any vehicle may be missing. `-1`: none is. */
  readonly gapTo: number
}

/** The state after a message. */
export interface Applied {
  readonly after: VehicleState
  /** Computed only when read, because most handlers never read them. */
  readonly changes: readonly Change[]
  /** The slots of the fields that changed or became certain. */
  readonly touched: readonly number[]
}

/**
 * The state after a message of this vehicle. Each field has its newest value by `min(at, receivedAt)`. Of two values with the same
 * time, the one that arrived last wins. An older message never replaces a newer value. Pure.
 */
export function applied(before: VehicleState, arrival: Arrival): Applied {
  const { event, seq, gapTo } = arrival
  const receivedMs = event.receivedAt.getTime()
  const common = { seq: Math.max(before.seq, seq), seenMs: Math.max(before.seenMs, receivedMs) }
  switch (event.topic) {
    case 'data': {
      const draft = new Draft(before, seq, receivedMs, gapTo)
      const atMs = Math.min(event.at.getTime(), receivedMs)
      const data: Readonly<Record<string, FieldValue | null | undefined>> = event.data
      for (const name in data) {
        const value = data[name]
        if (value === undefined || (value === null && Object.hasOwn(event.undecoded, name))) continue
        draft.add(name, value, atMs, false)
      }
      return draft
    }
    case 'vehicle_data': {
      const draft = new Draft(before, seq, receivedMs, gapTo)
      const createdMs = Math.min(event.at.getTime(), receivedMs)
      for (const { field, value, atMs, tolerance } of documentValues(event.vehicleData, createdMs))
        draft.add(field, value, Math.min(atMs, receivedMs), true, tolerance)
      return draft
    }
    case 'state':
    case 'connectivity': {
      const link = linked(before.link, event, Math.min(event.at.getTime(), receivedMs), seq)
      return { after: before.with({ ...common, link }), changes: nothing, touched: nothing }
    }
    case 'gap': {
      const end = Math.max(before.gapTo, gapEnd(event, seq))
      return { after: before.with({ seq: common.seq, gapTo: end }), changes: nothing, touched: nothing }
    }
    default:
      return { after: before.with(common), changes: nothing, touched: nothing }
  }
}

/** Values up to this `seq` are uncertain after the gap. Messages can follow the gap in the same millisecond. */
export function gapEnd({ to }: Extract<FleetEvent, { topic: 'gap' }>, seq: number): number {
  return Math.min(firstSeqAt(to.getTime() + 1) - 1, seq)
}

/** A {@link Change} that has not been read yet. */
interface Difference {
  readonly slot: number
  readonly from: FieldValue | undefined
  readonly to: FieldValue
  /** When the vehicle sent `from`, in milliseconds since the epoch. */
  readonly fromMs: number | undefined
  readonly atMs: number
  readonly acrossGap: boolean
  readonly invalid: boolean
}

/** Builds the next state. It copies a list only when it must change it, because every message makes a state. */
class Draft implements Applied {
  readonly #before: VehicleState
  readonly #parts: ReturnType<typeof partsOf>
  readonly #seq: number
  readonly #uncertainTo: number
  #own: { readonly values: (FieldValue | undefined)[]; readonly ats: number[]; readonly seqs: number[] } | undefined
  #differences: Difference[] | undefined
  /** The slots of values that did not change and are certain again. */
  #certain: number[] | undefined
  #hasGrown = false
  #after: VehicleState | undefined
  #changes: readonly Change[] | undefined

  constructor(before: VehicleState, seq: number, receivedMs: number, gapTo: number) {
    this.#before = before
    this.#parts = partsOf(before)
    this.#parts.seq = Math.max(before.seq, seq)
    this.#parts.seenMs = Math.max(before.seenMs, receivedMs)
    this.#seq = seq
    this.#uncertainTo = Math.max(gapTo, before.gapTo)
  }

  /** Adds a value that a message reports. `null` in a document says nothing about the field, unless its `null` means none. */
  add(field: string, value: FieldValue, atMs: number, isDocument: boolean, tolerance: number = 0): void {
    const before = this.#before
    const slot = before.slots.slotOf(field)
    if (slot === undefined) return
    const known = before.values[slot]
    const knownMs = before.ats[slot] ?? 0
    const invalidMs = before.invalid?.[slot]
    if (known !== undefined && atMs < Math.max(knownMs, invalidMs ?? -Infinity)) return
    const isNone = value === null && !nullMeansNone.has(field)
    if (isNone && (known === undefined || isDocument)) return
    const acrossGap = known !== undefined && (before.seqs[slot] ?? 0) <= this.#uncertainTo
    if (isNone) {
      if (invalidMs !== undefined) return
      this.#parts.invalid = { ...this.#parts.invalid, [slot]: atMs }
      this.#change({ slot, from: known, to: null, fromMs: knownMs, atMs, acrossGap, invalid: true })
      return
    }
    const isSame = known !== undefined && this.#isSame(slot, known, value, tolerance)
    this.#set(slot, isDocument && isSame ? known : value, atMs)
    if (invalidMs !== undefined) {
      const { [slot]: _, ...others } = this.#parts.invalid ?? {}
      this.#parts.invalid = orNone(others)
    }
    if (known === undefined)
      this.#change({ slot, from: undefined, to: value, fromMs: undefined, atMs, acrossGap, invalid: false })
    else if (!isSame)
      this.#change({ slot, from: this.#from(slot, known), to: value, fromMs: knownMs, atMs, acrossGap, invalid: false })
    else if (invalidMs !== undefined)
      this.#change({ slot, from: null, to: value, fromMs: invalidMs, atMs, acrossGap, invalid: true })
    else if (acrossGap) (this.#certain ??= []).push(slot)
    if (before.slots.deltas[slot] !== undefined && typeof value === 'number' && !isSame)
      this.#parts.bases = { ...this.#parts.bases, [slot]: value }
  }

  get after(): VehicleState {
    return (this.#after ??= this.#done())
  }

  get changes(): readonly Change[] {
    return (this.#changes ??= this.#differences?.map((found) => changeOf(found, this.#before.slots)) ?? nothing)
  }

  get touched(): readonly number[] {
    return [...(this.#differences ?? nothing).map(({ slot }) => slot), ...(this.#certain ?? nothing)]
  }

  #done(): VehicleState {
    const own = this.#own
    if (own !== undefined) {
      // A list that has grown has spare room. A copy of it has none.
      this.#parts.values = this.#hasGrown ? own.values.slice() : own.values
      this.#parts.ats = this.#hasGrown ? own.ats.slice() : own.ats
      this.#parts.seqs = this.#hasGrown ? own.seqs.slice() : own.seqs
    }
    return new VehicleState(this.#before.vin, this.#before.slots, this.#parts)
  }

  /** With a `delta`, compares with the last value that was reported as a change, so that a drift in small steps is a change too. */
  #isSame(slot: number, known: FieldValue, value: FieldValue, tolerance: number): boolean {
    const least = Math.max(tolerance, this.#before.slots.deltas[slot] ?? 0)
    const from = this.#from(slot, known)
    if (least > 0 && typeof value === 'number' && typeof from === 'number') return Math.abs(value - from) < least
    return isDeepEqual(from, value)
  }

  #from(slot: number, known: FieldValue): FieldValue {
    return this.#before.bases?.[slot] ?? known
  }

  #set(slot: number, value: FieldValue, atMs: number): void {
    const { values, ats, seqs } = (this.#own ??= {
      values: this.#parts.values.slice(),
      ats: this.#parts.ats.slice(),
      seqs: this.#parts.seqs.slice(),
    })
    if (slot >= values.length) {
      grow(values, ats, seqs, slot)
      this.#hasGrown = true
    }
    values[slot] = value
    ats[slot] = atMs
    seqs[slot] = this.#seq
  }

  #change(difference: Difference): void {
    ;(this.#differences ??= []).push(difference)
  }
}

function changeOf({ slot, from, to, fromMs, atMs, acrossGap, invalid }: Difference, { names }: Slots): Change {
  return {
    ...{ field: names[slot] ?? '', from, to, at: new Date(atMs), acrossGap, first: from === undefined, invalid },
    fromAt: fromMs === undefined ? undefined : new Date(fromMs),
  }
}

/** Whether two JSON values are equal. The order of keys does not count. */
export function isDeepEqual(one: FieldValue | undefined, other: FieldValue | undefined): boolean {
  if (one === other) return true
  if (typeof one !== 'object' || typeof other !== 'object' || one === null || other === null) return false
  if (Array.isArray(one) !== Array.isArray(other)) return false
  const left = Object.entries(one)
  const right: ReadonlyMap<string, FieldValue> = new Map(Object.entries(other))
  return (
    left.length === right.size && left.every(([key, value]) => right.has(key) && isDeepEqual(value, right.get(key)))
  )
}

const isOn: Readonly<Record<string, boolean>> = { online: true, driving: true, asleep: false, offline: false }

const unknownLink: Link = { online: undefined, state: undefined, stateMs: -Infinity, heard: -1, connections: {} }

function linked(
  link: Link = unknownLink,
  event: Extract<FleetEvent, { topic: 'state' | 'connectivity' }>,
  atMs: number,
  seq: number,
): Link {
  if (event.topic === 'state') {
    if (atMs < link.stateMs) return link
    const online = Object.hasOwn(isOn, event.state) ? isOn[event.state] : link.online
    // Connections that were never reported as closed are closed now.
    const connections = online === false ? {} : link.connections
    return { online, state: event.state, stateMs: atMs, heard: seq, connections }
  }
  const key = event.connectionId ?? event.networkInterface
  const openedMs = Object.hasOwn(link.connections, key) ? (link.connections[key] ?? -Infinity) : -Infinity
  // The state is newer than this message.
  if (atMs < link.stateMs || atMs < openedMs) return link
  if (event.status === 'connected') {
    const connections = Object.entries({ ...link.connections, [key]: atMs }).toSorted(([, a], [, b]) => a - b)
    return { ...link, online: true, heard: seq, connections: Object.fromEntries(connections.slice(-mostConnections)) }
  }
  if (event.status !== 'disconnected') return link
  const connections = Object.fromEntries(Object.entries(link.connections).filter(([open]) => open !== key))
  return { ...link, online: Object.keys(connections).length > 0, heard: seq, connections }
}

/** A state as handlers, edges and conditions see it. */
export class Snapshot implements AnyVehicleView {
  readonly #state: VehicleState
  /** `ageMs` counts up to this time. */
  readonly #nowMs: number
  readonly #uncertainTo: number

  constructor(state: VehicleState, nowMs: number, gapTo: number) {
    this.#state = state
    this.#nowMs = nowMs
    this.#uncertainTo = Math.max(gapTo, state.gapTo)
  }

  /** What the snapshot was made from. */
  parts(): { readonly state: VehicleState; readonly gapTo: number } {
    return { state: this.#state, gapTo: this.#uncertainTo }
  }

  get vin(): string {
    return this.#state.vin
  }

  value(field: string): FieldValue | undefined {
    return this.#known(field)
  }

  at(field: string): Date | undefined {
    const ms = this.#known(field) === undefined ? undefined : this.#state.ats[this.#slot(field)]
    return ms === undefined ? undefined : new Date(ms)
  }

  ageMs(field: string): number | undefined {
    const ms = this.#known(field) === undefined ? undefined : this.#state.ats[this.#slot(field)]
    return ms === undefined ? undefined : Math.max(0, this.#nowMs - ms)
  }

  isCertain(field: string): boolean {
    return this.#known(field) !== undefined && (this.#state.seqs[this.#slot(field)] ?? -1) > this.#uncertainTo
  }

  invalidSince(field: string): Date | undefined {
    const ms = this.#state.invalid?.[this.#slot(field)]
    return ms === undefined ? undefined : new Date(ms)
  }

  get fields(): readonly string[] {
    const { values, slots } = this.#state
    return slots.names.filter((_, slot) => values[slot] !== undefined)
  }

  get online(): boolean | undefined {
    return this.#state.link?.online
  }

  get state(): string | undefined {
    return this.#state.link?.state
  }

  get isOnlineCertain(): boolean {
    const { link } = this.#state
    return link !== undefined && link.heard > this.#uncertainTo
  }

  get seenAt(): Date | undefined {
    const { seenMs } = this.#state
    return Number.isFinite(seenMs) ? new Date(seenMs) : undefined
  }

  #slot(field: string): number {
    return this.#state.slots.find(field) ?? -1
  }

  #known(field: string): FieldValue | undefined {
    return this.#state.values[this.#slot(field)]
  }
}
