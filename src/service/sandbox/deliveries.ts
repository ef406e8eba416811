import type { Clock } from '../../base/clock.ts'
import type { Format } from '../../events/event.ts'
import { authorization, type Encodable, encode } from '../../wire/encode.ts'
import type { PostMessage } from './post.ts'
import type { KeptWebhook } from './store.ts'

/** What became of one message that was posted. */
export interface Delivery {
  readonly id: number
  readonly vin: string | undefined
  readonly topic: string
  /** Of the webhook that was set when it was posted. */
  format: Format
  url: string
  /** When it was to be posted, by the sandbox's clock: ISO 8601. */
  readonly at: string
  outcome: 'waiting' | 'accepted' | 'refused' | 'failed'
  status?: number
  /** Why no answer came: the name or code of the error, or why it was not posted. */
  error?: string
}

/** Posts messages to the webhook: each once, those of one vehicle in order. */
export interface Deliveries {
  send(event: Encodable, webhook: KeptWebhook, at: number): void
  /** The last thousand, oldest first. */
  list(): readonly Delivery[]
  clear(): void
  /** Resolves when nothing is on its way any more. */
  settled(): Promise<void>
}

const keptDeliveries = 1_000
const mostWaiting = 20_000
const answerMs = 10_000

/** Deliveries by `post`, to what `current` says is set by then: nothing is posted to a webhook that is paused, replaced or deleted. */
export function createDeliveries(post: PostMessage, clock: Clock, current: () => KeptWebhook | undefined): Deliveries {
  const log: Delivery[] = []
  const lanes = new Map<string, Promise<void>>()
  let lastId = 0
  let waiting = 0

  async function deliver(delivery: Delivery, event: Encodable): Promise<void> {
    const webhook = current()
    if (webhook?.enabled !== true) {
      delivery.outcome = 'failed'
      delivery.error = 'the webhook was paused or deleted meanwhile'
      waiting -= 1
      return
    }
    const controller = new AbortController()
    const timer = clock.after(answerMs, () => controller.abort(new DOMException('No answer in time.', 'TimeoutError')))
    try {
      const { url, format, auth, verify } = webhook
      Object.assign(delivery, { url, format })
      const headers = {
        'content-type': 'application/json',
        ...(auth === undefined ? {} : { authorization: authorization(auth, format) }),
      }
      const body = JSON.stringify(encode(event, format))
      const status = await post({ url, headers, body, verify, signal: controller.signal })
      delivery.status = status
      delivery.outcome = status >= 200 && status < 300 ? 'accepted' : 'refused'
    } catch (error) {
      delivery.outcome = 'failed'
      delivery.error = nameOf(error)
    } finally {
      timer.cancel()
      waiting -= 1
    }
  }

  return {
    send(event, webhook, at) {
      const vin = vinOf(event)
      const { topic } = event
      const { format, url } = webhook
      lastId += 1
      const delivery: Delivery = {
        id: lastId,
        vin,
        topic,
        format,
        url,
        at: new Date(at).toISOString(),
        outcome: 'waiting',
      }
      log.push(delivery)
      if (log.length > keptDeliveries) log.shift()
      if (waiting >= mostWaiting) {
        delivery.outcome = 'failed'
        delivery.error = 'too many messages wait for the webhook'
        return
      }
      waiting += 1
      const lane = vin ?? ''
      const done = (lanes.get(lane) ?? Promise.resolve()).then(() => deliver(delivery, event))
      lanes.set(lane, done)
      void done.then(() => {
        if (lanes.get(lane) === done) lanes.delete(lane)
      })
    },
    list: () => log,
    clear: () => void (log.length = 0),
    async settled() {
      while (lanes.size > 0) await Promise.all(lanes.values())
    },
  }
}

function vinOf(event: Encodable): string | undefined {
  if (event.topic !== 'unknown') return event.vin
  const { vin } = event.raw
  return typeof vin === 'string' ? vin : undefined
}

/** The code of a network error where there is one: never its message, which may hold an address with its credentials. */
function nameOf(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown'
  for (const one of [error, error.cause]) {
    if (one instanceof Error && 'code' in one && typeof one.code === 'string') return one.code
  }
  return error.name
}
