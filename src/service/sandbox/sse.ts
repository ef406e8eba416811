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
export class SseHub {
  readonly #clock: Clock
  readonly #activity: Activity
  readonly #streamMs: number
  readonly #streams = new Set<SseStream>()

  constructor(clock: Clock, activity: Activity, streamMs: number) {
    this.#clock = clock
    this.#activity = activity
    this.#streamMs = streamMs
  }

  publish(product: string, sent: ProductMessage): void {
    for (const stream of this.#of(product)) this.#send(stream, sent)
  }

  open(filter: StreamFilter, snapshot: readonly ProductMessage[]): ReadableStream<Uint8Array> {
    let stream: SseStream | undefined
    return new ReadableStream<Uint8Array>({
      start: (controller) => {
        const path = `/sse/${filter.product}${filter.field === undefined ? '' : `/${filter.field}`}`
        const opened = { ...filter, controller, path, heartbeat: noTimer, end: noTimer }
        stream = opened
        this.#streams.add(opened)
        this.#activity.stream('opened', path, filter.topics?.join(',') ?? 'all topics')
        this.#beat(opened)
        if (this.#streamMs > 0) {
          opened.end = this.#clock.after(this.#streamMs, () =>
            this.#close(opened, 'planned, the client reconnects at once'),
          )
        }
        this.#write(opened, `retry: ${retryMs}\n\n`)
        for (const sent of snapshot) this.#send(opened, sent)
      },
      cancel: () => {
        if (stream !== undefined) this.#forget(stream, 'closed', 'by the client')
      },
    })
  }

  isOpen(product: string): boolean {
    return this.#of(product).length > 0
  }

  /** Ends the streams of a product, or all streams. */
  end(product?: string): void {
    for (const stream of this.#of(product))
      this.#close(stream, product === undefined ? 'the sandbox stops' : 'no longer shared')
  }

  #of(product?: string): readonly SseStream[] {
    return [...this.#streams].filter((stream) => product === undefined || stream.product === product)
  }

  #send(stream: SseStream, { topic, message }: ProductMessage): void {
    const chosen = filtered(stream, topic, message)
    if (chosen !== undefined) this.#write(stream, `data: ${JSON.stringify(chosen)}\n\n`)
  }

  #write(stream: SseStream, text: string): void {
    if ((stream.controller.desiredSize ?? 0) < -mostUnread) return this.#close(stream, 'nobody reads it')
    stream.controller.enqueue(encoder.encode(text))
  }

  #beat(stream: SseStream): void {
    stream.heartbeat = this.#clock.after(heartbeatMs, () => {
      this.#write(stream, ':\n\n')
      if (this.#streams.has(stream)) this.#beat(stream)
    })
  }

  #close(stream: SseStream, why: string): void {
    if (this.#forget(stream, 'ended', why)) stream.controller.close()
  }

  #forget(stream: SseStream, what: string, why: string): boolean {
    if (!this.#streams.delete(stream)) return false
    stream.heartbeat.cancel()
    stream.end.cancel()
    this.#activity.stream(what, stream.path, why)
    return true
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
