import type { Drift } from '../wire/drift.ts'

/** The number of values up to each bound. The last count is for values above every bound. */
export interface Histogram {
  /** Ascending. */
  readonly bounds: readonly number[]
  /** One more than there are bounds. */
  readonly counts: readonly number[]
  readonly sum: number
}

/** A field that rules name, and that does not come: the config of a vehicle does not have it, or its name is another one. */
export interface MissingField {
  readonly field: string
  /** The names of the edges that read it, at most ten. */
  readonly edges: readonly string[]
  /** When a vehicle sent it last, by its clock, in milliseconds since the epoch. `undefined`: none did. */
  readonly lastAtMs: number | undefined
  /** The vehicles that were heard in the last day. */
  readonly heard: number
  /** How many of these are known for longer, and never sent it. */
  readonly never: number
}

/** Figures about an inbox. Cheap to read. An inbox leaves out figures that it does not know. */
export interface InboxStats {
  /** The space that it takes on the disk or in memory. */
  readonly bytes?: number
  /** Other processes take messages into it, too: what happens there, this process does not hear. */
  readonly isShared?: boolean
  /** The most messages that can wait or be claimed. Left out when there is no such limit. */
  readonly mostMessages?: number
  /** How much of its limits, or of its disk, the messages take that wait or are claimed, from 0 to 1: at 1, it refuses. */
  readonly used?: number
  /** The dead letters that it keeps now. */
  readonly deadLetters?: number
  /** The age of the oldest message that waits or is claimed, in milliseconds. Left out when there is none. */
  readonly oldestWaitingMs?: number | undefined
  /** How long its commits took, in milliseconds. */
  readonly commitMs?: Histogram
  /** The number of messages in the topic that this process still has to settle, by partition. */
  readonly lag?: Readonly<Record<string, number>>
  /** What the file of the option `meanwhile` holds. Left out without that option. */
  readonly meanwhile?: MeanwhileStats | undefined
  /** Messages that were in the topic a second time, and were dropped. */
  readonly repeated?: number
  /** Rows of the tables in Postgres that are deleted and still take space, at the last look of a process that handles. */
  readonly deadRows?: number
  /** For how long a snapshot has kept Postgres from removing such rows, in milliseconds. */
  readonly oldestSnapshotMs?: number
  /** Handled messages that this process deleted, because their retention was over or their room was needed. */
  readonly purged?: number
  /** Stopped inboxes beside this inbox that held messages when it was opened. */
  readonly unopened?: readonly UnopenedInbox[]
}

/** Messages that wait on the disk of this machine until the server takes them. */
export interface MeanwhileStats {
  readonly messages: number
  readonly bytes: number
  /** Messages that were acknowledged, and that the server never takes. */
  readonly deadLetters: number
  /** For how long new messages have gone to the file, because the server did not take one within a second. In milliseconds; `undefined`: they do not. */
  readonly awayMs: number | undefined
}

/**
 * What waits for handlers: in this process, or with `postgresInbox` and `kafkaInbox` in all processes together, as of some seconds ago. Each
 * process reports the same figures then, so do not add them up.
 */
export interface Backlog {
  /** Above 100,000 it is an estimate. */
  readonly messages: number
  /** The age of the oldest message, in milliseconds. Left out when nothing waits, and with `kafkaInbox`. */
  readonly oldestMs?: number | undefined
  /** The processes that run handlers now. With 0, nothing is handled. Left out when that is not known. */
  readonly processes?: number
  /** The partitions of vehicles that no running process handles. */
  readonly unhandledPartitions?: number
}

/** The messages that wait because a handler failed for them. They are tried again. */
export interface Failing {
  readonly messages: number
  readonly vehicles: number
  /** The handler with the most messages first. */
  readonly handlers: readonly FailingHandler[]
}

export interface FailingHandler {
  /** The name of the handler function, or the file and line where it was registered when it has none. */
  readonly handler: string
  readonly messages: number
  readonly vehicles: number
  /** When the first of these messages failed. */
  readonly since: Date
  /** The kind of the last error, without its text, which can quote a message. */
  readonly error: string
}

/** The inbox of a receiver that does not run, or what waits for a branch that was removed, with the number of messages that wait in it. */
export interface UnopenedInbox {
  readonly path: string
  /** The branch that the receiver of this file no longer has. Left out: nobody has the file. */
  readonly branch?: string
  readonly messages: number
  readonly deadLetters: number
}

/**
 * What a receiver did and is doing. Counts start at construction, and add up: `received + recovered + replayed` equals
 * `handled + deadLettered + duplicates + lost + handedOver + forgotten`, plus the messages of `pending` that came over the wire.
 * A relay forwards what it received, so there `received` is not part of the sum.
 */
export interface Stats {
  /** Messages that were accepted. */
  readonly received: number
  /** Test messages of `fleethook doctor`. They do not count as received. */
  readonly tests: number
  /** When the last message was accepted, in milliseconds since the epoch. `undefined`: none was yet. */
  readonly lastReceivedAtMs: number | undefined
  /** Accepted messages by topic, `unknown` included. */
  readonly topics: Readonly<Record<string, number>>
  /**
   * Requests with a right secret, by the place of the secret in the list `secret`: while you rotate a secret, `secrets[1]` counts requests
   * that still have the second. Empty with `secret: false`.
   */
  readonly secrets: readonly number[]
  /** Messages that an earlier process left in a durable inbox, or that came from Postgres or a topic of Kafka. */
  readonly recovered: number
  /** Dead letters and handled messages that were replayed. */
  readonly replayed: number
  /** Messages whose handlers are all done. */
  readonly handled: number
  /** The number of times a handler discarded a message. The message also counts as handled. */
  readonly discarded: number
  /** Messages that a part skipped: `dedupe`, because the same message was handled before, or a part of your own. */
  readonly duplicates: number
  /** Attempts after the first. */
  readonly retried: number
  /** Messages that were given up after their last attempt. */
  readonly deadLettered: number
  /** Dead letters that the inbox deleted by itself: their retention was over, or newer ones needed their room. */
  readonly deadLettersDropped: number
  /** Accepted messages that were never handled: a drain or a runtime ended first, or an inbox failed after the answer. */
  readonly lost: number
  /** Messages that another process took over before this one settled them. More than 0 only with `postgresInbox` and `kafkaInbox`. */
  readonly handedOver: number
  /** Messages that `receiver.forget` erased before they were handled. */
  readonly forgotten: number
  /**
   * Refused requests by the answer's `error`, or by the reason of the runtime that refused before the receiver saw them. A
   * refused message is lost: the service sends once. `test` counts refused requests of `fleethook doctor`.
   */
  readonly refused: Readonly<Record<string, number>>
  /** Messages that wait or are being handled, with the receiver's own gaps and malformed bodies. */
  readonly pending: { readonly messages: number; readonly bytes: number }
  /** Figures of the inbox: dead letters, bytes, the age of the oldest message, times of commits. Empty in a Worker in front of Durable Objects. */
  readonly inbox: InboxStats
  /** Messages whose handlers run right now: at most `concurrency`. */
  readonly running: number
  /** VINs that have work. One message of each runs at a time. */
  readonly lanes: number
  /** Handlers that fail for every vehicle, so that their circuit breaker is open: since when, and when they are tried again. */
  readonly paused: readonly { readonly handler: string; readonly since: Date; readonly nextTryAt: Date }[]
  /** Gaps that no `gap` event has reported yet. */
  readonly openGaps: number
  /** What waits for handlers, wherever they run. `undefined`: not known in this process, as in a Worker in front of Durable Objects. */
  readonly backlog: Backlog | undefined
  /**
   * What fails now, and by which handlers. With `postgresInbox`, in all processes together, as of some seconds ago. `undefined`: no handler runs
   * in this process, and it does not know the handlers of other processes.
   */
  readonly failing: Failing | undefined
  /** Values that did not read as the type in the catalogue, or that the part `vehicles` did not believe. */
  readonly drift: readonly Drift[]
  /** The number of those values, also of fields for which `drift` has no row left. */
  readonly drifted: number
  /** How many of them were not believed: see "What is believed" in docs/vehicles.md. */
  readonly unbelieved: number
  /** Vehicles whose clock was set back and did not come back, by their messages since the start. */
  readonly clocksBehind: number
  /** Fields that rules name, and that no vehicle sent for a day, or that some never sent. Looked for an hour after the start, and once a day. */
  readonly fieldsMissing: readonly MissingField[]
  /**
   * When the TLS certificate that `serve` serves now ends, in milliseconds since the epoch. `undefined`: none, or this runtime cannot read it, or
   * a proxy has the certificate.
   */
  readonly certificateUntilMs: number | undefined
  readonly draining: boolean
  /** The same of each branch, by its name. Left out: the receiver has none. */
  readonly branches?: Readonly<Record<string, Stats>> | undefined
}

/** Why a message still waits although its handlers ran. Only operators read it, so an inbox that does not outlive the process keeps none. */
export interface LastFailure {
  /** The name of the handler. */
  readonly handler: string
  /** Its error as text, for a person to read. It can quote what the handler saw. */
  readonly error: string
  /** When the message began to fail, in milliseconds since the epoch. */
  readonly sinceMs: number
}

/** A message that waits because a handler failed for it. */
export interface FailingMessage {
  /** Left out for messages of no vehicle. */
  readonly vin?: string | undefined
  readonly failure: LastFailure
}

/** Counts them by handler, the most messages first. `shows`: with the texts of errors. */
export function failingOf(messages: readonly FailingMessage[], shows: boolean): Failing {
  const byHandler = new Map<string, FailingMessage[]>()
  for (const message of messages) {
    const those = byHandler.get(message.failure.handler) ?? []
    byHandler.set(message.failure.handler, those)
    those.push(message)
  }
  const handlers = [...byHandler].map(([handler, those]): FailingHandler => {
    const newest = those.reduce((one, other) => (other.failure.sinceMs > one.failure.sinceMs ? other : one))
    const since = those.reduce((first, { failure }) => Math.min(first, failure.sinceMs), Infinity)
    return {
      handler,
      messages: those.length,
      vehicles: vehiclesOf(those),
      since: new Date(since),
      error: shownError(newest.failure.error, shows),
    }
  })
  return {
    messages: messages.length,
    vehicles: vehiclesOf(messages),
    handlers: handlers.toSorted((one, other) => other.messages - one.messages),
  }
}

function vehiclesOf(messages: readonly FailingMessage[]): number {
  return new Set(messages.flatMap(({ vin }) => vin ?? [])).size
}

/** The text of an error, or only its name, which comes first. */
export const shownError = (error: string, shows: boolean): string =>
  shows ? error : (/^\w{1,60}(?=:|$)/.exec(error)?.[0] ?? 'Error')
