import type { Timer } from '../base/clock.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import { type ExecutionContext, isBound } from '../hosting/execution-context.ts'
import type { Claim, Waiting } from '../inbox/inbox.ts'
import type { Step } from '../vehicles/vehicles.ts'
import type { Delivery } from '../inbox/observer.ts'
import type { InLane } from './lanes.ts'
import type { AnyHandler, Gatherer } from './registry.ts'

/**
 * A message on its way through its lane. Only the transitions of this module change its fields. The links of its lane belong
 * to `Lanes`.
 *
 * waiting → running → over, or back: to waiting with a `rest`, to `parked` until those before it in its lane are over, to
 * `gathered` until the handler of its batch has run, to `blocked` while the circuit breaker of a handler is open.
 */
export interface Work extends InLane<Work> {
  readonly id: string
  readonly request: RequestWork
  /** The message's lane: its VIN, or a lane of its own kind. */
  readonly laneKey: string
  /** It came over the wire, so `stats()` counts it. The receiver's own messages do not count. */
  readonly counts: boolean
  /** Attempts that earlier processes made. */
  readonly attemptsBefore: number
  /** Not to be tried before this time. */
  readonly notBefore: number
  /** An earlier process may have handed it out, or it was in a batch that failed and was split. */
  readonly redelivered: boolean
  readonly state: 'waiting' | 'running' | 'gathered' | 'parked' | 'blocked' | 'over'
  /** The number of runs of the handlers whose turn it is. The handler of a batch has attempts of its own. */
  readonly attempt: number
  /** The most attempts that any of its handlers had. */
  readonly mostAttempts: number
  /** Attempts that failed because a handler fails for every vehicle: they do not count toward the limit. */
  readonly exempt: number
  /** When the handlers whose turn it is began to fail, by the clock that is never set back. */
  readonly failingSinceMs: number | undefined
  /** The number of processes that ended while they handled it. */
  readonly crashes: number
  /** The message, while it waits for something other than its turn. */
  readonly opened: OpenedMessage | undefined
  /** What the message changed in the state of its vehicle. */
  readonly step: Step | undefined
  /** The batch that it is gathered in. */
  readonly batch: Batch | undefined
  /** The handlers that still have to succeed. `undefined` before the first attempt. */
  readonly pending: readonly AnyHandler[] | undefined
  /** The batches that it still has to be gathered into, one after another. */
  readonly gatherers: readonly Gatherer[]
  /** Why a handler failed for the last time: once the others are done, the message becomes a dead letter. */
  readonly fatal: string | undefined
  /** Fires when it may be tried again. */
  readonly rest: Timer | undefined
  /** Continues in the I/O context of the request that brought the message, where a runtime binds work to a request. */
  readonly gate: (() => void) | undefined
}

/** A message that the inbox handed out, with the event that was read from it. */
export interface OpenedMessage {
  readonly claim: Claim
  readonly event: FleetEvent | MalformedBody
}

/** Messages that are gathered for the handler of a batch. */
export interface Batch {
  readonly gatherer: Gatherer
  /** The request that the batch is bound to, where a runtime binds work to a request. */
  readonly owner: RequestWork | undefined
  readonly works: readonly Work[]
  /** Messages of the same lane that were split off and have to wait for this batch. */
  readonly later: readonly (readonly Work[])[]
  /** Whether more messages may be gathered. */
  readonly isOpen: boolean
  /** The inbox knows when its messages may be tried again. */
  readonly isResting: boolean
}

/** What work has from the request that brought it: the bindings, and the `waitUntil` that keeps the work alive. */
export interface RequestScope {
  readonly env: unknown
  readonly context: ExecutionContext | undefined
}

/** For work that no request brought. */
export const noRequest: RequestScope = { env: undefined, context: undefined }

/** The messages of one request, and the promises that wait for them. */
export class RequestWork implements RequestScope {
  readonly env: unknown
  readonly context: ExecutionContext | undefined
  /** Whether its work is bound to it: the runtime ends the work with the request, unless `waitUntil` keeps it alive. */
  readonly isBound: boolean
  /** Whether somebody waits, or may wait, until all is settled. */
  readonly isWatched: boolean
  /**
   * Its messages, until they have started. A request that the runtime may end keeps them to its end. Only the scheduler
   * changes it.
   */
  works: readonly Work[]
  /** Messages that this process will not handle. */
  unhandled = 0
  #unfinished: number
  #settled: Promise<void> | undefined
  #resolve: (() => void) | undefined

  constructor(messages: readonly Waiting[], { env, context }: RequestScope, isWatched: boolean = false) {
    this.env = env
    this.context = context
    this.isBound = context !== undefined && isBound(context)
    this.isWatched = isWatched || context?.watch !== undefined
    this.#unfinished = messages.length
    const works: Work[] = []
    for (const message of messages) works.push(createWork(message, this))
    this.works = works
  }

  /** Resolves when each of its messages is settled, dead or given up. */
  settled(): Promise<void> {
    // Made on demand: most answers wait for no handler.
    return (this.#settled ??= new Promise((resolve) => {
      this.#resolve = resolve
      if (this.#unfinished === 0) resolve()
    }))
  }

  /** One more of its messages is over. */
  oneIsOver(isUnhandled: boolean = false): void {
    if (isUnhandled) this.unhandled += 1
    this.#unfinished -= 1
    if (this.#unfinished === 0) this.#resolve?.()
  }
}

/** The empty list that many records share. */
export const none: readonly never[] = []

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] }

export function createWork(message: Waiting, request: RequestWork): Work {
  const { id, lane, kind, attempts = 0, notBefore = 0, redelivered = false } = message
  return {
    id,
    request,
    laneKey: lane,
    counts: kind === 'wire',
    attemptsBefore: attempts,
    notBefore,
    redelivered,
    state: 'waiting',
    attempt: attempts,
    mostAttempts: attempts,
    exempt: 0,
    failingSinceMs: undefined,
    crashes: 0,
    opened: undefined,
    step: undefined,
    batch: undefined,
    pending: undefined,
    gatherers: none,
    fatal: undefined,
    rest: undefined,
    gate: undefined,
    isReady: false,
    lane: undefined,
    previous: undefined,
    next: undefined,
    behind: undefined,
  }
}

/** Its turn begins. */
export function beginTurn(work: Mutable<Work>): void {
  work.state = 'running'
}

/** It was handed out for the first time in this process, and these handlers and batches are to run. */
export function assignHandlers(
  work: Mutable<Work>,
  crashes: number,
  pending: readonly AnyHandler[],
  gatherers: readonly Gatherer[],
): void {
  work.crashes = crashes
  work.pending = pending
  work.gatherers = gatherers
}

/** Its handlers, or the handler of its batch, are about to run. */
export function countAttempt(work: Mutable<Work>, counts: { retried: number }): void {
  work.attempt += 1
  if (work.attempt > 1) counts.retried += 1
  if (work.attempt > work.mostAttempts) work.mostAttempts = work.attempt
}

/** These handlers still have to succeed. */
export function leaveHandlers(work: Mutable<Work>, pending: readonly AnyHandler[]): void {
  work.pending = pending
  // The next batch counts its own attempts.
  if (pending.length === 0 && work.gatherers.length > 0) beginCount(work)
}

function beginCount(work: Mutable<Work>): void {
  work.attempt = 0
  work.exempt = 0
  work.failingSinceMs = undefined
}

/** An attempt failed at `nowMs`, by the clock that is never set back. An earlier process began to fail `earlierMs` before this one. */
export function noteFailure(work: Mutable<Work>, nowMs: number, earlierMs: number): void {
  work.failingSinceMs ??= nowMs - earlierMs
}

/** Its attempt failed because a handler fails for every vehicle. */
export function exemptAttempt(work: Mutable<Work>): void {
  work.exempt += 1
  work.failingSinceMs = undefined
}

/** It waits until a handler whose circuit breaker is open is tried again. */
export function block(work: Mutable<Work>): void {
  work.state = 'blocked'
}

/** A handler failed for the last time. No other handler of `on` is tried again; batches are, unless `andBatches`. */
export function failForGood(work: Mutable<Work>, error: string, andBatches: boolean = false): void {
  work.fatal ??= error
  leaveHandlers(work, none)
  if (andBatches) work.gatherers = none
}

/** The handler of a batch is done with it, or failed for the last time. */
export function leaveBatch(work: Mutable<Work>, error: string | undefined): void {
  work.fatal ??= error
  work.gatherers = work.gatherers.slice(1)
  beginCount(work)
}

/** Keeps the message in memory while it waits for something other than its turn. `undefined` lets go of it. */
export function keepOpened(work: Mutable<Work>, opened: OpenedMessage | undefined): void {
  work.opened = opened
}

/** Keeps what the message changed, so that every attempt shows the same changes. */
export function keepStep(work: Mutable<Work>, step: Step): void {
  work.step = step
}

export function markRedelivered(work: Mutable<Work>): void {
  work.redelivered = true
}

/** It waits for the handler of a batch. It keeps its place in the lane until the batch is settled. */
export function enterBatch(work: Mutable<Work>, batch: Batch): void {
  work.batch = batch
  work.state = 'gathered'
}

/** It stays gathered, in another batch. */
export function changeBatch(work: Mutable<Work>, batch: Batch): void {
  work.batch = batch
}

/** It waits until those before it in its lane are over. */
export function park(work: Mutable<Work>): void {
  work.batch = undefined
  work.state = 'parked'
}

/** It waits for its next turn, with a timer if it rests. */
export function waitForTurn(work: Mutable<Work>, rest?: Timer): void {
  work.batch = undefined
  work.state = 'waiting'
  work.rest = rest
}

/** It is over, whatever its state was. */
export function endWork(work: Mutable<Work>): void {
  work.rest?.cancel()
  work.state = 'over'
  work.batch = undefined
}

/** Binds its next turn to the I/O context in which this is called, if the runtime binds work to requests. */
export function bindTurn(work: Mutable<Work>, takeTurn: (work: Work) => void): void {
  if (!work.request.isBound) return
  work.gate = gateInto(() => takeTurn(work))
}

/**
 * Returns a function that calls `run` in the I/O context in which `gateInto` was called.
 *
 * Where a runtime binds work to the request that started it (Workers), the work may run only in that request's I/O context,
 * although its turn may come while another request is served. A continuation runs where it was registered, so each `run` waits
 * behind a promise of its own.
 */
export function gateInto(run: () => void): () => void {
  let open = (): void => {}
  void new Promise<void>((resolve) => {
    open = resolve
  }).then(run)
  return open
}

/** Whether it may join the batch of the messages before it in its lane, although those are not over. */
export function mayJoinPrevious(work: Work): boolean {
  const { previous, gatherers, request, attempt, pending = none } = work
  if (previous === undefined) return true
  const { batch } = previous
  // A message that failed before runs alone.
  const isAlone = attempt > 0 && pending.length === 0
  const owner = request.isBound ? request : undefined
  return batch?.isOpen === true && !isAlone && batch.gatherer === gatherers[0] && batch.owner === owner
}

export function deliveryOf(
  { id, attempt, redelivered }: Pick<Work, 'id' | 'attempt' | 'redelivered'>,
  { deliveries, replayed }: Claim,
): Delivery {
  return { id, attempt, redelivered: attempt > 1 || deliveries > 0 || redelivered, replayed }
}
