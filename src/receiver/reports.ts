import type { DeadMessage } from '../inbox/dead-letters.ts'
import { guarded, throttled } from '../base/log.ts'
import { vinOfEvent } from '../events/malformed.ts'
import { escapeControls } from '../events/summarize.ts'
import type { DispatchEvents } from '../dispatch/attempt.ts'
import { labelOf } from '../dispatch/registry.ts'
import { FleethookError } from '../base/errors.ts'
import type { Durability } from '../hosting/drainable.ts'
import type { InboxMessage } from '../inbox/inbox.ts'
import type { Observer, ReceivedMessage, RefusedHandler, TestMessage } from '../inbox/observer.ts'
import type { Settings } from './options.ts'
import { failureDetails, vehicleDetails } from './failure-details.ts'
import { createDriftReport, type DriftReport } from '../wire/data.ts'
import { createRefusals, type Refusals } from './refusals.ts'
import { Observers } from './observers.ts'

type ErrorHandler = NonNullable<Observer['failed']>

interface ReportCounts {
  received: number
  recovered: number
  replayed: number
  conflated: number
  /** Messages that were acknowledged and then refused by the inbox. */
  unkept: number
  deadLettersDropped: number
  discarded: number
  /** Test messages. */
  tests: number
  /** When the last message was received, in milliseconds since the epoch. */
  lastReceivedAtMs: number | undefined
}

/** Counts what happens, logs what an operator should know, and calls the user's `onError` and `onDeadLetter`. */
export interface Reports {
  readonly counts: Readonly<ReportCounts>
  readonly topics: Readonly<Record<string, number>>
  readonly refusals: Refusals
  readonly observers: Observers
  readonly drift: DriftReport
  onError(handler: ErrorHandler): void
  onRefused(handler: RefusedHandler): void
  noteAccepted(messages: readonly InboxMessage[]): void
  readonly noteConflated: (ids: readonly string[]) => void
  noteTest(message: TestMessage): void
  noteRecovered(messages: readonly Pick<InboxMessage, 'kind'>[]): void
  noteReplayed(message: Pick<InboxMessage, 'kind'>): void
  /** Messages were acknowledged before the inbox had them, and it refused them. */
  noteLost(messages: readonly InboxMessage[]): void
  /** A drain has ended, and no event reported this number of gaps. Logs the last lines. */
  noteUnreportedGaps(gaps: number): void
  readonly dispatch: Omit<DispatchEvents, 'onCapacity' | 'died' | 'missed'>
  /** A message became a dead letter, in an inbox of this durability. */
  noteDead(letter: DeadMessage, dropped: number, durability: Durability): void
}

export function createReports({ log, clock, observe, onDeadLetter, logErrorText }: Settings): Reports {
  const say = throttled(log, clock)
  const topics: Record<string, number> = {}
  const observers = new Observers((line, thrown) => say.error(line, where(thrown)))
  for (const observer of observe) observers.add(observer)
  const refusals = createRefusals(clock, log, observers)
  const counts: ReportCounts = {
    received: 0,
    recovered: 0,
    replayed: 0,
    conflated: 0,
    unkept: 0,
    deadLettersDropped: 0,
    discarded: 0,
    tests: 0,
    lastReceivedAtMs: undefined,
  }

  const where = (error: unknown, vin?: string): Record<string, unknown> => failureDetails(error, logErrorText, vin)

  function sayRests(details: Record<string, unknown>, key: unknown): void {
    say.error('a handler fails for every vehicle: its circuit breaker is open, and its messages wait', details, key)
  }

  function noteAccepted(messages: readonly InboxMessage[]): void {
    for (const { kind, event, receivedAt } of messages) {
      if (kind !== 'wire' || event === undefined) continue
      counts.received += 1
      counts.lastReceivedAtMs = receivedAt
      topics[event.topic] = (topics[event.topic] ?? 0) + 1
    }
    observers.received?.(messages.filter(isReceived))
  }

  return {
    topics,
    refusals,
    observers,
    drift: createDriftReport(),
    counts,

    onError(handler) {
      checkHandler('onError', handler)
      observers.add({ failed: handler }, 'a handler given to onError failed')
    },

    onRefused(handler) {
      checkHandler('onRefused', handler)
      observers.add({ refused: handler }, 'a handler given to onRefused failed')
    },

    noteAccepted,

    noteConflated(ids) {
      counts.conflated += ids.length
      for (const id of ids) observers.settled?.({ id, vin: undefined, outcome: 'conflated', attempts: 0 })
    },

    noteTest(message) {
      counts.tests += 1
      observers.tested?.(message)
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
      observers,
      failed(error, event, delivery, { handler, messages, failures, nextAtMs, limit, untilMs }) {
        const batch = messages === undefined ? {} : { messages }
        const vin = vinOfEvent(event)
        const { id, attempt } = delivery
        const name = labelOf(handler)
        const details = {
          handler: name,
          ...vehicleDetails(vin),
          delivery: id,
          attempt: limit === Infinity ? attempt : `${attempt} of ${limit}`,
          next: nextAtMs === undefined ? 'none' : iso(nextAtMs),
          ...(untilMs === Infinity || nextAtMs === undefined ? {} : { until: iso(untilMs) }),
          ...batch,
          ...where(error, vin),
        }
        const what = messages === undefined ? event.topic : `a batch of ${event.topic}`
        if (failures > 0) sayRests({ topic: event.topic, failures, ...details }, `failed ${event.topic} ${name}`)
        else say.warn(`a handler for ${what} failed`, details, `failed ${event.topic} ${name}`)
        observers.failed?.(error, {
          ...{ kind: 'handler', event, delivery, ...batch, handler: name },
          ...(nextAtMs === undefined ? {} : { nextAt: new Date(nextAtMs) }),
        })
      },
      resting(handler, atMs, failures) {
        sayRests({ handler: labelOf(handler), failures, next: iso(atMs) }, handler)
      },
      recovered(handler) {
        say.warn('a handler succeeds again: its circuit breaker is closed, and its messages go on', {
          handler: labelOf(handler),
        })
      },
      discarded(reason, topic, messages) {
        counts.discarded += messages
        say.warn(`a handler for ${topic} threw Discard`, { reason: reason.slice(0, 200), messages })
      },
      endedLate(lateMs, event, { id, attempt }, { handler, messages }) {
        const name = labelOf(handler)
        say.warn(
          'a handler ignored its signal and ended after its time limit: it ran beside its retry',
          {
            handler: name,
            topic: event.topic,
            ...vehicleDetails(vinOfEvent(event)),
            delivery: id,
            attempt,
            ...(messages === undefined ? {} : { messages }),
            lateMs,
          },
          `late ${event.topic} ${name}`,
        )
      },
      inboxFailed(error) {
        say.error('the inbox failed', where(error))
        observers.failed?.(error, { kind: 'inbox' })
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
          ...vehicleDetails(vinOfEvent(event)),
          delivery: id,
          ...(logErrorText ? { reason: escapeControls(error) } : {}),
          show: durability === 'memory' ? `receiver.deadLetters.get('${id}')` : command,
        },
        'dead letter',
      )
      observers.dead?.(letter)
      if (onDeadLetter === undefined) return
      guarded(
        () => onDeadLetter(letter),
        (thrown) => {
          say.error('the function given as `onDeadLetter` failed', where(thrown))
          observers.failed?.(thrown, { kind: 'dead-letter-handler', event: letter.event })
        },
      )
    },
  }
}

/** A message that came over the wire. It was just read, so it has its event. */
const isReceived = (message: InboxMessage): message is InboxMessage & ReceivedMessage =>
  message.kind === 'wire' && message.event !== undefined

const iso = (ms: number): string => new Date(ms).toISOString()

function checkHandler(method: string, handler: unknown): void {
  if (typeof handler === 'function') return
  throw new FleethookError('handler_invalid', `${method} takes a function and was given ${typeof handler}.`)
}
