import type { Alert, FleetEvent } from '../events/event.ts'
import type { BuiltInFields, FieldCatalogue, FieldName, FieldValues, OtherField } from '../events/fields.ts'
import type { FieldValue } from '../events/values.ts'
import type { OddValues } from '../observe/dead-letters.ts'
import type { Fact, KnownFact } from './fact.ts'
import type { Timing } from './timing.ts'

/**
 * The newest state of one vehicle after one message. It is a snapshot: it does not change when later messages arrive.
 *
 * @example
 * ```ts
 * import type { VehicleView } from 'fleethook/when'
 *
 * export function isLow(vehicle: VehicleView): boolean {
 *   const level = vehicle.value('BatteryLevel') // number | null | undefined
 *   return typeof level === 'number' && level < 20 && vehicle.isCertain('BatteryLevel')
 * }
 * ```
 */
export interface VehicleView<Fields extends FieldCatalogue = BuiltInFields> {
  readonly vin: string
  /**
   * The last value that the vehicle reported and that can be true: a value that physics forbids after the value before it counts when the next one
   * confirms it. The value stays while the vehicle reports none: see `invalidSince`. It is `null` only for a field whose
   * `null` means none, such as `DestinationName`. `undefined`: never reported.
   */
  value<Name extends FieldName<Fields> | OtherField>(field: Name): FieldValues<Fields>[Name]
  /** When the vehicle sent that value: its own clock, but never later than the receipt. */
  at(field: FieldName<Fields> | OtherField): Date | undefined
  /**
   * When the value became what it is: the vehicle's time of the first message that reported it. A message that repeats the value, or
   * reports none, changes nothing. For a number with a delta in the part `vehicles`, the last change that counted. After a gap the
   * value may have changed and come back in between.
   */
  since(field: FieldName<Fields> | OtherField): Date | undefined
  /** The age of the value in milliseconds: when the message was received, and in `receiver.vehicles` now. */
  ageMs(field: FieldName<Fields> | OtherField): number | undefined
  /** Whether there is a value, and no message of this vehicle may be missing since it was reported. */
  isCertain(field: FieldName<Fields> | OtherField): boolean
  /** Since when the vehicle has reported that the field has no value. `undefined`: it has one, or was never reported. */
  invalidSince(field: FieldName<Fields> | OtherField): Date | undefined
  /** The fields that have a value. */
  readonly fields: readonly string[]
  /** Whether the vehicle is online, by its last `state` and `connectivity` messages. `undefined`: there was none. */
  readonly online: boolean | undefined
  /** The last value of a `state` message, for instance `'asleep'`. */
  readonly state: string | undefined
  /** Whether `online` and `state` were reported, and no message of this vehicle may be missing since. */
  readonly isOnlineCertain: boolean
  /** When the newest message of the vehicle was received. */
  readonly seenAt: Date | undefined
  /**
   * The moment that it shows, by the vehicle's clock: when the message was sent, or a timer was due. In `receiver.vehicles`: now. A condition
   * compares it with `at` and `since`.
   */
  readonly moment: Date
  /** The vehicle's clock was set back by this much and did not come back. All times of the vehicle are corrected by it. */
  readonly clockBehindMs: number | undefined
  /** What physics forbids: by field, a value that waits to be confirmed, and how many were left out. `undefined`: a view that is not the receiver's. */
  readonly odd?: readonly OddValues[] | undefined
  /** What edges with a time wait for, such as `starts(…).after({ minutes: 30 })`. The next one first. */
  readonly timers: readonly PendingTimer[]
  /** What a condition remembers of the vehicle, by the name of its {@link Trace}. */
  trace(name: string): EdgeMemory | undefined
  /**
   * What the business said of the vehicle: as of the message, or at another time by the business's clock, such as `event.at`. `undefined`: nothing.
   * Throws `handler_invalid` for a fact that the part `vehicles` does not keep.
   */
  fact<Value>(fact: Fact<string, Value>, at?: Date): Value | undefined
  /** Every fact of the vehicle. */
  readonly facts: readonly KnownFact[]
}

/** Something that happens to a vehicle at a certain time unless a message comes in between. */
export interface PendingTimer {
  /** The name of the edge. */
  readonly edge: string
  readonly since: Date
  readonly dueAt: Date
}

/** A view whose fields are checked at registration and not by the compiler. Edges and conditions see this one. */
export type AnyVehicleView = VehicleView<FieldCatalogue>

/** Something that happened to a vehicle, as the handler of an edge gets it in `change`. */
export interface Occurrence {
  /** When it happened: the vehicle's clock, but never later than the receipt. */
  readonly at: Date
  /** Whether messages may be missing before this one. If so, it may have happened earlier, or more than once. */
  readonly acrossGap: boolean
}

/** One field's change through one message. */
export interface Change<Value = FieldValue> extends Occurrence {
  readonly field: string
  /** The value before. `undefined` when this is the first. */
  readonly from: Value | null | undefined
  /** `null`: none, or with `invalid` that the vehicle no longer reports a value. */
  readonly to: Value | null
  /** When the vehicle sent `from`. */
  readonly fromAt: Date | undefined
  /** Whether it is the first value of the field. Such a change is reported only where `first: true` asks for it. */
  readonly first: boolean
  /**
   * Whether the vehicle stopped reporting a value (`to` is `null`), or reports the same value again (`from` is `null`). Such a change
   * is reported only where `invalid: true` asks for it.
   */
  readonly invalid: boolean
}

/** Alerts started or ended. */
export interface AlertOccurrence extends Occurrence {
  /** One message can have several. */
  readonly alerts: readonly Alert[]
}

/** A trip, a charge or something else with a beginning and an end. Its measures are the members that are not here. */
export interface EpisodeOccurrence extends Occurrence {
  readonly vin: string
  /** The VIN, the name and the start that was told first: the same for each correction. */
  readonly id: string
  /** 1, 2, …: each correction has the next one. 0: it is not told yet. */
  readonly revision: number
  /** It goes on: only of `open`. */
  readonly lasts: boolean
  /** By the vehicle's clock, but never later than the receipt. */
  readonly startedAt: Date
  /** While the episode lasts: the time of the vehicle's newest message. */
  readonly endedAt: Date
  /** From the start to the end, in milliseconds. */
  readonly durationMs: number
  /** The part of it that was interrupted. */
  readonly pausedMs: number
  /** It ended by silence. */
  readonly cut: boolean
  /** A correction: there is no such episode, or it is part of another one. Its measures have no values. */
  readonly revoked: boolean
  /** Measures without a value, or with a value that may not belong to the start or the end: see "Why is this null" in docs/episodes.md. */
  readonly missing: readonly string[]
}

/** What an edge remembers per vehicle, under its name. Small: it is stored with the vehicle, as JSON. */
export type EdgeMemory = boolean | number | string | null | EdgeRecord

/** What an edge that is made of another one remembers, for instance by `where`. */
export interface EdgeRecord {
  /** What the other one remembers. A record without it is refused: an edge of your own remembers a text, a number, true, false or null. */
  readonly inner?: EdgeMemory | undefined
  readonly [name: string]: unknown
}

/** For an edge that has happened and whose conditions are about uncertain values. */
export interface WaitingMemory extends EdgeRecord {
  /** The names of the conditions. */
  readonly waits: string
  /** What has happened and is not told yet, as JSON keeps it. */
  readonly happened: readonly unknown[]
}

/** How such a memory began in an earlier version, which kept it as a text. */
const earlierMark = 'waits:'

/** Whether an edge has happened and is not told yet. */
export function isWaiting(memory: EdgeMemory | undefined): boolean {
  if (typeof memory === 'string') return memory.startsWith(earlierMark)
  return typeof memory === 'object' && memory !== null && ('waits' in memory || isWaiting(memory.inner))
}

/** What an edge with these conditions has found and not told yet. `undefined`: nothing. */
export function waitingFor(memory: EdgeMemory | undefined, names: string): WaitingMemory | undefined {
  if (typeof memory === 'string') {
    const mark = `${earlierMark}${names}:`
    if (!memory.startsWith(mark)) return undefined
    const kept: { readonly memory?: EdgeMemory; readonly happened?: unknown } = JSON.parse(memory.slice(mark.length))
    return { waits: names, inner: kept.memory, happened: [kept.happened ?? []].flat() }
  }
  if (typeof memory !== 'object' || memory === null || memory['waits'] !== names) return undefined
  const { inner, happened } = memory
  return { waits: names, inner, happened: Array.isArray(happened) ? happened : [] }
}

/** What an edge waits for. It is stored with the vehicle. Times are in milliseconds since the epoch. */
export interface EdgeTimer {
  /** When it happens, by the vehicle's clock. `null`: it waits for a message, and not for a time. */
  readonly due: number | null
  readonly since: number
  /** `due` is by the receiver's clock, and messages count when they arrive: for a silence. */
  readonly byArrival?: boolean
  /** It has happened. The edge keeps it until it is over, so that it happens once. `due`: when it may be over by itself. */
  readonly told?: boolean
  /** At `due` something may begin, and is not over: of an edge with `after` whose condition changes with time. */
  readonly begins?: boolean
  /** Messages of the vehicle may be missing since then. Only the receiver sets it after that. */
  readonly acrossGap?: boolean
}

/** One message as an edge sees it. */
export interface EdgeStep {
  readonly before: AnyVehicleView
  readonly after: AnyVehicleView
  /** The message that led from `before` to `after`. */
  readonly event: FleetEvent
  /** When it was sent: the vehicle's clock, but never later than its receipt. */
  readonly at: Date
  /** All changes, also `first` and `invalid` ones. At most one per field. */
  readonly changes: readonly Change[]
  /** What the edge remembers of this vehicle. `undefined`: nothing. */
  readonly memory: EdgeMemory | undefined
  /** When the message was received, in milliseconds since the epoch. Never earlier than an earlier message, unless the clock was ahead then. */
  readonly arrivedMs: number
  /**
   * The timer that the edge set, and that is not over. When it is due, `detect` is called with an `event` of the topic `timer`, before
   * it is called with a message that is newer.
   */
  readonly timer: EdgeTimer | undefined
}

/** What an edge finds in a message. */
export interface EdgeResult<Happened extends Occurrence = Occurrence> {
  /** Left out: nothing happened. */
  readonly happened?: Happened
  /** What happened before that and was not told then, the oldest first. */
  readonly earlier?: readonly Happened[]
  /** What the edge remembers from now on. Left out: as before. `null`: nothing. */
  readonly memory?: EdgeMemory
  /** The timer from now on. Left out: as before, and after it was due, none. `null`: none. */
  readonly timer?: EdgeTimer | null
}

/** A rectangle on the earth, in degrees. It does not cross the date line: `west` is less than `east`. */
export interface Bounds {
  readonly south: number
  readonly west: number
  readonly north: number
  readonly east: number
}

/** The topics whose messages can make an edge happen. */
export type EdgeTopic = 'data' | 'vehicle_data' | 'state' | 'alerts' | 'errors' | 'connectivity'

/**
 * Something that can happen to a vehicle. `receiver.when` takes an edge, and the functions of `fleethook/when` make edges.
 *
 * `detect` is a pure function. It is called once for a message, before its handlers, if one of `fields` changed or became certain,
 * or if the message has one of `topics`. A retry, a redelivery and a replay of a dead letter report what it found the first time.
 */
export interface Edge<Happened extends Occurrence = Occurrence> {
  /** Stable over restarts and unique in a receiver: the edge's memory and the ids of occurrences depend on it. */
  readonly name: string
  /** The fields whose changes can make it happen. */
  readonly fields: readonly string[]
  /** Every field that it or its conditions read. The part `vehicles` must keep them. */
  readonly reads: readonly string[]
  readonly topics: readonly EdgeTopic[]
  /** The facts whose changes can make it happen. Default: none. */
  readonly facts?: readonly Fact[]
  /** Every fact that it reads. Default: `facts`. The part `vehicles` must keep them. */
  readonly readsFacts?: readonly Fact[]
  /**
   * It can happen, or change its memory, only if the position before or after the message is in these bounds or unknown. Left out:
   * it can happen anywhere.
   */
  readonly bounds?: Bounds
  /** The field with the position that `bounds` limit. Default `'Location'`. */
  readonly boundsField?: string
  /** Differs for another definition: two edges of one name must have the same. Left out: their other members are compared. */
  readonly shape?: string
  /** What its conditions remember of a vehicle. */
  readonly traces?: readonly Trace[]
  /** Keeps time for edges with a `timer`. Left out: it sets none. */
  readonly timing?: Timing
  /**
   * The timer of a vehicle whose state the receiver has kept since before the edge was registered. Left out or `undefined`: the edge begins with
   * the next message.
   */
  readonly begins?: (vehicle: AnyVehicleView) => EdgeTimer | undefined
  /** A time of the day decides, too: it is also asked with the first message of a vehicle, and `begins` gets the vehicle at the time of the receiver. */
  readonly daily?: boolean
  detect(step: EdgeStep): EdgeResult<Happened> | undefined
  /**
   * Whether something newer was reported of the same thing since, so that the replay of a dead letter does not report this. `memory`: what the edge
   * remembers now. Left out: a replay reports everything.
   */
  isOutdated?(change: Occurrence, memory: EdgeMemory | undefined): boolean
  /** The same edge, but only if all of these conditions are true after the message. */
  where(...conditions: readonly Condition[]): Edge<Happened>
}

/**
 * A statement about the state of a vehicle. The functions of `fleethook/when` make conditions, and you can write one: `test` is a pure function of
 * the vehicle. It is asked when one of its `fields` changes.
 *
 * @example
 * ```ts
 * import { all, type Condition, is, starts } from 'fleethook/when'
 *
 * const isHot: Condition = {
 *   name: 'inside at least 20 degrees warmer than outside',
 *   fields: ['InsideTemp', 'OutsideTemp'],
 *   test(vehicle) {
 *     const [inside, outside] = [vehicle.value('InsideTemp'), vehicle.value('OutsideTemp')]
 *     return typeof inside === 'number' && typeof outside === 'number' ? inside - outside >= 20 : undefined
 *   },
 * }
 * export const parkedHot = starts(all(is('Gear', 'P'), isHot)).after({ minutes: 10 })
 * ```
 */
export interface Condition {
  /** Stable over restarts: the names of edges are derived from it. */
  readonly name: string
  readonly fields: readonly string[]
  /** The facts that it reads. Default: none. It is asked when one of them changes, too. */
  readonly facts?: readonly Fact[]
  /** `undefined`: a value that it needs is unknown or uncertain. Then the condition neither starts nor ends. */
  test(vehicle: AnyVehicleView): boolean | undefined
  /** Like `Edge.bounds`: the condition is false outside of these bounds. */
  readonly bounds?: Bounds
  /** A value of it counts for a time only: whatever asks it looks at each message of the vehicle, and not only at changes. */
  readonly ages?: boolean
  /** What it remembers of a vehicle, if its newest values are not enough. `test` reads it with `vehicle.trace(name)`. */
  readonly traces?: readonly Trace[]
  /** The moment from which on `test` may return something else although no message comes, in milliseconds since the epoch. `undefined`: none. */
  changesAt?(vehicle: AnyVehicleView): number | undefined
  /** It changes with the time of day, for a vehicle of which no message comes, too. */
  readonly daily?: boolean
  /** It reads whether the vehicle is online, so it is asked with each message that says so. */
  readonly online?: boolean
}

/** What is remembered of the values of a field, such as where a vehicle stood. It is stored with the vehicle. */
export interface Trace {
  /** Stable over restarts. Two traces with one name are the same. */
  readonly name: string
  readonly field: string
  /** What is remembered after a value that the vehicle reported at this time, by its own clock. Pure, and small. */
  next(remembered: EdgeMemory | undefined, value: FieldValue, atMs: number, known: KnownThen): EdgeMemory
}

/** What a {@link Trace} can ask of the vehicle when a value comes. */
export interface KnownThen {
  /** The value of the field before this one. `undefined`: there was none. */
  readonly before: FieldValue | undefined
  /** The value of a fact. `undefined`: there is none. */
  fact<Value>(fact: Fact<string, Value>): Value | undefined
}

/** Whether a value is an edge. */
export function isEdge(value: unknown): value is Edge {
  return typeof value === 'object' && value !== null && 'detect' in value && 'name' in value && 'reads' in value
}

/** Members of a change that are times, and are written as texts. */
const timesOfChange: readonly string[] = ['at', 'fromAt', 'since', 'dueAt', 'lastAt', 'startedAt', 'endedAt']

/** The members of {@link EpisodeOccurrence}. */
export const membersOfEpisode: readonly string[] = [
  ...['vin', 'id', 'revision', 'lasts', 'at', 'startedAt', 'endedAt', 'durationMs', 'pausedMs', 'cut', 'revoked'],
  ...['acrossGap', 'missing'],
]

/** Any other date is written as an object with this member: a text of the wire that looks like one stays a text. */
const dateMark = 'fleethook:date'

const isPlain = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && [Object.prototype, null].includes(Object.getPrototypeOf(value))

const each = (object: object, of: (name: string, value: unknown) => unknown): Record<string, unknown> =>
  Object.fromEntries(Object.entries(object).map(([name, value]) => [name, of(name, value)]))

/** A change as JSON can keep it: {@link dated} makes it whole again. */
export function undated<What extends Occurrence>(change: What): What {
  const write = (value: unknown): unknown => {
    if (value instanceof Date) return { [dateMark]: value.getTime() }
    if (Array.isArray(value)) return value.map(write)
    return isPlain(value) ? each(value, (_, inner) => write(inner)) : value
  }
  return Object.assign(
    {},
    change,
    each(change, (name, value) => (timesOfChange.includes(name) ? value : write(value))),
  )
}

/** JSON has no dates. */
export function dated<What extends Occurrence>(written: What): What {
  const read = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(read)
    if (!isPlain(value)) return value
    return dateMark in value ? new Date(Number(value[dateMark] ?? Number.NaN)) : each(value, (_, inner) => read(inner))
  }
  const whole = each(written, (name, value) =>
    timesOfChange.includes(name) && typeof value === 'string' ? new Date(value) : read(value),
  )
  return Object.assign({}, written, whole)
}
