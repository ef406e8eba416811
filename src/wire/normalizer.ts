import { FleethookError } from '../base/errors.ts'
import type { Format, Meta, UnknownReason, WireEvent, WireTopic } from '../events/event.ts'
import type { BuiltInFields, ExtendedBy, FieldCatalogue } from '../events/fields.ts'
import {
  envelopeMeta,
  isEnvelope,
  messageMeta,
  readEnvelopeTime,
  topicOf,
  topicOfLabel,
  undatedMeta,
} from './envelope.ts'
import { fieldReaders, type FieldRules } from './field-types.ts'
import { NormalizedEvent, readPayload } from './normalized-event.ts'
import { asJsonObject, emptyObject, isJsonObject, isPresent, type JsonObject } from './record.ts'
import { isTimeSet, isoText, readInstant, readTime } from './scalars.ts'
import { split, splitValue } from './split.ts'

/** Options of {@link createNormalizer}. */
export interface NormalizerOptions<Fields extends FieldCatalogue = FieldCatalogue> {
  /** Default `'auto'`: reads each message by its shape. With a format, a message of another format is an `unknown` event. */
  readonly format?: 'auto' | Format
  /** Default `true`: values of `data` have the type of the catalogue, or are `null`. `false` leaves them as they were sent. */
  readonly decode?: boolean
  /** Your own fields with their types, or other types for fields of the built-in catalogue. Default: none. */
  readonly fields?: Fields
  /**
   * Called for each value that did not read as the type of its field. `seen` is the name of its wrapper, or `string`,
   * `number`, `boolean`, `object`, `array`, or `empty` for `{}`.
   */
  readonly onDrift?: (field: string, seen: string) => void
}

/** Reads messages as events. */
export interface Normalizer<Fields extends FieldCatalogue = BuiltInFields> {
  /**
   * Reads one parsed message as one event. Never throws and never changes the message, which is the event's `raw`.
   * `receivedAt` is a `Date` or milliseconds since the epoch. Default: now.
   */
  readonly normalize: (message: object, receivedAt?: Date | number) => WireEvent<Fields>
}

/** VINs are the keys of lanes and gaps, which must stay small. A VIN has 17 characters. */
const longestVin = 64

/** Stores cut text at NUL, or write every unpaired surrogate as the same character. So two such VINs could become one. */
const unstorable = /[\p{Cc}\p{Cs}]/u

/**
 * Makes the event without its payload. `createdAt` is the time as it was sent. A `createdMs` that cannot be read, or is of a clock that was
 * never set, says nothing: the time of receipt takes its place, and `meta` says so.
 */
function eventOf(
  topic: WireTopic | 'unknown',
  vin: unknown,
  createdAt: string | undefined,
  createdMs: number,
  receivedAt: Date,
  format: Format,
  meta: Meta,
  raw: JsonObject,
): NormalizedEvent {
  const isVin = typeof vin === 'string' && vin !== '' && vin.length <= longestVin && !unstorable.test(vin)
  const known = isVin ? vin : undefined
  if (!isTimeSet(createdMs)) {
    const at = new Date(receivedAt)
    return new NormalizedEvent(topic, known, isoText(at.getTime()), at, receivedAt, format, undatedMeta(meta), raw)
  }
  return new NormalizedEvent(
    topic,
    known,
    createdAt ?? isoText(createdMs),
    new Date(createdMs),
    receivedAt,
    format,
    meta,
    raw,
  )
}

function unknown(
  reason: UnknownReason,
  { vin, createdAt, at, receivedAt, format, meta, raw }: NormalizedEvent,
): NormalizedEvent {
  const event = new NormalizedEvent('unknown', vin, createdAt, at, receivedAt, format, meta, raw)
  event.reason = reason
  return event
}

function readPlain(raw: JsonObject, receivedAt: Date, pinned: 'auto' | Format, rules: FieldRules): NormalizedEvent {
  const topic = topicOf(raw)
  // Only `data` differs between `service` and `vehicle_maker`.
  const data = topic === 'data' ? raw['data'] : undefined
  const isMaker = Array.isArray(data) || (pinned === 'vehicle_maker' && typeof data !== 'object')
  const format = isMaker ? 'vehicle_maker' : 'service'
  const createdAt = raw['createdAt']
  const text = typeof createdAt === 'string' ? createdAt : undefined
  const isoMs = text === undefined ? Number.NaN : readInstant(text)
  const isIso = !Number.isNaN(isoMs)
  const createdMs = isIso ? isoMs : readTime(createdAt)
  const meta = messageMeta(emptyObject, raw, topic)
  const event = eventOf(
    topic ?? 'unknown',
    raw['vin'],
    isIso ? text : undefined,
    createdMs,
    receivedAt,
    format,
    meta,
    raw,
  )
  if (topic === undefined) return unknown('no_topic', event)
  if (pinned !== 'auto' && pinned !== format) return unknown('format_mismatch', event)
  // The payload of `connectivity` has no key of its own.
  return withPayload(event, topic, topic === 'connectivity' ? raw : raw[topic], rules)
}

function withPayload(event: NormalizedEvent, topic: WireTopic, payload: unknown, rules: FieldRules): NormalizedEvent {
  if (event.vin === undefined) return unknown('vin_missing', event)
  return readPayload(event, topic, payload, rules) ? event : unknown('payload_mismatch', event)
}

function readEnvelope(raw: JsonObject, receivedAt: Date, pinned: 'auto' | Format, rules: FieldRules): NormalizedEvent {
  const { event: body, source, sourcetype, time } = raw
  const hasLabel = isPresent(sourcetype)
  const inner = isJsonObject(body) ? body : undefined
  let topic = typeof sourcetype === 'string' ? topicOfLabel(sourcetype) : undefined
  let nested: JsonObject | undefined
  // With a label for data, the event is the map of fields, and a field can have the name of a topic. Otherwise a key names
  // the topic.
  if (inner !== undefined && !(hasLabel && (topic === undefined || topic === 'data'))) {
    const innerTopic = topicOf(inner)
    if (!hasLabel) topic = innerTopic ?? 'data'
    if (topic === innerTopic) nested = inner
  }
  const isTelemetry =
    topic !== undefined &&
    isPresent(source) &&
    (typeof body === 'object' || (topic === 'state' && typeof body === 'string'))
  const meta = nested === undefined ? envelopeMeta(raw) : messageMeta(envelopeMeta(raw), nested, topic)
  const vin = topic === undefined ? undefined : source
  const createdMs = readEnvelopeTime(time)
  const event = eventOf(topic ?? 'unknown', vin, undefined, createdMs, receivedAt, 'event_collector', meta, raw)
  if (pinned !== 'auto' && pinned !== 'event_collector') return unknown('format_mismatch', event)
  if (topic === undefined || !isTelemetry) return unknown('foreign_event', event)
  const payload = nested === undefined || topic === 'connectivity' ? (nested ?? body) : nested[topic]
  return withPayload(event, topic, payload, rules)
}

/**
 * Makes a normalizer, which reads messages of all three formats as events of one union.
 *
 * @example
 * ```ts
 * import { createNormalizer } from 'fleethook/normalize'
 *
 * const normalizer = createNormalizer()
 * const event = normalizer.normalize(JSON.parse('{"data":{"BatteryLevel":"81.5"},"vin":"0FLEETV14T0000004","createdAt":"2024-02-24T04:58:44Z"}'))
 * if (event.topic === 'data') console.log(event.data.BatteryLevel) // 81.5
 * ```
 *
 * Throws a `FleethookError` of code `option_invalid` when a type in `fields` does not exist.
 *
 * Specification: "Topics", "Payload of a `data` message".
 */
export function createNormalizer<const Fields extends FieldCatalogue = FieldCatalogue>(
  options: NormalizerOptions<Fields> = {},
): Normalizer<ExtendedBy<Fields>> {
  const { format: pinned = 'auto', decode = true, fields, onDrift } = options
  const rules: FieldRules = { readers: decode ? fieldReaders(fields) : undefined, onDrift }
  return {
    normalize(message, receivedAt = Date.now()) {
      const raw = asJsonObject(message)
      const given = new Date(receivedAt)
      const received = Number.isNaN(given.getTime()) ? new Date() : given
      const isCollected = isEnvelope(raw) || (pinned === 'event_collector' && isPresent(raw['event']))
      const event = isCollected ? readEnvelope(raw, received, pinned, rules) : readPlain(raw, received, pinned, rules)
      // The compiler cannot see that each topic gets its own properties. The tests check every event against its schema.
      return event as unknown as WireEvent<ExtendedBy<Fields>> // oxlint-disable-line no-unsafe-type-assertion
    },
  }
}

/** Options of {@link normalize}. */
export interface NormalizeOptions<Fields extends FieldCatalogue = FieldCatalogue> extends NormalizerOptions<Fields> {
  /** When the body was received: a `Date`, or milliseconds since the epoch. Default: now. */
  readonly receivedAt?: Date | number
}

/**
 * Reads a whole body, as text or already parsed, as events. A body is one JSON object, several one after another, or a list.
 *
 * Throws a `FleethookError` of code `message_unreadable` when a part of the body is not a JSON object. To keep the messages
 * before that part, use {@link split} with {@link createNormalizer}.
 *
 * @example
 * ```ts
 * import { normalize } from 'fleethook/normalize'
 *
 * for (const event of normalize('{"state":"online","vin":"0FLEETV14T0000004","createdAt":"2024-02-24T04:58:44Z"}')) {
 *   if (event.topic === 'state') console.log(event.vin, event.state) // 0FLEETV14T0000004 online
 * }
 * ```
 *
 * Specification: "Topics", "Payload of a `data` message".
 */
export function normalize<const Fields extends FieldCatalogue = FieldCatalogue>(
  body: unknown,
  options: NormalizeOptions<Fields> = {},
): WireEvent<ExtendedBy<Fields>>[] {
  const { pieces, broken } = typeof body === 'string' ? split(body) : splitValue(body)
  if (broken) {
    throw new FleethookError(
      'message_unreadable',
      `Message ${broken.index} of the body (counted from 0) is not a JSON object.`,
      { hint: 'A body is one JSON object, several one after another, or a list of them.' },
    )
  }
  const normalizer = createNormalizer<Fields>(options)
  const receivedAt = options.receivedAt ?? Date.now()
  return pieces.map(({ value }) => normalizer.normalize(value, receivedAt))
}
