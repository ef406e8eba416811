import type { DeadMessage } from '../inbox/dead-letters.ts'
import { elapsedMs, pause } from '../base/clock.ts'
import { throttled } from '../base/log.ts'
import { vinOfEvent } from '../events/malformed.ts'
import { escapeControls } from '../events/summarize.ts'
import type { CoreEvents } from '../core/events.ts'
import type { Durability } from '../hosting/drainable.ts'
import { crashText } from '../inbox/crash-suspects.ts'
import type { InboxMessage } from '../inbox/inbox.ts'
import type { ReceivedMessage, TestMessage } from '../inbox/observer.ts'
import type { Settings } from './options.ts'
import { failureDetails, vehicleDetails } from './failure-details.ts'
import { createDriftReport, type DriftReport } from '../wire/data.ts'
import { createRefusals, type Refusals } from './refusals.ts'
import { Observers } from './observers.ts'

interface ReportCounts {
  received: number
  recovered: number
  replayed: number
  /** Messages that were acknowledged and then refused by the inbox. */
  unkept: number
  deadLettersDropped: number
  discarded: number
  tests: number
  /** When the last message was received, in milliseconds since the epoch. */
  lastReceivedAtMs: number | undefined
}

/** Counts what happens, logs what an operator should know, and tells the observers. */
export interface Reports {
  readonly counts: Readonly<ReportCounts>
  readonly topics: Readonly<Record<string, number>>
  /** Requests by the place of their secret in its list. */
  readonly secrets: readonly number[]
  readonly refusals: Refusals
  readonly observers: Observers
  readonly drift: DriftReport
  readonly noteSecret: (place: number) => void
  noteAccepted(messages: readonly InboxMessage[]): void
  noteTest(message: TestMessage): void
  noteRecovered(messages: readonly Pick<InboxMessage, 'kind'>[]): void
  noteReplayed(message: Pick<InboxMessage, 'kind'>): void
  /** Messages were acknowledged before the inbox had them, and it refused them. */
  noteLost(messages: readonly InboxMessage[]): void
  /** A request ends. Returns a promise when it has to live on because lines are held back: later ones have no timer. */
  readonly requestEnds: (atMostMs: number) => Promise<void> | undefined
  /** Something about the newest state of a vehicle. */
  readonly noteState: (line: string, details: Record<string, unknown>, vin?: string) => void
  /** The vehicles whose clock was set back. Only the part `vehicles` knows them. */
  readonly clocksBehind: Set<string>
  /** Of the server. Only `serve` knows it. */
  readonly certificate: { untilMs: number | undefined }
  /** The clock is behind the newest message by this much. */
  readonly noteClockBehind: (ms: number) => void
  /** A drain has ended, and no event reported this number of gaps. Logs the last lines. */
  noteUnreportedGaps(gaps: number): void
  readonly dispatch: Omit<CoreEvents, 'onCapacity' | 'died' | 'missed' | 'requestEnds'>
  /** The inbox deleted dead letters by itself. */
  noteDropped(deadLetters: number): void
  /** A message became a dead letter. Returns a promise, which never rejects, while an observer is not done with it. */
  noteDead(letter: DeadMessage, durability: Durability): Promise<void> | undefined
}

export function createReports({ secret, log, clock, observe, logErrorText, ack }: Settings): Reports {
  const say = throttled(log, clock)
  const topics: Record<string, number> = {}
  const secrets = typeof secret === 'function' || secret === false ? [] : [secret].flat().map(() => 0)
  // What to do: It threw. The message went on without it.
  const observers = new Observers((thrown) => say.error('an observer failed', where(thrown)))
  for (const observer of observe) observers.add(observer)
  const refusals = createRefusals(clock, log, observers)
  const counts: ReportCounts = {
    received: 0,
    recovered: 0,
    replayed: 0,
    unkept: 0,
    deadLettersDropped: 0,
    discarded: 0,
    tests: 0,
    lastReceivedAtMs: undefined,
  }

  let lingersUntilMs = -Infinity

  const where = (error: unknown, vin?: string): Record<string, unknown> => failureDetails(error, logErrorText, vin)

  function sayRests(handler: string, details: Record<string, unknown>): void {
    // What to do: It failed for five vehicles in a row, and is tried with one message at a time. Fix what it needs. Nothing is given up meanwhile.
    const line = 'a handler fails for every vehicle: its circuit breaker is open, and its messages wait'
    // With the key of its other failures, the line would be lost among them when an outage is short.
    say.error(line, { handler, ...details }, `resting ${handler}`)
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
    secrets,
    refusals,
    observers,
    drift: createDriftReport(),
    counts,

    noteSecret(place) {
      while (secrets.length <= place) secrets.push(0)
      secrets[place] = (secrets[place] ?? 0) + 1
    },

    noteAccepted,

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
      // What to do: Only with `ack: 'received'`. Use `'stored'`.
      say.error('acknowledged messages did not reach the inbox and are lost', {}, undefined, { messages: lost })
    },

    requestEnds(atMostMs) {
      const now = elapsedMs(clock)
      const dueAtMs = Math.min(say.dueAtMs() ?? Infinity, refusals.dueAtMs() ?? Infinity)
      // One request is enough, unless the runtime has ended it.
      if (dueAtMs === Infinity || now < lingersUntilMs) return undefined
      const waitMs = Math.min(Math.max(0, dueAtMs - now), atMostMs)
      lingersUntilMs = now + waitMs
      return pause(clock, waitMs).then(() => {
        say.flush()
        refusals.flush()
      })
    },

    noteState: (line, details, vin) =>
      say.warn(line, { ...vehicleDetails(vin), ...details }, details['reason'] ?? line),

    clocksBehind: new Set(),
    certificate: { untilMs: undefined },

    noteClockBehind(behindMs) {
      // What to do: The machine's clock was set back by `behindMs`, or was wrong before. Check its time service.
      say.warn('the clock is behind the newest message: messages count as received right after it', {
        behindMs,
      })
    },

    noteUnreportedGaps(gaps) {
      refusals.stop()
      say.stop()
      // What to do: Fetch the full state of the vehicles (`client.refill`).
      if (gaps > 0) say.error('messages were lost, and no gap event could report it before the end', { gaps })
    },

    dispatch: {
      observers,
      failed(error, event, delivery, { handler: name, messages, failures, nextAtMs, limit, untilMs }) {
        const batch = messages === undefined ? {} : { messages }
        const vin = vinOfEvent(event)
        const { id, attempt } = delivery
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
        // What to do about `a handler for … failed`: See [the line explained](handlers.md#what-the-log-says).
        if (failures > 0) sayRests(name, { topic: event.topic, failures, ...details })
        // The line of its dead letter comes next.
        else if (nextAtMs === undefined)
          say.warnOfEnd(`a handler for ${what} failed`, details, `failed ${event.topic} ${name}`)
        else say.warn(`a handler for ${what} failed`, details, `failed ${event.topic} ${name}`)
        observers.failed?.(error, {
          kind: 'handler',
          event,
          delivery,
          ...batch,
          handler: name,
          ...(nextAtMs === undefined ? {} : { nextAt: new Date(nextAtMs) }),
        })
      },
      resting(handler, atMs, failures) {
        sayRests(handler, { failures, next: iso(atMs) })
      },
      recovered(handler) {
        // What to do: Nothing to do.
        const line = 'a handler succeeds again: its circuit breaker is closed, and its messages go on'
        say.warn(line, { handler }, `recovered ${handler}`)
      },
      discarded(reason, topic, messages) {
        counts.discarded += messages
        // What to do: Nothing to do.
        say.warn(`a handler for ${topic} threw Discard`, { reason: reason.slice(0, 200) }, undefined, { messages })
      },
      endedLate(lateMs, event, { id, attempt }, { handler: name, messages }) {
        say.warn(
          // What to do: Pass `context.signal` on. Until then, write with a [fencing value](handlers.md#fencing).
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
        // What to do: Messages may be handled again. Look up the [`code`](#errors-by-code).
        say.error('the inbox failed', where(error))
        observers.failed?.(error, { kind: 'inbox' })
      },
      lost(messages) {
        // What to do about `messages were not handled in time and are lost: they were answered 503`, `acknowledged messages were not handled in time
        // and are lost`: Make handlers faster, allow fewer attempts, or give the process more time to stop (`graceMs`). Use a durable inbox.
        const line =
          ack === 'handled'
            ? 'messages were not handled in time and are lost: they were answered 503'
            : 'acknowledged messages were not handled in time and are lost'
        say.error(line, {}, undefined, { messages })
      },
    },

    noteDropped(deadLetters) {
      counts.deadLettersDropped += deadLetters
    },

    noteDead(letter, durability) {
      const { id, event, attempts, error } = letter
      const command = `fleethook dead show ${id}${durability === 'disk' ? '' : ' --url …'}`
      // Errors of handlers may quote the message, so only this one is part of the line.
      // What to do about `a message of topic … is a dead letter after …`, `a message of topic … is a dead letter: … processes ended while they
      // handled it`: Run the command in `show`, fix the handler, then [replay](operating.md#dead-letters). When processes ended, the message may be
      // [innocent](delivery.md#a-message-that-ends-its-process).
      const crashes = crashText(Number.parseInt(error, 10))
      say.error(
        error.startsWith(crashes)
          ? `a message of topic ${event.topic} is a dead letter: ${crashes}`
          : `a message of topic ${event.topic} is a dead letter after ${attempts} ${attempts === 1 ? 'attempt' : 'attempts'}`,
        {
          ...vehicleDetails(vinOfEvent(event)),
          delivery: id,
          ...(logErrorText ? { reason: escapeControls(error) } : {}),
          show: durability === 'memory' ? `receiver.deadLetters.get('${id}')` : command,
        },
        'dead letter',
      )
      return observers.dead?.(letter)
    },
  }
}

/** A message that came over the wire. It was just read, so it has its event. */
const isReceived = (message: InboxMessage): message is InboxMessage & ReceivedMessage =>
  message.kind === 'wire' && message.event !== undefined

const iso = (ms: number): string => new Date(ms).toISOString()
