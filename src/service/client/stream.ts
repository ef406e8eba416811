import { guarded, throttled } from '../../base/log.ts'
import { aFunction, anything, checkOptions, milliseconds, type Rules } from '../../base/options.ts'
import { backoffMs } from '../../dispatch/retry.ts'
import type { WireEvent, WireTopic } from '../../events/event.ts'
import type { FieldCatalogue } from '../../events/fields.ts'
import type { Source } from '../../receiver/source.ts'
import type { Normalizer } from '../../wire/normalizer.ts'
import { isJsonObject } from '../../wire/record.ts'
import { isTransient, segment, sendOnce } from './call.ts'
import { type Connection, nameOf, type ServiceRequest } from './connection.ts'
import { pause, withDeadline } from './deadline.ts'
import { feedMessages } from './feed.ts'
import { ServiceError } from './service-error.ts'
import { readSseItems } from './sse-items.ts'

/** The options of `client.stream`. */
export interface StreamOptions<Fields extends FieldCatalogue> {
  /** Streams this field only. */
  readonly field?: (keyof Fields & string) | (string & {})
  /** Streams these topics only. Default: all topics. */
  readonly topics?: readonly WireTopic[]
  /** Ends the stream. The iteration then ends without an error. */
  readonly signal?: AbortSignal
  /** The id of the last item of an earlier stream. The service continues after it, if it still has what follows. */
  readonly lastEventId?: string
  /** Reconnects after this time without a byte, in milliseconds. Comments count as bytes. Default 60,000. */
  readonly heartbeatTimeoutMs?: number
  /** Called after each interruption, once the stream is connected again. `client.refill(gap)` then closes the gap. */
  readonly onResumed?: (gap: StreamGap) => unknown
}

/** A time in which a stream was interrupted, and messages of its vehicle may be missing. */
export interface StreamGap {
  readonly vin: string
  /** When the last byte arrived. */
  readonly from: Date
  /** When the stream was connected again. */
  readonly to: Date
  /** The id that the service was sent as `Last-Event-ID`. If it still had what followed this item, nothing is missing. */
  readonly lastEventId: string | undefined
}

/** One item of a stream. */
export interface StreamMessage {
  /** The JSON text of the message, as it came. */
  readonly text: string
  readonly id: string | undefined
  /** Milliseconds since the epoch. */
  readonly receivedAt: number
}

/**
 * The events of one vehicle, as they happen. Each iteration opens its own connection, reconnects after interruptions, and closes
 * the connection when the loop ends. It throws errors that waiting does not fix, such as a wrong key or a vehicle that is not
 * shared. `receiver.from(stream)` handles the messages as if they had been posted to the webhook.
 *
 * Specification: "Streaming by SSE", which shows neither event names nor data. See readings 15 to 19 in docs/interface.md.
 */
export interface EventStream<Fields extends FieldCatalogue> extends AsyncIterable<WireEvent<Fields>>, Source {
  /** The same messages as JSON text, not parsed. */
  messages(): AsyncIterableIterator<StreamMessage>
}

const rules: Rules<StreamOptions<FieldCatalogue>> = {
  field: anything,
  topics: { must: 'must be a list of topics', accepts: Array.isArray },
  signal: anything,
  lastEventId: anything,
  heartbeatTimeoutMs: milliseconds(1),
  onResumed: aFunction,
}

/** Streams a vehicle. Connects when the stream is iterated. */
export function createStream<Fields extends FieldCatalogue>(
  connection: Connection,
  normalizer: Normalizer<Fields>,
  vin: string,
  options: StreamOptions<Fields>,
): EventStream<Fields> {
  checkOptions('client.stream', options, rules)
  const { clock, retry, timeoutMs } = connection
  const { field, topics, heartbeatTimeoutMs = 60_000 } = options
  const vehicle = segment('The VIN', vin)
  const path = field === undefined ? `/sse/${vehicle}` : `/sse/${vehicle}/${segment('The field', field)}`
  const log = throttled(connection.log, clock)

  const request = (lastEventId: string | undefined): ServiceRequest => ({
    method: 'GET',
    path,
    query: { topics: topics?.join(',') },
    headers: { accept: 'text/event-stream', ...(lastEventId === undefined ? {} : { 'last-event-id': lastEventId }) },
    idempotent: true,
  })

  /** Opens one connection. Resolves to `undefined` when there is nothing to stream. */
  function open(
    asked: ServiceRequest,
    signal: AbortSignal | undefined,
  ): Promise<ReadableStream<Uint8Array> | undefined> {
    const onTimeout = (): Error => new ServiceError('timeout', `${nameOf(asked)}: no answer within ${timeoutMs} ms.`)
    return withDeadline({ clock, ms: timeoutMs, signal, onTimeout }, (given) =>
      sendOnce(connection, asked, given, (answer) => bodyOf(answer, asked)),
    )
  }

  async function* messages(
    signal: AbortSignal | undefined,
    onResumed: (gap: StreamGap) => unknown,
  ): AsyncGenerator<StreamMessage, void, undefined> {
    let lastEventId = sendable(options.lastEventId)
    let lostAt: number | undefined
    let failures = 0
    let leastMs = 0
    let lastByteAt = clock.now()
    const onBytes = (): void => void (lastByteAt = clock.now())
    const onRetry = (ms: number): void => void (leastMs = ms)

    while (!signal?.aborted) {
      let failure: unknown
      let openedAt = Infinity
      try {
        const body = await open(request(lastEventId), signal)
        if (body === undefined) return
        openedAt = clock.now()
        if (lostAt !== undefined) onResumed({ vin, from: new Date(lostAt), to: new Date(clock.now()), lastEventId })
        lostAt = undefined
        for await (const item of readSseItems(body, { clock, heartbeatTimeoutMs, signal, onBytes, onRetry })) {
          failures = 0
          if (item.id !== undefined) lastEventId = sendable(item.id)
          yield { text: item.data, id: item.id, receivedAt: clock.now() }
        }
      } catch (error) {
        if (signal?.aborted) return
        if (!isTransient(error)) throw error
        failure = error
      }
      lostAt ??= lastByteAt
      // A connection that stayed open did not fail, even if its vehicle sent nothing.
      if (lastByteAt - openedAt >= retry.maxMs) failures = 0
      failures += 1
      const askedMs = failure instanceof ServiceError ? (failure.retryAfterMs ?? 0) : 0
      const waitMs = Math.max(backoffMs(retry, failures), leastMs, askedMs)
      // Services close streams from time to time. Only a stream that fails again is worth a line.
      if (failures > 1) log.warn('a stream is interrupted and reconnects', { vin, waitMs, why: codeOf(failure) })
      await pause(clock, waitMs, signal).catch(() => {})
    }
  }

  async function* events(): AsyncGenerator<WireEvent<Fields>, void, undefined> {
    for await (const { text, receivedAt } of messages(options.signal, reportGap)) {
      const value = parsed(text)
      if (value !== undefined) yield normalizer.normalize(value, receivedAt)
      else log.warn('an item of a stream is not a JSON object', { vin, length: text.length })
    }
  }

  function reportGap(gap: StreamGap): void {
    guarded(
      () => options.onResumed?.(gap),
      (error) =>
        log.warn('`onResumed` of a stream failed', { vin, error: error instanceof Error ? error.name : typeof error }),
    )
  }

  return {
    messages: () => messages(options.signal, reportGap),
    [Symbol.asyncIterator]: events,
    feed: (sink) =>
      feedMessages(sink, (onInterruption) => {
        const signal = options.signal === undefined ? sink.signal : AbortSignal.any([options.signal, sink.signal])
        return messages(signal, (gap) => {
          reportGap(gap)
          // A gap even after `Last-Event-ID`: the specification does not say that the service continues there.
          onInterruption(gap)
        })
      }),
  }
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

/** The id of an item, if a header can carry it. With any other id every reconnect would fail. */
function sendable(id: string | undefined): string | undefined {
  return id !== undefined && /^[\x20-\x7e]+$/.test(id) ? id : undefined
}

function parsed(text: string): object | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return isJsonObject(value) ? value : undefined
  } catch {
    return undefined
  }
}

function codeOf(failure: unknown): string {
  return failure instanceof ServiceError ? failure.code : 'ended'
}
