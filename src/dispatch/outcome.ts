import type { Clock } from '../base/clock.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { DeadLetter, Inbox, InboxMessage } from '../inbox/inbox.ts'
import type { Duplicates } from './duplicates.ts'
import { backoffMs, type RetryOptions } from './retry.ts'
import { wishOf } from './thrown.ts'
import type { OpenedMessage, Work } from './work.ts'

/** What attempts tell about. */
export interface AttemptEvents {
  /** A run of a handler failed; of the handler of a batch, with so many messages. */
  failed(
    error: unknown,
    event: FleetEvent | MalformedBody,
    delivery: { readonly id: string; readonly attempt: number },
    messages?: number,
  ): void
  /** A handler discarded so many messages. */
  discarded(reason: string, topic: string, messages: number): void
  /** A message was given up, and so many dead letters had to make room for it. */
  died(letter: DeadLetter, dropped: number): void
}

/** What became of messages since construction. */
export interface AttemptCounts {
  handled: number
  retried: number
  deadLettered: number
  duplicates: number
}

/** What comes of the runs of a message's handlers, and telling the inbox of it. Rejects when the inbox fails. */
export interface Outcome {
  /** Its handlers are done, or one of them has failed for the last time. */
  conclude(work: Work, message: InboxMessage, opened?: OpenedMessage): Promise<undefined>
  /** Its handlers are done, and the inbox has noted it. */
  settled(work: Work, opened: OpenedMessage): void
  /** The same message was handled before, so there is nothing to do. */
  pass(work: Work): Promise<undefined>
  /** Its handlers are about to be run, or a batch that it is in. */
  tried(work: Work): void
  /** It is to be tried again after so long. */
  putBack(work: Work, restMs: number): Promise<void>
  /** It was handed out, and nothing came of it that counts: so many attempts were made before. */
  breakOff(work: Work, attempts: number): Promise<void>
  /** How long to rest before the next attempt, by what a handler threw. */
  restMs(work: Work, thrown: unknown): number
}

export interface OutcomeOptions {
  readonly inbox: Inbox
  readonly clock: Clock
  readonly retry: RetryOptions
  readonly events: AttemptEvents
  readonly counts: AttemptCounts
  readonly duplicates: Duplicates | undefined
}

export function createOutcome({ inbox, clock, retry, events, counts, duplicates }: OutcomeOptions): Outcome {
  async function giveUp(work: Work, message: InboxMessage, error: string): Promise<undefined> {
    const reason = { error, attempts: work.mostAttempts, diedAt: clock.now() }
    const dropped = await inbox.deadLetter(work.id, reason)
    if (work.counts) counts.deadLettered += 1
    events.died({ id: work.id, message, ...reason }, dropped)
    return undefined
  }

  function settled(work: Work, opened: OpenedMessage | undefined): void {
    if (work.counts) counts.handled += 1
    if (opened !== undefined) duplicates?.handled(opened)
  }

  return {
    settled,

    async conclude(work, message, opened) {
      if (work.fatal !== undefined) return giveUp(work, message, work.fatal)
      await inbox.settle(work.id)
      settled(work, opened)
      return undefined
    },

    async pass(work) {
      await inbox.settle(work.id)
      if (work.counts) counts.duplicates += 1
      return undefined
    },

    tried(work) {
      work.attempt += 1
      work.mostAttempts = Math.max(work.mostAttempts, work.attempt)
      if (work.attempt > 1) counts.retried += 1
    },

    putBack(work, restMs) {
      const { attempt: attempts, ends } = work
      return inbox.reschedule(work.id, { attempts, notBefore: clock.now() + restMs, deliveries: attempts + ends })
    },

    breakOff({ id, ends, mostAttempts, attemptsBefore }, attempts) {
      // A handler that has seen it once may see it again; that it was handed out once more does not count.
      const least = mostAttempts > attemptsBefore ? 1 : 0
      return inbox.reschedule(id, { attempts, notBefore: 0, deliveries: Math.max(least, attempts + ends) })
    },

    restMs(work, thrown) {
      const wish = wishOf(thrown)
      return wish?.kind === 'retry' ? wish.afterMs : backoffMs(retry, work.attempt)
    },
  }
}

/** A handler's error as text for the dead letters, where a person reads it. */
export function describe(thrown: unknown): string {
  try {
    const wish = wishOf(thrown)
    const error = wish?.kind === 'retry' ? (wish.cause ?? thrown) : thrown
    const text = error instanceof Error ? `${error.name}: ${error.message}` : `a ${typeof error} was thrown`
    return text.length > 500 ? `${text.slice(0, 500)}…` : text
  } catch {
    return 'an error that cannot be read'
  }
}
