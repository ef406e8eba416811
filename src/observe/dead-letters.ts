import type { FleetEvent, Topic, WireTopic } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { RequestScope } from '../hosting/execution-context.ts'

/** A message that was given up, and why. */
export interface DeadMessage {
  /** The delivery's id, for `receiver.deadLetters.replay(id)`. */
  readonly id: string
  readonly event: FleetEvent | MalformedBody
  /** The message, byte for byte as it came: see `HandlerContext.text`. */
  readonly text: string
  /** The size of the message, in bytes. */
  readonly bytes: number
  /** The name and message of the last error of the handler that failed last. */
  readonly error: string
  readonly attempts: number
  readonly diedAt: Date
}

/** Selects the messages that match every given member. */
export interface MessageSelection {
  readonly vin?: string | undefined
  readonly topic?: Topic | 'malformed' | undefined
  /** Received at this time or later. */
  readonly from?: Date | undefined
  /** Received before this time. */
  readonly to?: Date | undefined
}

/** Selects handled messages to replay. Both times are required. */
export interface ReplaySelection extends MessageSelection {
  readonly from: Date
  readonly to: Date
  /** Counts the messages and changes nothing. */
  readonly dryRun?: boolean | undefined
}

/** The next messages of a replay that goes on in parts. */
export interface ReplayPage extends ReplaySelection {
  /** Only messages after this id: where the part before ended. */
  readonly after?: string | undefined
  /** The most messages of this part. */
  readonly limit: number
}

export interface Replayed {
  readonly messages: number
  /** The last of them. `null`: there are no more. */
  readonly next: string | null
}

/** What was erased of a vehicle. */
export interface Forgotten {
  /** Its messages: waiting, kept for replays, and dead letters. */
  readonly messages: number
  /** How many of them waited: their handlers never run. */
  readonly waiting: number
  readonly deadLetters: number
  /**
   * Files beside the inbox which may have more of the vehicle, and which are yours to erase: damaged or replaced files that were moved aside, and
   * inboxes of other receivers. Left out: there are none.
   */
  readonly notErased?: readonly string[]
}

/** What was erased in several places. */
export function erasedIn(places: readonly Forgotten[]): Forgotten {
  const sum = (name: 'messages' | 'waiting' | 'deadLetters'): number =>
    places.reduce((count, erased) => count + erased[name], 0)
  const erased = { messages: sum('messages'), waiting: sum('waiting'), deadLetters: sum('deadLetters') }
  const notErased = [...new Set(places.flatMap((each) => each.notErased ?? []))]
  return notErased.length === 0 ? erased : { ...erased, notErased }
}

/** The messages that were given up. */
export interface DeadLetters {
  /** Oldest first. It reads them in small steps while you iterate, so end the loop when you have enough. `after`: an id to go on behind. */
  list(which?: MessageSelection & { readonly after?: string | undefined }): AsyncIterable<DeadMessage>
  get(id: string): Promise<DeadMessage | undefined>
  /**
   * Replays one by its id, or all that match, at the ends of their lanes: their handlers run again, but handlers that write
   * exactly once only if they had not succeeded. Resolves to the number of messages; with `dryRun` to the number that match. Rejects with `inbox_full` or `inbox_unavailable` when there
   * is no room; messages that are not replayed yet stay dead letters. `from` has the bindings that handlers get as
   * `context.env`, and the `waitUntil` that keeps their work alive where the runtime ends it with a request.
   */
  replay(
    which: string | (MessageSelection & { readonly dryRun?: boolean | undefined }),
    from?: Partial<RequestScope>,
  ): Promise<number>
  /** Deletes one by its id, or all that match. Resolves to the number of messages. */
  discard(which: string | (MessageSelection & { readonly dryRun?: boolean | undefined })): Promise<number>
}

/** The part of `receiver.vehicles` that operators need. */
export interface KnownVehicles {
  get(vin: string): Promise<KnownVehicle | undefined>
  /** In the order of VINs, from the first one after `after`. */
  list(which?: { readonly after?: string | undefined }): AsyncIterable<KnownVehicle>
  /** The edges that have handlers. Left out when no receiver runs. */
  edges?(): readonly { readonly name: string }[]
}

/** One vehicle, as operators see it. `VehicleView` explains the members. */
export interface KnownVehicle {
  readonly vin: string
  readonly fields: readonly string[]
  value(field: string): unknown
  at(field: string): Date | undefined
  ageMs(field: string): number | undefined
  isCertain(field: string): boolean
  since(field: string): Date | undefined
  invalidSince(field: string): Date | undefined
  readonly clockBehindMs: number | undefined
  readonly online: boolean | undefined
  readonly state: string | undefined
  readonly isOnlineCertain: boolean
  readonly seenAt: Date | undefined
  readonly timers: readonly { readonly edge: string; readonly since: Date; readonly dueAt: Date }[]
  /** What the business said of it. */
  readonly facts?: readonly {
    readonly name: string
    readonly value: unknown
    readonly since: Date | undefined
    readonly nextAt: Date | undefined
  }[]
  /** Values that physics forbids, by field. */
  readonly odd?: readonly OddValues[] | undefined
}

/** What a vehicle sent of a field, and the newest state does not believe. */
export interface OddValues {
  readonly field: string
  /** A value that could not follow the newest one, and when the vehicle sent it. It counts once the next value confirms it. */
  readonly held: { readonly value: unknown; readonly at: Date } | undefined
  /** How many values were left out. */
  readonly leftOut: number
}

/** A message that the inbox keeps. */
export interface MessageRecord {
  /** The delivery's id. */
  readonly id: string
  readonly event: FleetEvent | MalformedBody
  /** The message, byte for byte as it came: see `HandlerContext.text`. */
  readonly text: string
  /** The size of the message, in bytes. */
  readonly bytes: number
  /** `waiting`: its handlers are not done. `settled`: they are. `dead`: it was given up. */
  readonly state: 'waiting' | 'settled' | 'dead'
  /** Why it is dead. */
  readonly death?: Pick<DeadMessage, 'error' | 'attempts' | 'diedAt'> | undefined
}

/** The messages that the inbox keeps: waiting ones, and settled ones and dead letters until their retention is over. */
export interface Messages {
  /**
   * Newest first. It reads them in small steps while you iterate, so end the loop when you have enough. `after`: an id to go on behind,
   * with older ones. Fails with `inbox_unavailable` when the inbox cannot list its messages.
   *
   * With SQLite, a list of one vehicle reads the newest messages of all vehicles until it has found some: about a quarter of a
   * second for a million of them, in steps that let other work run in between.
   */
  list(which?: MessageSelection & { readonly after?: string | undefined }): AsyncIterable<MessageRecord>
  get(id: string): Promise<MessageRecord | undefined>
}

/** `receiver.messages`. */
export interface KeptMessages extends Messages {
  /**
   * The events of one vehicle that were received from one time to another, in the order of their arrival: messages of the wire, without
   * timers, gaps and bodies that could not be read. They are in memory at once: a vehicle that sends 10 messages a minute has 14,400 a day. Fails with
   * `inbox_unavailable` when the inbox cannot list its messages.
   *
   * @example
   * ```ts compile
   * import type { Receiver } from 'fleethook'
   * import { drives, episode, span } from 'fleethook/when'
   *
   * const trip = episode('trip', { during: drives(), measures: { odometer: span('Odometer') } })
   * export const tripsOf = async (receiver: Receiver, vin: string, from: Date, to: Date) =>
   *   trip.in(await receiver.messages.events({ vin, from, to }))
   * ```
   */
  events(which: {
    readonly vin: string
    readonly from: Date
    readonly to?: Date
  }): Promise<readonly Extract<FleetEvent, { readonly topic: WireTopic }>[]>
}
