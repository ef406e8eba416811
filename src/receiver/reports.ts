import type { DeadMessage } from '../inbox/dead-letters.ts'
import { guarded, throttled } from '../base/log.ts'
import { escapeControls } from '../events/summarize.ts'
import type { DispatchEvents } from '../dispatch/attempt.ts'
import { labelOf } from '../dispatch/registry.ts'
import { FleethookError } from '../base/errors.ts'
import type { Durability } from '../hosting/drainable.ts'
import type { InboxMessage } from '../inbox/inbox.ts'
import type { Settings } from './options.ts'
import type { ErrorDetails } from './interface.ts'
import { failureDetails, vehicleDetails } from './failure-details.ts'
import { createRefusals, type RefusedHandler, type Refusals } from './refusals.ts'

type ErrorHandler = (error: unknown, details: ErrorDetails) => unknown

interface ReportCounts {
  received: number
  recovered: number
  replayed: number
  conflated: number
  /** Acknowledged, and then refused by the inbox. */
  unkept: number
  deadLettersDropped: number
  discarded: number
  /** When the last message was received, in milliseconds since the epoch. */
  lastReceivedAtMs: number | undefined
}

/** Counts what happens, logs what an operator should know, and calls the user's `onError` and `onDeadLetter`. */
export interface Reports {
  readonly counts: Readonly<ReportCounts>
  readonly topics: Readonly<Record<string, number>>
  readonly refusals: Refusals
  onError(handler: ErrorHandler): void
  onRefused(handler: RefusedHandler): void
  noteAccepted(messages: readonly InboxMessage[]): void
  readonly noteConflated: (messages: number) => void
  noteRecovered(messages: readonly Pick<InboxMessage, 'kind'>[]): void
  noteReplayed(message: Pick<InboxMessage, 'kind'>): void
  /** Messages were acknowledged before the inbox had them, and it refused them. */
  noteLost(messages: readonly InboxMessage[]): void
  /** A drain has ended, and no event reported these gaps. The last lines are logged. */
  noteUnreportedGaps(gaps: number): void
  readonly dispatch: Omit<DispatchEvents, 'onCapacity' | 'died' | 'missed'>
  /** A message is a dead letter, in an inbox of this durability. */
  noteDead(letter: DeadMessage, dropped: number, durability: Durability): void
}

export function createReports({ log, clock, onDeadLetter, logErrorText }: Settings): Reports {
  const say = throttled(log, clock)
  const handlers: ErrorHandler[] = []
  const topics: Record<string, number> = {}
  const refusals = createRefusals(clock, log, (thrown) =>
    say.error('a handler given to onRefused failed', where(thrown)),
  )
  const counts: ReportCounts = {
    received: 0,
    recovered: 0,
    replayed: 0,
    conflated: 0,
    unkept: 0,
    deadLettersDropped: 0,
    discarded: 0,
    lastReceivedAtMs: undefined,
  }

  const where = (error: unknown, vin?: string): Record<string, unknown> => failureDetails(error, logErrorText, vin)

  function tell(error: unknown, details: ErrorDetails): void {
    for (const handler of handlers) {
      guarded(
        () => handler(error, details),
        (thrown) => say.error('a handler given to onError failed', where(thrown)),
      )
    }
  }

  function noteAccepted(messages: readonly InboxMessage[]): void {
    for (const { kind, event, receivedAt } of messages) {
      if (kind !== 'wire' || event === undefined) continue
      counts.received += 1
      counts.lastReceivedAtMs = receivedAt
      topics[event.topic] = (topics[event.topic] ?? 0) + 1
    }
  }

  return {
    topics,
    refusals,
    counts,

    onError(handler) {
      checkHandler('onError', handler)
      handlers.push(handler)
    },

    onRefused(handler) {
      checkHandler('onRefused', handler)
      refusals.handlers.push(handler)
    },

    noteAccepted,

    noteConflated(messages) {
      counts.conflated += messages
    },

    noteRecovered(messages) {
      for (const { kind } of messages) if (kind === 'wire') counts.recovered += 1
    },

    noteReplayed({ kind }) {
      if (kind === 'wire') counts.replayed += 1
    },

    noteLost(messages) {
      noteAccepted(messages)
      const lost = messages.filter(({ kind }) => kind === 'wire').length
      counts.unkept += lost
      say.error('acknowledged messages did not reach the inbox and are lost', { messages: lost })
    },

    noteUnreportedGaps(gaps) {
      refusals.stop()
      if (gaps > 0) say.error('messages were lost, and no gap event could report it before the end', { gaps })
    },

    dispatch: {
      failed(error, event, delivery, { handler, messages, nextAtMs, limit, untilMs }) {
        const batch = messages === undefined ? {} : { messages }
        const vin = event.topic === 'malformed' ? undefined : event.vin
        const { id, attempt } = delivery
        const name = labelOf(handler)
        say.warn(
          `a handler for ${messages === undefined ? '' : 'a batch of '}${event.topic} failed`,
          {
            handler: name,
            ...vehicleDetails(vin),
            delivery: id,
            attempt: limit === Infinity ? attempt : `${attempt} of ${limit}`,
            next: nextAtMs === undefined ? 'none' : iso(nextAtMs),
            ...(untilMs === Infinity || nextAtMs === undefined ? {} : { until: iso(untilMs) }),
            ...batch,
            ...where(error, vin),
          },
          `failed ${event.topic} ${name}`,
        )
        tell(error, { kind: 'handler', event, delivery, ...batch })
      },
      resting(handler, atMs, failures) {
        say.error(
          'a handler fails for every vehicle and rests as a whole: its messages wait',
          { handler: labelOf(handler), failures, next: iso(atMs) },
          handler,
        )
      },
      recovered(handler) {
        say.warn('a handler that rested succeeds again: its messages go on', { handler: labelOf(handler) })
      },
      discarded(reason, topic, messages) {
        counts.discarded += messages
        say.warn(`a handler for ${topic} discarded what it was given`, { reason: reason.slice(0, 200), messages })
      },
      endedLate(lateMs) {
        say.warn('a handler ignored its signal and ended after its time limit: it ran beside its retry', { lateMs })
      },
      inboxFailed(error) {
        say.error('the inbox failed', where(error))
        tell(error, { kind: 'inbox' })
      },
      lost(messages) {
        say.error('acknowledged messages were not handled in time and are lost', { messages })
      },
    },

    noteDead(letter, dropped, durability) {
      counts.deadLettersDropped += dropped
      const { id, event, attempts, error } = letter
      const command = `fleethook dead show ${id}${durability === 'replicated' ? ' --url …' : ''}`
      say.error(
        `a message of topic ${event.topic} is a dead letter after ${attempts} ${attempts === 1 ? 'attempt' : 'attempts'}`,
        {
          ...vehicleDetails(event.topic === 'malformed' ? undefined : event.vin),
          delivery: id,
          ...(logErrorText ? { reason: escapeControls(error) } : {}),
          show: durability === 'memory' ? `receiver.deadLetters.get('${id}')` : command,
        },
        'dead letter',
      )
      if (onDeadLetter === undefined) return
      guarded(
        () => onDeadLetter(letter),
        (thrown) => {
          say.error('the function given as `onDeadLetter` failed', where(thrown))
          tell(thrown, { kind: 'dead-letter-handler', event: letter.event })
        },
      )
    },
  }
}

const iso = (ms: number): string => new Date(ms).toISOString()

function checkHandler(method: string, handler: unknown): void {
  if (typeof handler === 'function') return
  throw new FleethookError('handler_invalid', `${method} takes a function and was given ${typeof handler}.`)
}
