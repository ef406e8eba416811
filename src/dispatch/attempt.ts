import { type Clock, elapsedMs } from '../base/clock.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { Claim, DeadLetter, Inbox, InboxMessage } from '../inbox/inbox.ts'
import type { SyncInbox } from '../inbox/memory.ts'
import type { VehicleState } from '../vehicles/state.ts'
import type { VehicleStates } from '../vehicles/vehicles.ts'
import type { Delivery, ObservedRun, RunEnd, SettledMessage } from '../inbox/observer.ts'
import { vinOf } from '../inbox/receipts.ts'
import type { BreakerEvents, Breakers } from './breaker.ts'
import type { Lifecycle, Runner } from './running.ts'
import type { Duplicates } from './duplicates.ts'
import type { AnyHandler, Registry } from './registry.ts'
import { backoffMs, errorText, expectedMs, requestOf, type RetryOptions } from './retry.ts'
import {
  assignHandlers,
  countAttempt,
  deliveryOf,
  exemptAttempt,
  failForGood,
  keepOpened,
  keepStep,
  leaveHandlers,
  mayJoinPrevious,
  none,
  noteFailure,
  type OpenedMessage,
  type Work,
} from './work.ts'

/** What is known about a failed run beside its error. */
interface FailedRun extends NextRun {
  /** The handler, or the {@link Gatherer} of a batch. */
  readonly handler: object
  /** The number of messages of a batch. */
  readonly messages?: number
  /** More than 0 when the handler's circuit breaker is open after this failure: the number of failures in a row. */
  readonly failures: number
}

/** When a handler runs again. */
interface NextRun {
  /**
   * Milliseconds since the epoch. `undefined`: never. The run can begin later when another handler of the message fails too.
   */
  readonly nextAtMs: number | undefined
  /** The most runs, the first included. `Infinity`: no limit. */
  readonly limit: number
  /** No run begins after this time, in milliseconds since the epoch. `Infinity`: no limit. */
  readonly untilMs: number
}

/** The observers of runs and results. A field is `undefined` while there is none. */
interface Watchers {
  readonly around: (<End extends RunEnd>(run: () => Promise<End>, what: ObservedRun) => Promise<End>) | undefined
  readonly settled: ((message: SettledMessage) => void) | undefined
}

/** What dispatch reports to the receiver. */
export interface DispatchEvents extends BreakerEvents {
  readonly observers: Watchers
  /** A run of a handler failed. */
  failed(
    error: unknown,
    event: FleetEvent | MalformedBody,
    delivery: Pick<Delivery, 'id' | 'attempt'>,
    run: FailedRun,
  ): void
  /** A handler discarded messages. */
  discarded(reason: string, topic: string, messages: number): void
  /** A message was given up, and the inbox dropped this number of older dead letters for it. */
  died(letter: DeadLetter, dropped: number): void
  /** A handler ignored its signal and ended this long after its time limit, so it ran beside its retry. */
  endedLate(
    lateMs: number,
    event: FleetEvent | MalformedBody,
    delivery: Pick<Delivery, 'id' | 'attempt'>,
    run: Pick<FailedRun, 'handler' | 'messages'>,
  ): void
  /** The inbox itself failed. */
  inboxFailed(error: unknown): void
  /** Acknowledged messages were given up, because a drain reached its deadline or the runtime ended their request. */
  lost(messages: number): void
  /** A message of this lane, received at or after `sinceMs`, was given up while the receiver goes on. */
  missed(lane: string, sinceMs: number): void
  /** The inbox has room again, because a message of `request` is over. */
  onCapacity(request: Work['request']): void
}

/** Results since construction. Messages that the receiver made itself do not count. */
export interface DispatchCounts {
  handled: number
  retried: number
  deadLettered: number
  duplicates: number
  lost: number
}

interface OutcomeOptions {
  readonly inbox: Inbox
  /** The same inbox, if it can be used without a promise. */
  readonly syncInbox: SyncInbox | undefined
  readonly clock: Clock
  readonly retry: Required<RetryOptions>
  readonly events: DispatchEvents
  readonly counts: DispatchCounts
  readonly duplicates: Duplicates | undefined
  /** The newest state of each vehicle, where the receiver keeps it. */
  readonly states: VehicleStates | undefined
}

/**
 * Writes the results of attempts to the inbox and to the counts. Every method that writes to the inbox rejects when the inbox
 * fails.
 */
export class Outcome {
  readonly #options: OutcomeOptions

  constructor(options: OutcomeOptions) {
    this.#options = options
  }

  /**
   * Settles a message whose handlers are done, or gives it up when one of them failed for the last time. `undefined`: that is done
   * already, because the inbox needs no promise.
   */
  conclude(work: Work, message: InboxMessage, opened?: OpenedMessage): Promise<void> | undefined {
    const { inbox, syncInbox, states } = this.#options
    if (work.fatal !== undefined) return this.#die(work, message, work.fatal)
    const vehicle = states?.settling(work.step)
    if (syncInbox === undefined) return inbox.settle(work.id, vehicle).then(() => this.#settled(work, message, opened))
    syncInbox.settle(work.id, vehicle)
    this.#settled(work, message, opened)
    return undefined
  }

  #settled(work: Work, message: InboxMessage, opened: OpenedMessage | undefined): void {
    const { counts, duplicates, events, states } = this.#options
    states?.over(work.step)
    if (work.counts) counts.handled += 1
    if (opened !== undefined) duplicates?.handled(opened)
    if (events.observers.settled !== undefined) reportSettled(events, work, 'handled', message, opened?.event)
  }

  async #die(work: Work, message: InboxMessage, error: string): Promise<void> {
    const { inbox, clock, counts, events, states } = this.#options
    const vehicle = states?.settling(work.step)
    const reason = { error, attempts: work.mostAttempts, diedAt: clock.now() }
    const changed = work.step?.text()
    const dropped = await inbox.deadLetter(work.id, changed === undefined ? reason : { ...reason, changed }, vehicle)
    states?.over(work.step)
    if (work.counts) counts.deadLettered += 1
    events.died({ id: work.id, message, ...reason }, dropped)
  }

  /** Settles a message that was handled before. */
  async skip(work: Work, { claim, event }: OpenedMessage): Promise<void> {
    const { inbox, counts, events, states } = this.#options
    await inbox.settle(work.id, states?.settling(work.step))
    states?.over(work.step)
    if (work.counts) counts.duplicates += 1
    reportSettled(events, work, 'duplicate', claim.message, event)
  }

  /** Notes that an attempt failed. Returns whether it was the last one. */
  isLastFailure(work: Work): boolean {
    const { clock, retry } = this.#options
    const now = elapsedMs(clock)
    noteFailure(work, now, expectedMs(retry, work.attemptsBefore))
    return this.#isLast(work, now, work.failingSinceMs ?? now)
  }

  /** When the handler that failed runs again, if it does. With `isCertain` its attempt does not count. */
  nextRun(work: Work, restMs: number, isCertain: boolean = false): NextRun {
    const { clock, retry } = this.#options
    const now = elapsedMs(clock)
    const sinceMs = work.failingSinceMs ?? now - expectedMs(retry, work.attemptsBefore)
    const isLast = !isCertain && this.#isLast(work, now, sinceMs)
    return {
      nextAtMs: isLast ? undefined : clock.now() + restMs,
      limit: retry.attempts,
      untilMs: isCertain ? Infinity : clock.now() + Math.round(sinceMs + retry.maxAgeMs - now),
    }
  }

  #isLast(work: Work, nowMs: number, sinceMs: number): boolean {
    const { retry } = this.#options
    return work.attempt - work.exempt >= retry.attempts || nowMs - sinceMs >= retry.maxAgeMs
  }

  /** Notes in the inbox that it is tried again after `restMs`. */
  reschedule(work: Work, restMs: number): Promise<void> {
    const { inbox, clock } = this.#options
    const attempts = this.#attemptsOf(work, work.attempt)
    return inbox.reschedule(work.id, {
      attempts,
      notBefore: clock.now() + restMs,
      deliveries: attempts + work.crashes,
    })
  }

  /** The message was handed out, but its last turn does not count. `attemptsMade` were made before that turn. */
  breakOff(work: Work, attemptsMade: number): Promise<void> {
    // A handler that saw it once may see it again.
    const least = work.mostAttempts > work.attemptsBefore ? 1 : 0
    const attempts = this.#attemptsOf(work, attemptsMade)
    return this.#options.inbox.reschedule(work.id, {
      attempts,
      notBefore: 0,
      deliveries: Math.max(least, attempts + work.crashes),
    })
  }

  /** The number of attempts for the inbox. Attempts that do not count must not make the next process give the message up. */
  #attemptsOf({ exempt }: Work, attempts: number): number {
    return exempt === 0 ? attempts : Math.min(attempts, this.#options.retry.attempts - 1)
  }

  /** The wait before the next attempt, by what a handler threw. */
  restMs({ attempt }: Work, thrown: unknown): number {
    const request = requestOf(thrown)
    return request?.kind === 'retry' ? request.afterMs : backoffMs(this.#options.retry, attempt)
  }
}

/** Tells the observers that a message needs no more work. */
export function reportSettled(
  { observers }: Pick<DispatchEvents, 'observers'>,
  { id, laneKey, mostAttempts }: Work,
  outcome: SettledMessage['outcome'],
  message?: InboxMessage,
  event: SettledMessage['event'] = message?.event,
): void {
  observers.settled?.({
    ...{ id, vin: vinOf(laneKey), outcome, attempts: mostAttempts },
    ...(message === undefined ? {} : { bytes: message.bytes }),
    ...(event === undefined ? {} : { event }),
  })
}

/**
 * What follows an attempt: the message is `over` (settled, dead or given up); it waits in its lane for those before it
 * (`parked`); it goes into its next batch (`gather`); it rests for a number of milliseconds; or it waits for a handler whose
 * circuit breaker is open (`blockedBy`).
 */
export type Verdict = 'over' | 'parked' | 'gather' | number | { readonly blockedBy: object }

/** What attempts are made with. The other parts of dispatch take some of it. */
export interface AttemptsOptions extends OutcomeOptions {
  readonly registry: Registry
  readonly runner: Runner
  readonly outcome: Outcome
  readonly lifecycle: Lifecycle
  readonly breakers: Breakers
  /** Reads a message of which the inbox kept only the text. */
  readonly read: (message: InboxMessage) => FleetEvent | MalformedBody
}

/**
 * A process can end for another reason while it handles a message. Only with this many crashes does the message count as the
 * cause.
 */
const leastCrashes = 3

/** How long a message rests when the inbox failed during its attempt, in milliseconds. */
export const inboxRestMs = 5_000

/** What an attempt left to do. */
interface Remaining {
  /** The handlers that failed or did not run. */
  readonly handlers: AnyHandler[]
  /** The error of the handler that failed last, and the longest wait that any handler asks for. */
  failure?: { readonly error: unknown; readonly restMs: number }
  /** A handler whose circuit breaker is open: it did not run, or it failed again. */
  blockedBy?: object
}

/** What an observer learns of an attempt when it has ended. */
interface ObservedEnd extends RunEnd {
  failure: RunEnd['failure']
}

/** Attempts at messages, one at a time per lane. */
export class Attempts {
  readonly #options: AttemptsOptions

  constructor(options: AttemptsOptions) {
    this.#options = options
  }

  readonly #endedLate = (
    lateMs: number,
    event: FleetEvent | MalformedBody,
    delivery: Delivery,
    handler: object,
  ): void => this.#options.events.endedLate(lateMs, event, delivery, { handler })

  /**
   * One attempt at a message: claims it, runs the handlers that still have to succeed one after another, and writes the
   * result to the inbox. When the inbox fails, the next attempt goes on where this one stopped. Never rejects.
   *
   * An observer with `around` gets the attempt as a function. That function calls this method again, with `observed`, which the
   * observer gets at the end.
   */
  async attempt(work: Work, observed?: ObservedEnd): Promise<Verdict> {
    const { inbox, syncInbox, runner, outcome, duplicates, lifecycle, breakers, events, counts, states } = this.#options
    try {
      let { opened } = work
      if (opened === undefined) {
        const claim = syncInbox === undefined ? await inbox.claim(work.id) : syncInbox.claim(work.id)
        // The code that ended it meanwhile has accounted for it.
        if (isOver(work)) return 'over'
        // A message that was merged into another is over when the other is, which was before it in its lane.
        if (claim === undefined) return work.previous === undefined ? 'over' : 'parked'
        const found = states !== undefined && work.pending === undefined ? states.find(work.laneKey) : undefined
        const before = found instanceof Promise ? await found : found
        if (isOver(work)) return 'over'
        opened = this.#open(work, claim, before)
        if (opened === undefined) {
          await outcome.conclude(work, claim.message)
          return 'over'
        }
      } else {
        if (inbox.isStillHeld !== undefined && (!(await inbox.isStillHeld(work.id)) || isOver(work))) return 'over'
        keepOpened(work, undefined)
      }
      if (
        (work.previous !== undefined && !mayJoinPrevious(work)) ||
        (duplicates !== undefined && isBehindTheSame(work, opened, duplicates))
      ) {
        keepOpened(work, opened)
        return 'parked'
      }
      // Checked only now, when no message before it can still turn out to be the same.
      if (duplicates?.has(opened) === true && work.mostAttempts === work.attemptsBefore) {
        await outcome.skip(work, opened)
        return 'over'
      }

      const { attempt: attemptBefore, pending = none } = work
      const { around } = events.observers
      if (around !== undefined && observed === undefined && pending.length > 0 && !lifecycle.isStopped) {
        keepOpened(work, opened)
        return (await around(() => this.#observed(work), runOf(work, opened))).verdict
      }
      let delivery: Delivery | undefined
      let remaining: Remaining | undefined
      for (const handler of pending) {
        const isStopped = lifecycle.isStopped || isOver(work)
        // Not asked when it is stopped: a handler that does not rest any longer is about to be tried.
        const isResting = !isStopped && breakers.failing.size > 0 && breakers.isResting(handler, work.laneKey)
        if (isStopped || isResting) {
          remaining ??= { handlers: [] }
          remaining.handlers.push(handler)
          if (isResting) remaining.blockedBy ??= handler
          continue
        }
        if (delivery === undefined) {
          countAttempt(work, counts)
          delivery = deliveryOf(work, opened.claim)
        }
        const result = runner.run(handler, opened.event, work.request, delivery, work.step, this.#endedLate)
        const failure = result instanceof Promise ? await result : result
        if (failure !== undefined) {
          if (observed !== undefined) observed.failure = failure
          remaining = this.#failed(work, opened.event, handler, failure.error, remaining)
        } else if (breakers.failing.size > 0) breakers.succeeded(handler)
      }
      if (pending.length > 0) leaveHandlers(work, remaining?.handlers ?? none)
      if (isOver(work)) return 'over'
      if (remaining !== undefined || lifecycle.isStopped) {
        const verdict = await this.#afterFailure(work, remaining, attemptBefore)
        if (verdict !== undefined) return verdict
      }
      if (work.gatherers.length > 0) {
        keepOpened(work, opened)
        return 'gather'
      }
      const concluded = outcome.conclude(work, opened.claim.message, opened)
      if (concluded !== undefined) await concluded
      return 'over'
    } catch (error) {
      events.inboxFailed(error)
      return inboxRestMs
    }
  }

  /** Makes the attempt inside the observer's function. The message is open already, so it goes on with the handlers. */
  async #observed(work: Work): Promise<ObservedEnd & { readonly verdict: Verdict }> {
    const end: ObservedEnd = { failure: undefined }
    const verdict = await this.attempt(work, end)
    return { ...end, verdict }
  }

  /** Reads a message that was handed out. `undefined` when no handler is left to run. */
  #open(work: Work, claim: Claim, vehicle: VehicleState | undefined): OpenedMessage | undefined {
    const { registry, read, states } = this.#options
    const isFirst = work.pending === undefined
    if (isFirst) {
      const crashes = Math.max(0, claim.deliveries - work.attemptsBefore)
      const spent = claim.deliveries > 0 || work.attemptsBefore > 0 ? this.#whySpent(work, crashes) : undefined
      assignHandlers(work, crashes, none, none)
      if (spent !== undefined) failForGood(work, spent, true)
    }
    // A message changes the state of its vehicle even when it is given up.
    const isSpent = isDone(work) && (!isFirst || work.fatal !== undefined)
    if (isSpent && (!isFirst || states === undefined)) return undefined
    try {
      const event = claim.message.event ?? read(claim.message)
      const step = isFirst ? states?.step(work.id, event, vehicle, claim) : undefined
      if (step !== undefined) keepStep(work, step)
      if (isSpent) return undefined
      if (isFirst) {
        const { handlers, gatherers } = registry.handlersFor(event, step)
        assignHandlers(work, work.crashes, handlers, gatherers)
      }
      return isDone(work) ? undefined : { claim, event }
    } catch (error) {
      failForGood(work, errorText(error), true)
      return undefined
    }
  }

  /** Why a message that an earlier process left is given up before it is tried here. */
  #whySpent({ attemptsBefore }: Work, crashes: number): string | undefined {
    const { attempts } = this.#options.retry
    if (crashes >= Math.max(leastCrashes, attempts))
      return `${crashes} processes ended while they handled it, and it may be the reason.`
    return attemptsBefore >= attempts ? `Earlier processes tried it ${attemptsBefore} times.` : undefined
  }

  /** A handler threw. Returns what is left to do, with this handler unless it discarded the message. */
  #failed(
    work: Work,
    event: FleetEvent | MalformedBody,
    handler: AnyHandler,
    error: unknown,
    remaining: Remaining = { handlers: [] },
  ): Remaining {
    const { outcome, events, lifecycle, breakers } = this.#options
    const request = requestOf(error)
    if (request?.kind === 'discard') {
      if (breakers.failing.size > 0) breakers.succeeded(handler)
      events.discarded(request.reason, event.topic, 1)
      return remaining
    }
    remaining.handlers.push(handler)
    const isFailure = request === undefined && !lifecycle.isStopped
    const failures = isFailure ? breakers.failed(handler, work.laneKey) : 0
    const rests = failures > 0
    const restMs = rests
      ? breakers.restMs(handler)
      : Math.max(remaining.failure?.restMs ?? 0, outcome.restMs(work, error))
    if (isFailure) {
      const delivered = { id: work.id, attempt: work.attempt }
      events.failed(error, event, delivered, { handler, failures, ...outcome.nextRun(work, restMs, rests) })
    } else breakers.askedToWait(handler)
    if (rests) {
      exemptAttempt(work)
      remaining.blockedBy ??= handler
    } else remaining.failure = { error, restMs }
    return remaining
  }

  /** What follows when a handler failed, or when a drain has stopped the handlers. `undefined`: no handler is left to run. */
  async #afterFailure(
    work: Work,
    remaining: Remaining | undefined,
    attemptBefore: number,
  ): Promise<Verdict | undefined> {
    const { outcome, lifecycle } = this.#options
    if (lifecycle.isStopped) {
      if (isDone(work)) return undefined
      await outcome.breakOff(work, attemptBefore)
      return 0
    }
    if (remaining?.failure !== undefined) {
      if (!outcome.isLastFailure(work)) {
        await outcome.reschedule(work, remaining.failure.restMs)
        return remaining.failure.restMs
      }
      failForGood(work, errorText(remaining.failure.error))
    } else if (remaining?.blockedBy !== undefined) {
      await outcome.breakOff(work, work.attempt)
      return { blockedBy: remaining.blockedBy }
    }
    return undefined
  }
}

/** The attempt that is about to be made. */
function runOf({ id, attempt, redelivered }: Work, { claim, event }: OpenedMessage): ObservedRun {
  const delivery = deliveryOf({ id, attempt: attempt + 1, redelivered }, claim)
  return { messages: [{ event, delivery }], isBatch: false }
}

/** Whether it may turn out to be a duplicate of a message that is gathered before it in its lane. */
function isBehindTheSame({ previous }: Work, opened: OpenedMessage, duplicates: Duplicates): boolean {
  for (let before = previous; before !== undefined; before = before.previous)
    if (before.opened !== undefined && duplicates.isSame(opened, before.opened)) return true
  return false
}

const isDone = ({ pending = none, gatherers }: Work): boolean => pending.length === 0 && gatherers.length === 0

/** Called after every wait, because the work can be ended while it runs. */
function isOver({ state }: Work): boolean {
  return state === 'over'
}
