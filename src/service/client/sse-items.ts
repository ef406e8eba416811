import { createParser, type EventSourceMessage } from 'eventsource-parser'
import type { Clock } from '../../base/clock.ts'
import { withDeadline } from './deadline.ts'
import { ServiceError } from './service-error.ts'

/** How to read a body as Server-Sent Events. */
interface SseOptions {
  readonly clock: Clock
  /** The stream counts as dead after this time without a byte. Comments count as bytes. */
  readonly heartbeatTimeoutMs: number
  readonly signal: AbortSignal | undefined
  /** Bytes have arrived: items, parts of items, or comments. */
  readonly onBytes: () => void
  /** The stream has said how long to wait before a reconnect. */
  readonly onRetry: (ms: number) => void
}

/** The longest item, in characters. A full vehicle document has about a hundredth of it. */
const longestItem = 1_048_576

/**
 * Reads a body as Server-Sent Events. Chunks may end anywhere. Ends with the body. Rejects with `timeout` after a silence of
 * `heartbeatTimeoutMs`, with `answer_unreadable` for an item longer than a million characters, with `unreachable` when the
 * connection breaks, and with the signal's reason. It always releases the body.
 */
export async function* readSseItems(
  body: ReadableStream<Uint8Array>,
  { clock, heartbeatTimeoutMs, signal, onBytes, onRetry }: SseOptions,
): AsyncGenerator<EventSourceMessage, void, undefined> {
  const ready: EventSourceMessage[] = []
  let oversized = false
  const parser = createParser({
    maxBufferSize: longestItem,
    onEvent: (item) => ready.push(item),
    onRetry,
    onError: ({ type }) => (oversized ||= type === 'max-buffer-size-exceeded'),
  })
  const onTimeout = (): Error =>
    new ServiceError('timeout', `The stream was silent for ${heartbeatTimeoutMs} ms.`, {
      hint: 'Raise `heartbeatTimeoutMs` if the service sends comments less often.',
    })
  const decoder = new TextDecoder()
  const reader = body.getReader()
  try {
    for (;;) {
      const { done, value } = await withDeadline({ clock, ms: heartbeatTimeoutMs, signal, onTimeout }, () =>
        readChunk(reader),
      )
      if (done) return
      onBytes()
      parser.feed(decoder.decode(value, { stream: true }))
      yield* ready.splice(0)
      if (oversized) {
        throw new ServiceError('answer_unreadable', `The stream sent more than ${longestItem} characters as one item.`)
      }
    }
  } finally {
    // The other side may never confirm the cancellation, so nothing waits for it.
    reader.cancel().catch(() => {})
  }
}

async function readChunk(
  reader: ReadableStreamDefaultReader<Uint8Array>,
): Promise<ReadableStreamReadResult<Uint8Array>> {
  try {
    return await reader.read()
  } catch (cause) {
    throw new ServiceError('unreachable', 'The stream broke off.', { cause })
  }
}
