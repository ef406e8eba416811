import type { Clock } from '../clock.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { Claim, DeadLetter, Inbox, InboxMessage } from '../inbox/inbox.ts'
import type { Delivery } from './handler.ts'
import type { AnyHandler, Registry } from './registry.ts'
import { backoffMs, type Retry } from './retry.ts'
import type { Runner } from './run.ts'
import type { Work } from './work.ts'

/** What an attempt tells about. */
export interface AttemptEvents {
  /** A run of a handler failed. */
  failed(
    error: unknown,
    event: FleetEvent | MalformedBody,
    delivery: { readonly id: string; readonly attempt: number },
  ): void
  /** A message was given up, and so many dead letters had to make room for it. */
  died(letter: DeadLetter, dropped: number): void
}

/** What became of messages since construction. */
export interface AttemptCounts {
  handled: number
  retried: number
  deadLettered: number
}

export interface AttemptOptions {
  readonly inbox: Inbox
  readonly registry: Registry
  readonly runner: Runner
  readonly clock: Clock
  readonly retry: Retry
  /** Reads a message that only its text is left of. */
  readonly read: (message: InboxMessage) => FleetEvent | MalformedBody
  readonly events: AttemptEvents
  readonly counts: AttemptCounts
  /** Whether no handler may be started any more. */
  readonly stopped: () => boolean
}

/**
 * One attempt at a message: runs the handlers that are still to succeed and tells the inbox what came of it. Resolves to
 * a wait in milliseconds before the next attempt, or to nothing when the message is settled, dead or given up. Rejects when
 * the inbox fails; the next attempt then goes on where this one stopped.
 */
export type Attempt = (work: Work) => Promise<number | undefined>

export function createAttempt(options: AttemptOptions): Attempt {
  const { inbox, registry, runner, clock, retry, read, events, counts, stopped } = options

  const halted = (work: Work): boolean => stopped() || isOver(work)

  /** Runs handlers one after another. Leaves in `work.pending` those that failed or were not started. */
  async function run(work: Work, event: FleetEvent | MalformedBody, delivery: Delivery): Promise<void> {
    const handlers = work.pending ?? registry.matching(event)
    const rest: AnyHandler[] = []
    for (const handler of handlers) {
      if (halted(work)) {
        rest.push(handler)
        continue
      }
      const outcome = runner.run(handler, event, work.batch, delivery)
      const failure = outcome instanceof Promise ? await outcome : outcome
      if (failure === undefined) continue
      rest.push(handler)
      work.error = failure.error
      if (!stopped()) events.failed(failure.error, event, { id: work.id, attempt: work.attempt })
    }
    work.pending = rest
  }

  async function giveUp(work: Work, message: InboxMessage, error: string): Promise<undefined> {
    const reason = { error, attempts: work.attempt, diedAt: clock.now() }
    const dropped = await inbox.deadLetter(work.id, reason)
    if (work.counts) counts.deadLettered += 1
    events.died({ id: work.id, message, ...reason }, dropped)
    return undefined
  }

  return async (work) => {
    const claim = await inbox.claim(work.id)
    if (claim === undefined) return undefined
    const { message } = claim
    // Both are only so when an earlier attempt came this far and the inbox failed.
    const done = work.pending?.length === 0
    const exhausted = work.attempt >= retry.attempts
    if (!done && !exhausted && !halted(work)) {
      let event: FleetEvent | MalformedBody
      try {
        event = message.event ?? read(message)
      } catch (error) {
        return giveUp(work, message, describe(error))
      }
      work.attempt += 1
      if (work.attempt > 1) counts.retried += 1
      await run(work, event, deliveryOf(work, claim))
    }
    // Whoever ended it meanwhile accounts for it.
    if (isOver(work)) return undefined
    if (work.pending?.length === 0) {
      await inbox.settle(work.id)
      if (work.counts) counts.handled += 1
      return undefined
    }
    if (work.attempt >= retry.attempts && !stopped()) return giveUp(work, message, describe(work.error))
    const restMs = backoffMs(retry, work.attempt)
    await inbox.reschedule(work.id, { attempts: work.attempt, notBefore: clock.now() + restMs })
    return restMs
  }
}

/** Asked anew after every wait: the work can be ended while it runs. */
function isOver({ state }: Work): boolean {
  return state === 'over'
}

function deliveryOf(work: Work, claim: Claim): Delivery {
  return {
    id: work.id,
    attempt: work.attempt,
    redelivered: work.attempt > 1 || claim.deliveries > 0 || work.redelivered,
    replayed: claim.replayed,
  }
}

/** A handler's error as text for the dead letters, where a person reads it. */
function describe(error: unknown): string {
  try {
    const text = error instanceof Error ? `${error.name}: ${error.message}` : `a ${typeof error} was thrown`
    return text.length > 500 ? `${text.slice(0, 500)}…` : text
  } catch {
    return 'an error that cannot be read'
  }
}
