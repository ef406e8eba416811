import { runtimeRefusals } from '../hosting/drainable.ts'
import { refusalErrors } from '../http/answers.ts'
import { msOfSeq, seqOf } from '../inbox/delivery-id.ts'
import { type MissingReport, missingReasons } from '../observe/missing.ts'
import type { Observer } from '../observe/observer.ts'
import type { Histogram, Stats } from '../observe/stats.ts'
import { wireTopics } from '../wire/envelope.ts'

/** A metric with its OpenTelemetry name and its current values. Times are in seconds. */
export interface Measure {
  readonly name: string
  /** `s`, `By`, or what is counted, in braces. */
  readonly unit: string
  readonly type: 'counter' | 'gauge' | 'histogram'
  readonly help: string
  /** Empty when the inbox does not know the value. A histogram is in milliseconds, as `stats()` has it. */
  readonly samples: readonly { readonly value: number | Histogram; readonly attributes: Attributes }[]
}

export type Attributes = Readonly<Record<string, string>>

/** A histogram of times that are recorded when they end. */
export interface Timing {
  readonly name: string
  readonly help: string
  readonly boundsMs: readonly number[]
}

/** An attempt at a message: all of its handlers. Only OpenTelemetry has a name for it. */
export const attemptTiming: Timing = {
  name: 'messaging.process.duration',
  help: 'How long an attempt took.',
  boundsMs: [5, 10, 25, 50, 75, 100, 250, 500, 750, 1_000, 2_500, 5_000, 7_500, 10_000],
}

const handlerTiming: Timing = {
  name: 'fleethook.handler.duration',
  help: 'How long a handler ran; a batch is one run.',
  boundsMs: [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000],
}

const lagTiming: Timing = {
  name: 'fleethook.message.lag',
  help: 'From receipt until the message was settled.',
  boundsMs: [5, 25, 100, 500, 1_000, 5_000, 30_000, 60_000, 300_000, 1_800_000, 3_600_000],
}

/** Each name is a time series. Handlers beyond this number, which only a program that makes handlers has, are `other`. */
const mostHandlers = 100

/** Reports times as they end, with one object of attributes for each series. Nobody times: nothing is measured. */
export function timed(record: (timing: Timing, ms: number, attributes: Attributes) => void): Observer {
  const handlers = new Map<string, Attributes>()
  const topics = new Map<string | undefined, Attributes>([[undefined, {}]])
  const others: Attributes = { 'fleethook.handler': 'other' }
  return {
    ran(handler, ms) {
      let attributes = handlers.get(handler)
      if (attributes === undefined) {
        attributes = handlers.size < mostHandlers ? { 'fleethook.handler': handler } : others
        if (attributes !== others) handlers.set(handler, attributes)
      }
      record(handlerTiming, ms, attributes)
    },
    settled({ id, event }) {
      const topic = event?.topic
      const attributes = topics.get(topic) ?? { 'fleethook.topic': topic ?? '' }
      topics.set(topic, attributes)
      record(lagTiming, Math.max(0, Date.now() - msOfSeq(seqOf(id))), attributes)
    },
  }
}

/** The table of all metrics that are read. `fleethook/metrics` writes it as text, and `fleethook/otel` makes instruments from it. */
export function measuresOf(stats: Stats): readonly Measure[] {
  const behind = Object.entries(stats.branches ?? {}).map(([name, of]) => ofBranch(name, ownMeasuresOf(of)))
  return ownMeasuresOf(stats).map((measure, at) =>
    together(
      measure,
      behind.flatMap((measures) => measures[at] ?? []),
    ),
  )
}

/** Shared vehicles that are not heard. Empty before the first look, and after a look that could not ask. */
export function missingMeasure(last: MissingReport | undefined): Measure {
  const counts = zeros(missingReasons)
  for (const { reason } of last?.vehicles ?? []) counts[reason] = (counts[reason] ?? 0) + 1
  return {
    name: 'fleethook.vehicles.missing',
    unit: '{vehicle}',
    type: 'gauge',
    help: 'Shared vehicles that are not heard, as of the last hour; with the option `missing`.',
    samples: last === undefined || last.error !== undefined ? [] : by('fleethook.reason', counts),
  }
}

/** The measures of a branch have its name. */
export const ofBranch = (name: string, measures: readonly Measure[]): readonly Measure[] =>
  measures.map((measure) => {
    const samples = measure.samples.map(({ value, attributes }) => {
      return { value, attributes: { ...attributes, 'fleethook.branch': name } }
    })
    return { ...measure, samples }
  })

/** The same metric of a receiver and of its branches. */
export function together(measure: Measure, behind: readonly Measure[]): Measure {
  return behind.length === 0 ? measure : { ...measure, samples: [measure, ...behind].flatMap(({ samples }) => samples) }
}

function ownMeasuresOf(stats: Stats): readonly Measure[] {
  return [...messageMeasures(stats), ...workMeasures(stats), ...serverMeasures(stats), ...inboxMeasures(stats)]
}

/** What has come, and what became of it. */
function messageMeasures(stats: Stats): readonly Measure[] {
  const { handled, deadLettered: dead, duplicates: duplicate, lost } = stats
  // Every value of an attribute is there from the start: a counter that begins at 1 shows no increase.
  const received = { ...zeros([...wireTopics, 'unknown']), ...stats.topics }
  const refused = { ...zeros([...refusalErrors, ...Object.keys(runtimeRefusals), 'test']), ...stats.refused }
  return [
    counter('messages.received', 'message', 'Messages that were accepted.', by('fleethook.topic', received)),
    counter(
      'messages.settled',
      'message',
      'Messages that need no more work.',
      by('fleethook.outcome', { handled, dead, duplicate, lost }),
    ),
    counter(
      'messages.recovered',
      'message',
      'Messages that an earlier process left, or that came from Postgres or Kafka.',
      one(stats.recovered),
    ),
    counter('messages.replayed', 'message', 'Messages that were replayed.', one(stats.replayed)),
    counter(
      'requests.authorized',
      'request',
      'Requests with a right secret, by its place in the list.',
      by('fleethook.secret_index', Object.fromEntries(stats.secrets.entries())),
    ),
    counter('requests.refused', 'request', 'Requests that were refused.', by('error.type', refused)),
    counter('handler.retries', 'attempt', 'Attempts after the first.', one(stats.retried)),
    counter('handler.discards', 'message', 'Messages that a handler discarded.', one(stats.discarded)),
    counter('values.drifted', 'value', 'Values that are not what the catalogue says.', one(stats.drifted)),
    counter('values.unbelieved', 'value', 'Drifted values that cannot be true.', one(stats.unbelieved)),
  ]
}

/** What waits and runs now. */
function workMeasures(stats: Stats): readonly Measure[] {
  const { inbox, pending } = stats
  // An inbox that knows the age of its oldest message leaves it out when nothing waits.
  const age = inbox.oldestWaitingMs ?? (pending.messages === 0 ? 0 : undefined)
  return [
    gauge('pending.messages', '{message}', 'Messages that wait or are being handled.', pending.messages),
    gauge('pending.size', 'By', 'Size of the pending messages.', pending.bytes),
    gauge('pending.oldest.age', 's', 'Age of the oldest pending message.', seconds(age)),
    gauge(
      'last_received.timestamp',
      's',
      'When the last message was received; 0 before the first.',
      seconds(stats.lastReceivedAtMs ?? 0),
    ),
    gauge(
      'backlog.messages',
      '{message}',
      'Messages that wait, of all processes; an estimate above 100,000.',
      stats.backlog?.messages,
    ),
    gauge(
      'backlog.oldest.age',
      's',
      'Age of the oldest message that waits, of all processes; not with Kafka.',
      stats.backlog && seconds(stats.backlog.oldestMs ?? 0),
    ),
    gauge('handling.processes', '{process}', 'Processes that run handlers now.', stats.backlog?.processes),
    {
      name: 'fleethook.failing.messages',
      unit: '{message}',
      type: 'gauge',
      help: 'Messages that wait because this handler failed; 0 when none does.',
      samples: failingSamples(stats.failing),
    },
    gauge('vehicles.clocks_behind', '{vehicle}', 'Vehicles whose clock was set back.', stats.clocksBehind),
    gauge(
      'certificate.end.timestamp',
      's',
      'When the certificate of the server ends.',
      stats.certificateUntilMs === undefined ? undefined : seconds(stats.certificateUntilMs),
    ),
    gauge('lanes', '{lane}', 'Vehicles that have work.', stats.lanes),
    gauge('running', '{message}', 'Messages whose handlers run now.', stats.running),
    gauge('handlers.paused', '{handler}', 'Handlers whose circuit breaker is open.', stats.paused.length),
  ]
}

/** What an inbox on a server knows, and what it deleted. */
function serverMeasures({ inbox, deadLettersDropped }: Stats): readonly Measure[] {
  return [
    {
      name: 'fleethook.lag.messages',
      unit: '{message}',
      type: 'gauge',
      help: 'Messages of the partitions of this process that are not settled, with Kafka.',
      samples: by('messaging.destination.partition.id', inbox.lag ?? {}),
    },
    gauge(
      'meanwhile.messages',
      '{message}',
      'Messages that wait on the disk for Postgres or Kafka.',
      inbox.meanwhile?.messages,
    ),
    gauge(
      'server.away',
      's',
      'For how long new messages have gone to the disk first, with the option `meanwhile`; 0: they do not.',
      inbox.meanwhile && seconds(inbox.meanwhile.awayMs ?? 0),
    ),
    gauge('inbox.dead_rows', '{row}', 'Deleted rows in Postgres that still take space.', inbox.deadRows),
    gauge(
      'inbox.snapshot.age',
      's',
      'How long a snapshot has kept Postgres from removing dead rows.',
      inbox.oldestSnapshotMs === undefined ? undefined : inbox.oldestSnapshotMs / 1000,
    ),
    gauge(
      'dead_letters',
      '{message}',
      'Dead letters that are kept now; not with Postgres and Kafka.',
      inbox.deadLetters,
    ),
    counter(
      'dead_letters.deleted',
      'message',
      'Dead letters that the inbox deleted by itself.',
      one(deadLettersDropped),
    ),
    counter(
      'messages.purged',
      'message',
      'Handled messages that this process deleted after their retention.',
      one(inbox.purged ?? 0),
    ),
  ]
}

/** The space that an inbox takes, and its gaps. */
function inboxMeasures({ inbox, openGaps }: Stats): readonly Measure[] {
  return [
    gauge('gaps.open', '{gap}', 'Gaps that no event has reported yet.', openGaps),
    gauge('inbox.size', 'By', 'Size of the inbox with its journal.', inbox.bytes),
    gauge(
      'inbox.used',
      '1',
      'How much of its limits or its disk the pending messages take, from 0 to 1; not with Postgres and Kafka.',
      inbox.used,
    ),
    {
      name: 'fleethook.inbox.commit.duration',
      unit: 's',
      type: 'histogram',
      help: 'How long commits of the inbox took; SQLite only.',
      samples: inbox.commitMs === undefined ? [] : [{ value: inbox.commitMs, attributes: {} }],
    },
  ]
}

type Samples = Measure['samples']

const counter = (name: string, counted: string, help: string, samples: Samples): Measure => ({
  name: `fleethook.${name}`,
  unit: `{${counted}}`,
  type: 'counter',
  help,
  samples,
})

const gauge = (name: string, unit: string, help: string, value: number | undefined): Measure => ({
  name: `fleethook.${name}`,
  unit,
  type: 'gauge',
  help,
  samples: value === undefined ? [] : one(value),
})

const one = (value: number): Samples => [{ value, attributes: {} }]

const by = (attribute: string, values: Readonly<Record<string, number>>): Samples =>
  Object.entries(values).map(([name, value]) => ({ value, attributes: { [attribute]: name } }))

/** Without a handler that fails: one 0, so that the metric is always there. */
function failingSamples(failing: Stats['failing']): Samples {
  if (failing === undefined) return []
  if (failing.messages === 0) return one(0)
  const named = failing.handlers.slice(0, mostHandlers)
  return by('fleethook.handler', Object.fromEntries(named.map(({ handler, messages }) => [handler, messages])))
}

const zeros = (names: readonly string[]): Record<string, number> => Object.fromEntries(names.map((name) => [name, 0]))

const seconds = (ms: number | undefined): number | undefined => (ms === undefined ? undefined : ms / 1000)
