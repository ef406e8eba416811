import type { Clock, Timer } from '../../base/clock.ts'
import { isJsonObject, type JsonObject } from '../../wire/record.ts'
import type { Activity } from './activity.ts'

export interface ProductMessage {
  readonly topic: string
  readonly message: JsonObject
}

interface StreamFilter {
  /** The VIN, or the id of the energy site. */
  readonly product: string
  readonly topics: readonly string[] | undefined
  readonly field: string | undefined
}

export interface SseHub {
  publish(product: string, sent: ProductMessage): void
  open(filter: StreamFilter, snapshot: readonly ProductMessage[]): ReadableStream<Uint8Array>
  isOpen(product: string): boolean
  /** Ends the streams of a product, or all streams. */
  end(product?: string): void
}

interface SseStream extends StreamFilter {
  readonly controller: ReadableStreamDefaultController<Uint8Array>
  readonly path: string
  heartbeat: Timer
  end: Timer
}

const heartbeatMs = 15_000
const retryMs = 1_000
/** A stream that is not read ends when more than this number of items wait. */
const mostUnread = 10_000
const encoder = new TextEncoder()
const noTimer: Timer = { cancel: () => {} }

/** Filters the items for each stream, sends a comment line every 15 seconds, and ends each stream after `streamMs`, unless that is 0. */
export function createSseHub(clock: Clock, activity: Activity, streamMs: number): SseHub {
  const streams = new Set<SseStream>()

  function write(stream: SseStream, text: string): void {
    if ((stream.controller.desiredSize ?? 0) < -mostUnread) return close(stream, 'nobody reads it')
    stream.controller.enqueue(encoder.encode(text))
  }

  function beat(stream: SseStream): void {
    stream.heartbeat = clock.after(heartbeatMs, () => {
      write(stream, ':\n\n')
      if (streams.has(stream)) beat(stream)
    })
  }

  function forget(stream: SseStream, what: string, why: string): boolean {
    if (!streams.delete(stream)) return false
    stream.heartbeat.cancel()
    stream.end.cancel()
    activity.stream(what, stream.path, why)
    return true
  }

  function close(stream: SseStream, why: string): void {
    if (forget(stream, 'ended', why)) stream.controller.close()
  }

  function send(stream: SseStream, { topic, message }: ProductMessage): void {
    const chosen = filtered(stream, topic, message)
    if (chosen !== undefined) write(stream, `data: ${JSON.stringify(chosen)}\n\n`)
  }

  const of = (product?: string): readonly SseStream[] =>
    [...streams].filter((stream) => product === undefined || stream.product === product)

  return {
    publish(product, sent) {
      for (const stream of of(product)) send(stream, sent)
    },
    open(filter, snapshot) {
      let stream: SseStream | undefined
      return new ReadableStream<Uint8Array>({
        start(controller) {
          const path = `/sse/${filter.product}${filter.field === undefined ? '' : `/${filter.field}`}`
          const opened = { ...filter, controller, path, heartbeat: noTimer, end: noTimer }
          stream = opened
          streams.add(opened)
          activity.stream('opened', path, filter.topics?.join(',') ?? 'all topics')
          beat(opened)
          if (streamMs > 0) {
            opened.end = clock.after(streamMs, () => close(opened, 'planned, the client reconnects at once'))
          }
          write(opened, `retry: ${retryMs}\n\n`)
          for (const sent of snapshot) send(opened, sent)
        },
        cancel() {
          if (stream !== undefined) forget(stream, 'closed', 'by the client')
        },
      })
    },
    isOpen: (product) => of(product).length > 0,
    end(product) {
      for (const stream of of(product)) close(stream, product === undefined ? 'the sandbox stops' : 'no longer shared')
    },
  }
}

/** The message as this stream gets it, or `undefined`. */
function filtered({ topics, field }: StreamFilter, topic: string, message: JsonObject): JsonObject | undefined {
  if (topics !== undefined && !topics.includes(topic)) return undefined
  if (field === undefined) return message
  const { data } = message
  return topic === 'data' && isJsonObject(data) && Object.hasOwn(data, field)
    ? { ...message, data: { [field]: data[field] } }
    : undefined
}
