import type { Clock } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import type { FactsEvent, FleetEvent, GapEvent, TimerEvent, WireEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { Refusal } from '../http/answers.ts'
import type { Body } from '../http/body.ts'
import { DeliveryIds, driftMs } from './delivery-id.ts'
import type { Door } from '../http/paths.ts'
import type { DeadLetter, InboxMessage, ReadMessage } from './inbox.ts'
import type { DeadMessage } from '../observe/dead-letters.ts'
import type { TestMessage } from '../observe/observer.ts'
import { checkEnvelope, secretMeta } from '../wire/envelope.ts'
import type { Normalizer } from '../wire/normalizer.ts'
import { jsonText } from '../wire/json.ts'
import { isJsonObject, type JsonObject } from '../wire/record.ts'
import { split, splitValue } from '../wire/split.ts'

/** The messages that were read from a body, and where it stopped being readable. */
interface ReadBody {
  readonly messages: readonly InboxMessage[]
  readonly broken?: Refusal
  /** Test messages of the body: they are answered and reported, and no inbox keeps them. */
  readonly tests?: readonly ReceivedTest[]
}

/** A test message as it was read. */
export type ReceivedTest = Pick<TestMessage, 'test' | 'bytes'>

/** The lane of a VIN. Lanes without a VIN begin with one asterisk, so a VIN that begins with one gets a second. */
export function laneOf(vin: string): string {
  return vin.startsWith('*') ? `*${vin}` : vin
}

export function vinOf(lane: string): string | undefined {
  if (!lane.startsWith('*')) return lane
  return lane.startsWith('**') ? lane.slice(1) : undefined
}

/** The part that is kept of a text that cannot be read, in characters. */
const keptLength = 4096

interface ReceiptsOptions {
  readonly normalizer: Normalizer
  readonly clock: Clock
  /** A body of more messages is refused before they are read. Default 50,000. */
  readonly mostMessages?: number | undefined
  /** Called once for each time that the clock is set back. */
  readonly onClockBehind?: (ms: number) => void
  /** For a branch: the ids of the receiver in front. */
  readonly ids?: DeliveryIds | undefined
}

/** Makes the messages that an inbox keeps, and reads them again. */
export class Receipts {
  readonly ids: DeliveryIds
  readonly #options: ReceiptsOptions
  #isBehind = false

  constructor(options: ReceiptsOptions) {
    this.#options = options
    this.ids = options.ids ?? new DeliveryIds()
  }

  /**
   * Splits a body into messages with an id each. Messages before the first unreadable one are kept. `entrance` also says which secret the
   * body came with.
   */
  read(body: Body, door: Door, entrance: InboxMessage['door']): ReadBody {
    const { normalizer, mostMessages = 50_000 } = this.#options
    const receivedAt = this.#now()
    const messages: InboxMessage[] = []
    const tests: ReceivedTest[] = []
    const { pieces, broken } = 'text' in body ? split(body.text) : splitValue(body.value)
    if (pieces.length > mostMessages) return { messages, broken: tooMany(mostMessages) }
    for (const piece of pieces) {
      let text: string
      if ('text' in body && 'start' in piece) {
        const part = body.text.slice(piece.start, piece.end)
        text = part.length * 2 > body.text.length ? part : copied(part)
      } else text = jsonOf(piece.value)
      // A value that JSON cannot write does not come from a JSON parser.
      if (text === '') return { messages, tests, broken: brokenAt(messages.length + tests.length) }
      const { value } = piece
      const flaw = checkEnvelope(value, door)
      if (flaw !== undefined) {
        if (addIfTest(tests, value, text)) continue
        return { messages, tests, broken: { error: flaw, eventNumber: messages.length + tests.length } }
      }
      const plain = normalizer.normalize(value, receivedAt)
      const event = entrance === door ? plain : withSecret(plain, entrance)
      // Only a message that is not telemetry can be a test message, so telemetry is not checked again.
      if (event.topic === 'unknown' && addIfTest(tests, value, text)) continue
      messages.push({
        id: this.ids.next(receivedAt),
        lane: event.vin === undefined ? '*unknown' : laneOf(event.vin),
        receivedAt,
        door: entrance,
        kind: 'wire',
        bytes: text.length,
        event,
        text,
      })
    }
    if (broken !== undefined) return { messages, tests, broken: brokenAt(broken.index) }
    return messages.length + tests.length === 0 ? { messages, broken: { error: 'body_empty' } } : { messages, tests }
  }

  malformed(body: Body | undefined, { error, eventNumber }: Refusal): InboxMessage {
    const text = body === undefined ? '' : 'text' in body ? body.text : jsonOf(body.value)
    const event: MalformedBody = {
      topic: 'malformed',
      receivedAt: new Date(this.#options.clock.now()),
      error,
      text: copied(text.slice(0, keptLength)),
      length: text.length,
    }
    return this.#made('*malformed', eventNumber === undefined ? event : { ...event, eventNumber })
  }

  /** An event that the receiver itself makes. */
  readonly own = (event: GapEvent | TimerEvent | FactsEvent): InboxMessage =>
    this.#made(event.vin === undefined ? '*gap' : laneOf(event.vin), event)

  /** A message that another process received, with an id of this process, because its arrival here decides its order. A branch keeps its id. */
  arrived(message: InboxMessage): InboxMessage {
    return this.#options.ids === undefined ? { ...message, id: this.ids.next(this.#now()) } : message
  }

  /** Ids from now on sort after this one, which an earlier process made. */
  follow(id: string): void {
    this.ids.follow(id)
    this.#now()
  }

  /** Reads a message of which the inbox kept only the text. */
  readonly reread: ReadMessage = ({ kind, text, receivedAt, door }) => {
    const value = split(text).pieces[0]?.value
    if (value === undefined)
      throw new FleethookError(
        'message_unreadable',
        `The inbox returned ${text.length} characters that are not a message.`,
      )
    return kind === 'wire' ? withSecret(this.#options.normalizer.normalize(value, receivedAt), door) : revived(value)
  }

  #made(lane: string, event: GapEvent | TimerEvent | FactsEvent | MalformedBody): InboxMessage {
    const receivedAt = this.#now()
    const text = JSON.stringify(event)
    const id = this.ids.next(receivedAt)
    return { id, lane, receivedAt, door: 'root', kind: event.topic, text, bytes: text.length, event }
  }

  #now(): number {
    const { clock, onClockBehind } = this.#options
    const ms = clock.now()
    const behindMs = this.ids.newestMs - ms
    if (behindMs > driftMs && !this.#isBehind) onClockBehind?.(behindMs)
    this.#isBehind = behindMs > driftMs
    return ms
  }
}

/** Adds the place of the secret to the `meta` of an event. */
function withSecret(event: WireEvent, entrance: InboxMessage['door']): WireEvent {
  const [, place] = entrance.split(' ')
  return place === undefined ? event : Object.assign(event, { meta: secretMeta(event.meta, Number(place)) })
}

const brokenAt = (eventNumber: number): Refusal => ({ error: 'body_not_json', eventNumber })

/** The longest `test` of a test message, in characters: a UUID has 36. */
const testLength = 64

/** A request with this header carries a test message. When it is refused, no message of the service is lost. */
export const testHeader = 'fleethook-test'

/** Adds a message to `tests` when it is one such as `{"fleethook":{"test":"<uuid>"}}`. Returns whether it is. */
function addIfTest(tests: ReceivedTest[], value: JsonObject, text: string): boolean {
  const { fleethook } = value
  if (!isJsonObject(fleethook) || Object.keys(value).length > 1) return false
  const { test } = fleethook
  if (typeof test !== 'string' || test === '' || test.length > testLength) return false
  tests.push({ test, bytes: text.length })
  return true
}

function tooMany(mostMessages: number): Refusal {
  return {
    error: 'body_too_large',
    hint: `A body has at most ${mostMessages} messages: send smaller batches, or raise \`limits.pendingMessages\`.`,
  }
}

/** A copy, because a slice keeps the whole text in memory. A joined text becomes a new one when a character is read. */
function copied(part: string): string {
  const joined = ` ${part}`
  return joined.lastIndexOf(' ') === -1 ? part : joined.slice(1)
}

/** A parsed value as JSON; empty when JSON cannot write it. */
function jsonOf(value: unknown): string {
  try {
    return typeof value === 'object' && value !== null ? jsonText(value) : (JSON.stringify(value) ?? '')
  } catch {
    return ''
  }
}

/** A message of the receiver's own as it was before it became text. */
function revived(value: object): GapEvent | TimerEvent | FactsEvent | MalformedBody {
  const dates = ['at', 'receivedAt', 'from', 'to', 'until']
  const entries = Object.entries(value).map(([key, inner]) => [
    key,
    dates.includes(key) ? new Date(String(inner)) : inner,
  ])
  return Object.fromEntries(entries)
}

/** A dead letter, as operators and observers see it. */
export function deadMessage({ id, message, error, attempts, diedAt }: DeadLetter, read: ReadMessage): DeadMessage {
  const { text, bytes } = message
  return { id, event: readable(message, read), text, bytes, error, attempts, diedAt: new Date(diedAt) }
}

/** The event of a message, or what can be shown of a message that cannot be read. */
export function readable(message: InboxMessage, read: ReadMessage): FleetEvent | MalformedBody {
  try {
    return message.event ?? read(message)
  } catch {
    return {
      topic: 'malformed',
      receivedAt: new Date(message.receivedAt),
      error: 'message_unreadable',
      text: message.text.slice(0, keptLength),
      length: message.text.length,
    }
  }
}
