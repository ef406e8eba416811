import { Hono } from 'hono'
import type { Clock, Timer } from '../../base/clock.ts'
import type { WireTopic } from '../../events/event.ts'
import { type Encodable, encode } from '../../wire/encode.ts'
import { refuse, refuseVehicle } from './answers.ts'

/** The items that one stream asks for. */
interface StreamFilter {
  readonly vin: string
  readonly topics: readonly WireTopic[] | undefined
  readonly field: string | undefined
  /** The id of the last item that the reader has. The kept items after it are sent first. */
  readonly lastEventId: string | undefined
}

/** The Server-Sent Events of all vehicles. */
export interface SseHub {
  publish(vin: string, event: Encodable): void
  open(filter: StreamFilter): ReadableStream<Uint8Array>
  /** Ends the streams of a vehicle, or all streams. */
  end(vin?: string): void
}

interface Item {
  readonly id: number
  readonly vin: string
  readonly event: Encodable
}

interface SseStream extends StreamFilter {
  readonly controller: ReadableStreamDefaultController<Uint8Array>
  heartbeat: Timer
}

const keptItems = 5_000
const heartbeatMs = 15_000
/** A stream that is not read ends when more than this number of items wait. */
const mostUnread = 10_000
const encoder = new TextEncoder()

/** Numbers the items, filters them for each stream, and sends a comment line every 15 seconds. */
export function createSseHub(clock: Clock): SseHub {
  const kept: Item[] = []
  const streams = new Set<SseStream>()
  let lastId = 0

  function write(stream: SseStream, text: string): void {
    if ((stream.controller.desiredSize ?? 0) < -mostUnread) return close(stream)
    stream.controller.enqueue(encoder.encode(text))
  }

  function beat(stream: SseStream): void {
    stream.heartbeat = clock.after(heartbeatMs, () => {
      write(stream, ':\n\n')
      if (streams.has(stream)) beat(stream)
    })
  }

  function close(stream: SseStream): void {
    if (!streams.delete(stream)) return
    stream.heartbeat.cancel()
    stream.controller.close()
  }

  function send(stream: SseStream, item: Item): void {
    const event = filtered(stream, item)
    if (event === undefined) return
    const message = JSON.stringify(encode(event, 'service'))
    write(stream, `event: ${event.topic}\nid: ${item.id}\ndata: ${message}\n\n`)
  }

  return {
    publish(vin, event) {
      lastId += 1
      const item = { id: lastId, vin, event }
      kept.push(item)
      if (kept.length > keptItems) kept.shift()
      for (const stream of streams) send(stream, item)
    },
    open(filter) {
      let stream: SseStream | undefined
      return new ReadableStream<Uint8Array>({
        start(controller) {
          stream = { ...filter, controller, heartbeat: { cancel: () => {} } }
          streams.add(stream)
          beat(stream)
          write(stream, ':\n\n')
          const after = filter.lastEventId === undefined ? Infinity : Number(filter.lastEventId)
          for (const item of kept) if (item.id > after) send(stream, item)
        },
        cancel() {
          if (stream === undefined) return
          streams.delete(stream)
          stream.heartbeat.cancel()
        },
      })
    },
    end(vin) {
      for (const stream of streams) if (vin === undefined || stream.vin === vin) close(stream)
    },
  }
}

/** The event as this stream gets it, or `undefined`. */
function filtered({ vin, topics, field }: StreamFilter, item: Item): Encodable | undefined {
  const { event } = item
  if (item.vin !== vin) return undefined
  if (topics !== undefined && !topics.some((topic) => topic === event.topic)) return undefined
  if (field === undefined) return event
  if (event.topic !== 'data' || !Object.hasOwn(event.data, field)) return undefined
  return { ...event, data: { [field]: event.data[field] } }
}

const topics: readonly WireTopic[] = ['data', 'state', 'vehicle_data', 'alerts', 'errors', 'connectivity']

/** `/sse/{vin}` and `/sse/{vin}/{field}`. */
export function sseRoutes(hub: SseHub, isShared: (vin: string) => boolean): Hono {
  return new Hono().get('/:vin/:field?', ({ req }) => {
    const { vin, field } = req.param()
    if (!isShared(vin)) return refuseVehicle(vin)
    const asked = req.query('topics')?.split(',')
    const known = asked?.flatMap((name) => topics.filter((topic) => topic === name.trim()))
    if (known?.length !== asked?.length) {
      return refuse('invalid_request', `\`topics\` must be a list of ${topics.join(', ')}, separated by commas.`)
    }
    const lastEventId = req.header('last-event-id')
    return new Response(hub.open({ vin, field, topics: known, lastEventId }), {
      headers: { 'content-type': 'text/event-stream', 'cache-control': 'no-store', 'x-accel-buffering': 'no' },
    })
  })
}
