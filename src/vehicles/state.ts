import { FleethookError } from '../base/errors.ts'
import type { FactsEvent, FleetEvent } from '../events/event.ts'
import { type FieldCatalogue, isInCatalogue } from '../events/fields.ts'
import { type Law, lawOf } from '../events/laws.ts'
import type { FieldValue } from '../events/values.ts'
import type { OddValues } from '../observe/dead-letters.ts'
import { firstSeqAt, isClockBehind } from '../inbox/delivery-id.ts'
import type { StoredVehicle } from '../inbox/vehicle-store.ts'
import { canBe, canFollow, judged, type Reading } from './belief.ts'
import {
  arrivedMs,
  type ClockMemory,
  type ClockReading,
  isFarAhead,
  isOlder,
  neverSent,
  readClock,
  type Sent,
  sentAt,
  sentOf,
  type Stamp,
  stampOf,
} from './clock.ts'
import type { DriftReason } from '../wire/drift.ts'
import { documentValues } from './document.ts'
import type { AnyVehicleView, Change, EdgeMemory, EdgeTimer, PendingTimer } from './edge.ts'
import type { Fact, KnownFact } from './fact.ts'
import { FactNames, Facts, type StoredFacts, valueOf } from './facts.ts'
import { type Lag, wakeMs } from './lag.ts'

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

const nothing: readonly never[] = []

/** Not the list that values share: with that, V8 makes an object of each time in optimized code, and a state half as large again. */
const noTimes: readonly number[] = []

/** The most fields in no catalogue that are kept: a sender could make up any number of names. */
const mostOthers = 1_000

/** The longest text that a sender chooses and that is a name here: of such a field, a state or a connection. */
export const longestName = 100

/** The longest value, as {@link lengthOf} counts. The line of a route has thousands of characters. */
const longestValue = 16_384

/** How deep a value may be nested. So walks over kept values may be recursive. */
const deepestValue = 32

/** The length of all fields of a state. Fields in no catalogue get at most half of it, so they cannot displace the others. */
const stateLength = 65_536

/** About the length of a value as JSON. `Infinity`: it is too long or nested too deep to be kept. Not recursive. */
export function lengthOf(value: unknown): number {
  if (typeof value === 'string') return value.length > longestValue ? Infinity : value.length
  if (typeof value !== 'object' || value === null) return 8
  let length = 0
  let level: readonly object[] = [value]
  for (let depth = 0; level.length > 0; depth += 1) {
    const next: object[] = []
    for (const outer of level) {
      if (!Array.isArray(outer)) for (const key of Object.keys(outer)) length += key.length
      const inners: readonly unknown[] = Object.values(outer)
      for (const inner of inners) {
        length += typeof inner === 'string' ? inner.length + 8 : 8
        if (typeof inner === 'object' && inner !== null) next.push(inner)
      }
      if (length > longestValue) return Infinity
    }
    if (depth === deepestValue) return Infinity
    level = next
  }
  return length
}

/** The fields that are kept. Each has a slot: a small number that is the same in all states of a process. */
export class Slots {
  readonly names: string[] = []
  readonly deltas: (number | undefined)[] = []
  /** By slot: what physics allows. `undefined`: everything. */
  readonly laws: (Law | undefined)[] = []
  /** By slot: the longest state in which the field may grow. */
  readonly room: number[] = []
  /** The facts that are kept, by name. */
  readonly facts: ReadonlyMap<string, Fact>
  readonly factNames: FactNames
  /** Call it with the reason when a value that messages have is not kept. */
  readonly leftOut: (reason: string) => void
  /** Call it with the vehicle and the episode when a fact is told later than what was told by it is corrected. */
  readonly toldLate: (vin: string, episode: string) => void
  readonly #slots = new Map<string, number>()
  readonly #keepsAll: boolean
  /** The catalogue of the business: with its limits. */
  readonly ownFields: FieldCatalogue
  #others = 0

  constructor(
    {
      fields,
      deltas = {},
      facts = nothing,
    }: {
      fields: readonly string[] | undefined
      deltas?: { readonly [field: string]: number | undefined }
      facts?: readonly Fact[]
    },
    ownFields: FieldCatalogue = {},
    leftOut: (reason: string) => void = () => {},
    toldLate: (vin: string, episode: string) => void = () => {},
  ) {
    this.#keepsAll = fields === undefined
    this.facts = new Map(facts.map((fact) => [fact.name, fact]))
    this.factNames = new FactNames(this.facts.keys())
    this.ownFields = ownFields
    this.leftOut = leftOut
    this.toldLate = toldLate
    for (const name of fields ?? Object.keys(deltas)) this.#add(name, stateLength, deltas[name])
  }

  /** `undefined`: the field is not kept. */
  slotOf(name: string): number | undefined {
    const slot = this.#slots.get(name)
    if (slot !== undefined || !this.#keepsAll) return slot
    if (isInCatalogue(name, this.ownFields)) return this.#add(name, stateLength)
    if (name.length > longestName) return this.#leaveOut('the name of a field is too long')
    if (this.#others >= mostOthers) return this.#leaveOut('there are too many fields that are in no catalogue')
    this.#others += 1
    return this.#add(name, stateLength / 2)
  }

  /** Like {@link slotOf}, but gives a new field no slot. */
  find(name: string): number | undefined {
    return this.#slots.get(name)
  }

  /** Whether the field is kept, or will be once a message has it. */
  keeps(name: string): boolean {
    return this.#keepsAll || this.#slots.has(name)
  }

  #add(name: string, room: number, delta?: number): number {
    const slot = this.names.push(name) - 1
    this.room.push(room)
    this.deltas.push(delta)
    this.laws.push(lawOf(name, this.ownFields))
    this.#slots.set(name, slot)
    return slot
  }

  #leaveOut(reason: string): undefined {
    this.leftOut(reason)
  }
}

/** What the vehicle's `state` and `connectivity` messages say. */
interface Link {
  readonly online: boolean | undefined
  readonly state: string | undefined
  /** When the state was reported. `-Infinity`: never. */
  readonly stateMs: Stamp
  /** The `seq` of the newest of these messages. */
  readonly heard: number
  /** The open connections, and when each was opened. */
  readonly connections: Connections
  /** The newest connections that are over, and when each ended: the message that opened one can come after that. */
  readonly ended: Connections
}

type Connections = Readonly<Record<string, Stamp>>

/** The most connections that are kept, open and ended. A vehicle has two networks, but the message that ends a connection can be missing. */
const mostConnections = 8

type Memory = Readonly<Record<string, EdgeMemory>>

/** What was not believed of a field. */
interface Doubt {
  /** How many values were left out. */
  readonly left: number
  /** The value that waits for the next one to confirm it. */
  readonly held: Reading | undefined
}

/** What edges wait for, by the name of the edge. */
export type Timers = Readonly<Record<string, EdgeTimer>>

/** What messages change of a state. */
type StateParts = Omit<
  VehicleState,
  'vin' | 'slots' | 'bytes' | 'receivedMs' | 'dueMs' | 'wakeMs' | 'text' | 'time' | 'ahead' | 'with'
>

interface GapsOfVehicle {
  /** Values up to this `seq` are uncertain, because messages of this vehicle may be missing. */
  readonly to: number
  /** Pauses of the receiver up to this `seq` are no gaps, unless they end by `to`: the vehicle went on as before. */
  readonly spanned: number
  /** The longest time between two messages that the vehicle had lately, in milliseconds. See {@link gapsAfter}. */
  readonly paceMs: number
}

const noGaps: GapsOfVehicle = { to: -1, spanned: -1, paceMs: 0 }

/** A state that nobody else has yet, so it may still change. */
type NewState = { -readonly [Name in keyof VehicleState]: VehicleState[Name] }

/**
 * The newest values of one vehicle. It never changes: a message makes a new state. It is a class with plain lists by slot, because
 * a hundred thousand of them must fit in 100 MB.
 */
export class VehicleState implements StoredVehicle {
  readonly vin: string
  readonly slots: Slots
  /** The `seq` of the newest message that the state includes. */
  readonly seq: number
  /** For stores, which forget a vehicle by it: when its newest message was received, in milliseconds since the epoch. */
  readonly seenMs: number
  /** The vehicle itself, or the service of it, has said nothing yet. */
  readonly isUnheard: boolean
  /** By slot: the last value. `undefined`: never reported. */
  readonly values: readonly (FieldValue | undefined)[]
  /**
   * Three numbers by slot: when the vehicle sent the value (in milliseconds since the epoch, and never later than the receipt), the
   * `seq` of the message that last reported one, and when the value became what it is.
   */
  readonly times: readonly number[]
  /**
   * Two numbers by slot, for a vehicle whose clock was ahead: `aheadMs` and `fromMs` of the newest report, as in {@link Sent}. 0 and 0: it
   * was not ahead.
   */
  readonly aheads: readonly number[] | undefined
  /** No message that is newer was sent before this time, by the vehicle's clock as far as it was not ahead. `-Infinity`: none. */
  readonly newestMs: number
  readonly clock: ClockMemory | undefined
  /** The length of all fields with their names, as {@link lengthOf} counts. */
  readonly length: number
  /** By slot: since when the vehicle has reported no value. */
  readonly invalid: Readonly<Record<number, Stamp>> | undefined
  /** By slot: the last value that was reported as a change, for fields with a `delta`. */
  readonly bases: Readonly<Record<number, number>> | undefined
  /** By slot: what was not believed. */
  readonly doubts: Readonly<Record<number, Doubt>> | undefined
  readonly link: Link | undefined
  /** What the business said. `undefined`: nothing. */
  readonly facts: Facts | undefined
  /** What edges remember, by the name of the edge. */
  readonly memory: Memory | undefined
  /** What edges wait for, by the name of the edge. */
  readonly timers: Timers | undefined
  /** How late its messages come, for a receiver with rules about time. */
  readonly lag: Lag | undefined
  /** The rules about time that are in it: see `EdgeIndex.rules`. */
  readonly rules: string | undefined
  readonly gaps: GapsOfVehicle

  constructor(vin: string, slots: Slots, parts: StateParts) {
    this.vin = vin
    this.slots = slots
    this.seq = parts.seq
    this.seenMs = parts.seenMs
    this.isUnheard = parts.isUnheard
    this.values = parts.values
    this.times = parts.times
    this.aheads = parts.aheads
    this.newestMs = parts.newestMs
    this.clock = parts.clock
    this.length = parts.length
    this.invalid = parts.invalid
    this.bases = parts.bases
    this.doubts = parts.doubts
    this.link = parts.link
    this.facts = parts.facts
    this.memory = parts.memory
    this.timers = parts.timers
    this.lag = parts.lag
    this.rules = parts.rules
    this.gaps = parts.gaps
  }

  static unknown(vin: string, slots: Slots): VehicleState {
    return new VehicleState(vin, slots, {
      seq: -1,
      seenMs: -Infinity,
      isUnheard: true,
      values: nothing,
      times: noTimes,
      aheads: undefined,
      newestMs: neverSent,
      clock: undefined,
      length: 0,
      gaps: noGaps,
      invalid: undefined,
      bases: undefined,
      doubts: undefined,
      link: undefined,
      facts: undefined,
      memory: undefined,
      timers: undefined,
      lag: undefined,
      rules: undefined,
    })
  }

  /** Reads what {@link text} wrote. Fields that are no longer kept are left out. A text that cannot be read is a state without values. */
  static read(row: StoredRow, slots: Slots): VehicleState {
    try {
      return VehicleState.#read(row, slots)
    } catch {
      slots.leftOut('a stored state cannot be read')
      return VehicleState.unknown(row.vin, slots).with({ seq: row.seq, seenMs: row.seenMs, isUnheard: false })
    }
  }

  static #read({ vin, seq, seenMs, text }: StoredRow, slots: Slots): VehicleState {
    const row: StoredState = JSON.parse(text)
    const values: (FieldValue | undefined)[] = []
    const times: number[] = []
    const invalid: Record<number, Stamp> = {}
    const bases: Record<number, number> = {}
    const aheads: number[] = []
    let length = 0
    let newestMs = neverSent
    for (const [name, [value, at, valueSeq, since, invalidMs, base, aheadMs = 0, fromMs = 0]] of Object.entries(
      row.fields,
    )) {
      const slot = slots.slotOf(name)
      const ofValue = lengthOf(value)
      if (slot === undefined || ofValue === Infinity) continue
      length += name.length + ofValue
      put(values, times, slot, value, [at, valueSeq, since])
      if (invalidMs != null) invalid[slot] = invalidMs
      if (base != null) bases[slot] = base
      if (aheadMs > 0) putAhead(aheads, slot, aheadMs, fromMs)
      newestMs = Math.max(newestMs, at)
    }
    return new VehicleState(vin, slots, {
      seq,
      seenMs,
      isUnheard: row.unheard === true,
      values,
      times,
      aheads: aheads.length === 0 ? undefined : aheads,
      newestMs: row.newest ?? newestMs,
      clock: row.clock,
      length,
      invalid: orNone(invalid),
      bases: orNone(bases),
      doubts: readDoubts(row.odd, slots),
      link: row.link && {
        online: row.link.online,
        state: row.link.state,
        heard: row.link.heard,
        stateMs: row.link.stateMs ?? -Infinity,
        connections: row.link.connections,
        ended: row.link.ended ?? {},
      },
      // Also where none is declared: in a deploy, another process has them.
      facts: Facts.read(row.facts, slots.factNames),
      memory: row.memory,
      timers: readTimers(row.timers),
      lag: row.lag && lagOf(row.lag),
      rules: row.rules,
      gaps: { to: row.gapTo ?? -1, spanned: row.spanned ?? -1, paceMs: row.pace ?? 0 },
    })
  }

  get bytes(): number {
    let bytes = 300 + this.length + 40 * this.values.length + 8 * (this.aheads?.length ?? 0)
    for (const _ in this.doubts) bytes += 80
    if (this.facts !== undefined) bytes += this.facts.bytes
    for (const name in this.memory) {
      const remembered = this.memory[name]
      const text = typeof remembered === 'object' ? JSON.stringify(remembered) : remembered
      bytes += typeof text === 'string' ? text.length + 40 : 40
    }
    return bytes
  }

  /** When the newest message of the vehicle was received, in milliseconds since the epoch. `-Infinity`: none was. */
  get receivedMs(): number {
    return this.isUnheard ? -Infinity : this.seenMs
  }

  get dueMs(): number | undefined {
    return this.wakeMs()
  }

  /** When the first timer is up or a fact changes, if no other message comes. `quiet`: how long messages that are late are waited for. */
  wakeMs(quiet?: number): number | undefined {
    let first = this.facts?.nextMs
    for (const name in this.timers) {
      const timer = this.timers[name]
      const ms = timer && wakeMs(timer, this.lag, quiet)
      if (ms !== undefined && (first === undefined || ms < first)) first = ms
    }
    return first === undefined ? undefined : Math.ceil(first)
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
      const known = [value, this.time(slot, 0), this.time(slot, 1), this.time(slot, 2)] as const
      const { aheadMs, fromMs } = this.ahead(slot)
      fields[name] =
        aheadMs > 0
          ? [...known, invalidMs ?? null, base ?? null, aheadMs, fromMs]
          : base === undefined && invalidMs === undefined
            ? known
            : [...known, invalidMs ?? null, base ?? null]
    }
    const { link, facts, memory, timers, lag, rules, gaps, dueMs, newestMs, clock, doubts, isUnheard } = this
    const row: StoredState = {
      due: dueMs,
      rules,
      unheard: isUnheard ? true : undefined,
      facts: facts?.stored,
      fields,
      link: link && { ...link, stateMs: link.stateMs === neverSent ? null : link.stateMs },
      timers,
      lag: lag && [lag.ms, lag.atMs, lag.slowMs ?? null],
      gapTo: gaps.to < 0 ? undefined : gaps.to,
      spanned: gaps.spanned < 0 ? undefined : gaps.spanned,
      pace: gaps.paceMs > 0 ? gaps.paceMs : undefined,
      newest: newestMs === neverSent ? undefined : newestMs,
      clock,
      odd: doubts && writtenDoubts(doubts, this.slots),
      // The largest part changes least: at the end, Postgres logs nothing of it.
      memory,
    }
    return JSON.stringify(row)
  }

  /** One of the `times` of a slot. */
  time(slot: number, which: 0 | 1 | 2): number {
    return this.times[slot * 3 + which] ?? 0
  }

  /** Whether the clock was ahead in the newest report of a slot. */
  ahead(slot: number): Omit<Sent, 'atMs'> {
    return { aheadMs: this.aheads?.[slot * 2] ?? 0, fromMs: this.aheads?.[slot * 2 + 1] ?? 0 }
  }

  with(parts: Partial<StateParts>): VehicleState {
    return Object.assign(new VehicleState(this.vin, this.slots, this), parts)
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
  /** The first of the timers. It comes first, so that a store finds it without reading the rest. */
  readonly due?: number | undefined
  /** Comes next, for the same reason. */
  readonly rules?: string | undefined
  /** Left out: the vehicle was heard. */
  readonly unheard?: true | undefined
  /** Comes before the fields: see {@link factsOf}. */
  readonly facts?: StoredFacts | undefined
  readonly fields: Readonly<
    Record<
      string,
      readonly [
        value: FieldValue,
        at: number,
        seq: number,
        since: number,
        invalidMs?: Stamp | null,
        base?: number | null,
        aheadMs?: number,
        fromMs?: number,
      ]
    >
  >
  readonly link?:
    | (Omit<Link, 'stateMs' | 'online' | 'state' | 'ended'> & {
        readonly ended?: Connections
        readonly stateMs: Stamp | null
        readonly online?: boolean | undefined
        readonly state?: string | undefined
      })
    | undefined
  readonly memory?: Memory | undefined
  readonly timers?: Timers | undefined
  /** An earlier version wrote whether the clock was slow, by `ms`. */
  readonly lag?: readonly [ms: number, atMs: number, slowMs: number | boolean | null] | undefined
  readonly gapTo?: number | undefined
  readonly spanned?: number | undefined
  readonly pace?: number | undefined
  readonly newest?: number | undefined
  readonly clock?: ClockMemory | undefined
  /** By field: the number of values that were left out, and the value that waits to be confirmed. */
  readonly odd?: Readonly<Record<string, readonly [left: number, ...held: readonly [] | Reading]>> | undefined
}

/** What the business said, of a state as a store returns it. Without reading the rest, because all vehicles are read for it. */
export function factsOf(stored: Pick<StoredVehicle, 'text'>, { factNames }: Slots): Facts | undefined {
  if (stored instanceof VehicleState) return stored.facts
  const text = stored.text()
  const from = text.indexOf(factsStart)
  if (from < 0) return undefined
  const to = text.indexOf(fieldsStart, from)
  try {
    return Facts.read(JSON.parse(text.slice(from + factsStart.length, to)), factNames)
  } catch {
    // A fact can have a member with the name by which its end was looked for.
    const row: StoredState = JSON.parse(text)
    return Facts.read(row.facts, factNames)
  }
}

const factsStart = '"facts":'
const fieldsStart = ',"fields":{'

function writtenDoubts(doubts: Readonly<Record<number, Doubt>>, { names }: Slots): NonNullable<StoredState['odd']> {
  // Without a prototype: a field can have any name.
  const odd: Record<string, NonNullable<StoredState['odd']>[string]> = Object.create(null)
  for (const [slot, { left, held }] of Object.entries(doubts)) {
    const name = names[Number(slot)]
    if (name !== undefined) odd[name] = held === undefined ? [left] : [left, ...held]
  }
  return odd
}

function readDoubts(odd: StoredState['odd'], slots: Slots): Readonly<Record<number, Doubt>> | undefined {
  if (odd === undefined) return undefined
  const doubts: Record<number, Doubt> = {}
  for (const [name, [left, heldMs, held]] of Object.entries(odd)) {
    const slot = slots.slotOf(name)
    // The law may have changed since.
    if (slot === undefined || slots.laws[slot] === undefined) continue
    doubts[slot] = { left, held: heldMs === undefined || held === undefined ? undefined : [heldMs, held] }
  }
  return orNone(doubts)
}

/** The last moment that a date can have, in milliseconds since the epoch. */
const lastMs = 8_640_000_000_000_000

/** Whether it is a time that a date can have. */
export const isTime = (ms: unknown): ms is number => typeof ms === 'number' && Math.abs(ms) <= lastMs

const lagOf = ([ms, atMs, slow]: NonNullable<StoredState['lag']>): Lag => ({
  ms,
  atMs,
  slowMs: typeof slow === 'number' ? slow : slow === true ? ms : undefined,
})

/** Without those whose time no date can have: an earlier version took any number from an edge. */
function readTimers(timers: Timers | undefined): Timers | undefined {
  if (timers === undefined) return undefined
  return orNone(
    Object.fromEntries(
      Object.entries(timers).filter(([, { due, since }]) => (due === null || isTime(due)) && isTime(since)),
    ),
  )
}

/**
 * A state for a store in which messages have other numbers, with 0 for all that is in it. What was uncertain up to `gapTo` stays uncertain until
 * the next message.
 */
export function movedState({ vin, seq, seenMs, text }: StoredRow, gapTo: number): Omit<StoredVehicle, 'bytes'> {
  const { fields, link, timers, clock, gapTo: ownGapTo = -1, spanned: _, ...rest }: StoredState = JSON.parse(text)
  const uncertainTo = Math.max(gapTo, ownGapTo)
  const moved = (number: number): number => (number > uncertainTo ? 0 : -1)
  const row: StoredState = {
    ...rest,
    fields: Object.fromEntries(
      Object.entries(fields).map(([name, [value, at, number, ...more]]) => [name, [value, at, moved(number), ...more]]),
    ),
    link: link && { ...link, heard: moved(link.heard) },
    clock: clock && { ...clock, ahead: clock.ahead && { ...clock.ahead, seq: 0 } },
    timers:
      timers &&
      Object.fromEntries(
        Object.entries(timers).map(([name, timer]) => [
          name,
          seq > uncertainTo ? timer : { ...timer, acrossGap: true },
        ]),
      ),
  }
  const written = JSON.stringify(row)
  return { vin, seq: 0, seenMs, dueMs: row.due, rules: row.rules, text: () => written }
}

function orNone<T extends object>(record: T): T | undefined {
  return Object.keys(record).length === 0 ? undefined : record
}

/** Sets what a slot has. Fills the lists up to it: V8 keeps lists without holes small and fast. */
function put(
  values: (FieldValue | undefined)[],
  times: number[],
  slot: number,
  value: FieldValue,
  [at, seq, since]: readonly [at: number, seq: number, since: number],
): void {
  while (values.length <= slot) {
    values.push(undefined)
    times.push(0, 0, 0)
  }
  values[slot] = value
  times[slot * 3] = at
  times[slot * 3 + 1] = seq
  times[slot * 3 + 2] = since
}

/** Sets whether the clock was ahead in the newest report of a slot. */
function putAhead(aheads: number[], slot: number, aheadMs: number, fromMs: number): void {
  while (aheads.length <= slot * 2 + 1) aheads.push(0)
  aheads[slot * 2] = aheadMs
  aheads[slot * 2 + 1] = fromMs
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
  /** When the message was sent, as far as the vehicle's clock says it. Never later than its receipt. */
  readonly sentMs: number
  /** Computed only when read, because most handlers never read them. */
  readonly changes: readonly Change[]
  /** The slots of the fields that changed or became certain. */
  readonly touched: readonly number[]
  /** The values that the message left out: its own, or one before it that it did not confirm. */
  readonly odd: readonly Odd[]
}

/** A value that is left out. */
export interface Odd {
  readonly field: string
  readonly kind: 'number' | 'location'
  readonly reason: Exclude<DriftReason, 'undecoded'>
}

/**
 * The state after a message of this vehicle. Each field has its newest value by the vehicle's clock. When two values have the
 * same time, or times that say nothing about the order, the latest arrival wins. A message that is clearly older never replaces a
 * newer value. Pure.
 */
export function applied(before: VehicleState, arrival: Arrival): Applied {
  const { event, seq, gapTo } = arrival
  // With Postgres, a message can be committed behind a newer one. The state after it is still the newer one.
  const gaps = gapsAfter(before, event)
  const common = { seq: Math.max(before.seq + 1, seq), seenMs: event.receivedAt.getTime(), isUnheard: false, gaps }
  const own = (after: VehicleState, sentMs: number): Applied => ({
    after,
    sentMs,
    changes: nothing,
    touched: nothing,
    odd: nothing,
  })
  const bySelf = sentAt(event.at.getTime(), arrivedMs(event, seq), neverSent)
  switch (event.topic) {
    case 'data': {
      const reading = readClock(before, event, seq)
      const draft = new Draft(afterSetBack(before, reading, seq), common, reading, gapTo)
      const data: Readonly<Record<string, FieldValue | null | undefined>> = event.data
      const hasTime = event.meta.createdAtMissing !== true
      for (const name in data) {
        const value = data[name]
        if (value === undefined || (value === null && Object.hasOwn(event.undecoded, name))) continue
        draft.add(name, value, reading.sent, { hasTime })
      }
      return draft
    }
    case 'vehicle_data': {
      // A vehicle whose clock is behind would otherwise lose against its own document for good.
      const newestMs = Math.max(before.newestMs, bySelf.atMs)
      const draft = new Draft(before, common, { sent: bySelf, newestMs, memory: before.clock }, gapTo)
      const receivedMs = arrivedMs(event, seq)
      for (const { field, value, atMs, tolerance } of documentValues(event.vehicleData, bySelf.atMs)) {
        // A section can have a time of its own.
        const hasTime = event.meta.createdAtMissing !== true || atMs !== bySelf.atMs
        draft.add(field, value, sentAt(atMs, receivedMs, before.newestMs), { hasTime, isDocument: true, tolerance })
      }
      return draft
    }
    case 'state':
    case 'connectivity': {
      const link = linked(before.link, event, bySelf, common.seq)
      return own(before.with({ ...common, link }), bySelf.atMs)
    }
    case 'gap': {
      const to = Math.max(before.gaps.to, gapEnd(event, seq))
      return own(before.with({ seq: common.seq, gaps: { ...before.gaps, to } }), bySelf.atMs)
    }
    case 'facts':
      return own(told(before, event, seq, receiptMs(before, arrival)), bySelf.atMs)
    case 'timer':
      return own(before.with({ seq: common.seq }), bySelf.atMs)
    case 'unknown':
      return own(before.with(common), bySelf.atMs)
    default:
      // Alerts and errors have the vehicle's clock, too.
      return own(before.with(common), readClock(before, event, seq).sent.atMs)
  }
}

/** A vehicle that was not heard for longer was silent, whatever its pace is. */
const longestPaceMs = 120_000

/** How long nothing was received of the vehicle. */
const silentMs = ({ receivedMs }: VehicleState, { receivedAt }: FleetEvent): number => receivedAt.getTime() - receivedMs

/** The longest time between two messages, which counts for ten times its length: so what was usual before a drive is forgotten in it. */
function gapsAfter(before: VehicleState, event: FleetEvent): GapsOfVehicle {
  const { gaps } = before
  const ms = silentMs(before, event)
  const paceMs = ms > longestPaceMs ? gaps.paceMs : Math.max(0, ms, Math.round(gaps.paceMs - ms / 10))
  return paceMs === gaps.paceMs ? gaps : { ...gaps, paceMs }
}

/**
 * Whether the first message after a pause of the receiver shows that no message is missing: it came as soon as the one before it lets expect, give or take
 * half. A document was asked for, and says nothing about that.
 */
export function goesOn(before: VehicleState, event: FleetEvent): boolean {
  const ms = silentMs(before, event)
  return event.topic !== 'vehicle_data' && ms >= 0 && ms <= Math.min(longestPaceMs, before.gaps.paceMs * 1.5)
}

/** When a message was received, as far as its vehicle is concerned: the clocks of two receivers differ. */
export const receiptMs = ({ seenMs }: VehicleState, { event, seq }: Pick<Arrival, 'event' | 'seq'>): number =>
  Math.max(arrivedMs(event, seq), seenMs)

/** The state after something that the business said. It is no sign of the vehicle. */
function told(before: VehicleState, event: FactsEvent, seq: number, nowMs: number): VehicleState {
  const { facts: known, isUnheard, slots } = before
  const after = before.with({ seq: Math.max(before.seq + 1, seq), seenMs: isUnheard ? nowMs : before.seenMs })
  // Also what this process has no rule for: in a deploy, another one has, and was told that it is kept.
  const facts = Facts.told(known, event, nowMs, slots.factNames)
  if (facts === undefined) slots.leftOut('there is too much of its facts, or of what is planned')
  return facts === undefined ? after : after.with({ facts })
}

/** What was compared with a clock that turned out to be set back may have lost newer values, as in a gap. */
function afterSetBack(before: VehicleState, { isSetBack }: ClockReading, seq: number): VehicleState {
  const { gaps } = before
  return isSetBack ? before.with({ aheads: undefined, gaps: { ...gaps, to: Math.max(gaps.to, seq - 1) } }) : before
}

/** Values up to this `seq` are uncertain after the gap. Messages can follow the gap in the same millisecond. */
export function gapEnd({ to, receivedAt }: Extract<FleetEvent, { topic: 'gap' }>, seq: number): number {
  return isClockBehind(seq, receivedAt.getTime()) ? seq : Math.min(firstSeqAt(to.getTime() + 1) - 1, seq)
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

/** How a value came. */
interface HowSent {
  /** Whether the vehicle gave its time. The time of receipt says nothing about how fast a value changed. */
  readonly hasTime: boolean
  readonly isDocument?: boolean
  /** The document rounds: a smaller difference does not count. */
  readonly tolerance?: number
}

/** A value that is believed, and since when. */
interface Taken {
  readonly value: FieldValue
  readonly sent: Sent
  readonly sinceMs: number
}

/** Builds the next state. It copies a list only when it must change it, because every message makes a state. */
class Draft implements Applied {
  readonly #before: VehicleState
  readonly #after: NewState
  #isDone = false
  readonly #uncertainTo: number
  readonly sentMs: number
  #own: { readonly values: (FieldValue | undefined)[]; readonly times: number[] } | undefined
  #differences: Difference[] | undefined
  /** The slots of values that did not change and are certain again. */
  #certain: number[] | undefined
  #hasGrown = false
  #ownInvalid: Record<number, Stamp> | undefined
  #ownAheads: number[] | undefined
  #ownBases: Record<number, number> | undefined
  #ownDoubts: Record<number, Doubt> | undefined
  #odd: Odd[] | undefined
  #changes: readonly Change[] | undefined

  constructor(
    before: VehicleState,
    { seq, seenMs, isUnheard, gaps }: Pick<StateParts, 'seq' | 'seenMs' | 'isUnheard' | 'gaps'>,
    { sent, newestMs, memory }: Omit<ClockReading, 'isSetBack'>,
    gapTo: number,
  ) {
    this.#before = before
    this.sentMs = sent.atMs
    // `with` would take twice as long.
    this.#after = new VehicleState(before.vin, before.slots, before)
    this.#after.seq = seq
    this.#after.seenMs = seenMs
    this.#after.isUnheard = isUnheard
    this.#after.gaps = gaps.to === before.gaps.to ? gaps : { ...gaps, to: before.gaps.to }
    this.#after.newestMs = newestMs
    this.#after.clock = memory
    this.#uncertainTo = Math.max(gapTo, before.gaps.to)
  }

  /** Adds a value that a message reports. `null` in a document says nothing about the field, unless its `null` means none. */
  add(field: string, value: FieldValue, sent: Sent, how: HowSent): void {
    const before = this.#before
    const slot = before.slots.slotOf(field)
    if (slot === undefined) return
    const known = before.values[slot]
    if (known !== undefined && this.#isOlder(slot, sent, before.time(slot, 0))) return
    if (value === null && !nullMeansNone.has(field)) {
      const isNew = before.invalid?.[slot] === undefined
      if (known !== undefined && how.isDocument !== true && isNew) this.#addNone(slot, known, sent)
      return
    }
    const law = before.slots.laws[slot]
    const taken = law === undefined ? { value, sent, sinceMs: sent.atMs } : this.#judge(law, slot, value, sent, how)
    if (taken !== undefined) this.#take(slot, taken, how)
  }

  #addNone(slot: number, known: FieldValue, sent: Sent): void {
    const { atMs } = sent
    this.#invalid()[slot] = stampOf(sent)
    const fromMs = Math.min(this.#before.time(slot, 0), atMs)
    this.#change({ slot, from: known, to: null, fromMs, atMs, acrossGap: this.#isAcrossGap(slot), invalid: true })
  }

  /** What the state takes of a value, if it is believed. It can bring the value that was held with it. */
  #judge(law: Law, slot: number, value: FieldValue, sent: Sent, { hasTime }: HowSent): Taken | undefined {
    const known = this.#before.values[slot]
    const held = this.#before.doubts?.[slot]?.held
    const taken = { value, sent, sinceMs: sent.atMs }
    if (!canBe(law, value)) return this.#leaveOut(slot, 'impossible', held)
    // What an earlier version believed is nothing to compare with.
    if (known === undefined || !canBe(law, known) || !hasTime) {
      if (held !== undefined) this.#leaveOut(slot, 'unconfirmed', undefined)
      return taken
    }
    const next: Reading = [sent.atMs, value]
    const before: Reading = [sent.atMs - this.#msSince(slot, sent), known]
    if (held === undefined && canFollow(law, before, next)) return taken
    const belief = judged(law, before, held, next)
    if (belief.isOneOut) this.#leaveOut(slot, 'unconfirmed', belief.held)
    else if (belief.held !== held) this.#setDoubt(slot, 0, belief.held)
    const [first, last] = [belief.with, belief.believed]
    if (first === undefined) return last === next ? taken : undefined
    const sinceMs = isDeepEqual(first[1], last[1]) ? first[0] : last[0]
    return { value: last[1], sent: last === next ? sent : sentOf(last[0]), sinceMs }
  }

  /** How long after the known value of a slot a message was sent. Two times of a clock that was ahead say more than their receipts. */
  #msSince(slot: number, sent: Sent): number {
    const before = this.#before
    const ms = sent.atMs - before.time(slot, 0)
    if (before.aheads === undefined && sent.aheadMs === 0) return ms
    return Math.max(ms, Math.abs(saidMs(sent) - saidMs({ ...before.ahead(slot), atMs: before.time(slot, 0) })))
  }

  #leaveOut(slot: number, reason: Odd['reason'], held: Reading | undefined): undefined {
    const { names, laws } = this.#before.slots
    const kind = laws[slot]?.kind === 'place' ? 'location' : 'number'
    ;(this.#odd ??= []).push({ field: names[slot] ?? '', kind, reason })
    this.#setDoubt(slot, 1, held)
  }

  #setDoubt(slot: number, more: number, held: Reading | undefined): void {
    const doubts = (this.#ownDoubts ??= { ...this.#after.doubts })
    const left = (doubts[slot]?.left ?? 0) + more
    if (left === 0 && held === undefined) delete doubts[slot]
    else doubts[slot] = { left, held }
  }

  #take(slot: number, { value, sent, sinceMs }: Taken, { isDocument, tolerance = 0 }: HowSent): void {
    const before = this.#before
    const known = before.values[slot]
    const invalid = before.invalid?.[slot]
    const { atMs } = sent
    const ofValue = lengthOf(value)
    const named = before.slots.names[slot]?.length ?? 0
    const length = this.#after.length + ofValue - (known === undefined ? -named : lengthOf(known))
    if (length > Math.max(before.slots.room[slot] ?? 0, this.#after.length)) {
      before.slots.leftOut(ofValue === Infinity ? 'a value is too large or nested too deep' : 'its state is full')
      return
    }
    this.#after.length = length
    // Where two times say nothing about the order, the earlier message has the later time.
    const knownMs = Math.min(before.time(slot, 0), atMs)
    const acrossGap = known !== undefined && this.#isAcrossGap(slot)
    const isSame = known !== undefined && this.#isSame(slot, known, value, tolerance)
    const since = isSame ? Math.min(before.time(slot, 2), sinceMs) : sinceMs
    this.#set(slot, isDocument === true && isSame ? known : value, atMs, since)
    this.#setAhead(slot, sent)
    // A null that overtook this value is newer.
    const isBack = invalid !== undefined && !isOlder(sent, invalid)
    if (isBack) delete this.#invalid()[slot]
    const change = { slot, to: value, atMs: sinceMs, acrossGap, invalid: false }
    if (known === undefined) this.#change({ ...change, from: undefined, fromMs: undefined })
    else if (!isSame) this.#change({ ...change, from: this.#from(slot, known), fromMs: knownMs })
    else if (isBack)
      this.#change({ ...change, from: null, fromMs: Math.min(sentOf(invalid).atMs, atMs), invalid: true })
    else if (acrossGap) (this.#certain ??= []).push(slot)
    if (before.slots.deltas[slot] !== undefined && typeof value === 'number' && !isSame)
      (this.#ownBases ??= { ...this.#after.bases })[slot] = value
  }

  /** Whether messages may be missing since the known value of a slot was reported. */
  #isAcrossGap(slot: number): boolean {
    return this.#before.time(slot, 1) <= this.#uncertainTo
  }

  #isOlder(slot: number, sent: Sent, atMs: number): boolean {
    const before = this.#before
    const corrected = before.clock?.ahead
    if (before.aheads === undefined && corrected === undefined) return isOlder(sent, atMs)
    const known = { ...before.ahead(slot), atMs }
    // A late message of a clock that was corrected since then.
    if (corrected !== undefined && isFarAhead(sent) && sent.aheadMs < corrected.ms && !isFarAhead(known))
      return before.time(slot, 1) > corrected.seq
    return isOlder(sent, known.aheadMs > 0 ? known : atMs)
  }

  get after(): VehicleState {
    if (!this.#isDone) this.#finish()
    return this.#after
  }

  get changes(): readonly Change[] {
    return (this.#changes ??= this.#differences?.map((found) => changeOf(found, this.#before.slots)) ?? nothing)
  }

  get touched(): readonly number[] {
    return [...(this.#differences ?? nothing).map(({ slot }) => slot), ...(this.#certain ?? nothing)]
  }

  get odd(): readonly Odd[] {
    return this.#odd ?? nothing
  }

  #finish(): void {
    this.#isDone = true
    const own = this.#own
    if (own !== undefined) {
      // A list that has grown has spare room. A copy of it has none.
      this.#after.values = this.#hasGrown ? own.values.slice() : own.values
      this.#after.times = this.#hasGrown ? own.times.slice() : own.times
    }
    if (this.#ownAheads !== undefined)
      this.#after.aheads = this.#ownAheads.every((ms) => ms === 0) ? undefined : this.#ownAheads
    if (this.#ownInvalid !== undefined) this.#after.invalid = orNone(this.#ownInvalid)
    if (this.#ownBases !== undefined) this.#after.bases = this.#ownBases
    if (this.#ownDoubts !== undefined) this.#after.doubts = orNone(this.#ownDoubts)
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

  #set(slot: number, value: FieldValue, atMs: number, sinceMs: number): void {
    const { values, times } = (this.#own ??= { values: this.#after.values.slice(), times: this.#after.times.slice() })
    if (slot >= values.length) this.#hasGrown = true
    put(values, times, slot, value, [atMs, this.#after.seq, sinceMs])
  }

  #setAhead(slot: number, { aheadMs, fromMs }: Sent): void {
    if (aheadMs === 0 && this.#after.ahead(slot).aheadMs === 0) return
    this.#ownAheads ??= this.#after.aheads?.slice() ?? []
    if (aheadMs > 0) putAhead(this.#ownAheads, slot, aheadMs, fromMs)
    else putAhead(this.#ownAheads, slot, 0, 0)
  }

  #invalid(): Record<number, Stamp> {
    return (this.#ownInvalid ??= { ...this.#after.invalid })
  }

  #change(difference: Difference): void {
    ;(this.#differences ??= []).push(difference)
  }
}

function changeOf({ slot, from, to, fromMs, atMs, acrossGap, invalid }: Difference, { names }: Slots): Change {
  return {
    field: names[slot] ?? '',
    from,
    to,
    at: new Date(atMs),
    acrossGap,
    first: from === undefined,
    invalid,
    fromAt: fromMs === undefined ? undefined : new Date(fromMs),
  }
}

/** Whether two JSON values are equal. The order of keys does not count. One of them is kept, so it is not nested deeply. */
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

const unknownLink: Link = {
  online: undefined,
  state: undefined,
  stateMs: neverSent,
  heard: -1,
  connections: {},
  ended: {},
}

function linked(
  link: Link = unknownLink,
  event: Extract<FleetEvent, { topic: 'state' | 'connectivity' }>,
  sent: Sent,
  seq: number,
): Link {
  const isOlderThanState = isOlder(sent, link.stateMs)
  if (event.topic === 'state') {
    if (isOlderThanState || event.state.length > longestName) return link
    const online = isOnBy(event.state) ?? link.online
    const now: Link = { ...link, online, state: event.state, stateMs: stampOf(sent), heard: seq }
    if (online !== false) return now
    // Connections that were never reported as closed are closed now.
    const ended = Object.keys(link.connections).reduce((all, open) => withConnection(all, open, sent), link.ended)
    return { ...now, connections: {}, ended }
  }
  const key = (event.connectionId ?? event.networkInterface).slice(0, longestName)
  const opened = Object.hasOwn(link.connections, key) ? link.connections[key] : undefined
  const ended = Object.hasOwn(link.ended, key) ? link.ended[key] : undefined
  if (opened !== undefined && isOlder(sent, opened)) return link
  if (event.status === 'connected') {
    // The state is newer, and says that no connection is left.
    if (isOlderThanState && link.state !== undefined && isOnBy(link.state) === false) return link
    if (ended !== undefined && startsBefore(sent, ended, event.connectionId !== undefined)) return link
    return { ...link, online: true, heard: seq, connections: withConnection(link.connections, key, sent) }
  }
  if (event.status !== 'disconnected' || (ended !== undefined && isOlder(sent, ended))) return link
  const connections = Object.fromEntries(Object.entries(link.connections).filter(([open]) => open !== key))
  const next = { ...link, connections, ended: withConnection(link.ended, key, sent) }
  return isOlderThanState ? next : { ...next, online: Object.keys(connections).length > 0, heard: seq }
}

const isOnBy = (state: string): boolean | undefined => (Object.hasOwn(isOn, state) ? isOn[state] : undefined)

/** What the clock said. A connection with an id is opened once, so its own order is known. */
const saidMs = ({ atMs, aheadMs }: Sent): number => Math.max(atMs, aheadMs)

/** Whether the message that opened a connection comes after the message that ended it. A network without an id can be opened again at once. */
function startsBefore(start: Sent, end: Stamp, hasId: boolean): boolean {
  if (isOlder(start, end)) return true
  if (!hasId) return false
  const { atMs, aheadMs } = sentOf(end)
  // The clock was corrected between them, and only says since when the start can have been sent.
  return aheadMs === 0 && isFarAhead(start) ? start.fromMs <= atMs : saidMs(start) <= Math.max(atMs, aheadMs)
}

/** The newest ones, with one more. */
function withConnection(connections: Connections, key: string, sent: Sent): Connections {
  const all = Object.entries({ ...connections, [key]: stampOf(sent) })
  return Object.fromEntries(all.toSorted(([, a], [, b]) => sentOf(a).atMs - sentOf(b).atMs).slice(-mostConnections))
}

/** How a snapshot differs from what the state says. */
interface Lens {
  /** Only these fields have values, and each is certain. */
  readonly isKnown?: (field: string) => boolean
  /** The vehicle's time that it shows. Default: the receipt. */
  readonly momentMs?: number
  /** The time of the business at which facts are shown. Default: the receipt. */
  readonly factsMs?: number
  /** Each value counts as reported at that moment. */
  readonly isAnyAge?: boolean
}

/** A state as handlers, edges and conditions see it. */
export class Snapshot implements AnyVehicleView {
  readonly #state: VehicleState
  /** `ageMs` counts up to this time. */
  readonly #nowMs: number
  readonly #uncertainTo: number
  readonly #lens: Lens

  constructor(state: VehicleState, nowMs: number, gapTo: number, lens: Lens = {}) {
    this.#state = state
    this.#nowMs = nowMs
    this.#uncertainTo = Math.max(gapTo, state.gaps.to)
    this.#lens = lens
  }

  /** The same state through another lens. */
  through(lens: Lens): Snapshot {
    return new Snapshot(this.#state, this.#nowMs, this.#uncertainTo, { ...this.#lens, ...lens })
  }

  /** What the snapshot was made from. */
  parts(): { readonly state: VehicleState; readonly gapTo: number } {
    return { state: this.#state, gapTo: this.#uncertainTo }
  }

  get vin(): string {
    return this.#state.vin
  }

  value(field: string): FieldValue | undefined {
    return this.#lens.isKnown?.(field) === false ? undefined : this.#state.values[this.#slot(field)]
  }

  at(field: string): Date | undefined {
    const ms = this.#time(field, 0)
    if (ms === undefined) return undefined
    return this.#lens.isAnyAge === true ? this.moment : new Date(ms)
  }

  since(field: string): Date | undefined {
    const ms = this.#time(field, 2)
    return ms === undefined ? undefined : new Date(ms)
  }

  ageMs(field: string): number | undefined {
    const ms = this.#time(field, 0)
    return ms === undefined ? undefined : Math.max(0, this.#nowMs - ms)
  }

  isCertain(field: string): boolean {
    if (this.#lens.isKnown !== undefined) return this.value(field) !== undefined
    return (this.#time(field, 1) ?? -1) > this.#uncertainTo
  }

  invalidSince(field: string): Date | undefined {
    const stamp = this.#state.invalid?.[this.#slot(field)]
    return stamp === undefined ? undefined : new Date(sentOf(stamp).atMs)
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
    if (this.#lens.isKnown !== undefined) return link?.online !== undefined
    return link !== undefined && link.heard > this.#uncertainTo
  }

  get seenAt(): Date | undefined {
    const { receivedMs } = this.#state
    return Number.isFinite(receivedMs) ? new Date(receivedMs) : undefined
  }

  get moment(): Date {
    return new Date(this.#lens.momentMs ?? this.#nowMs)
  }

  /** When the vehicle sent its last message, by its own clock. To a second. */
  get heardMs(): number {
    const { lag, receivedMs } = this.#state
    return lag === undefined ? receivedMs : lag.atMs - lag.ms
  }

  /** When `online` became false, by what the messages that say so say. */
  get offlineMs(): number {
    const { stateMs = neverSent, ended = {} } = this.#state.link ?? {}
    return Math.max(...[stateMs, ...Object.values(ended)].map((stamp) => sentOf(stamp).atMs))
  }

  get clockBehindMs(): number | undefined {
    return this.#state.clock?.behindMs
  }

  get odd(): readonly OddValues[] {
    const { doubts = {}, slots } = this.#state
    return Object.entries(doubts).map(([slot, { left, held }]) => ({
      field: slots.names[Number(slot)] ?? '',
      leftOut: left,
      held: held && { value: held[1], at: new Date(held[0]) },
    }))
  }

  get timers(): readonly PendingTimer[] {
    return Object.entries(this.#state.timers ?? {})
      .flatMap(([edge, { due, since, told }]) =>
        due === null || told === true ? [] : [{ edge, since: new Date(since), dueAt: new Date(due) }],
      )
      .toSorted((a, b) => a.dueAt.getTime() - b.dueAt.getTime())
  }

  trace(name: string): EdgeMemory | undefined {
    return this.#state.memory?.[name]
  }

  fact<Value>(fact: Fact<string, Value>, at?: Date): Value | undefined {
    const { facts, slots } = this.#state
    if (slots.facts.has(fact.name)) return valueOf(fact, facts, at?.getTime() ?? this.factsMs)
    throw new FleethookError(
      'handler_invalid',
      `The fact \`${fact.name}\` is not among the \`facts\` of the part \`vehicles\`.`,
      {
        hint: 'Give it to the option: vehicles({ fields, facts: [ … ] }).',
      },
    )
  }

  get facts(): readonly KnownFact[] {
    const { facts, slots } = this.#state
    // A branch gets the facts of its receiver, and a state can have facts of another version.
    return facts?.known(this.factsMs).filter(({ name }) => slots.facts.has(name)) ?? nothing
  }

  /** The time at which it shows facts. */
  get factsMs(): number {
    return this.#lens.factsMs ?? Math.max(this.#nowMs, this.#state.facts?.atMs ?? 0)
  }

  #slot(field: string): number {
    return this.#state.slots.find(field) ?? -1
  }

  /** `undefined` for a field without a value. */
  #time(field: string, which: 0 | 1 | 2): number | undefined {
    const slot = this.#slot(field)
    return this.#state.values[slot] === undefined ? undefined : this.#state.time(slot, which)
  }
}
