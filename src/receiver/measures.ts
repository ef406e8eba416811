import { runtimeRefusals } from '../hosting/drainable.ts'
import { refusalErrors } from '../http/answers.ts'
import type { Histogram, Stats } from '../inbox/stats.ts'
import { wireTopics } from '../wire/envelope.ts'

/** A metric with its OpenTelemetry name and its current values. Times are in seconds. */
export interface Measure {
  readonly name: string
  /** `s`, `By`, or what is counted, in braces. */
  readonly unit: string
  readonly type: 'counter' | 'gauge' | 'histogram'
  readonly help: string
  /** Empty when the inbox does not know the value. */
  readonly samples: readonly { readonly value: number; readonly attributes: Readonly<Record<string, string>> }[]
  /** In milliseconds, as `stats()` has it. */
  readonly histogram?: Histogram | undefined
}

/** The table of all metrics. `fleethook/metrics` writes it as text, and `fleethook/otel` makes instruments from it. */
export function measuresOf(stats: Stats): readonly Measure[] {
  const { inbox, pending } = stats
  const { handled, deadLettered: dead, duplicates: duplicate, conflated, lost } = stats
  // Every value of an attribute is there from the start: a counter that begins at 1 shows no increase.
  const received = { ...zeros([...wireTopics, 'unknown']), ...stats.topics }
  const refused = { ...zeros([...refusalErrors, ...Object.keys(runtimeRefusals)]), ...stats.refused }
  // An inbox that knows the age of its oldest message leaves it out when nothing waits.
  const age = inbox.oldestWaitingMs ?? (pending.messages === 0 ? 0 : undefined)
  return [
    counter('messages.received', 'message', 'Messages that were accepted.', by('fleethook.topic', received)),
    counter(
      ...(['messages.settled', 'message', 'Messages that need no more work.'] as const),
      by('fleethook.outcome', { handled, dead, duplicate, conflated, lost }),
    ),
    counter('messages.recovered', 'message', 'Messages that an earlier process left.', one(stats.recovered)),
    counter('messages.replayed', 'message', 'Messages that were replayed.', one(stats.replayed)),
    counter('requests.refused', 'request', 'Requests that were refused.', by('error.type', refused)),
    counter('handler.retries', 'attempt', 'Attempts after the first.', one(stats.retried)),
    counter('handler.discards', 'message', 'Messages that a handler discarded.', one(stats.discarded)),
    counter('values.drifted', 'value', 'Values of another type than in the catalogue.', one(stats.drifted)),
    gauge('pending.messages', '{message}', 'Messages that wait or are being handled.', pending.messages),
    gauge('pending.limit', '{message}', 'The most messages that can be pending.', inbox.mostMessages),
    gauge('pending.size', 'By', 'Size of the pending messages.', pending.bytes),
    gauge('pending.oldest.age', 's', 'Age of the oldest pending message.', seconds(age)),
    gauge(
      ...(['last_received.timestamp', 's', 'When the last message was received; 0 before the first.'] as const),
      seconds(stats.lastReceivedAtMs ?? 0),
    ),
    gauge('lanes', '{lane}', 'Vehicles that have work.', stats.lanes),
    gauge('running', '{message}', 'Messages whose handlers run now.', stats.running),
    {
      ...{ name: 'fleethook.lag.messages', unit: '{message}', type: 'gauge' },
      help: 'Messages of the topic that are not settled.',
      samples: by('messaging.destination.partition.id', inbox.lag ?? {}),
    },
    gauge('spooled.messages', '{message}', 'Messages that wait on the disk for the brokers.', inbox.spooled),
    gauge('dead_letters', '{message}', 'Dead letters that are kept now.', inbox.deadLetters),
    gauge('gaps.open', '{gap}', 'Gaps that no event has reported yet.', stats.openGaps),
    gauge('inbox.size', 'By', 'Size of the inbox with its journal.', inbox.bytes),
    {
      ...{ name: 'fleethook.inbox.commit.duration', unit: 's', type: 'histogram', samples: [] },
      help: 'How long commits of the inbox took.',
      histogram: inbox.commitMs,
    },
  ]
}

type Samples = Measure['samples']

const counter = (name: string, counted: string, help: string, samples: Samples): Measure => ({
  ...{ name: `fleethook.${name}`, unit: `{${counted}}`, type: 'counter', help, samples },
})

const gauge = (name: string, unit: string, help: string, value: number | undefined): Measure => ({
  ...{ name: `fleethook.${name}`, unit, type: 'gauge', help },
  samples: value === undefined ? [] : one(value),
})

const one = (value: number): Samples => [{ value, attributes: {} }]

const by = (attribute: string, values: Readonly<Record<string, number>>): Samples =>
  Object.entries(values).map(([name, value]) => ({ value, attributes: { [attribute]: name } }))

const zeros = (names: readonly string[]): Record<string, number> => Object.fromEntries(names.map((name) => [name, 0]))

const seconds = (ms: number | undefined): number | undefined => (ms === undefined ? undefined : ms / 1000)
