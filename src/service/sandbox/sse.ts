import type { Clock, Timer } from '../../base/clock.ts'
import { isJsonObject, type JsonObject } from '../../wire/record.ts'
import type { Activity } from './activity.ts'

export interface ProductMessage {
  readonly topic: string
  readonly message: JsonObject
}

/** The items that one stream asks for. */
interface StreamFilter {
  /** The VIN, or the id of the energy site. */
  readonly product: string
  readonly topics: readonly string[] | undefined
  readonly field: string | undefined
  /** The id of the last item that the reader has. The kept items after it are sent after the snapshot. */
  readonly lastEventId: string | undefined
}

/**
 * What happens to streams: `'drop'` breaks the connection, `'silent'` sends nothing more, not even comments, and `'garbage'`
 * sends bytes that are not an item.
 */
export type StreamFault = 'drop' | 'silent' | 'garbage'

export const streamFaults: readonly StreamFault[] = ['drop', 'silent', 'garbage']

/** The Server-Sent Events of all products. */
export interface SseHub {
  publish(product: string, sent: ProductMessage): void
  /** Opens a stream that begins with a snapshot. */
  open(filter: StreamFilter, snapshot: readonly ProductMessage[]): ReadableStream<Uint8Array>
  /** Whether somebody reads the stream of this product. */
  isOpen(product: string): boolean
  /** Makes the streams of a product fail, or all streams. Returns their number. */
  fail(fault: StreamFault, product?: string): number
  /** Ends the streams of a product, or all streams. */
  end(product?: string): void
}

interface SseOptions {
  readonly clock: Clock
  readonly activity: Activity
  /** A stream ends on purpose after this time. 0: never. */
  readonly streamMs: number
  /** Items have a name and a number. */
  readonly namedItems: boolean
}

interface StreamItem extends ProductMessage {
  readonly id: number
  readonly product: string
}

interface SseStream extends StreamFilter {
  readonly controller: ReadableStreamDefaultController<Uint8Array>
  readonly path: string
  heartbeat: Timer
  end: Timer
  silent: boolean
}

const keptItems = 5_000
const heartbeatMs = 15_000
const retryMs = 1_000
/** A stream that is not read ends when more than this number of items wait. */
const mostUnread = 10_000
const encoder = new TextEncoder()
const noTimer: Timer = { cancel: () => {} }

/** Filters the items for each stream, sends a comment line every 15 seconds, and ends each stream after its time. */
export function createSseHub({ clock, activity, streamMs, namedItems }: SseOptions): SseHub {
  const kept: StreamItem[] = []
  const streams = new Set<SseStream>()
  let lastId = 0

  function write(stream: SseStream, text: string | Uint8Array): void {
    if (stream.silent) return
    if ((stream.controller.desiredSize ?? 0) < -mostUnread) return close(stream, 'nobody reads it')
    stream.controller.enqueue(typeof text === 'string' ? encoder.encode(text) : text)
  }

  function beat(stream: SseStream): void {
    stream.heartbeat = clock.after(heartbeatMs, () => {
      write(stream, ':\n\n')
      if (streams.has(stream)) beat(stream)
    })
  }

  function forget(stream: SseStream, what: string, why: string, failed = false): boolean {
    if (!streams.delete(stream)) return false
    stream.heartbeat.cancel()
    stream.end.cancel()
    activity.stream(what, stream.path, why, failed)
    return true
  }

  function close(stream: SseStream, why: string): void {
    if (forget(stream, 'ended', why)) stream.controller.close()
  }

  function send(stream: SseStream, { topic, message }: ProductMessage, id?: number): void {
    const chosen = filtered(stream, topic, message)
    if (chosen === undefined) return
    const name = namedItems ? `event: ${topic}\n${id === undefined ? '' : `id: ${id}\n`}` : ''
    write(stream, `${name}data: ${JSON.stringify(chosen)}\n\n`)
  }

  const of = (product?: string): readonly SseStream[] =>
    [...streams].filter((stream) => product === undefined || stream.product === product)

  return {
    publish(product, sent) {
      lastId += 1
      const item = { ...sent, id: lastId, product }
      kept.push(item)
      if (kept.length > keptItems) kept.shift()
      for (const stream of of(product)) send(stream, item, item.id)
    },
    open(filter, snapshot) {
      let stream: SseStream | undefined
      return new ReadableStream<Uint8Array>({
        start(controller) {
          const path = `/sse/${filter.product}${filter.field === undefined ? '' : `/${filter.field}`}`
          const opened = { ...filter, controller, path, heartbeat: noTimer, end: noTimer, silent: false }
          stream = opened
          streams.add(opened)
          activity.stream('opened', path, filter.topics?.join(',') ?? 'all topics')
          beat(opened)
          if (streamMs > 0) {
            opened.end = clock.after(streamMs, () => close(opened, 'planned, the client reconnects at once'))
          }
          write(opened, `retry: ${retryMs}\n\n`)
          for (const sent of snapshot) send(opened, sent)
          const after = filter.lastEventId === undefined ? Infinity : Number(filter.lastEventId)
          for (const item of kept) if (item.id > after && item.product === filter.product) send(opened, item, item.id)
        },
        cancel() {
          if (stream !== undefined) forget(stream, 'closed', 'by the client')
        },
      })
    },
    isOpen: (product) => of(product).length > 0,
    fail(fault, product) {
      const chosen = of(product)
      for (const stream of chosen) {
        if (fault === 'silent') {
          stream.silent = true
          activity.stream('silent', stream.path, 'by a control', true)
        } else if (fault === 'garbage') {
          activity.stream('garbage', stream.path, 'by a control', true)
          write(stream, garbage)
        } else if (forget(stream, 'dropped', 'by a control', true)) {
          stream.controller.error(new Error('The sandbox was asked to drop this stream.'))
        }
      }
      return chosen.length
    },
    end(product) {
      for (const stream of of(product)) close(stream, product === undefined ? 'the sandbox stops' : 'no longer shared')
    },
  }
}

/** Half a message, a line that is not a field, and bytes that are not UTF-8. */
const garbage = Uint8Array.from([
  ...encoder.encode('data: {"data":{"Soc":\n\n<html>not an item\n\ndata: '),
  ...[0xff, 0xfe, 0xc3],
  ...encoder.encode('\n\n'),
])

/** The message as this stream gets it, or `undefined`. */
function filtered({ topics, field }: StreamFilter, topic: string, message: JsonObject): JsonObject | undefined {
  if (topics !== undefined && !topics.includes(topic)) return undefined
  if (field === undefined) return message
  const { data } = message
  return topic === 'data' && isJsonObject(data) && Object.hasOwn(data, field)
    ? { ...message, data: { [field]: data[field] } }
    : undefined
}
