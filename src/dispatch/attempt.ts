import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { Claim, Inbox, InboxMessage } from '../inbox/inbox.ts'
import type { Duplicates } from './duplicates.ts'
import type { Gathering } from './gathering.ts'
import { type AttemptEvents, describe, type Outcome } from './outcome.ts'
import type { AnyHandler, Gatherer, Registry } from './registry.ts'
import type { RetryOptions } from './retry.ts'
import type { Runner } from './run.ts'
import { wishOf } from './thrown.ts'
import { deliveryOf, type OpenedMessage, type Work } from './work.ts'

export interface AttemptOptions {
  readonly inbox: Inbox
  readonly registry: Registry
  readonly runner: Runner
  readonly retry: RetryOptions
  readonly outcome: Outcome
  readonly gathering: Gathering
  readonly duplicates: Duplicates | undefined
  /** Reads a message that only its text is left of. */
  readonly read: (message: InboxMessage) => FleetEvent | MalformedBody
  readonly events: AttemptEvents
  /** Whether no handler may be started any more. */
  readonly stopped: () => boolean
}

/**
 * One attempt at a message: runs the handlers that are still to succeed, gathers it for those of batches, and tells the inbox
 * what came of it. Resolves to a wait in milliseconds before the next attempt; to nothing when the message is settled, dead or
 * given up; `parked` when those before it have to be over first. Rejects when the inbox fails; the next attempt then goes on
 * where this one stopped.
 */
export type Attempt = (work: Work) => Promise<number | 'gathered' | 'parked' | undefined>

/** A process can end by chance while it handles a message: that often is no proof against it, however few attempts there are. */
const leastEnds = 3

const nothing: readonly (AnyHandler & Gatherer)[] = []

/** What the last handler that failed threw, and the longest wait that any of them wants. */
interface Failed {
  readonly error: unknown
  readonly restMs: number
}

export function createAttempt(options: AttemptOptions): Attempt {
  const { inbox, registry, runner, retry, outcome, gathering, duplicates, read, events, stopped } = options

  const halted = (work: Work): boolean => stopped() || isOver(work)

  /** Why a message that an earlier process left is given up before it is tried here. */
  function spent({ attemptsBefore, ends }: Work): string | undefined {
    if (ends >= Math.max(leastEnds, retry.attempts))
      return `${ends} processes ended while they handled it, and it may be why they did.`
    return attemptsBefore >= retry.attempts ? `Earlier processes have tried it ${attemptsBefore} times.` : undefined
  }

  /** Reads a message that was handed out. Nothing when there is only to be noted what became of it. */
  function open(work: Work, claim: Claim): OpenedMessage | undefined {
    if (!work.handedOut) {
      work.handedOut = true
      work.attempt = work.attemptsBefore
      work.mostAttempts = work.attemptsBefore
      work.ends = Math.max(0, claim.deliveries - work.attemptsBefore)
      work.fatal = spent(work)
      if (work.fatal !== undefined) work.pending = nothing
    }
    if (isDone(work)) return undefined
    let event: FleetEvent | MalformedBody
    try {
      event = claim.message.event ?? read(claim.message)
    } catch (error) {
      work.fatal ??= describe(error)
      work.pending = nothing
      work.gatherers = nothing
      return undefined
    }
    if (work.pending === undefined) {
      work.pending = registry.matching(event)
      work.gatherers = registry.gathering(event)
    }
    return { claim, event }
  }

  /** Whether it may become a duplicate of one that is gathered before it in its lane. */
  function isBehindTheSame({ previous }: Work, opened: OpenedMessage): boolean {
    if (duplicates === undefined) return false
    for (let before = previous; before !== undefined; before = before.previous)
      if (before.opened !== undefined && duplicates.same(opened, before.opened)) return true
    return false
  }

  /** Runs handlers one after another. Leaves in `work.pending` those that failed or were not started. */
  async function run(work: Work, { claim, event }: OpenedMessage): Promise<Failed | undefined> {
    const delivery = deliveryOf(work, claim)
    let last: Failed | undefined
    const rest: AnyHandler[] = []
    for (const handler of work.pending ?? nothing) {
      if (halted(work)) {
        rest.push(handler)
        continue
      }
      const result = runner.run(handler, event, work.arrival, delivery)
      const failure = result instanceof Promise ? await result : result
      if (failure === undefined) continue
      const { error } = failure
      const wish = wishOf(error)
      if (wish?.kind === 'discard') {
        events.discarded(wish.reason, event.topic, 1)
        continue
      }
      rest.push(handler)
      last = { error, restMs: Math.max(last?.restMs ?? 0, outcome.restMs(work, error)) }
      if (!stopped() && wish === undefined) events.failed(error, event, { id: work.id, attempt: work.attempt })
    }
    work.pending = rest
    return last
  }

  return async (work) => {
    let { opened } = work
    if (opened === undefined) {
      const claim = await inbox.claim(work.id)
      // Whoever ended it meanwhile accounts for it.
      if (isOver(work)) return undefined
      // One that was merged into another is over when that is, which was before it in its lane.
      if (claim === undefined) return work.previous === undefined ? undefined : 'parked'
      opened = open(work, claim)
      if (opened === undefined) return outcome.conclude(work, claim.message)
    }
    const { claim } = opened
    const [gatherer] = work.gatherers
    work.opened = undefined
    const { attempt } = work
    if (!gathering.admits(work) || isBehindTheSame(work, opened)) {
      work.opened = opened
      return 'parked'
    }
    const isNew = work.mostAttempts === work.attemptsBefore
    // Looked at when nothing is before it any more that could be the same.
    if (isNew && duplicates?.has(opened) === true) return outcome.pass(work)
    if (hasPending(work)) {
      if (!halted(work)) {
        outcome.tried(work)
        const failed = await run(work, opened)
        if (failed !== undefined && !halted(work)) {
          if (work.attempt < retry.attempts) {
            await outcome.putBack(work, failed.restMs)
            return failed.restMs
          }
          work.fatal ??= describe(failed.error)
          work.pending = nothing
        }
      }
      // Each handler has attempts of its own, and that of a batch comes now.
      if (!hasPending(work)) work.attempt = 0
    }
    if (isOver(work)) return undefined
    if (stopped() && !isDone(work)) {
      await outcome.breakOff(work, attempt)
      return 0
    }
    if (gatherer === undefined) {
      if (work.fatal !== undefined) return outcome.conclude(work, claim.message)
      // Nearly every message comes this way: a function more to wait for would be felt.
      await inbox.settle(work.id)
      outcome.settled(work, opened)
      return undefined
    }
    work.opened = opened
    if (!gathering.admits(work)) return 'parked'
    gathering.gather(work, gatherer)
    return 'gathered'
  }
}

const hasPending = ({ pending = nothing }: Work): boolean => pending.length > 0

const isDone = (work: Work): boolean => work.pending !== undefined && !hasPending(work) && work.gatherers.length === 0

/** Asked anew after every wait: the work can be ended while it runs. */
function isOver({ state }: Work): boolean {
  return state === 'over'
}
