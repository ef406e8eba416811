import { createParser, type EventSourceMessage } from 'eventsource-parser'
import type { Clock } from '../../base/clock.ts'
import { withDeadline } from './call.ts'
import { ServiceError } from './service-error.ts'

interface SseOptions {
  readonly clock: Clock
  /** The stream counts as dead after this time without a byte. Comments count as bytes. */
  readonly heartbeatTimeoutMs: number
  readonly signal: AbortSignal | undefined
  /** The reader wants a turn after this number of milliseconds, even if no item has arrived. `undefined`: only with an item. */
  readonly turnMs?: () => number | undefined
  /** Bytes have arrived: items, parts of items, or comments. */
  readonly onBytes: () => void
  readonly onRetry: (ms: number) => void
}

/** The longest item, in characters: about a hundred times a full vehicle document. */
const longestItem = 1_048_576

/**
 * Reads a body as Server-Sent Events. Chunks may end anywhere. Ends with the body. Rejects with `timeout` after a silence of
 * `heartbeatTimeoutMs`, with `answer_unreadable` for an item longer than a million characters, with `unreachable` when the
 * connection breaks, and with the signal's reason. It always releases the body. Yields `undefined` when the reader wants a turn.
 */
export async function* readSseItems(
  body: ReadableStream<Uint8Array>,
  { clock, heartbeatTimeoutMs, signal, turnMs, onBytes, onRetry }: SseOptions,
): AsyncGenerator<EventSourceMessage | undefined, void, undefined> {
  const ready: EventSourceMessage[] = []
  let oversized = false
  const parser = createParser({
    maxBufferSize: longestItem,
    onEvent: (item) => ready.push(item),
    onRetry,
    onError: ({ type }) => (oversized ||= type === 'max-buffer-size-exceeded'),
  })
  const decoder = new TextDecoder()
  const reader = body.getReader()
  /** A read that has not ended, and when it began. The reader's own time does not count as silence of the stream. */
  let coming: { readonly chunk: Promise<ReadableStreamReadResult<Uint8Array>>; readonly from: number } | undefined
  try {
    for (;;) {
      const { chunk, from } = (coming ??= { chunk: readChunk(reader), from: clock.now() })
      const silenceMs = Math.max(0, from + heartbeatTimeoutMs - clock.now())
      const ms = Math.min(silenceMs, turnMs?.() ?? Infinity)
      const onTimeout = (): Error => (ms < silenceMs ? itsTurn : silence(heartbeatTimeoutMs))
      const read = await withDeadline({ clock, ms, signal, onTimeout }, () => chunk).catch((error: unknown) => {
        if (error !== itsTurn) throw error
      })
      if (read === undefined) {
        yield undefined
        continue
      }
      coming = undefined
      if (read.done) return
      onBytes()
      parser.feed(decoder.decode(read.value, { stream: true }))
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

/** Ends a wait that goes on afterwards. */
const itsTurn = new Error('The reader has a turn.')

function silence(heartbeatTimeoutMs: number): ServiceError {
  return new ServiceError('timeout', `The stream was silent for ${heartbeatTimeoutMs} ms.`, {
    hint: 'Raise `heartbeatTimeoutMs` if the service sends comments less often.',
  })
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
