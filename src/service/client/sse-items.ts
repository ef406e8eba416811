import { createParser, type EventSourceMessage } from 'eventsource-parser'
import type { Clock } from '../../base/clock.ts'
import { withDeadline } from './deadline.ts'
import { ServiceError } from './service-error.ts'

/** How a stream of Server-Sent Events is read. */
export interface SseReading {
  readonly clock: Clock
  /** The longest silence, comments included, before the stream counts as dead. */
  readonly heartbeatTimeoutMs: number
  readonly signal: AbortSignal | undefined
  /** Something came: items, parts of them, comments. */
  readonly heard: () => void
  /** The stream says how long to wait before connecting anew. */
  readonly asksToWait: (ms: number) => void
}

/** The longest item, in characters: a full vehicle document has a hundredth of it. */
const longestItem = 1_048_576

/**
 * Reads a body as Server-Sent Events, wherever its chunks end. Ends with the body; rejects with `timeout` after too long a
 * silence, with `answer_unreadable` for an item without an end, and with the reason of the signal. Lets go of the body in any case.
 */
export async function* readSseItems(
  body: ReadableStream<Uint8Array>,
  { clock, heartbeatTimeoutMs, signal, heard, asksToWait }: SseReading,
): AsyncGenerator<EventSourceMessage, void, undefined> {
  const ready: EventSourceMessage[] = []
  let oversized = false
  const parser = createParser({
    maxBufferSize: longestItem,
    onEvent: (item) => ready.push(item),
    onRetry: asksToWait,
    onError: ({ type }) => (oversized ||= type === 'max-buffer-size-exceeded'),
  })
  const late = (): Error =>
    new ServiceError('timeout', `The stream was silent for ${heartbeatTimeoutMs} ms.`, {
      hint: 'Raise `heartbeatTimeoutMs` if the service sends fewer signs of life.',
    })
  const decoder = new TextDecoder()
  const reader = body.getReader()
  try {
    for (;;) {
      const { done, value } = await withDeadline({ clock, ms: heartbeatTimeoutMs, signal, late }, () => read(reader))
      if (done) return
      heard()
      parser.feed(decoder.decode(value, { stream: true }))
      yield* ready.splice(0)
      if (oversized) {
        throw new ServiceError('answer_unreadable', `The stream sent more than ${longestItem} characters as one item.`)
      }
    }
  } finally {
    // Nobody waits for the other side to agree.
    reader.cancel().catch(() => {})
  }
}

async function read(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<ReadableStreamReadResult<Uint8Array>> {
  try {
    return await reader.read()
  } catch (cause) {
    throw new ServiceError('unreachable', 'The stream broke off.', { cause })
  }
}
