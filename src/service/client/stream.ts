import { pause } from '../../base/clock.ts'
import { guarded, throttled } from '../../base/log.ts'
import { aFunction, anything, checkOptions, milliseconds, type Rules } from '../../base/options.ts'
import { backoffMs } from '../../core/retry.ts'
import type { FieldCatalogue } from '../../events/fields.ts'
import type { Sink, Source } from '../../receiver/interface.ts'
import type { Normalizer } from '../../wire/normalizer.ts'
import { isJsonObject, type JsonObject } from '../../wire/record.ts'
import { get, isTransient, segment, type Sent, sendOnce, timedOut, withDeadline } from './call.ts'
import { type Connection, nameOf, type ServiceRequest } from './connection.ts'
import { type Fed, feedMessages } from './feed.ts'
import { ServiceError } from './service-error.ts'
import { readSseItems } from './sse-items.ts'
import { Delivered, readStreamEvent, type Streamed, type StreamEvent, type StreamTopic } from './stream-events.ts'

/** The options of `client.stream`. */
export interface StreamOptions<Fields extends FieldCatalogue> {
  /** Streams this field of a vehicle only. */
  readonly field?: (keyof Fields & string) | (string & {})
  /** Streams these topics only. Default: all topics. */
  readonly topics?: readonly StreamTopic[]
  /** Ends the stream. The iteration then ends without an error. */
  readonly signal?: AbortSignal
  /** Reconnects after this time without a byte, in milliseconds. Comments count as bytes. Default 60,000. */
  readonly heartbeatTimeoutMs?: number
  /** Called for each gap, once the stream is connected again. `client.refill(gap)` then closes the gap. */
  readonly onResumed?: (gap: StreamGap) => unknown
}

/** A time in which a stream was interrupted, and messages may be missing. */
export interface StreamGap {
  /** The vehicle that is streamed. */
  readonly vin?: string
  /** The energy site that is streamed. */
  readonly siteId?: string
  /** When the last byte arrived. */
  readonly from: Date
  /** When the stream was connected again. */
  readonly to: Date
  /**
   * `lost_too_long`: for longer than five seconds. `no_snapshot`: the new connection did not begin with a snapshot that covers
   * the time.
   */
  readonly reason: 'lost_too_long' | 'no_snapshot'
}

/** One item of a stream. */
export interface StreamMessage {
  /** The JSON text of the message, as it came. */
  readonly text: string
  /** Milliseconds since the epoch. */
  readonly receivedAt: number
}

/**
 * The events of one vehicle or one energy site, as they happen. Each iteration opens its own connection, reconnects after
 * interruptions, and closes the connection when the loop ends. It throws errors that waiting does not fix, such as a wrong key or a
 * product that is not shared.
 *
 * Each connection begins with a snapshot: events with `meta.isCache`, whose `meta.changed` names what is new. An event of the
 * snapshot in which nothing is new is left out.
 *
 * `receiver.from(stream)` handles the messages as if they had been posted to the webhook.
 *
 * Specification: "Streaming by SSE", which shows neither event names nor data. See readings 15 to 19 in docs/decisions/0021-interface.md.
 */
export interface EventStream<Fields extends FieldCatalogue> extends AsyncIterable<StreamEvent<Fields>>, Source {
  /** All messages as unparsed JSON text, including messages that a snapshot repeats. */
  messages(): AsyncIterableIterator<StreamMessage>
}

const rules: Rules<StreamOptions<FieldCatalogue>> = {
  field: anything,
  topics: { must: 'must be a list of topics', accepts: Array.isArray },
  signal: anything,
  heartbeatTimeoutMs: milliseconds(1),
  onResumed: aFunction,
}

/** What a stream yields next: an item, or a gap before the items that follow it. */
type StreamStep<Fields extends FieldCatalogue> =
  | { readonly gap: StreamGap }
  | {
      readonly gap?: undefined
      readonly message: StreamMessage
      /** `undefined` when the item is not a JSON object. */
      readonly event: StreamEvent<Fields> | undefined
      /** The names of what is new in the event. */
      readonly changed: readonly string[]
    }

export function createStream<Fields extends FieldCatalogue>(
  connection: Connection,
  normalizer: Normalizer<Fields>,
  product: string | number,
  options: StreamOptions<Fields>,
): EventStream<Fields> {
  checkOptions('client.stream', options, rules)
  const { field, topics } = options
  const id = segment('The VIN or energy site id', product)
  const path = field === undefined ? `/sse/${id}` : `/sse/${id}/${segment('The field', field)}`
  const request: ServiceRequest = {
    ...get(path, { query: { topics: topics?.join(',') } }),
    headers: { accept: 'text/event-stream' },
  }
  // Ids of energy sites are digits. A VIN has letters.
  const streamed: Streamed = /^\d+$/.test(id) ? { siteId: id } : { vin: id }
  const log = throttled(connection.log, connection.clock)
  return new ServiceStream({ connection, request, normalizer, streamed, options, log })
}

/** What a stream is made of. */
interface StreamParts<Fields extends FieldCatalogue> {
  readonly connection: Connection
  readonly request: ServiceRequest
  readonly normalizer: Normalizer<Fields>
  readonly streamed: Streamed
  readonly options: StreamOptions<Fields>
  readonly log: ReturnType<typeof throttled>
}

class ServiceStream<Fields extends FieldCatalogue> implements EventStream<Fields> {
  readonly #parts: StreamParts<Fields>

  constructor(parts: StreamParts<Fields>) {
    this.#parts = parts
  }

  async *messages(): AsyncGenerator<StreamMessage, void, undefined> {
    for await (const turn of this.#turns(this.#parts.options.signal)) {
      if (turn.gap === undefined) yield turn.message
    }
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<StreamEvent<Fields>, void, undefined> {
    const { normalizer, streamed, options, log } = this.#parts
    for await (const turn of this.#turns(options.signal)) {
      if (turn.gap !== undefined) continue
      const { event, message, changed } = turn
      if (event === undefined) {
        // What to do: Nothing to do.
        log.warn('an item of a stream is not a JSON object', { ...streamed, length: message.text.length })
      } else if (event.meta.isCache !== true && changed.length > 0) {
        yield event
      } else if (changed.length > 0) {
        yield readStreamEvent(normalizer, streamed, { ...event.raw, changed }, message.receivedAt)
      }
    }
  }

  feed(sink: Sink): Promise<void> {
    const { signal } = this.#parts.options
    return feedMessages(sink, this.#fed(signal === undefined ? sink.signal : AbortSignal.any([signal, sink.signal])))
  }

  /** The messages as a receiver takes them, with the gaps. */
  async *#fed(signal: AbortSignal): AsyncGenerator<Fed, void, undefined> {
    for await (const turn of this.#turns(signal)) {
      if (turn.gap !== undefined) {
        yield { interruption: turn.gap }
        continue
      }
      const { event, message, changed } = turn
      if (event === undefined) yield message
      else if (changed.length > 0)
        yield event.meta.isCache === true ? { text: withChanged(message.text, changed) } : message
    }
  }

  /** All connections of one iteration, one after another. */
  async *#turns(signal: AbortSignal | undefined): AsyncGenerator<StreamStep<Fields>, void, undefined> {
    const { clock } = this.#parts.connection
    const iteration = new Iteration(this.#parts, signal)
    while (!signal?.aborted) {
      let failure: unknown
      let openedAt: number | undefined
      try {
        const body = await this.#open(signal)
        if (body === undefined) return
        openedAt = clock.now()
        yield* iteration.read(body, openedAt)
      } catch (error) {
        if (signal?.aborted) return
        if (!isTransient(error)) throw error
        failure = error
      }
      const waitMs = iteration.ended(openedAt, failure)
      if (waitMs > 0) await pause(clock, waitMs, signal).catch(() => {})
    }
  }

  /** Opens one connection. Resolves to `undefined` when there is nothing to stream. */
  #open(signal: AbortSignal | undefined): Promise<ReadableStream<Uint8Array> | undefined> {
    const { connection, request } = this.#parts
    const { clock, timeoutMs } = connection
    const sent: Sent = { to: undefined }
    const onTimeout = (): Error => timedOut(request, sent, timeoutMs)
    return withDeadline({ clock, ms: timeoutMs, signal, onTimeout }, (given) =>
      sendOnce(connection, request, given, (answer) => bodyOf(answer, request), sent),
    )
  }
}

/** What one iteration of a stream remembers from connection to connection. */
class Iteration<Fields extends FieldCatalogue> {
  readonly #parts: StreamParts<Fields>
  readonly #signal: AbortSignal | undefined
  readonly #delivered = new Delivered()
  readonly #interruption = new Interruption()
  #failures = 0
  /** The wait that the service asked for. */
  #leastMs = 0
  #lastByteAt: number

  constructor(parts: StreamParts<Fields>, signal: AbortSignal | undefined) {
    this.#parts = parts
    this.#signal = signal
    this.#lastByteAt = parts.connection.clock.now()
  }

  /** Reads one connection to its end. */
  async *read(body: ReadableStream<Uint8Array>, openedAt: number): AsyncGenerator<StreamStep<Fields>, void, undefined> {
    const { connection, normalizer, streamed, options } = this.#parts
    const { clock } = connection
    const interruption = this.#interruption
    this.#delivered.connected()
    interruption.connected(openedAt)
    const items = readSseItems(body, {
      clock,
      heartbeatTimeoutMs: options.heartbeatTimeoutMs ?? 60_000,
      signal: this.#signal,
      turnMs: () => interruption.leftMs(clock.now()),
      onBytes: () => void (this.#lastByteAt = clock.now()),
      onRetry: (ms) => void (this.#leastMs = ms),
    })
    for await (const item of items) {
      const receivedAt = clock.now()
      const value = item && parsed(item.data)
      const event = value && readStreamEvent(normalizer, streamed, value, receivedAt)
      const reason = item === undefined || event !== undefined ? interruption.judge(event) : undefined
      if (reason !== undefined) {
        const gap = { ...streamed, ...interruption.end(), reason }
        this.#report(gap)
        yield { gap }
      }
      if (item === undefined) continue
      this.#failures = 0
      const message = { text: item.data, receivedAt }
      yield { message, event, changed: event === undefined ? [] : this.#delivered.note(event) }
    }
  }

  /** A connection has ended, or none was opened. Returns the wait until the next one. */
  ended(openedAt: number | undefined, failure: unknown): number {
    const { connection, streamed, log } = this.#parts
    const { clock, retry } = connection
    const now = clock.now()
    const lastByteAt = this.#lastByteAt
    // When the service ends a stream, the stream was alive until then. A stream that breaks off may have been dead since
    // the last byte.
    const endedAfterMs = openedAt === undefined || failure !== undefined ? undefined : now - openedAt
    this.#interruption.begin(lastByteAt, endedAfterMs === undefined ? lastByteAt : now)
    // A connection that stayed open is not a failure, even if its vehicle sent nothing.
    if (openedAt !== undefined && lastByteAt - openedAt >= retry.maxMs) this.#failures = 0
    this.#failures += 1
    const askedMs = failure instanceof ServiceError ? (failure.retryAfterMs ?? 0) : 0
    // The wait for a stream that the service has ended counts from its beginning, so a planned change takes no wait.
    const waitMs = Math.max(backoffMs(retry, this.#failures), this.#leastMs, askedMs) - (endedAfterMs ?? 0)
    // The service closes streams from time to time. Only a stream that fails again is worth a log line.
    if (this.#failures > 1)
      // What to do: If it repeats, look at `why`.
      log.warn('a stream is interrupted and reconnects', {
        ...streamed,
        waitMs,
        why: failure instanceof ServiceError ? failure.code : 'ended',
      })
    return waitMs
  }

  #report(gap: StreamGap): void {
    const { streamed, options, log } = this.#parts
    guarded(
      () => options.onResumed?.(gap),
      (error) =>
        // What to do: It must not throw.
        log.warn('`onResumed` of a stream failed', {
          ...streamed,
          error: error instanceof Error ? error.name : typeof error,
        }),
    )
  }
}

/** The longest time that a planned change of connections takes, in milliseconds. A longer time is a gap, whatever the snapshot says. */
const plannedChangeMs = 5_000
/** How long to wait for the snapshot of a new connection, in milliseconds. Without a snapshot the change is a gap. */
const snapshotTimeoutMs = 5_000

/** The topics of a snapshot. An item of another topic does not show whether a snapshot comes. */
const snapshotTopics: ReadonlySet<string> = new Set(['state', 'data', 'connectivity', 'alerts', 'errors'])

/** Every item of an energy site is a whole document, so each one covers what its snapshot would. */
function isSnapshot(event: StreamEvent<FieldCatalogue>): boolean {
  return 'siteId' in event || (event.meta.isCache === true && snapshotTopics.has(event.topic))
}

/** A time without a connection, until the snapshot of the next connection covers it or it is reported as a gap. */
class Interruption {
  /** The time of the last byte before it, and the last time at which the connection certainly existed. */
  #lost: { readonly from: number; readonly since: number } | undefined
  #connectedAt = 0
  /** A stream that has delivered data is covered by data only. */
  #hadData = false

  /** A connection that ends before it covered the last interruption extends that interruption. */
  begin(from: number, since: number): void {
    this.#lost ??= { from, since }
  }

  connected(now: number): void {
    this.#connectedAt = now
  }

  /** In how many milliseconds to judge it without an event. `undefined` when there is nothing to judge. */
  leftMs(now: number): number | undefined {
    if (this.#lost === undefined) return undefined
    return this.#isTooLong ? 0 : Math.max(0, this.#connectedAt + snapshotTimeoutMs - now)
  }

  /** Judges it by an event of the new connection, or when {@link leftMs} is over. Returns the reason when it is a gap. */
  judge(event: StreamEvent<FieldCatalogue> | undefined): StreamGap['reason'] | undefined {
    const isPart = event !== undefined && isSnapshot(event)
    const covers = isPart && !this.#isTooLong && (event.topic === 'data' || !this.#hadData)
    if (event?.topic === 'data') this.#hadData = true
    if (covers) this.#lost = undefined
    if (this.#lost === undefined) return undefined
    if (this.#isTooLong) return 'lost_too_long'
    return event === undefined || (!isPart && snapshotTopics.has(event.topic)) ? 'no_snapshot' : undefined
  }

  get #isTooLong(): boolean {
    return this.#lost !== undefined && this.#connectedAt - this.#lost.since > plannedChangeMs
  }

  end(): { readonly from: Date; readonly to: Date } {
    const { from } = this.#lost ?? { from: this.#connectedAt }
    this.#lost = undefined
    return { from: new Date(from), to: new Date(this.#connectedAt) }
  }
}

/** The text of a message with one member more. The rest of it stays as it came. */
function withChanged(text: string, changed: readonly string[]): string {
  return `${text.slice(0, text.lastIndexOf('}'))},"changed":${JSON.stringify(changed)}}`
}

function bodyOf(answer: Response, request: ServiceRequest): ReadableStream<Uint8Array> | undefined {
  if (answer.status === 204) return undefined
  const type = answer.headers.get('content-type') ?? ''
  if (answer.body !== null && type.toLowerCase().startsWith('text/event-stream')) return answer.body
  answer.body?.cancel().catch(() => {})
  throw new ServiceError(
    'answer_unreadable',
    `${nameOf(request)} was answered with ${answer.status} but not with a stream.`,
    {
      status: answer.status,
      hint: 'Is `baseUrl` the address of the service?',
    },
  )
}

function parsed(text: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return isJsonObject(value) ? value : undefined
  } catch {
    return undefined
  }
}
