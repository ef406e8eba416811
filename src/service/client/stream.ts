import { guarded, throttled } from '../../base/log.ts'
import { backoffMs } from '../../dispatch/retry.ts'
import { FleethookError } from '../../base/errors.ts'
import type { WireEvent, WireTopic } from '../../events/event.ts'
import type { FieldCatalogue } from '../../events/fields.ts'
import type { Normalizer } from '../../wire/normalizer.ts'
import { isJsonObject } from '../../wire/record.ts'
import { isPassing } from './call.ts'
import type { Source } from '../../receiver/source.ts'
import { pause, withDeadline } from './deadline.ts'
import { exchange } from './exchange.ts'
import { feedMessages } from './feed.ts'
import { type Connection, nameOf, type ServiceRequest } from './request.ts'
import { segment } from './segment.ts'
import { ServiceError } from './service-error.ts'
import { readSseItems } from './sse-items.ts'

/** What to stream, and for how long. */
export interface StreamOptions<Fields extends FieldCatalogue> {
  /** One field only. */
  readonly field?: (keyof Fields & string) | (string & {})
  /** Which topics. All when it is left out. */
  readonly topics?: readonly WireTopic[]
  /** Ends the stream: the iteration is then over, without an error. */
  readonly signal?: AbortSignal
  /** Where to go on: the id of the last item of an earlier stream, as far as the service still has what follows. */
  readonly lastEventId?: string
  /** After how long a silence, comments included, to connect anew, in milliseconds. Default 60,000. */
  readonly heartbeatTimeoutMs?: number
  /** Is told of every interruption, when it is over, so that `client.refill(gap)` can close the gap. */
  readonly onResumed?: (gap: StreamGap) => unknown
}

/** A time without a stream. */
export interface StreamGap {
  readonly vin: string
  readonly from: Date
  readonly to: Date
  /** The service was told where to go on (`Last-Event-ID`): nothing is missing if it still had what followed. */
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
 * A stream of a vehicle's events. Each iteration has a connection of its own, and closes it when it is left.
 * `receiver.from(stream)` has it handled as if it had been posted to the webhook.
 */
export interface EventStream<Fields extends FieldCatalogue> extends AsyncIterable<WireEvent<Fields>>, Source {
  /** The same as text, unread. */
  messages(): AsyncIterableIterator<StreamMessage>
}

/** Streams a vehicle. Does not connect before somebody iterates. */
export function createStream<Fields extends FieldCatalogue>(
  connection: Connection,
  normalizer: Normalizer<Fields>,
  vin: string,
  options: StreamOptions<Fields>,
): EventStream<Fields> {
  const { clock, retry, timeoutMs } = connection
  const { field, topics, heartbeatTimeoutMs = 60_000 } = options
  if (!(heartbeatTimeoutMs > 0)) {
    throw new FleethookError('option_invalid', `\`heartbeatTimeoutMs\` must be above 0 and is ${heartbeatTimeoutMs}.`)
  }
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

  /** The body of one connection; nothing when there is nothing to stream. */
  function open(
    asked: ServiceRequest,
    signal: AbortSignal | undefined,
  ): Promise<ReadableStream<Uint8Array> | undefined> {
    const late = (): Error => new ServiceError('timeout', `${nameOf(asked)}: no answer within ${timeoutMs} ms.`)
    return withDeadline({ clock, ms: timeoutMs, signal, late }, (given) =>
      exchange(connection, asked, given, (answer) => bodyOf(answer, asked)),
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
    let heardAt = clock.now()
    const heard = (): void => void (heardAt = clock.now())
    const asksToWait = (ms: number): void => void (leastMs = ms)

    while (!signal?.aborted) {
      let failure: unknown
      let openedAt = Infinity
      try {
        const body = await open(request(lastEventId), signal)
        if (body === undefined) return
        openedAt = clock.now()
        if (lostAt !== undefined) onResumed({ vin, from: new Date(lostAt), to: new Date(clock.now()), lastEventId })
        lostAt = undefined
        for await (const item of readSseItems(body, { clock, heartbeatTimeoutMs, signal, heard, asksToWait })) {
          failures = 0
          if (item.id !== undefined) lastEventId = sendable(item.id)
          yield { text: item.data, id: item.id, receivedAt: clock.now() }
        }
      } catch (error) {
        if (signal?.aborted) return
        if (!isPassing(error)) throw error
        failure = error
      }
      lostAt ??= heardAt
      // A connection that lived was none that failed, even if its vehicle had nothing to say.
      if (heardAt - openedAt >= retry.maxMs) failures = 0
      failures += 1
      const askedMs = failure instanceof ServiceError ? (failure.retryAfterMs ?? 0) : 0
      const waitMs = Math.max(backoffMs(retry, failures), leastMs, askedMs)
      // Services close streams now and then; one that does not come back is worth a line.
      if (failures > 1) log.warn('a stream is interrupted, and connected again', { vin, waitMs, why: codeOf(failure) })
      await pause(clock, waitMs, signal).catch(() => {})
    }
  }

  async function* events(): AsyncGenerator<WireEvent<Fields>, void, undefined> {
    for await (const { text, receivedAt } of messages(options.signal, tell)) {
      const value = parsed(text)
      if (value !== undefined) yield normalizer.normalize(value, receivedAt)
      else log.warn('an item of a stream is no JSON object', { vin, length: text.length })
    }
  }

  function tell(gap: StreamGap): void {
    guarded(
      () => options.onResumed?.(gap),
      (error) =>
        log.warn('`onResumed` of a stream failed', { vin, error: error instanceof Error ? error.name : typeof error }),
    )
  }

  return {
    messages: () => messages(options.signal, tell),
    [Symbol.asyncIterator]: events,
    feed: (sink) =>
      feedMessages(sink, (noticed) => {
        const signal = options.signal === undefined ? sink.signal : AbortSignal.any([options.signal, sink.signal])
        return messages(signal, (gap) => {
          tell(gap)
          // Also where the service was told the last item: it nowhere says that it goes on from there.
          noticed(gap)
        })
      }),
  }
}

function bodyOf(answer: Response, request: ServiceRequest): ReadableStream<Uint8Array> | undefined {
  if (answer.status === 204) return undefined
  const type = answer.headers.get('content-type') ?? ''
  if (answer.body !== null && type.toLowerCase().startsWith('text/event-stream')) return answer.body
  answer.body?.cancel().catch(() => {})
  throw new ServiceError('answer_unreadable', `${nameOf(request)} was answered with ${answer.status} and no stream.`, {
    status: answer.status,
    hint: 'Is `baseUrl` the service’s address?',
  })
}

/** The id of an item, if a header can carry it: with another one no connection would ever come about again. */
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
