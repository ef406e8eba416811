import type { Clock } from '../base/clock.ts'
import type { Log } from '../base/log.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { DeadLetter, Inbox, ReadMessage } from '../inbox/inbox.ts'
import type { Delivery, ObservedRun, RunEnd, SettledMessage } from '../inbox/observer.ts'
import type { VehicleStates } from '../vehicles/vehicles.ts'
import type { RequestWork } from './message.ts'
import type { Part } from './part.ts'
import type { Registry } from './registry.ts'
import type { RetryOptions } from './retry.ts'

/** What is known about a failed run beside its error. */
interface FailedRun {
  /** When it runs next, in milliseconds since the epoch. `undefined`: never. It can be later when another handler of the message fails too. */
  readonly nextAtMs: number | undefined
  /** The most runs, the first included. `Infinity`: no limit. */
  readonly limit: number
  /** No run begins after this time, in milliseconds since the epoch. `Infinity`: no limit. */
  readonly untilMs: number
  readonly handler: string
  readonly messages?: number | undefined
  /** More than 0 when the handler's circuit breaker is open after this failure: the number of failures in a row. */
  readonly failures: number
}

/** The observers of runs and results. A field is `undefined` while there is none. */
export interface Watchers {
  readonly around: (<End extends RunEnd>(run: () => Promise<End>, what: ObservedRun) => Promise<End>) | undefined
  readonly ran: ((handler: string, ms: number) => void) | undefined
  readonly settled: ((message: SettledMessage) => void) | undefined
}

/** What the core reports to the receiver. */
export interface CoreEvents {
  readonly observers: Watchers
  failed(
    error: unknown,
    event: FleetEvent | MalformedBody,
    delivery: Pick<Delivery, 'id' | 'attempt'>,
    run: FailedRun,
  ): void
  discarded(reason: string, topic: string, messages: number): void
  /** A paused handler threw `Retry` when it was tried, so it stays paused until `atMs`. `failures`: the runs that failed in a row. */
  stillPaused(handler: string, atMs: number, failures: number): void
  recovered(handler: string): void
  /** A message of this request was given up. */
  died(letter: DeadLetter, request: RequestWork): void
  /** A handler ignored its signal and ended this long after its time limit, so it ran beside its retry. */
  endedLate(
    lateMs: number,
    event: FleetEvent | MalformedBody,
    delivery: Pick<Delivery, 'id' | 'attempt'>,
    run: Pick<FailedRun, 'handler' | 'messages'>,
  ): void
  inboxFailed(error: unknown): void
  /** Acknowledged messages were given up, because a drain reached its deadline or the runtime ended their request. */
  lost(messages: number): void
  /** A message of this lane, received at or after `sinceMs`, was given up while the receiver goes on. */
  missed(lane: string, sinceMs: number): void
  /** The work of a bound request has ended. Returns a promise when the request has to live on, for at most this number of milliseconds. */
  requestEnds(atMostMs: number): Promise<void> | undefined
  /** The inbox has room again, because a message of `request` is over. */
  onCapacity(request: RequestWork): void
}

/** Results since construction. Messages that the receiver made itself do not count. */
export interface CoreCounts {
  handled: number
  retried: number
  deadLettered: number
  duplicates: number
  lost: number
  handedOver: number
  forgotten: number
}

/** How long a message rests when the inbox failed during its attempt, in milliseconds. */
export const inboxRestMs = 5_000

export interface CoreOptions {
  readonly inbox: Inbox
  readonly clock: Clock
  readonly log: Log
  readonly registry: Registry
  /** The states of vehicles. `undefined`: nobody keeps them. */
  readonly vehicles: VehicleStates | undefined
  readonly parts: readonly Part[]
  readonly retry: Required<RetryOptions>
  readonly concurrency: number
  /** Handlers start more slowly while the process is busy: a backlog must not slow the answers of a receiver in front. */
  readonly givesWay: boolean
  readonly timeoutMs: number
  readonly events: CoreEvents
  readonly read: ReadMessage
}
