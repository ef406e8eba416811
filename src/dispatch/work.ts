import type { Timer } from '../base/clock.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import { type ExecutionContext, isHeld } from '../hosting/execution-context.ts'
import type { Claim, Waiting } from '../inbox/inbox.ts'
import type { Delivery } from './handler.ts'
import type { InLane } from './lanes.ts'
import type { AnyHandler, Gatherer } from './registry.ts'

/** A message on its way through its lane. */
export interface Work extends InLane<Work> {
  readonly id: string
  readonly arrival: Arrival
  /** The message's lane: its VIN, or a lane of its own kind. */
  readonly from: string
  /** It came over the wire, so it counts; what the receiver made itself does not. */
  readonly counts: boolean
  /** It may have been handed out by an earlier process, or was in a batch that failed and was split. */
  redelivered: boolean
  /** Attempts that earlier processes made. */
  readonly attemptsBefore: number
  /** Not to be tried before this time. */
  readonly notBefore: number
  /** `gathered`: it waits for the handler of a batch. `parked`: it waits until those before it in its lane are over. */
  state: 'waiting' | 'running' | 'gathered' | 'parked' | 'over'
  /** This process has had it. */
  handedOut: boolean
  /** How often the handlers that are its turn now were run; those of batches are counted anew. */
  attempt: number
  /** The most attempts that any of its handlers had. */
  mostAttempts: number
  /** How often it was handed out to a process that ended before it noted anything. */
  ends: number
  /** The message, while it waits for more than its turn. */
  opened: OpenedMessage | undefined
  /** Those that it is gathered with. */
  batch: Batch | undefined
  /** The handlers that are still to succeed; all of them before the first attempt. */
  pending: readonly AnyHandler[] | undefined
  /** The batches that it is still to be gathered into, one after another. */
  gatherers: readonly Gatherer[]
  /** Why a handler failed for the last time: once the others are done it is a dead letter. */
  fatal: string | undefined
  /** Runs out when it may be tried again. */
  rest: Timer | undefined
  /** The way into the surroundings of the request that brought the message, where a runtime binds work to these. */
  gate: (() => void) | undefined
}

/** Works that are gathered for the handler of a batch. */
export interface Batch {
  readonly gatherer: Gatherer
  /** The request whose surroundings they are bound to, if they are. */
  readonly owner: Arrival | undefined
  readonly works: Work[]
  /** What was split off behind them and has to wait for them, for it is of the same lane. */
  readonly later: readonly (readonly Work[])[]
  /** Whether more may be gathered. */
  open: boolean
  /** It is noted when its messages may be tried again. */
  rests: boolean
  timer: Timer | undefined
  /** The way into the surroundings of `owner`. */
  readonly gate: (() => void) | undefined
}

/** A message that was handed out, and read. */
export interface OpenedMessage {
  readonly claim: Claim
  readonly event: FleetEvent | MalformedBody
}

/** The surroundings of the request that brought messages: bindings, and what holds its work. */
export interface Surroundings {
  readonly env: unknown
  readonly context: ExecutionContext | undefined
}

/** The messages of one request, and whoever waits for them. */
export interface Arrival extends Surroundings {
  /** Whether the runtime ends the request's work on its own, unless it is held. */
  readonly held: boolean
  /** Whether somebody waits, or may wait, until it is settled. */
  readonly watched: boolean
  /** Those that have not started, or are held. */
  works: readonly Work[]
  /** How many of them were acknowledged, or are about to be, and will never be handled. */
  lost: number
  /** Resolves when each of its messages is settled, dead or given up. */
  settled(): Promise<void>
  /** One message more is over. */
  finish(): void
}

/** What one request brought, each of its messages ready for a lane. */
export function createArrival(
  messages: readonly Waiting[],
  { env, context }: Surroundings,
  watched: boolean = false,
): Arrival {
  let left = messages.length
  let settled: Promise<void> | undefined
  let resolve: (() => void) | undefined
  const works: Work[] = []
  const arrival: Arrival = {
    env,
    context,
    held: isHeld(context),
    watched: watched || context?.watch !== undefined,
    works,
    lost: 0,
    settled() {
      // Made when somebody asks: most answers wait for no handler.
      settled ??= new Promise((done) => {
        resolve = done
        if (left === 0) done()
      })
      return settled
    },
    finish() {
      left -= 1
      if (left === 0) resolve?.()
    },
  }
  for (const message of messages) works.push(createWork(message, arrival))
  return arrival
}

const none: readonly Gatherer[] = []

export function createWork(
  { id, lane, kind, attempts = 0, notBefore = 0, redelivered = false }: Waiting,
  arrival: Arrival,
): Work {
  return {
    id,
    arrival,
    from: lane,
    counts: kind === 'wire',
    redelivered,
    attemptsBefore: attempts,
    notBefore,
    state: 'waiting',
    handedOut: false,
    attempt: 0,
    mostAttempts: 0,
    ends: 0,
    opened: undefined,
    batch: undefined,
    pending: undefined,
    gatherers: none,
    fatal: undefined,
    rest: undefined,
    gate: undefined,
    ready: false,
    lane: undefined,
    previous: undefined,
    next: undefined,
    behind: undefined,
  }
}

export function deliveryOf(work: Work, claim: Claim): Delivery {
  return {
    id: work.id,
    attempt: work.attempt,
    redelivered: work.attempt > 1 || claim.deliveries > 0 || work.redelivered,
    replayed: claim.replayed,
  }
}

/**
 * A way into `step` that leads through the surroundings in which `gateInto` was called.
 *
 * Where a runtime binds work to the request that started it (Workers), a step may only run in that request's
 * surroundings, although the turn may come while another request is being served. A continuation runs where it was
 * registered, so each step waits behind a promise of its own.
 */
export function gateInto(step: () => void): () => void {
  let open = (): void => {}
  void new Promise<void>((resolve) => {
    open = resolve
  }).then(step)
  return open
}
