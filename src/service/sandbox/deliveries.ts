import type { Clock } from '../../base/clock.ts'
import type { Format } from '../../events/event.ts'
import { authorization, type Encodable } from '../../wire/encode.ts'
import { isJsonObject, type JsonObject } from '../../wire/record.ts'
import { wireMessage } from '../fleet/messages.ts'
import type { Activity } from './activity.ts'
import type { KeptWebhook, PostMessage } from './options.ts'

/** One message to the webhook, and its result so far. */
interface PostedMessage {
  readonly id: number
  readonly vin: string | undefined
  readonly topic: string
  /** The webhook's format at the time of the post. */
  format: Format
  url: string
  /** When the message was due, by the sandbox's clock. ISO 8601. */
  readonly at: string
  outcome: 'waiting' | 'accepted' | 'refused' | 'failed'
  status?: number
  /** Why there is no answer: the name or code of the error, or why the message was not posted. */
  error?: string
}

const mostKept = 1_000
const mostWaiting = 20_000
const answerMs = 10_000

/**
 * Posts messages to the webhook: each message once, and the messages of a vehicle in order. It posts to the webhook that is set when the
 * message's turn comes, and not to a paused one.
 */
export class Deliveries {
  readonly #post: PostMessage
  readonly #clock: Clock
  readonly #activity: Activity
  readonly #current: () => KeptWebhook | undefined
  readonly #log: PostedMessage[] = []
  readonly #lanes = new Map<string, Promise<void>>()
  #lastId = 0
  #waiting = 0

  constructor(post: PostMessage, clock: Clock, activity: Activity, current: () => KeptWebhook | undefined) {
    this.#post = post
    this.#clock = clock
    this.#activity = activity
    this.#current = current
  }

  send(event: Encodable, { format, url }: KeptWebhook, at: number): void {
    const vin = vinOf(event)
    const { topic } = event
    this.#lastId += 1
    const posted: PostedMessage = {
      id: this.#lastId,
      vin,
      topic,
      format,
      url,
      at: new Date(at).toISOString(),
      outcome: 'waiting',
    }
    this.#log.push(posted)
    if (this.#log.length > mostKept) this.#log.shift()
    if (this.#waiting >= mostWaiting) {
      posted.outcome = 'failed'
      posted.error = 'too many messages wait for the webhook'
      return
    }
    this.#waiting += 1
    const lane = vin ?? ''
    const done = (this.#lanes.get(lane) ?? Promise.resolve()).then(() => this.#deliver(posted, event))
    this.#lanes.set(lane, done)
    void done.then(() => {
      if (this.#lanes.get(lane) === done) this.#lanes.delete(lane)
    })
  }

  /** The last 1,000 messages, oldest first. */
  list(): readonly PostedMessage[] {
    return this.#log
  }

  clear(): void {
    this.#log.length = 0
  }

  /** Resolves when no message is on its way. */
  async settled(): Promise<void> {
    while (this.#lanes.size > 0) await Promise.all(this.#lanes.values())
  }

  async #deliver(posted: PostedMessage, event: Encodable): Promise<void> {
    const webhook = this.#current()
    if (webhook?.enabled !== true) {
      posted.outcome = 'failed'
      posted.error = 'the webhook was paused or deleted before the post'
      this.#waiting -= 1
      return
    }
    const clock = this.#clock
    const controller = new AbortController()
    const postedAt = clock.now()
    const timer = clock.after(answerMs, () => controller.abort(new DOMException('No answer in time.', 'TimeoutError')))
    try {
      const { url, format, auth, verify } = webhook
      Object.assign(posted, { url, format })
      const headers = {
        'content-type': 'application/json',
        ...(auth === undefined ? {} : { authorization: authorization(auth, format) }),
      }
      const body = JSON.stringify(messageOf(event, format))
      const status = await this.#post({ url, headers, body, verify, signal: controller.signal })
      posted.status = status
      posted.outcome = status >= 200 && status < 300 ? 'accepted' : 'refused'
    } catch (error) {
      posted.outcome = 'failed'
      posted.error = nameOf(error)
    } finally {
      timer.cancel()
      this.#waiting -= 1
      const { url, topic, vin, status, error } = posted
      const ms = Math.max(0, Math.round(clock.now() - postedAt))
      this.#activity.delivery({ url, topic, vin, ms, status, error })
    }
  }
}

/** The message in the webhook's format. A message that a control sent in that format is posted as it came. */
function messageOf(event: Encodable, format: Format): JsonObject {
  if ('raw' in event && 'format' in event && event.format === format && isJsonObject(event.raw)) return event.raw
  return wireMessage(event, format)
}

function vinOf(event: Encodable): string | undefined {
  if (event.topic !== 'unknown') return event.vin
  const { vin } = event.raw
  return typeof vin === 'string' ? vin : undefined
}

/** The code of a network error, or its name. Not its message, which can hold an address with credentials. */
function nameOf(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown'
  for (const one of [error, error.cause]) {
    if (one instanceof Error && 'code' in one && typeof one.code === 'string') return one.code
  }
  return error.name
}
