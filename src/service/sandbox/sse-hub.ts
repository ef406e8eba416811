import type { Clock, Timer } from '../../base/clock.ts'
import type { WireTopic } from '../../events/event.ts'
import { type Encodable, encode } from '../../wire/encode.ts'

/** Which items a listener asks for. */
export interface Listening {
  readonly vin: string
  readonly topics: readonly WireTopic[] | undefined
  readonly field: string | undefined
  /** The last item that was seen: what came after it is sent first. */
  readonly lastEventId: string | undefined
}

/** Server-Sent Events of all vehicles. */
export interface SseHub {
  publish(vin: string, event: Encodable): void
  listen(listening: Listening): ReadableStream<Uint8Array>
  /** Ends the streams of a vehicle; without one, all. */
  end(vin?: string): void
}

interface Item {
  readonly id: number
  readonly vin: string
  readonly event: Encodable
}

interface Listener extends Listening {
  readonly controller: ReadableStreamDefaultController<Uint8Array>
  heartbeat: Timer
}

const keptItems = 5_000
const heartbeatMs = 15_000
/** A listener that reads nothing is let go when so many pieces wait for it. */
const mostUnread = 10_000
const encoder = new TextEncoder()

/** Streams with topics, single fields, numbered items and a comment line at least every 15 seconds. */
export function createSseHub(clock: Clock): SseHub {
  const kept: Item[] = []
  const listeners = new Set<Listener>()
  let lastId = 0

  function write(listener: Listener, text: string): void {
    if ((listener.controller.desiredSize ?? 0) < -mostUnread) return close(listener)
    listener.controller.enqueue(encoder.encode(text))
  }

  function beat(listener: Listener): void {
    listener.heartbeat = clock.after(heartbeatMs, () => {
      write(listener, ':\n\n')
      if (listeners.has(listener)) beat(listener)
    })
  }

  function close(listener: Listener): void {
    if (!listeners.delete(listener)) return
    listener.heartbeat.cancel()
    listener.controller.close()
  }

  function tell(listener: Listener, item: Item): void {
    const event = wanted(listener, item)
    if (event === undefined) return
    const message = JSON.stringify(encode(event, 'service'))
    write(listener, `event: ${event.topic}\nid: ${item.id}\ndata: ${message}\n\n`)
  }

  return {
    publish(vin, event) {
      lastId += 1
      const item = { id: lastId, vin, event }
      kept.push(item)
      if (kept.length > keptItems) kept.shift()
      for (const listener of listeners) tell(listener, item)
    },
    listen(listening) {
      let listener: Listener | undefined
      return new ReadableStream<Uint8Array>({
        start(controller) {
          listener = { ...listening, controller, heartbeat: { cancel: () => {} } }
          listeners.add(listener)
          beat(listener)
          write(listener, ':\n\n')
          const after = listening.lastEventId === undefined ? Infinity : Number(listening.lastEventId)
          for (const item of kept) if (item.id > after) tell(listener, item)
        },
        cancel() {
          if (listener === undefined) return
          listeners.delete(listener)
          listener.heartbeat.cancel()
        },
      })
    },
    end(vin) {
      for (const listener of listeners) if (vin === undefined || listener.vin === vin) close(listener)
    },
  }
}

/** The event as this listener gets it, or nothing. */
function wanted({ vin, topics, field }: Listening, item: Item): Encodable | undefined {
  const { event } = item
  if (item.vin !== vin) return undefined
  if (topics !== undefined && !topics.some((topic) => topic === event.topic)) return undefined
  if (field === undefined) return event
  if (event.topic !== 'data' || !Object.hasOwn(event.data, field)) return undefined
  return { ...event, data: { [field]: event.data[field] } }
}
