import type { Clock } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import type { FleetEvent, GapEvent, TimerEvent, WireEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { Refusal } from '../http/answers.ts'
import type { Body } from '../http/body.ts'
import { DeliveryIds, driftMs } from './delivery-id.ts'
import type { Door } from '../http/paths.ts'
import type { InboxMessage } from './inbox.ts'
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
export interface ReceivedTest {
  readonly test: string
  readonly bytes: number
}

/** Makes the messages that an inbox keeps, and reads them again. */
export interface Receipts {
  /**
   * Splits a body into messages with an id each. Messages before the first unreadable one are kept. `entrance` also says which secret the
   * body came with.
   */
  read(body: Body, door: Door, entrance: InboxMessage['door']): ReadBody
  malformed(body: Body | undefined, refusal: Refusal): InboxMessage
  /** An event that the receiver itself makes. */
  own(event: GapEvent | TimerEvent): InboxMessage
  /** A message that another process received, with an id of this process, because its order is that of its arrival here. A branch keeps its id. */
  arrived(message: InboxMessage): InboxMessage
  /** Ids from now on sort after this one, which an earlier process made. */
  follow(id: string): void
  /** The `seq` of the newest message. */
  newestSeq(): number
  /** Reads a message of which the inbox kept only the text. */
  readonly reread: (message: InboxMessage) => FleetEvent | MalformedBody
}

/** The lane of a VIN. Lanes without a VIN begin with one asterisk, so a VIN that begins with one gets a second. */
export function laneOf(vin: string): string {
  return vin.startsWith('*') ? `*${vin}` : vin
}

export function vinOf(lane: string): string | undefined {
  if (!lane.startsWith('*')) return lane
  return lane.startsWith('**') ? lane.slice(1) : undefined
}

/** The part of a malformed body that is kept, in characters. */
const malformedLength = 4096

/** Refuses a body of more than `mostMessages` before it reads them. Calls `onClockBehind` once for each set-back. `ids`: those of the receiver in front. */
export function createReceipts(
  normalizer: Normalizer,
  clock: Clock,
  mostMessages = 50_000,
  onClockBehind: (ms: number) => void = () => {},
  ids: DeliveryIds = new DeliveryIds(),
  isBranch: boolean = false,
): Receipts {
  let isBehind = false

  function now(): number {
    const ms = clock.now()
    const behindMs = ids.newestMs - ms
    if (behindMs > driftMs && !isBehind) onClockBehind(behindMs)
    isBehind = behindMs > driftMs
    return ms
  }

  /** A message that the receiver itself makes. */
  function own(
    kind: Exclude<InboxMessage['kind'], 'wire'>,
    lane: string,
    event: GapEvent | TimerEvent | MalformedBody,
  ): InboxMessage {
    const receivedAt = now()
    const text = JSON.stringify(event)
    return { id: ids.next(receivedAt), lane, receivedAt, door: 'root', kind, text, bytes: text.length, event }
  }

  return {
    read(body, door, entrance) {
      const receivedAt = now()
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
        const event = withSecret(normalizer.normalize(value, receivedAt), entrance)
        // Only a message that is not telemetry can be a test message, so telemetry is not checked again.
        if (event.topic === 'unknown' && addIfTest(tests, value, text)) continue
        messages.push({
          id: ids.next(receivedAt),
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
    },

    malformed(body, { error, eventNumber }) {
      const text = body === undefined ? '' : 'text' in body ? body.text : jsonOf(body.value)
      return own('malformed', '*malformed', {
        topic: 'malformed',
        receivedAt: new Date(clock.now()),
        error,
        text: copied(text.slice(0, malformedLength)),
        length: text.length,
        ...(eventNumber === undefined ? {} : { eventNumber }),
      })
    },

    own: (event) => own(event.topic, event.vin === undefined ? '*gap' : laneOf(event.vin), event),

    arrived: (message) => (isBranch ? message : { ...message, id: ids.next(now()) }),

    follow(id) {
      ids.follow(id)
      now()
    },

    newestSeq: () => ids.newestSeq,

    reread({ kind, text, receivedAt, door }) {
      const value = split(text).pieces[0]?.value
      if (value === undefined) {
        throw new FleethookError(
          'message_unreadable',
          `The inbox returned ${text.length} characters that are not a message.`,
        )
      }
      if (kind === 'wire') return withSecret(normalizer.normalize(value, receivedAt), door)
      return revived(value)
    },
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
function revived(value: object): GapEvent | TimerEvent | MalformedBody {
  const dates = ['at', 'receivedAt', 'from', 'to']
  const entries = Object.entries(value).map(([key, inner]) => [
    key,
    dates.includes(key) ? new Date(String(inner)) : inner,
  ])
  return Object.fromEntries(entries)
}
